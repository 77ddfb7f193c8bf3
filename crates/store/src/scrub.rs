//! Reading a queue's log from end to end to see whether it still is what was written.
//!
//! Owns: the walk over the runs and what it finds. Leaves to others: when and how fast (`scrubber`),
//! what to do about it.

use crate::damage::Finding;
use crate::log_files::SegmentId;
use crate::store::{Shared, Store};
use bytes::{Buf, Bytes, BytesMut};
use queen_core::row::{Row, SegmentRow, key};
use queen_core::run::{self, HEADER_BYTES, RunHeader};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_state::{Place, StorageError};

/// Bytes read at once.
const CHUNK_BYTES: u64 = 256 << 10;
/// Rows listed under one lock.
const PAGE: usize = 1024;

/// What became of reading a segment.
pub(crate) enum Walked {
    /// It is what was written.
    Sound,
    /// It is not; nothing behind that place can be told.
    Damaged(Finding),
    /// It cannot be read, now or at all.
    Unread(Finding),
    /// Retention took it meanwhile.
    Removed,
    /// The walk was called off.
    Ended,
}

impl Store {
    /// Reads every run of a queue's log and gives what is wrong with it; nothing when all is well.
    ///
    /// Reads all data, outside the lock. Segments that retention removes meanwhile are left out.
    pub fn scrub(&self, queue: QueueId) -> Result<Vec<Finding>, StorageError> {
        let to = key::after_prefix(&key::segment(queue, 0)[..4]);
        let mut findings = Vec::new();
        for (id, bytes) in segments(&self.shared, &key::segment(queue, 0), &to)? {
            match Walk::new(&self.shared, id, bytes).walk(&mut |_| true) {
                Walked::Damaged(finding) | Walked::Unread(finding) => findings.push(finding),
                Walked::Sound | Walked::Removed | Walked::Ended => {}
            }
        }
        Ok(findings)
    }
}

/// A walk over the runs of a segment.
pub(crate) struct Walk<'a> {
    shared: &'a Shared,
    id: SegmentId,
    /// Its length.
    bytes: u64,
    /// Read and not looked at.
    buffer: BytesMut,
    /// Where the buffer begins.
    position: u64,
    last: Stamp,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(shared: &'a Shared, id: SegmentId, bytes: u64) -> Walk<'a> {
        Walk { shared, id, bytes, buffer: BytesMut::new(), position: 0, last: Stamp(0) }
    }

    /// Reads it; `goes_on` is asked after each read of so many bytes.
    pub(crate) fn walk(mut self, goes_on: &mut dyn FnMut(u64) -> bool) -> Walked {
        loop {
            if let Err(what) = self.runs() {
                return Walked::Damaged(self.finding(what));
            }
            let at = self.position + self.buffer.len() as u64;
            let len = CHUNK_BYTES.min(self.bytes - at);
            if len == 0 {
                return Walked::Sound;
            }
            match self.read(at, len) {
                Ok(Some(bytes)) => self.buffer.extend_from_slice(&bytes),
                Ok(None) => return Walked::Removed,
                Err(error) => return Walked::Unread(self.finding(error.to_string())),
            }
            if !goes_on(len) {
                return Walked::Ended;
            }
        }
    }

    /// Looks at the whole runs in the buffer.
    fn runs(&mut self) -> Result<(), String> {
        loop {
            let left = self.bytes - self.position;
            if left == 0 || (self.buffer.len() as u64) < left.min(HEADER_BYTES as u64) {
                return Ok(());
            }
            let header = RunHeader::decode(&self.buffer).map_err(|error| error.to_string())?;
            let len = header.run_len();
            if len > left {
                return Err(format!("the run has {len} bytes, the segment {left} more"));
            }
            if (self.buffer.len() as u64) < len {
                return Ok(());
            }
            run::decode(&self.buffer).map_err(|error| error.to_string())?;
            if header.stamp < self.last {
                let (stamp, last) = (header.stamp.0, self.last.0);
                return Err(format!("stamp {stamp} comes after stamp {last}"));
            }
            self.buffer.advance(len as usize);
            self.position += len;
            self.last = header.stamp;
        }
    }

    /// Bytes of the segment; `None` when no row names it any more.
    fn read(&self, position: u64, len: u64) -> Result<Option<Bytes>, StorageError> {
        let SegmentId { queue, segment } = self.id;
        let slice = {
            // While there is a row there is the file.
            let inner = self.shared.inner.read();
            if inner.tables.get(Table::Segment, &key::segment(queue, segment))?.is_none() {
                return Ok(None);
            }
            inner.logs.slice(Place { queue, segment, position }, len as usize)?
        };
        slice.read().map(Some)
    }

    fn finding(&self, what: String) -> Finding {
        let file = self.shared.disk().files.path(self.id);
        Finding { file, position: self.position, what }
    }
}

