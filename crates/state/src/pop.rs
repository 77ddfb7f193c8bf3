//! Popping: which partitions a group is given, and how much of each.
//!
//! Owns: the choice and the claim. Leaves to others: what is visible (`ready`), leases (`lease`),
//! registration (`group`), reading the messages (the caller, from the queue logs).
//!
//! Two tables are merged by stamp, so that whoever waits longest comes first: `Ready`, where the
//! group has been before, and `Tail` after the group's `scanned` mark, where it has not looked
//! since the last write. A push touches only `Tail`: it costs the same for any number of groups.
//!
//! A group that conflates is given the newest message of a partition and holds all up to it: with its
//! ack the cursor passes those below, and when it fails or is given back none of them is settled.

use crate::Storage;
use crate::group;
use crate::lease;
use crate::ready::{Visible, visible};
use crate::step::{Partition, Queue, Step, partition_named, partition_with_id, parts};
use crate::tables::StorageError;
use queen_core::command::{Pop, PopWith};
use queen_core::limits::POP_PARTITIONS_MAX;
use queen_core::options::QueueOptions;
use queen_core::reply::{Claim, Popped, Reply};
use queen_core::row::{CursorRow, GroupRow, HeldLease, TailMark, key};
use queen_core::table::Table;
use queen_core::{LeaseId, Offset, PartitionId, Stamp};
use std::collections::VecDeque;
use std::sync::Arc;

/// Expired leases ended before a claim.
const SWEEP: usize = 64;
/// Rows of `Ready` and `Tail` looked at by one pop. Beyond it the pop answers with what it has:
/// what it did not reach is still due (`query::ready_at`).
const LOOKS: usize = 4096;
/// Rows read at a time.
const CHUNK: usize = 32;

/// A pop under way in one queue.
struct Claiming {
    queue: Arc<Queue>,
    group: GroupRow,
    lease: HeldLease,
    auto_ack: bool,
    partitions: usize,
    messages: u64,
    claims: Vec<Claim>,
}

impl Claiming {
    fn wants_more(&self) -> bool {
        self.messages > 0 && self.claims.len() < self.partitions
    }
}

/// Claims messages for a group.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    pop: &Pop<'_>,
) -> Result<Reply, StorageError> {
    from_own(step, pop, false)
}

/// Claims messages for a group: of several queues, or the newest ones only.
pub(crate) fn apply_with<S: Storage>(
    step: &mut Step<'_, S>,
    with: &PopWith<'_>,
) -> Result<Reply, StorageError> {
    if with.queues.is_empty() {
        return from_own(step, &with.pop, with.conflation);
    }
    let mut popped = Popped::default();
    for name in &with.queues {
        if let Some(queue) = step.queue(with.pop.tenant, name)? {
            from_queue(step, &with.pop, queue, with.conflation, &mut popped)?;
        }
    }
    Ok(Reply::Pop(popped))
}

/// Claims from the pop's own queue, which is created when missing and a named group asks.
fn from_own<S: Storage>(
    step: &mut Step<'_, S>,
    pop: &Pop<'_>,
    conflation: bool,
) -> Result<Reply, StorageError> {
    let mut popped = Popped::default();
    let queue = match step.queue(pop.tenant, pop.queue)? {
        Some(queue) => queue,
        None if pop.group.is_none() => return Ok(Reply::Pop(popped)),
        None => step.create_queue(pop.tenant, pop.queue, QueueOptions::implicit(pop.queue))?,
    };
    from_queue(step, pop, queue, conflation, &mut popped)?;
    Ok(Reply::Pop(popped))
}

/// Claims from a queue, beside what was claimed from others; registers the group there.
fn from_queue<S: Storage>(
    step: &mut Step<'_, S>,
    pop: &Pop<'_>,
    queue: Arc<Queue>,
    conflation: bool,
    popped: &mut Popped,
) -> Result<(), StorageError> {
    let name = group::name_of(pop.group);
    let group = group::register(step, queue.id, name, pop.start, conflation)?;
    lease::sweep(step, SWEEP)?;
    let seconds = match pop.lease_seconds {
        Some(seconds) => u64::from(seconds),
        None => queue.row.options.lease_time.max(0) as u64,
    };
    let expires = step.stamp.plus_seconds(seconds.max(1));
    let claims = std::mem::take(&mut popped.claims);
    let taken: u64 = claims.iter().map(|claim| claim.end.0 - claim.first.0).sum();
    let mut claiming = Claiming {
        queue,
        group,
        lease: HeldLease { id: LeaseId::mint(step.stamp), end: Offset(0), expires },
        auto_ack: pop.auto_ack,
        partitions: pop.partitions.clamp(1, POP_PARTITIONS_MAX) as usize,
        messages: u64::from(pop.batch).saturating_sub(taken),
        claims,
    };
    match pop.partition {
        _ if !claiming.wants_more() => {}
        Some(partition) => claim_named(step, &mut claiming, partition)?,
        None => claim_any(step, &mut claiming)?,
    }
    if claiming.group != group {
        step.put(&key::group(claiming.queue.id, name), &claiming.group);
    }
    let leased = !pop.auto_ack && !claiming.claims.is_empty();
    popped.lease = leased.then_some(claiming.lease.id);
    popped.claims = claiming.claims;
    popped.conflation |= group.conflation;
    Ok(())
}

