//! The store: one lock over tables and queue logs.
//!
//! Owns: the guards through which the rules read and write, the end of a batch, the handle that
//! others hold. Leaves to others: the rules (`queen-state`), making it durable (`checkpoint`).
//!
//! The lock is held for writing from the first change of a batch to its end, so no reader and no
//! checkpoint ever sees half of one.

use crate::checkpoint::Checkpointer;
use crate::control::{Control, Writer};
use crate::damage::{Damage, Finding};
use crate::disk::Disk;
use crate::log_files::SegmentId;
use crate::log_writer::{LogSlice, LogWriter, id};
use crate::lsm::WriteError;
use crate::tables::LayeredTables;
use crate::{OpenError, StoreError, StoreOptions, recovery};
use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use queen_core::QueueId;
use queen_core::run;
use queen_core::table::Table;
use queen_state::tables::Row;
use queen_state::{Place, QueueLogs, QueueLogsMut, StorageError, Tables, TablesMut};
use std::path::{Path, PathBuf};
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

/// What the lock guards.
pub(crate) struct Inner {
    pub(crate) tables: LayeredTables,
    pub(crate) logs: LogWriter,
    pub(crate) applied: Option<Applied>,
    /// The files below tables and logs.
    pub(crate) disk: Arc<Disk>,
    /// Changed since a batch was last ended.
    in_batch: bool,
}

impl Inner {
    pub(crate) fn new(disk: Arc<Disk>, applied: Option<Applied>) -> Inner {
        Inner {
            tables: LayeredTables::new(&disk),
            logs: LogWriter::new(disk.files.clone()),
            applied,
            disk,
            in_batch: false,
        }
    }
}

/// What the handles and the background threads share.
pub(crate) struct Shared {
    pub(crate) inner: RwLock<Inner>,
    pub(crate) control: Control,
    pub(crate) options: StoreOptions,
    pub(crate) dir: PathBuf,
    /// Held while a checkpoint is made, or an image takes the place of all. Before `inner`.
    pub(crate) checkpointing: Mutex<()>,
    /// Held while an image is installed. Before `checkpointing`.
    pub(crate) installing: Mutex<()>,
}

impl Shared {
    /// The files of now.
    pub(crate) fn disk(&self) -> Arc<Disk> {
        self.inner.read().disk.clone()
    }

    /// Tests stop here.
    #[cfg(test)]
    pub(crate) fn step(&self, step: crate::checkpoint::Step) {
        if let Some(at_step) = &self.options.at_step {
            (at_step.0)(step);
        }
    }

    #[cfg(not(test))]
    pub(crate) fn step(&self, _: crate::checkpoint::Step) {}
}

/// Tables and queue logs in a directory. A clone is another handle to the same store.
///
/// When the last handle is dropped without [`Store::close`], the background threads end without a
/// last checkpoint, as if the process had been killed.
#[derive(Clone)]
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    checkpointer: Arc<Checkpointer>,
}

impl Store {
    /// Opens the store in `dir`, creating it when it is not there, and takes it back to its last
    /// durable checkpoint.
    ///
    /// The caller holds the [`crate::DirLock`] of `dir` or of a directory above. Reads no message
    /// data, so it takes the same short time however much is stored.
    pub fn open(dir: &Path, options: StoreOptions) -> Result<(Store, Recovered), OpenError> {
        let (disk, recovered) = recovery::recover(dir, &options)?;
        let shared = Arc::new(Shared {
            inner: RwLock::new(Inner::new(Arc::new(disk), recovered.applied.clone())),
            control: Control::new(recovered.applied.clone()),
            options,
            dir: dir.to_owned(),
            checkpointing: Mutex::default(),
            installing: Mutex::default(),
        });
        let checkpointer = Checkpointer::start(shared.clone()).map_err(|source| OpenError::Io {
            what: "start the checkpoint thread of",
            path: dir.to_owned(),
            source,
        })?;
        Ok((Store { shared, checkpointer: Arc::new(checkpointer) }, recovered))
    }

    /// A view that no batch changes while it is held. Keep it short: apply waits for it.
    pub fn read(&self) -> ReadGuard<'_> {
        ReadGuard { inner: self.shared.inner.read() }
    }

    /// The right to change. One thread only: the one that applies the log.
    ///
    /// A guard that changed something must end with [`WriteGuard::end_batch`]; otherwise nobody
    /// knows the state any more and the store has failed.
    pub fn write(&self) -> WriteGuard<'_> {
        WriteGuard { inner: self.shared.inner.write(), shared: &self.shared }
    }

    /// The position that would survive a loss of power now: the log may be purged up to it.
    pub fn durable(&self) -> Option<Applied> {
        self.shared.control.durable()
    }

    /// Calls `watcher` with each new durable position, from the checkpoint's thread, in order.
    ///
    /// It must be short and must not call the store's `checkpoint` or `close`.
    pub fn on_durable(&self, watcher: impl Fn(&Applied) + Send + Sync + 'static) {
        self.shared.control.watch(Box::new(watcher));
    }

    /// Asks for a checkpoint soon and returns at once.
    pub fn request_checkpoint(&self) {
        self.shared.control.request();
    }

    /// Makes all that is applied now durable and waits for it; gives the durable position.
    ///
    /// Waits as long as the disk is full.
    pub fn checkpoint(&self) -> Result<Option<Applied>, StoreError> {
        let request = self.shared.control.request();
        self.shared.control.wait_until_done(request)?;
        Ok(self.durable())
    }

    /// Whether a write waits because the disk is full. Pushes should be refused with 507 meanwhile.
    pub fn storage_full(&self) -> bool {
        self.shared.control.storage_full()
    }

    /// Why the store can no longer go on, once that is so. The process must end then.
    pub fn failed(&self) -> Option<StoreError> {
        self.shared.control.failed()
    }

    /// A last checkpoint, then the end of the background threads. Later batches are errors.
    ///
    /// When the disk is full, the checkpoint is left out: the next start replays more of the log.
    pub fn close(&self) -> Result<(), StoreError> {
        self.checkpointer.close()
    }

    /// Wakes the merges.
    pub(crate) fn ring(&self) {
        self.checkpointer.ring();
    }

    /// Where a segment of a queue's log lies.
    pub(crate) fn segment_path(&self, queue: QueueId, segment: u32) -> PathBuf {
        self.shared.disk().files.path(SegmentId { queue, segment })
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
        self.inner.logs.slice(place, len)
    }

    pub(crate) fn damage(&self) -> &Damage {
        &self.inner.disk.files.damage
    }
}

