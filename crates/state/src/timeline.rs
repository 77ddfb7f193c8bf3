//! Timelines: a queue's log in log order, across its partitions.
//!
//! Owns: positions in a log and the scan from one. Leaves to others: reading the messages (the
//! places say where), what a sink makes of them.
//!
//! Log order is stamp order: positions rise as stamps do. What retention has trimmed is not shown.

use crate::Reading;
use crate::logs::Place;
use crate::segment::Headers;
use crate::step::{decode, parts, scan_prefix};
use crate::tables::StorageError;
use queen_core::row::{SegmentRow, key};
use queen_core::run::RunHeader;
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};

/// Segments looked at in one step.
const SEGMENTS: usize = 64;

/// A place between two runs of a queue's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogPosition {
    /// Segment number.
    pub segment: u32,
    /// Byte in the segment.
    pub byte: u64,
}

/// A run of a timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineRun {
    /// Where it lies.
    pub place: Place,
    /// Its header; [`RunHeader::run_len`] is its length in the log.
    pub header: RunHeader,
}

/// A part of a timeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Runs in log order.
    pub runs: Vec<TimelineRun>,
    /// Where to go on.
    pub next: LogPosition,
    /// Nothing follows yet.
    pub end: bool,
}

/// How much of a timeline is wanted: whichever is reached first, but at least one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Runs.
    pub runs: usize,
    /// Bytes of whole runs.
    pub bytes: u64,
    /// Only runs stamped before this.
    pub before: Stamp,
}

/// What a queue's log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogExtent {
    /// Position of the oldest run.
    pub start: LogPosition,
    /// Position of the next run to be appended in the newest segment.
    pub end: LogPosition,
    /// No run is stamped before this.
    pub first: Stamp,
    /// Stamp of the newest run.
    pub last: Stamp,
}

fn segments(
    store: &impl Reading,
    queue: QueueId,
    from: u32,
    limit: usize,
) -> Result<Vec<(u32, SegmentRow)>, StorageError> {
    let end = key::after_prefix(&key::queue(queue));
    let rows = store.scan(Table::Segment, &key::segment(queue, from), &end, limit)?;
    let read = rows.iter().map(|(row_key, value)| {
        let (_, number) = parts(Table::Segment, row_key, key::segment_parts(row_key))?;
        Ok((number, decode(row_key, value)?))
    });
    read.collect()
}

/// What a queue's log holds; `None` when it holds nothing.
pub fn extent(store: &impl Reading, queue: QueueId) -> Result<Option<LogExtent>, StorageError> {
    let Some((oldest, first)) = segments(store, queue, 0, 1)?.pop() else { return Ok(None) };
    let prefix = key::queue(queue);
    let rows = store.scan_back(Table::Segment, &prefix, &key::after_prefix(&prefix), 1)?;
    let Some((row_key, value)) = rows.first() else { return Ok(None) };
    let (_, newest) = parts(Table::Segment, row_key, key::segment_parts(row_key))?;
    let last: SegmentRow = decode(row_key, value)?;
    Ok(Some(LogExtent {
        start: LogPosition { segment: oldest, byte: first.trimmed },
        end: LogPosition { segment: newest, byte: last.bytes },
        first: first.first,
        last: last.last,
    }))
}

/// Bytes of a queue's log that are kept.
pub fn kept_bytes(store: &impl Reading, queue: QueueId) -> Result<u64, StorageError> {
    let rows = scan_prefix(store, Table::Segment, &key::queue(queue), usize::MAX)?;
    let mut bytes = 0;
    for (row_key, value) in &rows {
        let row: SegmentRow = decode(row_key, value)?;
        bytes += row.bytes - row.trimmed;
    }
    Ok(bytes)
}

/// The runs from a position on, headers only. A position in what is gone means the oldest run.
pub fn scan(
    store: &impl Reading,
    queue: QueueId,
    from: LogPosition,
    bounds: Bounds,
) -> Result<Timeline, StorageError> {
    let mut timeline = Timeline { next: from, ..Timeline::default() };
    let mut bytes = 0;
    loop {
        let found = segments(store, queue, timeline.next.segment, SEGMENTS)?;
        let more = found.len() == SEGMENTS;
        for (number, row) in found {
            let start = if number == timeline.next.segment { timeline.next.byte } else { 0 };
            timeline.next = LogPosition { segment: number, byte: start.max(row.trimmed) };
            let mut headers = Headers::new(queue, number, row.bytes);
            while timeline.next.byte < row.bytes {
                let position = timeline.next.byte;
                let header = headers.read(store, position)?;
                if header.stamp >= bounds.before {
                    return Ok(timeline);
                }
                let place = Place { queue, segment: number, position };
                timeline.runs.push(TimelineRun { place, header });
                timeline.next.byte += header.run_len();
                bytes += header.run_len();
                if timeline.runs.len() >= bounds.runs || bytes >= bounds.bytes {
                    return Ok(timeline);
                }
            }
        }
        if !more {
            timeline.end = true;
            return Ok(timeline);
        }
        timeline.next = LogPosition { segment: timeline.next.segment + 1, byte: 0 };
    }
}

/// The position of the first run stamped at or after `stamp`; the end of the log when there is none.
///
/// Reads the headers of one segment at most.
pub fn position_at(
    store: &impl Reading,
    queue: QueueId,
    stamp: Stamp,
) -> Result<LogPosition, StorageError> {
    let mut position = LogPosition::default();
    loop {
        let from = position.segment + u32::from(position.byte > 0);
        let found = segments(store, queue, from, SEGMENTS)?;
        let more = found.len() == SEGMENTS;
        for (number, row) in found {
            if row.last >= stamp {
                let mut headers = Headers::new(queue, number, row.bytes);
                let mut byte = row.trimmed;
                while byte < row.bytes {
                    let header = headers.read(store, byte)?;
                    if header.stamp >= stamp {
                        break;
                    }
                    byte += header.run_len();
                }
                return Ok(LogPosition { segment: number, byte });
            }
            position = LogPosition { segment: number, byte: row.bytes };
        }
        if !more {
            return Ok(position);
        }
    }
}
