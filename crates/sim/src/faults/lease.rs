//! Consumers that hold what they popped, and whether two held the same partition at once.
//!
//! Owns: a group whose members work on what they have for seconds before they ack, the rule, and how long
//! what ends by itself certainly lasts. Leaves to others: what is pushed (`queue`), when a clock is set (`scene`).
//!
//! When a pop is answered, its claim was made between question and answer; so it lasts at least from the
//! answer until the lease's length after the question, on the log clock, or until its holder asked for
//! the ack. A claim that was certainly made within that time is one too many.

use super::history::History;
use super::queue::QUEUE;
use crate::chance::Chance;
use crate::process::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const CONSUMERS: u64 = 3;
/// Length of a lease.
const LEASE: Duration = Duration::from_secs(6);
/// What a look takes.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for one answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// Between two tries that failed at once.
const AGAIN: Duration = Duration::from_millis(50);

/// A claim, as its holder knows it. Times in microseconds since the run began.
#[derive(Clone, Debug)]
pub struct Hold {
    partition: String,
    lease: String,
    /// The pop was sent.
    asked: u64,
    /// It was answered.
    told: u64,
    /// The ack was sent.
    settles: Option<u64>,
}

/// Microseconds for which something of this length certainly lasts: the log clock may run faster than time
/// by a fiftieth, and leap a little when the leader changes; a twentieth in all.
pub fn certain(length: Duration) -> u64 {
    (length - length / 20 - LOOK).as_micros() as u64
}

/// Claims that were made while another was certainly held.
pub fn judge(holds: &[Hold]) -> Vec<String> {
    let mut wrong = Vec::new();
    for hold in holds {
        let end = (hold.asked + certain(LEASE)).min(hold.settles.unwrap_or(u64::MAX));
        let within = |other: &&Hold| {
            let same = other.partition == hold.partition && other.lease != hold.lease;
            same && other.asked >= hold.told && other.told <= end
        };
        for other in holds.iter().filter(within) {
            wrong.push(format!("two holders: {other:?} was given while {hold:?} was held"));
        }
    }
    wrong
}

/// Holders at work.
pub struct Workload {
    stop: Arc<AtomicBool>,
    holds: Arc<Mutex<Vec<Hold>>>,
    working: Vec<JoinHandle<()>>,
}

struct Holder {
    clients: Vec<Client>,
    chance: Chance,
    history: Arc<History>,
    holds: Arc<Mutex<Vec<Hold>>>,
}

impl Workload {
    /// Starts them; each asks any node.
    pub fn start(clients: &[Client], seed: u64, history: &Arc<History>) -> Workload {
        let (stop, holds) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<Hold>>>::default());
        let work = |number: u64| {
            let mut holder = Holder {
                clients: clients.to_vec(),
                chance: Chance::new(seed ^ 0x6c65 ^ number << 32),
                history: history.clone(),
                holds: holds.clone(),
            };
            let stop = stop.clone();
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    holder.once().await;
                }
            })
        };
        let working = (0..CONSUMERS).map(work).collect();
        Workload { stop, holds, working }
    }

    /// Ends, and gives all claims.
    pub async fn stop(self) -> anyhow::Result<Vec<Hold>> {
        self.stop.store(true, Ordering::Relaxed);
        for work in self.working {
            work.await?;
        }
        Ok(std::mem::take(&mut *self.holds.lock()))
    }
}

impl Holder {
    fn client(&mut self) -> Client {
        let node = self.chance.below(self.clients.len() as u64);
        self.clients[node as usize].clone()
    }

    /// Pops, holds for a while, and acks, or lets the lease end.
    async fn once(&mut self) {
        let path = format!(
            "/api/v1/pop/queue/{QUEUE}?consumerGroup=holders&subscriptionMode=all&batch=100\
             &partitions=1&leaseSeconds={}&wait=true&timeout=1000",
            LEASE.as_secs()
        );
        let (client, asked) = (self.client(), self.history.now());
        let answer = match tokio::time::timeout(PATIENCE, client.get(&path)).await {
            Ok(Ok(answer)) if answer.status == 200 => answer.json(),
            Ok(Ok(answer)) if answer.status == 204 => return,
            _ => return tokio::time::sleep(AGAIN).await,
        };
        let told = self.history.now();
        let messages = answer["messages"].as_array().cloned().unwrap_or_default();
        let Some(first) = messages.first() else { return };
        let text = |name: &str| first[name].as_str().unwrap_or_default().to_owned();
        let (partition, lease) = (text("partition"), text("leaseId"));
        let hold = Hold { partition, lease, asked, told, settles: None };
        self.history.note(
            "held",
            json!({"partition": hold.partition, "lease": hold.lease,
            "asked": asked, "told": told}),
        );
        let place = {
            let mut holds = self.holds.lock();
            holds.push(hold);
            holds.len() - 1
        };
        // Some hold longer than they may.
        tokio::time::sleep(Duration::from_millis(self.chance.below(8_000))).await;
        let asks = self.history.now();
        if asks < asked + LEASE.as_micros() as u64 {
            self.holds.lock()[place].settles = Some(asks);
            self.ack(&messages).await;
        }
    }

    /// One try; without an answer the lease ends by itself.
    async fn ack(&mut self, messages: &[Value]) {
        let one = |message: &Value| {
            json!({"transactionId": message["transactionId"],
                "partitionId": message["partitionId"], "leaseId": message["leaseId"],
                "status": "completed"})
        };
        let acks: Vec<Value> = messages.iter().map(one).collect();
        let body = json!({"acknowledgments": acks, "consumerGroup": "holders"}).to_string();
        let client = self.client();
        let _ = tokio::time::timeout(PATIENCE, client.post("/api/v1/ack/batch", body)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(lease: &str, asked: u64, told: u64, settles: Option<u64>) -> Hold {
        let (asked, told) = (asked * 1_000_000, told * 1_000_000);
        let settles = settles.map(|at| at * 1_000_000);
        Hold { partition: "p".into(), lease: lease.into(), asked, told, settles }
    }

    #[test]
    fn only_a_claim_that_was_certainly_made_while_another_was_held_is_wrong() {
        let first = hold("a", 0, 1, None);
        let found = |other: Hold| judge(&[first.clone(), other]).len();
        assert_eq!(found(hold("b", 1, 3, None)), 1, "while it is held");
        assert_eq!(found(hold("b", 0, 3, None)), 0, "it may have been made before");
        assert_eq!(found(hold("b", 2, 6, None)), 0, "it may have been made after");
        assert_eq!(found(hold("b", 7, 8, None)), 0, "after it");
        assert_eq!(found(hold("a", 1, 3, None)), 0, "the same one");
        let elsewhere = Hold { partition: "q".into(), ..hold("b", 1, 3, None) };
        assert_eq!(found(elsewhere), 0);
        let settled = hold("a", 0, 1, Some(2));
        assert_eq!(judge(&[settled.clone(), hold("b", 2, 3, None)]).len(), 0);
        assert_eq!(judge(&[settled, hold("b", 1, 2, None)]).len(), 1);
    }
}
