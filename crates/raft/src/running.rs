//! What lives on the thread `raft`: the library, from start to end.
//!
//! Owns: the order of start and shutdown, telling machine and watchers of leadership. Leaves to others:
//! the calls of the process (`node`, `group`), when to stand for election (`pacing`).

use crate::exchange::{Exchange, Parts};
use crate::gather::{self, Gather};
use crate::host::{Dial, Host, Incoming, Journal, Network};
use crate::log_storage::LogStorage;
use crate::net::greeting::DiskId;
use crate::net::listener;
use crate::node::{Life, RaftNode, RaftOptions, Shared};
use crate::replay::{self, Replayed};
use crate::state_machine::{Checkpoint, StateMachine, Turn};
use crate::transport;
use crate::types::TypeConfig;
use crate::{ClusterOptions, Leader, Machine, Peer, Service, StartError, founding, pacing};
use futures::FutureExt;
use openraft::{BasicNode, Config, Raft, RaftMetrics, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, OnceLock};
use tokio::sync::{oneshot, watch};

/// Runs a node on a thread of its own, `raft`.
pub(crate) fn on_a_thread(
    run: impl Future<Output = Ended> + Send + 'static,
    grouped: bool,
) -> io::Result<()> {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time();
    if grouped {
        // For the connections of appends. Alone, waking the thread costs less without.
        runtime.enable_io();
    }
    let runtime = runtime.build()?;
    let thread = move || {
        let ended = runtime.block_on(run);
        // All that ran on it ends before anybody is told.
        drop(runtime);
        drop(ended);
    };
    std::thread::Builder::new().name("raft".into()).spawn(thread)?;
    Ok(())
}

/// A node that has ended; tells so when it is dropped.
pub(crate) struct Ended(watch::Sender<Life>, Life);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_replace(self.1.clone());
    }
}

/// A node, from start to end.
pub(crate) async fn run(
    options: RaftOptions,
    machine: Arc<dyn Machine>,
    host: Arc<dyn Host>,
    started: oneshot::Sender<Result<RaftNode, StartError>>,
    life: watch::Sender<Life>,
    watched: watch::Receiver<Life>,
) -> Ended {
    let mut running = match Running::start(&options, machine, host).await {
        Ok(running) => running,
        Err(error) => {
            let _ = started.send(Err(error));
            return Ended(life, Life::Ended);
        }
    };
    let (stop, stopping) = watch::channel(false);
    let node = running.node(&options, stop, watched);
    let mut started = Some((started, node));
    if options.cluster.is_some()
        && let Some((told, node)) = started.take()
    {
        let _ = told.send(Ok(node));
    }
    let ended = running.follow_leadership(stopping, started).await;
    Ended(life, ended)
}

/// Longest wait for the network's tasks when a node ends.
const NET_END: std::time::Duration = std::time::Duration::from_secs(2);

/// The network and what runs for it; its threads, where it has some, end when this is dropped.
struct Net {
    runtime: Option<tokio::runtime::Runtime>,
    exchange: Arc<Exchange>,
}

impl Drop for Net {
    fn drop(&mut self) {
        // Its port is free again afterwards. Another thread waits for it, since this one runs tasks.
        if let Some(runtime) = self.runtime.take() {
            let ended = std::thread::spawn(move || runtime.shutdown_timeout(NET_END));
            let _ = ended.join();
        }
    }
}

struct Running {
    id: u64,
    machine: Arc<dyn Machine>,
    turn: Turn,
    raft: Raft<TypeConfig>,
    wal: Arc<dyn Journal>,
    gather: Arc<Gather>,
    checkpoint: Checkpoint,
    leadership: watch::Sender<Option<u64>>,
    leader: Arc<watch::Sender<Option<Leader>>>,
    service: Arc<OnceLock<Arc<dyn Service>>>,
    net: Option<Net>,
}

type Started = (oneshot::Sender<Result<RaftNode, StartError>>, RaftNode);

fn failed(error: impl std::fmt::Display) -> StartError {
    StartError::Failed(error.to_string())
}

impl Running {
    async fn start(
        options: &RaftOptions,
        machine: Arc<dyn Machine>,
        host: Arc<dyn Host>,
    ) -> Result<Self, StartError> {
        let wal = host.open_journal(options)?;
        let started = Self::start_over(options, machine, host, wal.clone()).await;
        if started.is_err() {
            wal.close();
        }
        started
    }

