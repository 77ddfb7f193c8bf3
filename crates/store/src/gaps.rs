//! Ranges of keys at which the disk holds no row, learned from scans.
//!
//! Owns: the ranges known, and their bound. Leaves to others: when they may have ended (`tables`
//! says so with [`Gaps::clear`]).
//!
//! Most scans of a broker look for what has just become due or was just written, which is in
//! memory: with this they need not look at the disk each time to find nothing.

use crate::overlay::{Key, KeyBytes};
use lsm_tree::Slice;
use parking_lot::RwLock;
use queen_core::table::Table;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Ranges known per table; beyond it all of the table's are forgotten.
const RANGES_MAX: usize = 1024;

/// From a key to the first row at or above it; `None` when the table ends before one.
type Ranges = BTreeMap<Key, Option<Slice>>;

/// What is known.
pub(crate) struct Gaps {
    tables: Vec<RwLock<Ranges>>,
}

impl Gaps {
    pub(crate) fn new() -> Gaps {
        let last = Table::ALL.iter().map(|&table| table as usize).max().unwrap_or(0);
        Gaps { tables: (0..=last).map(|_| RwLock::default()).collect() }
    }

    /// Whether no row is known to have a key with `from <= key < to`.
    pub(crate) fn cover(&self, table: Table, from: &[u8], to: &[u8]) -> bool {
        let ranges = self.tables[table as usize].read();
        let up_to = (Bound::Unbounded, Bound::Included(KeyBytes::new(from)));
        match ranges.range::<KeyBytes, _>(up_to).next_back() {
            Some((_, Some(first))) => **first >= *to,
            Some((_, None)) => true,
            None => false,
        }
    }

    /// No row lies from `from` up to `first`, or to the end of the table.
    pub(crate) fn learn(&self, table: Table, from: &[u8], first: Option<&[u8]>) {
        let mut ranges = self.tables[table as usize].write();
        if ranges.len() >= RANGES_MAX {
            ranges.clear();
        }
        ranges.insert(Key::from(from), first.map(Slice::from));
    }

    /// Rows have been written: nothing is known any more.
    pub(crate) fn clear(&self) {
        self.tables.iter().for_each(|ranges| ranges.write().clear());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_covers_what_lies_within_it_and_no_more() {
        let gaps = Gaps::new();
        assert!(!gaps.cover(Table::Ready, b"b", b"c"));
        gaps.learn(Table::Ready, b"b", Some(b"m"));
        for (from, to, covered) in [
            ("b", "m", true),
            ("c", "d", true),
            ("b", "m0", false),
            ("a", "c", false),
            ("m", "n", false),
        ] {
            assert_eq!(gaps.cover(Table::Ready, from.as_bytes(), to.as_bytes()), covered, "{from}");
        }
        assert!(!gaps.cover(Table::Tail, b"c", b"d"));
        gaps.learn(Table::Ready, b"m", None);
        assert!(gaps.cover(Table::Ready, b"z", b"zz"));
        gaps.clear();
        assert!(!gaps.cover(Table::Ready, b"c", b"d"));
    }

    #[test]
    fn what_is_known_is_bounded() {
        let gaps = Gaps::new();
        (0..5000u32).for_each(|n| gaps.learn(Table::Tail, &n.to_be_bytes(), Some(b"x")));
        assert!(gaps.tables[Table::Tail as usize].read().len() <= RANGES_MAX);
    }
}
