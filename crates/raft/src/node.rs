//! The node: start, propose, checkpoint, shut down.

//!
//! Owns: the thread on which the library runs and the machine is driven, the order of start and shutdown,
//! the leadership watch. Leaves to others: files (`wal`), joining proposals (`gather`).
//!
//! Threads: `raft` runs the library and the machine, `wal` writes and syncs. While one group of
//! proposals is synced, the one before it is applied and the next one gathers.

use crate::gather::Gather;
use crate::log_storage::LogStorage;
use crate::mark::Mark;
use crate::replay;
use crate::state_machine::Checkpoint;
use crate::transport::NoPeers;
use crate::types::TypeConfig;
use crate::wal::{Disk, RealDisk, Wal};
use crate::{ClusterOptions, Leader, Machine, NotProposed, Peer, Service, StartError};
use bytes::Bytes;
use futures::FutureExt;
use openraft::{BasicNode, Config, Raft, ServerState, SnapshotPolicy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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

/// A running node; cheap to clone. When the last clone is dropped the node stops by itself.
#[derive(Clone)]
pub struct RaftNode {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) id: u64,
    pub(crate) gather: Arc<Gather>,
    pub(crate) raft: Raft<TypeConfig>,
    wal: Wal,
    checkpoint: Checkpoint,
    pub(crate) leadership: watch::Receiver<Option<u64>>,
    pub(crate) leader: watch::Receiver<Option<Leader>>,
    pub(crate) service: OnceLock<Arc<dyn Service>>,
    pub(crate) life: watch::Receiver<Life>,
    stop: watch::Sender<bool>,
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
        Self::start_on(options, machine, Arc::new(RealDisk)).await
    }

    pub(crate) async fn start_on(
        options: RaftOptions,
        machine: Arc<dyn Machine>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, StartError> {
        let (started, told) = oneshot::channel();
        let (life, watched) = watch::channel(Life::Running);
        let dir = options.dir.clone();
        std::thread::Builder::new()
            .name("raft".into())
            .spawn(move || run(options, machine, disk, started, life, watched))
            .map_err(|source| StartError::Io { action: "start a thread for", path: dir, source })?;
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
        *self.shared.checkpoint.lock() = Some(mark);
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

    /// Ends the node: what was proposed is written and applied, the log's tail is clean.
    ///
    /// With a full disk, what waits for space is given up: it was never answered for.
    pub async fn shutdown(&self) {
        self.shared.gather.close();
        let mut open = self.shared.gather.open();
        let mut full = self.shared.wal.full();
        tokio::select! {
            _ = open.wait_for(|open| *open == 0) => {}
            _ = full.wait_for(|full| *full) => {}
            _ = self.stopped() => {}
        }
        self.shared.stop.send_replace(true);
        self.stopped().await;
    }
}

/// The thread `raft`, from start to end.
fn run(
    options: RaftOptions,
    machine: Arc<dyn Machine>,
    disk: Arc<dyn Disk>,
    started: oneshot::Sender<Result<RaftNode, StartError>>,
    life: watch::Sender<Life>,
    watched: watch::Receiver<Life>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(source) => {
            let path = options.dir;
            let _ = started.send(Err(StartError::Io { action: "run", path, source }));
            return;
        }
    };
    let ended = runtime.block_on(async {
        let mut running = match Running::start(&options, machine, disk).await {
            Ok(running) => running,
            Err(error) => {
                let _ = started.send(Err(error));
                return Life::Ended;
            }
        };
        let (stop, stopping) = watch::channel(false);
        let node = running.node(stop, watched);
        running.follow_leadership(stopping, Some((started, node))).await
    });
    drop(runtime);
    life.send_replace(ended);
}

/// What lives on the thread `raft`.
struct Running {
    machine: Arc<dyn Machine>,
    raft: Raft<TypeConfig>,
    wal: Wal,
    gather: Arc<Gather>,
    checkpoint: Checkpoint,
    leadership: watch::Sender<Option<u64>>,
    leader: watch::Sender<Option<Leader>>,
    id: u64,
}

type Started = (oneshot::Sender<Result<RaftNode, StartError>>, RaftNode);

