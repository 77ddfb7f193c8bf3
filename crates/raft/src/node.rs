//! The node: start, propose, checkpoint, shut down.

//!
//! Owns: the thread on which the library runs and the machine is driven, the order of start and shutdown,
//! the leadership watch. Leaves to others: files (`wal`), joining proposals (`gather`).
//!
//! Threads: `raft` runs the library and the machine, `wal` writes and syncs. While one group of
//! proposals is synced, the one before it is applied and the next one gathers. In a group of several `raft`
//! reads and writes the connections of appends too, the machine runs beside it, and all else between nodes
//! has threads of its own, `raft-net`.

use crate::exchange::Exchange;
use crate::gather::Gather;
use crate::host::{Host, Journal, RealHost};
use crate::mark::Mark;
use crate::running;
use crate::state_machine::Checkpoint;
use crate::types::TypeConfig;
use crate::wal::RealDisk;
use crate::{ClusterOptions, Leader, Machine, NotProposed, Service, StartError};
use bytes::Bytes;
use futures::FutureExt;
use openraft::Raft;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tokio::sync::{oneshot, watch};

/// How a node runs.
#[derive(Clone, Debug)]
pub struct RaftOptions {
    /// Directory that belongs to the log: holds `vote` and `wal/`. Created when missing.
    pub dir: PathBuf,
    /// This node's id in the group, 1 to 4,294,967,295; must not change over the life of `dir`.
    pub node_id: u64,
    /// Sizes of the log's files.
    pub wal: WalOptions,
    /// The group of several nodes that this one belongs to; `None`: a group of one.
    pub cluster: Option<ClusterOptions>,
}

impl RaftOptions {
    /// Node 1 in `dir`, default sizes, alone.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: dir.into(), node_id: 1, wal: WalOptions::default(), cluster: None }
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
    /// In a group of several: bytes of log kept behind a durable checkpoint, about, so that a node that
    /// was away catches up without a snapshot.
    pub hold_bytes: u64,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            first_segment_bytes: 4 << 20,
            spare_files: 2,
            cache_bytes: 8 << 20,
            entry_bytes: 4 << 20,
            hold_bytes: 256 << 20,
        }
    }
}

