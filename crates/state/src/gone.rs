//! What deletions leave behind, removed in bounded steps.
//!
//! Owns: the rows and the log of deleted queues and groups and of wiped states of streams, until nothing of
//! them is left. Leaves to others: the deletion itself, which makes them unreachable at once (`queue_admin`,
//! `group_admin`, `stream`).
//!
//! A deleted queue of which a sink has pinned something keeps the segments in which that lies, and
//! the names of its partitions. What a sink had not copied at the deletion is recorded as lost
//! before the rows go that tell of it. Upholds `loss-is-listed`.

use crate::lost::{self, Range};
use crate::step::{Partition, Queue, Step, bad_row, decode, partition_with_id, parts, scan_prefix};
use crate::tables::{StorageError, TablesMut};
use crate::{Reading, Storage};
use crate::{pin, run, stream, timer};
use queen_core::row::pin::PinValue;
use queen_core::row::{
    CursorRow, GoneRow, GroupRow, PartitionRow, Row, RunRow, SegmentRow, SinkMark, key,
};
use queen_core::sink::LossReason;
use queen_core::table::Table;
use queen_core::{GroupId, Offset, PartitionId, QueueId, Stamp};

/// Rows that a deletion removes itself; the rest waits for ticks.
pub(crate) const FIRST_STEP_ROWS: usize = 20_000;

/// Rows looked at together.
const BATCH: usize = 256;

const QUEUE: u8 = b'q';
const GROUP: u8 = b'g';
/// A queue of which nothing is left but what a sink has pinned.
const HELD: u8 = b'h';
/// A state of a stream's query; the id is 8 bytes.
const STATE: u8 = b's';

/// Removes what is left of a queue deleted now, as far as one step goes.
pub(crate) fn queue<S: Storage>(step: &mut Step<'_, S>, queue: &Queue) -> Result<(), StorageError> {
    let id = queue.id;
    let row = GoneRow { sinks: sink_marks(step, queue)? };
    let mut budget = FIRST_STEP_ROWS;
    let kind = match remove_queue(step, id, &row, &mut budget)? {
        Left::Nothing => return Ok(()),
        Left::Pinned => HELD,
        Left::More => QUEUE,
    };
    match row.sinks.is_empty() {
        true => step.store.put(Table::Gone, &marker(kind, id.0), &[]),
        false => step.put(&marker(kind, id.0), &row),
    }
    Ok(())
}

/// A pin of the queue went: if it is deleted, a tick can remove more of it.
pub(crate) fn released<S: TablesMut>(store: &mut S, queue: QueueId) -> Result<(), StorageError> {
    let held = marker(HELD, queue.0);
    if let Some(row) = store.get(Table::Gone, &held)? {
        store.delete(Table::Gone, &held);
        store.put(Table::Gone, &marker(QUEUE, queue.0), &row);
    }
    Ok(())
}

/// What each sink loses with the queue: all that it has neither copied nor pinned. Taken once, at
/// the deletion: a sink goes on with the next queue of the same name.
fn sink_marks<S: Storage>(
    step: &Step<'_, S>,
    queue: &Queue,
) -> Result<Vec<SinkMark>, StorageError> {
    let followers = lost::followers(&*step.store, &queue.row, step.stamp)?;
    let marks = followers.into_iter().map(|follower| {
        let pin = pin::pin_of(queue.id, &follower.sink, &*step.store)?;
        let from = pin.map_or(follower.from, |pin| pin.to.max(follower.from));
        Ok(SinkMark { sink: follower.sink, from })
    });
    marks.collect()
}

/// Removes what is left of a forgotten group, as far as one step goes.
pub(crate) fn group<S: Storage>(step: &mut Step<'_, S>, id: GroupId) -> Result<(), StorageError> {
    let mut budget = FIRST_STEP_ROWS;
    if !remove_group(step, id, &mut budget)? {
        step.store.put(Table::Gone, &marker(GROUP, id.0), &[]);
    }
    Ok(())
}

