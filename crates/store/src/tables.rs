//! The tables: dirty rows over those being written down, over clean ones, over the disk.
//!
//! Owns: where a row is looked for and how ranges are merged. Leaves to others: each layer.
//!
//! A checkpoint freezes the dirty rows. While it writes them they lie between the new dirty rows
//! and the disk; afterwards they say the same as the disk and stay as its warmest cache until the
//! next freeze.

use crate::disk::Disk;
use crate::gaps::Gaps;
use crate::log_files::{LogFiles, no_handle_left};
use crate::lsm::{Lsm, ReadError, row_key};
use crate::overlay::{Dirty, Overlay};
use crate::row_cache::RowCache;
use crate::snapshot::Rows;
use bytes::Bytes;
use lsm_tree::Slice;
use queen_core::table::Table;
use queen_state::StorageError;
use queen_state::tables::Row;
use std::cmp::Ordering;
use std::iter::Peekable;
use std::sync::Arc;

/// Times that a read is tried when no file may be opened.
const TRIES: usize = 3;

type DiskRow = Result<(Slice, Slice), ReadError>;

/// All layers of the tables.
pub(crate) struct LayeredTables {
    dirty: Overlay,
    frozen: Option<Arc<Overlay>>,
    /// The frozen rows are on the disk.
    frozen_is_clean: bool,
    cache: Arc<RowCache>,
    gaps: Gaps,
    lsm: Arc<Lsm>,
    files: Arc<LogFiles>,
}

impl LayeredTables {
    pub(crate) fn new(disk: &Disk) -> LayeredTables {
        LayeredTables {
            dirty: Overlay::default(),
            frozen: None,
            frozen_is_clean: true,
            cache: disk.cache.clone(),
            gaps: Gaps::new(),
            lsm: disk.lsm.clone(),
            files: disk.files.clone(),
        }
    }

    /// Memory of the rows that no checkpoint holds yet. Bytes.
    pub(crate) fn dirty_bytes(&self) -> usize {
        self.dirty.bytes()
    }

    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8], fresh: bool) {
        self.dirty.put(table, key, value, fresh);
    }

    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) {
        self.dirty.delete(table, key);
    }

    /// Takes the dirty rows to be written down; also the ones that were, for the caller to drop.
    ///
    /// The rows frozen before must be clean.
    pub(crate) fn freeze(&mut self) -> (Arc<Overlay>, Option<Arc<Overlay>>) {
        assert!(self.frozen_is_clean, "two checkpoints at once");
        let frozen = Arc::new(std::mem::take(&mut self.dirty));
        self.frozen_is_clean = false;
        (frozen.clone(), self.frozen.replace(frozen))
    }

    /// Whether a checkpoint has set rows apart and not written them.
    pub(crate) fn is_frozen(&self) -> bool {
        !self.frozen_is_clean
    }

    /// The frozen rows are on the disk now, and the cache has forgotten what it knew of them.
    pub(crate) fn frozen_is_written(&mut self) {
        self.frozen_is_clean = true;
        // Nobody scans now, so nobody learns from the disk as it was before.
        self.gaps.clear();
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        let known = self
            .dirty
            .get(table, key)
            .or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.get(table, key)));
        if let Some(dirty) = known {
            return Ok(dirty.value().map(copy));
        }
        if let Some(value) = self.cache.get(table, key) {
            return Ok(Some(copy(&value)));
        }
        let value = self.patiently(|| self.lsm.get(table, key))?;
        if let Some(value) = &value {
            self.cache.put(table, key, value.clone());
        }
        Ok(value.as_ref().map(copy))
    }

    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.patiently(|| {
            let frozen = self.frozen_below().map(|frozen| frozen.range(table, from, to));
            Merge {
                dirty: self.dirty.range(table, from, to).peekable(),
                frozen: frozen.into_iter().flatten().peekable(),
                disk: self.disk_rows(table, from, to).peekable(),
                first: Ordering::Less,
            }
            .take(limit)
        })
    }

    pub(crate) fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        if from >= to || limit == 0 {
            return Ok(Vec::new());
        }
        self.patiently(|| {
            let frozen = self.frozen_below().map(|frozen| frozen.range(table, from, to).rev());
            Merge {
                dirty: self.dirty.range(table, from, to).rev().peekable(),
                frozen: frozen.into_iter().flatten().peekable(),
                disk: (!self.gaps.cover(table, from, to))
                    .then(|| self.lsm.range(table, from, to).rev())
                    .into_iter()
                    .flatten()
                    .peekable(),
                first: Ordering::Greater,
            }
            .take(limit)
        })
    }

    /// Reads; when no file may be opened, closes queue logs and reads again.
    fn patiently<T>(&self, read: impl Fn() -> Result<T, ReadError>) -> Result<T, StorageError> {
        let mut tries = 1;
        loop {
            match read() {
                Err(ReadError::Io(error)) if no_handle_left(&error) && tries < TRIES => {
                    tries += 1;
                    self.files.let_all_go();
                }
                done => return done.map_err(unreadable),
            }
        }
    }

    /// The rows of the disk, ascending. Learns where the first one lies.
    fn disk_rows(&self, table: Table, from: &[u8], to: &[u8]) -> impl Iterator<Item = DiskRow> {
        let rows: Option<Peekable<Rows>> = (!self.gaps.cover(table, from, to)).then(|| {
            // Beyond `to`, so that the next scan, which often reaches a little further, knows too.
            let mut rows = self.lsm.range_from(table, from).peekable();
            match rows.peek() {
                Some(Ok((first, _))) => self.gaps.learn(table, from, Some(row_key(first))),
                Some(Err(_)) => {}
                None => self.gaps.learn(table, from, None),
            }
            rows
        });
        let to = Slice::from(to);
        let before = move |row: &DiskRow| match row {
            Ok((key, _)) => row_key(key) < &*to,
            Err(_) => true,
        };
        rows.into_iter().flatten().take_while(before)
    }

    /// The frozen rows as far as the disk does not say the same.
    fn frozen_below(&self) -> Option<&Overlay> {
        self.frozen.as_deref().filter(|_| !self.frozen_is_clean)
    }
}

