//! A queue's log in order of time, and its bytes, for the sink.
//!
//! Owns: walking from run to run over segment files. Leaves to others: which segments there are and
//! where retention has cut them (`Segment` rows), the runs' bytes (`queen_core::run`).

use super::row;
use queen_broker::{Broker, View};
use queen_core::row::{Row, SegmentRow, key};
use queen_core::run::{HEADER_BYTES, RunHeader};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_sink::host::{HostError, Place, ScanFrom, TimelinePage, TimelineRun};
use queen_state::{StorageError, Tables};
use queen_store::LogSlice;

/// Bytes read at a time while walking: many small runs, or the header of a large one.
const STRIDE: u64 = 64 << 10;

/// A segment as it is now.
#[derive(Clone, Copy)]
struct Segment {
    number: u32,
    row: SegmentRow,
}

/// Stamp of the first record that the queue still holds.
pub(super) fn first_retained(broker: &Broker, queue: QueueId) -> Result<Option<Stamp>, HostError> {
    let mut from = 0;
    while let Some(segment) = segment_from(broker, queue, from)? {
        if segment.row.trimmed == 0 {
            return Ok(Some(segment.row.first));
        }
        if segment.row.trimmed < segment.row.bytes {
            let mut walk = Walk::new(broker, queue, segment);
            let header = walk.header_at(segment.row.trimmed)?;
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
            let mut walk = Walk::new(broker, queue, segment);
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

/// Bytes of the log at a place.
pub(super) fn read(
    broker: &Broker,
    queue: QueueId,
    place: Place,
    into: &mut [u8],
) -> Result<(), HostError> {
    let bytes = slice(broker, queue, place, into.len())?.read().map_err(broken)?;
    if bytes.len() != into.len() {
        let (have, want) = (bytes.len(), into.len());
        return Err(HostError::Broken(format!(
            "{have} of {want} bytes at {place:?} of queue {queue}"
        )));
    }
    into.copy_from_slice(&bytes);
    Ok(())
}

fn broken(error: StorageError) -> HostError {
    HostError::Broken(error.to_string())
}

/// The right to read bytes outside the lock; checked against the segment's row.
fn slice(broker: &Broker, queue: QueueId, place: Place, len: usize) -> Result<LogSlice, HostError> {
    let number = u32::try_from(place.segment).unwrap_or(u32::MAX);
    let found = broker.read(|view| {
        let end = place.at + len as u64;
        let row = row::<SegmentRow>(view, &key::segment(queue, number))?;
        if row.is_none_or(|row| end > row.bytes) {
            return Ok(None);
        }
        let place = queen_state::Place { queue, segment: number, position: place.at };
        view.slice(place, len).map(Some)
    });
    match found {
        Ok(Some(slice)) => Ok(slice),
        Ok(None) => Err(HostError::Gone(format!(
            "segment {number} of queue {queue} is gone or shorter than {} bytes",
            place.at + len as u64
        ))),
        Err(error) => Err(HostError::Broken(error.to_string())),
    }
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
        Ok(Some(Segment { number, row }))
    };
    broker.read(look).map_err(|error| HostError::Broken(error.to_string()))
}

/// Reads headers of one segment through a buffer.
struct Walk<'a> {
    broker: &'a Broker,
    queue: QueueId,
    segment: Segment,
    buffer: bytes::Bytes,
    /// Position of the buffer's first byte.
    buffer_at: u64,
}

impl Walk<'_> {
    fn new(broker: &Broker, queue: QueueId, segment: Segment) -> Walk<'_> {
        Walk { broker, queue, segment, buffer: bytes::Bytes::new(), buffer_at: 0 }
    }

    fn header_at(&mut self, at: u64) -> Result<RunHeader, HostError> {
        let ends = self.buffer_at + self.buffer.len() as u64;
        if at < self.buffer_at || at + HEADER_BYTES as u64 > ends {
            let len = STRIDE.min(self.segment.row.bytes.saturating_sub(at)) as usize;
            let place = Place { segment: u64::from(self.segment.number), at };
            self.buffer = slice(self.broker, self.queue, place, len)?.read().map_err(broken)?;
            self.buffer_at = at;
        }
        let header = self.buffer.get((at - self.buffer_at) as usize..).unwrap_or_default();
        RunHeader::decode(header).map_err(|bad| {
            HostError::Broken(format!(
                "queue {}, segment {}, byte {at}: {bad}",
                self.queue, self.segment.number
            ))
        })
    }
}
