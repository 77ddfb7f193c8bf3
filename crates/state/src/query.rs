//! Queries: reading the state without changing it.
//!
//! Owns: look-ups for the broker's answers, and when a waiting pop is worth a try. Leaves to others:
//! reading payloads (the places say where, outside any lock), listings (`queue_read` and the like).

pub mod backlog;
pub mod browse;
pub mod changed;
pub mod list;
pub mod message;

pub use crate::group::{position as group_position, registered as group_registered};
pub use crate::step::{
    partition_named, partition_of, partition_with_id, queue_named, queue_with_id,
};
pub use crate::timeline::{
    Bounds, LogExtent, LogPosition, Timeline, TimelineRun, extent as log_extent,
    position_at as log_position_at, scan as timeline,
};

use crate::logs::Place;
use crate::ready::{Visible, visible};
use crate::run::Run;
use crate::step::{Partition, Queue, decode, get, parts, scan_prefix};
use crate::tables::StorageError;
use crate::{Reading, group, lease, transaction_id};
use queen_core::row::{GroupRow, LastStampRow, key};
use queen_core::table::Table;
use queen_core::trace::TRACE_SECONDS;
use queen_core::{Offset, PartitionId, Stamp};

/// Messages of one run: where to read it, and which of its messages are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// Where the run lies.
    pub place: Place,
    /// Bytes of the run; [`queen_core::run::decode`] reads them.
    pub len: usize,
    /// Offset of the run's first message.
    pub run_first: Offset,
    /// First offset meant.
    pub first: Offset,
    /// The offset after the last meant.
    pub end: Offset,
    /// Stamp of the append.
    pub stamp: Stamp,
}

/// Stamp of the last applied command.
pub fn last_stamp(store: &impl Reading) -> Result<Stamp, StorageError> {
    Ok(get::<LastStampRow>(store, key::META_LAST_STAMP)?.unwrap_or_default().0)
}

/// The runs that hold the messages `first..end` of a partition, as far as they are kept.
pub fn messages(
    store: &impl Reading,
    partition: PartitionId,
    first: Offset,
    end: Offset,
) -> Result<Vec<Located>, StorageError> {
    let mut located = Vec::new();
    if first >= end {
        return Ok(located);
    }
    let Some(known) = partition_with_id(store, partition)? else { return Ok(located) };
    let mut add = |run: Run| {
        located.push(Located {
            place: run.place(known.queue),
            len: run.row.run_len() as usize,
            run_first: run.first,
            first: run.first.max(first),
            end: run.end().min(end),
            stamp: run.row.stamp,
        });
    };
    let mut from = first;
    if let Some(run) = crate::run::at(store, partition, first)? {
        add(run);
        from = run.end();
    }
    const CHUNK: usize = 64;
    let to = key::run(partition, end);
    while from < end {
        let rows = store.scan(Table::Run, &key::run(partition, from), &to, CHUNK)?;
        for (row_key, value) in &rows {
            let (_, first) = parts(Table::Run, row_key, key::run_parts(row_key))?;
            let run = Run { first, row: decode(row_key, value)? };
            add(run);
            from = run.end();
        }
        if rows.len() < CHUNK {
            break;
        }
    }
    Ok(located)
}

/// When a pop of the group on the queue is worth a try: a stamp not after `now` means at once,
/// `None` means not before the next event.
///
/// An upper bound on waiting, not a promise: the pop may find that another worker was faster. The
/// end of leases is not in it: a tick ends them, and an event tells.
pub fn ready_at(
    store: &impl Reading,
    queue: &Queue,
    group: &GroupRow,
) -> Result<Option<Stamp>, StorageError> {
    let prefix = group.id.0.to_be_bytes();
    let ready = match scan_prefix(store, Table::Ready, &prefix, 1)?.first() {
        Some((row, _)) => Some(parts(Table::Ready, row, key::ready_parts(row))?.1),
        None => None,
    };
    let from = key::tail_after(queue.id, group.scanned);
    let to = key::after_prefix(&key::queue(queue.id));
    let tail = match store.scan(Table::Tail, &from, &to, 1)?.first() {
        Some((row, _)) => {
            let (_, written, _) = parts(Table::Tail, row, key::tail_parts(row))?;
            Some(written.plus_seconds(queue.row.options.window_buffer.max(0) as u64))
        }
        None => None,
    };
    Ok(match (ready, tail) {
        (Some(ready), Some(tail)) => Some(ready.min(tail)),
        (one, other) => one.or(other),
    })
}

