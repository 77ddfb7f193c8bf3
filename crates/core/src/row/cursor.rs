//! Rows of cursors: how far a group is in a partition, and who holds its batch.

use super::Row;
use crate::table::Table;
use crate::{LeaseId, Offset, Stamp};
use serde::{Deserialize, Serialize};

/// A group's place in a partition. Group and partition are its key.
///
/// At most one of `ready` and `lease` is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CursorRow {
    /// Every message below is settled.
    pub next: Offset,
    /// Every message below was delivered at least once: the end of the last batch.
    pub delivered: Offset,
    /// Deliveries of the message at `next` that were not given back; 0 when `next` is `delivered`.
    pub attempts: u32,
    /// Failed acks charged since a batch was completed.
    pub failures: u32,
    /// Stamp of its `Ready` row, if it has one.
    pub ready: Option<Stamp>,
    /// The batch that is out.
    pub lease: Option<HeldLease>,
    /// Stamp at which `next` last moved.
    pub moved: Stamp,
}

/// A batch that is out: the messages from the cursor to `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLease {
    /// Lease it was claimed under.
    pub id: LeaseId,
    /// The offset after its last message.
    pub end: Offset,
    /// Live while commands are stamped before this.
    pub expires: Stamp,
}

impl Row for CursorRow {
    const TABLE: Table = Table::Cursor;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_a_cursor_row_are_fixed() {
        let lease = HeldLease { id: LeaseId([9; 16]), end: Offset(12), expires: Stamp(900) };
        let row = CursorRow {
            next: Offset(2),
            delivered: Offset(12),
            attempts: 3,
            failures: 1,
            ready: None,
            lease: Some(lease),
            moved: Stamp(300),
        };
        assert_golden(&row, "01020c03010001090909090909090909090909090909090c8407ac02");
        let row = CursorRow { ready: Some(Stamp(5)), ..CursorRow::default() };
        assert_golden(&row, "010000000001050000");
    }
}
