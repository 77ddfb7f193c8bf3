//! What is written to the queue logs: gathered in a batch, then handed to the system at once.
//!
//! Owns: the bytes that no file holds yet; which files and directories a checkpoint must sync and
//! which it may remove. Leaves to others: where a run goes (the rules), handles (`log_files`).
//!
//! Writes that follow each other in a file become one system call. Nothing is removed before the
//! checkpoint that no longer knows it is durable: a replay from the one before writes there again.

use crate::log_files::{LogFiles, SegmentId};
use crate::lsm::WriteError;
use bytes::{Bytes, BytesMut};
use queen_core::QueueId;
use queen_state::{Place, StorageError};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Bytes gathered at which they are written before the batch ends.
const GATHER_BYTES: usize = 8 << 20;
/// Buffers kept for the next batch, and the largest that is.
const SPARE_BUFFERS: usize = 64;
const SPARE_BUFFER_BYTES: usize = 1 << 20;
/// Files at which one sync of the whole file system is cheaper than one sync of each.
const SYNC_EACH_MAX: usize = 16;

/// Bytes that follow each other in a file.
struct Extent {
    start: u64,
    bytes: Vec<u8>,
}

impl Extent {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }
}

/// What one checkpoint does with the logs.
#[derive(Default)]
pub(crate) struct LogChanges {
    /// Files written to.
    written: BTreeSet<SegmentId>,
    /// Queues with a new file.
    grown: BTreeSet<QueueId>,
    removed_segments: BTreeSet<SegmentId>,
    removed_queues: BTreeSet<QueueId>,
    /// Bytes written.
    bytes: u64,
}

/// The writing side of the queue logs.
pub(crate) struct LogWriter {
    files: Arc<LogFiles>,
    gathered: BTreeMap<SegmentId, Vec<Extent>>,
    gathered_bytes: usize,
    spare: Vec<Vec<u8>>,
    changes: LogChanges,
}

impl LogWriter {
    pub(crate) fn new(files: Arc<LogFiles>) -> LogWriter {
        LogWriter {
            files,
            gathered: BTreeMap::new(),
            gathered_bytes: 0,
            spare: Vec::new(),
            changes: LogChanges::default(),
        }
    }

    /// Takes a run's bytes. Never fails: what cannot be written waits for [`LogWriter::flush`].
    pub(crate) fn write(&mut self, place: Place, parts: &[&[u8]]) {
        let extents = self.gathered.entry(id(place)).or_default();
        if extents.last().is_none_or(|last| last.end() != place.position) {
            let bytes = self.spare.pop().unwrap_or_default();
            extents.push(Extent { start: place.position, bytes });
        }
        if let Some(extent) = extents.last_mut() {
            for part in parts {
                extent.bytes.extend_from_slice(part);
                self.gathered_bytes += part.len();
            }
        }
        if self.gathered_bytes >= GATHER_BYTES {
            // An error now is met again, and dealt with, at the end of the batch.
            let _ = self.flush();
        }
    }

