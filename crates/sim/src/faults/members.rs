//! A member taken out under load, wiped, and taken in again.
//!
//! Owns: the calls of the raft routes and their order. Leaves to others: the processes
//! (`crate::process`).

use super::history::History;
use crate::process::{Client, Cluster};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Longest wait for one change of members.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// A change of members that is asked for.
enum Change {
    Remove(u64),
    Add(u64, Value),
    Promote(u64),
}

impl Change {
    async fn ask(&self, client: &Client) -> anyhow::Result<(u16, Value)> {
        let answer = match self {
            Change::Remove(id) => {
                client.delete(&format!("/api/v1/system/raft/members/{id}")).await?
            }
            Change::Add(_, body) => {
                client.post("/api/v1/system/raft/learners", body.to_string()).await?
            }
            Change::Promote(id) => {
                let body = json!({"ids": [id]}).to_string();
                client.post("/api/v1/system/raft/promote", body).await?
            }
        };
        Ok((answer.status, answer.json()))
    }

    /// Whether the members are as they were to become, whichever try brought that about.
    fn done(&self, members: &Value) -> bool {
        let among = |list: &str, id: &u64| {
            members[list].as_array().is_some_and(|all| all.contains(&json!(id)))
        };
        match self {
            Change::Remove(id) => !among("voters", id) && !among("learners", id),
            Change::Add(id, _) => among("learners", id),
            Change::Promote(id) => among("voters", id),
        }
    }

    /// Asks any of these nodes until it is so.
    async fn make(&self, clients: &[Client], history: &History) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        let mut last = Value::Null;
        for client in clients.iter().cycle() {
            if let Ok((status, answer)) = self.ask(client).await {
                history.note("members", json!({"status": status, "answer": answer}));
                last = answer;
            }
            let members = client.get("/api/v1/system/raft/membership").await;
            if members.is_ok_and(|members| members.status == 200 && self.done(&members.json())) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < until, "no change of members in {PATIENCE:?}: {last}");
            tokio::time::sleep(AGAIN).await;
        }
        anyhow::bail!("nobody to ask")
    }
}

/// Takes a node out, empties its disk, takes it in again, and lets it vote.
pub async fn replace(cluster: &mut Cluster, id: u64, history: &History) -> anyhow::Result<()> {
    let others = cluster.ids().into_iter().filter(|other| *other != id);
    let others = others.map(|id| cluster.client(id)).collect::<anyhow::Result<Vec<Client>>>()?;
    Change::Remove(id).make(&others, history).await?;
    cluster.kill(id)?;
    cluster.wipe(id)?;
    cluster.spawn(id)?;
    let (raft, http) = cluster.addresses(id)?;
    let body = json!({"id": id, "raft": raft, "http": http});
    Change::Add(id, body).make(&others, history).await?;
    Change::Promote(id).make(&others, history).await?;
    cluster.ready(id).await
}