/// Claims from one partition.
fn claim_named<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
    name: &str,
) -> Result<(), StorageError> {
    let queue = claiming.queue.id;
    let Some(partition) = partition_named(&*step.store, queue, name)? else { return Ok(()) };
    let known = group::cursor(&*step.store, claiming.group.id, partition.row.id)?;
    let mut cursor = match known {
        Some(cursor) => cursor,
        None => group::first_cursor(&*step.store, &claiming.group, &partition.row)?,
    };
    if cursor.lease.is_some() {
        if lease::live(&cursor, step.stamp).is_some() {
            return Ok(());
        }
        step.release(claiming.group.id, &partition, &mut cursor)?;
    }
    let (row, options) = (&partition.row, &claiming.queue.row.options);
    let seen = visible(&*step.store, options, row, cursor.next, step.stamp)?;
    if let Visible::Now { first, end } = seen {
        claim(step, claiming, &partition, cursor, first, end)?;
    }
    Ok(())
}

/// Claims from the partitions that wait longest.
fn claim_any<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
) -> Result<(), StorageError> {
    let last = step.memo.newest.last_append(claiming.queue.id);
    let mut waiting = Waiting::new(claiming, step.stamp, last);
    let mut looks = 0;
    while claiming.wants_more() && looks < LOOKS {
        looks += 1;
        let Some((from, stamp, id)) = waiting.next(step)? else { break };
        match from {
            From::Ready => look_at_ready(step, claiming, stamp, id)?,
            From::Tail => {
                look_at_tail(step, claiming, id)?;
                claiming.group.scanned = TailMark { stamp, partition: id };
            }
        }
    }
    if waiting.tail_is_done() {
        // Nothing more is stamped as the last row seen: the next pop need not look.
        claiming.group.scanned.partition = PartitionId(u64::MAX);
    }
    Ok(())
}

/// Looks at a partition of the group's `Ready` table.
fn look_at_ready<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
    stamp: Stamp,
    id: PartitionId,
) -> Result<(), StorageError> {
    let group = claiming.group.id;
    let cursor = group::cursor(&*step.store, group, id)?;
    let cursor = cursor.filter(|cursor| cursor.ready == Some(stamp));
    let (Some(cursor), Some(partition)) = (cursor, partition_with_id(&*step.store, id)?) else {
        step.store.delete(Table::Ready, &key::ready(group, stamp, id));
        return Ok(());
    };
    look_at(step, claiming, &partition, cursor, false)
}

/// Looks at a partition that was written to since the group looked.
fn look_at_tail<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
    id: PartitionId,
) -> Result<(), StorageError> {
    let Some(partition) = partition_with_id(&*step.store, id)? else { return Ok(()) };
    match group::cursor(&*step.store, claiming.group.id, id)? {
        Some(cursor) if cursor.lease.is_some() || cursor.ready.is_some() => Ok(()),
        Some(cursor) => look_at(step, claiming, &partition, cursor, false),
        None => {
            let cursor = group::first_cursor(&*step.store, &claiming.group, &partition.row)?;
            look_at(step, claiming, &partition, cursor, true)
        }
    }
}

/// Claims from a partition that is not leased, or puts it where it belongs.
fn look_at<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
    partition: &Partition,
    mut cursor: CursorRow,
    new: bool,
) -> Result<(), StorageError> {
    let group = claiming.group.id;
    let (row, options) = (&partition.row, &claiming.queue.row.options);
    let at = match visible(&*step.store, options, row, cursor.next, step.stamp)? {
        Visible::Now { first, end } => {
            return claim(step, claiming, partition, cursor, first, end);
        }
        Visible::Later { at, .. } => Some(at),
        Visible::Nothing { .. } if new => return Ok(()),
        Visible::Nothing { .. } => None,
    };
    if new || cursor.ready != at {
        step.set_ready(group, partition, &mut cursor, at);
        step.put(&key::cursor(group, row.id), &cursor);
    }
    Ok(())
}

