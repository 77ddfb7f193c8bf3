//! What the files say after a start: a sound log, a torn tail that is cut, or damage that stops the start.
//!
//! Owns: scanning, the verdict. Leaves to others: bytes (`format`), writing (`writer`).
//!
//! A record is bad when its bytes do not make a record of this file with the expected index. What follows
//! decides what that means. At the end of a file with a successor that begins at the expected index, the
//! file simply ended there. In the last file it is the tail: never written, or torn in a group that nobody
//! was answered for; it is cut. But if a later record shows, by its place in its group, that the bad one
//! had been synced before, or if the successor begins later, entries that were answered for are lost.

use super::Disk;
use super::format::{
    self, ALIGN, FILE_HEADER_BYTES, FileHeader, HeaderVerdict, RECORD_HEADER_BYTES, RECORDS_START,
    RecordHeader,
};
use super::log::Terms;
use super::segment::{Segment, Spare, first_of, open_direct, spare_path};
use crate::{StartError, WalOptions};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes read at once.
const CHUNK: usize = 1 << 20;

pub(crate) struct Recovered {
    pub(crate) segments: VecDeque<Segment>,
    pub(crate) terms: Terms,
    pub(crate) spares: Vec<Spare>,
    /// The last file holds torn records behind its end: it takes no more.
    pub(crate) seal: bool,
}

impl Recovered {
    /// Removes spare files that are too many or not of the usual size.
    pub(crate) fn drop_useless_spares(&mut self, options: &WalOptions) {
        let mut kept = 0;
        self.spares.retain(|spare| {
            let useful = spare.bytes == options.segment_bytes && kept < options.spare_files;
            if useful {
                kept += 1;
            } else if let Err(error) = std::fs::remove_file(&spare.path) {
                tracing::warn!(file = %spare.path.display(), %error, "spare log file stays");
            }
            useful
        });
    }
}

pub(crate) fn recover(dir: &Path, disk: &dyn Disk) -> Result<Recovered, StartError> {
    let io_error = |action, path: &Path| {
        let path = path.to_owned();
        move |source| StartError::Io { action, path, source }
    };
    std::fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
    let _ = std::fs::remove_dir_all(dir.join("rewrite"));
    let (names, mut spares) = list(dir).map_err(io_error("read the directory", dir))?;
    let mut found = Vec::new();
    for (at, (first, path)) in names.iter().enumerate() {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(io_error("open", path))?;
        let bytes = file.metadata().map_err(io_error("read", path))?.len();
        match read_header(&file, bytes).map_err(io_error("read", path))? {
            HeaderVerdict::Sound(header) if header.first == *first => {
                found.push(Found { path: path.clone(), file, header, bytes });
            }
            // The move to this file did not get as far as its header: nothing was answered from it.
            HeaderVerdict::Sound(_) | HeaderVerdict::Blank if at + 1 == names.len() => {
                tracing::warn!(file = %path.display(), "log file was never begun, kept as a spare");
                let spare = spare_path(path);
                std::fs::rename(path, &spare).map_err(io_error("rename", path))?;
                spares.push(Spare { path: spare, bytes });
            }
            HeaderVerdict::Newer(version) => {
                let supported = u32::from(format::VERSION);
                return Err(StartError::NewerFormat { path: path.clone(), version, supported });
            }
            _ => return Err(damaged(path, 0, "its header is not what was written")),
        }
    }
    drop_void(&mut found).map_err(io_error("remove old files in", dir))?;
    let recovered = scan_all(found, spares)?;
    if let Some(last) = recovered.segments.back() {
        // Records that a killed process wrote may still be in memory only.
        disk.sync(&last.file).map_err(io_error("sync", &last.path))?;
        disk.sync_dir(dir).map_err(io_error("sync the directory", dir))?;
    }
    Ok(recovered)
}

struct Found {
    path: PathBuf,
    file: File,
    header: FileHeader,
    bytes: u64,
}

type Names = Vec<(u64, PathBuf)>;

fn list(dir: &Path) -> io::Result<(Names, Vec<Spare>)> {
    let (mut names, mut spares) = (Vec::new(), Vec::new());
    for item in std::fs::read_dir(dir)? {
        let item = item?;
        let name = item.file_name();
        let name = name.to_string_lossy();
        if let Some(first) = first_of(&name) {
            names.push((first, item.path()));
        } else if name.ends_with(".spare") {
            spares.push(Spare { path: item.path(), bytes: item.metadata()?.len() });
        }
    }
    names.sort();
    Ok((names, spares))
}

fn read_header(file: &File, bytes: u64) -> io::Result<HeaderVerdict> {
    let mut header = [0; FILE_HEADER_BYTES];
    if bytes >= FILE_HEADER_BYTES as u64 {
        file.read_exact_at(&mut header, 0)?;
    }
    Ok(FileHeader::decode(&header))
}

/// Removes files before the last one that starts the log anew.
fn drop_void(found: &mut Vec<Found>) -> io::Result<()> {
    if let Some(at) = found.iter().rposition(|one| one.header.starts_anew) {
        for void in found.drain(..at) {
            std::fs::remove_file(&void.path)?;
        }
    }
    Ok(())
}

