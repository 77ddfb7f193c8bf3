//! An ephemeral queue: its partitions, and what bounds them all together.
//!
//! Owns: `maxBytes` and `maxLength` and what is done about a push that goes beyond them, the age of
//! messages, the gathering of a waiting pop, which partitions exist. Leaves to others: order and leases
//! (`ring`), the node's memory (`ledger`), where the options come from (`calls`).
//!
//! The bounds are those of payloads. The memory around them counts in the node's ledger alone: when
//! that has no room, a push is refused whatever the queue's policy, before anything is dropped for it.

use super::ledger::{Ledger, QUEUE_BYTES, RING_BYTES};
use super::ring::{Kept, NoRoom, Ring, Shelf, Take};
use bytes::Bytes;
use queen_core::ephemeral::{
    Depth, Effective, EphemeralMessage, EphemeralPop, EphemeralRefusal, FullPolicy, Gauges,
    Outcome, RefusalKind, read_message_id,
};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::{GroupId, QueueId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What holds for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) effective: Effective,
    pub(super) declared: bool,
    /// As of which change of the declarations.
    pub(super) as_of: u64,
}

/// The next free numbers of the node.
#[derive(Default)]
pub(super) struct Numbers {
    ring: u32,
    group: u32,
}

impl Numbers {
    fn ring(&mut self) -> QueueId {
        self.ring = self.ring.wrapping_add(1);
        QueueId(self.ring)
    }

    fn group(&mut self) -> GroupId {
        self.group = self.group.wrapping_add(1);
        GroupId(self.group)
    }
}

/// What came of a pop.
#[derive(Debug)]
pub(super) enum Popped {
    Messages(Vec<EphemeralMessage>),
    /// Nothing yet. Where to sleep, as whom, and until when at most, milliseconds.
    Nothing(QueueId, GroupId, Option<u64>),
}

/// Pops that have reason to look again: of a group on a partition.
pub(super) type Rung = (QueueId, GroupId);

/// Who sleeps: of a group on a partition.
pub(super) type Sleeps<'a> = &'a dyn Fn(QueueId, &str) -> bool;

pub(super) struct Queue {
    /// Incarnation of its contents.
    pub(super) epoch: u64,
    pub(super) terms: Terms,
    next: u64,
    shelf: Shelf,
    rings: BTreeMap<Arc<str>, Ring>,
    /// When it has to be looked at next, or before, milliseconds.
    pub(super) due: u64,
}

impl Queue {
    pub(super) fn new(epoch: u64, terms: Terms) -> Queue {
        let (shelf, rings) = (Shelf::default(), BTreeMap::new());
        Queue { epoch, terms, next: 1, shelf, rings, due: u64::MAX }
    }

    /// What a queue counts for beside what is in it.
    pub(super) fn cost(name: &str) -> u64 {
        QUEUE_BYTES + 2 * name.len() as u64
    }

    fn ring_cost(partition: &str) -> u64 {
        RING_BYTES + 2 * partition.len() as u64
    }

    fn lease_ms(&self) -> u64 {
        self.terms.effective.lease_seconds.saturating_mul(1000)
    }

    /// Takes all messages or none. Where they went.
    pub(super) fn push(
        &mut self,
        partition: &str,
        payloads: &[&[u8]],
        now: u64,
        ledger: &mut Ledger,
        numbers: &mut Numbers,
    ) -> Result<QueueId, EphemeralRefusal> {
        self.age(now, ledger);
        let count = payloads.len() as u64;
        let bytes = payloads.iter().map(|payload| payload.len() as u64).sum::<u64>();
        self.check(count, bytes)?;
        let new_ring = !self.rings.contains_key(partition);
        let costs = payloads.iter().map(|payload| Shelf::cost(payload.len())).sum::<u64>();
        let ring = if new_ring { Queue::ring_cost(partition) } else { 0 };
        if !ledger.take(costs + ring) {
            return Err(no_memory(ledger, costs + ring));
        }
        self.make_room(count, bytes, ledger);
        let name: Arc<str> = match self.rings.get_key_value(partition) {
            Some((name, _)) => Arc::clone(name),
            None => partition.into(),
        };
        let make = || Ring::new(numbers.ring(), now);
        let ring = self.rings.entry(Arc::clone(&name)).or_insert_with(make);
        ring.used = now;
        for payload in payloads {
            let payload = Bytes::copy_from_slice(payload);
            let kept = Kept { partition: Arc::clone(&name), pushed: now, payload };
            ring.push(self.next, kept, &mut self.shelf);
            self.next += 1;
        }
        Ok(ring.number)
    }

