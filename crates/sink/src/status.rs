//! What the sink tells of itself in `/status`.
//!
//! Owns: the fields, and the board that workers write and pages read.
//! Leaves to others: the page (`queen-http`).

use parking_lot::Mutex;
use queen_core::Stamp;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// The last error of a queue.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LastError {
    /// When, log clock, ISO 8601.
    pub at: String,
    /// What and why, in words.
    pub message: String,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueStatus {
    /// Name.
    pub name: String,
    /// This node copies it.
    pub owned_here: bool,
    /// The node that does, if it is another.
    pub held_by: Option<String>,
    /// `claiming`, `held`, `restoring`, `filling`, `intent`, `upload`, `commit`, `missing`,
    /// `diverged`, `undecryptable`, `failed`, `fenced`, `drained`.
    pub state: &'static str,
    /// Last committed window; 0 before the first.
    pub k: u64,
    /// Its end.
    pub t_end: Option<String>,
    /// Everything before this is in the bucket.
    pub complete_through: Option<String>,
    /// Age of the oldest record that is not in the bucket, on the log clock; 0 when none waits,
    /// `null` when another node copies the queue.
    pub lag_seconds: Option<f64>,
    /// The window in work was found at a claim.
    pub redo: bool,
    /// Weight of the window being filled.
    pub buffered_bytes: u64,
    /// Windows in the bucket.
    pub windows_committed: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their data objects.
    pub bytes: u64,
    /// Records listed as lost.
    pub records_lost: u64,
    /// Ranges in which they lay.
    pub gaps: u64,
    /// Records that are lost and that no window lists yet.
    pub records_lost_waiting: u64,
    /// Stays until replaced.
    pub last_error: Option<LastError>,
    /// Stamp of the oldest record that is not in the bucket.
    #[serde(skip)]
    pub oldest: Option<Stamp>,
}

impl QueueStatus {
    /// A window is between its intent and its commit.
    pub fn in_flight(&self) -> bool {
        matches!(self.state, "intent" | "upload" | "commit")
    }
}

/// The bucket.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BucketStatus {
    /// It answered the last request; `null` before the first.
    pub reachable: Option<bool>,
    /// Kind of the last failure, until a request succeeds.
    pub kind: Option<&'static str>,
    /// The last failure in words.
    pub error: Option<String>,
    /// Bucket name.
    pub name: String,
    /// Endpoint.
    pub endpoint: String,
    /// Region.
    pub region: String,
    /// Prefix of keys.
    pub prefix: String,
    /// Since when `reachable` has its value.
    #[serde(skip)]
    pub since: Option<Instant>,
}

/// All queues of a sink.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Mutex<BTreeMap<String, QueueStatus>>>);

impl Board {
    /// Changes a queue's line, made on first use.
    pub fn update(&self, queue: &str, change: impl FnOnce(&mut QueueStatus)) {
        let mut lines = self.0.lock();
        let line = lines.entry(queue.to_owned()).or_insert_with(|| QueueStatus {
            name: queue.to_owned(),
            state: "claiming",
            ..QueueStatus::default()
        });
        change(line);
    }

    /// Takes a queue's line away.
    pub fn remove(&self, queue: &str) {
        self.0.lock().remove(queue);
    }

    /// All lines at the log clock `now`, in order of names.
    pub fn lines(&self, now: Stamp) -> Vec<QueueStatus> {
        let mut lines: Vec<QueueStatus> = self.0.lock().values().cloned().collect();
        for line in &mut lines {
            line.lag_seconds = line.owned_here.then(|| {
                line.oldest.map_or(0.0, |oldest| now.0.saturating_sub(oldest.0) as f64 / 1e6)
            });
        }
        lines
    }
}

/// The `s3` of `/status` on a node without a sink.
pub fn off() -> serde_json::Value {
    serde_json::json!({ "enabled": false, "sinks": [] })
}
