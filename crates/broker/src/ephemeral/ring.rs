//! The ring of a partition: its messages in order, and each group's cursor on them.
//!
//! Owns: who is given which message, leases and their end, attempts, when a message goes. Leaves to
//! others: bounds, age and names (`queue`), who sleeps (`crate::parking`).
//!
//! A message is a group's until that group has settled it: by an ack, at delivery, or by failing once
//! more than it may. It goes when every group that the ring knows has settled it, so a group that comes
//! later begins with what is left. As long as no group has come, all stay.
//!
//! A lease is on one message. An id does not say under which delivery it was handed out: an ack that
//! comes after the lease has ended counts as long as the message is not settled, also when another
//! consumer of the group holds it by then.

use super::ledger::{CURSOR_BYTES, HELD_BYTES, Ledger, MESSAGE_BYTES};
use bytes::Bytes;
use queen_core::ephemeral::{EphemeralMessage, GroupDepth, Outcome, POP_BYTES_MAX};
use queen_core::{GroupId, QueueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A message in memory.
pub(super) struct Kept {
    pub(super) partition: Arc<str>,
    /// When it was pushed, milliseconds.
    pub(super) pushed: u64,
    pub(super) payload: Bytes,
}

/// All messages of a queue, by number: in the order in which they were pushed.
#[derive(Default)]
pub(super) struct Shelf {
    kept: BTreeMap<u64, Kept>,
    bytes: u64,
}

impl Shelf {
    /// What a message of so many bytes counts for: an allocator rounds up by an eighth at most.
    pub(super) fn cost(bytes: usize) -> u64 {
        MESSAGE_BYTES + bytes as u64 + bytes as u64 / 8
    }

    /// Its cost was taken before.
    fn put(&mut self, number: u64, kept: Kept) {
        self.bytes += kept.payload.len() as u64;
        self.kept.insert(number, kept);
    }

    fn remove(&mut self, number: u64, ledger: &mut Ledger) {
        let Some(kept) = self.kept.remove(&number) else { return };
        self.bytes -= kept.payload.len() as u64;
        ledger.give(Shelf::cost(kept.payload.len()));
    }

    /// The message that was pushed first.
    pub(super) fn oldest(&self) -> Option<(u64, &Kept)> {
        self.kept.first_key_value().map(|(number, kept)| (*number, kept))
    }

    pub(super) fn len(&self) -> u64 {
        self.kept.len() as u64
    }

    /// Bytes of payloads.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A delivered message that is not settled.
struct Held {
    attempts: u32,
    ends: u64,
}

/// Where a group is.
struct Cursor {
    id: GroupId,
    /// Messages from here on were never delivered.
    next: u64,
    held: BTreeMap<u64, Held>,
    /// The same by the end of their leases.
    ends: BTreeSet<(u64, u64)>,
    /// Messages that come again, and how often they were delivered.
    back: BTreeMap<u64, u32>,
    /// When the group last asked, milliseconds.
    used: u64,
}

impl Cursor {
    fn settled(&self, number: u64) -> bool {
        number < self.next && !self.held.contains_key(&number) && !self.back.contains_key(&number)
    }

    fn hold(&mut self, number: u64, attempts: u32, ends: u64) {
        self.held.insert(number, Held { attempts, ends });
        self.ends.insert((ends, number));
    }

    /// Ends the lease of a message; how often it was delivered.
    fn let_go(&mut self, number: u64) -> Option<u32> {
        let held = self.held.remove(&number)?;
        self.ends.remove(&(held.ends, number));
        Some(held.attempts)
    }

    /// Forgets a message.
    fn forget(&mut self, number: u64, ledger: &mut Ledger) {
        if self.let_go(number).or_else(|| self.back.remove(&number)).is_some() {
            ledger.give(HELD_BYTES);
        }
    }

    /// The message that is next, how often it was delivered, and whether it never was.
    fn first(&self, live: &BTreeSet<u64>) -> Option<(u64, u32, bool)> {
        let again =
            self.back.first_key_value().map(|(number, attempts)| (*number, *attempts, false));
        again.or_else(|| live.range(self.next..).next().map(|number| (*number, 0, true)))
    }

    fn cost(&self, name: &str) -> u64 {
        let entries = (self.held.len() + self.back.len()) as u64;
        CURSOR_BYTES + 2 * name.len() as u64 + entries * HELD_BYTES
    }
}

/// What a pop asks of a ring.
#[derive(Clone, Copy)]
pub(super) struct Take {
    pub(super) epoch: u64,
    pub(super) batch: u32,
    pub(super) auto_ack: bool,
    pub(super) lease_ms: u64,
    pub(super) now: u64,
}

/// What waits for a group.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Some of it was delivered before.
    pub(super) again: bool,
    /// Messages that never were, counted up to what was asked.
    pub(super) fresh: u64,
    /// When the first of those was pushed.
    pub(super) since: Option<u64>,
}

/// There is no memory for a lease.
#[derive(Debug)]
pub(super) struct NoRoom;

/// A partition.
pub(super) struct Ring {
    /// Where pops of it sleep.
    pub(super) number: QueueId,
    live: BTreeSet<u64>,
    cursors: BTreeMap<Box<str>, Cursor>,
    /// When it was last asked for anything, milliseconds.
    pub(super) used: u64,
}

impl Ring {
    pub(super) fn new(number: QueueId, now: u64) -> Ring {
        Ring { number, live: BTreeSet::new(), cursors: BTreeMap::new(), used: now }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    /// Adds a message whose cost was taken.
    pub(super) fn push(&mut self, number: u64, kept: Kept, shelf: &mut Shelf) {
        shelf.put(number, kept);
        self.live.insert(number);
    }

    /// The group's number, which it gets when it first asks; `None` when there is no memory for it.
    pub(super) fn join(
        &mut self,
        group: &str,
        new: impl FnOnce() -> GroupId,
        now: u64,
        ledger: &mut Ledger,
    ) -> Option<GroupId> {
        self.used = now;
        if let Some(cursor) = self.cursors.get_mut(group) {
            cursor.used = now;
            return Some(cursor.id);
        }
        let (held, ends, back) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        let id = new();
        let cursor = Cursor { id, next: 0, held, ends, back, used: now };
        if !ledger.take(cursor.cost(group)) {
            return None;
        }
        self.cursors.insert(group.into(), cursor);
        Some(id)
    }

    /// What waits for a group, looking no further than at `most` messages.
    pub(super) fn waiting(&self, group: &str, most: u64, shelf: &Shelf) -> Waiting {
        let Some(cursor) = self.cursors.get(group) else {
            return Waiting { again: false, fresh: 0, since: None };
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut fresh = self.live.range(cursor.next..).copied().take(most).peekable();
        let since = fresh.peek().and_then(|number| shelf.kept.get(number)).map(|kept| kept.pushed);
        Waiting { again: !cursor.back.is_empty(), fresh: fresh.count() as u64, since }
    }

    /// Delivers to a group that has joined: what comes again before what is new.
    pub(super) fn take(
        &mut self,
        group: &str,
        take: Take,
        shelf: &mut Shelf,
        ledger: &mut Ledger,
    ) -> Result<Vec<EphemeralMessage>, NoRoom> {
        let Some(cursor) = self.cursors.get_mut(group) else { return Ok(Vec::new()) };
        let (mut taken, mut bytes, mut done) = (Vec::new(), 0, Vec::new());
        while taken.len() < take.batch as usize {
            let Some((number, before, fresh)) = cursor.first(&self.live) else { break };
            let payload =
                shelf.kept.get(&number).map(|kept| kept.payload.clone()).unwrap_or_default();
            bytes += payload.len();
            if bytes > POP_BYTES_MAX && !taken.is_empty() {
                break;
            }
            if !take.auto_ack && fresh && !ledger.take(HELD_BYTES) {
                if taken.is_empty() {
                    return Err(NoRoom);
                }
                break;
            }
            let attempts = before.saturating_add(1);
            match fresh {
                true => cursor.next = number + 1,
                false if take.auto_ack => cursor.forget(number, ledger),
                false => {
                    cursor.back.remove(&number);
                }
            }
            match take.auto_ack {
                true => done.push(number),
                false => cursor.hold(number, attempts, take.now.saturating_add(take.lease_ms)),
            }
            taken.push(EphemeralMessage { epoch: take.epoch, number, attempts, payload });
        }
        done.into_iter().for_each(|number| self.settle(number, shelf, ledger));
        Ok(taken)
    }

    /// Settles a message for a group, or has it come again.
    pub(super) fn ack(
        &mut self,
        group: &str,
        (number, done): (u64, bool),
        retry_limit: u64,
        shelf: &mut Shelf,
        ledger: &mut Ledger,
    ) -> Outcome {
        let Some(cursor) = self.cursors.get_mut(group) else { return Outcome::Unknown };
        let delivered = cursor.held.get(&number).map(|held| held.attempts);
        let Some(attempts) = delivered.or_else(|| cursor.back.get(&number).copied()) else {
            return Outcome::Unknown;
        };
        let given_up = !done && u64::from(attempts) > retry_limit;
        if !done && !given_up {
            if cursor.let_go(number).is_some() {
                cursor.back.insert(number, attempts);
            }
            return Outcome::Redelivered;
        }
        if given_up {
            ledger.counters.ephemeral_dropped_retry.add(1);
        }
        cursor.forget(number, ledger);
        self.settle(number, shelf, ledger);
        Outcome::Acked
    }

    /// Ends leases that are over; the groups whose messages come again, once per message.
    pub(super) fn expire(
        &mut self,
        now: u64,
        retry_limit: u64,
        shelf: &mut Shelf,
        ledger: &mut Ledger,
    ) -> Vec<GroupId> {
        let (mut again, mut given_up) = (Vec::new(), Vec::new());
        for cursor in self.cursors.values_mut() {
            while let Some(&(ends, number)) = cursor.ends.first() {
                if ends > now {
                    break;
                }
                let attempts = cursor.let_go(number).unwrap_or_default();
                if u64::from(attempts) > retry_limit {
                    ledger.give(HELD_BYTES);
                    ledger.counters.ephemeral_dropped_retry.add(1);
                    given_up.push(number);
                } else {
                    cursor.back.insert(number, attempts);
                    again.push(cursor.id);
                }
            }
        }
        given_up.into_iter().for_each(|number| self.settle(number, shelf, ledger));
        again
    }

    /// Lets a message go that every group has settled.
    fn settle(&mut self, number: u64, shelf: &mut Shelf, ledger: &mut Ledger) {
        if self.cursors.values().all(|cursor| cursor.settled(number)) {
            self.forget(number, shelf, ledger);
        }
    }

    /// Lets a message go, whoever holds it.
    pub(super) fn forget(&mut self, number: u64, shelf: &mut Shelf, ledger: &mut Ledger) {
        self.live.remove(&number);
        shelf.remove(number, ledger);
        self.cursors.values_mut().for_each(|cursor| cursor.forget(number, ledger));
    }

    /// Lets all messages go.
    pub(super) fn clear(&mut self, shelf: &mut Shelf, ledger: &mut Ledger) {
        for number in std::mem::take(&mut self.live) {
            self.forget(number, shelf, ledger);
        }
    }

    /// Forgets groups that have not asked since `before`, hold nothing and of whom nobody sleeps: what
    /// they did not settle does not wait for them.
    pub(super) fn leave(
        &mut self,
        before: u64,
        sleeps: impl Fn(&str) -> bool,
        shelf: &mut Shelf,
        ledger: &mut Ledger,
    ) {
        let known = self.cursors.len();
        self.cursors.retain(|name, cursor| {
            let stays = cursor.used > before || !cursor.held.is_empty() || sleeps(name);
            if !stays {
                ledger.give(cursor.cost(name));
            }
            stays
        });
        if self.cursors.len() < known && !self.cursors.is_empty() {
            let live: Vec<u64> = self.live.iter().copied().collect();
            live.into_iter().for_each(|number| self.settle(number, shelf, ledger));
        }
    }

    /// Gives back what its cursors count for; it is empty and goes.
    pub(super) fn close(self, ledger: &mut Ledger) {
        self.cursors.iter().for_each(|(name, cursor)| ledger.give(cursor.cost(name)));
    }

    /// When its next lease ends.
    pub(super) fn next_end(&self) -> Option<u64> {
        self.cursors.values().filter_map(|cursor| cursor.ends.first()).map(|(ends, _)| *ends).min()
    }

    /// When the group that has been silent for longest last asked.
    pub(super) fn longest_silence(&self) -> Option<u64> {
        self.cursors.values().map(|cursor| cursor.used).min()
    }

    /// Adds what its groups have to get and hold to the sums of the queue.
    pub(super) fn count(&self, into: &mut BTreeMap<Box<str>, GroupDepth>) {
        for (name, cursor) in &self.cursors {
            let none = || GroupDepth { group: name.to_string(), pending: 0, leased: 0 };
            let depth = into.entry(name.clone()).or_insert_with(none);
            depth.pending += (cursor.back.len() + self.live.range(cursor.next..).count()) as u64;
            depth.leased += cursor.held.len() as u64;
        }
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
