//! The broker on a simulated node: the real rules over their in-memory store, driven by the real log.
//!
//! Owns: applying entries, snapshots, checkpoints, stamping, and whoever waits for a command. Leaves to
//! others: getting commands to whoever leads (`forward`), every rule (`queen-state`), the log.

use super::disk::{Checkpoint, Disk};
use super::ledger::Ledger;
use super::mutation::Mutation;
use super::vitals::Vitals;
use parking_lot::Mutex;
use queen_core::Stamp;
use queen_core::command::Command;
use queen_core::entry::{self, EntryHeader};
use queen_core::reply::Reply;
use queen_raft::{Committed, MachineFailed, RaftNode};
use queen_state::{MemoryStore, query};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// A command's outcome is not known.
pub struct Unknown;

/// Whoever waits for a command.
enum Waiter {
    /// A request of this node.
    Request(oneshot::Sender<Result<Reply, Unknown>>),
    /// Another node: the index of the entry is told.
    Node(oneshot::Sender<u64>),
}

/// Where the answer to a command of this node arrives.
pub type Pending = oneshot::Receiver<Result<Reply, Unknown>>;

/// The wall clock of a node, which may be wrong and may leap.
pub struct WallClock {
    /// Stamp at which the process began, by this clock.
    begin: i64,
    leap: Arc<AtomicI64>,
    since: tokio::time::Instant,
}

impl WallClock {
    /// A clock that shows `begin` now.
    pub fn new(begin: i64, leap: Arc<AtomicI64>) -> WallClock {
        WallClock { begin, leap, since: tokio::time::Instant::now() }
    }

    fn now(&self) -> u64 {
        let passed = self.since.elapsed().as_micros() as i64;
        (self.begin + self.leap.load(Ordering::Relaxed) + passed).max(1) as u64
    }
}

struct State {
    store: MemoryStore,
    rules: queen_state::Machine,
    index: Option<u64>,
    mark: Vec<u8>,
}

struct Line {
    last: u64,
    term: Option<u64>,
    batch: u64,
    waiters: BTreeMap<(u64, u64), Waiter>,
}

/// One process.
pub struct Broker {
    /// The node.
    pub id: u64,
    /// Tells its commands from those of other processes.
    pub origin: u64,
    /// Whether it lives.
    pub vitals: Arc<Vitals>,
    pub(super) mutation: Option<Mutation>,
    wall: WallClock,
    disk: Disk,
    ledger: Arc<Ledger>,
    state: Mutex<State>,
    line: Mutex<Line>,
    node: OnceLock<RaftNode>,
}

/// What a process is made of.
pub struct Parts {
    /// The node.
    pub id: u64,
    /// Drawn anew for each process.
    pub origin: u64,
    /// The process.
    pub vitals: Arc<Vitals>,
    /// What is broken.
    pub mutation: Option<Mutation>,
    /// Its clock.
    pub wall: WallClock,
    /// Its disk.
    pub disk: Disk,
    /// What all nodes must agree on.
    pub ledger: Arc<Ledger>,
}

impl Broker {
    /// A process that begins from what its disk holds.
    pub fn new(parts: Parts) -> Arc<Broker> {
        let Parts { id, origin, vitals, mutation, wall, disk, ledger } = parts;
        let durable = disk.checkpoint();
        let (store, index, mark) = match durable {
            Some(Checkpoint { store, index, mark }) => (store, Some(index), mark),
            None => (MemoryStore::default(), None, Vec::new()),
        };
        let last = query::last_stamp(&store).unwrap().0;
        let line = Line { last, term: None, batch: 0, waiters: BTreeMap::new() };
        let state = State { store, rules: queen_state::Machine::new(), index, mark };
        let (state, line) = (Mutex::new(state), Mutex::new(line));
        let node = OnceLock::new();
        Arc::new(Broker { id, origin, vitals, mutation, wall, disk, ledger, state, line, node })
    }

    /// The log runs.
    pub fn attach(&self, node: RaftNode) {
        drop(self.node.set(node));
    }

    /// The log, once it runs.
    pub fn node(&self) -> Option<&RaftNode> {
        self.node.get()
    }

    /// Reads the state.
    pub fn look<T>(&self, look: impl FnOnce(&MemoryStore) -> T) -> T {
        look(&self.state.lock().store)
    }

    /// Index of the last entry applied.
    pub fn applied_index(&self) -> Option<u64> {
        self.state.lock().index
    }

    /// The log clock: what the next stamp will be at least.
    pub fn now(&self) -> Stamp {
        Stamp(self.wall.now().max(self.line.lock().last + 1))
    }

    /// Proposes a command of this node's; `None` if it does not lead. Its term, number, and answer.
    pub(super) fn propose(&self, command: &[u8]) -> Option<(u64, u64, Pending)> {
        let (to, pending) = oneshot::channel();
        let mut line = self.line.lock();
        let term = line.term?;
        line.batch += 1;
        let batch = line.batch;
        self.put(&mut line, (self.origin, batch), command, Some(Waiter::Request(to)))?;
        Some((term, batch, pending))
    }

    /// Proposes another node's command, if this one leads in `term`.
    pub(super) fn serve(
        &self,
        term: u64,
        name: (u64, u64),
        command: &[u8],
    ) -> Option<oneshot::Receiver<u64>> {
        let (to, pending) = oneshot::channel();
        let mut line = self.line.lock();
        if line.term != Some(term)
            && (self.mutation != Some(Mutation::AnyTerm) || line.term.is_none())
        {
            return None;
        }
        self.put(&mut line, name, command, Some(Waiter::Node(to)))?;
        Some(pending)
    }

