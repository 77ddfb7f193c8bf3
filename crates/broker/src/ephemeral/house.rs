//! All ephemeral queues of a node.
//!
//! Owns: which queues exist, epochs, whether this node owns any, what is due next, what is wiped.
//! Leaves to others: what a queue does (`queue`), who sleeps and is woken (`calls`), who owns
//! (`owner`). Time is what the caller says: milliseconds that never go back.
//!
//! An epoch is one incarnation of a queue's contents. No two have the same, on whichever node and after
//! whichever restart, so an ack of contents that are gone is known as such.

use super::Settings;
use super::ledger::Ledger;
use super::queue::{Numbers, Popped, Queue, Rung, Sleeps, Terms, no_memory};
use crate::counters::Counters;
use queen_core::ephemeral::{
    Depth, EphemeralPop, EphemeralRefusal, Gauges, Outcome, read_message_id,
};
use queen_core::{QueueId, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Names a queue.
pub(super) type Key = (TenantId, Arc<str>);

/// Who has reason to look again.
#[derive(Debug, Default)]
pub(super) struct Rings {
    /// One sleeper of a group on a partition, each.
    pub(super) one: Vec<Rung>,
    /// So many sleepers of any group on a partition.
    pub(super) some: Vec<(QueueId, u64)>,
    /// Everybody on a partition.
    pub(super) all: Vec<QueueId>,
}

pub(super) struct House {
    queues: BTreeMap<Key, Queue>,
    dues: BTreeSet<(u64, Key)>,
    ledger: Ledger,
    numbers: Numbers,
    epoch: u64,
    idle_ms: u64,
    /// The term in which this node owns all queues; `None` while it owns none. A single node is always
    /// in term 0.
    term: Option<u64>,
    /// Something is due earlier than was known before.
    earlier: bool,
}

impl House {
    /// `epoch` is a number that no other start of any node has, nor one a little above it.
    pub(super) fn new(
        settings: &Settings,
        epoch: u64,
        clustered: bool,
        counters: Arc<Counters>,
    ) -> House {
        House {
            queues: BTreeMap::new(),
            dues: BTreeSet::new(),
            ledger: Ledger::new(settings.max_bytes, counters),
            numbers: Numbers::default(),
            epoch,
            idle_ms: settings.idle_seconds.saturating_mul(1000),
            term: (!clustered).then_some(0),
            earlier: false,
        }
    }

    /// Whether this node has the contents of all queues.
    pub(super) fn owns(&self) -> bool {
        self.term.is_some()
    }

    /// This node owns all queues from now on, or none. Contents of another term go: another node may
    /// have owned the queues since. Whether something went.
    pub(super) fn leads(&mut self, term: Option<u64>) -> bool {
        if self.term == term {
            return false;
        }
        self.term = term;
        self.dues.clear();
        let queues = std::mem::take(&mut self.queues);
        let any = !queues.is_empty();
        for ((_, name), queue) in queues {
            self.ledger.counters.ephemeral_wipes_owner.add(u64::from(queue.len() > 0));
            queue.close(&name, &mut self.ledger);
        }
        any
    }

    /// Bytes that all queues take.
    pub(super) fn bytes(&self) -> u64 {
        self.ledger.used()
    }

    /// What is known to hold for a queue as of a change of the declarations.
    pub(super) fn terms(&self, key: &Key, as_of: u64) -> Option<Terms> {
        self.queues.get(key).map(|queue| queue.terms).filter(|terms| terms.as_of == as_of)
    }

    fn next_epoch(&mut self) -> u64 {
        self.epoch = self.epoch.wrapping_add(1);
        self.epoch
    }

    /// Runs `act` on a queue, which is made when it is not there, and unmade when that fails.
    fn with<T>(
        &mut self,
        key: &Key,
        terms: Terms,
        now: u64,
        act: impl FnOnce(&mut Queue, &mut Ledger, &mut Numbers) -> Result<T, EphemeralRefusal>,
    ) -> Result<T, EphemeralRefusal> {
        if !self.queues.contains_key(key) {
            let cost = Queue::cost(&key.1);
            if !self.ledger.take(cost) {
                return Err(no_memory(&self.ledger, cost));
            }
            let queue = Queue::new(self.next_epoch(), terms);
            self.queues.insert(key.clone(), queue);
        }
        let Some(queue) = self.queues.get_mut(key) else {
            return Err(no_memory(&self.ledger, 0));
        };
        queue.terms = terms;
        let done = act(queue, &mut self.ledger, &mut self.numbers);
        if queue.is_gone() {
            self.remove(key);
        } else {
            let due = queue.push_end(now, self.idle_ms);
            self.due_at(key, due);
        }
        done
    }

    /// Takes all messages or none.
    pub(super) fn push(
        &mut self,
        key: &Key,
        terms: Terms,
        partition: &str,
        payloads: &[&[u8]],
        now: u64,
    ) -> Result<Rings, EphemeralRefusal> {
        let ring = self.with(key, terms, now, |queue, ledger, numbers| {
            queue.push(partition, payloads, now, ledger, numbers)
        })?;
        Ok(Rings { some: vec![(ring, payloads.len() as u64)], ..Rings::default() })
    }

    /// Delivers, or says where to sleep. `None`: there is no such queue, and it was not to be made.
    pub(super) fn pop(
        &mut self,
        key: &Key,
        terms: Terms,
        pop: &EphemeralPop<'_>,
        waits: bool,
        makes: bool,
        now: u64,
    ) -> Result<Option<(Popped, Rings)>, EphemeralRefusal> {
        if !makes && !self.queues.contains_key(key) {
            return Ok(None);
        }
        let (popped, one, lease) = self.with(key, terms, now, |queue, ledger, numbers| {
            let (popped, rung) = queue.pop(pop, waits, now, ledger, numbers)?;
            Ok((popped, rung, queue.lease_end(now)))
        })?;
        if matches!(popped, Popped::Messages(_)) && !pop.auto_ack {
            self.due_at(key, lease);
        }
        Ok(Some((popped, Rings { one, ..Rings::default() })))
    }

    /// Settles messages.
    pub(super) fn ack(
        &mut self,
        key: &Key,
        terms: Terms,
        group: Option<&str>,
        items: &[(&str, bool)],
        now: u64,
    ) -> (Vec<Outcome>, Rings) {
        let Some(queue) = self.queues.get_mut(key) else {
            let gone = |(id, _): &(&str, bool)| match read_message_id(id) {
                Some(_) => Outcome::Stale,
                None => Outcome::Unknown,
            };
            return (items.iter().map(gone).collect(), Rings::default());
        };
        queue.terms = terms;
        let (outcomes, some) = queue.ack(group, items, now, &mut self.ledger);
        (outcomes, Rings { some, ..Rings::default() })
    }

    /// Drops all messages of a queue; how many it were.
    pub(super) fn reset(&mut self, key: &Key) -> u64 {
        let epoch = self.next_epoch();
        let Some(queue) = self.queues.get_mut(key) else { return 0 };
        let dropped = queue.clear(epoch, &mut self.ledger);
        self.ledger.counters.ephemeral_wipes_reset.add(u64::from(dropped > 0));
        dropped
    }

    /// Drops a queue; whether it was there, and who slept at it.
    pub(super) fn delete(&mut self, key: &Key) -> (bool, Rings) {
        let Some(queue) = self.queues.get(key) else { return (false, Rings::default()) };
        self.ledger.counters.ephemeral_wipes_deleted.add(u64::from(queue.len() > 0));
        let all = self.remove(key);
        (true, Rings { all, ..Rings::default() })
    }

    fn remove(&mut self, key: &Key) -> Vec<QueueId> {
        let Some(queue) = self.queues.remove(key) else { return Vec::new() };
        self.dues.remove(&(queue.due, key.clone()));
        queue.close(&key.1, &mut self.ledger)
    }

    /// The queues of a tenant in numbers, by name.
    pub(super) fn gauges(&self, tenant: TenantId) -> Vec<Gauges> {
        let from: Key = (tenant, Arc::from(""));
        let of_tenant = self.queues.range(from..).take_while(|((owner, _), _)| *owner == tenant);
        of_tenant.map(|((_, name), queue)| queue.gauges(name)).collect()
    }

    /// A queue in numbers.
    pub(super) fn depth(&mut self, key: &Key, terms: Terms, now: u64) -> Option<Depth> {
        let queue = self.queues.get_mut(key)?;
        queue.terms = terms;
        Some(queue.depth(&key.1, now, &mut self.ledger))
    }

    /// A queue has to be looked at by then.
    fn due_at(&mut self, key: &Key, at: u64) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        if at >= queue.due {
            return;
        }
        self.dues.remove(&(queue.due, key.clone()));
        queue.due = at;
        self.earlier |= self.dues.first().is_none_or(|(first, _)| at < *first);
        self.dues.insert((at, key.clone()));
    }

    /// When something is due, milliseconds.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.dues.first().map(|(at, _)| *at)
    }

    /// Whether something became due earlier since this was asked last.
    pub(super) fn take_earlier(&mut self) -> bool {
        std::mem::take(&mut self.earlier)
    }

    /// Looks at the queues that are due; who has reason to look again.
    pub(super) fn sweep(&mut self, now: u64, sleeps: Sleeps<'_>) -> Rings {
        let mut rings = Rings::default();
        while let Some((at, _)) = self.dues.first() {
            if *at > now {
                break;
            }
            let Some((_, key)) = self.dues.pop_first() else { break };
            let Some(queue) = self.queues.get_mut(&key) else { continue };
            queue.due = u64::MAX;
            rings.one.extend(queue.sweep(now, self.idle_ms, sleeps, &mut self.ledger));
            if queue.is_gone() {
                rings.all.extend(self.remove(&key));
                continue;
            }
            let next = queue.next_due(now, self.idle_ms).max(now + 1);
            self.due_at(&key, next);
        }
        rings
    }
}

#[cfg(test)]
#[path = "house_tests.rs"]
mod tests;
