//! Letting a received image take the place of the store's files.
//!
//! Owns: the moment. Leaves to others: the image (`import`), what names it (`root`), removing the
//! files of before (`disk`).
//!
//! The steps, and what a crash after each leaves:
//!
//! 1. *prepare*: a file that names the image is written beside and synced. The old files count.
//! 2. A checkpoint that runs comes to its end, or gives up when it waits for space.
//! 3. *switch*, under the lock: the file is renamed. By kill -9 the image counts from here on, by
//!    loss of power one of the two does; both are whole.
//! 4. *sync* of the name. From here on the image counts.
//! 5. *replace*, still under the lock: tables, logs, caches and position in memory.
//! 6. *tell*: the raft log may be purged up to the position.

use crate::checkpoint::Step;
use crate::disk::Disk;
use crate::error::ImageError;
use crate::root;
use crate::store::{Applied, Inner, Shared};
use std::sync::Arc;

/// Ends the time in which checkpoints give way.
struct Replacing<'a>(&'a Shared);

impl<'a> Replacing<'a> {
    fn begin(shared: &'a Shared) -> Replacing<'a> {
        shared.control.set_replacing(true);
        Replacing(shared)
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.control.set_replacing(false);
    }
}

/// Lets the image of that number count, on disk and in memory.
pub(crate) fn install(
    shared: &Shared,
    number: u64,
    disk: Disk,
    applied: &Applied,
) -> Result<(), ImageError> {
    let _installing = shared.installing.lock();
    refuse_older(&shared.inner.read(), applied)?;
    let dir = &shared.dir;
    let io = |what| move |source| ImageError::Io { what, path: dir.clone(), source };
    root::prepare(dir, number).map_err(io("write the file `root.new` in"))?;
    shared.step(Step::RootPrepared);

    let replacing = Replacing::begin(shared);
    let checkpointing = shared.checkpointing.lock();
    let mut inner = shared.inner.write();
    let switched = shared
        .control
        .check()
        .map_err(ImageError::Store)
        .and_then(|()| refuse_older(&inner, applied))
        .and_then(|()| root::switch(dir).map_err(io("rename the file `root.new` in")));
    if let Err(error) = switched {
        if inner.tables.is_frozen() {
            // The checkpoint that gave way has left rows that none will write now.
            shared.control.fail(format!("install an image: {error}"));
        }
        return Err(error);
    }
    shared.step(Step::Switched);
    if let Err(error) = root::sync(dir) {
        let why = format!("sync {}: {error}", dir.display());
        return Err(ImageError::Store(shared.control.fail(why)));
    }
    shared.step(Step::RootSynced);
    let new = Inner::new(Arc::new(disk), Some(applied.clone()));
    let old = std::mem::replace(&mut *inner, new);
    drop(inner);
    old.disk.replaced();
    drop(old);
    shared.control.replaced(applied.clone());
    drop(replacing);
    drop(checkpointing);
    tracing::info!(index = applied.index, "an image was installed");
    shared.step(Step::Replaced);
    Ok(())
}

fn refuse_older(inner: &Inner, image: &Applied) -> Result<(), ImageError> {
    match &inner.applied {
        Some(applied) if applied.index > image.index => {
            Err(ImageError::Older { image: image.index, store: applied.index })
        }
        _ => Ok(()),
    }
}
