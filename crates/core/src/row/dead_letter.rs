//! Rows of dead letters.

use super::Row;
use crate::table::Table;
use crate::{Offset, PartitionId, Stamp};
use serde::{Deserialize, Serialize};

/// A message that a group gave up, with its payload. Queue, failed stamp and number are its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRow {
    /// Its own id, UUID bytes.
    pub id: [u8; 16],
    /// Partition of the message.
    pub partition: PartitionId,
    /// Name of the partition.
    pub partition_name: String,
    /// Offset of the message.
    pub offset: Offset,
    /// Group that gave it up.
    pub group: String,
    /// Transaction id of the message.
    pub transaction_id: String,
    /// Id of the message, UUID bytes.
    pub message_id: [u8; 16],
    /// Why.
    pub error: String,
    /// Failed acks before this one.
    pub retries: u32,
    /// Stamp of the message's append.
    pub created: Stamp,
    /// Stamp of the filing.
    pub failed: Stamp,
    /// Trace id of the message, UUID bytes.
    pub trace_id: Option<[u8; 16]>,
    /// Producer of the message.
    pub producer: Option<String>,
    /// Whether `payload` is an encryption envelope.
    pub encrypted: bool,
    /// Its payload; empty when the log had lost it to retention.
    pub payload: Vec<u8>,
}

/// The `DeadLetter` key of a dead letter id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterByIdRow(pub [u8; 16]);

impl Row for DeadLetterRow {
    const TABLE: Table = Table::DeadLetter;
}

impl Row for DeadLetterByIdRow {
    const TABLE: Table = Table::DeadLetterById;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_dead_letter_rows_are_fixed() {
        let row = DeadLetterRow {
            id: [1; 16],
            partition: PartitionId(2),
            partition_name: "p".into(),
            offset: Offset(3),
            group: "g".into(),
            transaction_id: "t".into(),
            message_id: [4; 16],
            error: "e".into(),
            retries: 5,
            created: Stamp(6),
            failed: Stamp(7),
            trace_id: Some([8; 16]),
            producer: Some("s".into()),
            encrypted: false,
            payload: b"{}".to_vec(),
        };
        assert_golden(
            &row,
            "01010101010101010101010101010101010201700301670174040404040404040404040404040404040165050607010808080808080808080808080808080801017300027b7d",
        );
        assert_golden(&DeadLetterByIdRow([2; 16]), &format!("01{}", "02".repeat(16)));
    }
}
