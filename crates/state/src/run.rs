//! Runs: finding messages through the run index.
//!
//! Owns: look-ups by offset and by stamp, reading a frame. Leaves to others: appending (`push`),
//! dropping (`retention`).

use crate::Reading;
use crate::logs::Place;
use crate::step::{decode, parts};
use crate::tables::StorageError;
use bytes::Bytes;
use queen_core::frame::{Frame, Frames};
use queen_core::row::{PartitionRow, RunRow, key};
use queen_core::run::HEADER_BYTES;
use queen_core::table::Table;
use queen_core::{MessageId, Offset, PartitionId, QueueId, Stamp};
use std::borrow::Cow;
use std::cmp::Ordering;

/// Rows looked at together.
const CHUNK: usize = 256;

/// A run of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of its first message.
    pub first: Offset,
    /// Its row.
    pub row: RunRow,
}

impl Run {
    /// The offset after its last message.
    pub fn end(&self) -> Offset {
        self.row.end(self.first)
    }

    /// Where it lies.
    pub fn place(&self, queue: QueueId) -> Place {
        Place { queue, segment: self.row.segment, position: self.row.position }
    }
}

/// The run that holds an offset; `None` when none does.
pub fn at(
    store: &impl Reading,
    partition: PartitionId,
    offset: Offset,
) -> Result<Option<Run>, StorageError> {
    let (from, to) = (key::run(partition, Offset(0)), key::run(partition, offset.plus(1)));
    let Some((key, value)) = store.scan_back(Table::Run, &from, &to, 1)?.pop() else {
        return Ok(None);
    };
    let (_, first) = parts(Table::Run, &key, key::run_parts(&key))?;
    let run = Run { first, row: decode(&key, &value)? };
    Ok(Some(run).filter(|run| offset < run.end()))
}

/// The run that holds an offset that the partition keeps: its absence is damage.
pub fn kept_at(
    store: &impl Reading,
    partition: PartitionId,
    offset: Offset,
) -> Result<Run, StorageError> {
    at(store, partition, offset)?.ok_or_else(|| {
        StorageError(format!("partition {partition} has no run that holds offset {offset}"))
    })
}

/// The first offset, at or after `from`, whose message is stamped at or after `stamp`; the
/// partition's next offset when there is none.
///
/// `from` must not be below the log start. Costs a look-up when the answer is `from` or the end,
/// and a binary search otherwise.
pub fn first_stamped(
    store: &impl Reading,
    partition: &PartitionRow,
    from: Offset,
    stamp: Stamp,
) -> Result<Offset, StorageError> {
    let (mut low, mut high) = (from, partition.next);
    if low >= high || partition.last < stamp {
        return Ok(high);
    }
    let mut probe = low;
    while low < high {
        let run = kept_at(store, partition.id, probe)?;
        if run.row.stamp >= stamp {
            high = run.first.max(low);
        } else {
            low = run.end();
        }
        probe = Offset(low.0 + (high.0.saturating_sub(low.0)) / 2);
    }
    Ok(low)
}

/// The frames of a run, read from the log; `None` when they are damaged beyond use.
pub fn frames(
    store: &impl Reading,
    queue: QueueId,
    run: &Run,
) -> Result<Option<Bytes>, StorageError> {
    let bytes = store.run(run.place(queue), run.row.run_len() as usize)?;
    Ok(bytes.map(|bytes| bytes.slice(HEADER_BYTES..)))
}

/// The run that lies at a place of a queue's log, found by the index alone. Costs a look-up for each
/// partition of the queue: for logs that cannot be read.
pub fn lying_at(store: &impl Reading, place: Place) -> Result<(PartitionId, Run), StorageError> {
    let (mut from, to) =
        (key::queue(place.queue).to_vec(), key::after_prefix(&key::queue(place.queue)));
    loop {
        let partitions = store.scan(Table::Partition, &from, &to, CHUNK)?;
        for (row_key, value) in &partitions {
            let row: PartitionRow = decode(row_key, value)?;
            if let Some(run) = of_partition_at(store, row.id, place)? {
                return Ok((row.id, run));
            }
        }
        match partitions.last() {
            Some((last, _)) if partitions.len() == CHUNK => from = [&last[..], &[0]].concat(),
            _ => return Err(StorageError(format!("no run lies at {place:?}"))),
        }
    }
}

/// The run of a partition that lies at a place. Its runs lie in the order of their offsets.
fn of_partition_at(
    store: &impl Reading,
    partition: PartitionId,
    place: Place,
) -> Result<Option<Run>, StorageError> {
    let (mut from, to) = (Offset(0), key::run(partition, Offset(u64::MAX)));
    loop {
        let rows = store.scan(Table::Run, &key::run(partition, from), &to, CHUNK)?;
        for (row_key, value) in &rows {
            let (_, first) = parts(Table::Run, row_key, key::run_parts(row_key))?;
            let run = Run { first, row: decode(row_key, value)? };
            let lies = (run.row.segment, run.row.position);
            match lies.cmp(&(place.segment, place.position)) {
                Ordering::Less => from = run.end(),
                Ordering::Equal => return Ok(Some(run)),
                Ordering::Greater => return Ok(None),
            }
        }
        if rows.len() < CHUNK {
            return Ok(None);
        }
    }
}

/// One frame among those of a run.
pub fn frame_in<'a>(
    frames: &'a [u8],
    run: &Run,
    offset: Offset,
) -> Result<Frame<'a>, StorageError> {
    let index = (offset.0 - run.first.0) as usize;
    match Frames::new(frames).nth(index) {
        Some(Ok(frame)) => Ok(frame),
        Some(Err(bad)) => Err(StorageError(format!("the run at offset {}: {bad}", run.first))),
        None => Err(StorageError(format!("the run at offset {} ends before {offset}", run.first))),
    }
}

/// The transaction id that a frame brings along: its own, or the text of its promised message id.
pub fn own_id<'a>(frame: &Frame<'a>) -> Option<Cow<'a, str>> {
    match (frame.transaction_id, frame.message_id) {
        (Some(id), _) => Some(Cow::Borrowed(id)),
        (None, Some(id)) => Some(Cow::Owned(MessageId(id).to_string())),
        (None, None) => None,
    }
}

/// Whether a frame brings this transaction id along.
pub fn has_id(frame: &Frame<'_>, transaction_id: &str) -> bool {
    match (frame.transaction_id, frame.message_id) {
        (Some(id), _) => id == transaction_id,
        (None, Some(id)) => MessageId(id).to_string() == transaction_id,
        (None, None) => false,
    }
}