/// A running node; cheap to clone. When the last clone is dropped the node stops by itself.
#[derive(Clone)]
pub struct RaftNode {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) gather: Arc<Gather>,
    pub(crate) raft: Raft<TypeConfig>,
    pub(crate) wal: Arc<dyn Journal>,
    pub(crate) checkpoint: Checkpoint,
    /// Marks that are durable, whose entries are kept for other nodes, each with the bytes of the log
    /// when it came. In a group of several only.
    pub(crate) kept: Mutex<VecDeque<(Mark, u64)>>,
    pub(crate) hold_bytes: u64,
    pub(crate) leadership: watch::Receiver<Option<u64>>,
    pub(crate) leader: watch::Receiver<Option<Leader>>,
    pub(crate) service: Arc<OnceLock<Arc<dyn Service>>>,
    pub(crate) exchange: Option<Arc<Exchange>>,
    pub(crate) life: watch::Receiver<Life>,
    pub(crate) stop: watch::Sender<bool>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    Running,
    Ended,
    Failed(String),
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
        let host = RealHost::new(options.dir.clone(), Arc::new(RealDisk));
        Self::start_on(options, machine, Arc::new(host)).await
    }

    /// As [`RaftNode::start`], on another machine than this process's own: for simulations.
    pub async fn start_on(
        options: RaftOptions,
        machine: Arc<dyn Machine>,
        host: Arc<dyn Host>,
    ) -> Result<Self, StartError> {
        let (started, told) = oneshot::channel();
        let (life, watched) = watch::channel(Life::Running);
        let dir = options.dir.clone();
        let (threaded, grouped) = (host.threaded(), options.cluster.is_some());
        let run = running::run(options, machine, host, started, life, watched);
        if threaded {
            running::on_a_thread(run, grouped).map_err(|source| StartError::Io {
                action: "start a thread for",
                path: dir,
                source,
            })?;
        } else {
            tokio::spawn(run);
        }
        told.await
            .unwrap_or_else(|_| Err(StartError::Failed("the log ended while starting".into())))
    }

    /// Queues a proposal; never blocks. Proposals enter the log in the order of these calls.
    ///
    /// The outcome comes only through [`Machine::apply`], or becomes unknown through
    /// [`Machine::leadership`]. What waits is not bounded here: admission is the caller's.
    pub fn propose(&self, proposal: Bytes) -> Result<(), NotProposed> {
        self.shared.gather.propose(proposal)
    }

    /// The term in which this node leads, or `None`. Set after [`Machine::leadership`] was told.
    pub fn leadership(&self) -> watch::Receiver<Option<u64>> {
        self.shared.leadership.clone()
    }

    /// True while the log waits for space on its disk. It goes on by itself when space returns.
    pub fn storage_full(&self) -> watch::Receiver<bool> {
        self.shared.wal.full()
    }

    /// Tells the log that the machine's durable state holds everything up to `mark` (see
    /// [`crate::Committed::mark`]), so that files up to it may be reused. Returns at once.
    ///
    /// Bytes that are no mark are ignored, with a warning in the log.
    pub fn checkpointed(&self, mark: &[u8]) {
        let Some(mark) = Mark::decode(mark) else {
            tracing::warn!(bytes = mark.len(), "ignored a checkpoint whose mark cannot be read");
            return;
        };
        let Some(mark) = self.shared.let_go(mark) else { return };
        self.shared.checkpoint.set(mark);
        if *self.shared.life.borrow() != Life::Running {
            return;
        }
        // Only sends a message; an error says that the library has stopped, which `stopped` tells.
        let _ = self.shared.raft.trigger().snapshot().now_or_never();
    }

    /// Bytes of records written to the log since start, and syncs done for them.
    pub fn wal_written(&self) -> (u64, u64) {
        self.shared.wal.written()
    }

    /// Waits until the node has stopped and says why: `None` after [`RaftNode::shutdown`].
    pub async fn stopped(&self) -> Option<String> {
        let mut life = self.shared.life.clone();
        match life.wait_for(|life| *life != Life::Running).await.as_deref() {
            Ok(Life::Failed(why)) => Some(why.clone()),
            Ok(_) => None,
            Err(_) => Some("the log's thread panicked".into()),
        }
    }

    /// Ends the node: the lead is handed over, what was proposed is written and applied, the log's tail is
    /// clean.
    ///
    /// What can be neither committed nor given up by then (a full disk, no majority) is left: it was never
    /// answered for.
    pub async fn shutdown(&self) {
        self.hand_over().await;
        self.shared.gather.close();
        let mut open = self.shared.gather.open();
        let mut full = self.shared.wal.full();
        let limit = async {
            match &self.shared.exchange {
                // Without a majority the rest may wait for ever.
                Some(exchange) => exchange.stop_limit().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = open.wait_for(|open| *open == 0) => {}
            _ = full.wait_for(|full| *full) => {}
            () = limit => {}
            _ = self.stopped() => {}
        }
        self.shared.stop.send_replace(true);
        self.stopped().await;
    }
}

impl Shared {
    /// The newest mark up to which no other node is likely to need the log any more: alone, `durable`; else
    /// one behind which [`WalOptions::hold_bytes`] have been written.
    fn let_go(&self, durable: Mark) -> Option<Mark> {
        if self.exchange.is_none() {
            return Some(durable);
        }
        let (bytes, _) = self.wal.written();
        let mut kept = self.kept.lock();
        kept.push_back((durable, bytes));
        let mut oldest = None;
        while kept.front().is_some_and(|(_, at)| bytes - at >= self.hold_bytes) {
            oldest = kept.pop_front().map(|(mark, _)| mark);
        }
        oldest
    }
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
