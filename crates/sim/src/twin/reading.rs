//! What the sink asks of a broker's state, answered from the tables.
//!
//! Owns: look-ups of rows and the timeline, as the sink's `Host` wants them. Leaves to others: every
//! rule (`queen-state`).

use queen_core::row::{PartitionByIdRow, QueueRow, SegmentRow, key};
use queen_core::sink::LostRange;
use queen_core::table::Table;
use queen_core::{PartitionId, QueueId, Stamp, TenantId};
use queen_sink::host::{HostError, Loss, Place, QueueInfo, ScanFrom, TimelinePage, TimelineRun};
use queen_state::query::{self, Bounds, LogPosition};
use queen_state::step::{decode, get, parts};
use queen_state::{MemoryStore, QueueLogs as _, StorageError, Tables as _, lost, pin};
use std::sync::Arc;

/// Name of the only sink.
pub const SINK: &str = "default";

fn broken(error: StorageError) -> HostError {
    HostError::Broken(error.to_string())
}

/// All queues, and deleted ones that a pin keeps or that have loss to be listed.
pub(super) fn queues(store: &MemoryStore) -> Result<Vec<QueueInfo>, StorageError> {
    let mut found = Vec::new();
    for (row_key, value) in store.scan(Table::Queue, &[], &[u8::MAX; 5], usize::MAX)? {
        let row: QueueRow = decode(&row_key, &value)?;
        let id = parts(Table::Queue, &row_key, key::queue_of(&row_key))?;
        if row.deleted.is_none() || pin::pin_of(id, SINK, store)?.is_some() {
            found.push(info(id, &row));
        }
    }
    for (name, id) in lost::queues(store, TenantId::DEFAULT, SINK, None, usize::MAX)?.found {
        let (name, created) = (name.into(), Stamp::ZERO);
        found.push(QueueInfo { name, id, created, deleted: true });
    }
    Ok(found)
}

/// The live queue of a name.
pub(super) fn queue(store: &MemoryStore, name: &str) -> Result<Option<QueueInfo>, StorageError> {
    let found = query::queue_named(store, TenantId::DEFAULT, name)?;
    Ok(found.map(|queue| info(queue.id, &queue.row)))
}

fn info(id: QueueId, row: &QueueRow) -> QueueInfo {
    let (name, deleted) = (row.name.as_str().into(), row.deleted.is_some());
    QueueInfo { name, id, created: row.created, deleted }
}

/// Stamp of the newest record of a live queue; `None` when it is deleted or unknown.
pub(super) fn newest(store: &MemoryStore, id: QueueId) -> Result<Option<Stamp>, StorageError> {
    let known = query::queue_with_id(store, id)?.filter(|queue| queue.row.deleted.is_none());
    let Some(known) = known else { return Ok(None) };
    let last = get::<SegmentRow>(store, &key::segment(id, known.row.last_segment))?;
    Ok(Some(last.map_or(Stamp::ZERO, |segment| segment.last)))
}

/// Stamp of the first record that a queue still holds.
pub(super) fn first_retained(store: &MemoryStore, id: QueueId) -> Result<Option<Stamp>, HostError> {
    let page = scan(store, id, LogPosition::default(), 1).map_err(broken)?;
    Ok(page.runs.first().map(|run| run.header.stamp))
}

fn scan(
    store: &MemoryStore,
    id: QueueId,
    from: LogPosition,
    runs: usize,
) -> Result<query::Timeline, StorageError> {
    query::timeline(store, id, from, Bounds { runs, bytes: u64::MAX, before: Stamp::MAX })
}

/// Runs in log order.
pub(super) fn timeline(
    store: &MemoryStore,
    id: QueueId,
    from: ScanFrom,
    runs_max: usize,
) -> Result<TimelinePage, HostError> {
    let known = query::queue_with_id(store, id).map_err(broken)?;
    let live = known.is_some_and(|queue| queue.row.deleted.is_none());
    if !live && pin::pin_of(id, SINK, store).map_err(broken)?.is_none() {
        return Err(HostError::Gone(format!("queue {id} is deleted")));
    }
    let position = match from {
        ScanFrom::Stamp(stamp) => query::log_position_at(store, id, stamp).map_err(broken)?,
        ScanFrom::Place(place) => LogPosition {
            segment: u32::try_from(place.segment).unwrap_or(u32::MAX),
            byte: place.at,
        },
    };
    let found = scan(store, id, position, runs_max.max(1)).map_err(broken)?;
    let runs = found.runs.iter().map(|run| TimelineRun {
        header: run.header,
        place: Place { segment: u64::from(run.place.segment), at: run.place.position },
    });
    let last = found.runs.last().map_or(Stamp::ZERO, |run| run.header.stamp);
    let through = if found.end { query::last_stamp(store).map_err(broken)? } else { last };
    let next = Place { segment: u64::from(found.next.segment), at: found.next.byte };
    Ok(TimelinePage { runs: runs.collect(), next, end: found.end, through })
}

/// Bytes of a log.
pub(super) fn read(
    store: &MemoryStore,
    id: QueueId,
    place: Place,
    into: &mut [u8],
) -> Result<(), HostError> {
    let segment = u32::try_from(place.segment).unwrap_or(u32::MAX);
    let row = get::<SegmentRow>(store, &key::segment(id, segment)).map_err(broken)?;
    if row.is_none_or(|row| place.at + into.len() as u64 > row.bytes) {
        let what = format!("segment {segment} of queue {id} is gone, or shorter");
        return Err(HostError::Gone(what));
    }
    let place = queen_state::Place { queue: id, segment, position: place.at };
    into.copy_from_slice(&store.read(place, into.len()).map_err(broken)?);
    Ok(())
}

/// Names of partitions.
pub(super) fn partition_names(
    store: &MemoryStore,
    ids: &[PartitionId],
) -> Result<Vec<Arc<str>>, HostError> {
    let name = |id: &PartitionId| {
        let row = get::<PartitionByIdRow>(store, &key::partition_by_id(*id)).map_err(broken)?;
        let row = row.ok_or_else(|| HostError::Gone(format!("partition {id} is gone")))?;
        Ok(Arc::from(row.name))
    };
    ids.iter().map(name).collect()
}

/// What a window has to list as lost.
pub(super) fn loss(store: &MemoryStore, queue: &str, k: u64) -> Result<Option<Loss>, HostError> {
    let found = lost::waiting(store, TenantId::DEFAULT, SINK, queue, k).map_err(broken)?;
    Ok(found.map(|lost::Waiting { queue, since, more, records, .. }| Loss {
        queue,
        since,
        more,
        records,
    }))
}

/// Its ranges.
pub(super) fn ranges(
    store: &MemoryStore,
    queue: &str,
    k: u64,
) -> Result<Vec<LostRange>, HostError> {
    lost::ranges(store, TenantId::DEFAULT, SINK, queue, k).map_err(broken)
}

/// The last committed window.
pub(super) fn committed(store: &MemoryStore, queue: &str) -> Result<u64, HostError> {
    let now = query::last_stamp(store).map_err(broken)?;
    lost::committed(store, TenantId::DEFAULT, SINK, queue, now).map_err(broken)
}

/// Version of the last intent.
pub(super) fn begun(store: &MemoryStore, queue: &str) -> Result<u64, HostError> {
    let now = query::last_stamp(store).map_err(broken)?;
    lost::begun(store, TenantId::DEFAULT, SINK, queue, now).map_err(broken)
}
