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
