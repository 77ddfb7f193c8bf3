//! Reading a queue's log from end to end to see whether it still is what was written.
//!
//! Owns: the walk over the runs and what it finds. Leaves to others: what to do about it.

use crate::store::{ReadGuard, Store};
use queen_core::row::{Row, SegmentRow, key};
use queen_core::run::{self, RunHeader};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_state::{Place, StorageError, Tables};
use std::path::PathBuf;

/// Something in a queue log that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The segment file.
    pub file: PathBuf,
    /// Byte position of the run in it.
    pub position: u64,
    /// What is wrong.
    pub what: String,
}

impl Store {
    /// Reads every run of a queue's log and gives what is wrong with it; nothing when all is well.
    ///
    /// Reads all data, outside the lock. Segments that retention removes meanwhile are left out.
    pub fn scrub(&self, queue: QueueId) -> Result<Vec<Finding>, StorageError> {
        let mut findings = Vec::new();
        for (segment, bytes) in segments(&self.read(), queue)? {
            let found = self.scrub_segment(queue, segment, bytes);
            let kept = self.read().get(Table::Segment, &key::segment(queue, segment))?.is_some();
            if kept {
                findings.extend(found);
            }
        }
        Ok(findings)
    }

    fn scrub_segment(&self, queue: QueueId, segment: u32, bytes: u64) -> Option<Finding> {
        let mut position = 0;
        let mut last = Stamp(0);
        while position < bytes {
            match self.scrub_run(Place { queue, segment, position }, bytes - position) {
                Ok(header) if header.stamp < last => {
                    let what = format!("stamp {} comes after stamp {}", header.stamp.0, last.0);
                    return Some(self.finding(queue, segment, position, what));
                }
                Ok(header) => {
                    position += header.run_len();
                    last = header.stamp;
                }
                Err(what) => return Some(self.finding(queue, segment, position, what)),
            }
        }
        None
    }

    /// Reads one run of at most `left` bytes.
    fn scrub_run(&self, place: Place, left: u64) -> Result<RunHeader, String> {
        let read = |len: u64| {
            let slice = self.read().slice(place, len as usize);
            slice.and_then(|slice| slice.read()).map_err(|error| error.to_string())
        };
        let header = read(left.min(run::HEADER_BYTES as u64))?;
        let header = RunHeader::decode(&header).map_err(|error| error.to_string())?;
        if header.run_len() > left {
            return Err(format!("the run has {} bytes, the segment {left} more", header.run_len()));
        }
        let bytes = read(header.run_len())?;
        run::decode(&bytes).map_err(|error| error.to_string())?;
        Ok(header)
    }

    fn finding(&self, queue: QueueId, segment: u32, position: u64, what: String) -> Finding {
        Finding { file: self.segment_path(queue, segment), position, what }
    }
}

/// The segments of a queue and their lengths.
fn segments(view: &ReadGuard<'_>, queue: QueueId) -> Result<Vec<(u32, u64)>, StorageError> {
    let from = key::segment(queue, 0);
    let to = key::after_prefix(&from[..4]);
    let mut segments = Vec::new();
    for (key, value) in view.scan(Table::Segment, &from, &to, usize::MAX)? {
        let (_, segment) = key::segment_parts(&key)
            .ok_or_else(|| StorageError(format!("a segment row has the key {key:?}")))?;
        segments.push((segment, SegmentRow::decode(&value)?.bytes));
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Applied, StoreOptions};
    use queen_core::{Offset, PartitionId};
    use queen_state::{QueueLogsMut, TablesMut};
    use std::os::unix::fs::FileExt;

    fn write_run(guard: &mut crate::WriteGuard<'_>, position: u64, stamp: u64) -> u64 {
        let frames = b"\x00\x02{}";
        let header = RunHeader {
            partition: PartitionId(1),
            first_offset: Offset(stamp),
            count: 1,
            stamp: Stamp(stamp),
            frames_len: frames.len() as u32,
            text_bytes: 38,
        };
        let place = Place { queue: QueueId(1), segment: 1, position };
        guard.write(place, &[&header.encode(frames), frames]).unwrap();
        position + header.run_len()
    }

    fn written(dir: &std::path::Path, stamps: &[u64]) -> (Store, u64) {
        let (store, _) = Store::open(dir, StoreOptions::default()).unwrap();
        let mut guard = store.write();
        let bytes = stamps.iter().fold(0, |at, &stamp| write_run(&mut guard, at, stamp));
        let stamp = Stamp(1);
        let row = SegmentRow { bytes, first: stamp, last: stamp, runs: 0, messages: 0, trimmed: 0 };
        guard.put(Table::Segment, &key::segment(QueueId(1), 1), &row.encode());
        guard.end_batch(Applied { index: 1, mark: bytes::Bytes::new() }).unwrap();
        (store, bytes)
    }

    #[test]
    fn a_changed_byte_is_found_with_file_and_position() {
        let dir = tempfile::tempdir().unwrap();
        let (store, bytes) = written(dir.path(), &[5, 5, 9]);
        assert_eq!(store.scrub(QueueId(1)).unwrap(), []);
        assert_eq!(store.scrub(QueueId(2)).unwrap(), []);
        let file = dir.path().join("queues/1/0000000001.log");
        let handle = std::fs::File::options().write(true).read(true).open(&file).unwrap();
        for at in 0..bytes {
            let mut byte = [0];
            handle.read_exact_at(&mut byte, at).unwrap();
            handle.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
            let found = store.scrub(QueueId(1)).unwrap();
            let position = at / (bytes / 3) * (bytes / 3);
            assert_eq!(found.len(), 1, "byte {at}");
            assert_eq!((&found[0].file, found[0].position), (&file, position), "byte {at}");
            handle.write_all_at(&byte, at).unwrap();
        }
        assert_eq!(store.scrub(QueueId(1)).unwrap(), []);
    }

    #[test]
    fn stamps_that_fall_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let (store, bytes) = written(dir.path(), &[5, 9, 8]);
        let found = store.scrub(QueueId(1)).unwrap();
        assert_eq!(found[0].position, bytes / 3 * 2);
        assert!(found[0].what.contains("stamp 8 comes after stamp 9"), "{}", found[0].what);
    }
}
