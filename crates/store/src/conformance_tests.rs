//! The store holds what its twin in memory holds, through checkpoints, restarts and crashes.

use crate::{Applied, Store, StoreOptions};
use bytes::Bytes;
use proptest::prelude::*;
use queen_core::row::{Row, SegmentRow, key};
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use queen_state::{MemoryStore, Place, QueueLogs, Storage, Tables};
use std::collections::BTreeMap;
use std::path::Path;

/// Few tables and keys, so that rows meet in all layers.
const TABLES: [Table; 3] = [Table::Meta, Table::Partition, Table::Kv];

#[derive(Clone, Debug)]
pub(crate) enum Op {
    Put(usize, Vec<u8>, Vec<u8>),
    Insert(usize, Vec<u8>, Vec<u8>),
    Delete(usize, Vec<u8>),
    /// Queue, whether a new segment begins, length of the run.
    Append(u32, bool, usize),
    RemoveSegment(u32),
    RemoveQueue(u32),
    Checkpoint,
    CloseAndOpen,
    DropAndOpen,
    Compare(usize, Vec<u8>, Vec<u8>, usize),
}

fn key_bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => proptest::collection::vec(0u8..4, 0..3),
        1 => proptest::collection::vec(254u8..=255, 0..24),
        1 => proptest::collection::vec(Just(7u8), 60..70),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    let value = || proptest::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        8 => (0..3usize, key_bytes(), value()).prop_map(|(t, k, v)| Op::Put(t, k, v)),
        8 => (0..3usize, key_bytes(), value()).prop_map(|(t, k, v)| Op::Insert(t, k, v)),
        8 => (0..3usize, key_bytes()).prop_map(|(t, k)| Op::Delete(t, k)),
        8 => (1..4u32, any::<bool>(), 1..5000usize).prop_map(|(q, n, l)| Op::Append(q, n, l)),
        1 => (1..4u32).prop_map(Op::RemoveSegment),
        1 => (1..4u32).prop_map(Op::RemoveQueue),
        3 => Just(Op::Checkpoint),
        1 => Just(Op::CloseAndOpen),
        1 => Just(Op::DropAndOpen),
        6 => (0..3usize, key_bytes(), key_bytes(), 0..6usize)
            .prop_map(|(t, a, b, l)| Op::Compare(t, a, b, l)),
    ]
}

/// The newest segment of each queue, as the rules would know it: a new incarnation when removed.
fn newest(model: &impl Tables, queue: u32) -> (QueueId, Option<(u32, SegmentRow)>) {
    let word = model.get(Table::Queue, &key::queue(QueueId(queue))).unwrap();
    let incarnation = word.map_or(0, |word| u32::from(word[0]));
    let id = QueueId(queue + 10 * incarnation);
    let from = key::segment(id, 0);
    let to = key::after_prefix(&from[..4]);
    let row = model.scan_back(Table::Segment, &from, &to, 1).unwrap().pop();
    let row =
        row.map(|(k, v)| (key::segment_parts(&k).unwrap().1, SegmentRow::decode(&v).unwrap()));
    (id, row)
}

/// Does to a store what the operation says, the same to any.
pub(crate) fn apply(store: &mut impl Storage, op: &Op) {
    match op {
        Op::Put(t, k, v) => store.put(TABLES[*t], k, v),
        Op::Insert(t, k, v) if store.get(TABLES[*t], k).unwrap().is_none() => {
            store.insert(TABLES[*t], k, v);
        }
        Op::Delete(t, k) => store.delete(TABLES[*t], k),
        Op::Append(queue, new, len) => {
            let (id, last) = newest(store, *queue);
            let (segment, mut row) = match last {
                Some((segment, row)) if !new => (segment, row),
                last => (last.map_or(1, |(segment, _)| segment + 1), empty_segment()),
            };
            let bytes: Vec<u8> = (0..*len).map(|n| (n as u64 * 31 + row.bytes) as u8).collect();
            let (head, tail) = bytes.split_at(len / 3);
            let place = Place { queue: id, segment, position: row.bytes };
            store.write(place, &[head, tail]).unwrap();
            assert_eq!(store.read(place, *len).unwrap(), bytes);
            row.bytes += *len as u64;
            store.put(Table::Segment, &key::segment(id, segment), &row.encode());
        }
        Op::RemoveSegment(queue) => {
            let (id, last) = newest(store, *queue);
            let from = key::segment(id, 0);
            let oldest =
                store.scan(Table::Segment, &from, &key::after_prefix(&from[..4]), 1).unwrap();
            // The newest stays, as it holds the next number.
            if let (Some((k, _)), Some((newest, _))) = (oldest.first(), last) {
                let segment = key::segment_parts(k).unwrap().1;
                if segment < newest {
                    store.delete(Table::Segment, k);
                    store.remove_segment(id, segment);
                }
            }
        }
        Op::RemoveQueue(queue) => {
            let (id, _) = newest(store, *queue);
            let from = key::segment(id, 0);
            let to = key::after_prefix(&from[..4]);
            for (k, _) in store.scan(Table::Segment, &from, &to, usize::MAX).unwrap() {
                store.delete(Table::Segment, &k);
            }
            store.remove_queue(id);
            let next = (id.0 / 10 + 1) as u8;
            store.put(Table::Queue, &key::queue(QueueId(*queue)), &[next]);
        }
        _ => {}
    }
}

