//! Producers and a reader for the tests of a cluster.
//!
//! Owns: pushing in order through whichever node answers, and holding what lies in the queue against
//! what was answered. Leaves to others: who dies when.

use queen_sim::process::{Client, Cluster, Item};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Records of a push.
const BATCH: u64 = 10;
/// Longest wait for one answer before the next node is asked.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one producer was answered: its partition, and the ids in the order in which it sent them.
pub struct Made {
    pub partition: String,
    pub answered: Vec<(String, u64)>,
    pub slowest: Duration,
    /// Answers that were no success, by status and code.
    pub refusals: HashMap<String, u64>,
}

/// Producers at work, each in a partition of its own.
pub struct Load {
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicUsize>,
    working: Vec<JoinHandle<Made>>,
}

impl Load {
    /// Starts so many, spread over the nodes; each goes to the next node when its own fails.
    pub fn start(cluster: &Cluster, queue: &str, producers: usize) -> Load {
        let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let clients: Vec<Client> =
            cluster.ids().into_iter().map(|id| cluster.client(id).unwrap()).collect();
        let work = |number: usize| {
            let (stop, answered, queue) = (stop.clone(), answered.clone(), queue.to_owned());
            tokio::spawn(produce(clients.clone(), queue, number, stop, answered))
        };
        let working = (0..producers).map(work).collect();
        Load { stop, answered, working }
    }

    /// Records answered so far.
    pub fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Waits until so many more are answered; how long that took.
    pub async fn more(&self, records: usize, patience: Duration) -> Duration {
        let (begin, want) = (Instant::now(), self.answered() + records);
        while self.answered() < want {
            assert!(begin.elapsed() < patience, "no {records} records in {patience:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        begin.elapsed()
    }

    /// Ends: every record that was sent is sent until it is answered.
    pub async fn stop(self) -> Vec<Made> {
        self.stop.store(true, Ordering::Relaxed);
        let mut made = Vec::new();
        for work in self.working {
            made.push(work.await.unwrap());
        }
        made
    }
}

async fn produce(
    clients: Vec<Client>,
    queue: String,
    number: usize,
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
) -> Made {
    let partition = format!("p-{number}");
    let mut made = Made {
        partition: partition.clone(),
        answered: Vec::new(),
        slowest: Duration::ZERO,
        refusals: HashMap::new(),
    };
    let (mut next, mut at) = (0, number);
    while !stop.load(Ordering::Relaxed) {
        let items: Vec<Item> = (next..next + BATCH)
            .map(|n| Item {
                queue: queue.clone(),
                partition: partition.clone(),
                transaction_id: Some(format!("{number}-{n}")),
                payload: format!("{{\"n\":{n}}}"),
            })
            .collect();
        next += BATCH;
        let begin = Instant::now();
        let pushed = loop {
            assert!(begin.elapsed() < Duration::from_secs(90), "{partition}: no answer");
            let client = &clients[at % clients.len()];
            match tokio::time::timeout(PATIENCE, client.push(&items)).await {
                Ok(Ok(pushed)) => break pushed,
                // Sent again under the same ids, to the next node: in once, whatever became of it.
                Ok(Err(error)) => {
                    let text = error.to_string();
                    let word = text.split("\"code\":").nth(1).unwrap_or("connection");
                    *made.refusals.entry(word.to_owned()).or_default() += 1;
                }
                Err(_) => *made.refusals.entry("no answer".to_owned()).or_default() += 1,
            }
            at += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        made.slowest = made.slowest.max(begin.elapsed());
        for result in pushed {
            assert!(matches!(result.status.as_str(), "queued" | "duplicate"), "{result:?}");
            made.answered.push((result.transaction_id, result.offset.unwrap()));
        }
        count.fetch_add(BATCH as usize, Ordering::Relaxed);
    }
    made
}

/// Reads a whole partition through one node.
pub async fn read(
    client: &Client,
    queue: &str,
    partition: &str,
    group: &str,
) -> Vec<(String, u64)> {
    let path = format!(
        "/api/v1/pop/queue/{queue}/partition/{partition}?consumerGroup={group}&subscriptionMode=all\
         &autoAck=true&batch=500"
    );
    let mut all = Vec::new();
    loop {
        let answer = client.get(&path).await.unwrap();
        if answer.status == 204 {
            return all;
        }
        assert_eq!(answer.status, 200, "{}", answer.text);
        for message in answer.json()["messages"].as_array().unwrap() {
            let id = message["transactionId"].as_str().unwrap().to_owned();
            all.push((id, message["offset"].as_u64().unwrap()));
        }
    }
}

/// What was answered lies in the queue, each record once, at the offset that was answered, in the
/// order in which its producer sent it; and nothing else does.
pub async fn check(client: &Client, queue: &str, made: &[Made], group: &str) {
    for one in made {
        let found = read(client, queue, &one.partition, group).await;
        let (answered, all) = (one.answered.len(), found.len());
        assert!(found == one.answered, "{}: {answered} answered, {all} found", one.partition);
        assert!(found.iter().map(|(_, offset)| *offset).eq(0..all as u64), "{}", one.partition);
    }
}
