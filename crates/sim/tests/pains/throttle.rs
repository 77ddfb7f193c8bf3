//! Throttling, permissions, failures that last.
//!
//! Rows that are elsewhere: 10, 12 and the 40 refusals of 29 (minutes and hours) under a clock that leaps,
//! in `tests/sink/failure.rs` and `queen_sink::retry`; 30, 31, 36 (credentials, certificates, proxies) in its
//! `bucket_s3` and in `e2e/credentials.rs`.

use crate::place::Place;
use queen_sim::double::{Answer, Event, Op, Rule};
use std::time::Duration;

fn slow_down() -> Answer {
    Answer::error(503, "SlowDown", "Please reduce your request rate.")
}

/// The times between the first refusal and what follows it.
fn pause_after_refusal(events: &[Event]) -> Duration {
    let refused = events.iter().position(|event| event.status == Some(503)).unwrap();
    events[refused + 1].at - events[refused].at
}

/// Row 29: a pause that is asked for in seconds holds for every queue.
#[tokio::test]
async fn nothing_is_sent_within_the_pause_that_the_bucket_asks_for() {
    let mut place = Place::new(&[]).await;
    place.push(&[("p", "0")]).await;
    place.whole().await;
    let before = place.double.events().len();
    place.double.rule(Rule::on(Op::Put).times(1).answer(slow_down().header("retry-after", "3")));
    place.push(&[("p", "1")]).await;
    place.until("a refusal", || place.double.events().len() > before).await;
    // Another queue of the same bucket waits too.
    place.push_items(vec![crate::place::item("others", "p", "2")]).await;
    place.whole().await;
    let pause = pause_after_refusal(&place.double.events());
    assert!(pause >= Duration::from_secs(3), "{pause:?}");
    place.stop().await;
}

/// Row 29: `Retry-After` as a date.
#[tokio::test]
async fn a_pause_until_a_date_is_held() {
    let mut place = Place::new(&[]).await;
    let answer = slow_down()
        .header("date", "Sat, 24 Oct 2026 10:00:00 GMT")
        .header("retry-after", "Sat, 24 Oct 2026 10:00:03 GMT");
    place.double.rule(Rule::on(Op::Put).times(1).answer(answer));
    place.push(&[("p", "1")]).await;
    place.whole().await;
    let pause = pause_after_refusal(&place.double.events());
    assert!(pause >= Duration::from_secs(3), "{pause:?}");
    place.stop().await;
}

/// Rows 10, 29: what the state says while the bucket refuses, and that it goes on.
#[tokio::test]
async fn a_throttled_queue_says_so_and_catches_up() {
    let mut place = Place::new(&[]).await;
    place.double.rule(Rule::on(Op::Put).times(8).answer(slow_down()));
    place.push(&[("p", "1")]).await;
    place.said("orders", "asks for fewer requests").await;
    place.whole().await;
    assert_eq!(place.double.count(Op::Put), 10);
    place.stop().await;
}