/// Removes what a state of a stream's query holds that was wiped now, as far as one step goes.
pub(crate) fn state<S: Storage>(step: &mut Step<'_, S>, state: Stamp) -> Result<(), StorageError> {
    let mut budget = FIRST_STEP_ROWS;
    if !stream::remove_state(step, state, &mut budget)? {
        step.store.put(Table::Gone, &[&[STATE][..], &state.0.to_be_bytes()].concat(), &[]);
    }
    Ok(())
}

/// Goes on with wiped states; false when the budget ended before.
fn sweep_states<S: Storage>(
    step: &mut Step<'_, S>,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    while let Some((key, _)) = scan_prefix(&*step.store, Table::Gone, &[STATE], 1)?.pop() {
        let state = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
        if !stream::remove_state(step, Stamp(parts(Table::Gone, &key, state)?), budget)? {
            return Ok(false);
        }
        step.store.delete(Table::Gone, &key);
    }
    Ok(true)
}

/// Goes on with removals, about `limit` rows; whether more can be removed now.
pub fn sweep<S: Storage>(step: &mut Step<'_, S>, limit: usize) -> Result<bool, StorageError> {
    let mut budget = limit;
    for kind in [GROUP, QUEUE] {
        while let Some((key, value)) = scan_prefix(&*step.store, Table::Gone, &[kind], 1)?.pop() {
            let id = read_marker(&key)?;
            let left = match kind {
                GROUP => remove_group(step, GroupId(id), &mut budget)?.into(),
                _ => {
                    let row = match value.is_empty() {
                        true => GoneRow::default(),
                        false => decode(&key, &value)?,
                    };
                    remove_queue(step, QueueId(id), &row, &mut budget)?
                }
            };
            match left {
                Left::More => return Ok(true),
                Left::Pinned => step.store.put(Table::Gone, &marker(HELD, id), &value),
                Left::Nothing => {}
            }
            step.store.delete(Table::Gone, &key);
        }
    }
    Ok(!sweep_states(step, &mut budget)?)
}

/// Deleted queues and groups, and wiped states of streams, of which something is left.
pub fn count(tables: &impl Reading) -> Result<usize, StorageError> {
    Ok(tables.scan(Table::Gone, &[], &[0xff], usize::MAX)?.len())
}

