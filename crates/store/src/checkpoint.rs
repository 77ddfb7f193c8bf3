//! Checkpoints: making what is applied durable, in the background.
//!
//! Owns: the order of the steps, the background threads. Leaves to others: when one is asked
//! for (`control`), the bytes (`lsm`, `log_writer`).
//!
//! The steps, and what a crash after each leaves:
//!
//! 1. *freeze*: under the lock, the dirty rows and the list of written files are set apart with the
//!    position that they stand at. Nothing on disk has changed.
//! 2. *sync the logs*: the frozen rows may name the bytes from now on. The tables on disk still
//!    stand at the checkpoint before, which finds its own bytes and cuts these off.
//! 3. *write the rows*, the position among them, as one change that is synced when it is there.
//!    This is the moment: before it the old checkpoint counts, after it the new one.
//! 4. *remove* the files that the new checkpoint no longer knows. A crash leaves them for the next
//!    start, which removes what no row names.
//! 5. *tell*: the raft log may be purged up to the position.

use crate::control::{Control, Ending, Writer};
use crate::disk::Disk;
use crate::log_writer::LogChanges;
use crate::lsm::WriteError;
use crate::overlay::Overlay;
use crate::store::{Applied, Shared};
use crate::{StoreError, scrubber};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A place between two steps; tests stop here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The rows are set apart.
    Frozen,
    /// The logs are synced.
    LogsSynced,
    /// The rows are on the disk.
    RowsWritten,
    /// The files that no row names are removed.
    Removed,
    /// The position is told.
    Told,
    /// An import has its directory.
    ImportBegun,
    /// A table or a segment of it is whole.
    SectionReceived,
    /// All of it is synced.
    ImportSynced,
    /// A file beside names it.
    RootPrepared,
    /// The file is renamed.
    Switched,
    /// The name is synced.
    RootSynced,
    /// It is what readers see.
    Replaced,
}

struct Frozen {
    disk: Arc<Disk>,
    request: u64,
    rows: Arc<Overlay>,
    logs: LogChanges,
    applied: Applied,
}

/// The background threads.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    merges: Arc<Merges>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Checkpointer {
    pub(crate) fn start(shared: Arc<Shared>) -> io::Result<Checkpointer> {
        let merges = Arc::new(Merges::default());
        let checkpointer = Checkpointer {
            shared: shared.clone(),
            merges: merges.clone(),
            threads: Mutex::default(),
        };
        let worker = Worker { shared: shared.clone(), merges: merges.clone() };
        let mut threads = checkpointer.threads.lock();
        threads.push(spawn("store-checkpoint", move || worker.run())?);
        let scrubbed = shared.clone();
        threads.push(spawn("store-merge", move || merges.run(&shared))?);
        threads.push(spawn("store-scrub", move || scrubber::run(&scrubbed))?);
        drop(threads);
        Ok(checkpointer)
    }

    /// Wakes the merges: there may be something to do.
    pub(crate) fn ring(&self) {
        self.merges.ring();
    }

    /// A last checkpoint, then the end.
    pub(crate) fn close(&self) -> Result<(), StoreError> {
        self.end(Ending::AfterCheckpoint);
        self.shared.control.failed().map_or(Ok(()), Err)
    }

    fn end(&self, ending: Ending) {
        self.shared.control.end(ending);
        self.merges.ring();
        let mut threads = self.threads.lock();
        for thread in threads.drain(..) {
            // A panic there has been told by the panic hook, and the store has failed by it.
            let _ = thread.join();
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.end(Ending::Now);
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

/// A panic in a background thread ends the store, as no checkpoint would come any more.
struct FailOnPanic<'a>(&'a Control);

impl Drop for FailOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("a background thread of the store panicked".to_owned());
        }
    }
}

struct Worker {
    shared: Arc<Shared>,
    merges: Arc<Merges>,
}

impl Worker {
    fn run(&self) {
        let control = &self.shared.control;
        let _fail = FailOnPanic(control);
        while control.wait_for_request(self.shared.options.checkpoint_every) {
            let last = control.is_ending();
            // One that gives way to an image is no failure: the next one is of the image.
            if (self.checkpoint().is_err() && control.check().is_err()) || last {
                return;
            }
        }
    }

