//! Rows of transaction ids that producers gave.

use super::Row;
use crate::table::Table;
use crate::{Offset, Stamp};
use serde::{Deserialize, Serialize};

/// The messages of a partition whose transaction ids have one hash, oldest first.
///
/// Mostly one. More when ids collide, or when an id was pushed again after its dedup window.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionIdRow(pub Vec<TransactionPlace>);

/// A message that has a transaction id of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionPlace {
    /// Its offset.
    pub offset: Offset,
    /// Stamp of its append: the dedup window counts from here.
    pub stamp: Stamp,
    /// This place is forgotten then.
    pub expires: Stamp,
}

/// Hashes of the transaction ids of one push to one partition that are forgotten at one stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionIdExpiryRow(pub Vec<[u8; 8]>);

/// The hash of a transaction id that a row's key has.
pub fn hash(transaction_id: &str) -> u64 {
    xxhash_rust::xxh3::xxh3_64(transaction_id.as_bytes())
}

impl Row for TransactionIdRow {
    const TABLE: Table = Table::TransactionId;
}

impl Row for TransactionIdExpiryRow {
    const TABLE: Table = Table::TransactionIdExpiry;
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_transaction_id_rows_are_fixed() {
        let place = TransactionPlace { offset: Offset(9), stamp: Stamp(300), expires: Stamp(700) };
        assert_golden(&TransactionIdRow(vec![place, place]), "010209ac02bc0509ac02bc05");
        assert_golden(&TransactionIdExpiryRow(vec![[1; 8]]), "01010101010101010101");
        assert_eq!(hash("inv-7"), 9893293827769826462);
    }
}
