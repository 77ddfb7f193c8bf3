//! A disk that fails on demand and forgets what was not synced.
//!
//! Owns: injected errors, and a power cut that rolls back un-synced sectors. Leaves to others: the tests.

use super::disk::{Disk, RealDisk};
use parking_lot::Mutex;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const SECTOR: u64 = 512;

#[derive(Default)]
pub(crate) struct FaultDisk {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Syncs that still succeed; `None`: all.
    syncs_left: Option<u64>,
    /// Reserving fails with ENOSPC.
    full: bool,
    /// Sectors written since their file's last sync: file, position, former bytes.
    unsynced: Vec<(File, u64, Vec<u8>)>,
}

impl FaultDisk {
    /// Every sync after `count` more fails with EIO.
    pub(crate) fn fail_syncs_after(&self, count: u64) {
        self.state.lock().syncs_left = Some(count);
    }

    pub(crate) fn set_full(&self, full: bool) {
        self.state.lock().full = full;
    }

    /// Rolls back those un-synced sectors for which `lost` says so.
    pub(crate) fn cut_power(&self, mut lost: impl FnMut() -> bool) {
        let mut state = self.state.lock();
        while let Some((file, position, former)) = state.unsynced.pop() {
            if lost() {
                file.write_all_at(&former, position).unwrap();
            }
        }
    }
}

impl Disk for FaultDisk {
    fn write(&self, file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        // The log may write past the page cache, with a descriptor that reads nothing.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let plain = File::options().read(true).write(true).open(path)?;
        let end = (position + bytes.len() as u64).min(file.metadata()?.len());
        let mut at = position / SECTOR * SECTOR;
        while at < end {
            let mut former = vec![0; SECTOR.min(file.metadata()?.len() - at) as usize];
            plain.read_exact_at(&mut former, at)?;
            state.unsynced.push((plain.try_clone()?, at, former));
            at += SECTOR;
        }
        RealDisk.write(file, bytes, position)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.state.lock();
        if let Some(left) = &mut state.syncs_left {
            if *left == 0 {
                return Err(io::Error::from_raw_os_error(libc::EIO));
            }
            *left -= 1;
        }
        let inode = file.metadata()?.ino();
        state.unsynced.retain(|(other, ..)| other.metadata().unwrap().ino() != inode);
        Ok(())
    }

    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        if self.state.lock().full {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        RealDisk.reserve(file, bytes)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}