/// Partitions that may have something for a group at `now`, about; at most `limit` are counted.
pub fn ready_partitions(
    store: &impl Reading,
    queue: &Queue,
    group: &GroupRow,
    now: Stamp,
    limit: usize,
) -> Result<usize, StorageError> {
    let ready = |at| key::ready(group.id, at, PartitionId(0));
    let (from, to) = (ready(Stamp::ZERO), ready(Stamp(now.0.saturating_add(1))));
    let known = store.scan(Table::Ready, &from, &to, limit)?.len();
    let quiet = now.minus_seconds(queue.row.options.window_buffer.max(0) as u64);
    let from = key::tail_after(queue.id, group.scanned);
    let to = key::tail(queue.id, Stamp(quiet.0.saturating_add(1)), PartitionId(0));
    let written = match from < to && known < limit {
        true => store.scan(Table::Tail, &from, &to, limit - known)?.len(),
        false => 0,
    };
    Ok(known + written)
}

/// When a pop of the group on one partition is worth a try; see [`ready_at`].
pub fn partition_ready_at(
    store: &impl Reading,
    queue: &Queue,
    group: &GroupRow,
    partition: &Partition,
    now: Stamp,
) -> Result<Option<Stamp>, StorageError> {
    let cursor = match group::cursor(store, group.id, partition.row.id)? {
        Some(cursor) => cursor,
        None => group::first_cursor(store, group, &partition.row)?,
    };
    if let Some(lease) = lease::live(&cursor, now) {
        return Ok(Some(lease.expires));
    }
    let options = &queue.row.options;
    Ok(match visible(store, options, &partition.row, cursor.next, now)? {
        Visible::Now { .. } => Some(now),
        Visible::Later { at, .. } => Some(at),
        Visible::Nothing { .. } => None,
    })
}

/// Seconds that an expired row may stay when nothing waits for its end: rows whose time is over count
/// as gone whether they are there or not, so they are removed many at a time.
const EXPIRED_ROWS_STAY: u64 = 5;

/// When the next lease ends, or expired rows are due for removal: when a tick has something to do.
pub fn tick_due_at(store: &impl Reading) -> Result<Option<Stamp>, StorageError> {
    let tables = [
        (Table::LeaseExpiry, 0),
        (Table::TransactionIdExpiry, EXPIRED_ROWS_STAY),
        (Table::KvExpiry, EXPIRED_ROWS_STAY),
        (Table::Trace, TRACE_SECONDS + EXPIRED_ROWS_STAY),
    ];
    let mut due: Option<Stamp> = None;
    for (table, stay) in tables {
        if let Some((row, _)) = store.scan(table, &[], &[u8::MAX; 32], 1)?.first() {
            let at = row.get(..8).and_then(|bytes| bytes.try_into().ok());
            let at = Stamp(u64::from_be_bytes(parts(table, row, at)?)).plus_seconds(stay);
            due = Some(due.map_or(at, |due| due.min(at)));
        }
    }
    if crate::gone::is_due(store)? {
        due = Some(Stamp::ZERO);
    }
    Ok(due)
}

/// The offset of the message that has a transaction id, as an ack without a cursor would find it:
/// exactly, by its minted id or its remembered one.
pub fn message_with_id(
    store: &impl Reading,
    partition: &Partition,
    transaction_id: &str,
) -> Result<Option<Offset>, StorageError> {
    transaction_id::find(store, partition, transaction_id)
}
