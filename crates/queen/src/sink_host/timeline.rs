//! A queue's log in order of time, and its bytes, for the sink.
//!
//! Owns: walking from run to run over segment files. Leaves to others: which segments there are and
//! where retention has cut them (`Segment` rows), the runs' bytes (`queen_core::run`).
//!
//! A segment's row is looked at and its file opened under one read lock; all bytes are read outside.
//! These threads run at a low priority: one that lost the processor within the lock would hold up
//! whoever applies the log for as long as it does not get it back.

use queen_broker::{Broker, View};
use queen_core::row::{Row, SegmentRow, key};
use queen_core::run::{HEADER_BYTES, RunHeader};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_sink::host::{HostError, LogBytes, Place, ScanFrom, TimelinePage, TimelineRun};
use queen_state::{StorageError, Tables};
use queen_store::LogSlice;
use std::collections::BTreeMap;

/// Bytes read at a time while walking over small runs.
const STRIDE: usize = 64 << 10;
/// Bytes read for the header of a run that comes after a longer one than this.
const STEP: usize = 4 << 10;

/// Segments that a reader keeps open.
const OPEN_MAX: usize = 16;

/// A segment as it is now.
struct Segment {
    number: u32,
    row: SegmentRow,
    /// All of it.
    bytes: LogSlice,
}

/// Stamp of the first record that the queue still holds.
pub(super) fn first_retained(broker: &Broker, queue: QueueId) -> Result<Option<Stamp>, HostError> {
    let mut from = 0;
    while let Some(segment) = segment_from(broker, queue, from)? {
        if segment.row.trimmed == 0 {
            return Ok(Some(segment.row.first));
        }
        if segment.row.trimmed < segment.row.bytes {
            let header = Walk::new(queue, &segment).header_at(segment.row.trimmed)?;
            return Ok(Some(header.stamp));
        }
        from = segment.number + 1;
    }
    Ok(None)
}

/// Runs from a stamp or a place on, at most `runs_max`.
pub(super) fn scan(
    broker: &Broker,
    queue: QueueId,
    from: ScanFrom,
    runs_max: usize,
    applied: Stamp,
) -> Result<TimelinePage, HostError> {
    let (mut place, least) = match from {
        ScanFrom::Place(place) => (place, Stamp::ZERO),
        ScanFrom::Stamp(stamp) => (Place::default(), stamp),
    };
    let mut page = TimelinePage::default();
    loop {
        let number = u32::try_from(place.segment).unwrap_or(u32::MAX);
        let Some(segment) = segment_from(broker, queue, number)? else {
            page.next = place;
            page.end = true;
            page.through = applied;
            return Ok(page);
        };
        if u64::from(segment.number) != place.segment {
            place = Place { segment: u64::from(segment.number), at: 0 };
        }
        place.at = place.at.max(segment.row.trimmed);
        // A segment that ends before the stamp is passed over without a look.
        if segment.row.last >= least {
            let mut walk = Walk::new(queue, &segment);
            while place.at < segment.row.bytes {
                if page.runs.len() >= runs_max.max(1) {
                    page.next = place;
                    page.through = page.runs.last().map_or(Stamp::ZERO, |run| run.header.stamp);
                    return Ok(page);
                }
                let header = walk.header_at(place.at)?;
                if header.stamp >= least {
                    page.runs.push(TimelineRun { header, place });
                }
                place.at += header.run_len();
            }
        }
        if segment_from(broker, queue, segment.number.saturating_add(1))?.is_none() {
            // The newest segment may still grow: the next page starts behind what was seen of it.
            place.at = place.at.max(segment.row.bytes);
            page.next = place;
            page.end = true;
            page.through = applied;
            return Ok(page);
        }
        place = Place { segment: u64::from(segment.number) + 1, at: 0 };
    }
}

/// Reads bytes of a queue's log, segment after segment.
pub(super) struct Reader<'a> {
    broker: &'a Broker,
    queue: QueueId,
    open: BTreeMap<u32, Segment>,
}

impl Reader<'_> {
    pub(super) fn new(broker: &Broker, queue: QueueId) -> Reader<'_> {
        Reader { broker, queue, open: BTreeMap::new() }
    }
}

impl LogBytes for Reader<'_> {
    fn read(&mut self, place: Place, into: &mut [u8]) -> Result<(), HostError> {
        let number = u32::try_from(place.segment).unwrap_or(u32::MAX);
        let end = place.at + into.len() as u64;
        let known = self.open.get(&number).is_some_and(|segment| end <= segment.row.bytes);
        if !known {
            if self.open.len() >= OPEN_MAX {
                self.open.pop_first();
            }
            let found = segment_from(self.broker, self.queue, number)?;
            let found = found.filter(|found| found.number == number && end <= found.row.bytes);
            let segment = found.ok_or_else(|| {
                HostError::Gone(format!(
                    "segment {number} of queue {} is gone or shorter than {end} bytes",
                    self.queue
                ))
            })?;
            self.open.insert(number, segment);
        }
        let segment = self.open.get(&number);
        segment.map_or(Ok(()), |segment| segment.bytes.read_at(place.at, into)).map_err(broken)
    }
}

fn broken(error: StorageError) -> HostError {
    HostError::Broken(error.to_string())
}

/// The first segment with at least this number.
fn segment_from(
    broker: &Broker,
    queue: QueueId,
    number: u32,
) -> Result<Option<Segment>, HostError> {
    let look = |view: &View<'_>| {
        let (from, to) = (key::segment(queue, number), key::segment(queue, u32::MAX));
        let rows = view.scan(Table::Segment, &from, &to, 1)?;
        let Some((found, value)) = rows.first() else { return Ok(None) };
        let row = SegmentRow::decode(value).map_err(|bad| StorageError(bad.to_string()))?;
        let parts = key::segment_parts(found);
        let (_, number) = parts.ok_or_else(|| StorageError("a segment key is too short".into()))?;
        let start = queen_state::Place { queue, segment: number, position: 0 };
        let bytes = view.slice(start, row.bytes as usize)?;
        Ok(Some(Segment { number, row, bytes }))
    };
    broker.read(look).map_err(|error| HostError::Broken(error.to_string()))
}

/// Reads headers of one segment through a buffer.
struct Walk<'a> {
    queue: QueueId,
    segment: &'a Segment,
    buffer: Vec<u8>,
    /// Position of the buffer's first byte.
    buffer_at: u64,
    /// Length of the run before.
    run_len: u64,
}

impl Walk<'_> {
    fn new(queue: QueueId, segment: &Segment) -> Walk<'_> {
        Walk { queue, segment, buffer: Vec::new(), buffer_at: 0, run_len: 0 }
    }

    fn header_at(&mut self, at: u64) -> Result<RunHeader, HostError> {
        let Segment { number, row, bytes } = self.segment;
        let ends = self.buffer_at + self.buffer.len() as u64;
        if at < self.buffer_at || at + HEADER_BYTES as u64 > ends {
            // What lies between two headers is not wanted here.
            let most = if self.run_len > STEP as u64 { STEP } else { STRIDE };
            self.buffer.resize(most.min(row.bytes.saturating_sub(at) as usize), 0);
            bytes.read_at(at, &mut self.buffer).map_err(broken)?;
            self.buffer_at = at;
        }
        let header = self.buffer.get((at - self.buffer_at) as usize..).unwrap_or_default();
        let header = RunHeader::decode(header).map_err(|bad| {
            HostError::Broken(format!("queue {}, segment {number}, byte {at}: {bad}", self.queue))
        })?;
        self.run_len = header.run_len();
        Ok(header)
    }
}
