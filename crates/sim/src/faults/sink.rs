//! The sink under faults: an S3 server, who copies the queue, and the lake against what was answered.
//!
//! Owns: the server and the settings that make the windows small, finding the owner and the middle
//! of a window, the verdict, the watch on the pointer. Leaves to others: pushing (`queue`), cutting off the bucket (`net`).

use super::history::History;
use super::queue::{Facts, QUEUE};
use crate::lake::whole_lake;
use crate::process::{Client, Seaweed, sink_settings};
use parking_lot::Mutex;
use queen_core::limits::SINK_NAMESPACE;
use queen_core::sink::{RowKind, row_key};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// All that was answered must be in the bucket so long after the faults: a node that found something
/// that it cannot mend looks again after a minute.
const COPIED: Duration = Duration::from_secs(120);
/// Longest wait for a window to be in the middle.
const MIDDLE: Duration = Duration::from_secs(3);
/// Between two looks at the sink.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for a node to say what it does.
const PATIENCE: Duration = Duration::from_secs(1);

/// The server of a run.
pub struct Bucket(Seaweed);

impl Bucket {
    /// Starts it at an address of this machine.
    pub async fn start(host: &str) -> anyhow::Result<Bucket> {
        Ok(Bucket(Seaweed::at(host).await?))
    }

    /// The settings of the nodes: windows of half a second, a short lease.
    pub fn settings(&self) -> Vec<(String, String)> {
        let more = [
            ("QUEEN_S3_MAX_WINDOW_MS", "500"),
            ("QUEEN_S3_TARGET_MB", "1"),
            ("QUEEN_S3_LEASE_TTL_MS", "3000"),
        ];
        let mut settings = sink_settings(&self.0.endpoint(), QUEUE);
        settings.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        settings
    }

    /// Waits until all that was answered is in the lake; what is wrong with it, and its windows.
    pub async fn judge(&self, facts: &Facts) -> anyhow::Result<(Vec<String>, u64)> {
        let expected = facts.expected();
        let (_, report) = whole_lake(&self.0.endpoint(), &expected, COPIED).await?;
        let wrong = report.faults.iter().map(|fault| format!("lake: {fault}"));
        Ok((wrong.collect(), report.windows))
    }
}

/// What a node says of the queue.
struct Line {
    owned: bool,
    in_flight: bool,
}

async fn line(client: &Client) -> Option<Line> {
    let status = tokio::time::timeout(PATIENCE, client.sink_status()).await.ok()?.ok()?;
    let queues = status["sinks"][0]["queues"].as_array()?.clone();
    let queue: Value = queues.into_iter().find(|queue| queue["name"] == QUEUE)?;
    let state = queue["state"].as_str().unwrap_or_default();
    let in_flight = ["intent", "upload", "commit"].contains(&state);
    Some(Line { owned: queue["ownedHere"] == true, in_flight })
}

/// The node, by its place among the clients, that copies the queue.
async fn owner(clients: &[Client]) -> Option<usize> {
    for (place, client) in clients.iter().enumerate() {
        if line(client).await.is_some_and(|line| line.owned) {
            return Some(place);
        }
    }
    None
}

/// The same, once it is in the middle of a window or that took too long.
pub async fn owner_in_flight(clients: &[Client]) -> Option<usize> {
    let until = Instant::now() + MIDDLE;
    let mut found = None;
    while Instant::now() < until {
        if found.is_none() {
            found = owner(clients).await;
        }
        let Some(place) = found else {
            tokio::time::sleep(LOOK).await;
            continue;
        };
        match line(&clients[place]).await {
            Some(Line { owned: true, in_flight: true }) => break,
            Some(Line { owned: true, .. }) => {}
            _ => found = None,
        }
    }
    found
}

/// The last window that the sink says is in the bucket, through one node; 0 before the first.
async fn pointer(client: &Client) -> Option<u64> {
    let get = json!({"op": "get", "ns": SINK_NAMESPACE,
        "key": row_key("default", QUEUE, RowKind::Committed)});
    let body = json!({"operations": [get]}).to_string();
    let answer =
        tokio::time::timeout(PATIENCE, client.post("/api/v1/kv", body)).await.ok()?.ok()?;
    let value = (answer.status == 200).then(|| answer.json()["results"][0]["value"].clone())?;
    if value.is_null() { Some(0) } else { value["k"].as_u64() }
}

/// Looks at the pointer, which only one owner may move and which never goes back, and counts how often
/// the queue moves from one node to another.
pub struct Watch {
    watching: [JoinHandle<()>; 2],
    seen: Arc<Mutex<Seen>>,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// How often the queue moved.
    pub moves: u64,
    /// The last pointer.
    pub pointer: u64,
    /// Pointers that went back.
    pub wrong: Vec<String>,
}

impl Watch {
    /// Looks until it is stopped.
    pub fn start(clients: &[Client], history: &Arc<History>) -> Watch {
        let seen = Arc::<Mutex<Seen>>::default();
        let of = || (clients.to_vec(), history.clone(), seen.clone());
        let watching = [tokio::spawn(watch_pointer(of())), tokio::spawn(watch_owner(of()))];
        Watch { watching, seen }
    }

    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watching.iter().for_each(JoinHandle::abort);
    }
}

/// Clients of all nodes, the history, and what was seen.
type Watched = (Vec<Client>, Arc<History>, Arc<Mutex<Seen>>);

/// Through one node after the other. One look waits for the one before: what it sees is newer.
async fn watch_pointer((clients, history, all): Watched) {
    for client in clients.iter().cycle() {
        if let Some(now) = pointer(client).await {
            let mut seen = all.lock();
            if now < seen.pointer {
                let text = format!("pointer: window {now} after window {}", seen.pointer);
                history.note("pointer", json!(text));
                seen.wrong.push(text);
            }
            seen.pointer = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn watch_owner((clients, history, all): Watched) {
    let mut before = None;
    loop {
        let now = owner(&clients).await;
        if let Some(place) = now.filter(|_| now != before) {
            history.note("sink", json!({"owner": place + 1}));
            all.lock().moves += u64::from(before.is_some());
            before = now;
        }
        tokio::time::sleep(LOOK).await;
    }
}