impl Running {
    async fn start(
        options: &RaftOptions,
        machine: Arc<dyn Machine>,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, StartError> {
        create_dir(&options.dir)?;
        let wal = Wal::open(&options.dir.join("wal"), &options.wal, disk)?;
        let started = Self::start_over(options, machine, wal.clone()).await;
        if started.is_err() {
            wal.close();
        }
        started
    }

    async fn start_over(
        options: &RaftOptions,
        machine: Arc<dyn Machine>,
        wal: Wal,
    ) -> Result<Self, StartError> {
        if options.cluster.is_some() {
            return Err(StartError::Failed("this build starts single nodes only".into()));
        }
        let state_machine = replay::replay(options, &wal, machine.clone())?;
        let vote = crate::vote::load(&options.dir)?;
        let last = wal.state().1;
        replay::check_vote(options, last, vote)?;
        let pristine = vote.is_none() && last.is_none();
        let checkpoint = state_machine.checkpoint();
        let storage = LogStorage::new(wal.clone(), options.dir.clone());
        let config = config().map_err(|error| StartError::Failed(error.to_string()))?;
        let failed = |error: &dyn std::fmt::Display| StartError::Failed(error.to_string());
        let (id, config) = (options.node_id, Arc::new(config));
        let raft = Raft::new(id, config, NoPeers, storage, state_machine).await;
        let raft = raft.map_err(|error| failed(&error))?;
        if pristine {
            let members = BTreeMap::from([(options.node_id, BasicNode::default())]);
            raft.initialize(members).await.map_err(|error| failed(&error))?;
        } else {
            // Does nothing when the vote on disk says that this node leads already.
            raft.trigger().elect().await.map_err(|error| failed(&error))?;
        }
        let gather = Gather::new(options.wal.entry_bytes);
        let teller = raft.clone();
        gather.connect(Box::new(move |gathering| {
            matches!(teller.client_write_ff(gathering).now_or_never(), Some(Ok(())))
        }));
        let (leadership, _) = watch::channel(None);
        let (leader, _) = watch::channel(None);
        Ok(Self { machine, raft, wal, gather, checkpoint, leadership, leader, id })
    }

    fn node(&self, stop: watch::Sender<bool>, life: watch::Receiver<Life>) -> RaftNode {
        let shared = Shared {
            id: self.id,
            gather: self.gather.clone(),
            raft: self.raft.clone(),
            wal: self.wal.clone(),
            checkpoint: self.checkpoint.clone(),
            leadership: self.leadership.subscribe(),
            leader: self.leader.subscribe(),
            service: OnceLock::new(),
            life,
            stop,
        };
        RaftNode { shared: Arc::new(shared) }
    }

    /// Tells machine and watchers of leadership until the node ends, then ends it.
    async fn follow_leadership(
        &mut self,
        mut stopping: watch::Receiver<bool>,
        mut started: Option<Started>,
    ) -> Life {
        let mut server = self.raft.server_metrics();
        loop {
            let term = {
                let now = server.borrow_and_update();
                let leads = now.state == ServerState::Leader && now.vote.committed;
                leads.then_some(now.vote.leader_id.term)
            };
            if term != *self.leadership.borrow() {
                if term.is_some() && !self.caught_up(&mut stopping).await {
                    break;
                }
                self.announce(term);
                if let Some((told, node)) = started.take_if(|_| term.is_some()) {
                    let _ = told.send(Ok(node));
                }
            }
            tokio::select! {
                changed = server.changed() => if changed.is_err() { break },
                () = self.gather.lost() => self.announce(None),
                // An error says that every handle was dropped.
                _ = stopping.wait_for(|stop| *stop) => break,
            }
        }
        self.end(started).await
    }

    /// Waits until all that the log holds now is applied; false when the node is ending.
    async fn caught_up(&self, stopping: &mut watch::Receiver<bool>) -> bool {
        let mut metrics = self.raft.metrics();
        let target = metrics.borrow().last_log_index;
        tokio::select! {
            reached = metrics.wait_for(|now| {
                now.last_applied.map(|id| id.index) >= target || now.state != ServerState::Leader
            }) => reached.is_ok(),
            _ = stopping.wait_for(|stop| *stop) => false,
        }
    }

    fn announce(&self, term: Option<u64>) {
        if term.is_none() {
            self.gather.set_leader_term(0);
        }
        tracing::info!(term, "leadership changed");
        self.machine.leadership(term);
        self.gather.set_leader_term(term.unwrap_or(0));
        self.leadership.send_replace(term);
        let Peer { raft, http } = Peer::default();
        self.leader.send_replace(term.map(|term| Leader { id: self.id, term, raft, http }));
    }

    async fn end(&self, started: Option<Started>) -> Life {
        self.gather.close();
        let failure = self.raft.metrics().borrow().running_state.clone().err();
        let _ = self.raft.shutdown().await;
        self.announce(None);
        self.wal.close();
        let why = failure.map(|fatal| fatal.to_string());
        if let Some((told, _)) = started {
            let why = why.clone().unwrap_or_else(|| "the log ended while starting".into());
            let _ = told.send(Err(StartError::Failed(why)));
        }
        match why {
            Some(why) => {
                tracing::error!(%why, "the log has failed, the node stops");
                Life::Failed(why)
            }
            None => Life::Ended,
        }
    }
}

/// Makes the log's directory so that a power cut does not take it away again.
fn create_dir(dir: &Path) -> Result<(), StartError> {
    let io_error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Io { action, path, source }
    };
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    RealDisk.sync_dir(above).map_err(io_error("sync the directory", above))
}

/// The library's settings. One voter elects itself at once and sends no heartbeats, so times are long to
/// keep an idle node quiet; log files are purged as soon as the machine's checkpoint allows.
fn config() -> Result<Config, openraft::ConfigError> {
    let config = Config {
        cluster_name: "queen".into(),
        heartbeat_interval: 1000,
        election_timeout_min: 3000,
        election_timeout_max: 5000,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        ..Config::default()
    };
    config.validate()
}

#[cfg(test)]
#[path = "node_tests.rs"]
mod tests;
