//! Applying what the log committed.
//!
//! Owns: decoding entries, the store's write lock around each of them, answering their waiters,
//! telling the parked pops. Leaves to others: what a command does (`queen-state`).
//! Upholds: readers see whole entries; nobody is answered before the entry's batch has ended.

use crate::broker::Shared;
use crate::machine_snapshot::{Incoming, Outgoing};
use crate::peers;
use crate::waiters::{Answered, To, Undelivered, Waiter};
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::command::{Command, PopWith};
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
            let seen = match event {
                Event::QueueChanged { queue } => shared.sealing.look(&store, *queue),
                Event::SwitchesChanged => shared.switches.load(&store),
                Event::EphemeralChanged => {
                    shared.ephemeral.declarations_changed();
                    Ok(())
                }
                _ => Ok(()),
            };
            seen.map_err(|e| MachineFailed(e.to_string()))?;
        }
        let applied = Applied { index: committed.index, mark: Bytes::from(committed.mark) };
        store.end_batch(applied).map_err(|e| MachineFailed(e.to_string()))?;
        shared.counters.applied.add(outcomes.len() as u64);
        for outcome in outcomes {
            answer(shared, &self.shared, committed.index, outcome);
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
            Command::Pop(pop) | Command::PopWith(PopWith { pop, .. }) => pop.tenant,
            _ => TenantId::DEFAULT,
        };
        let stamp: Stamp = header.stamp(i);
        let reply = rules.apply(&command, stamp, store, events).map_err(|e| e.to_string())?;
        outcomes.push(Outcome { header, tenant, reply });
    }
    Ok(())
}

fn answer(shared: &Shared, weak: &Weak<Shared>, index: u64, outcome: Outcome) {
    let Outcome { header, tenant, reply } = outcome;
    let waiter = shared.proposer.applied(&header);
    let undelivered = match &reply {
        Reply::Pop(Popped { lease: Some(lease), .. }) => {
            Some(Undelivered::new(weak.clone(), tenant, *lease))
        }
        _ => None,
    };
    // A claim that an earlier process or another node asked for is not ours to give back.
    let undelivered = match undelivered {
        Some(claim) if !shared.proposer.is_ours(&header) => {
            claim.delivered();
            None
        }
        other => other,
    };
    // Refused sends drop the answer, and with it an undelivered claim, which goes back by itself.
    let Some(Waiter { to, permit }) = waiter else { return };
    drop(permit);
    match to {
        To::Request(to) => drop(to.send(Ok(Answered { reply, undelivered }))),
        To::Node(to) => drop(to.send(Ok(index))),
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
            Event::TimerDue(at) => shared.ticker.timer_due(at),
            Event::SwitchesChanged => shared.ephemeral.all_changed(),
            // Looked at before anybody was answered.
            Event::EphemeralChanged => {}
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

    fn leadership(&self, term: Option<u64>) {
        let Some(shared) = self.shared.upgrade() else { return };
        let begun = shared.proposer.leads(term, !shared.clustered);
        if let (false, Some(term)) = (begun, term) {
            peers::take_up(shared.clone(), term);
        }
        // On a single node nobody else can carry out what was on its way.
        if shared.clustered {
            shared.ephemeral.leads(term);
        } else {
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