/// The right to change the store, until [`WriteGuard::end_batch`].
pub struct WriteGuard<'a> {
    inner: RwLockWriteGuard<'a, Inner>,
    shared: &'a Shared,
}

impl WriteGuard<'_> {
    /// Ends the batch: readers see it, and a checkpoint may hold it.
    ///
    /// `applied` is the position after the batch. While the disk is full it waits, without the
    /// lock, until space returns; it also waits when checkpoints cannot keep up. An error means
    /// that nothing more may be applied.
    pub fn end_batch(mut self, applied: Applied) -> Result<(), StorageError> {
        let control = &self.shared.control;
        self.inner.in_batch = false;
        control.check().map_err(stopped)?;
        self.inner.applied = Some(applied);
        let mut was_blocked = false;
        while let Err(error) = self.inner.logs.flush() {
            if let WriteError::Failed(why) = error {
                return Err(stopped(control.fail(why)));
            }
            was_blocked = true;
            self.inner.disk.files.let_go_for(&error);
            RwLockWriteGuard::unlocked(&mut self.inner, || {
                control.wait_blocked(Writer::Apply, &error)
            })
            .map_err(stopped)?;
        }
        if was_blocked {
            control.unblocked(Writer::Apply);
        }
        let dirty_bytes = self.inner.tables.dirty_bytes();
        let log_bytes = self.inner.logs.changed_bytes();
        let shared = self.shared;
        drop(self);
        shared.control.batch_ended(&shared.options, dirty_bytes, log_bytes).map_err(stopped)
    }

    fn changed(&mut self) -> &mut Inner {
        self.inner.in_batch = true;
        &mut self.inner
    }
}

impl Drop for WriteGuard<'_> {
    fn drop(&mut self) {
        if self.inner.in_batch {
            self.shared.control.fail("a batch was begun and not ended".to_owned());
        }
    }
}

fn stopped(error: StoreError) -> StorageError {
    StorageError(error.to_string())
}

impl Tables for ReadGuard<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.inner.tables.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.tables.scan(table, from, to, limit)
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.tables.scan_back(table, from, to, limit)
    }
}

impl QueueLogs for ReadGuard<'_> {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        self.slice(place, len)?.read()
    }
}

impl Tables for WriteGuard<'_> {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.inner.tables.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.tables.scan(table, from, to, limit)
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.inner.tables.scan_back(table, from, to, limit)
    }
}

impl TablesMut for WriteGuard<'_> {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.changed().tables.put(table, key, value, false);
    }

    fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.changed().tables.put(table, key, value, true);
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.changed().tables.delete(table, key);
    }
}

impl QueueLogs for WriteGuard<'_> {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        self.inner.logs.slice(place, len)?.read()
    }

    fn run(&self, place: Place, len: usize) -> Result<Option<Bytes>, StorageError> {
        let (damage, id) = (&self.inner.disk.files.damage, id(place));
        match self.read(place, len) {
            Ok(bytes) => match run::decode(&bytes) {
                Ok(_) => return Ok(Some(bytes)),
                Err(bad) => {
                    let file = self.inner.disk.files.path(id);
                    let (position, what) = (place.position, bad.to_string());
                    damage.note(id, Finding { file, position, what });
                }
            },
            // What may be read another time is no damage.
            Err(error) if !damage.knows(id, place.position) => return Err(error),
            Err(_) => {}
        }
        if self.shared.options.only_copy {
            return Ok(None);
        }
        Err(StorageError(format!(
            "the queue log {} is damaged at byte {}, and what other nodes read there this one cannot: \
             stop it, remove its data directory, and let it join the others again",
            self.inner.disk.files.path(id).display(),
            place.position
        )))
    }
}

impl QueueLogsMut for WriteGuard<'_> {
    fn write(&mut self, place: Place, parts: &[&[u8]]) -> Result<(), StorageError> {
        self.changed().logs.write(place, parts);
        Ok(())
    }

    fn remove_segment(&mut self, queue: QueueId, segment: u32) {
        self.changed().logs.remove_segment(SegmentId { queue, segment });
    }

    fn remove_queue(&mut self, queue: QueueId) {
        self.changed().logs.remove_queue(queue);
    }
}