/// Whether a tick can remove something: what only a pin keeps waits for `released`.
pub fn is_due(store: &impl Reading) -> Result<bool, StorageError> {
    for kind in [GROUP, QUEUE, STATE] {
        if !scan_prefix(store, Table::Gone, &[kind], 1)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether rows of this forgotten group may be left.
pub fn is_group(tables: &impl Reading, id: GroupId) -> Result<bool, StorageError> {
    Ok(tables.get(Table::Gone, &marker(GROUP, id.0))?.is_some())
}

fn marker(kind: u8, id: u32) -> [u8; 5] {
    let [a, b, c, d] = id.to_be_bytes();
    [kind, a, b, c, d]
}

/// The id that a marker names.
fn read_marker(key: &[u8]) -> Result<u32, StorageError> {
    match *key {
        [_, a, b, c, d] => Ok(u32::from_be_bytes([a, b, c, d])),
        _ => Err(bad_row(Table::Gone, key, "a kind and an id")),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Nothing,
    /// The log, for a sink.
    Pinned,
    /// More than the budget was for.
    More,
}

impl From<bool> for Left {
    fn from(done: bool) -> Left {
        if done { Left::Nothing } else { Left::More }
    }
}

fn remove_queue<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    gone: &GoneRow,
    budget: &mut usize,
) -> Result<Left, StorageError> {
    let prefix = key::queue(queue);
    loop {
        let groups = scan_prefix(&*step.store, Table::Group, &prefix, BATCH)?;
        for (key, value) in &groups {
            let row: GroupRow = decode(key, value)?;
            if !remove_group(step, row.id, budget)? || !spend(budget) {
                return Ok(Left::More);
            }
            step.store.delete(Table::Group, key);
        }
        if groups.is_empty() {
            break;
        }
    }
    if !timer::remove_of_queue(step, queue, budget)? || !remove_dead_letters(step, queue, budget)? {
        return Ok(Left::More);
    }
    if !remove_messages(step, queue, gone, budget)? {
        return Ok(Left::More);
    }
    let pins = pin::pins(queue, &*step.store)?;
    if !pins.is_empty() {
        return Ok(match remove_unpinned(step, queue, &pins, budget)? {
            true => Left::Pinned,
            false => Left::More,
        });
    }
    loop {
        let partitions = scan_prefix(&*step.store, Table::Partition, &prefix, BATCH)?;
        for (key, value) in &partitions {
            let row: PartitionRow = decode(key, value)?;
            if !spend(budget) {
                return Ok(Left::More);
            }
            step.store.delete(Table::PartitionById, &key::partition_by_id(row.id));
            step.store.delete(Table::Partition, key);
        }
        if partitions.is_empty() {
            break;
        }
    }
    if !remove_prefix(step, Table::Segment, &prefix, budget)? {
        return Ok(Left::More);
    }
    step.store.remove_queue(queue);
    step.memo.forget(queue);
    step.store.delete(Table::Queue, &prefix);
    Ok(Left::Nothing)
}

/// Removes what leads to the messages of all partitions, and records what is lost with them; false
/// when the budget ended before. Each partition that was ever written to has a `Tail` row, which
/// goes last; its name and its own row stay for whoever reads what is pinned.
fn remove_messages<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    gone: &GoneRow,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let prefix = key::queue(queue);
    loop {
        let tails = scan_prefix(&*step.store, Table::Tail, &prefix, BATCH)?;
        for (tail, _) in &tails {
            let (_, _, id) = parts(Table::Tail, tail, key::tail_parts(tail))?;
            if !stream::remove_of_partition(step, id, budget)? {
                return Ok(false);
            }
            if let Some(Partition { name, row, .. }) = partition_with_id(&*step.store, id)?
                && !record_loss(step, gone, queue, &name, row, budget)?
            {
                return Ok(false);
            }
            let rows = key::partition_by_id(id);
            if !remove_prefix(step, Table::Run, &rows, budget)?
                || !remove_prefix(step, Table::TransactionId, &rows, budget)?
                || !spend(budget)
            {
                return Ok(false);
            }
            step.store.delete(Table::Tail, tail);
        }
        if tails.is_empty() {
            return Ok(true);
        }
    }
}

/// Gives back the segments that hold nothing pinned; false when the budget ended before.
fn remove_unpinned<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    pins: &[PinValue],
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let (mut from, to) = (key::queue(queue).to_vec(), key::after_prefix(&key::queue(queue)));
    loop {
        let segments = step.store.scan(Table::Segment, &from, &to, BATCH)?;
        for (row_key, value) in &segments {
            let row: SegmentRow = decode(row_key, value)?;
            if pin::pinned(pins, row.first, row.last) {
                continue;
            }
            if !spend(budget) {
                return Ok(false);
            }
            let found = key::segment_parts(row_key);
            let (_, number) = parts(Table::Segment, row_key, found)?;
            step.drop_segment(queue, number);
        }
        match segments.last() {
            Some((last, _)) if segments.len() == BATCH => from = [&last[..], &[0]].concat(),
            _ => return Ok(true),
        }
    }
}

/// Look-ups that finding and recording one range costs, about.
const RANGE_ROWS: usize = 8;

