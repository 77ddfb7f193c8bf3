//! Rows of partitions.

use super::Row;
use crate::table::Table;
use crate::{Offset, PartitionId, QueueId, Stamp};
use serde::{Deserialize, Serialize};

/// One incarnation of a partition, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionRow {
    /// Its id.
    pub id: PartitionId,
    /// Offset of the next message.
    pub next: Offset,
    /// Offset of the oldest message that is kept for consumers; `next` when none is.
    pub log_start: Offset,
    /// Stamp of its last append: the stamp of its `Tail` row.
    pub last: Stamp,
    /// Stamp of its creation.
    pub created: Stamp,
}

/// Where a partition belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionByIdRow {
    /// Queue incarnation.
    pub queue: QueueId,
    /// Name.
    pub name: Box<str>,
}

impl Row for PartitionRow {
    const TABLE: Table = Table::Partition;
}

impl Row for PartitionByIdRow {
    const TABLE: Table = Table::PartitionById;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_partition_rows_are_fixed() {
        let row = PartitionRow {
            id: PartitionId(300),
            next: Offset(9),
            log_start: Offset(2),
            last: Stamp(200),
            created: Stamp(1),
        };
        assert_golden(&row, "01ac020902c80101");
        assert_golden(&PartitionByIdRow { queue: QueueId(7), name: "p".into() }, "01070170");
    }
}