fn empty_segment() -> SegmentRow {
    SegmentRow { bytes: 0, first: Stamp(1), last: Stamp(1), runs: 0, messages: 0, trimmed: 0 }
}

pub(crate) fn assert_same(store: &Store, model: &MemoryStore) {
    let view = store.read();
    for &table in Table::ALL {
        let top = [0xff; 80];
        let rows = view.scan(table, &[], &top, usize::MAX).unwrap();
        assert_eq!(rows, model.scan(table, &[], &top, usize::MAX).unwrap(), "{}", table.name());
        let back = view.scan_back(table, &[], &top, usize::MAX).unwrap();
        assert!(back.iter().eq(rows.iter().rev()), "{} backwards", table.name());
        for (key, value) in &rows {
            assert_eq!(view.get(table, key).unwrap().as_ref(), Some(value));
        }
    }
    for (k, v) in model.scan(Table::Segment, &[], &[0xff; 9], usize::MAX).unwrap() {
        let (queue, segment) = key::segment_parts(&k).unwrap();
        let len = SegmentRow::decode(&v).unwrap().bytes as usize;
        let place = Place { queue, segment, position: 0 };
        assert_eq!(view.read(place, len).unwrap(), model.read(place, len).unwrap(), "{place:?}");
    }
}

pub(crate) fn applied(index: u64) -> Applied {
    Applied { index, mark: Bytes::copy_from_slice(&index.to_be_bytes()) }
}

pub(crate) fn small() -> StoreOptions {
    StoreOptions {
        overlay_bytes: 4 << 10,
        row_cache_bytes: 8 << 10,
        open_files: 8,
        ..Default::default()
    }
}

fn reopened(dir: &Path, models: &BTreeMap<u64, MemoryStore>, least: u64) -> (Store, u64) {
    let (store, recovered) = Store::open(dir, small()).unwrap();
    let index = recovered.applied.as_ref().map_or(0, |applied| applied.index);
    assert!(index >= least, "stands at {index}, but {least} was durable");
    assert_eq!(recovered.applied.unwrap_or(applied(0)), applied(index));
    assert_same(&store, &models[&index]);
    (store, index)
}

fn run(ops: Vec<(Op, bool)>) {
    let dir = tempfile::tempdir().unwrap();
    let mut model = MemoryStore::default();
    let mut models = BTreeMap::from([(0, model.clone())]);
    let (mut store, _) = Store::open(dir.path(), small()).unwrap();
    let mut index = 0;
    let mut guard_ops = Vec::new();
    for (op, ends) in ops {
        match op {
            Op::Checkpoint => {
                store.checkpoint().unwrap();
                assert_eq!(store.durable().map_or(0, |durable| durable.index), index);
            }
            Op::CloseAndOpen | Op::DropAndOpen => {
                let close = matches!(op, Op::CloseAndOpen);
                let least = if close {
                    store.close().unwrap();
                    index
                } else {
                    store.durable().map_or(0, |durable| durable.index)
                };
                drop(store);
                (store, index) = reopened(dir.path(), &models, least);
                model = models[&index].clone();
                models.retain(|&at, _| at <= index);
            }
            Op::Compare(t, a, b, limit) => {
                let view = store.read();
                let t = TABLES[t];
                assert_eq!(view.get(t, &a).unwrap(), model.get(t, &a).unwrap());
                assert_eq!(
                    view.scan(t, &a, &b, limit).unwrap(),
                    model.scan(t, &a, &b, limit).unwrap()
                );
                assert_eq!(
                    view.scan_back(t, &a, &b, limit).unwrap(),
                    model.scan_back(t, &a, &b, limit).unwrap()
                );
            }
            op => guard_ops.push(op),
        }
        if ends && !guard_ops.is_empty() {
            index += 1;
            let mut guard = store.write();
            for op in guard_ops.drain(..) {
                apply(&mut model, &op);
                apply(&mut guard, &op);
            }
            guard.end_batch(applied(index)).unwrap();
            models.insert(index, model.clone());
        }
    }
    assert_same(&store, &model);
    for queue in 1..80 {
        // These runs are no real ones: the scrub must say so of each queue that has any.
        let found = store.scrub(QueueId(queue)).unwrap();
        let from = key::segment(QueueId(queue), 0);
        let any = model.scan(Table::Segment, &from, &key::after_prefix(&from[..4]), 1).unwrap();
        assert_eq!(found.is_empty(), any.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..Default::default() })]

    #[test]
    fn the_store_holds_what_its_twin_in_memory_holds(
        ops in proptest::collection::vec((op(), prop::bool::weighted(0.6)), 1..200)
    ) {
        run(ops);
    }
}
