//! A request whose effect may or may not have come.
//!
//! Owns: what an answer, or none, says of it. Leaves to others: what was asked and what follows.

use crate::process::Client;
use serde_json::Value;
use std::time::Duration;
use tokio::time::timeout;

/// What is known of a request.
#[derive(Clone, Debug)]
pub enum Told {
    /// It was answered 200, with this body.
    Answered(Value),
    /// It had no effect and never will: no node was there to take it, or its disk was full.
    Refused,
    /// It may have its effect at any time, or never.
    Unknown,
}

/// Posts a body to a node, and waits so long for the answer.
pub async fn post(client: &Client, path: &str, body: &Value, patience: Duration) -> Told {
    match timeout(patience, client.post(path, body.to_string())).await {
        Ok(Ok(answer)) if answer.status == 200 => Told::Answered(answer.json()),
        Ok(Err(why)) if never_sent(&why) => Told::Refused,
        // Refused before it was logged: the disk is full.
        Ok(Ok(answer)) if answer.status == 507 => Told::Refused,
        _ => Told::Unknown,
    }
}

fn never_sent(why: &anyhow::Error) -> bool {
    why.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect)
}

/// Something that was told a number which must not fall.
#[derive(Clone, Copy, Debug)]
pub struct Numbered {
    /// It was asked for; microseconds since the run began.
    pub asked: u64,
    /// It was answered; the same.
    pub told: u64,
    /// What it was told.
    pub number: u64,
}

/// Places of those that began when another had ended that was told a greater number, each with the place of
/// that one.
pub fn fallen(events: &[Numbered]) -> Vec<(usize, usize)> {
    let mut begins: Vec<usize> = (0..events.len()).collect();
    let mut ends = begins.clone();
    begins.sort_by_key(|at| events[*at].asked);
    ends.sort_by_key(|at| events[*at].told);
    let (mut ends, mut greatest) = (ends.into_iter().peekable(), None::<usize>);
    let mut found = Vec::new();
    for later in begins {
        while let Some(ended) = ends.next_if(|at| events[*at].told < events[later].asked) {
            let greater = |before: &usize| events[*before].number < events[ended].number;
            if greatest.as_ref().is_none_or(greater) {
                greatest = Some(ended);
            }
        }
        if let Some(earlier) = greatest.filter(|at| events[*at].number > events[later].number) {
            found.push((later, earlier));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_falls_is_found_unless_the_two_were_asked_for_at_once() {
        let event = |asked, told, number| Numbered { asked, told, number };
        assert!(fallen(&[event(0, 1, 1), event(2, 3, 2), event(2, 3, 2)]).is_empty());
        assert!(fallen(&[event(0, 5, 7), event(2, 3, 2)]).is_empty(), "at once");
        assert_eq!(fallen(&[event(6, 9, 2), event(0, 1, 1), event(0, 5, 7)]), [(0, 2)]);
        let three = [event(0, 1, 9), event(2, 3, 10), event(4, 5, 1), event(6, 7, 2)];
        assert_eq!(fallen(&three), [(2, 1), (3, 1)]);
    }
}
