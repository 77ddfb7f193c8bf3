//! Segments: where in a queue's log the next run goes.
//!
//! Owns: places, the rolling of segments, their rows. Leaves to others: the run index (`run`),
//! dropping (`retention`).
//!
//! A segment is rolled when it would pass [`SEGMENT_BYTES`], or when the UTC hour of the stamps
//! changed since its first run: a function of the log alone, so that every node has the same files.

use crate::logs::Place;
use crate::run::{self, Run};
use crate::step::{Queue, Step, bad_row, get};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use queen_core::limits::SEGMENT_BYTES;
use queen_core::row::{RunRow, SegmentRow, key};
use queen_core::run::{HEADER_BYTES, RunHeader};
use queen_core::table::Table;
use queen_core::{PartitionId, QueueId, Stamp};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Queues of which the newest segment's row is kept decoded.
const KEPT: usize = 4096;
const HOUR: u64 = 3_600_000_000;

/// The newest segments of queues, and which of their rows are still to be written.
#[derive(Debug, Default)]
pub(crate) struct Newest {
    rows: BTreeMap<QueueId, (u32, SegmentRow)>,
    dirty: Vec<QueueId>,
}

impl Newest {
    /// Forgets a queue's newest segment: it is gone.
    pub(crate) fn forget(&mut self, queue: QueueId) {
        self.rows.remove(&queue);
    }

    /// The stamp of the queue's last append, if it is known.
    pub(crate) fn last_append(&self, queue: QueueId) -> Option<Stamp> {
        self.rows.get(&queue).map(|(_, row)| row.last)
    }
}

/// A segment's row.
pub fn row(
    store: &impl Reading,
    queue: QueueId,
    number: u32,
) -> Result<Option<SegmentRow>, StorageError> {
    get::<SegmentRow>(store, &key::segment(queue, number))
}

impl<S: Storage> Step<'_, S> {
    /// Appends the bytes of a run to its queue's log; gives the place.
    pub(crate) fn append(
        &mut self,
        queue: &Arc<Queue>,
        messages: u32,
        parts: [&[u8]; 2],
    ) -> Result<Place, StorageError> {
        let len = (parts[0].len() + parts[1].len()) as u64;
        let (number, mut row, rolled) = self.segment_for(queue, len)?;
        if rolled {
            // The row of the segment before may wait to be written.
            self.flush_segments();
            let mut queue = Queue::clone(queue);
            queue.row.last_segment = number;
            self.put_queue(queue);
        }
        let place = Place { queue: queue.id, segment: number, position: row.bytes };
        self.store.write(place, &parts)?;
        row.bytes += len;
        row.last = self.stamp;
        row.runs += 1;
        row.messages += u64::from(messages);
        self.memo.newest.rows.insert(queue.id, (number, row));
        if self.memo.newest.dirty.last() != Some(&queue.id) {
            self.memo.newest.dirty.push(queue.id);
        }
        Ok(place)
    }

    /// The segment that takes a run of `len` bytes, and whether it is a new one.
    fn segment_for(
        &mut self,
        queue: &Queue,
        len: u64,
    ) -> Result<(u32, SegmentRow, bool), StorageError> {
        let known = self.memo.newest.rows.get(&queue.id).copied();
        let last = known.map_or(queue.row.last_segment, |(number, _)| number);
        let newest = match known {
            Some((_, row)) => Some(row),
            None if last == 0 => None,
            None => row(self.store, queue.id, last)?,
        };
        let same_hour = |row: &SegmentRow| row.first.0 / HOUR == self.stamp.0 / HOUR;
        let fits = |row: &SegmentRow| row.bytes == 0 || row.bytes + len <= SEGMENT_BYTES;
        match newest {
            Some(row) if same_hour(&row) && fits(&row) => Ok((last, row, false)),
            _ => {
                let (first, last_stamp) = (self.stamp, Stamp::ZERO);
                let row = SegmentRow {
                    bytes: 0,
                    first,
                    last: last_stamp,
                    runs: 0,
                    messages: 0,
                    trimmed: 0,
                };
                Ok((last + 1, row, true))
            }
        }
    }

    /// Writes the rows of segments that were appended to.
    pub(crate) fn flush_segments(&mut self) {
        for queue in std::mem::take(&mut self.memo.newest.dirty) {
            if let Some((number, row)) = self.memo.newest.rows.get(&queue).copied() {
                self.put(&key::segment(queue, number), &row);
            }
        }
        if self.memo.newest.rows.len() > KEPT {
            self.memo.newest.rows.clear();
        }
    }
}

/// Bytes read at once when runs are small.
const READ_AHEAD: u64 = 4096;

/// Reads the headers of a segment's runs one after the other.
pub(crate) struct Headers {
    queue: QueueId,
    segment: u32,
    bytes: u64,
    ahead: (u64, bytes::Bytes),
}

impl Headers {
    /// Of a segment of which so many bytes are written.
    pub(crate) fn new(queue: QueueId, segment: u32, bytes: u64) -> Headers {
        Headers { queue, segment, bytes, ahead: (0, bytes::Bytes::new()) }
    }

    /// The header of the run at a position, which must be that of a run.
    pub(crate) fn read(
        &mut self,
        store: &impl Reading,
        position: u64,
    ) -> Result<RunHeader, StorageError> {
        let ahead = self.ahead(store, position, HEADER_BYTES as u64)?;
        RunHeader::decode(&ahead).map_err(|bad| {
            let what = format!("at byte {position} of its log: {bad}");
            bad_row(Table::Segment, &key::segment(self.queue, self.segment), &what)
        })
    }

    /// The run at a position: its partition, and what its row says. What the log says there is taken only
    /// if a checksum or the row proves it, so that damage neither ends apply nor makes this node's
    /// rows differ from those of others.
    pub(crate) fn run(
        &mut self,
        store: &impl Reading,
        position: u64,
    ) -> Result<(PartitionId, Run), StorageError> {
        let place = Place { queue: self.queue, segment: self.segment, position };
        let Ok(header) = self.read(store, position) else { return run::lying_at(store, place) };
        let RunHeader { partition, first_offset: first, count, stamp, frames_len, .. } = header;
        // A sum over many bytes costs more than a look at a row.
        if header.run_len() <= READ_AHEAD {
            let bytes = self.ahead(store, position, header.run_len());
            if bytes.is_ok_and(|bytes| queen_core::run::decode(&bytes).is_ok()) {
                let (segment, own_ids) = (self.segment, false);
                let row = RunRow { segment, position, count, stamp, frames_len, own_ids };
                return Ok((partition, Run { first, row }));
            }
        }
        let row = get::<RunRow>(store, &key::run(partition, first))?;
        match row.filter(|row| (row.segment, row.position) == (self.segment, position)) {
            Some(row) => Ok((partition, Run { first, row })),
            None => run::lying_at(store, place),
        }
    }

    /// The bytes from a position on, at least `len` of them if the segment has as many.
    fn ahead(
        &mut self,
        store: &impl Reading,
        position: u64,
        len: u64,
    ) -> Result<bytes::Bytes, StorageError> {
        let (from, ahead) = &self.ahead;
        if position < *from || position + len > from + ahead.len() as u64 {
            let len = READ_AHEAD.max(len).min(self.bytes.saturating_sub(position)) as usize;
            let place = Place { queue: self.queue, segment: self.segment, position };
            self.ahead = (position, store.read(place, len)?);
        }
        let (from, ahead) = &self.ahead;
        Ok(ahead.slice((position - from) as usize..))
    }
}
