//! Rows of deleted queues: what each sink had not copied when the queue was deleted.

use super::Row;
use crate::Stamp;
use crate::table::Table;
use serde::{Deserialize, Serialize};

/// A deleted queue of which rows or log are left. Groups, and queues that no sink copies, have an
/// empty value instead.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoneRow {
    /// The sinks that copied the queue, as they stood at the deletion.
    pub sinks: Vec<SinkMark>,
}

/// How far a sink had come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SinkMark {
    /// Its name.
    pub sink: String,
    /// Records stamped at or above this are lost to it.
    pub from: Stamp,
}

impl Row for GoneRow {
    const TABLE: Table = Table::Gone;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_a_deleted_queue_are_fixed() {
        let mark = SinkMark { sink: "s".into(), from: Stamp(300) };
        assert_golden(&GoneRow { sinks: vec![mark] }, "01010173ac02");
    }
}
