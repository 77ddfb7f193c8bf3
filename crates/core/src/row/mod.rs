//! Keys and values of the table rows: one file per noun.
//!
//! Owns: their bytes. Keys are big-endian so that they sort; values are little-endian and begin with
//! a format byte. Leaves to others: what the rows mean (`queen-state`) and keeping them (`queen-store`).

pub mod kv;
pub mod pin;

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
