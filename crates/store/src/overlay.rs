//! The dirty rows: what was written since the tables on disk were last brought up to date.
//!
//! Owns: the ordered maps and their size. Leaves to others: looking below them (`tables`), writing
//! them down (`lsm`).

use lsm_tree::Slice;
use queen_core::table::Table;
use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;

/// What a row costs beside its own bytes: its place in the map and the allocator's share.
const ROW_BYTES: usize = 96;

/// Bytes compared eight at a time; sorts as plain bytes do.
#[derive(PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct KeyBytes([u8]);

impl KeyBytes {
    pub(crate) fn new(bytes: &[u8]) -> &KeyBytes {
        // SAFETY: `KeyBytes` is a transparent wrapper of `[u8]`.
        unsafe { &*(std::ptr::from_ref(bytes) as *const KeyBytes) }
    }
}

impl Ord for KeyBytes {
    fn cmp(&self, other: &KeyBytes) -> Ordering {
        let (mut a, mut b) = (&self.0, &other.0);
        while let (Some((first_a, rest_a)), Some((first_b, rest_b))) =
            (a.split_first_chunk::<8>(), b.split_first_chunk::<8>())
        {
            match u64::from_be_bytes(*first_a).cmp(&u64::from_be_bytes(*first_b)) {
                Ordering::Equal => (a, b) = (rest_a, rest_b),
                unequal => return unequal,
            }
        }
        a.cmp(b)
    }
}

impl PartialOrd for KeyBytes {
    fn partial_cmp(&self, other: &KeyBytes) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A key, held in place up to 20 bytes.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Key(Slice);

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl From<&[u8]> for Key {
    fn from(bytes: &[u8]) -> Key {
        Key(Slice::from(bytes))
    }
}

impl Borrow<KeyBytes> for Key {
    fn borrow(&self) -> &KeyBytes {
        KeyBytes::new(&self.0)
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Key) -> Ordering {
        KeyBytes::new(self).cmp(KeyBytes::new(other))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Key) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// What the overlay knows of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Dirty {
    /// A row, and nothing lies below it: a delete leaves no trace.
    Fresh(Slice),
    /// A row that may hide another below.
    Set(Slice),
    /// No row, whatever lies below.
    Gone,
}

impl Dirty {
    pub(crate) fn value(&self) -> Option<&Slice> {
        match self {
            Dirty::Fresh(value) | Dirty::Set(value) => Some(value),
            Dirty::Gone => None,
        }
    }
}

/// Dirty rows of all tables, each table in key order.
pub(crate) struct Overlay {
    tables: Vec<BTreeMap<Key, Dirty>>,
    bytes: usize,
}

impl Default for Overlay {
    fn default() -> Overlay {
        let last = Table::ALL.iter().map(|&table| table as usize).max().unwrap_or(0);
        Overlay { tables: (0..=last).map(|_| BTreeMap::new()).collect(), bytes: 0 }
    }
}

impl Overlay {
    /// Memory in use, near enough. Bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<&Dirty> {
        self.tables[table as usize].get(KeyBytes::new(key))
    }

    /// Rows and traces of deleted ones with `from <= key < to`. `from` must not be above `to`.
    pub(crate) fn range<'a>(
        &'a self,
        table: Table,
        from: &'a [u8],
        to: &'a [u8],
    ) -> impl DoubleEndedIterator<Item = (&'a [u8], &'a Dirty)> {
        let range = (Bound::Included(KeyBytes::new(from)), Bound::Excluded(KeyBytes::new(to)));
        self.tables[table as usize].range::<KeyBytes, _>(range).map(|(key, dirty)| (&**key, dirty))
    }

    /// All rows and traces, tables in number order, keys ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Table, &[u8], &Dirty)> {
        Table::ALL.iter().flat_map(|&table| {
            self.tables[table as usize].iter().map(move |(key, dirty)| (table, &**key, dirty))
        })
    }

    /// Sets a row. `fresh`: the caller vouches that no row is at the key, here or below.
    pub(crate) fn put(&mut self, table: Table, key: &[u8], value: &[u8], fresh: bool) {
        use std::collections::btree_map::Entry;
        let row = Slice::from(value);
        match self.tables[table as usize].entry(Key::from(key)) {
            Entry::Vacant(vacant) => {
                vacant.insert(if fresh { Dirty::Fresh(row) } else { Dirty::Set(row) });
                self.bytes += key.len() + value.len() + ROW_BYTES;
            }
            Entry::Occupied(mut occupied) => {
                let old = occupied.get_mut();
                self.bytes += value.len();
                self.bytes -= old.value().map_or(0, |old| old.len());
                // What is deleted here may still lie below, so it is not fresh again.
                *old = match old {
                    Dirty::Fresh(_) => Dirty::Fresh(row),
                    Dirty::Set(_) | Dirty::Gone => Dirty::Set(row),
                };
            }
        }
    }

    /// Removes a row.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) {
        use std::collections::btree_map::Entry;
        match self.tables[table as usize].entry(Key::from(key)) {
            Entry::Vacant(vacant) => {
                vacant.insert(Dirty::Gone);
                self.bytes += key.len() + ROW_BYTES;
            }
            Entry::Occupied(mut occupied) => {
                self.bytes -= occupied.get().value().map_or(0, |value| value.len());
                if matches!(occupied.get(), Dirty::Fresh(_)) {
                    occupied.remove();
                    self.bytes -= key.len() + ROW_BYTES;
                } else {
                    *occupied.get_mut() = Dirty::Gone;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_fresh_row_that_is_deleted_leaves_no_trace() {
        let mut overlay = Overlay::default();
        overlay.put(Table::Tail, b"k", b"one", true);
        overlay.put(Table::Tail, b"k", b"another", false);
        overlay.delete(Table::Tail, b"k");
        assert!(overlay.is_empty());
        assert_eq!(overlay.bytes(), 0);
    }

    #[test]
    fn a_row_that_may_hide_another_leaves_a_trace_even_when_inserted_again() {
        let mut overlay = Overlay::default();
        overlay.put(Table::Tail, b"k", b"v", false);
        overlay.delete(Table::Tail, b"k");
        assert_eq!(overlay.get(Table::Tail, b"k"), Some(&Dirty::Gone));
        overlay.put(Table::Tail, b"k", b"v", true);
        overlay.delete(Table::Tail, b"k");
        assert_eq!(overlay.get(Table::Tail, b"k"), Some(&Dirty::Gone));
        assert_eq!(overlay.bytes(), 1 + ROW_BYTES);
    }

    proptest! {
        #[test]
        fn keys_sort_as_their_bytes_do(
            a in proptest::collection::vec(0u8..3, 0..20),
            b in proptest::collection::vec(0u8..3, 0..20),
        ) {
            prop_assert_eq!(KeyBytes::new(&a).cmp(KeyBytes::new(&b)), a.cmp(&b));
        }
    }
}
