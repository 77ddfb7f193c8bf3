//! Listings: queues, partitions, groups and dead letters, page by page.
//!
//! Owns: the pages. Leaves to others: what a row means ([`super::backlog`]), holding several pages
//! together (the caller, which gives the lock back between them).
//!
//! Each page costs what it gives.

use crate::Reading;
use crate::dead_letter_admin::Letter;
use crate::step::{Partition, Queue, bad_row, decode, parts, queue_with_id, scan_prefix};
use crate::tables::{Row as Entry, StorageError};
use bytes::Bytes;
use queen_core::row::{
    CursorRow, DeadLetterRow, GroupRow, PartitionRow, QueueNameRow, SegmentRow, key,
};
use queen_core::table::Table;
use queen_core::{GroupId, PartitionId, QueueId, TenantId};

/// Queues of a tenant after a name, in name order.
pub fn queues(
    store: &impl Reading,
    tenant: TenantId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Queue>, StorageError> {
    let from = after_name(key::queue_name(tenant, after.unwrap_or_default()), after);
    let rows = store.scan(Table::QueueName, &from, &key::after_prefix(&tenant.0), limit)?;
    let mut queues = Vec::with_capacity(rows.len());
    for (row_key, value) in &rows {
        let QueueNameRow(id) = decode(row_key, value)?;
        queues.extend(queue_with_id(store, id)?);
    }
    Ok(queues)
}

/// Partitions of a queue after a name, in name order.
pub fn partitions(
    store: &impl Reading,
    queue: QueueId,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<Partition>, StorageError> {
    let prefix = key::queue(queue);
    let from = after_name(key::partition(queue, after.unwrap_or_default()), after);
    let rows = store.scan(Table::Partition, &from, &key::after_prefix(&prefix), limit)?;
    let named = rows.iter().map(|(row_key, value)| {
        let row: PartitionRow = decode(row_key, value)?;
        let name = parts(Table::Partition, row_key, key::name_in_queue(row_key))?;
        Ok(Partition { queue, name: name.into(), row })
    });
    named.collect()
}

/// Groups registered on a queue, in name order.
pub fn groups(
    store: &impl Reading,
    queue: QueueId,
    limit: usize,
) -> Result<Vec<(String, GroupRow)>, StorageError> {
    let rows = scan_prefix(store, Table::Group, &key::queue(queue), limit)?;
    let named = rows.iter().map(|(row_key, value)| {
        let row: GroupRow = decode(row_key, value)?;
        let name = parts(Table::Group, row_key, key::name_in_queue(row_key))?;
        Ok((name.to_owned(), row))
    });
    named.collect()
}

/// Cursors of a group after a partition, in the order of partition ids.
pub fn cursors(
    store: &impl Reading,
    group: GroupId,
    after: Option<PartitionId>,
    limit: usize,
) -> Result<Vec<(PartitionId, CursorRow)>, StorageError> {
    let first = PartitionId(after.map_or(0, |after| after.0 + 1));
    let end = key::after_prefix(&group.0.to_be_bytes());
    let rows = store.scan(Table::Cursor, &key::cursor(group, first), &end, limit)?;
    let read = rows.iter().map(|(row_key, value)| {
        let (_, id) = parts(Table::Cursor, row_key, key::cursor_parts(row_key))?;
        Ok((id, decode(row_key, value)?))
    });
    read.collect()
}

/// What a queue's log is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogSize {
    /// Segment files.
    pub segments: u64,
    /// Bytes of them that are kept.
    pub bytes: u64,
}

/// Segments and bytes of a queue's log.
pub fn log_size(store: &impl Reading, queue: QueueId) -> Result<LogSize, StorageError> {
    let rows = scan_prefix(store, Table::Segment, &key::queue(queue), usize::MAX)?;
    let mut size = LogSize { segments: rows.len() as u64, bytes: 0 };
    for (row_key, value) in &rows {
        let row: SegmentRow = decode(row_key, value)?;
        size.bytes += row.bytes.saturating_sub(row.trimmed);
    }
    Ok(size)
}

/// Dead letters of a queue, newest failure first: those before a key that an earlier page ended with.
pub fn dead_letters(
    store: &impl Reading,
    queue: QueueId,
    before: Option<&[u8]>,
    limit: usize,
) -> Result<Vec<Letter>, StorageError> {
    let prefix = key::queue(queue);
    let end = before.map_or_else(|| key::after_prefix(&prefix), <[u8]>::to_vec);
    let rows = store.scan_back(Table::DeadLetter, &prefix, &end, limit)?;
    let read = rows.into_iter().map(|(row_key, value): Entry| {
        let row: DeadLetterRow = decode(&row_key, &value)?;
        let found = key::dead_letter_parts(&row_key);
        let (queue, ..) = found.ok_or_else(|| bad_row(Table::DeadLetter, &row_key, "its parts"))?;
        Ok(Letter { key: Bytes::clone(&row_key), queue, row })
    });
    read.collect()
}

/// The first key that may hold a name after `after`.
fn after_name(mut key: Vec<u8>, after: Option<&str>) -> Vec<u8> {
    if after.is_some() {
        key.push(0);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{TENANT, World};

    #[test]
    fn pages_follow_each_other_in_name_order() {
        let mut world = World::new();
        for queue in ["b", "a", "a\0", "c"] {
            world.push(queue, "p", 1);
        }
        let names = |after| -> Vec<String> {
            let page = queues(&world.store, TENANT, after, 2).unwrap();
            page.into_iter().map(|queue| queue.row.name).collect()
        };
        assert_eq!(names(None), ["a", "a\0"]);
        assert_eq!(names(Some("a\0")), ["b", "c"]);
        assert_eq!(names(Some("c")), [""; 0]);
        for partition in ["", "y", "x"] {
            world.push("c", partition, 1);
        }
        let id = world.queue_id("c");
        let names = |after| -> Vec<String> {
            let page = partitions(&world.store, id, after, 2).unwrap();
            page.into_iter().map(|partition| partition.name.into_string()).collect()
        };
        assert_eq!(names(None), ["", "p"]);
        assert_eq!(names(Some("p")), ["x", "y"]);
        assert_eq!(queues(&world.store, TenantId([3; 16]), None, 9).unwrap(), []);
        assert_eq!(log_size(&world.store, id).unwrap().segments, 1);
    }
}
