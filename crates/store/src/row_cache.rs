//! Clean rows that were read from the disk, held for the next look.
//!
//! Owns: which rows are held, and the bound on their bytes. Leaves to others: when a row is no
//! longer what the disk holds (`tables` says so with [`RowCache::forget`]).
//!
//! Two generations per shard: a row that is looked up again moves to the young one, and when that
//! is full the old one is dropped as a whole.

use lsm_tree::Slice;
use parking_lot::Mutex;
use queen_core::table::Table;
use std::collections::HashMap;
use xxhash_rust::xxh3::{Xxh3DefaultBuilder, xxh3_64};

const SHARDS: usize = 16;
/// What a row costs beside its own bytes: two slices and its place in the map.
const ROW_BYTES: usize = 80;

type Rows = HashMap<(Table, Slice), Slice, Xxh3DefaultBuilder>;

#[derive(Default)]
struct Shard {
    young: Rows,
    young_bytes: usize,
    old: Rows,
}

/// The cache.
pub(crate) struct RowCache {
    shards: Vec<Mutex<Shard>>,
    generation_bytes: usize,
}

impl RowCache {
    /// A cache of at most `bytes`, which may be 0.
    pub(crate) fn new(bytes: usize) -> RowCache {
        RowCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            generation_bytes: bytes / SHARDS / 2,
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<Shard> {
        &self.shards[xxh3_64(key) as usize % SHARDS]
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Slice> {
        let mut shard = self.shard(key).lock();
        let key = (table, Slice::from(key));
        if let Some(value) = shard.young.get(&key) {
            return Some(value.clone());
        }
        let value = shard.old.remove(&key)?;
        self.add(&mut shard, key, value.clone());
        Some(value)
    }

    /// Holds a row. It must be what the disk holds, and nothing newer may be waiting to go there.
    pub(crate) fn put(&self, table: Table, key: &[u8], value: Slice) {
        self.add(&mut self.shard(key).lock(), (table, Slice::from(key)), value);
    }

    fn add(&self, shard: &mut Shard, key: (Table, Slice), value: Slice) {
        let bytes = key.1.len() + value.len() + ROW_BYTES;
        if bytes > self.generation_bytes {
            return;
        }
        if shard.young_bytes + bytes > self.generation_bytes {
            shard.old = std::mem::take(&mut shard.young);
            shard.young_bytes = 0;
        }
        if shard.young.insert(key, value).is_none() {
            shard.young_bytes += bytes;
        }
    }

    /// Lets go of a row that is about to change on the disk.
    pub(crate) fn forget(&self, table: Table, key: &[u8]) {
        let mut shard = self.shard(key).lock();
        let key = (table, Slice::from(key));
        if let Some(value) = shard.young.remove(&key) {
            shard.young_bytes -= key.1.len() + value.len() + ROW_BYTES;
        }
        shard.old.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cache: &RowCache) -> usize {
        let held = |shard: &Shard| shard.young.len() + shard.old.len();
        cache.shards.iter().map(|shard| held(&shard.lock())).sum()
    }

    #[test]
    fn a_row_in_use_outlives_many_that_are_not() {
        let cache = RowCache::new(64 << 10);
        cache.put(Table::Queue, b"hot", Slice::from("row"));
        for n in 0..100_000u32 {
            cache.put(Table::Queue, &n.to_be_bytes(), Slice::from("cold"));
            assert_eq!(cache.get(Table::Queue, b"hot").as_deref(), Some(&b"row"[..]), "{n}");
        }
        assert!(held(&cache) * ROW_BYTES <= 64 << 10, "{} rows", held(&cache));
    }

    #[test]
    fn a_forgotten_row_is_gone_from_both_generations() {
        let cache = RowCache::new(64 << 10);
        cache.put(Table::Queue, b"a", Slice::from("1"));
        cache.put(Table::Group, b"a", Slice::from("2"));
        cache.forget(Table::Queue, b"a");
        assert_eq!(cache.get(Table::Queue, b"a"), None);
        assert_eq!(cache.get(Table::Group, b"a").as_deref(), Some(&b"2"[..]));
        cache.forget(Table::Group, b"a");
        assert_eq!(cache.shards.iter().map(|s| s.lock().young_bytes).sum::<usize>(), 0);
    }

    #[test]
    fn a_row_larger_than_a_generation_is_not_held() {
        let cache = RowCache::new(0);
        cache.put(Table::Queue, b"a", Slice::from("1"));
        assert_eq!(cache.get(Table::Queue, b"a"), None);
    }
}
