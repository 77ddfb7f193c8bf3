//! A simulated node: a disk that stays, and the process that comes and goes.
//!
//! Owns: the runtime on which all of a process runs, with a clock of its own; start, stop, death, freeze.
//! Leaves to others: when any of it happens (`run`).
//!
//! Each process has a runtime of the same thread, whose paused clock is moved on by `turn`: dropping the
//! runtime ends every task of the process where it waits, and clocks may run apart.

use super::broker::{Broker, Parts, WallClock};
use super::disk::Disk;
use super::door::Door;
use super::forward::Desk;
use super::host::SimHost;
use super::ledger::Ledger;
use super::machine::Driven;
use super::mutation::Mutation;
use super::net::{self, Net};
use super::vitals::Vitals;
use crate::chance::Chance;
use parking_lot::Mutex;
use queen_raft::{ClusterOptions, Peer, RaftNode, RaftOptions, WalOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// Stamp at which the wall clocks of the nodes are right.
const BEGIN: i64 = 1_792_837_434_910_988;

/// What all nodes of a run have in common.
#[derive(Clone)]
pub struct Common {
    /// Founding voters: 1 to this.
    pub voters: u64,
    /// The network.
    pub net: Net,
    /// What they must agree on.
    pub ledger: Arc<Ledger>,
    /// What is broken.
    pub mutation: Option<Mutation>,
    /// Bytes of log kept behind a checkpoint.
    pub hold_bytes: u64,
    /// Between two checkpoints.
    pub checkpoint_every: Duration,
}

struct Process {
    runtime: Runtime,
    broker: Arc<Broker>,
    vitals: Arc<Vitals>,
    /// How far its clock has gone.
    clock: Instant,
    /// It was asked to stop, and has done so.
    stopped: Arc<AtomicBool>,
    stopping: Arc<AtomicBool>,
}

/// See the module's header.
pub struct Node {
    /// Its id.
    pub id: u64,
    /// What stays.
    pub disk: Disk,
    /// Where clients reach it.
    pub door: Arc<Door>,
    /// When it is started again, µs since the run began; while it is down.
    pub restart_at: u64,
    common: Common,
    chance: Chance,
    process: Option<Process>,
    /// Its clock's speed, in thousandths.
    rate: u64,
    /// Time that went by while it was frozen, µs.
    frozen: Option<u64>,
    /// Its wall clock is so wrong, µs.
    skew: i64,
    leap: Arc<AtomicI64>,
}

impl Node {
    /// A node that was never started.
    pub fn new(id: u64, common: Common, mut chance: Chance, rate: u64, skew: i64) -> Node {
        let disk = Disk::new(Chance::new(chance.draw()), common.mutation);
        Node {
            id,
            disk,
            door: Arc::default(),
            restart_at: 0,
            common,
            chance,
            process: None,
            rate,
            frozen: None,
            skew,
            leap: Arc::default(),
        }
    }

    /// Its broker, while its process runs.
    pub fn broker(&self) -> Option<&Arc<Broker>> {
        self.process.as_ref().map(|process| &process.broker)
    }

    /// Whether it leads, as it thinks.
    pub fn leads(&self) -> bool {
        let node = self.broker().and_then(|broker| broker.node());
        node.is_some_and(|node| node.leadership().borrow().is_some())
    }

    /// Starts its process.
    pub fn start(&mut self) {
        let ledger = self.common.ledger.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let vitals = Arc::new(Vitals::new());
        let (stopped, stopping) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let checkpoint = self.disk.checkpoint();
        ledger.began(self.id, checkpoint.as_ref().map(|checkpoint| checkpoint.index));
        let begin = BEGIN + ledger.now() as i64 + self.skew;
        let host = SimHost {
            id: self.id,
            disk: self.disk.clone(),
            net: self.common.net.clone(),
            vitals: vitals.clone(),
            chance: Mutex::new(Chance::new(self.chance.draw())),
        };
        let (broker, clock) = runtime.block_on(async {
            let wall = WallClock::new(begin, self.leap.clone());
            let parts = Parts {
                id: self.id,
                origin: self.chance.draw(),
                vitals: vitals.clone(),
                mutation: self.common.mutation,
                wall,
                disk: self.disk.clone(),
                ledger: ledger.clone(),
            };
            (Broker::new(parts), Instant::now())
        });
        let takes = Duration::from_micros(self.chance.below(200_000));
        let life = live(
            self.options(),
            host,
            broker.clone(),
            (self.common.checkpoint_every, takes),
            ledger.clone(),
            stopping.clone(),
        );
        runtime.spawn(life);
        self.door.set(Some((runtime.handle().clone(), broker.clone())));
        ledger.note(format_args!("node {} starts", self.id));
        self.process = Some(Process { runtime, broker, vitals, clock, stopped, stopping });
    }

    fn options(&self) -> RaftOptions {
        let peer = |id| (id, Peer { raft: net::address(id), http: String::new() });
        let peers: BTreeMap<u64, Peer> = (1..=self.common.voters).map(peer).collect();
        let cluster = ClusterOptions {
            peers,
            join: self.id > self.common.voters,
            listen: ([127, 0, 0, 1], 7400).into(),
            token: "simulated".into(),
            tls: None,
            election: ClusterOptions::ELECTION,
        };
        RaftOptions {
            dir: format!("node-{}", self.id).into(),
            node_id: self.id,
            wal: WalOptions { hold_bytes: self.common.hold_bytes, ..WalOptions::default() },
            cluster: Some(cluster),
        }
    }

    /// Time goes on by `span` µs, as this node's clock counts it.
    pub fn turn(&mut self, span: u64) {
        let span = span * self.rate / 1000;
        if let Some(missed) = &mut self.frozen {
            *missed += span;
            return;
        }
        let Some(process) = &mut self.process else { return };
        process.clock += Duration::from_micros(span);
        let clock = process.clock;
        process.runtime.block_on(async { tokio::time::sleep_until(clock).await });
        if process.stopped.load(Ordering::Relaxed) {
            self.end("has stopped", 300_000);
        } else if !process.vitals.lives() {
            self.end("is dead", 2_000_000);
        }
    }

    fn end(&mut self, how: &str, longest: u64) {
        let Some(process) = self.process.take() else { return };
        let ledger = &self.common.ledger;
        ledger.note(format_args!("node {} {how}", self.id));
        self.door.set(None);
        drop(process.broker);
        drop(process.runtime);
        self.disk.crash();
        self.frozen = None;
        self.restart_at = ledger.now() + 50_000 + self.chance.below(longest);
    }

    /// Whether it has no process.
    pub fn is_down(&self) -> bool {
        self.process.is_none()
    }

    /// Its process dies after so many more effects; `silent`: with its machine.
    pub fn die_after(&mut self, effects: u64, silent: bool) {
        let Some(process) = &self.process else { return };
        process.vitals.die_after(effects, silent);
        if self.frozen.is_some() {
            self.end("dies frozen", 3_000_000);
        }
    }

    /// Asks its process to stop.
    pub fn stop(&mut self) {
        let Some(process) = &self.process else { return };
        if process.stopping.swap(true, Ordering::Relaxed) {
            return;
        }
        let (broker, stopped) = (process.broker.clone(), process.stopped.clone());
        process.runtime.spawn(async move {
            if let Some(node) = broker.node() {
                node.shutdown().await;
            }
            stopped.store(true, Ordering::Relaxed);
        });
    }

    /// It stands still, and its clock goes on.
    pub fn freeze(&mut self) {
        if self.process.is_some() && self.frozen.is_none() {
            self.frozen = Some(0);
        }
    }

    /// It goes on, and finds that time has passed.
    pub fn thaw(&mut self) {
        let (Some(missed), Some(process)) = (self.frozen.take(), &mut self.process) else { return };
        let missed = Duration::from_micros(missed);
        process.clock += missed;
        process.runtime.block_on(async { tokio::time::advance(missed).await });
    }

    /// Its wall clock leaps to so many µs from where it would be.
    pub fn leap(&mut self, micros: i64) {
        self.leap.store(micros, Ordering::Relaxed);
    }
}

/// One process, from start to end.
async fn live(
    options: RaftOptions,
    host: SimHost,
    broker: Arc<Broker>,
    (every, takes): (Duration, Duration),
    ledger: Arc<Ledger>,
    stopping: Arc<AtomicBool>,
) {
    let (id, vitals) = (host.id, host.vitals.clone());
    let driven = Arc::new(Driven(broker.clone()));
    let node = match RaftNode::start_on(options, driven, Arc::new(host)).await {
        Ok(node) => node,
        Err(error) => return ledger.wrong(format!("start: node {id}: {error}")),
    };
    node.serve(Arc::new(Desk(Arc::downgrade(&broker))));
    broker.attach(node.clone());
    tokio::spawn(broker.clone().ticks());
    tokio::spawn(broker.checkpoints(every, takes));
    let why = node.stopped().await;
    if vitals.lives() && (why.is_some() || !stopping.load(Ordering::Relaxed)) {
        ledger.wrong(format!("ended: node {id} ended by itself: {why:?}"));
    }
}
