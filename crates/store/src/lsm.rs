//! The tables on disk: one ordered tree of sorted files.
//!
//! Owns: the tree's directory and the bytes of its keys; writing a checkpoint's rows as one atomic,
//! synced change; merging the files in the background. Leaves to others: rows newer than that
//! (`overlay`).
//!
//! All tables share one tree, so that one switch of its version file makes a whole checkpoint
//! durable or leaves it out: rows are written to new sorted files, these are synced, then the
//! version file that names them is replaced. No journal, so opening replays nothing. A power cut
//! before the switch leaves files that no version names; they are removed at the next opening.
//!
//! ```text
//! key    0 table number u8 | 1 key of the row
//! key    0 0xff            | 1 "applied"        the position that the rows stand at
//! value  0 version u8 = 1 | 1 index u64 LE | 9 mark
//! ```

use crate::log_files::no_handle_left;
use crate::overlay::Overlay;
use crate::snapshot::{Rows, Snapshot};
use crate::store::Applied;
use bytes::Bytes;
use lsm_tree::compaction::Leveled;
use lsm_tree::config::PinningPolicy;
use lsm_tree::{
    AbstractTree, AnyTree, Cache, Config, DescriptorTable, SequenceNumberCounter, Slice,
};
use parking_lot::{Mutex, RwLock};
use queen_core::table::Table;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Number that no table may have: the store's own rows.
const OWN: u8 = 0xff;
const APPLIED_KEY: &[u8] = b"\xffapplied";
const APPLIED_VERSION: u8 = 1;
/// Size that merged files are cut at: small, so that one merge is short.
const FILE_BYTES: u64 = 16 << 20;
/// Files of checkpoints that may wait to be merged.
const UNMERGED_FILES: u8 = 4;
/// Files of checkpoints at which the next checkpoint waits for the merges.
const UNMERGED_FILES_MAX: usize = 16;
const OPEN_FILES: usize = 64;

const _: () = {
    let mut at = 0;
    while at < Table::ALL.len() {
        assert!((Table::ALL[at] as u8) < OWN);
        at += 1;
    }
};

/// Why rows could not be written.
#[derive(Debug)]
pub(crate) enum WriteError {
    /// The disk is full: later it may work.
    Full,
    /// No file may be opened: later it may work.
    NoHandle,
    /// Anything else.
    Failed(String),
}

impl From<lsm_tree::Error> for WriteError {
    fn from(error: lsm_tree::Error) -> WriteError {
        match error {
            lsm_tree::Error::Io(error) => WriteError::from(error),
            other => WriteError::Failed(other.to_string()),
        }
    }
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> WriteError {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => WriteError::Full,
            _ if no_handle_left(&error) => WriteError::NoHandle,
            _ => WriteError::Failed(error.to_string()),
        }
    }
}

/// Reading rows from the disk failed: what the library says.
pub(crate) type ReadError = lsm_tree::Error;

/// The tree.
pub(crate) struct Lsm {
    tree: AnyTree,
    /// What readers see. Replaced when the tree has changed.
    snapshot: RwLock<Arc<Snapshot>>,
    sequence: SequenceNumberCounter,
    strategy: Arc<Leveled>,
    dir: PathBuf,
    /// Held while a checkpoint's files are written. Taken before `merging`.
    writing: Mutex<()>,
    /// Held while files are merged.
    merging: Mutex<()>,
}

impl Lsm {
    /// Opens the tree in `dir`, which is created when it is not there.
    pub(crate) fn open(dir: &Path, block_cache_bytes: u64) -> Result<Lsm, ReadError> {
        let sequence = SequenceNumberCounter::default();
        let tree = Config::new(dir, sequence.clone(), SequenceNumberCounter::default())
            .use_cache(Arc::new(Cache::with_capacity_bytes(block_cache_bytes)))
            .use_descriptor_table(Some(Arc::new(DescriptorTable::new(OPEN_FILES))))
            // In small blocks: one that is read as a whole for each new file would push all else
            // out of the cache.
            .index_block_partitioning_policy(PinningPolicy::all(true))
            .filter_block_partitioning_policy(PinningPolicy::all(true))
            .open()?;
        // Every write must count higher than all that is there, or it would be hidden by them.
        sequence.fetch_max(tree.get_highest_seqno().map_or(0, |highest| highest + 1));
        let strategy =
            Leveled::default().with_table_target_size(FILE_BYTES).with_l0_threshold(UNMERGED_FILES);
        Ok(Lsm {
            snapshot: RwLock::new(Arc::new(Snapshot::take(&tree))),
            tree,
            sequence,
            strategy: Arc::new(strategy),
            dir: dir.to_owned(),
            writing: Mutex::new(()),
            merging: Mutex::new(()),
        })
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Slice>, ReadError> {
        let snapshot = self.snapshot.read().clone();
        with_key(table, key, |key| snapshot.get(key))
    }

    /// Rows with `from <= key < to`; the keys come with their table number before them.
    pub(crate) fn range(&self, table: Table, from: &[u8], to: &[u8]) -> Rows {
        let of = |key| with_key(table, key, |key| Slice::from(key));
        let snapshot = self.snapshot.read().clone();
        snapshot.range(of(from), of(to))
    }

    /// Rows with `from <= key` to the end of the table.
    pub(crate) fn range_from(&self, table: Table, from: &[u8]) -> Rows {
        rows_from(&self.snapshot(), table, from)
    }

    /// The position that the rows stand at; `None` before the first checkpoint.
    pub(crate) fn applied(&self) -> Result<Option<Applied>, String> {
        applied_of(&self.snapshot())
    }

    /// The rows of the last durable checkpoint, unchanged as long as it is held.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.read().clone()
    }

