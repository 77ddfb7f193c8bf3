//! One file of the log, and the spare files kept for reuse.
//!
//! Owns: names, creation, reuse, what a file holds. Leaves to others: order among files (`log`), when to
//! move to the next (`writer`).

use super::format::{FileHeader, RECORDS_START};
use super::{Disk, EntryId};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One file, as far as its records are synced.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
    /// The same file past the page cache, where the file system can; see [`open_direct`].
    pub(crate) direct: Option<Arc<File>>,
    pub(crate) header: FileHeader,
    /// Position of each record in units of 8 bytes, from `header.first` on.
    pub(crate) positions: Vec<u32>,
    /// Where the next record goes.
    pub(crate) end: u64,
    /// Bytes of the file.
    pub(crate) capacity: u64,
    /// Bytes below this position are written blocks, so that a sync needs no change of metadata.
    pub(crate) zeroed: u64,
}

impl Segment {
    /// Index after the last record.
    pub(crate) fn next(&self) -> u64 {
        self.header.first + self.positions.len() as u64
    }

    /// Position of the record `index`, and of the record's end (the next record or the end of all).
    pub(crate) fn span(&self, index: u64) -> Option<(u64, u64)> {
        let at = usize::try_from(index.checked_sub(self.header.first)?).ok()?;
        let start = u64::from(*self.positions.get(at)?) * 8;
        Some((start, self.positions.get(at + 1).map_or(self.end, |next| u64::from(*next) * 8)))
    }
}

/// Name of the file whose first record is `first`.
pub(crate) fn path_of(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:020}.wal"))
}

/// The first index that a file's name states; `None` for other names.
pub(crate) fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".wal")?;
    if digits.len() != 20 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse().ok()
}

/// A purged file waiting to be used again.
#[derive(Debug)]
pub(crate) struct Spare {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// Name of the spare file that was `path`.
pub(crate) fn spare_path(path: &Path) -> PathBuf {
    path.with_extension("spare")
}

/// What a new file is to be.
pub(crate) struct NewSegment<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) first: u64,
    pub(crate) previous: Option<EntryId>,
    pub(crate) starts_anew: bool,
    pub(crate) capacity: u64,
}

impl NewSegment<'_> {
    /// Makes the file, from `spare` when there is one; name and header last when this returns.
    ///
    /// After an error nothing is left under the file's name, and the spare may be gone.
    pub(crate) fn create(&self, disk: &dyn Disk, spare: Option<Spare>) -> io::Result<Segment> {
        let path = path_of(self.dir, self.first);
        let made = self.try_create(disk, spare, &path);
        if made.is_err() {
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn try_create(
        &self,
        disk: &dyn Disk,
        spare: Option<Spare>,
        path: &Path,
    ) -> io::Result<Segment> {
        let (file, capacity, zeroed) = match spare {
            Some(spare) => {
                std::fs::rename(&spare.path, path)?;
                let file = OpenOptions::new().read(true).write(true).open(path)?;
                (file, spare.bytes, spare.bytes)
            }
            None => {
                let mut options = OpenOptions::new();
                let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
                disk.reserve(&file, self.capacity)?;
                disk.write(&file, &[0; RECORDS_START as usize], 0)?;
                (file, self.capacity, RECORDS_START)
            }
        };
        let header = FileHeader {
            file_id: random_id()?,
            starts_anew: self.starts_anew,
            first: self.first,
            previous: self.previous,
        };
        disk.write(&file, &header.encode(), 0)?;
        disk.sync(&file)?;
        disk.sync_dir(self.dir)?;
        Ok(Segment {
            path: path.to_owned(),
            file: Arc::new(file),
            direct: open_direct(path),
            header,
            positions: Vec::new(),
            end: RECORDS_START,
            capacity,
            zeroed,
        })
    }
}

/// Opens a file for writes of whole blocks that go past the page cache; `None` where the file system
/// has no such writes.
///
/// A small write through the page cache makes a whole folio dirty, and the sync then writes all of it:
/// up to a megabyte for a record of 400 bytes. Reads stay with the ordinary descriptor, which sees
/// direct writes.
pub(crate) fn open_direct(path: &Path) -> Option<Arc<File>> {
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path).ok().map(Arc::new)
}

/// A file id that no earlier life of the file had, but for one chance in four billion; never 0.
fn random_id() -> io::Result<u32> {
    let mut bytes = [0; 4];
    let mut source = File::open("/dev/urandom")?;
    loop {
        source.read_exact(&mut bytes)?;
        match u32::from_le_bytes(bytes) {
            0 => continue,
            id => return Ok(id),
        }
    }
}
