//! Rows of the run index: which offsets of a partition lie where in its queue's log.

use super::Row;
use crate::run::HEADER_BYTES;
use crate::table::Table;
use crate::{Offset, Stamp};
use serde::{Deserialize, Serialize};

/// Where a run lies, and what its header says. Partition and first offset are its key; the queue is
/// the partition's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRow {
    /// Segment of the queue's log.
    pub segment: u32,
    /// Byte position of the run's header in the segment.
    pub position: u64,
    /// Messages.
    pub count: u32,
    /// Stamp of the append.
    pub stamp: Stamp,
    /// Bytes of the frames.
    pub frames_len: u32,
    /// Whether any frame has a transaction id or a message id of its own.
    pub own_ids: bool,
}

impl RunRow {
    /// Bytes of the whole run in the log.
    pub fn run_len(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.frames_len)
    }

    /// The offset after the last message of the run that begins at `first`.
    pub fn end(&self, first: Offset) -> Offset {
        first.plus(u64::from(self.count))
    }
}

impl Row for RunRow {
    const TABLE: Table = Table::Run;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_a_run_row_are_fixed() {
        let row = RunRow {
            segment: 3,
            position: 1000,
            count: 100,
            stamp: Stamp(7),
            frames_len: 25_800,
            own_ids: true,
        };
        assert_golden(&row, "0103e8076407c8c90101");
    }
}
