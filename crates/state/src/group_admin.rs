//! Seeking, deleting and moving groups.
//!
//! Owns: how a group's place in a queue is set from outside. Leaves to others: claiming (`pop`),
//! removing the rows of a group that was given up (`gone`).
//!
//! A seek over a whole queue gives the group a new id: its cursors are unreachable at once, whatever
//! their number, and new ones begin where the seek said. So it costs nothing per partition but
//! counting them.

use crate::Storage;
use crate::gone;
use crate::step::{Partition, Step, decode, get, partition_named};
use crate::tables::StorageError;
use crate::{Reading, group, run};
use queen_core::command::{DeleteGroup, GroupStart, MoveSubscription, Seek, SeekTo};
use queen_core::reply::{Event, Reply};
use queen_core::row::{CursorRow, GroupRow, QueueNameRow, TailMark, key};
use queen_core::table::Table;
use queen_core::{Code, Error, GroupId, Offset, QueueId, TenantId};

/// Rows counted or looked at together.
const BATCH: usize = 1024;

/// Moves cursors. `Seek(None)`: no such queue, no such partition, or a queue without partitions.
pub(crate) fn seek<S: Storage>(
    step: &mut Step<'_, S>,
    command: &Seek<'_>,
) -> Result<Reply, StorageError> {
    let Some(queue) = step.queue(command.tenant, command.queue)? else {
        return Ok(Reply::Seek(None));
    };
    match command.partition {
        Some(partition) => seek_partition(step, queue.id, command, partition),
        None => seek_queue(step, queue.id, command),
    }
}

fn seek_queue<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    command: &Seek<'_>,
) -> Result<Reply, StorageError> {
    let start = match command.to {
        SeekTo::End => step.stamp,
        SeekTo::Time(at) => at,
        SeekTo::Offset(_) => {
            let text = "an offset is a place in one partition: name the partition too";
            return Ok(Reply::Refused(Error::new(Code::BadRequest, text)));
        }
    };
    let partitions = count_prefix(&*step.store, Table::Partition, &key::queue(queue))?;
    if partitions == 0 {
        return Ok(Reply::Seek(None));
    }
    let group_key = key::group(queue, command.group);
    let old = group::registered(&*step.store, queue, command.group)?;
    if let Some(old) = &old {
        gone::group(step, old.id)?;
    }
    // A partition whose last message is before the start has nothing for the group.
    let scanned = TailMark::before(start.min(step.stamp));
    let mode = match command.to {
        SeekTo::End => GroupStart::New,
        _ => GroupStart::From(start),
    };
    let row = GroupRow {
        id: next_group(step)?,
        registered: old.map_or(step.stamp, |old| old.registered),
        mode: old.map_or(mode, |old| old.mode),
        start,
        scanned,
        conflation: old.is_some_and(|old| old.conflation),
    };
    step.put(&group_key, &row);
    // Whoever waits knows the group by its old id: everybody looks again.
    step.events.push(Event::QueueChanged { queue });
    Ok(Reply::Seek(Some(partitions)))
}

fn seek_partition<S: Storage>(
    step: &mut Step<'_, S>,
    queue: QueueId,
    command: &Seek<'_>,
    name: &str,
) -> Result<Reply, StorageError> {
    let Some(partition) = partition_named(&*step.store, queue, name)? else {
        return Ok(Reply::Seek(None));
    };
    let row = &partition.row;
    let next = match command.to {
        SeekTo::End => row.next,
        SeekTo::Time(at) => run::first_stamped(&*step.store, row, row.log_start, at)?,
        SeekTo::Offset(offset) => offset,
    };
    let group = group::register(step, queue, command.group, GroupStart::New, false)?.id;
    move_cursor(step, group, &partition, next)?;
    Ok(Reply::Seek(Some(1)))
}