    /// Bytes of the files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.tree.disk_space()
    }

    /// Writes the rows and the position as one change, synced when this returns.
    ///
    /// After an error nothing has changed, and it may be tried again.
    pub(crate) fn write(&self, rows: &Overlay, applied: &Applied) -> Result<(), WriteError> {
        let _writing = self.writing.lock();
        let first_file = self.tree.next_table_id();
        let written = self.write_files(rows, applied);
        if written.is_err() {
            let _merging = self.merging.lock();
            self.remove_unnamed_files(first_file);
        }
        written
    }

    fn write_files(&self, rows: &Overlay, applied: &Applied) -> Result<(), WriteError> {
        let mut writer = self.tree.ingestion()?;
        for (table, key, dirty) in rows.iter() {
            let key = with_key(table, key, |key| Slice::from(key));
            match dirty.value() {
                Some(value) => writer.write(key, value.clone())?,
                None => writer.write_tombstone(key)?,
            }
        }
        writer.write(APPLIED_KEY, encode_applied(applied))?;
        writer.finish()?;
        self.renew_snapshot();
        // Old versions have no readers but those that hold them.
        let safe = self.sequence.get();
        if let Err(error) = self.tree.get_version_history_lock().maintenance(&self.dir, safe) {
            tracing::warn!(%error, "old version files of the tables stay until the next start");
        }
        Ok(())
    }

    /// Gives back the space of files that a failed write has left. Both locks are held.
    fn remove_unnamed_files(&self, first: u64) {
        let version = self.tree.current_version();
        let Ok(files) = std::fs::read_dir(self.dir.join("tables")) else { return };
        for file in files.flatten() {
            let id = file.file_name().to_str().and_then(|name| name.parse::<u64>().ok());
            let unnamed = |id| id >= first && version.iter_tables().all(|table| table.id() != id);
            if id.is_some_and(unnamed) {
                // A file that cannot be removed now is removed at the next start.
                let _ = std::fs::remove_file(file.path());
            }
        }
    }

    /// Merges some files when there are too many; `false` when there was nothing to do.
    pub(crate) fn merge(&self) -> Result<bool, WriteError> {
        let merging = self.merging.lock();
        let before = self.tree.current_version().id();
        let first_file = self.tree.next_table_id();
        let merged = self.tree.compact(self.strategy.clone(), self.sequence.get());
        drop(merging);
        if let Err(error) = merged {
            let _writing = self.writing.lock();
            let _merging = self.merging.lock();
            self.remove_unnamed_files(first_file);
            return Err(error.into());
        }
        let changed = self.tree.current_version().id() != before;
        if changed {
            self.renew_snapshot();
        }
        Ok(changed)
    }

    fn renew_snapshot(&self) {
        // Two at once, one of a checkpoint and one of a merge: the later must hold both.
        let mut snapshot = self.snapshot.upgradable_read();
        let new = Arc::new(Snapshot::take(&self.tree));
        snapshot.with_upgraded(|snapshot| *snapshot = new);
    }

    /// Whether so many files wait to be merged that reads would grow slow.
    pub(crate) fn is_behind(&self) -> bool {
        self.tree.l0_run_count() >= UNMERGED_FILES_MAX
    }
}

/// Calls `f` with the key in the tree of a table's key, without an allocation when it is short.
fn with_key<R>(table: Table, key: &[u8], f: impl FnOnce(&[u8]) -> R) -> R {
    let mut short = [0u8; 64];
    match short.get_mut(..key.len() + 1) {
        Some(place) => {
            place[0] = table as u8;
            place[1..].copy_from_slice(key);
            f(place)
        }
        None => f(&[&[table as u8], key].concat()),
    }
}

