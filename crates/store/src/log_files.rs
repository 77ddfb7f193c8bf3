//! The files of the queue logs and the handles held open on them.
//!
//! Owns: their names, the bounded set of open handles, which errors of reading mean damage. Leaves to others: what is written
//! (`log_writer`), which files must be there (`recovery`).
//!
//! ```text
//! <dir>/<queue id, decimal>/<segment number, ten digits>.log    runs, one after the other
//! ```

use crate::damage::{Damage, Finding};
use crate::lsm::WriteError;
use parking_lot::Mutex;
use queen_core::QueueId;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Times that opening a file is tried when no file may be opened.
const TRIES: usize = 3;

/// A segment of a queue's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SegmentId {
    pub(crate) queue: QueueId,
    pub(crate) segment: u32,
}

struct Held {
    file: Arc<File>,
    used: u64,
}

#[derive(Default)]
struct Handles {
    held: HashMap<SegmentId, Held>,
    clock: u64,
}

/// The directory of the queue logs.
pub(crate) struct LogFiles {
    dir: PathBuf,
    handles_max: usize,
    handles: Mutex<Handles>,
    /// What is known to be damaged of them.
    pub(crate) damage: Damage,
}

impl LogFiles {
    /// Holds at most `handles_max` files open, besides those in use.
    pub(crate) fn new(dir: PathBuf, handles_max: usize) -> LogFiles {
        LogFiles {
            dir,
            handles_max: handles_max.max(8),
            handles: Mutex::default(),
            damage: Damage::default(),
        }
    }

