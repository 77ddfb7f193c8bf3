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

use crate::host::{Journal, Synced};
use crate::{StartError, WalOptions};
use futures::future::BoxFuture;

/// Identity of an entry. Ordered as the log is: by term, then index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Term in which it was proposed.
    pub term: u64,
    /// The leader that proposed it.
    pub node: u32,
    /// Its place in the log.
    pub index: u64,
}

/// What an entry carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Marks the start of a term.
    Blank,
    /// Proposals that entered the log together.
    Proposals(Arc<[Bytes]>),
    /// An encoded membership.
    Membership(Bytes),
}

/// One entry of the log; cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalEntry {
    /// Its identity.
    pub id: EntryId,
    /// What it carries.
    pub body: Body,
}

impl WalEntry {
    /// Bytes of its record in a file.
    pub fn bytes(&self) -> u64 {
        format::record_bytes(self)
    }
}

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

    fn send(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        queue.jobs.push(job);
        drop(queue);
        self.shared.wake.notify_one();
    }
}

impl Journal for Wal {
    fn state(&self) -> (Option<EntryId>, Option<EntryId>) {
        let log = self.shared.log.lock();
        (log.purged(), log.last())
    }

    fn id_of(&self, index: u64) -> Option<EntryId> {
        self.shared.log.lock().id_of(index)
    }

    /// `synced` is called from the writer's thread.
    fn append(&self, entries: Vec<WalEntry>, synced: Synced) -> io::Result<()> {
        self.shared.log.lock().push(&entries)?;
        self.send(Job::Append { entries, synced });
        Ok(())
    }

    fn synced(&self, index: u64) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let mut failed = self.shared.failed.subscribe();
            while self.shared.log.lock().synced() <= index {
                if *failed.borrow_and_update() || failed.changed().await.is_err() {
                    return Err(closed());
                }
            }
            Ok(())
        })
    }

    /// Files are changed before this is done.
    fn truncate(&self, from: u64) -> BoxFuture<'_, io::Result<()>> {
        let (done, told) = oneshot::channel();
        self.send(Job::Truncate { from, done });
        Box::pin(async { told.await.unwrap_or_else(|_| Err(closed())) })
    }

    /// Files go in the background, the newest one stays.
    fn purge(&self, upto: EntryId) -> BoxFuture<'_, io::Result<()>> {
        if self.shared.log.lock().forget(upto) {
            self.send(Job::Purge { upto: upto.index });
            return Box::pin(std::future::ready(Ok(())));
        }
        let (done, told) = oneshot::channel();
        self.send(Job::StartAnew { after: upto, done });
        Box::pin(async { told.await.unwrap_or_else(|_| Err(closed())) })
    }

    fn read(&self, start: u64, end: u64, bytes_max: u64) -> io::Result<Vec<WalEntry>> {
        log::read(&self.shared.log, start, end, bytes_max)
    }

    fn full(&self) -> watch::Receiver<bool> {
        self.shared.full.subscribe()
    }

    fn written(&self) -> (u64, u64) {
        let Shared { bytes_written, syncs, .. } = &*self.shared;
        (bytes_written.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed))
    }

    /// Blocks until the writer's thread is gone. A writer that waits for space gives up: what it holds
    /// fails.
    fn close(&self) {
        self.shared.queue.lock().closing = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
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
