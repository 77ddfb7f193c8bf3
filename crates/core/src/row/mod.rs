//! Rows: what the tables hold, key by key and value by value.
//!
//! Owns: the bytes of keys ([`key`]) and of values (one file per noun). Leaves to others: what a row
//! means to the rules (`queen-state`), where it is kept (`queen-store`).
//!
//! A value begins with a version byte. Those of [`Row`] go on with the postcard bytes of the row: the
//! order of fields is the format.
//! Tables whose rows have no value (`Tail`, `Ready`, `Lease`, `LeaseExpiry`, …) hold empty bytes.

pub mod cursor;
pub mod dead_letter;
pub mod ephemeral;
pub mod gone;
pub mod group;
pub mod key;
pub mod kv;
pub mod lost;
pub mod meta;
pub mod partition;
pub mod pin;
pub mod queue;
pub mod run;
pub mod segment;
pub mod stream;
pub mod switch;
pub mod timer;
pub mod trace;
pub mod transaction_id;

pub use cursor::{CursorRow, HeldLease};
pub use dead_letter::DeadLetterRow;
pub use ephemeral::{EphemeralRow, EphemeralTotalsRow};
pub use gone::{GoneRow, SinkMark};
pub use group::{GroupRow, TailMark};
pub use lost::{LostRow, LostWindowRow};
pub use meta::{LastStampRow, NextIdsRow};
pub use partition::{PartitionByIdRow, PartitionRow};
pub use queue::{QueueNameRow, QueueRow};
pub use run::RunRow;
pub use segment::SegmentRow;
pub use stream::{StreamPartitionRow, StreamQueryIdRow, StreamQueryRow, StreamsRow};
pub use switch::SwitchesRow;
pub use timer::{TimerRow, TimersRow};
pub use trace::{TraceNameRow, TraceRow, TraceTotalsRow};
pub use transaction_id::{TransactionIdExpiryRow, TransactionIdRow, TransactionPlace};

use crate::table::Table;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a row that [`Row::encode_small`] takes.
pub const SMALL_ROW_BYTES: usize = 192;

/// A value of one table.
pub trait Row: Serialize + DeserializeOwned {
    /// The table it lies in.
    const TABLE: Table;
    /// Its first byte.
    const VERSION: u8 = 1;
    /// The newest first byte that this release reads.
    const NEWEST: u8 = Self::VERSION;

    /// The first byte of this row: a newer one only for what an older one cannot say.
    fn version(&self) -> u8 {
        Self::VERSION
    }

    /// The row that was read from bytes of a version.
    fn of_version(self, _version: u8) -> Self {
        self
    }

    /// The row's bytes.
    fn encode(&self) -> Vec<u8> {
        // Writing into a Vec cannot fail: no row has a sequence of unknown length.
        postcard::to_extend(self, vec![self.version()]).unwrap_or_default()
    }

    /// The row's bytes in `buffer`, without an allocation.
    ///
    /// For rows of bounded size only; `None` when they do not fit.
    fn encode_small<'b>(&self, buffer: &'b mut [u8; SMALL_ROW_BYTES]) -> Option<&'b [u8]> {
        buffer[0] = self.version();
        let used = postcard::to_slice(self, &mut buffer[1..]).ok()?.len();
        Some(&buffer[..=used])
    }

    /// Reads a row; bytes after its end are an error.
    fn decode(bytes: &[u8]) -> Result<Self, BadRow> {
        let bad = |what| BadRow { table: Self::TABLE.name(), what };
        match bytes.split_first() {
            Some((&version, rest)) if (Self::VERSION..=Self::NEWEST).contains(&version) => {
                match postcard::take_from_bytes::<Self>(rest) {
                    Ok((row, [])) => Ok(row.of_version(version)),
                    Ok(_) => Err(bad("no bytes after the row")),
                    Err(_) => Err(bad("all fields of the row")),
                }
            }
            Some((&version, _)) if version > Self::NEWEST => {
                Err(bad("a version that this release reads"))
            }
            _ => Err(bad("a version byte")),
        }
    }
}

/// The bytes of a row are not what the table holds: which table, and why.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("bad row in table {table}: {what}")]
pub struct BadRow {
    /// Name of the table.
    pub table: &'static str,
    /// What was expected.
    pub what: &'static str,
}

/// Reads a little-endian number at a byte position; `None` when the bytes end before.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let part: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(part))
}

#[cfg(test)]
pub(crate) fn assert_golden<R: Row + PartialEq + std::fmt::Debug>(row: &R, hex: &str) {
    let bytes = row.encode();
    let found: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(found, hex, "the bytes of {} changed", R::TABLE.name());
    assert_eq!(&R::decode(&bytes).unwrap(), row);
    for cut in 0..bytes.len() {
        assert!(R::decode(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let mut newer = bytes.clone();
    newer[0] = R::NEWEST + 1;
    assert!(R::decode(&newer).is_err());
    let mut longer = bytes;
    longer.push(0);
    assert!(R::decode(&longer).is_err());
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read<R: Row>(bytes: &[u8]) {
        if let Ok(row) = R::decode(bytes) {
            assert!(R::decode(&row.encode()).is_ok());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_row_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = 1;
            }
            read::<LastStampRow>(&bytes);
            read::<NextIdsRow>(&bytes);
            read::<QueueNameRow>(&bytes);
            read::<QueueRow>(&bytes);
            read::<PartitionRow>(&bytes);
            read::<PartitionByIdRow>(&bytes);
            read::<RunRow>(&bytes);
            read::<SegmentRow>(&bytes);
            read::<GroupRow>(&bytes);
            read::<CursorRow>(&bytes);
            read::<TransactionIdRow>(&bytes);
            read::<TransactionIdExpiryRow>(&bytes);
            read::<DeadLetterRow>(&bytes);
            read::<dead_letter::DeadLetterByIdRow>(&bytes);
            read::<GoneRow>(&bytes);
            read::<LostRow>(&bytes);
            read::<LostWindowRow>(&bytes);
            read::<TimerRow>(&bytes);
            read::<TimersRow>(&bytes);
            read::<SwitchesRow>(&bytes);
            read::<TraceRow>(&bytes);
            read::<TraceNameRow>(&bytes);
            read::<TraceTotalsRow>(&bytes);
            read::<StreamQueryRow>(&bytes);
            read::<StreamQueryIdRow>(&bytes);
            read::<StreamPartitionRow>(&bytes);
            read::<StreamsRow>(&bytes);
            read::<EphemeralRow>(&bytes);
            read::<EphemeralTotalsRow>(&bytes);
        }
    }
}
