//! Rows of consumer groups.
//!
//! Version 2 of a group's row has the bytes of version 1, and the group conflates.

use super::Row;
use crate::command::GroupStart;
use crate::table::Table;
use crate::{GroupId, PartitionId, Stamp};
use serde::{Deserialize, Serialize};

/// A group's registration on a queue. Queue and group name are its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRow {
    /// Its id.
    pub id: GroupId,
    /// Stamp of its first contact.
    pub registered: Stamp,
    /// As the first contact asked.
    pub mode: GroupStart,
    /// Messages stamped before this are not for the group, in a partition it has no cursor in yet.
    pub start: Stamp,
    /// Every partition whose `Tail` row is not after this is in the group's `Ready` table, leased by
    /// it, or has nothing for it.
    pub scanned: TailMark,
    /// Of each partition it is given the newest message only. Decided at its first contact.
    #[serde(skip)]
    pub conflation: bool,
}

/// Version of the rows of groups that conflate.
const CONFLATING: u8 = 2;

/// A place in a queue's `Tail` table: after the row of this stamp and partition. One push writes
/// many partitions under one stamp, so a stamp alone is no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TailMark {
    /// Stamp of the row.
    pub stamp: Stamp,
    /// Partition of the row.
    pub partition: PartitionId,
}

impl TailMark {
    /// After every row stamped before `stamp`.
    pub fn before(stamp: Stamp) -> TailMark {
        TailMark { stamp: Stamp(stamp.0.saturating_sub(1)), partition: PartitionId(u64::MAX) }
    }
}

impl Row for GroupRow {
    const TABLE: Table = Table::Group;
    const NEWEST: u8 = CONFLATING;

    fn version(&self) -> u8 {
        if self.conflation { CONFLATING } else { Self::VERSION }
    }

    fn of_version(self, version: u8) -> GroupRow {
        GroupRow { conflation: version == CONFLATING, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_a_group_row_are_fixed() {
        let row = GroupRow {
            id: GroupId(2),
            registered: Stamp(300),
            mode: GroupStart::From(Stamp(7)),
            start: Stamp(7),
            scanned: TailMark { stamp: Stamp(6), partition: PartitionId(300) },
            conflation: false,
        };
        assert_golden(&row, "0102ac0202070706ac02");
        let row = GroupRow { conflation: true, ..row };
        assert_golden(&row, "0202ac0202070706ac02");
    }
}
