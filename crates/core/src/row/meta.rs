//! Single rows of the whole broker.

use super::Row;
use crate::table::Table;
use crate::{GroupId, PartitionId, QueueId, Stamp};
use serde::{Deserialize, Serialize};

/// Stamp of the last applied command ([`super::key::META_LAST_STAMP`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastStampRow(pub Stamp);

/// The next ids that nobody has yet ([`super::key::META_NEXT_IDS`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextIdsRow {
    /// For the next queue.
    pub queue: QueueId,
    /// For the next partition.
    pub partition: PartitionId,
    /// For the next group.
    pub group: GroupId,
}

impl Default for NextIdsRow {
    fn default() -> NextIdsRow {
        NextIdsRow { queue: QueueId(1), partition: PartitionId(1), group: GroupId(1) }
    }
}

impl Row for LastStampRow {
    const TABLE: Table = Table::Meta;
}

impl Row for NextIdsRow {
    const TABLE: Table = Table::Meta;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_meta_rows_are_fixed() {
        assert_golden(&LastStampRow(Stamp(1 << 50)), "018080808080808002");
        assert_golden(&NextIdsRow::default(), "01010101");
    }
}
