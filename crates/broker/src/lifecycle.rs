//! Start and stop: lock, store, log, replay; and back in order.
//!
//! Owns: the order, the layout of the data directory (`store/`, `log/`), the options of all parts.

use crate::admission::Admission;
use crate::autopilot::Rates;
use crate::broker::{Broker, Shared};
use crate::counters::Counters;
use crate::disk::{self, DiskMarks};
use crate::ephemeral::{self, Ephemeral};
use crate::following::Following;
use crate::forward::Desk;
use crate::history::{self, History};
use crate::keyring::Keyring;
use crate::machine::Applier;
use crate::parking::Parking;
use crate::peers::{self, Peers};
use crate::pop::HeldBack;
use crate::proposer::Proposer;
use crate::sealing::Sealing;
use crate::switch::Turned;
use crate::ticker::{self, Ticker};
use parking_lot::Mutex;
use queen_core::row::{LastStampRow, key};
use queen_raft::{ClusterOptions, RaftNode, RaftOptions, WalOptions};
use queen_state::step::get;
use queen_store::{DirLock, Store, StoreOptions};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// How a broker runs.
#[derive(Debug)]
pub struct BrokerOptions {
    /// Data directory; created when missing.
    pub dir: PathBuf,
    /// This node's id in the group.
    pub node_id: u64,
    /// The group of several nodes that this one belongs to; none: it is alone.
    pub cluster: Option<ClusterOptions>,
    /// Sizes of the log's files.
    pub wal: WalOptions,
    /// Sizes and times of the store.
    pub store: StoreOptions,
    /// Shares of the disk at which pushes stop and go on.
    pub disk: DiskMarks,
    /// Bytes of pushes in flight; 128 MiB. One larger push is let in alone.
    pub write_bytes_max: usize,
    /// Bytes of everything else in flight; 32 MiB.
    pub settle_bytes_max: usize,
    /// Longest time from a request to its answer, waiting pops apart; 30 s.
    pub deadline: Duration,
    /// How often retention looks; 5 s.
    pub retention_every: Duration,
    /// Keys of encrypted queues; none.
    pub keyring: Keyring,
    /// Bounds of queues in memory.
    pub ephemeral: ephemeral::Settings,
}

impl BrokerOptions {
    /// Everything at its default, in `dir`.
    pub fn new(dir: impl Into<PathBuf>) -> BrokerOptions {
        BrokerOptions {
            dir: dir.into(),
            node_id: 1,
            cluster: None,
            wal: WalOptions::default(),
            store: StoreOptions::default(),
            disk: DiskMarks::default(),
            write_bytes_max: 128 << 20,
            settle_bytes_max: 32 << 20,
            deadline: Duration::from_secs(30),
            retention_every: Duration::from_secs(5),
            keyring: Keyring::none(),
            ephemeral: ephemeral::Settings::default(),
        }
    }
}

