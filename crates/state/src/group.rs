//! Groups: registration on a queue, and where a group starts.
//!
//! Owns: the group's row, the first cursor in a partition. Leaves to others: claims (`pop`), moving
//! and deleting (`group_admin`).
//!
//! Queue mode is the group [`QUEUE_MODE_GROUP`], registered from the oldest message: it never skips
//! a backlog.

use crate::run;
use crate::step::{Step, get};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use queen_core::command::GroupStart;
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::row::{CursorRow, GroupRow, PartitionRow, TailMark, key};
use queen_core::{GroupId, Offset, PartitionId, QueueId, Stamp};

/// The name of a group, which queue mode has as well.
pub fn name_of(group: Option<&str>) -> &str {
    group.unwrap_or(QUEUE_MODE_GROUP)
}

/// A group's registration on a queue.
pub fn registered(
    store: &impl Reading,
    queue: QueueId,
    name: &str,
) -> Result<Option<GroupRow>, StorageError> {
    get::<GroupRow>(store, &key::group(queue, name))
}

/// A group's cursor in a partition; `None` before its first contact there.
pub fn cursor(
    store: &impl Reading,
    group: GroupId,
    partition: PartitionId,
) -> Result<Option<CursorRow>, StorageError> {
    get::<CursorRow>(store, &key::cursor(group, partition))
}

/// The cursor that a group begins with in a partition.
pub fn first_cursor(
    store: &impl Reading,
    group: &GroupRow,
    partition: &PartitionRow,
) -> Result<CursorRow, StorageError> {
    let next = run::first_stamped(store, partition, partition.log_start, group.start)?;
    Ok(CursorRow { next, delivered: next, ..CursorRow::default() })
}

/// The offset that a group delivers next in a partition, whether it has a cursor there or not.
pub fn position(
    store: &impl Reading,
    group: &GroupRow,
    partition: &PartitionRow,
) -> Result<Offset, StorageError> {
    match cursor(store, group.id, partition.id)? {
        Some(cursor) => Ok(cursor.next.max(partition.log_start)),
        None => Ok(first_cursor(store, group, partition)?.next),
    }
}

/// The group's registration, made now if there is none.
pub(crate) fn register<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    name: &str,
    start: GroupStart,
    conflation: bool,
) -> Result<GroupRow, StorageError> {
    if let Some(row) = registered(&*step.store, queue, name)? {
        return Ok(row);
    }
    let mut ids = step.next_ids()?;
    let id = ids.group;
    ids.group.0 += 1;
    step.put_next_ids(ids);
    let mode = if name == QUEUE_MODE_GROUP { GroupStart::All } else { start };
    let start = match mode {
        GroupStart::New => step.stamp,
        GroupStart::All => Stamp::ZERO,
        GroupStart::From(from) => from,
    };
    let scanned = TailMark::before(start);
    let row = GroupRow { id, registered: step.stamp, mode, start, scanned, conflation };
    step.insert(&key::group(queue, name), &row);
    Ok(row)
}