    /// Whether the queue may take so much, or would after dropping what is in it.
    fn check(&self, count: u64, bytes: u64) -> Result<(), EphemeralRefusal> {
        let Effective { max_bytes, max_length, policy, .. } = self.terms.effective;
        if count > max_length || bytes > max_bytes {
            let text = format!(
                "a push of {count} messages and {bytes} bytes is more than the queue may hold: \
                 {max_length} messages (maxLength) and {max_bytes} bytes (maxBytes); send less at once, \
                 or configure the queue for more"
            );
            return Err(EphemeralRefusal::new(RefusalKind::TooLarge, text));
        }
        let full = self.shelf.len() + count > max_length || self.shelf.bytes() + bytes > max_bytes;
        if full && policy == FullPolicy::Reject {
            let text = format!(
                "the queue is full: it holds {} of {max_length} messages (maxLength) and {} of \
                 {max_bytes} bytes (maxBytes); try again when consumers have settled some, or give it \
                 the policy dropOldest",
                self.shelf.len(),
                self.shelf.bytes()
            );
            return Err(EphemeralRefusal::new(RefusalKind::Full, text));
        }
        Ok(())
    }

    /// Drops the oldest messages until so much fits.
    fn make_room(&mut self, count: u64, bytes: u64, ledger: &mut Ledger) {
        let Effective { max_bytes, max_length, .. } = self.terms.effective;
        while self.shelf.len() + count > max_length || self.shelf.bytes() + bytes > max_bytes {
            if !self.drop_oldest(ledger) {
                return;
            }
            ledger.counters.ephemeral_dropped_bounds.add(1);
        }
    }

    fn drop_oldest(&mut self, ledger: &mut Ledger) -> bool {
        let oldest =
            self.shelf.oldest().map(|(number, kept)| (number, Arc::clone(&kept.partition)));
        let Some((number, partition)) = oldest else { return false };
        let Some(ring) = self.rings.get_mut(&partition) else { return false };
        ring.forget(number, &mut self.shelf, ledger);
        true
    }

    /// Drops what has been there for longer than it may.
    fn age(&mut self, now: u64, ledger: &mut Ledger) {
        while self.first_end_of_age().is_some_and(|end| end <= now) && self.drop_oldest(ledger) {
            ledger.counters.ephemeral_dropped_ttl.add(1);
        }
    }

    /// When the oldest message has been there for as long as it may.
    fn first_end_of_age(&self) -> Option<u64> {
        let ttl_ms = self.terms.effective.ttl_seconds.saturating_mul(1000);
        let oldest = self.shelf.oldest().filter(|_| ttl_ms > 0);
        oldest.map(|(_, kept)| kept.pushed.saturating_add(ttl_ms))
    }