    /// One checkpoint. `Closed` when it was given up because all ends.
    fn checkpoint(&self) -> Result<(), StoreError> {
        let control = &self.shared.control;
        let begun = Instant::now();
        let _checkpointing = self.shared.checkpointing.lock();
        let Some((frozen, outdated)) = self.freeze()? else { return Ok(()) };
        let disk = &frozen.disk;
        drop(outdated);
        self.shared.step(Step::Frozen);
        self.retry(disk, || frozen.logs.sync(&disk.files))?;
        self.shared.step(Step::LogsSynced);
        self.wait_for_merges(disk)?;
        self.retry(disk, || disk.lsm.write(&frozen.rows, &frozen.applied))?;
        self.shared.step(Step::RowsWritten);
        for (table, key, _) in frozen.rows.iter() {
            disk.cache.forget(table, key);
        }
        self.shared.inner.write().tables.frozen_is_written();
        disk.pins.remove(frozen.logs, &disk.files);
        self.shared.step(Step::Removed);
        tracing::debug!(
            index = frozen.applied.index,
            row_bytes = frozen.rows.bytes(),
            took_ms = begun.elapsed().as_millis() as u64,
            "checkpoint"
        );
        control.done(frozen.request, Some(frozen.applied));
        self.merges.ring();
        self.shared.step(Step::Told);
        Ok(())
    }

    /// Sets apart what there is; `None` when nothing has changed. Also what the last one set apart.
    #[allow(clippy::type_complexity)]
    fn freeze(&self) -> Result<Option<(Frozen, Option<Arc<Overlay>>)>, StoreError> {
        let control = &self.shared.control;
        loop {
            let mut inner = self.shared.inner.write();
            if let Some(failed) = control.failed() {
                return Err(failed);
            }
            if inner.logs.is_gathering() {
                drop(inner);
                // Apply says that the disk is full. All may end meanwhile.
                control.wait_blocked(Writer::Checkpoint, &WriteError::NoHandle)?;
                continue;
            }
            let request = control.begun();
            let Some(applied) = inner.applied.clone() else {
                control.done(request, None);
                return Ok(None);
            };
            if control.durable().as_ref() == Some(&applied) {
                control.done(request, None);
                return Ok(None);
            }
            let disk = inner.disk.clone();
            let logs = inner.logs.freeze();
            let (rows, outdated) = inner.tables.freeze();
            return Ok(Some((Frozen { disk, request, rows, logs, applied }, outdated)));
        }
    }

    /// Does something until it works, as long as the system only refuses it for now.
    fn retry(
        &self,
        disk: &Disk,
        mut f: impl FnMut() -> Result<(), WriteError>,
    ) -> Result<(), StoreError> {
        let control = &self.shared.control;
        let mut was_blocked = false;
        loop {
            match f() {
                Ok(()) => break,
                Err(WriteError::Failed(why)) => return Err(control.fail(why)),
                Err(blocked) => {
                    disk.files.let_go_for(&blocked);
                    control.wait_blocked(Writer::Checkpoint, &blocked)?;
                }
            }
            was_blocked = true;
        }
        if was_blocked {
            control.unblocked(Writer::Checkpoint);
        }
        Ok(())
    }

    /// Waits when reads would grow slow: many checkpoints' files are not merged yet.
    fn wait_for_merges(&self, disk: &Disk) -> Result<(), StoreError> {
        let control = &self.shared.control;
        while disk.lsm.is_behind() && !control.is_ending() {
            control.go_on(Writer::Checkpoint)?;
            self.merges.wait_for_one();
        }
        Ok(())
    }
}

/// Merging the files of the tables, one merge after the other.
#[derive(Default)]
struct Merges {
    /// Rung since the last merge.
    rung: Mutex<bool>,
    bell: Condvar,
    merged: Condvar,
}

impl Merges {
    fn ring(&self) {
        *self.rung.lock() = true;
        self.bell.notify_all();
    }

    fn wait_for_one(&self) {
        let mut rung = self.rung.lock();
        *rung = true;
        self.bell.notify_all();
        self.merged.wait_for(&mut rung, Duration::from_secs(1));
    }

    fn run(&self, shared: &Shared) {
        let _fail = FailOnPanic(&shared.control);
        while shared.control.check().is_ok() {
            let disk = shared.disk();
            match disk.lsm.merge() {
                Ok(true) => {
                    shared.control.unblocked(Writer::Merge);
                    self.merged.notify_all();
                }
                Ok(false) => {
                    drop(disk);
                    self.sleep();
                }
                Err(WriteError::Failed(why)) => {
                    shared.control.fail(format!("merge files of the tables: {why}"));
                }
                // What is not merged only makes reads slower: no need to stop pushes for it.
                Err(blocked) => {
                    disk.files.let_go_for(&blocked);
                    drop(disk);
                    let _ = shared.control.wait_blocked(Writer::Merge, &WriteError::NoHandle);
                }
            }
        }
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock();
        while !*rung {
            self.bell.wait(&mut rung);
        }
        *rung = false;
    }
}