    /// Keeps that bytes which must be there cannot be read, if that is what the error says.
    pub(crate) fn unread(&self, id: SegmentId, position: u64, error: &io::Error) {
        let what = match (error.kind(), error.raw_os_error()) {
            (io::ErrorKind::NotFound, _) => "the file is missing".to_owned(),
            (io::ErrorKind::UnexpectedEof, _) => "the file is too short".to_owned(),
            (_, Some(libc::EIO)) => error.to_string(),
            _ => return,
        };
        self.damage.note(id, Finding { file: self.path(id), position, what });
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn queue_dir(&self, queue: QueueId) -> PathBuf {
        self.dir.join(queue.to_string())
    }

    pub(crate) fn path(&self, id: SegmentId) -> PathBuf {
        self.queue_dir(id.queue).join(segment_name(id.segment))
    }

    /// A handle on a file that is there.
    pub(crate) fn existing(&self, id: SegmentId) -> io::Result<Arc<File>> {
        match self.held(id) {
            Some(file) => Ok(file),
            None => self.open(id, OpenOptions::new().read(true).write(true)),
        }
    }

    /// A handle on a file; `true` when it, and perhaps its directory, had to be created.
    pub(crate) fn existing_or_new(&self, id: SegmentId) -> io::Result<(Arc<File>, bool)> {
        match self.existing(id) {
            Ok(file) => Ok((file, false)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(self.queue_dir(id.queue))?;
                let file = self.open(id, OpenOptions::new().read(true).write(true).create(true))?;
                Ok((file, true))
            }
            Err(error) => Err(error),
        }
    }

    fn held(&self, id: SegmentId) -> Option<Arc<File>> {
        let mut handles = self.handles.lock();
        handles.clock += 1;
        let clock = handles.clock;
        let held = handles.held.get_mut(&id)?;
        held.used = clock;
        Some(held.file.clone())
    }

    fn open(&self, id: SegmentId, how: &OpenOptions) -> io::Result<Arc<File>> {
        let path = self.path(id);
        let mut tries = 1;
        let file = loop {
            match how.open(&path) {
                Err(error) if no_handle_left(&error) && tries < TRIES => {
                    tries += 1;
                    self.let_all_go();
                }
                opened => break Arc::new(opened?),
            }
        };
        let mut handles = self.handles.lock();
        let full = handles.held.len() >= self.handles_max;
        handles.clock += 1;
        let used = handles.clock;
        handles.held.insert(id, Held { file: file.clone(), used });
        drop(handles);
        if full {
            // A quarter at once, so that the search for the oldest is paid for by many openings.
            self.let_go(self.handles_max / 4);
        }
        Ok(file)
    }

    /// Closes the handles that were not used for the longest time.
    fn let_go(&self, count: usize) {
        let mut handles = self.handles.lock();
        let mut uses: Vec<u64> = handles.held.values().map(|held| held.used).collect();
        uses.sort_unstable();
        let last = uses.get(count.saturating_sub(1)).or(uses.last()).copied().unwrap_or(0);
        handles.held.retain(|_, held| held.used > last);
    }

    /// Closes all handles that are not in use, for the sake of others who can open no file.
    pub(crate) fn let_all_go(&self) {
        self.handles.lock().held.clear();
    }

    /// Closes all handles when that is what a write waits for.
    pub(crate) fn let_go_for(&self, blocked: &WriteError) {
        if matches!(blocked, WriteError::NoHandle) {
            self.let_all_go();
        }
    }

    /// Lets go of a file that is to be removed. Readers that hold it may finish.
    pub(crate) fn forget(&self, id: SegmentId) {
        self.handles.lock().held.remove(&id);
    }

    /// Lets go of all files of a queue.
    pub(crate) fn forget_queue(&self, queue: QueueId) {
        self.handles.lock().held.retain(|id, _| id.queue != queue);
    }

    #[cfg(test)]
    pub(crate) fn held_count(&self) -> usize {
        self.handles.lock().held.len()
    }
}

/// Whether an error says that the process or the system has no file handle left.
pub(crate) fn no_handle_left(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// A segment's file name.
pub(crate) fn segment_name(segment: u32) -> String {
    format!("{segment:010}.log")
}

/// The segment number of a file name; `None` when it is not the name of a segment.
pub(crate) fn segment_of(name: &str) -> Option<u32> {
    let digits = name.strip_suffix(".log").filter(|digits| digits.len() == 10)?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The queue of a directory name; `None` when it is not the name of one.
pub(crate) fn queue_of(name: &str) -> Option<QueueId> {
    let queue: u32 = name.parse().ok()?;
    (queue.to_string() == name).then_some(QueueId(queue))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_segments_are_fixed_and_read_back() {
        assert_eq!(segment_name(7), "0000000007.log");
        assert_eq!(segment_name(u32::MAX), "4294967295.log");
        assert_eq!(segment_of("4294967295.log"), Some(u32::MAX));
        for name in ["7.log", "00000000007.log", "0000000007", "4294967296.log", "+000000007.log"] {
            assert_eq!(segment_of(name), None, "{name}");
        }
        assert_eq!(queue_of("12"), Some(QueueId(12)));
        for name in ["012", "+1", "", "4294967296", "a"] {
            assert_eq!(queue_of(name), None, "{name}");
        }
        let files = LogFiles::new("/d".into(), 8);
        let id = SegmentId { queue: QueueId(3), segment: 1 };
        assert_eq!(files.path(id), Path::new("/d/3/0000000001.log"));
    }

    #[test]
    fn handles_are_bounded_and_those_in_use_stay() {
        let dir = tempfile::tempdir().unwrap();
        let files = LogFiles::new(dir.path().to_owned(), 16);
        let id = |queue| SegmentId { queue: QueueId(queue), segment: 1 };
        let (first, created) = files.existing_or_new(id(0)).unwrap();
        assert!(created);
        for queue in 1..1000 {
            files.existing_or_new(id(queue)).unwrap();
            assert!(Arc::ptr_eq(&files.existing(id(0)).unwrap(), &first));
            assert!(files.held_count() <= 17);
        }
        files.forget(id(0));
        assert!(!Arc::ptr_eq(&files.existing(id(0)).unwrap(), &first));
        assert!(!files.existing_or_new(id(1)).unwrap().1);
    }
}