/// Lets a group go on at an offset, held within what is retained, which this gives. Its claim ends,
/// and its retry budget is whole again.
pub(crate) fn move_cursor<S: Storage>(
    step: &mut Step<'_, S>,
    group: GroupId,
    partition: &Partition,
    next: Offset,
) -> Result<Offset, StorageError> {
    let row = &partition.row;
    let next = next.clamp(row.log_start, row.next);
    let mut cursor = group::cursor(&*step.store, group, row.id)?.unwrap_or_default();
    step.drop_lease(group, row.id, &mut cursor);
    let ready = cursor.ready;
    cursor = CursorRow { next, delivered: next, ready, moved: step.stamp, ..CursorRow::default() };
    step.place_ready(group, partition, &mut cursor)?;
    step.put(&key::cursor(group, row.id), &cursor);
    Ok(next)
}

/// Forgets a group: on one queue, or on every queue. `GroupDeleted`: cursors it had.
pub(crate) fn delete<S: Storage>(
    step: &mut Step<'_, S>,
    command: &DeleteGroup<'_>,
) -> Result<Reply, StorageError> {
    let queues = match command.queue {
        Some(name) => step.queue(command.tenant, name)?.map(|queue| queue.id).into_iter().collect(),
        None => queues_with_group(&*step.store, command.tenant, command.group)?,
    };
    let mut cursors = 0;
    for queue in queues {
        let group_key = key::group(queue, command.group);
        let Some(row) = get::<GroupRow>(&*step.store, &group_key)? else { continue };
        cursors += count_prefix(&*step.store, Table::Cursor, &row.id.0.to_be_bytes())?;
        step.store.delete(Table::Group, &group_key);
        gone::group(step, row.id)?;
        step.events.push(Event::QueueChanged { queue });
    }
    Ok(Reply::GroupDeleted(cursors))
}

/// Moves a group's stored subscription time on every queue. Partitions in which it has a cursor
/// stay where they are.
pub(crate) fn move_subscription<S: Storage>(
    step: &mut Step<'_, S>,
    command: &MoveSubscription<'_>,
) -> Result<Reply, StorageError> {
    let queues = queues_with_group(&*step.store, command.tenant, command.group)?;
    let mut moved = 0;
    for queue in queues {
        let group_key = key::group(queue, command.group);
        let Some(mut row) = get::<GroupRow>(&*step.store, &group_key)? else { continue };
        row.mode = GroupStart::From(command.to);
        row.start = command.to;
        // Partitions that had nothing after the old time may have something after the new one.
        row.scanned = row.scanned.min(TailMark::before(command.to));
        step.put(&group_key, &row);
        step.events.push(Event::Ready { queue, group: row.id });
        moved += 1;
    }
    Ok(Reply::SubscriptionMoved(moved))
}

fn next_group<S: Storage>(step: &mut Step<'_, S>) -> Result<GroupId, StorageError> {
    let mut ids = step.next_ids()?;
    let id = ids.group;
    ids.group.0 += 1;
    step.put_next_ids(ids);
    Ok(id)
}

/// The queues of a tenant on which a group is registered. Costs a look-up per queue of the tenant.
pub fn queues_with_group(
    store: &impl Reading,
    tenant: TenantId,
    group: &str,
) -> Result<Vec<QueueId>, StorageError> {
    let (mut from, to) = (key::queue_name(tenant, ""), key::after_prefix(&tenant.0));
    let mut found = Vec::new();
    loop {
        let names = store.scan(Table::QueueName, &from, &to, BATCH)?;
        let Some((last, _)) = names.last() else { return Ok(found) };
        from = last.to_vec();
        from.push(0);
        for (key, value) in &names {
            let QueueNameRow(queue) = decode(key, value)?;
            if get::<GroupRow>(store, &key::group(queue, group))?.is_some() {
                found.push(queue);
            }
        }
    }
}

/// Rows whose key begins with a prefix.
pub fn count_prefix(
    store: &impl Reading,
    table: Table,
    prefix: &[u8],
) -> Result<u64, StorageError> {
    let (mut from, mut count) = (prefix.to_vec(), 0);
    let to = key::after_prefix(prefix);
    loop {
        let rows = store.scan(table, &from, &to, BATCH)?;
        count += rows.len() as u64;
        let Some((last, _)) = rows.last().filter(|_| rows.len() == BATCH) else { return Ok(count) };
        from = last.to_vec();
        from.push(0);
    }
}

#[cfg(test)]
#[path = "group_admin_tests.rs"]
mod tests;