/// The segments with `from <= key < to` and their lengths.
pub(crate) fn segments(
    shared: &Shared,
    from: &[u8],
    to: &[u8],
) -> Result<Vec<(SegmentId, u64)>, StorageError> {
    let mut segments = Vec::new();
    let mut from = from.to_vec();
    loop {
        let rows = shared.inner.read().tables.scan(Table::Segment, &from, to, PAGE)?;
        for (key, value) in &rows {
            let (queue, segment) = key::segment_parts(key)
                .ok_or_else(|| StorageError(format!("a segment row has the key {key:?}")))?;
            segments.push((SegmentId { queue, segment }, SegmentRow::decode(value)?.bytes));
        }
        match rows.last() {
            Some((last, _)) if rows.len() == PAGE => from = [&last[..], &[0]].concat(),
            _ => return Ok(segments),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Applied, StoreOptions};
    use queen_core::{Offset, PartitionId};
    use queen_state::{QueueLogs, QueueLogsMut, TablesMut};
    use std::os::unix::fs::FileExt;

    /// Writes a run to queue 1; gives where it ends.
    pub(crate) fn write_run(
        guard: &mut crate::WriteGuard<'_>,
        segment: u32,
        position: u64,
        stamp: u64,
    ) -> u64 {
        let frames = b"\x00\x02{}";
        let header = RunHeader {
            partition: PartitionId(1),
            first_offset: Offset(stamp),
            count: 1,
            stamp: Stamp(stamp),
            frames_len: frames.len() as u32,
            text_bytes: 38,
        };
        let place = Place { queue: QueueId(1), segment, position };
        guard.write(place, &[&header.encode(frames), frames]).unwrap();
        position + header.run_len()
    }

    fn written(dir: &std::path::Path, stamps: &[u64]) -> (Store, u64) {
        written_by(StoreOptions::default(), dir, stamps)
    }

    fn written_by(options: StoreOptions, dir: &std::path::Path, stamps: &[u64]) -> (Store, u64) {
        let (store, _) = Store::open(dir, options).unwrap();
        let mut guard = store.write();
        let bytes = stamps.iter().fold(0, |at, &stamp| write_run(&mut guard, 1, at, stamp));
        let stamp = Stamp(1);
        let row = SegmentRow { bytes, first: stamp, last: stamp, runs: 0, messages: 0, trimmed: 0 };
        guard.put(Table::Segment, &key::segment(QueueId(1), 1), &row.encode());
        guard.end_batch(Applied { index: 1, mark: bytes::Bytes::new() }).unwrap();
        (store, bytes)
    }

    #[test]
    fn a_damaged_run_ends_apply_unless_nobody_else_has_it() {
        for only_copy in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let options = StoreOptions { only_copy, ..StoreOptions::default() };
            let (store, bytes) = written_by(options, dir.path(), &[5, 6]);
            let file = dir.path().join("queues/1/0000000001.log");
            let opened = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
            opened.write_all_at(b"\xff", bytes - 1).unwrap();
            let guard = store.write();
            let (queue, segment, len) = (QueueId(1), 1, (bytes / 2) as usize);
            let at = |position| Place { queue, segment, position };
            assert!(guard.run(at(0), len).unwrap().is_some());
            let damaged = guard.run(at(bytes / 2), len);
            // So is one that is not there.
            let short = guard.run(at(bytes), len);
            for found in [damaged, short] {
                match only_copy {
                    true => assert_eq!(found, Ok(None)),
                    false => {
                        let why = found.unwrap_err().to_string();
                        assert!(why.contains("let it join the others again"), "{why}");
                    }
                }
            }
            drop(guard);
            assert_eq!(store.damage().len(), 2);
        }
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
