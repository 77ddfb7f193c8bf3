//! One process per data directory.
//!
//! Owns: the file `lock` in the directory, locked with flock(2) and holding the process id in
//! decimal and a newline. Leaves to others: what else lies in the directory.
//!
//! The system lets the lock go when the process ends, however it ends; the file stays.

use crate::error::LockError;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

const FILE: &str = "lock";

/// A data directory that is ours until this is dropped.
#[derive(Debug)]
pub struct DirLock {
    dir: PathBuf,
    _file: File,
}

impl DirLock {
    /// Takes the directory, creating it when it is not there.
    ///
    /// Never waits: a directory that another process holds is an error that names both.
    pub fn acquire(dir: &Path) -> Result<DirLock, LockError> {
        let unusable = |source| LockError::Unusable { dir: dir.to_owned(), source };
        std::fs::create_dir_all(dir).map_err(unusable)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(dir.join(FILE))
            .map_err(unusable)?;
        // SAFETY: the descriptor is open for the whole call.
        if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock => {
                    Err(LockError::InUse { dir: dir.to_owned(), pid: holder(&mut file) })
                }
                _ => Err(unusable(error)),
            };
        }
        write_pid(&mut file).map_err(unusable)?;
        Ok(DirLock { dir: dir.to_owned(), _file: file })
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A full disk must not keep a node from starting: the pid is only told, the lock is what counts.
fn write_pid(file: &mut File) -> io::Result<()> {
    file.rewind()?;
    match file
        .set_len(0)
        .and_then(|()| file.write_all(format!("{}\n", std::process::id()).as_bytes()))
    {
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Ok(()),
        other => other,
    }
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.take(32).read_to_string(&mut text);
    match text.trim() {
        pid if read.is_ok() && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
            pid.to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_taker_is_told_the_directory_and_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let held = DirLock::acquire(dir.path()).unwrap();
        let refused = DirLock::acquire(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&dir.path().display().to_string()), "{refused}");
        assert!(refused.contains(&format!("process {}", std::process::id())), "{refused}");
        drop(held);
        assert_eq!(DirLock::acquire(dir.path()).unwrap().dir(), dir.path());
    }

    #[test]
    fn the_lock_file_holds_the_process_id_and_a_newline() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("lock"), "12345678901234567890\n").unwrap();
        let _held = DirLock::acquire(dir.path()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("lock")).unwrap();
        assert_eq!(text, format!("{}\n", std::process::id()));
    }

    #[test]
    fn a_path_that_is_no_directory_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        let refused = DirLock::acquire(&file).unwrap_err();
        assert!(matches!(refused, LockError::Unusable { .. }));
        assert!(refused.to_string().contains(&file.display().to_string()));
    }
}
