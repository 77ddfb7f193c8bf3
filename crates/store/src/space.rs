//! How full the disk is.
//!
//! Owns: the question to the system. Leaves to others: what to do about the answer.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The space of the file system that holds a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes in all, those kept for root not counted.
    pub total: u64,
    /// Bytes that this process may still write.
    pub available: u64,
}

impl Space {
    /// Share in use, 0 to 100, rounded down; 100 on a file system without blocks.
    pub fn used_percent(&self) -> u8 {
        match self.total {
            0 => 100,
            total => ((total - self.available.min(total)) as u128 * 100 / total as u128) as u8,
        }
    }
}

/// Asks how full the file system of `dir` is. One system call; `dir` must exist.
#[allow(clippy::unnecessary_cast)] // the C types differ between systems
pub fn space(dir: &Path) -> io::Result<Space> {
    let path = CString::new(dir.as_os_str().as_bytes())?;
    // SAFETY: all-zero is a valid statvfs, and the call fills it.
    let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: `path` ends with a zero byte and `stat` lives through the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut stat) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = stat.f_frsize as u64;
    let used = (stat.f_blocks as u64).saturating_sub(stat.f_bfree as u64);
    let available = stat.f_bavail as u64 * block;
    Ok(Space { total: used * block + available, available })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_percent_is_bounded_and_rounds_down() {
        assert_eq!(Space { total: 0, available: 0 }.used_percent(), 100);
        assert_eq!(Space { total: 1000, available: 1000 }.used_percent(), 0);
        assert_eq!(Space { total: 1000, available: 101 }.used_percent(), 89);
        assert_eq!(Space { total: 1000, available: 0 }.used_percent(), 100);
        assert_eq!(Space { total: u64::MAX, available: 1 }.used_percent(), 99);
    }

    #[test]
    fn the_space_of_a_directory_is_known_and_that_of_a_missing_one_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let here = space(dir.path()).unwrap();
        assert!(here.total > 0 && here.available <= here.total);
        assert_eq!(space(&dir.path().join("no")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
