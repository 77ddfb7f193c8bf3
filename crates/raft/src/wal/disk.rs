//! The disk operations that can fail while the log runs.
//!
//! Owns: the [`Disk`] trait, through which the writer touches files, and its one real implementation.
//! Leaves to others: what to do about a failure (`writer`).

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Operations on open files; a seam at which tests inject faults.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Writes all of `bytes` at `position`.
    fn write(&self, file: &File, bytes: &[u8], position: u64) -> io::Result<()>;
    /// Makes a file's bytes last.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Reserves blocks so that later writes below `bytes` do not run out of space.
    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()>;
    /// Makes a directory's entries last.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
}

/// The operating system's.
pub(crate) struct RealDisk;

impl Disk for RealDisk {
    fn write(&self, file: &File, bytes: &[u8], position: u64) -> io::Result<()> {
        file.write_all_at(bytes, position)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn reserve(&self, file: &File, bytes: u64) -> io::Result<()> {
        let length = libc::off_t::try_from(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "file too large"))?;
        // SAFETY: the descriptor is open for as long as `file` is borrowed; no memory is passed.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }
}
