//! The in-memory twin of tables and queue logs, for tests and simulation.

use crate::logs::{Place, QueueLogs, QueueLogsMut};
use crate::tables::{Row, StorageError, Tables, TablesMut};
use bytes::Bytes;
use queen_core::QueueId;
use queen_core::table::Table;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Tables and queue logs in memory. Two of them are equal when every row and every byte is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStore {
    rows: BTreeMap<(Table, Bytes), Bytes>,
    segments: BTreeMap<(QueueId, u32), Vec<u8>>,
}

impl MemoryStore {
    /// Every row, in table and key order.
    pub fn rows(&self) -> impl Iterator<Item = (Table, &Bytes, &Bytes)> {
        self.rows.iter().map(|((table, key), value)| (*table, key, value))
    }

    /// Every segment, in order of queue and number, with its bytes.
    pub fn segments(&self) -> impl Iterator<Item = (QueueId, u32, &[u8])> {
        self.segments.iter().map(|((queue, segment), bytes)| (*queue, *segment, &bytes[..]))
    }

    /// Changes a byte of a queue's log, as a failing disk does.
    #[cfg(test)]
    pub(crate) fn flip(&mut self, place: Place) {
        let segment = self.segments.get_mut(&(place.queue, place.segment)).unwrap();
        segment[place.position as usize] ^= 1;
    }

    fn range(&self, table: Table, from: &[u8], to: &[u8]) -> impl DoubleEndedIterator<Item = Row> {
        let key = |bytes: &[u8]| (table, Bytes::copy_from_slice(bytes));
        let range = if from < to {
            (Bound::Included(key(from)), Bound::Excluded(key(to)))
        } else {
            (Bound::Included(key(from)), Bound::Excluded(key(from)))
        };
        self.rows.range(range).map(|((_, key), value)| (key.clone(), value.clone()))
    }
}

impl Tables for MemoryStore {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        Ok(self.rows.get(&(table, Bytes::copy_from_slice(key))).cloned())
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        Ok(self.range(table, from, to).take(limit).collect())
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        Ok(self.range(table, from, to).rev().take(limit).collect())
    }
}

impl TablesMut for MemoryStore {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.rows.insert((table, Bytes::copy_from_slice(key)), Bytes::copy_from_slice(value));
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let old =
            self.rows.insert((table, Bytes::copy_from_slice(key)), Bytes::copy_from_slice(value));
        assert!(old.is_none(), "insert over a row of {}: {key:?}", table.name());
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.rows.remove(&(table, Bytes::copy_from_slice(key)));
    }
}

impl QueueLogs for MemoryStore {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        let from = place.position as usize;
        self.segments
            .get(&(place.queue, place.segment))
            .and_then(|segment| segment.get(from..from + len))
            .map(Bytes::copy_from_slice)
            .ok_or_else(|| StorageError(format!("no {len} bytes at {place:?}")))
    }

    fn run(&self, place: Place, len: usize) -> Result<Option<Bytes>, StorageError> {
        let bytes = self.read(place, len)?;
        Ok(queen_core::run::decode(&bytes).is_ok().then_some(bytes))
    }
}

impl QueueLogsMut for MemoryStore {
    fn write(&mut self, place: Place, parts: &[&[u8]]) -> Result<(), StorageError> {
        let segment = self.segments.entry((place.queue, place.segment)).or_default();
        let mut at = place.position as usize;
        for part in parts {
            if segment.len() < at + part.len() {
                segment.resize(at + part.len(), 0);
            }
            segment[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }

    fn remove_segment(&mut self, queue: QueueId, segment: u32) {
        self.segments.remove(&(queue, segment));
    }

    fn remove_queue(&mut self, queue: QueueId) {
        self.segments.retain(|(id, _), _| *id != queue);
    }
}