fn scan_all(found: Vec<Found>, spares: Vec<Spare>) -> Result<Recovered, StartError> {
    let mut recovered =
        Recovered { segments: VecDeque::new(), terms: Terms::default(), spares, seal: false };
    let mut files = found.into_iter().peekable();
    let mut last_term = 0;
    while let Some(one) = files.next() {
        let path = one.path.clone();
        let read_error = |source| StartError::Io { action: "read", path: path.clone(), source };
        last_term = one.header.previous.map_or(last_term, |previous| previous.term.max(last_term));
        let mut scan = Scan::new(one, last_term);
        scan.run(&mut recovered.terms).map_err(read_error)?;
        last_term = scan.last_term;
        let next = scan.segment.next();
        match files.peek() {
            Some(after) if after.header.first == next => {}
            Some(after) => {
                let what = format!(
                    "entry {next} is expected there, and the next file begins at {}",
                    after.header.first
                );
                return Err(damaged(&path, scan.segment.end, &what));
            }
            None => {
                let tail = scan.tail().map_err(read_error)?;
                if let Some(later) = tail.proves_loss {
                    let what = format!("entry {next} cannot be read but entry {later} can");
                    return Err(damaged(&path, scan.segment.end, &what));
                }
                if tail.torn {
                    let position = scan.segment.end;
                    tracing::warn!(file = %path.display(), position, entry = next, "cut a torn tail");
                    recovered.seal = true;
                }
            }
        }
        recovered.segments.push_back(scan.segment);
    }
    Ok(recovered)
}

fn damaged(path: &Path, position: u64, what: &str) -> StartError {
    StartError::Damaged { path: path.to_owned(), position, what: what.to_owned() }
}

struct Scan {
    segment: Segment,
    last_term: u64,
    window: Vec<u8>,
    window_start: u64,
}

#[derive(Default)]
struct Tail {
    /// Something of this file's life lies behind the end.
    torn: bool,
    /// A later entry that was written after the first bad one had been synced.
    proves_loss: Option<u64>,
}

impl Scan {
    fn new(found: Found, last_term: u64) -> Self {
        let segment = Segment {
            direct: open_direct(&found.path),
            path: found.path,
            file: Arc::new(found.file),
            header: found.header,
            positions: Vec::new(),
            end: RECORDS_START,
            capacity: found.bytes,
            zeroed: found.bytes,
        };
        Self { segment, last_term, window: Vec::new(), window_start: 0 }
    }

    /// Follows the chain of sound records from the file's start.
    fn run(&mut self, terms: &mut Terms) -> io::Result<()> {
        while let Some(header) = self.sound_at(self.segment.end)? {
            if header.id.index != self.segment.next() || header.id.term < self.last_term {
                break;
            }
            self.last_term = header.id.term;
            terms.push(header.id);
            self.segment.positions.push((self.segment.end / ALIGN) as u32);
            self.segment.end += header.record_bytes();
        }
        Ok(())
    }

    /// Looks at everything behind the end.
    fn tail(&mut self) -> io::Result<Tail> {
        let expected = self.segment.next();
        let mut tail = Tail::default();
        let mut at = self.segment.end;
        while at + RECORD_HEADER_BYTES as u64 <= self.segment.capacity {
            let mine = RecordHeader::decode(self.bytes(at, RECORD_HEADER_BYTES)?)
                .filter(|header| header.file_id == self.segment.header.file_id);
            if mine.is_some() {
                tail.torn = true;
                if let Some(header) = self.sound_at(at)? {
                    let synced_before = header.id.index.saturating_sub(u64::from(header.place));
                    if synced_before > expected {
                        tail.proves_loss = Some(header.id.index);
                        return Ok(tail);
                    }
                }
            }
            at += ALIGN;
        }
        Ok(tail)
    }

    /// The header of a whole, sound record of this file at `position`.
    fn sound_at(&mut self, position: u64) -> io::Result<Option<RecordHeader>> {
        let capacity = self.segment.capacity;
        if position + RECORD_HEADER_BYTES as u64 > capacity {
            return Ok(None);
        }
        let Some(header) = RecordHeader::decode(self.bytes(position, RECORD_HEADER_BYTES)?) else {
            return Ok(None);
        };
        let padded_end = position + header.record_bytes();
        if header.file_id != self.segment.header.file_id || padded_end > capacity {
            return Ok(None);
        }
        let record = self.bytes(position, RECORD_HEADER_BYTES + header.length as usize)?;
        Ok(format::record_is_sound(&header, record).then_some(header))
    }

    /// `count` bytes at `position`, which must lie in the file.
    fn bytes(&mut self, position: u64, count: usize) -> io::Result<&[u8]> {
        let window_end = self.window_start + self.window.len() as u64;
        if position < self.window_start || position + count as u64 > window_end {
            let left = self.segment.capacity.saturating_sub(position);
            let size = left.min(count.max(CHUNK) as u64) as usize;
            self.window.resize(size, 0);
            self.window_start = position;
            self.segment.file.read_exact_at(&mut self.window, position)?;
        }
        let start = (position - self.window_start) as usize;
        Ok(&self.window[start..start + count])
    }
}
