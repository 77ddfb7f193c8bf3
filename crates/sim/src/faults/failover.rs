//! How long nobody answers when the leader dies.
//!
//! Owns: killing the leader under load again and again, and the time to the first answered write.
//! Leaves to others: what is right (`run` and its checkers).

use super::history::History;
use super::queue;
use crate::process::{Client, Cluster, Item};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for an answer after a kill.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two writes of a client that waits for the first answer.
const AGAIN: Duration = Duration::from_millis(5);

/// Kills the leader so often; from each kill to the first write that another node answered, sorted.
/// An error when something that was answered is lost.
pub async fn failover(kills: usize, folder: &Path) -> anyhow::Result<Vec<Duration>> {
    let history = Arc::new(History::new(folder, 0)?);
    let mut cluster = Cluster::of_three([("", ""); 0]).await?;
    let clients = cluster.ids().into_iter().map(|id| cluster.client(id));
    let clients = clients.collect::<anyhow::Result<Vec<Client>>>()?;
    let load = queue::Workload::start(&clients, 0, &history);
    let mut times = Vec::new();
    for number in 0..kills {
        let before = load.answered();
        let begin = Instant::now();
        while load.answered() < before + 50 {
            anyhow::ensure!(begin.elapsed() < PATIENCE, "no load after kill {number}");
            tokio::time::sleep(AGAIN).await;
        }
        let (leader, term) = cluster.leader(0).await?;
        let others = cluster.ids().into_iter().filter(|id| *id != leader);
        let others = others.map(|id| cluster.client(id)).collect::<anyhow::Result<Vec<_>>>()?;
        cluster.kill(leader)?;
        let begin = Instant::now();
        let answers = others.into_iter().map(|client| Box::pin(first_answer(client, number)));
        let (answer, ..) = tokio::time::timeout(PATIENCE, futures::future::select_all(answers))
            .await
            .map_err(|_| anyhow::anyhow!("kill {number}: no answer in {PATIENCE:?}"))?;
        answer?;
        times.push(begin.elapsed());
        history.note(
            "failover",
            json!({"leader": leader, "term": term, "ms": begin.elapsed().as_millis() as u64}),
        );
        cluster.spawn(leader)?;
        cluster.ready(leader).await?;
    }
    let facts = load.stop(PATIENCE).await?;
    let mut wrong = facts.judge();
    cluster.level().await?;
    wrong.extend(queue::read_logs(&clients, &facts).await?);
    anyhow::ensure!(wrong.is_empty(), "{wrong:#?}\nhistory: {}", history.path().display());
    times.sort();
    Ok(times)
}

/// Returns once this node answers a write.
async fn first_answer(client: Client, number: usize) -> anyhow::Result<()> {
    for attempt in 0_u64.. {
        let item = Item {
            queue: "failover".to_owned(),
            partition: "p".to_owned(),
            transaction_id: Some(format!("{number}-{attempt}")),
            payload: "1".to_owned(),
        };
        if client.push(&[item]).await.is_ok() {
            break;
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}
