//! Retention: what a queue's log no longer has to keep.
//!
//! Owns: the rules of age and completion, trimming, dropping segments. Leaves to others: when to
//! look (the caller's tick), giving space back (the store), writing pins (`pin`).
//!
//! A queue's log is trimmed from its front, run by run in log order; a segment is dropped when
//! nothing in it is left. What a pin holds stays, and with it the rest of its segment, which would
//! give no space back; the segments behind are trimmed as if it were not there. A partition's log
//! start moves up with its runs: what stays behind a pin below it is for the sinks alone, and keeps
//! its place in the index as long as in the log. Cursors and transaction ids are left as they are.
//! What a sink still had to copy is recorded as lost in the same command. Upholds `loss-is-listed`.

use crate::group;
use crate::lost::{self, Follower, Range};
use crate::run::Run;
use crate::segment::Headers;
use crate::step::{Partition, Queue, Step, decode, partition_with_id, parts, scan_prefix};
use crate::tables::StorageError;
use crate::{Storage, hold, pin};
use queen_core::row::pin::PinValue;
use queen_core::row::{GroupRow, SegmentRow, key};
use queen_core::sink::LossReason;
use queen_core::table::Table;
use queen_core::{PartitionId, QueueId, Stamp};

/// Groups of a queue beyond which nothing counts as completed: too many to ask on every step.
const GROUPS_MAX: usize = 1024;

/// Segments that pins hold, passed over in one step: 64 GiB. What lies behind more of them waits.
const PASSED_MAX: usize = 1024;

/// What may go.
struct Rules {
    /// Stamped before this.
    older_than: Stamp,
    /// Stamped before this, and passed by all groups of the partition.
    completed_before: Stamp,
    /// The queue's groups.
    groups: Vec<GroupRow>,
    /// What stays whatever its age.
    pins: Vec<PinValue>,
    /// Who may still have to copy what goes.
    followers: Vec<Follower>,
    /// What goes of this stamp and later would stay, if the disk were not full.
    held_from: Stamp,
}

/// Whether a sink's hold keeps what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// It does.
    Kept,
    /// The disk is full: what retention would take goes.
    Broken,
}

/// Trims a queue's log by at most `limit` runs; whether more may be due.
pub(crate) fn trim<S: Storage>(
    step: &mut Step<'_, S>,
    id: QueueId,
    limit: usize,
    holds: Holds,
) -> Result<bool, StorageError> {
    let Some(queue) = step.queue_with_id(id)?.filter(|queue| queue.row.deleted.is_none()) else {
        return Ok(false);
    };
    let Some(rules) = rules(step, &queue, holds)? else { return Ok(false) };
    let (mut left, mut from, mut passed) = (limit, 0, 0);
    while left > 0 {
        let Some((number, row)) = segment_from(step, id, from)? else { return Ok(false) };
        match trim_segment(step, &queue, &rules, number, row, &mut left)? {
            Front::Dropped => {}
            Front::Young => return Ok(false),
            Front::Pinned if passed == PASSED_MAX => return Ok(false),
            Front::Pinned => (from, passed) = (number + 1, passed + 1),
            Front::Due => return Ok(true),
        }
    }
    Ok(true)
}

fn rules<S: Storage>(
    step: &Step<'_, S>,
    queue: &Queue,
    holds: Holds,
) -> Result<Option<Rules>, StorageError> {
    let options = &queue.row.options;
    let before = |seconds: i64| match seconds {
        1.. => step.stamp.minus_seconds(seconds as u64),
        _ => Stamp::ZERO,
    };
    let mut rules = Rules {
        older_than: before(options.max_wait_time_seconds),
        completed_before: Stamp::ZERO,
        groups: Vec::new(),
        pins: pin::pins(queue.id, &*step.store)?,
        followers: Vec::new(),
        held_from: Stamp::MAX,
    };
    if options.retention_enabled {
        rules.held_from = hold::floor(&*step.store, queue, step.stamp)?;
        let floor = if holds == Holds::Broken { Stamp::MAX } else { rules.held_from };
        let kept = before(options.retention_seconds).min(floor);
        rules.older_than = rules.older_than.max(kept);
        rules.completed_before = before(options.completed_retention_seconds).min(floor);
    }
    if rules.completed_before > rules.older_than {
        let prefix = key::queue(queue.id);
        let rows = scan_prefix(&*step.store, Table::Group, &prefix, GROUPS_MAX + 1)?;
        if rows.len() > GROUPS_MAX {
            rules.completed_before = Stamp::ZERO;
        } else {
            let groups = rows.iter().map(|(key, value)| decode(key, value));
            rules.groups = groups.collect::<Result<_, _>>()?;
        }
    }
    if rules.older_than.max(rules.completed_before) == Stamp::ZERO {
        return Ok(None);
    }
    rules.followers = lost::followers(&*step.store, &queue.row, step.stamp)?;
    Ok(Some(rules))
}