    /// Delivers what waits for a group; the partition and the group are there from now on.
    ///
    /// One that `waits` on is not given fewer messages than the queue's window says, until that is over.
    pub(super) fn pop(
        &mut self,
        pop: &EphemeralPop<'_>,
        waits: bool,
        now: u64,
        ledger: &mut Ledger,
        numbers: &mut Numbers,
    ) -> Result<(Popped, Vec<Rung>), EphemeralRefusal> {
        self.age(now, ledger);
        let (lease_ms, epoch, effective) = (self.lease_ms(), self.epoch, self.terms.effective);
        if !self.rings.contains_key(pop.partition) {
            let cost = Queue::ring_cost(pop.partition);
            if !ledger.take(cost) {
                return Err(no_memory(ledger, cost));
            }
            self.rings.insert(pop.partition.into(), Ring::new(numbers.ring(), now));
        }
        let shelf = &mut self.shelf;
        let Some(ring) = self.rings.get_mut(pop.partition) else {
            return Ok((Popped::Messages(Vec::new()), Vec::new()));
        };
        let group = pop.group.unwrap_or(QUEUE_MODE_GROUP);
        let Some(id) = ring.join(group, || numbers.group(), now, ledger) else {
            return Err(no_memory(ledger, 0));
        };
        let rung = ring.expire(now, effective.retry_limit, shelf, ledger);
        let rung: Vec<Rung> = rung.into_iter().map(|group| (ring.number, group)).collect();
        if waits && let Some(until) = gathers(ring, group, pop.batch, &effective, now, shelf) {
            return Ok((Popped::Nothing(ring.number, id, Some(until)), rung));
        }
        let batch = pop.batch;
        let take = Take { epoch, batch, auto_ack: pop.auto_ack, lease_ms, now };
        match ring.take(group, take, shelf, ledger) {
            Err(NoRoom) => Err(no_memory(ledger, 0)),
            Ok(none) if none.is_empty() => Ok((Popped::Nothing(ring.number, id, None), rung)),
            Ok(messages) => Ok((Popped::Messages(messages), rung)),
        }
    }

    /// Settles messages; one outcome per item, and the groups to which some come again.
    pub(super) fn ack(
        &mut self,
        group: Option<&str>,
        items: &[(&str, bool)],
        now: u64,
        ledger: &mut Ledger,
    ) -> (Vec<Outcome>, Vec<(QueueId, u64)>) {
        self.age(now, ledger);
        let (name, limit) = (group.unwrap_or(QUEUE_MODE_GROUP), self.terms.effective.retry_limit);
        let mut again: BTreeMap<QueueId, u64> = BTreeMap::new();
        let mut outcomes = Vec::with_capacity(items.len());
        for (id, done) in items {
            let outcome = match read_message_id(id) {
                None => Outcome::Unknown,
                Some((epoch, ..)) if epoch != self.epoch => Outcome::Stale,
                Some((_, partition, number)) => match self.rings.get_mut(partition) {
                    None => Outcome::Unknown,
                    Some(ring) => {
                        ring.used = now;
                        let asked = (number, *done);
                        let outcome = ring.ack(name, asked, limit, &mut self.shelf, ledger);
                        if outcome == Outcome::Redelivered {
                            *again.entry(ring.number).or_default() += 1;
                        }
                        outcome
                    }
                },
            };
            outcomes.push(outcome);
        }
        (outcomes, again.into_iter().collect())
    }

    /// Drops all messages and voids all leases and ids; how many messages it were.
    pub(super) fn clear(&mut self, epoch: u64, ledger: &mut Ledger) -> u64 {
        let dropped = self.shelf.len();
        self.epoch = epoch;
        self.rings.values_mut().for_each(|ring| ring.clear(&mut self.shelf, ledger));
        dropped
    }

    /// Empties it for good; where pops of it sleep.
    pub(super) fn close(mut self, name: &str, ledger: &mut Ledger) -> Vec<QueueId> {
        self.clear(0, ledger);
        let mut sleepers = Vec::with_capacity(self.rings.len());
        for (partition, ring) in self.rings {
            sleepers.push(ring.number);
            ledger.give(Queue::ring_cost(&partition));
            ring.close(ledger);
        }
        ledger.give(Queue::cost(name));
        sleepers
    }

