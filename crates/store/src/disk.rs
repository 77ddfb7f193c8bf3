//! One generation of the store's files: the tables, the queue logs and what memory knows of them.
//!
//! Owns: what belongs together and is replaced together when an image is installed; removing the
//! files of a generation that was replaced. Leaves to others: which generation counts (`root`),
//! replacing it (`install`).
//!
//! Whoever reads outside the lock holds the generation, so its files stay until the last has let
//! it go.

use crate::log_files::LogFiles;
use crate::lsm::Lsm;
use crate::pins::Pins;
use crate::row_cache::RowCache;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The files, and what is held of them in memory.
pub(crate) struct Disk {
    pub(crate) lsm: Arc<Lsm>,
    pub(crate) files: Arc<LogFiles>,
    pub(crate) cache: Arc<RowCache>,
    /// Who needs files that no row names any more.
    pub(crate) pins: Pins,
    dirs: Vec<PathBuf>,
    is_replaced: AtomicBool,
}

impl Disk {
    /// `dirs`: all that the generation has on the disk.
    pub(crate) fn new(
        lsm: Arc<Lsm>,
        files: Arc<LogFiles>,
        row_cache_bytes: usize,
        dirs: Vec<PathBuf>,
    ) -> Disk {
        Disk {
            lsm,
            files,
            cache: Arc::new(RowCache::new(row_cache_bytes)),
            pins: Pins::default(),
            dirs,
            is_replaced: AtomicBool::new(false),
        }
    }

    /// Another generation counts: the files go when nobody holds this one any more.
    pub(crate) fn replaced(&self) {
        self.is_replaced.store(true, Ordering::Release);
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if !self.is_replaced.load(Ordering::Acquire) {
            return;
        }
        self.files.let_all_go();
        let dirs = std::mem::take(&mut self.dirs);
        // Not here: whoever drops it may be in a hurry, and there may be many files. What a crash
        // leaves of them is removed at the next start.
        let spawned = std::thread::Builder::new()
            .name("store-remove".to_owned())
            .spawn(move || dirs.iter().for_each(|dir| remove_dir(dir)));
        if let Err(error) = spawned {
            tracing::warn!(%error, "replaced files stay until the next start");
        }
    }
}

/// Removes a directory that is of no use any more; what stays is removed at the next start.
pub(crate) fn remove_dir(dir: &Path) {
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            tracing::warn!(path = %dir.display(), %error, "replaced files not removed");
        }
        _ => {}
    }
}