    /// Whether bytes wait that no file holds.
    pub(crate) fn is_gathering(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Bytes written since the last freeze.
    pub(crate) fn changed_bytes(&self) -> u64 {
        self.changes.bytes
    }

    /// Hands all gathered bytes to the system. After an error the rest waits for the next try.
    pub(crate) fn flush(&mut self) -> Result<(), WriteError> {
        while let Some((&id, _)) = self.gathered.first_key_value() {
            let (file, created) = self
                .files
                .existing_or_new(id)
                .map_err(|error| write_error(&self.files, id, error))?;
            if created {
                self.changes.grown.insert(id.queue);
            }
            self.changes.written.insert(id);
            for extent in self.gathered.get(&id).into_iter().flatten() {
                file.write_all_at(&extent.bytes, extent.start)
                    .map_err(|error| write_error(&self.files, id, error))?;
            }
            for mut extent in self.gathered.remove(&id).into_iter().flatten() {
                self.gathered_bytes -= extent.bytes.len();
                self.changes.bytes += extent.bytes.len() as u64;
                if self.spare.len() < SPARE_BUFFERS && extent.bytes.capacity() <= SPARE_BUFFER_BYTES
                {
                    extent.bytes.clear();
                    self.spare.push(extent.bytes);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn remove_segment(&mut self, id: SegmentId) {
        self.drop_gathered(|other| other == id);
        self.changes.written.remove(&id);
        self.changes.removed_segments.insert(id);
    }

    pub(crate) fn remove_queue(&mut self, queue: QueueId) {
        self.drop_gathered(|id| id.queue == queue);
        self.changes.written.retain(|id| id.queue != queue);
        self.changes.grown.remove(&queue);
        self.changes.removed_segments.retain(|id| id.queue != queue);
        self.changes.removed_queues.insert(queue);
    }

    fn drop_gathered(&mut self, of: impl Fn(SegmentId) -> bool) {
        let gathered_bytes = &mut self.gathered_bytes;
        self.gathered.retain(|&id, extents| {
            let dropped = of(id);
            if dropped {
                *gathered_bytes -= extents.iter().map(|extent| extent.bytes.len()).sum::<usize>();
            }
            !dropped
        });
    }

    /// What the checkpoint that begins now has to do. Nothing may be gathered.
    pub(crate) fn freeze(&mut self) -> LogChanges {
        assert!(!self.is_gathering(), "a checkpoint in the middle of a batch");
        std::mem::take(&mut self.changes)
    }

    /// The right to read `len` bytes at `place`, gathered ones included.
    pub(crate) fn slice(&self, place: Place, len: usize) -> Result<LogSlice, StorageError> {
        let id = id(place);
        let mut slice =
            LogSlice { id, position: place.position, len, file: None, gathered: Vec::new() };
        let end = place.position + len as u64;
        for extent in self.gathered.get(&id).into_iter().flatten() {
            let (from, to) = (extent.start.max(place.position), extent.end().min(end));
            if from < to {
                let bytes =
                    &extent.bytes[(from - extent.start) as usize..(to - extent.start) as usize];
                slice.gathered.push((from, Bytes::copy_from_slice(bytes)));
            }
        }
        let gathered: usize = slice.gathered.iter().map(|(_, bytes)| bytes.len()).sum();
        let first = slice.gathered.first().map_or(end, |&(from, _)| from);
        if (first - place.position) as usize + gathered != len {
            return Err(StorageError(format!("{len} bytes at {place:?} were not written as one")));
        }
        if gathered < len {
            let file = self.files.existing(id).map_err(|error| {
                self.files.unread(id, place.position, &error);
                StorageError(format!(
                    "open the queue log {}: {error}",
                    self.files.path(id).display()
                ))
            })?;
            slice.file = Some((file, self.files.clone()));
        }
        Ok(slice)
    }
}

/// Bytes of a queue log, to be read outside the lock.
pub struct LogSlice {
    id: SegmentId,
    position: u64,
    len: usize,
    file: Option<(Arc<File>, Arc<LogFiles>)>,
    gathered: Vec<(u64, Bytes)>,
}

impl LogSlice {
    /// Reads them: blocking file I/O. Fewer bytes than asked for are an error that names the file.
    pub fn read(self) -> Result<Bytes, StorageError> {
        if self.file.is_none() {
            return match <[_; 1]>::try_from(self.gathered) {
                Ok([(_, bytes)]) => Ok(bytes),
                Err(parts) => Ok(parts.into_iter().flat_map(|(_, bytes)| bytes).collect()),
            };
        }
        let mut bytes = BytesMut::zeroed(self.len);
        self.read_at(self.position, &mut bytes)?;
        Ok(bytes.freeze())
    }

    /// Fills `into` with the bytes at a position of the segment, all of them within the slice: blocking
    /// file I/O. Fewer bytes are an error that names the file.
    pub fn read_at(&self, position: u64, into: &mut [u8]) -> Result<(), StorageError> {
        let (end, all) = (position + into.len() as u64, self.position + self.len as u64);
        if position < self.position || end > all {
            let path = self.path();
            return Err(StorageError(format!(
                "bytes {position} to {end} of the queue log {path} lie outside of what was asked for"
            )));
        }
        // Gathered bytes lie behind those in the file.
        let first = self.gathered.first().map_or(all, |&(from, _)| from);
        let in_file = first.clamp(position, end) - position;
        let (from_file, _) = into.split_at_mut(in_file as usize);
        if let Some((file, files)) = &self.file
            && !from_file.is_empty()
        {
            file.read_exact_at(from_file, position).map_err(|error| {
                files.unread(self.id, position, &error);
                let path = self.path();
                StorageError(format!(
                    "read {in_file} bytes at {position} of the queue log {path}: {error}"
                ))
            })?;
        }
        for (start, part) in &self.gathered {
            let (from, to) = (position.max(*start), end.min(start + part.len() as u64));
            if from < to {
                into[(from - position) as usize..(to - position) as usize]
                    .copy_from_slice(&part[(from - start) as usize..(to - start) as usize]);
            }
        }
        Ok(())
    }

    fn path(&self) -> String {
        let path = self.file.as_ref().map(|(_, files)| files.path(self.id));
        path.map_or_else(String::new, |path| path.display().to_string())
    }
}

impl LogChanges {
    /// Makes all that was written durable, file names included.
    pub(crate) fn sync(&self, files: &LogFiles) -> Result<(), WriteError> {
        if self.written.is_empty() {
            return Ok(());
        }
        if self.written.len() > SYNC_EACH_MAX {
            let dir = File::open(files.dir())?;
            // SAFETY: the descriptor is open for the whole call.
            if unsafe { libc::syncfs(dir.as_raw_fd()) } != 0 {
                return Err(sync_error(files.dir(), io::Error::last_os_error()));
            }
            return Ok(());
        }
        for &id in &self.written {
            let file = files.existing(id).map_err(|error| write_error(files, id, error))?;
            file.sync_data().map_err(|error| sync_error(&files.path(id), error))?;
        }
        for &queue in &self.grown {
            sync_dir(&files.queue_dir(queue))?;
        }
        if !self.grown.is_empty() {
            sync_dir(files.dir())?;
        }
        Ok(())
    }

    /// Gives the space of what was removed back, as far as it can be.
    pub(crate) fn remove(&self, files: &LogFiles) {
        for &id in &self.removed_segments {
            files.forget(id);
            warn_unless_gone(&files.path(id), std::fs::remove_file(files.path(id)));
        }
        for &queue in &self.removed_queues {
            files.forget_queue(queue);
            let dir = files.queue_dir(queue);
            warn_unless_gone(&dir, std::fs::remove_dir_all(&dir));
        }
    }
}

/// What stays now is removed at the next start: no row names it.
fn warn_unless_gone(path: &std::path::Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(path = %path.display(), %error, "queue log not removed");
        }
        _ => {}
    }
}

fn sync_dir(dir: &std::path::Path) -> Result<(), WriteError> {
    File::open(dir)?.sync_all().map_err(|error| sync_error(dir, error))
}

/// A sync that failed may have lost what it should have written, full disk or not: there is no way
/// on but a new start from the last checkpoint.
fn sync_error(path: &std::path::Path, error: io::Error) -> WriteError {
    WriteError::Failed(format!("sync {}: {error}", path.display()))
}

fn write_error(files: &LogFiles, id: SegmentId, error: io::Error) -> WriteError {
    match WriteError::from(error) {
        WriteError::Failed(why) => {
            WriteError::Failed(format!("write the queue log {}: {why}", files.path(id).display()))
        }
        blocked => blocked,
    }
}

pub(crate) fn id(place: Place) -> SegmentId {
    SegmentId { queue: place.queue, segment: place.segment }
}
