//! The ordered tables that the rules read and write.
//!
//! Owns: the trait. Leaves to others: the rows (`queen_core::row`), keeping them (`queen-store` on
//! disk, [`crate::memory`] in memory).

use bytes::Bytes;
use queen_core::table::Table;

/// The storage below failed: the node must stop applying, for it no longer knows the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageError(pub String);

impl std::fmt::Display for StorageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StorageError {}

impl From<queen_core::row::BadRow> for StorageError {
    fn from(bad: queen_core::row::BadRow) -> StorageError {
        StorageError(bad.to_string())
    }
}

/// A key and its value.
pub type Row = (Bytes, Bytes);

/// Ordered byte-keyed tables, read by anyone and written by `apply` alone.
pub trait Tables {
    /// The value at a key.
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError>;

    /// At most `limit` rows with `from <= key < to`, ascending.
    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError>;

    /// At most `limit` rows with `from <= key < to`, descending.
    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError>;
}

/// Tables that can be written.
pub trait TablesMut: Tables {
    /// Sets the value at a key, whatever was there.
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]);

    /// Sets the value at a key that has never been there before, or was deleted since.
    ///
    /// The same as [`TablesMut::put`] but cheaper to undo: a later delete need not leave a
    /// tombstone. The caller vouches that no row exists at the key.
    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.put(table, key, value);
    }

    /// Removes a key; no error when it is not there.
    fn delete(&mut self, table: Table, key: &[u8]);
}
