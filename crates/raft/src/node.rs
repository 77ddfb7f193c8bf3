//! The node: start, propose, checkpoint, shut down.

use crate::{Machine, NotProposed, StartError};
use bytes::Bytes;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::watch;

/// How a node runs.
#[derive(Clone, Debug)]
pub struct RaftOptions {
    /// Directory that belongs to the log: holds `vote` and `wal/`. Created when missing.
    pub dir: PathBuf,
    /// This node's id in the group, 1 to 4,294,967,295; must not change over the life of `dir`.
    pub node_id: u64,
    /// Sizes of the log's files.
    pub wal: WalOptions,
}

impl RaftOptions {
    /// Node 1 in `dir`, default sizes.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), node_id: 1, wal: WalOptions::default() }
    }
}

/// Sizes of the log's files.
#[derive(Clone, Debug)]
pub struct WalOptions {
    /// Bytes of a log file, preallocated. A larger record gets a larger file.
    pub segment_bytes: u64,
    /// Bytes of the very first file, so that an idle node stays small.
    pub first_segment_bytes: u64,
    /// Purged files kept for reuse, at most.
    pub spare_files: usize,
    /// Bytes of recent entries kept in memory for apply, at most (the newest entry always is).
    pub cache_bytes: usize,
    /// Bytes of proposals joined into one entry, at most (a single larger proposal is taken alone).
    pub entry_bytes: usize,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_segment_bytes: 4 << 20,
            spare_files: 2,
            cache_bytes: 8 << 20,
            entry_bytes: 4 << 20,
        }
    }
}

/// A running node; cheap to clone.
#[derive(Clone)]
pub struct RaftNode {
    shared: Arc<Shared>,
}

struct Shared {
    leadership: watch::Receiver<Option<u64>>,
    storage_full: watch::Receiver<bool>,
    stopped: watch::Receiver<Option<String>>,
}

impl RaftNode {
    /// Opens the log, applies what the machine has not yet, and takes part in the group.
    ///
    /// A pristine directory becomes a group of one voter. Returns once this node leads. The caller
    /// holds the lock of the data directory.
    pub async fn start(
        options: RaftOptions,
        machine: Arc<dyn Machine>,
    ) -> Result<Self, StartError> {
        let _ = (options, machine);
        Err(StartError::Failed("the log is not built yet".into()))
    }

    /// Queues a proposal; never blocks. Proposals enter the log in the order of these calls.
    ///
    /// The outcome comes only through [`Machine::apply`], or becomes unknown through
    /// [`Machine::leadership`]. What waits is not bounded here: admission is the caller's.
    pub fn propose(&self, proposal: Bytes) -> Result<(), NotProposed> {
        let _ = proposal;
        Err(NotProposed::Stopped)
    }

    /// The term in which this node leads, or `None`.
    pub fn leadership(&self) -> watch::Receiver<Option<u64>> {
        self.shared.leadership.clone()
    }

    /// True while the log waits for space on its disk. It goes on by itself when space returns.
    pub fn storage_full(&self) -> watch::Receiver<bool> {
        self.shared.storage_full.clone()
    }

    /// Tells the log that the machine's durable state holds everything up to `mark` (see
    /// [`crate::Committed::mark`]), so that files up to it may be reused. Returns at once.
    pub fn checkpointed(&self, mark: &[u8]) {
        let _ = mark;
    }

    /// Bytes written to the log since start, for metrics.
    pub fn wal_bytes_written(&self) -> u64 {
        0
    }

    /// Waits until the node has stopped and says why: `None` after [`RaftNode::shutdown`].
    pub async fn stopped(&self) -> Option<String> {
        let mut stopped = self.shared.stopped.clone();
        let reason = stopped.wait_for(|reason| reason.is_some()).await.ok()?.clone();
        reason
    }

    /// Ends the node: what was proposed is written and applied, the log's tail is clean.
    pub async fn shutdown(&self) {}
}
