//! What all nodes of a run must agree on, noted as it happens.
//!
//! Owns: the committed log by index, leases in log time, leaders by term, all that was found wrong, and the
//! run's trace. Leaves to others: what clients were answered (`clients`), the end (`verdict`).
//! Upholds, by finding what breaks it: one log; `one-live-lease`; one leader a term.

use crate::simulation::Trace;
use parking_lot::Mutex;
use queen_core::command::Command;
use queen_core::reply::Reply;
use queen_core::{PartitionId, Stamp};
use queen_raft::Committed;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};

/// See the module's header.
pub struct Ledger {
    /// Microseconds since the run began.
    now: AtomicU64,
    trace: Trace,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Hash of each entry, by index.
    log: BTreeMap<u64, u64>,
    /// What each command was answered, by index and stamp.
    replies: BTreeMap<(u64, Stamp), String>,
    /// End of the live lease of each partition.
    leases: BTreeMap<PartitionId, Stamp>,
    leaders: BTreeMap<u64, u64>,
    applied: BTreeMap<u64, u64>,
    installed: u64,
    wrong: Vec<String>,
}

impl Ledger {
    /// Nothing has happened; `shown` prints what does.
    pub fn new(shown: bool) -> Ledger {
        Ledger { now: AtomicU64::new(0), trace: Trace::new(shown), state: Mutex::default() }
    }

    /// Time goes on.
    pub fn set_now(&self, now: u64) {
        self.now.store(now, Ordering::Relaxed);
    }

    /// Microseconds since the run began.
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Adds to the trace what happened now.
    pub fn note(&self, what: std::fmt::Arguments<'_>) {
        self.trace.note_at(self.now() as f64 / 1e6, what);
    }

    /// The trace's hash.
    pub fn hash(&self) -> u64 {
        self.trace.hash()
    }

    /// Something does not hold.
    pub fn wrong(&self, what: String) {
        self.note(format_args!("WRONG {what}"));
        self.state.lock().wrong.push(what);
    }

    /// Whether something does not hold.
    pub fn has_wrong(&self) -> bool {
        !self.state.lock().wrong.is_empty()
    }

    /// All that does not hold.
    pub fn take_wrong(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().wrong)
    }

    /// Terms that had a leader, entries committed, snapshots installed.
    pub fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.leaders.len() as u64, state.log.len() as u64, state.installed)
    }

    /// A process begins with what is durable up to `index`.
    pub fn began(&self, node: u64, index: Option<u64>) {
        let mut state = self.state.lock();
        match index {
            Some(index) => state.applied.insert(node, index),
            None => state.applied.remove(&node),
        };
    }

    /// A snapshot up to `index` took the place of a node's state.
    pub fn installed(&self, node: u64, index: u64) {
        self.note(format_args!("node {node} installs a snapshot up to {index}"));
        let mut state = self.state.lock();
        state.applied.insert(node, index);
        state.installed += 1;
    }

    /// A node applied an entry.
    pub fn applied(&self, node: u64, entry: &Committed) {
        let mut hasher = DefaultHasher::new();
        entry.proposals.iter().for_each(|proposal| proposal.hash(&mut hasher));
        let (index, hash) = (entry.index, hasher.finish());
        let mut state = self.state.lock();
        let known = *state.log.entry(index).or_insert(hash);
        let next = state.applied.insert(node, index).map_or(0, |last| last + 1);
        drop(state);
        self.note(format_args!("node {node} applies {index} {hash:016x}"));
        if known != hash {
            self.wrong(format!("one-log: node {node} applies another entry {index}"));
        }
        if next != index {
            self.wrong(format!("applied-in-order: node {node} applies {index} and not {next}"));
        }
    }

    /// A command's reply, on any node.
    pub fn replied(&self, index: u64, stamp: Stamp, command: &Command<'_>, reply: &Reply) {
        let mut wrong = Vec::new();
        let mut state = self.state.lock();
        let text = format!("{reply:?}");
        match state.replies.get(&(index, stamp)) {
            Some(known) if *known == text => return,
            Some(known) => {
                wrong.push(format!("apply-deterministic: entry {index}: {known} and {text}"));
            }
            None => {
                state.replies.insert((index, stamp), text);
                wrong.extend(state.follow_leases(stamp, command, reply));
            }
        }
        drop(state);
        wrong.into_iter().for_each(|wrong| self.wrong(wrong));
    }

    /// A node leads in `term`, or does not.
    pub fn leads(&self, node: u64, term: Option<u64>) {
        self.note(format_args!("node {node} leads in {term:?}"));
        let Some(term) = term else { return };
        let leader = *self.state.lock().leaders.entry(term).or_insert(node);
        if leader != node {
            self.wrong(format!("one-leader: nodes {leader} and {node} lead in term {term}"));
        }
    }
}

impl State {
    fn follow_leases(
        &mut self,
        stamp: Stamp,
        command: &Command<'_>,
        reply: &Reply,
    ) -> Option<String> {
        match (command, reply) {
            (Command::Pop(pop), Reply::Pop(popped)) => {
                let mut wrong = None;
                for claim in &popped.claims {
                    let seconds = u64::from(pop.lease_seconds.unwrap_or(0));
                    let end = stamp.plus_seconds(seconds);
                    let before = self.leases.insert(claim.partition, end);
                    if before.is_some_and(|before| before > stamp) {
                        wrong =
                            Some(format!("one-live-lease: partition {} twice", claim.partition));
                    }
                }
                wrong
            }
            (Command::Ack(ack), Reply::Ack(outcomes)) => {
                for (item, outcome) in ack.items.iter().zip(outcomes) {
                    if let Some(partition) = item.partition.filter(|_| outcome.lease_released) {
                        self.leases.remove(&partition);
                    }
                }
                None
            }
            _ => None,
        }
    }
}