/// The broker did not start: nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The directory is not to be had.
    #[error(transparent)]
    Lock(#[from] queen_store::LockError),
    /// The store does not open.
    #[error(transparent)]
    Store(#[from] queen_store::OpenError),
    /// The log does not start.
    #[error(transparent)]
    Log(#[from] queen_raft::StartError),
    /// The recovered state does not read.
    #[error("the state in {} does not read: {what}", dir.display())]
    State {
        /// The data directory.
        dir: PathBuf,
        /// What is wrong.
        what: String,
    },
}

impl Broker {
    /// Opens the data directory, replays the log, and serves. A single node leads by then; in a
    /// cluster somebody may only lead later ([`Broker::unfit`]).
    ///
    /// Must be called within a runtime; the broker's tasks live in it.
    pub async fn start(options: BrokerOptions) -> Result<Broker, StartError> {
        let lock = DirLock::acquire(&options.dir)?;
        let only_copy = options.cluster.is_none();
        let store_options = StoreOptions { only_copy, ..options.store.clone() };
        let (store, recovered) = Store::open(&options.dir.join("store"), store_options)?;
        info!(
            applied = recovered.applied.as_ref().map(|a| a.index),
            cut_files = recovered.cut_files,
            removed_files = recovered.removed_files,
            "store opened"
        );
        let (origin, counters) = (origin(), Arc::new(Counters::default()));
        let clustered = options.cluster.is_some();
        let ephemeral = Ephemeral::new(options.ephemeral, origin, clustered, &counters);
        let shared = Arc::new(Shared {
            store,
            proposer: Proposer::new(origin, Arc::clone(&counters)),
            parking: Parking::new(Arc::clone(&counters)),
            ephemeral,
            following: Following::default(),
            sealing: Sealing::new(options.keyring),
            switches: Turned::default(),
            admission: Admission::new(options.write_bytes_max, options.settle_bytes_max),
            ticker: Ticker::default(),
            unreadable: HeldBack::default(),
            rates: Rates::default(),
            history: History::default(),
            counters,
            deadline: options.deadline,
            node_id: options.node_id,
            clustered,
            peers: Peers::default(),
            runtime: tokio::runtime::Handle::current(),
            stop: tokio::sync::watch::Sender::new(false),
            lock: Mutex::new(Some(lock)),
        });
        let bad_state = |e: queen_state::StorageError| StartError::State {
            dir: options.dir.clone(),
            what: e.to_string(),
        };
        shared.sealing.load(&shared.store.read()).map_err(bad_state)?;
        shared.switches.load(&shared.store.read()).map_err(bad_state)?;
        let applier = Arc::new(Applier::new(Arc::downgrade(&shared)));
        let log = RaftOptions {
            dir: options.dir.join("log"),
            node_id: options.node_id,
            wal: options.wal.clone(),
            cluster: options.cluster,
        };
        let node = RaftNode::start(log, applier).await?;
        let purge = node.clone();
        shared.store.on_durable(move |applied| purge.checkpointed(&applied.mark));
        node.serve(Arc::new(Desk(Arc::downgrade(&shared))));
        shared.proposer.attach(node);
        let broker = Broker { shared };
        let last = get::<LastStampRow>(&broker.shared.store.read(), key::META_LAST_STAMP)
            .map_err(bad_state)?;
        broker.shared.proposer.seen(last.unwrap_or_default().0);
        let queues = broker.shared.sealing.unwritable();
        if queues > 0 {
            warn!(queues, "encrypted queues refuse pushes: QUEEN_ENCRYPTION_KEY is not set");
        }
        disk::check(&broker, &options.dir, options.disk);
        tokio::spawn(disk::watch(broker.clone(), options.dir, options.disk));
        tokio::spawn(history::run(broker.clone()));
        tokio::spawn(ephemeral::run(broker.clone()));
        tokio::spawn(ticker::run(broker.clone(), options.retention_every));
        if broker.shared.clustered {
            tokio::spawn(peers::run(broker.clone()));
        }
        Ok(broker)
    }

    /// Answers waiting pops with nothing and lets no new work in. What was let in is still answered.
    ///
    /// To be called before connections are drained, so that long polls do not hold them.
    pub fn begin_shutdown(&self) {
        self.shared.parking.close();
        self.shared.ephemeral.close();
        self.shared.stop.send_replace(true);
    }

    /// Stops: answers what is on its way, ends the log, makes a last checkpoint, unlocks the directory.
    pub async fn shutdown(&self) {
        self.begin_shutdown();
        self.shared.admission.close();
        if let Some(node) = self.shared.proposer.node() {
            node.shutdown().await;
        }
        self.shared.proposer.lose_all();
        let store = self.shared.store.clone();
        match tokio::task::spawn_blocking(move || store.close()).await {
            Ok(Ok(())) => info!("store closed"),
            Ok(Err(e)) => warn!(error = %e, "the last checkpoint failed, the log has it all"),
            Err(e) => warn!(error = %e, "the last checkpoint was cut off, the log has it all"),
        }
        drop(self.shared.lock.lock().take());
    }

    /// Waits until the log or the store cannot go on, and says why. Pending for ever on a sound one
    /// until [`Broker::shutdown`], after which it gives `None`.
    pub async fn stopped(&self) -> Option<String> {
        match self.shared.proposer.node() {
            Some(node) => node.stopped().await,
            None => None,
        }
    }
}

/// A number that no other start of any node has: proposers know their own entries by it.
fn origin() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = since.as_nanos() as u64;
    nanos ^ u64::from(std::process::id()).rotate_left(48)
}
