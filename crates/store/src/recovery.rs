//! Opening: back to the last durable checkpoint, whatever has happened since.
//!
//! Owns: the layout of the directory, cutting the queue logs to the lengths that the tables say,
//! removing what no row names. Leaves to others: replaying the raft log from there.
//!
//! Looks at lengths and names only, so it takes the same short time however much is stored. Nothing
//! is changed before all lengths are found good.
//!
//! ```text
//! <dir>/tables/    the tree of sorted files (`lsm`)
//! <dir>/queues/    the queue logs (`log_files`)
//! ```
//!
//! After an image was installed both lie in a directory beside (`root`).

use crate::disk::Disk;
use crate::log_files::{LogFiles, SegmentId, queue_of, segment_of};
use crate::lsm::{Lsm, row_key, rows_from};
use crate::snapshot::Snapshot;
use crate::store::Recovered;
use crate::{OpenError, StoreOptions, root};
use queen_core::QueueId;
use queen_core::row::{Row, SegmentRow, key};
use queen_core::table::Table;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const TABLES: &str = "tables";
pub(crate) const QUEUES: &str = "queues";
const PARTS: [&str; 2] = [TABLES, QUEUES];

/// Opens the directory and takes it back to its last durable checkpoint.
pub(crate) fn recover(dir: &Path, options: &StoreOptions) -> Result<(Disk, Recovered), OpenError> {
    let number = root::current(dir).map_err(io_error("read the file `root` in", dir))?;
    let base = root::dir_of(dir, number);
    let (tables, queues) = (base.join(TABLES), base.join(QUEUES));
    if number != root::FIRST {
        // It was synced before it was named, so it was there.
        std::fs::metadata(&queues)
            .map_err(io_error("find what the file `root` names:", &queues))?;
    }
    std::fs::create_dir_all(&tables).map_err(io_error("create", &tables))?;
    std::fs::create_dir_all(&queues).map_err(io_error("create", &queues))?;
    sync_dir(&base)?;
    let lsm = Lsm::open(&tables, options.block_cache_bytes)
        .map_err(|error| OpenError::Tables { dir: tables.clone(), why: error.to_string() })?;
    let row_error = |table, why| OpenError::Row { dir: tables.clone(), table, why };
    let applied = lsm.applied().map_err(|why| row_error("the store itself", why))?;
    let segments =
        segments(&lsm.snapshot()).map_err(|why| row_error(Table::Segment.name(), why))?;
    let files = LogFiles::new(queues, options.open_files);
    let longer = check_lengths(&files, &segments)?;
    let removed_files = remove_unnamed(&files, &segments)?;
    for &(id, bytes) in &longer {
        let path = files.path(id);
        let cut = File::options().write(true).open(&path).and_then(|file| file.set_len(bytes));
        cut.map_err(io_error("cut", &path))?;
    }
    root::remove_others(dir, number, &PARTS).map_err(io_error("list", dir))?;
    let recovered = Recovered { applied, cut_files: longer.len(), removed_files };
    let owned = root::owned(dir, number, &PARTS);
    Ok((Disk::new(Arc::new(lsm), Arc::new(files), options.row_cache_bytes, owned), recovered))
}

/// All segments that the tables know, with their lengths.
pub(crate) fn segments(rows: &Snapshot) -> Result<BTreeMap<SegmentId, u64>, String> {
    let mut segments = BTreeMap::new();
    for row in rows_from(rows, Table::Segment, &[]) {
        let (key, value) = row.map_err(|error| error.to_string())?;
        let parts = key::segment_parts(row_key(&key));
        let (queue, segment) = parts.ok_or_else(|| format!("{key:?} is not a key"))?;
        let row = SegmentRow::decode(&value)
            .map_err(|error| format!("segment {segment} of queue {queue}: {error}"))?;
        segments.insert(SegmentId { queue, segment }, row.bytes);
    }
    Ok(segments)
}

/// Files longer than the tables say, with the lengths that they say; a shorter one is an error.
fn check_lengths(
    files: &LogFiles,
    segments: &BTreeMap<SegmentId, u64>,
) -> Result<Vec<(SegmentId, u64)>, OpenError> {
    let mut longer = Vec::new();
    for (&id, &expected) in segments {
        let file = files.path(id);
        let found = match std::fs::metadata(&file) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound && expected > 0 => {
                return Err(OpenError::LogMissing { file, expected });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(io_error("look at", &file)(error)),
        };
        if found < expected {
            return Err(OpenError::LogShort { file, expected, found });
        }
        if found > expected {
            longer.push((id, expected));
        }
    }
    Ok(longer)
}

/// Removes segment files and queue directories without a row. Files with other names stay.
fn remove_unnamed(
    files: &LogFiles,
    segments: &BTreeMap<SegmentId, u64>,
) -> Result<usize, OpenError> {
    let queues: HashSet<QueueId> = segments.keys().map(|id| id.queue).collect();
    let mut removed = 0;
    for (queue, dir) in children(files.dir(), queue_of)? {
        for (segment, path) in children(&dir, segment_of)? {
            if !segments.contains_key(&SegmentId { queue, segment }) {
                std::fs::remove_file(&path).map_err(io_error("remove", &path))?;
                removed += 1;
            }
        }
        if !queues.contains(&queue) {
            // Not empty when a person has put a file there: it stays, with a word about it.
            if let Err(error) = std::fs::remove_dir(&dir) {
                tracing::warn!(path = %dir.display(), %error, "queue directory not removed");
            }
        }
    }
    Ok(removed)
}

/// What in a directory has a name that means something.
fn children<T>(
    dir: &Path,
    meaning: impl Fn(&str) -> Option<T>,
) -> Result<Vec<(T, PathBuf)>, OpenError> {
    let mut children = Vec::new();
    for child in std::fs::read_dir(dir).map_err(io_error("list", dir))? {
        let child = child.map_err(io_error("list", dir))?;
        if let Some(meaning) = child.file_name().to_str().and_then(&meaning) {
            children.push((meaning, child.path()));
        }
    }
    Ok(children)
}

fn sync_dir(dir: &Path) -> Result<(), OpenError> {
    File::open(dir).and_then(|file| file.sync_all()).map_err(io_error("sync", dir))
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Io { what, path: path.to_owned(), source }
}