/// Records what the sinks lose with a partition, once; false when the budget ended before.
fn record_loss<S: Storage>(
    step: &mut Step<'_, S>,
    gone: &GoneRow,
    id: QueueId,
    name: &str,
    row: PartitionRow,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let Some(queue) = step.queue_with_id(id)?.filter(|_| row.next > Offset(0)) else {
        return Ok(true);
    };
    let range = |from, end| {
        let (partition, reason) = (row.id, LossReason::Deleted);
        Range { queue: id, partition, name, from, end, reason }
    };
    let cost = RANGE_ROWS * gone.sinks.len();
    // What retention has left behind a pin lies below the log start, with gaps.
    let (first, kept) = (key::run(row.id, Offset(0)), key::run(row.id, row.log_start));
    while let Some((row_key, value)) = step.store.scan(Table::Run, &first, &kept, 1)?.pop() {
        let Some(left) = budget.checked_sub(1 + cost) else { return Ok(false) };
        *budget = left;
        let (_, from) = parts(Table::Run, &row_key, key::run_parts(&row_key))?;
        let run: RunRow = decode(&row_key, &value)?;
        for mark in gone.sinks.iter().filter(|mark| run.stamp >= mark.from) {
            lost::record(step, &queue.row, &mark.sink, range(from, run.end(from)))?;
        }
        step.store.delete(Table::Run, &row_key);
    }
    let Some(left) = budget.checked_sub(cost) else { return Ok(false) };
    *budget = left;
    for mark in &gone.sinks {
        let from = run::first_stamped(&*step.store, &row, row.log_start, mark.from)?;
        lost::record(step, &queue.row, &mark.sink, range(from, row.next))?;
    }
    // Its runs go now, maybe in several steps: it has nothing left to lose.
    let empty = PartitionRow { log_start: Offset(0), next: Offset(0), ..row };
    step.put(&key::partition(id, name), &empty);
    Ok(true)
}

/// Removes a queue's dead letters; false when the budget ended before.
fn remove_dead_letters<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    loop {
        let letters = scan_prefix(&*step.store, Table::DeadLetter, &key::queue(queue), BATCH)?;
        if letters.is_empty() {
            return Ok(true);
        }
        for (key, value) in &letters {
            if !spend(budget) {
                return Ok(false);
            }
            let row: queen_core::row::DeadLetterRow = decode(key, value)?;
            step.store.delete(Table::DeadLetterById, &key::dead_letter_by_id(row.id));
            step.store.delete(Table::DeadLetter, key);
        }
    }
}

/// Removes the rows of a group but its registration; false when the budget ended before.
fn remove_group<S: Storage>(
    step: &mut Step<'_, S>,
    group: GroupId,
    budget: &mut usize,
) -> Result<bool, StorageError> {
    let prefix = group.0.to_be_bytes();
    loop {
        let cursors = scan_prefix(&*step.store, Table::Cursor, &prefix, BATCH)?;
        if cursors.is_empty() {
            return remove_prefix(step, Table::Ready, &prefix, budget);
        }
        for (key, value) in &cursors {
            if !spend(budget) {
                return Ok(false);
            }
            let (_, partition) = parts(Table::Cursor, key, key::cursor_parts(key))?;
            let row: CursorRow = decode(key, value)?;
            remove_claim(step, group, partition, &row);
            step.store.delete(CursorRow::TABLE, key);
        }
    }
}

/// Removes the rows by which a cursor is found ready or leased.
pub(crate) fn remove_claim<S: Storage>(
    step: &mut Step<'_, S>,
    group: GroupId,
    partition: PartitionId,
    cursor: &CursorRow,
) {
    if let Some(at) = cursor.ready {
        step.store.delete(Table::Ready, &key::ready(group, at, partition));
    }
    if let Some(lease) = cursor.lease {
        step.store.delete(Table::Lease, &key::lease(lease.id, group, partition));
        let expiry = key::lease_expiry(lease.expires, group, partition);
        step.store.delete(Table::LeaseExpiry, &expiry);
    }
}

/// Removes all rows that begin with a prefix; false when the budget ended before.
pub(crate) fn remove_prefix<S: Storage>(
    step: &mut Step<'_, S>,
    table: Table,
    prefix: &[u8],
    budget: &mut usize,
) -> Result<bool, StorageError> {
    loop {
        let rows = scan_prefix(&*step.store, table, prefix, BATCH)?;
        if rows.is_empty() {
            return Ok(true);
        }
        for (key, _) in &rows {
            if !spend(budget) {
                return Ok(false);
            }
            step.store.delete(table, key);
        }
    }
}

fn spend(budget: &mut usize) -> bool {
    let left = budget.checked_sub(1);
    *budget = left.unwrap_or(0);
    left.is_some()
}