    fn put(
        &self,
        line: &mut Line,
        (origin, batch): (u64, u64),
        command: &[u8],
        waiter: Option<Waiter>,
    ) -> Option<()> {
        let node = self.node.get()?;
        let stamp = self.wall.now().max(line.last + 1);
        let header = EntryHeader { origin, batch, first_stamp: Stamp(stamp), count: 1 };
        let mut bytes = Vec::new();
        header.encode(&mut bytes);
        entry::put_command(&mut bytes, command);
        if let Some(waiter) = waiter {
            line.waiters.insert((origin, batch), waiter);
        }
        if node.propose(bytes.into()).is_err() {
            line.waiters.remove(&(origin, batch));
            return None;
        }
        line.last = stamp;
        Some(())
    }

    /// A place for the answer to a command that another node is asked to propose.
    pub(super) fn expect(&self) -> (u64, Pending) {
        let (to, pending) = oneshot::channel();
        let mut line = self.line.lock();
        line.batch += 1;
        let batch = line.batch;
        line.waiters.insert((self.origin, batch), Waiter::Request(to));
        (batch, pending)
    }

    /// Nobody waits for this command any more.
    pub(super) fn forget(&self, batch: u64) {
        self.line.lock().waiters.remove(&(self.origin, batch));
    }

    /// This node leads in `term`, or does not.
    pub(super) fn leads(&self, term: Option<u64>) {
        if self.vitals.lives() {
            self.ledger.leads(self.id, term);
        }
        let mut line = self.line.lock();
        line.term = term;
        // Other nodes find out from the next leader what became of theirs.
        line.waiters.retain(|_, waiter| matches!(waiter, Waiter::Request(to) if !to.is_closed()));
    }

    /// The log's mark of the last entry applied.
    pub(super) fn mark(&self) -> Option<Vec<u8>> {
        let state = self.state.lock();
        state.index.map(|_| state.mark.clone())
    }

    /// What the disk holds.
    pub(super) fn durable(&self) -> Option<Checkpoint> {
        self.disk.checkpoint()
    }

    /// A snapshot takes the place of the state, on disk and in memory.
    pub(super) fn install(&self, checkpoint: Checkpoint) {
        if !self.vitals.effect() {
            return;
        }
        self.ledger.installed(self.id, checkpoint.index);
        self.disk.set_checkpoint(checkpoint.clone());
        let Checkpoint { store, index, mark } = checkpoint;
        let last = query::last_stamp(&store).unwrap().0;
        let rules = queen_state::Machine::new();
        *self.state.lock() = State { store, rules, index: Some(index), mark };
        // Entries within it are not applied here one by one: nobody would answer.
        let mut line = self.line.lock();
        line.last = line.last.max(last);
        for (_, waiter) in std::mem::take(&mut line.waiters) {
            if let Waiter::Request(to) = waiter {
                let _ = to.send(Err(Unknown));
            }
        }
    }

    /// Applies one entry.
    pub(super) fn apply_one(&self, committed: &Committed) -> Result<(), MachineFailed> {
        let mut state = self.state.lock();
        let State { store, rules, .. } = &mut *state;
        let mut outcomes = Vec::new();
        for proposal in committed.proposals.iter() {
            let (header, commands) =
                entry::decode(proposal).map_err(|e| MachineFailed(e.to_string()))?;
            for (i, bytes) in (0..).zip(commands) {
                let command = Command::decode(bytes).map_err(|e| MachineFailed(e.to_string()))?;
                let stamp = match self.mutation {
                    Some(Mutation::OwnClock) => {
                        let last = query::last_stamp(store).map_err(|e| MachineFailed(e.0))?;
                        Stamp(self.wall.now().max(last.0 + 1))
                    }
                    _ => header.stamp(i),
                };
                let reply = rules.apply(&command, stamp, store, &mut Vec::new());
                let reply = reply.map_err(|e| MachineFailed(e.to_string()))?;
                self.ledger.replied(committed.index, stamp, &command, &reply);
                outcomes.push((header, reply));
            }
        }
        (state.index, state.mark) = (Some(committed.index), committed.mark.clone());
        drop(state);
        if self.vitals.lives() {
            self.ledger.applied(self.id, committed);
        }
        for (header, reply) in outcomes {
            self.answer(&header, committed.index, reply);
        }
        Ok(())
    }

    fn answer(&self, header: &EntryHeader, index: u64, reply: Reply) {
        let mut line = self.line.lock();
        line.last = line.last.max(header.first_stamp.0);
        match line.waiters.remove(&(header.origin, header.batch)) {
            Some(Waiter::Request(to)) => drop(to.send(Ok(reply))),
            Some(Waiter::Node(to)) => drop(to.send(index)),
            None => {}
        }
    }

    /// Makes what is applied durable now and then, and lets the log go behind it.
    pub async fn checkpoints(self: Arc<Self>, every: Duration, takes: Duration) {
        loop {
            tokio::time::sleep(every).await;
            let checkpoint = {
                let state = self.state.lock();
                let State { store, index, mark, .. } = &*state;
                index.map(|index| Checkpoint { store: store.clone(), index, mark: mark.clone() })
            };
            let Some(checkpoint) = checkpoint else { continue };
            tokio::time::sleep(takes).await;
            if !self.vitals.effect() {
                return std::future::pending().await;
            }
            let mark = checkpoint.mark.clone();
            self.disk.set_checkpoint(checkpoint);
            if let Some(node) = self.node() {
                node.checkpointed(&mark);
            }
        }
    }
}