/// Claims what is visible of a partition, as far as the batch goes.
fn claim<S: Storage>(
    step: &mut Step<'_, S>,
    claiming: &mut Claiming,
    partition: &Partition,
    mut cursor: CursorRow,
    first: Offset,
    end: Offset,
) -> Result<(), StorageError> {
    let (group, id) = (claiming.group.id, partition.row.id);
    // A group that conflates holds all there is and is given the last of it.
    let (given, end) = match claiming.group.conflation {
        true => (Offset(end.0 - 1), end),
        false => (first, end.min(first.plus(claiming.messages))),
    };
    if given >= cursor.delivered {
        cursor.attempts = 0;
    }
    let attempt = cursor.attempts.saturating_add(1);
    if cursor.next != first {
        cursor.moved = step.stamp;
    }
    cursor.next = first;
    cursor.delivered = cursor.delivered.max(end);
    if claiming.auto_ack {
        cursor.next = end;
        cursor.moved = step.stamp;
        cursor.failures = 0;
        cursor.attempts = if end < cursor.delivered { attempt - 1 } else { 0 };
        step.place_ready(group, partition, &mut cursor)?;
    } else {
        cursor.attempts = attempt;
        step.set_ready(group, partition, &mut cursor, None);
        step.hold(group, id, &mut cursor, HeldLease { end, ..claiming.lease });
    }
    step.put(&key::cursor(group, id), &cursor);
    claiming.messages -= end.0 - given.0;
    claiming.claims.push(Claim {
        queue: claiming.queue.id,
        partition: id,
        partition_name: partition.name.clone(),
        first: given,
        end,
        attempt,
    });
    Ok(())
}

/// Where a waiting partition was found.
#[derive(Clone, Copy)]
enum From {
    Ready,
    Tail,
}

/// The partitions that may have something for a group, longest waiting first.
struct Waiting {
    ready: Source,
    tail: Source,
    /// `Tail` is looked at beyond the stamp where the group stopped.
    covered: bool,
}

/// One of the two tables, read in chunks from `from` to `to`.
struct Source {
    table: Table,
    from: Vec<u8>,
    to: Vec<u8>,
    rows: VecDeque<(Stamp, PartitionId)>,
    done: bool,
}

impl Waiting {
    /// `last` is the stamp of the queue's last append: with nothing after `scanned` there is no need
    /// to look at `Tail`.
    fn new(claiming: &Claiming, now: Stamp, last: Option<Stamp>) -> Waiting {
        let (queue, group) = (&claiming.queue, &claiming.group);
        let quiet = now.minus_seconds(queue.row.options.window_buffer.max(0) as u64);
        let upto = TailMark { stamp: quiet, partition: PartitionId(u64::MAX) };
        let (from, to) =
            (key::tail_after(queue.id, group.scanned), key::tail_after(queue.id, upto));
        let ready = |at: Stamp| key::ready(group.id, at, PartitionId(0)).to_vec();
        let mut waiting = Waiting {
            ready: Source::new(Table::Ready, ready(Stamp::ZERO), ready(Stamp(now.0 + 1))),
            tail: Source::new(Table::Tail, from.to_vec(), to.to_vec()),
            covered: group.scanned.stamp <= quiet,
        };
        let last = last.map(|stamp| TailMark { stamp, partition: PartitionId(u64::MAX) });
        waiting.tail.done |= last.is_some_and(|last| last <= group.scanned);
        waiting
    }

    /// Whether every row up to the last one seen, and of its stamp, was seen.
    fn tail_is_done(&self) -> bool {
        self.covered && self.tail.done && self.tail.rows.is_empty()
    }

    fn next<S: Storage>(
        &mut self,
        step: &Step<'_, S>,
    ) -> Result<Option<(From, Stamp, PartitionId)>, StorageError> {
        let (ready, tail) = (self.ready.peek(step)?, self.tail.peek(step)?);
        Ok(match (ready, tail) {
            (Some((at, _)), Some((written, _))) if at <= written => {
                self.ready.rows.pop_front().map(|(stamp, id)| (From::Ready, stamp, id))
            }
            (_, Some(_)) => self.tail.rows.pop_front().map(|(stamp, id)| (From::Tail, stamp, id)),
            (Some(_), None) => {
                self.ready.rows.pop_front().map(|(stamp, id)| (From::Ready, stamp, id))
            }
            (None, None) => None,
        })
    }
}

impl Source {
    fn new(table: Table, from: Vec<u8>, to: Vec<u8>) -> Source {
        let done = from >= to;
        Source { table, from, to, rows: VecDeque::new(), done }
    }

    /// The next row. Rows that the pop itself has put behind it are not met again: they are
    /// stamped now or later, and `to` is reached only once.
    fn peek<S: Storage>(
        &mut self,
        step: &Step<'_, S>,
    ) -> Result<Option<(Stamp, PartitionId)>, StorageError> {
        if self.rows.is_empty() && !self.done {
            let rows = step.store.scan(self.table, &self.from, &self.to, CHUNK)?;
            self.done = rows.len() < CHUNK;
            for (row, _) in rows {
                let found = match self.table {
                    Table::Ready => key::ready_parts(&row).map(|(_, stamp, id)| (stamp, id)),
                    _ => key::tail_parts(&row).map(|(_, stamp, id)| (stamp, id)),
                };
                self.rows.push_back(parts(self.table, &row, found)?);
                self.from = row.to_vec();
                self.from.push(0);
            }
        }
        Ok(self.rows.front().copied())
    }
}

#[cfg(test)]
#[path = "pop_tests.rs"]
mod tests;