/// The oldest segment with at least this number.
fn segment_from<S: Storage>(
    step: &Step<'_, S>,
    queue: QueueId,
    number: u32,
) -> Result<Option<(u32, SegmentRow)>, StorageError> {
    let to = key::after_prefix(&key::queue(queue));
    let rows = step.store.scan(Table::Segment, &key::segment(queue, number), &to, 1)?;
    let Some((row_key, value)) = rows.first() else { return Ok(None) };
    let (_, number) = parts(Table::Segment, row_key, key::segment_parts(row_key))?;
    Ok(Some((number, decode(row_key, value)?)))
}

/// How the front of a segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    /// There is none: nothing was left, and the segment is gone.
    Dropped,
    /// It may not go yet, nor may what lies behind.
    Young,
    /// A sink needs it. What lies behind the segment may go.
    Pinned,
    /// It may go.
    Due,
}

/// Trims the front of a segment, and drops it when nothing is left.
fn trim_segment<S: Storage>(
    step: &mut Step<'_, S>,
    queue: &Queue,
    rules: &Rules,
    number: u32,
    mut row: SegmentRow,
    left: &mut usize,
) -> Result<Front, StorageError> {
    let before = row;
    let id = queue.id;
    let mut headers = Headers::new(id, number, row.bytes);
    let mut front = Front::Due;
    while front == Front::Due && *left > 0 && row.trimmed < row.bytes {
        let (partition, run) = headers.run(&*step.store, row.trimmed)?;
        front = stands(step, rules, partition, &run)?;
        if front == Front::Due {
            trim_run(step, queue, rules, partition, &run)?;
            row.trimmed += run.row.run_len();
            *left -= 1;
        }
    }
    if row.trimmed == row.bytes {
        step.drop_segment(id, number);
        return Ok(Front::Dropped);
    }
    if row != before {
        step.put(&key::segment(id, number), &row);
        step.memo.newest.forget(id);
    }
    Ok(front)
}

fn stands<S: Storage>(
    step: &Step<'_, S>,
    rules: &Rules,
    partition: PartitionId,
    run: &Run,
) -> Result<Front, StorageError> {
    let stamp = run.row.stamp;
    let old = stamp < rules.older_than.max(rules.completed_before);
    let pinned = old && pin::pinned(&rules.pins, stamp, stamp);
    let due =
        old && !pinned && (stamp < rules.older_than || completed(step, rules, partition, run)?);
    Ok(match (pinned, due) {
        (true, _) => Front::Pinned,
        (false, true) => Front::Due,
        (false, false) => Front::Young,
    })
}

/// Whether a group has a cursor in the run's partition, and no group is still to get any of the run.
fn completed<S: Storage>(
    step: &Step<'_, S>,
    rules: &Rules,
    partition: PartitionId,
    run: &Run,
) -> Result<bool, StorageError> {
    let mut any = false;
    for group in &rules.groups {
        match group::cursor(&*step.store, group.id, partition)? {
            Some(cursor) if cursor.next < run.end() => return Ok(false),
            Some(_) => any = true,
            None if group.start <= run.row.stamp => return Ok(false),
            None => {}
        }
    }
    Ok(any)
}

/// Takes a run out of the index, moves its partition's log start, and records what is lost.
fn trim_run<S: Storage>(
    step: &mut Step<'_, S>,
    queue: &Queue,
    rules: &Rules,
    partition: PartitionId,
    run: &Run,
) -> Result<(), StorageError> {
    step.store.delete(Table::Run, &key::run(partition, run.first));
    let found = partition_with_id(&*step.store, partition)?;
    let Some(Partition { name, mut row, .. }) = found else { return Ok(()) };
    row.log_start = row.log_start.max(run.end());
    step.put(&key::partition(queue.id, &name), &row);
    let stamp = run.row.stamp;
    let range = Range {
        queue: queue.id,
        partition,
        name: &name,
        from: run.first,
        end: run.end(),
        reason: match stamp >= rules.held_from {
            true => LossReason::DiskFull,
            false => LossReason::Retention,
        },
    };
    for follower in rules.followers.iter().filter(|follower| stamp >= follower.from) {
        lost::record(step, &queue.row, &follower.sink, range)?;
    }
    Ok(())
}

impl<S: Storage> Step<'_, S> {
    /// Drops a segment whose runs are all out of the index.
    pub(crate) fn drop_segment(&mut self, queue: QueueId, number: u32) {
        self.store.delete(Table::Segment, &key::segment(queue, number));
        self.store.remove_segment(queue, number);
        self.memo.newest.forget(queue);
    }
}

#[cfg(test)]
#[path = "retention_tests.rs"]
mod tests;