    /// Lets time pass: age, leases, groups and partitions that nobody uses. Who may look again.
    pub(super) fn sweep(
        &mut self,
        now: u64,
        idle_ms: u64,
        sleeps: Sleeps<'_>,
        ledger: &mut Ledger,
    ) -> Vec<Rung> {
        self.age(now, ledger);
        let limit = self.terms.effective.retry_limit;
        let (shelf, before) = (&mut self.shelf, now.saturating_sub(idle_ms));
        let mut rung = Vec::new();
        for ring in self.rings.values_mut() {
            let again = ring.expire(now, limit, shelf, ledger);
            rung.extend(again.into_iter().map(|group| (ring.number, group)));
            let number = ring.number;
            ring.leave(before, |group| sleeps(number, group), shelf, ledger);
        }
        let idle = |ring: &Ring| {
            ring.is_empty() && ring.used <= before && ring.longest_silence().is_none()
        };
        let gone: Vec<Arc<str>> = self
            .rings
            .iter()
            .filter(|(_, ring)| idle(ring))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(ring) = self.rings.remove(&name) {
                ledger.give(Queue::ring_cost(&name));
                ring.close(ledger);
            }
        }
        rung
    }

    /// Whether nothing is left of it.
    pub(super) fn is_gone(&self) -> bool {
        self.rings.is_empty()
    }

    /// When it has to be looked at next: at the end of an age, a lease or a silence.
    pub(super) fn next_due(&self, now: u64, idle_ms: u64) -> u64 {
        let ends = self.rings.values().filter_map(Ring::next_end).chain(self.first_end_of_age());
        let silences =
            self.rings.values().flat_map(|ring| [Some(ring.used), ring.longest_silence()]);
        // One that is in use for longer than that is looked at again after as long.
        let silence = |since: u64| match since.saturating_add(idle_ms) {
            over if over > now => over,
            _ => now.saturating_add(idle_ms),
        };
        ends.chain(silences.flatten().map(silence)).min().unwrap_or(now)
    }

    /// When the next lease that is given now ends.
    pub(super) fn lease_end(&self, now: u64) -> u64 {
        now.saturating_add(self.lease_ms())
    }

    /// When a message that is pushed now has been there for as long as it may, or nobody asked again.
    pub(super) fn push_end(&self, now: u64, idle_ms: u64) -> u64 {
        let of_age = self.first_end_of_age().unwrap_or(u64::MAX);
        of_age.min(now.saturating_add(idle_ms))
    }

    /// Messages in it.
    pub(super) fn len(&self) -> u64 {
        self.shelf.len()
    }

    /// It in numbers.
    pub(super) fn gauges(&self, name: &str) -> Gauges {
        Gauges {
            queue: name.to_owned(),
            declared: self.terms.declared,
            length: self.shelf.len(),
            bytes: self.shelf.bytes(),
            partitions: self.rings.len() as u64,
        }
    }

    /// It in more numbers.
    pub(super) fn depth(&mut self, name: &str, now: u64, ledger: &mut Ledger) -> Depth {
        self.age(now, ledger);
        let mut groups = BTreeMap::new();
        self.rings.values().for_each(|ring| ring.count(&mut groups));
        let groups = groups.into_values().collect();
        Depth { gauges: self.gauges(name), effective: self.terms.effective, groups }
    }
}

/// Until when a pop that waits leaves what there is where it is, to be given more at once.
fn gathers(
    ring: &Ring,
    group: &str,
    batch: u32,
    effective: &Effective,
    now: u64,
    shelf: &Shelf,
) -> Option<u64> {
    let window = effective.window;
    if window.ms == 0 {
        return None;
    }
    let wanted =
        if window.count == 0 { u64::from(batch) } else { window.count.min(u64::from(batch)) };
    let waiting = ring.waiting(group, wanted, shelf);
    let until = waiting.since?.saturating_add(window.ms);
    (!waiting.again && waiting.fresh < wanted && until > now).then_some(until)
}

/// The node has no memory left for ephemeral queues.
pub(super) fn no_memory(ledger: &Ledger, needed: u64) -> EphemeralRefusal {
    let text = format!(
        "the ephemeral queues of this node take {} of {} bytes, and {needed} more do not fit: settle or \
         reset some, give them a ttlSeconds, or raise QUEEN_EPHEMERAL_MAX_BYTES",
        ledger.used(),
        ledger.max()
    );
    EphemeralRefusal::new(RefusalKind::Unavailable, text)
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