    async fn start_over(
        options: &RaftOptions,
        machine: Arc<dyn Machine>,
        host: Arc<dyn Host>,
        wal: Arc<dyn Journal>,
    ) -> Result<Self, StartError> {
        let durable = replay::durable(options, &*machine)?;
        replay::finish_snapshot(options, &*host, &*wal, durable.as_ref()).await?;
        let replayed = replay::replay(options, &host, &wal, machine.clone(), durable)?;
        let Replayed { state_machine, alone } = replayed;
        let vote = host.load_vote()?;
        let last = wal.state().1;
        replay::check_vote(options, last, vote)?;
        let pristine = vote.is_none() && last.is_none();
        let (gather, outcomes) = Gather::new(options.wal.entry_bytes, options.cluster.is_some());
        let leader = Arc::new(watch::channel(None).0);
        let service = Arc::<OnceLock<_>>::default();
        let checkpoint = state_machine.checkpoint();
        let turn = state_machine.turn();
        let mut storage = LogStorage::new(wal.clone(), host.clone());
        let (mut net, mut bound) = (None, None);
        if let Some(cluster) = &options.cluster {
            let me = options.node_id;
            storage = storage.in_group(me, alone, checkpoint.clone(), gather.clone());
            let parts = |disk, dial, runtime| Parts {
                me: options.node_id,
                disk,
                options: cluster.clone(),
                host: host.clone(),
                dial,
                runtime,
                core: tokio::runtime::Handle::current(),
                machine: machine.clone(),
                wal: wal.clone(),
                gather: gather.clone(),
                service: service.clone(),
                leader: leader.clone(),
            };
            let (opened, incoming) = open_net(&*host, cluster, parts)?;
            (net, bound) = (Some(opened), Some(incoming));
        }
        let raft = start_library(options, &net, storage, state_machine).await?;
        tokio::spawn(gather::follow(gather.clone(), outcomes));
        let teller = raft.clone();
        gather.connect(Box::new(move |gathering| {
            teller.client_write_ff(gathering).now_or_never()?.ok()
        }));
        match (&net, bound) {
            (Some(net), Some(incoming)) => net.begin(&raft, incoming, pristine),
            _ if pristine => {
                let members = BTreeMap::from([(options.node_id, BasicNode::default())]);
                raft.initialize(members).await.map_err(failed)?;
            }
            // Does nothing when the vote on disk says that this node leads already.
            _ => raft.trigger().elect().await.map_err(failed)?,
        }
        let (leadership, _) = watch::channel(None);
        let id = options.node_id;
        Ok(Self {
            id,
            machine,
            turn,
            raft,
            wal,
            gather,
            checkpoint,
            leadership,
            leader,
            service,
            net,
        })
    }