fn copy(value: &Slice) -> Bytes {
    Bytes::copy_from_slice(value)
}

fn unreadable(error: ReadError) -> StorageError {
    StorageError(format!("the tables cannot be read: {error}"))
}

/// Three sorted layers as one: of rows with the same key the uppermost counts.
struct Merge<D: Iterator, F: Iterator, L: Iterator> {
    dirty: Peekable<D>,
    frozen: Peekable<F>,
    disk: Peekable<L>,
    /// `Less` when keys rise, `Greater` when they fall.
    first: Ordering,
}

impl<'a, D, F, L> Merge<D, F, L>
where
    D: Iterator<Item = (&'a [u8], &'a Dirty)>,
    F: Iterator<Item = (&'a [u8], &'a Dirty)>,
    L: Iterator<Item = DiskRow>,
{
    fn take(mut self, limit: usize) -> Result<Vec<Row>, ReadError> {
        let mut rows = Vec::new();
        while rows.len() < limit {
            let upper = self.next_upper();
            let Some((key, dirty)) = upper else {
                match self.disk.next() {
                    Some(row) => rows.push(disk_row(row)?),
                    None => break,
                }
                continue;
            };
            // Rows of the disk before the upper one, and the one that it hides.
            while rows.len() < limit
                && let Some(row) = self.disk.next_if(|row| is_before(self.first, row, key))
            {
                rows.push(disk_row(row)?);
            }
            if rows.len() == limit {
                break;
            }
            self.disk.next_if(|row| matches!(row, Ok((found, _)) if row_key(found) == key));
            self.pop_upper(key);
            if let Some(value) = dirty.value() {
                rows.push((Bytes::copy_from_slice(key), copy(value)));
            }
        }
        Ok(rows)
    }

    /// The next row or trace of the two layers in memory; it stays there.
    fn next_upper(&mut self) -> Option<(&'a [u8], &'a Dirty)> {
        match (self.dirty.peek(), self.frozen.peek()) {
            (Some(&dirty), Some(&frozen)) => {
                Some(if frozen.0.cmp(dirty.0) == self.first { frozen } else { dirty })
            }
            (Some(&row), None) | (None, Some(&row)) => Some(row),
            (None, None) => None,
        }
    }

    fn pop_upper(&mut self, key: &[u8]) {
        self.dirty.next_if(|row| row.0 == key);
        self.frozen.next_if(|row| row.0 == key);
    }
}

/// Whether a row of the disk comes before `key`; an error does, so that it is met.
fn is_before(first: Ordering, row: &DiskRow, key: &[u8]) -> bool {
    match row {
        Ok((found, _)) => row_key(found).cmp(key) == first,
        Err(_) => true,
    }
}

fn disk_row(row: DiskRow) -> Result<Row, ReadError> {
    let (key, value) = row?;
    Ok((Bytes::copy_from_slice(row_key(&key)), copy(&value)))
}
