//! Applying what the log committed.
//!
//! Owns: decoding entries, the store's write lock around each of them, answering their waiters,
//! telling the parked pops. Leaves to others: what a command does (`queen-state`).
//! Upholds: readers see whole entries; nobody is answered before the entry's batch has ended.

use crate::broker::Shared;
use crate::machine_snapshot::{Incoming, Outgoing};
use crate::waiters::{Answered, Undelivered};
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::command::Command;
use queen_core::entry::{self, EntryHeader};
use queen_core::reply::{Event, Popped, Reply};
use queen_core::{Stamp, TenantId};
use queen_raft::{Committed, Machine, MachineFailed, SnapshotSink, SnapshotSource};
use queen_store::{Applied, WriteGuard};
use std::sync::{Arc, Weak};

/// The machine that the log drives.
pub(crate) struct Applier {
    shared: Weak<Shared>,
    rules: Arc<Mutex<queen_state::Machine>>,
}

/// What one proposal came to.
struct Outcome {
    header: EntryHeader,
    tenant: TenantId,
    reply: Reply,
}

impl Applier {
    pub(crate) fn new(shared: Weak<Shared>) -> Applier {
        Applier { shared, rules: Arc::new(Mutex::new(queen_state::Machine::new())) }
    }

    fn shared(&self) -> Result<Arc<Shared>, MachineFailed> {
        self.shared.upgrade().ok_or_else(|| MachineFailed("the broker has stopped".to_owned()))
    }

    fn apply_one(&self, shared: &Shared, committed: Committed) -> Result<(), MachineFailed> {
        let mut outcomes = Vec::with_capacity(committed.proposals.len());
        let mut events = Vec::new();
        let mut store = shared.store.write();
        let mut rules = self.rules.lock();
        for proposal in committed.proposals.iter() {
            apply_proposal(&mut rules, &mut store, proposal, &mut outcomes, &mut events)
                .map_err(|why| MachineFailed(format!("log entry {}: {why}", committed.index)))?;
        }
        drop(rules);
        for event in &events {
            if let Event::QueueChanged { queue } = event {
                let seen = shared.sealing.look(&store, *queue);
                seen.map_err(|e| MachineFailed(e.to_string()))?;
            }
        }
        let applied = Applied { index: committed.index, mark: Bytes::from(committed.mark) };
        store.end_batch(applied).map_err(|e| MachineFailed(e.to_string()))?;
        shared.counters.applied.add(outcomes.len() as u64);
        for outcome in outcomes {
            answer(shared, &self.shared, outcome);
        }
        publish(shared, &mut events);
        Ok(())
    }
}

fn apply_proposal(
    rules: &mut queen_state::Machine,
    store: &mut WriteGuard<'_>,
    proposal: &Bytes,
    outcomes: &mut Vec<Outcome>,
    events: &mut Vec<Event>,
) -> Result<(), String> {
    let (header, commands) = entry::decode(proposal).map_err(|e| e.to_string())?;
    for (i, bytes) in (0..).zip(commands) {
        let command = Command::decode(bytes)
            .map_err(|e| format!("command {i} does not read ({e}): written by a newer release?"))?;
        let tenant = match &command {
            Command::Pop(pop) => pop.tenant,
            _ => TenantId::DEFAULT,
        };
        let stamp: Stamp = header.stamp(i);
        let reply = rules.apply(&command, stamp, store, events).map_err(|e| e.to_string())?;
        outcomes.push(Outcome { header, tenant, reply });
    }
    Ok(())
}

fn answer(shared: &Shared, weak: &Weak<Shared>, outcome: Outcome) {
    let Outcome { header, tenant, reply } = outcome;
    let waiter = shared.proposer.applied(&header);
    let undelivered = match &reply {
        Reply::Pop(Popped { lease: Some(lease), .. }) => {
            Some(Undelivered::new(weak.clone(), tenant, *lease))
        }
        _ => None,
    };
    match (waiter, undelivered) {
        (Some(waiter), undelivered) => waiter.answer(Ok(Answered { reply, undelivered })),
        // A claim of an earlier process or of another node is not ours to give back.
        (None, Some(claim)) if !shared.proposer.is_ours(&header) => claim.delivered(),
        (None, _) => {}
    }
}

/// Tells the parked pops what changed. Writes to one queue within the entry are told together.
fn publish(shared: &Shared, events: &mut Vec<Event>) {
    for event in events.drain(..) {
        match event {
            Event::Written { queue, partitions } => {
                shared.parking.written(queue, partitions);
                shared.following.tell_written(queue);
            }
            Event::Ready { queue, group } => shared.parking.ready(queue, group),
            Event::QueueChanged { queue } => {
                shared.parking.changed(queue);
                shared.following.tell_changed(queue);
                shared.ticker.queue_changed(queue);
            }
        }
    }
}

impl Machine for Applier {
    fn applied(&self) -> Option<Vec<u8>> {
        let shared = self.shared.upgrade()?;
        let view = shared.store.read();
        view.applied().map(|applied| applied.mark.to_vec())
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        let shared = self.shared()?;
        entries.into_iter().try_for_each(|entry| self.apply_one(&shared, entry))
    }

    fn leadership(&self, _term: Option<u64>) {
        if let Some(shared) = self.shared.upgrade() {
            shared.proposer.lose_all();
        }
    }

    fn snapshot(&self) -> Result<Box<dyn SnapshotSource>, MachineFailed> {
        Ok(Box::new(Outgoing::begin(&*self.shared()?)?))
    }

    fn receive(&self) -> Result<Box<dyn SnapshotSink>, MachineFailed> {
        Ok(Box::new(Incoming::begin(&self.shared()?, Arc::clone(&self.rules))?))
    }
}