    fn node(
        &self,
        options: &RaftOptions,
        stop: watch::Sender<bool>,
        life: watch::Receiver<Life>,
    ) -> RaftNode {
        let shared = Shared {
            id: self.id,
            gather: self.gather.clone(),
            raft: self.raft.clone(),
            wal: self.wal.clone(),
            checkpoint: self.checkpoint.clone(),
            kept: Mutex::new(VecDeque::new()),
            hold_bytes: options.wal.hold_bytes,
            leadership: self.leadership.subscribe(),
            leader: self.leader.subscribe(),
            service: self.service.clone(),
            exchange: self.net.as_ref().map(|net| net.exchange.clone()),
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
        let mut majority = match &self.net {
            Some(net) => net.exchange.may_lead(),
            None => watch::channel(true).1,
        };
        loop {
            let may = *majority.borrow_and_update();
            let term = {
                let now = server.borrow_and_update();
                let leads = now.state == ServerState::Leader && now.vote.committed && may;
                leads.then_some(now.vote.leader_id.term)
            };
            if term != *self.leadership.borrow() {
                let ready = match term {
                    Some(term) => self.caught_up(term, &mut stopping).await,
                    None => Some(true),
                };
                match ready {
                    Some(true) => {
                        self.announce(term).await;
                        if let Some((told, node)) = started.take_if(|_| term.is_some()) {
                            let _ = told.send(Ok(node));
                        }
                    }
                    // The lead was lost before it was taken up: what follows is told below.
                    Some(false) => {}
                    None => break,
                }
            }
            tokio::select! {
                changed = server.changed() => if changed.is_err() { break },
                changed = majority.changed(), if self.net.is_some() => if changed.is_err() { break },
                () = self.gather.lost() => self.announce(None).await,
                // An error says that every handle was dropped.
                () = async { drop(stopping.wait_for(|stop| *stop).await) } => break,
            }
        }
        self.end(started).await
    }

    /// Waits until all that the log holds now is applied; whether this node still leads in `term` then.
    /// `None` when the node is ending.
    async fn caught_up(&self, term: u64, stopping: &mut watch::Receiver<bool>) -> Option<bool> {
        let mut metrics = self.raft.metrics();
        let target = metrics.borrow().last_log_index;
        let leads = |now: &RaftMetrics<u64, BasicNode>| {
            now.state == ServerState::Leader && now.current_term == term
        };
        tokio::select! {
            reached = metrics.wait_for(|now| {
                now.last_applied.map(|id| id.index) >= target || !leads(now)
            }) => reached.ok().map(|now| leads(&now)),
            _ = stopping.wait_for(|stop| *stop) => None,
        }
    }

    async fn announce(&self, term: Option<u64>) {
        if term.is_none() {
            self.gather.set_leader_term(0);
        }
        tracing::info!(term, "leadership changed");
        {
            let _turn = self.turn.lock().await;
            self.machine.leadership(term);
        }
        self.gather.set_leader_term(term.unwrap_or(0));
        self.leadership.send_replace(term);
        let own = self.net.as_ref().map(|net| net.exchange.own_address().peer);
        let Peer { raft, http } = own.unwrap_or_default();
        let leader = term.map(|term| Leader { id: self.id, term, raft, http });
        self.leader.send_if_modified(|now| {
            let mine = now.as_ref().is_none_or(|now| now.id == self.id);
            let changed = (mine || leader.is_some()) && *now != leader;
            if changed {
                *now = leader;
            }
            changed
        });
    }

    async fn end(&mut self, started: Option<Started>) -> Life {
        self.gather.close();
        let failure = self.raft.metrics().borrow().running_state.clone().err();
        let _ = self.raft.shutdown().await;
        self.announce(None).await;
        // Ends the connections before the files: nobody is answered from a log that is closed.
        self.net = None;
        self.leader.send_replace(None);
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

async fn start_library(
    options: &RaftOptions,
    net: &Option<Net>,
    storage: LogStorage,
    state_machine: StateMachine,
) -> Result<Raft<TypeConfig>, StartError> {
    let config = Arc::new(config(net.is_some()).map_err(failed)?);
    let network = transport::Network(net.as_ref().map(|net| net.exchange.clone()));
    Raft::new(options.node_id, config, network, storage, state_machine).await.map_err(failed)
}

/// Binds the listener and makes all that the network needs, without starting anything.
fn open_net(
    host: &dyn Host,
    cluster: &ClusterOptions,
    parts: impl FnOnce(DiskId, Arc<dyn Dial>, tokio::runtime::Handle) -> Parts,
) -> Result<(Net, Box<dyn Incoming>), StartError> {
    let disk = host.disk_id()?;
    let Network { dial, incoming } = host.network(cluster)?;
    let runtime = host.threaded().then(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("raft-net")
            .enable_all()
            .build()
    });
    let runtime = runtime.transpose().map_err(failed)?;
    let handle = match &runtime {
        Some(runtime) => runtime.handle().clone(),
        None => tokio::runtime::Handle::current(),
    };
    let exchange = Exchange::new(parts(disk, dial, handle));
    Ok((Net { runtime, exchange }, incoming))
}

impl Net {
    fn begin(&self, raft: &Raft<TypeConfig>, incoming: Box<dyn Incoming>, pristine: bool) {
        let exchange = self.exchange.clone();
        let _ = exchange.raft.set(raft.clone());
        let runtime = exchange.runtime.clone();
        runtime.spawn(listener::serve(incoming, exchange.token.clone(), exchange.clone()));
        runtime.spawn(pacing::run(exchange.clone()));
        if pristine && !exchange.options.join {
            runtime.spawn(founding::run(exchange));
        }
    }
}

/// The library's settings.
///
/// Alone a node elects itself at once and sends no heartbeats, so times are long to keep it quiet; log
/// files are purged as soon as the machine's checkpoint allows. In a group, elections and pulses are the
/// node's own (`pacing`), and the upper election timeout is only the lease of [`crate::group`].
fn config(grouped: bool) -> Result<Config, openraft::ConfigError> {
    let lease = crate::group::LEASE_MS;
    let (heartbeat, least, most) =
        if grouped { (lease - 2, lease - 1, lease) } else { (1000, 3000, 5000) };
    let config = Config {
        cluster_name: "queen".into(),
        heartbeat_interval: heartbeat,
        election_timeout_min: least,
        election_timeout_max: most,
        enable_elect: !grouped,
        enable_heartbeat: !grouped,
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: 0,
        purge_batch_size: 1,
        ..Config::default()
    };
    config.validate()
}
