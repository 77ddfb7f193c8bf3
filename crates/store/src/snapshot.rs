//! What the tables on disk hold at one moment, read without a lock.
//!
//! Owns: the way round the tree's own lock, which is held while a checkpoint or a merge syncs the
//! version file: a read through the tree would wait for the disk. Leaves to others: taking a new
//! snapshot when the tree has changed (`lsm`).
//!
//! The files of a snapshot stay until it is dropped, merged or not.

use lsm_tree::table::filter::standard_bloom;
use lsm_tree::{AbstractTree, AnyTree, SeqNo, Slice, Tree};

type Value = lsm_tree::Result<Option<Slice>>;
/// Rows in key order.
pub(crate) type Rows = Box<dyn DoubleEndedIterator<Item = lsm_tree::Result<(Slice, Slice)>>>;
type Get = dyn Fn(&[u8]) -> Value + Send + Sync;
type Range = dyn Fn(Slice, Slice) -> Rows + Send + Sync;

/// A view of the tree.
pub(crate) struct Snapshot {
    // Closures, for the library does not give a name to the version that they hold.
    get: Box<Get>,
    range: Box<Range>,
}

impl Snapshot {
    /// The tree as it is now. Waits when its version file is being synced.
    pub(crate) fn take(tree: &AnyTree) -> Snapshot {
        let version = tree.current_version();
        let get = move |key: &[u8]| {
            let hash = standard_bloom::Builder::get_hash(key);
            // Newest files first: the first that knows the key is right.
            for run in version.iter_levels().flat_map(|level| level.iter()) {
                let Some(table) = run.get_for_key(key) else { continue };
                if let Some(found) = table.get(key, SeqNo::MAX, hash)? {
                    return Ok((!found.is_tombstone()).then_some(found.value));
                }
            }
            Ok(None)
        };
        let version = tree.get_version_history_lock().latest_version();
        let range = move |from: Slice, to: Slice| -> Rows {
            let rows = Tree::create_internal_range(version.clone(), &(from..to), SeqNo::MAX, None);
            Box::new(rows.map(|row| row.map(|row| (row.key.user_key, row.value))))
        };
        Snapshot { get: Box::new(get), range: Box::new(range) }
    }

    /// The value at a key of the tree.
    pub(crate) fn get(&self, key: &[u8]) -> Value {
        (self.get)(key)
    }

    /// Rows with `from <= key < to`.
    pub(crate) fn range(&self, from: Slice, to: Slice) -> Rows {
        (self.range)(from, to)
    }
}
