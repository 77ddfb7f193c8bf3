//! Rows of queue log segments.

use super::Row;
use crate::Stamp;
use crate::table::Table;
use serde::{Deserialize, Serialize};

/// What a segment of a queue's log holds. Queue and number are its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentRow {
    /// Bytes written.
    pub bytes: u64,
    /// Stamp of its first run.
    pub first: Stamp,
    /// Stamp of its last run.
    pub last: Stamp,
    /// Runs written.
    pub runs: u64,
    /// Messages written.
    pub messages: u64,
    /// Bytes at its start whose runs are gone from the index: retention has taken them.
    pub trimmed: u64,
}

impl Row for SegmentRow {
    const TABLE: Table = Table::Segment;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_a_segment_row_are_fixed() {
        let row = SegmentRow {
            bytes: 1 << 20,
            first: Stamp(5),
            last: Stamp(600),
            runs: 9,
            messages: 900,
            trimmed: 48,
        };
        assert_golden(&row, "0180804005d80409840730");
    }
}
