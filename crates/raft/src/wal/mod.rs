//! The write-ahead log: entries in preallocated files, synced in groups by one thread.
//!
//! Owns: the files under `<dir>/wal`, their records, the sync, recovery after a crash, recent entries in
//! memory. Leaves to others: what entries mean, when they are committed, elections.
//! Upholds: `synced-before-told` (a callback runs only after its entries are synced), `no-hole`
//! (indexes follow each other), `failed-sync-is-final` (nothing is written after a failed sync).
//!
//! Assumed of the disk: a synced sector stays as it is when another one is written, a sector of 512
//! bytes is written whole or not at all, `fsync` of a directory makes its renames last.

mod blocks;
mod disk;
#[cfg(test)]
pub(crate) mod fault_disk;
mod format;
mod log;
mod recover;
mod segment;
mod writer;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use tokio::sync::{oneshot, watch};

pub(crate) use disk::{Disk, RealDisk};
pub(crate) use format::{
    FILE_HEADER_BYTES, FileHeader, RECORD_HEADER_BYTES, RecordHeader, decode_body, encode_record,
    record_bytes, record_is_sound,
};
use log::Log;

use crate::{StartError, WalOptions};

/// Identity of an entry. Ordered as the log is: by term, then index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(crate) term: u64,
    /// The leader that proposed it.
    pub(crate) node: u32,
    pub(crate) index: u64,
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// Marks the start of a term.
    Blank,
    /// Proposals that entered the log together.
    Proposals(Arc<[Bytes]>),
    /// An encoded membership.
    Membership(Bytes),
}

/// One entry of the log; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WalEntry {
    pub(crate) id: EntryId,
    pub(crate) body: Body,
}

/// Called once the entries of one append are synced, or never will be.
pub(crate) type Synced = Box<dyn FnOnce(io::Result<()>) + Send>;

enum Job {
    Append { entries: Vec<WalEntry>, synced: Synced },
    Truncate { from: u64, done: oneshot::Sender<io::Result<()>> },
    Purge { upto: u64 },
    StartAnew { after: EntryId, done: oneshot::Sender<io::Result<()>> },
}

#[derive(Default)]
struct Queue {
    jobs: Vec<Job>,
    closing: bool,
}

struct Shared {
    log: Mutex<Log>,
    queue: Mutex<Queue>,
    wake: Condvar,
    full: watch::Sender<bool>,
    /// Says after each sync whether the writer has failed.
    failed: watch::Sender<bool>,
    bytes_written: AtomicU64,
    syncs: AtomicU64,
}

/// Handle to the log; clones share it.
#[derive(Clone)]
pub(crate) struct Wal {
    shared: Arc<Shared>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

impl Wal {
    /// Opens the log in `dir` (created when missing), cuts a torn tail, starts the writer.
    pub(crate) fn open(
        dir: &Path,
        options: &WalOptions,
        disk: Arc<dyn Disk>,
    ) -> Result<Self, StartError> {
        let mut recovered = recover::recover(dir, &*disk)?;
        recovered.drop_useless_spares(options);
        let (full, _) = watch::channel(false);
        let log = Log::new(recovered.segments, recovered.terms, options.cache_bytes);
        let shared = Arc::new(Shared {
            log: Mutex::new(log),
            queue: Mutex::default(),
            wake: Condvar::new(),
            full,
            failed: watch::channel(false).0,
            bytes_written: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        });
        let writer = writer::Writer::new(
            dir,
            options,
            disk,
            shared.clone(),
            recovered.spares,
            recovered.seal,
        );
        let thread = std::thread::Builder::new()
            .name("wal".into())
            .spawn(move || writer.run())
            .map_err(|source| StartError::Io {
                action: "start the writer thread of",
                path: dir.to_owned(),
                source,
            })?;
        Ok(Self { shared, thread: Arc::new(Mutex::new(Some(thread))) })
    }

    /// The last purged entry and the last entry (the last purged one when there is no other).
    pub(crate) fn state(&self) -> (Option<EntryId>, Option<EntryId>) {
        let log = self.shared.log.lock();
        (log.purged(), log.last())
    }

    /// Id of the entry at `index`, which may be the last purged one.
    pub(crate) fn id_of(&self, index: u64) -> Option<EntryId> {
        self.shared.log.lock().id_of(index)
    }

    /// Appends entries that follow the last one. They can be read when this returns; `synced` is called
    /// from the writer's thread.
    pub(crate) fn append(&self, entries: Vec<WalEntry>, synced: Synced) -> io::Result<()> {
        self.shared.log.lock().push(&entries)?;
        self.send(Job::Append { entries, synced });
        Ok(())
    }

    /// Waits until the entry at `index` and all before it are synced; an error when they never will be.
    pub(crate) async fn synced(&self, index: u64) -> io::Result<()> {
        let mut failed = self.shared.failed.subscribe();
        while self.shared.log.lock().synced() <= index {
            if *failed.borrow_and_update() || failed.changed().await.is_err() {
                return Err(closed());
            }
        }
        Ok(())
    }

    /// Removes every entry from `from` on. Files are changed before this returns.
    pub(crate) async fn truncate(&self, from: u64) -> io::Result<()> {
        let (done, told) = oneshot::channel();
        self.send(Job::Truncate { from, done });
        told.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Forgets entries up to `upto`. Files go in the background, the newest one stays.
    ///
    /// When `upto` is after the last entry the log starts anew behind it.
    pub(crate) async fn purge(&self, upto: EntryId) -> io::Result<()> {
        if self.shared.log.lock().forget(upto) {
            self.send(Job::Purge { upto: upto.index });
            return Ok(());
        }
        let (done, told) = oneshot::channel();
        self.send(Job::StartAnew { after: upto, done });
        told.await.unwrap_or_else(|_| Err(closed()))
    }

    /// Entries from `start` up to but without `end`, as many as there are, ending early after about
    /// `bytes_max` bytes (at least one entry when there is one).
    pub(crate) fn read(&self, start: u64, end: u64, bytes_max: u64) -> io::Result<Vec<WalEntry>> {
        log::read(&self.shared.log, start, end, bytes_max)
    }

    /// Whether the writer waits for space.
    pub(crate) fn full(&self) -> watch::Receiver<bool> {
        self.shared.full.subscribe()
    }

    /// Bytes written and syncs done since the start.
    pub(crate) fn written(&self) -> (u64, u64) {
        let Shared { bytes_written, syncs, .. } = &*self.shared;
        (bytes_written.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed))
    }

    /// Ends the writer after what is queued; blocks until its thread is gone. A writer that waits for
    /// space gives up: what it holds fails.
    pub(crate) fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    fn send(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push(job);
        drop(queue);
        self.shared.wake.notify_one();
    }
}

fn closed() -> io::Error {
    io::Error::other("the log's writer has ended")
}

#[cfg(test)]
mod fault_tests;
#[cfg(test)]
mod recover_tests;
#[cfg(test)]
mod wal_tests;