/// Rows of a snapshot with `from <= key` to the end of the table.
pub(crate) fn rows_from(snapshot: &Snapshot, table: Table, from: &[u8]) -> Rows {
    let from = with_key(table, from, |key| Slice::from(key));
    snapshot.range(from, Slice::from([table as u8 + 1]))
}

/// The position that the rows of a snapshot stand at.
pub(crate) fn applied_of(snapshot: &Snapshot) -> Result<Option<Applied>, String> {
    match snapshot.get(APPLIED_KEY) {
        Ok(None) => Ok(None),
        Ok(Some(bytes)) => decode_applied(&bytes).map(Some),
        Err(error) => Err(error.to_string()),
    }
}

fn encode_applied(applied: &Applied) -> Vec<u8> {
    let mut bytes = vec![APPLIED_VERSION];
    bytes.extend_from_slice(&applied.index.to_le_bytes());
    bytes.extend_from_slice(&applied.mark);
    bytes
}

fn decode_applied(bytes: &[u8]) -> Result<Applied, String> {
    match bytes {
        [APPLIED_VERSION, rest @ ..] => match rest.split_first_chunk::<8>() {
            Some((index, mark)) => Ok(Applied {
                index: u64::from_le_bytes(*index),
                mark: Bytes::copy_from_slice(mark),
            }),
            None => Err(format!("the applied position has {} bytes, not 9 or more", bytes.len())),
        },
        [version, ..] => Err(format!(
            "the applied position has version {version}, this release reads {APPLIED_VERSION}"
        )),
        [] => Err("the applied position is empty".to_owned()),
    }
}

/// The row's own key, without the table number.
pub(crate) fn row_key(key: &Slice) -> &[u8] {
    key.get(1..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_keys_and_of_the_applied_position_are_fixed() {
        assert_eq!(with_key(Table::Segment, b"\x00\x01", <[u8]>::to_vec), b"\x07\x00\x01");
        let long = [9u8; 200];
        assert_eq!(with_key(Table::Meta, &long, <[u8]>::to_vec), [&[0u8][..], &long].concat());
        assert_eq!(APPLIED_KEY, b"\xffapplied");
        let applied = Applied { index: 0x0102, mark: Bytes::from_static(b"mark") };
        let bytes = encode_applied(&applied);
        assert_eq!(bytes, b"\x01\x02\x01\0\0\0\0\0\0mark");
        assert_eq!(decode_applied(&bytes).unwrap(), applied);
    }

    #[test]
    fn a_position_of_a_newer_release_or_cut_short_is_refused() {
        for bad in [&b""[..], b"\x01\x02\x01", b"\x02\x02\x01\0\0\0\0\0\0mark"] {
            decode_applied(bad).unwrap_err();
        }
    }

    fn rows(range: std::ops::Range<u32>, value: &[u8]) -> Overlay {
        let mut rows = Overlay::default();
        range.for_each(|n| rows.put(Table::Run, &n.to_be_bytes(), value, false));
        rows
    }

    fn applied(index: u64) -> Applied {
        Applied { index, mark: Bytes::new() }
    }

    #[test]
    fn the_newest_row_counts_after_merges_and_after_a_new_opening() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..12u8 {
            let lsm = Lsm::open(dir.path(), 1 << 20).unwrap();
            lsm.write(&rows(0..300, &[round; 50]), &applied(u64::from(round))).unwrap();
            if round % 3 == 0 {
                while lsm.merge().unwrap() {}
            }
            for n in [0, 150, 299u32] {
                let found = lsm.get(Table::Run, &n.to_be_bytes()).unwrap().unwrap();
                assert_eq!(&*found, &[round; 50], "round {round}");
            }
            assert_eq!(lsm.applied().unwrap(), Some(applied(u64::from(round))));
        }
    }

    #[test]
    fn files_that_no_version_names_are_removed_and_all_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let lsm = Lsm::open(dir.path(), 1 << 20).unwrap();
        lsm.write(&rows(0..100, b"a"), &applied(1)).unwrap();
        let next = lsm.tree.next_table_id();
        lsm.write(&rows(50..200, b"b"), &applied(2)).unwrap();
        let left = dir.path().join("tables").join((next + 10).to_string());
        std::fs::write(&left, "half").unwrap();
        lsm.remove_unnamed_files(next);
        assert!(!left.exists());
        assert_eq!(lsm.range(Table::Run, &[], &[255; 5]).filter(Result::is_ok).count(), 200);
    }
}
