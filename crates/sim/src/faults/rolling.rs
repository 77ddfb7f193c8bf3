//! How long a push takes at most while the nodes are restarted one after the other.
//!
//! Owns: restarting them under load, and the time of the slowest push. Leaves to others: what is
//! right under faults (`run` and its checkers); here each partition's offsets must have no gap.

use crate::process::{Client, Cluster, Item};
use anyhow::{Context, ensure};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const PRODUCERS: usize = 8;
/// Records of a push.
const BATCH: u64 = 10;
/// Pushes that are answered between two steps.
const BETWEEN: u64 = 300;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries of a push that failed, and between two looks.
const AGAIN: Duration = Duration::from_millis(5);

struct Shared {
    clients: Vec<Client>,
    goes_on: AtomicBool,
    answered: AtomicU64,
}

/// Restarts each of three nodes under load: the longest time from the first try of a push to its
/// answer. An error when a record is lost or there twice.
pub async fn rolling() -> anyhow::Result<Duration> {
    let mut cluster = Cluster::of_three([("", ""); 0]).await?;
    let clients = cluster.ids().into_iter().map(|id| cluster.client(id));
    let clients = clients.collect::<anyhow::Result<Vec<Client>>>()?;
    let shared = Arc::new(Shared { clients, goes_on: true.into(), answered: AtomicU64::default() });
    let producing: Vec<_> =
        (0..PRODUCERS).map(|number| tokio::spawn(produce(shared.clone(), number))).collect();
    for id in cluster.ids() {
        shared.more().await?;
        cluster.stop(id).await?;
        shared.more().await?;
        cluster.spawn(id)?;
        cluster.ready(id).await?;
    }
    shared.more().await?;
    shared.goes_on.store(false, Ordering::Relaxed);
    let mut slowest = Duration::ZERO;
    for work in producing {
        slowest = slowest.max(work.await??);
    }
    Ok(slowest)
}

impl Shared {
    async fn more(&self) -> anyhow::Result<()> {
        let (want, begin) = (self.answered.load(Ordering::Relaxed) + BETWEEN, Instant::now());
        while self.answered.load(Ordering::Relaxed) < want {
            ensure!(begin.elapsed() < PATIENCE, "no {BETWEEN} pushes in {PATIENCE:?}");
            tokio::time::sleep(AGAIN).await;
        }
        Ok(())
    }
}

/// Pushes in order; a push that fails goes to the next node under the same ids.
async fn produce(shared: Arc<Shared>, number: usize) -> anyhow::Result<Duration> {
    let partition = format!("p-{number}");
    let (mut next, mut at, mut slowest) = (0, number, Duration::ZERO);
    while shared.goes_on.load(Ordering::Relaxed) {
        let item = |n: u64| Item {
            queue: "rolling".to_owned(),
            partition: partition.clone(),
            transaction_id: Some(format!("{number}-{n}")),
            payload: n.to_string(),
        };
        let items: Vec<Item> = (next..next + BATCH).map(item).collect();
        let begin = Instant::now();
        let pushed = loop {
            match shared.clients[at % shared.clients.len()].push(&items).await {
                Ok(pushed) => break pushed,
                Err(why) if begin.elapsed() > PATIENCE => {
                    return Err(why).with_context(|| format!("{partition} at {next}"));
                }
                Err(_) => at += 1,
            }
            tokio::time::sleep(AGAIN).await;
        };
        slowest = slowest.max(begin.elapsed());
        for (offset, result) in (next..).zip(pushed) {
            ensure!(result.offset == Some(offset), "{partition}: {offset} wanted: {result:?}");
        }
        next += BATCH;
        shared.answered.fetch_add(1, Ordering::Relaxed);
    }
    Ok(slowest)
}
