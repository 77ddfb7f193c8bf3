//! Rows of queues.

use super::Row;
use crate::options::QueueOptions;
use crate::table::Table;
use crate::{QueueId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// The queue that has a name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueNameRow(pub QueueId);

/// One incarnation of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueRow {
    /// Whose.
    pub tenant: TenantId,
    /// Name.
    pub name: String,
    /// All options, labels included.
    pub options: QueueOptions,
    /// Stamp of its creation.
    pub created: Stamp,
    /// Stamp of its deletion, for a queue whose log is kept for a sink's pin: no name leads to it.
    pub deleted: Option<Stamp>,
    /// Number of the newest segment there has been; 0 before the first.
    pub last_segment: u32,
}

impl Row for QueueNameRow {
    const TABLE: Table = Table::QueueName;
}

impl Row for QueueRow {
    const TABLE: Table = Table::Queue;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_queue_rows_are_fixed() {
        assert_golden(&QueueNameRow(QueueId(7)), "0107");
        let row = QueueRow {
            tenant: TenantId::DEFAULT,
            name: "ns.q".into(),
            options: QueueOptions::implicit("ns.q"),
            created: Stamp(5),
            deleted: Some(Stamp(6)),
            last_segment: 3,
        };
        assert_golden(
            &row,
            "0100000000000000000000000000000001046e732e71026e7301717806d00f0000a03801010000000000000000a0380080ea4905010603",
        );
    }
}
