//! An image is what its store was, arrives whole or not at all, and takes the place of all at once.

use crate::checkpoint::Step;
use crate::conformance_tests::{Op, applied, apply, assert_same, op, small};
use crate::crash_tests::{batch, copy_dir, image, log_files, push};
use crate::full_disk_tests::{SmallDisk, until};
use crate::options::AtStep;
use crate::stream::{Block, Decoder, Encoder};
use crate::{Export, ImageError, Import, Part, Store, StoreOptions};
use parking_lot::Mutex;
use proptest::prelude::*;
use queen_core::QueueId;
use queen_core::table::Table;
use queen_state::{MemoryStore, Tables};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

fn stream(mut export: Export) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::new(), Vec::new());
    loop {
        piece.clear();
        let more = export.read(&mut piece).unwrap();
        assert!(piece.len() <= crate::PIECE_BYTES_MAX);
        all.extend_from_slice(&piece);
        if !more {
            return all;
        }
    }
}

fn received(store: &Store, bytes: &[u8]) -> Import {
    let mut import = store.import().unwrap();
    bytes.chunks(1000).for_each(|piece| import.write(piece).unwrap());
    import
}

/// A store with batches up to `n`.
fn filled(dir: &Path, n: u8) -> (Store, MemoryStore) {
    let (store, _) = Store::open(dir, small()).unwrap();
    let mut model = MemoryStore::default();
    (1..=n).for_each(|n| push(&store, &mut model, n));
    (store, model)
}

fn exported(n: u8) -> (Vec<u8>, MemoryStore) {
    let dir = tempfile::tempdir().unwrap();
    let (store, model) = filled(dir.path(), n);
    store.checkpoint().unwrap();
    (stream(store.export().unwrap()), model)
}

/// Directories of images, and files that name one, in the store's directory.
fn leftovers(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|child| child.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("image-") || name == "root.new").collect()
}

#[test]
fn an_image_takes_the_place_of_all_without_a_new_opening() {
    let (bytes, model) = exported(20);
    let dir = tempfile::tempdir().unwrap();
    let (store, mut own) = filled(dir.path(), 7);
    let told = Arc::new(Mutex::new(Vec::new()));
    let watcher = told.clone();
    store.on_durable(move |applied| watcher.lock().push(applied.index));
    let slice = store
        .read()
        .slice(queen_state::Place { queue: QueueId(1), segment: 2, position: 0 }, 700)
        .unwrap();
    let import = received(&store, &bytes);
    // It goes on as it is meanwhile.
    push(&store, &mut own, 8);
    assert_same(&store, &own);
    let size = import.size().unwrap();
    assert!(size.segments > 0 && size.segment_bytes > 0 && size.table_bytes > 0);
    assert_eq!(import.install().unwrap(), applied(20));
    assert_same(&store, &model);
    assert_eq!(store.read().applied(), Some(&applied(20)));
    assert_eq!(store.durable(), Some(applied(20)));
    assert_eq!(told.lock().last(), Some(&20));
    // Who had the right to read before still has it.
    assert_eq!(slice.read().unwrap().len(), 700);
    until("the files of before are removed", || !dir.path().join("queues").exists());
    // And on it goes.
    let mut model = model;
    (21..=30).for_each(|n| push(&store, &mut model, n));
    store.close().unwrap();
    drop(store);
    let (store, recovered) = Store::open(dir.path(), small()).unwrap();
    assert_eq!(recovered.applied, Some(applied(30)));
    assert_same(&store, &model);
    // An image over an image.
    let (bytes, model) = exported(40);
    received(&store, &bytes).install().unwrap();
    assert_same(&store, &model);
    until("the first image is removed", || leftovers(dir.path()).len() == 1);
    drop(store);
    assert_same(&Store::open(dir.path(), small()).unwrap().0, &model);
}

#[test]
fn a_crash_anywhere_leaves_the_old_store_or_the_new_one_and_nothing_else() {
    let (bytes, new) = exported(20);
    let dir = tempfile::tempdir().unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let (at, taken) = (dir.path().to_owned(), images.clone());
    let on = Arc::new(AtomicBool::new(false));
    let is_on = on.clone();
    let at_step = AtStep(Arc::new(move |step| {
        if is_on.load(Ordering::Relaxed) {
            let image = image(&at);
            taken.lock().push((Some(step), image));
        }
    }));
    let (store, _) =
        Store::open(dir.path(), StoreOptions { at_step: Some(at_step), ..small() }).unwrap();
    let mut old = MemoryStore::default();
    (1..=7).for_each(|n| push(&store, &mut old, n));
    store.checkpoint().unwrap();
    on.store(true, Ordering::Relaxed);
    let mut import = store.import().unwrap();
    for piece in bytes.chunks(bytes.len() / 20) {
        import.write(piece).unwrap();
        images.lock().push((None, image(dir.path())));
    }
    import.install().unwrap();
    on.store(false, Ordering::Relaxed);
    let images = std::mem::take(&mut *images.lock());
    let steps: Vec<Step> = images.iter().filter_map(|(step, _)| *step).collect();
    let last =
        [Step::ImportSynced, Step::RootPrepared, Step::Switched, Step::RootSynced, Step::Replaced];
    assert!(steps.ends_with(&last), "{steps:?}");
    for (step, image) in images {
        let is_new = matches!(step, Some(Step::Switched | Step::RootSynced | Step::Replaced));
        let (index, model) = if is_new { (20, &new) } else { (7, &old) };
        let (opened, recovered) = Store::open(image.path(), small()).unwrap();
        assert_eq!(recovered.applied, Some(applied(index)), "{step:?}");
        assert_same(&opened, model);
        assert_eq!(leftovers(image.path()).len(), usize::from(is_new), "{step:?}");
        assert_eq!(image.path().join("queues").exists(), !is_new, "{step:?}");
    }
}

#[test]
fn a_name_that_power_has_lost_leaves_the_old_store() {
    // The rename was seen and never synced: the directory holds both names' files, the old name.
    let (bytes, new) = exported(20);
    let dir = tempfile::tempdir().unwrap();
    let (store, old) = filled(dir.path(), 7);
    store.checkpoint().unwrap();
    let before = image(dir.path());
    received(&store, &bytes).install().unwrap();
    let number = fs::read(dir.path().join("root")).unwrap();
    copy_dir(dir.path(), before.path());
    fs::rename(before.path().join("root"), before.path().join("root.new")).unwrap();
    let kept = image(before.path());
    let (opened, _) = Store::open(before.path(), small()).unwrap();
    assert_same(&opened, &old);
    assert!(leftovers(before.path()).is_empty());
    fs::write(kept.path().join("root"), number).unwrap();
    let (opened, _) = Store::open(kept.path(), small()).unwrap();
    assert_same(&opened, &new);
}

#[test]
fn a_damaged_root_file_or_one_that_names_nothing_stops_the_start() {
    let (bytes, model) = exported(20);
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), small()).unwrap();
    received(&store, &bytes).install().unwrap();
    drop(store);
    let root = dir.path().join("root");
    let good = fs::read(&root).unwrap();
    let mut bad = good.clone();
    bad[6] ^= 1;
    fs::write(&root, bad).unwrap();
    let error = Store::open(dir.path(), small()).err().unwrap().to_string();
    assert!(error.contains("root"), "{error}");
    fs::write(&root, good).unwrap();
    let moved = dir.path().join("elsewhere");
    fs::rename(dir.path().join("image-1"), &moved).unwrap();
    let error = Store::open(dir.path(), small()).err().unwrap().to_string();
    assert!(error.contains("image-1"), "{error}");
    fs::rename(&moved, dir.path().join("image-1")).unwrap();
    assert_same(&Store::open(dir.path(), small()).unwrap().0, &model);
}

#[test]
fn a_stream_that_ends_anywhere_before_its_end_is_refused_and_leaves_nothing() {
    let (bytes, _) = exported(4);
    let dir = tempfile::tempdir().unwrap();
    let (store, own) = filled(dir.path(), 2);
    for cut in (0..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let error = received(&store, &bytes[..cut]).install().unwrap_err();
        assert!(matches!(error, ImageError::Damaged(_)), "cut at {cut}: {error}");
        assert!(leftovers(dir.path()).is_empty(), "cut at {cut}");
    }
    assert_same(&store, &own);
    // Dropped half way.
    drop(received(&store, &bytes[..bytes.len() / 2]));
    assert!(leftovers(dir.path()).is_empty());
    let mut import = received(&store, &bytes);
    assert!(matches!(import.write(b"x"), Err(ImageError::Damaged(_))));
    assert!(matches!(import.write(b""), Err(ImageError::Damaged(_))));
    assert!(matches!(import.install(), Err(ImageError::Damaged(_))));
    assert!(leftovers(dir.path()).is_empty());
}

#[test]
fn a_flipped_bit_anywhere_in_the_stream_is_refused() {
    let (bytes, _) = exported(4);
    // Every bit of every byte, by the decoder alone.
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let mut decoder = Decoder::default();
        decoder.feed(&bad);
        let mut ended = false;
        let refused = loop {
            match decoder.next() {
                Ok(Some(block)) => ended |= block == Block::End,
                Ok(None) => break !ended,
                Err(_) => break true,
            }
        };
        assert!(refused, "byte {at}");
    }
    let dir = tempfile::tempdir().unwrap();
    let (store, own) = filled(dir.path(), 2);
    for at in (0..bytes.len()).step_by(211) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x10;
        let mut import = store.import().unwrap();
        let written = import.write(&bad);
        assert!(written.is_err() || import.install().is_err(), "byte {at}");
        assert!(leftovers(dir.path()).is_empty(), "byte {at}");
    }
    assert_same(&store, &own);
}

/// The blocks of a good stream, changed, and sent with checksums that hold.
fn sent_wrong(store: &Store, bytes: &[u8], change: impl Fn(&mut Vec<Block>)) -> String {
    let mut decoder = Decoder::default();
    decoder.feed(bytes);
    let mut blocks: Vec<Block> = std::iter::from_fn(|| decoder.next().unwrap()).collect();
    change(&mut blocks);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::begin(&mut bytes);
    blocks.iter().for_each(|block| encoder.block(block, &mut bytes));
    let mut import = store.import().unwrap();
    let error = import.write(&bytes).err().or_else(|| import.install().err()).unwrap();
    assert!(matches!(error, ImageError::Damaged(_)), "{error}");
    error.to_string()
}

#[test]
fn a_stream_that_was_sent_wrong_is_refused() {
    let (bytes, _) = exported(4);
    let dir = tempfile::tempdir().unwrap();
    let (store, own) = filled(dir.path(), 2);
    let section = |blocks: &[Block], begins: &Block| {
        let begin = blocks.iter().position(|block| block == begins).unwrap();
        let len = blocks[begin..].iter().position(|block| matches!(block, Block::Close { .. }));
        begin..=begin + len.unwrap()
    };
    let cut = |begins: &'static Block| {
        move |blocks: &mut Vec<Block>| drop(blocks.drain(section(blocks, begins)))
    };
    type Change<'a> = Box<dyn Fn(&mut Vec<Block>) + 'a>;
    let changes: Vec<(&str, Change<'_>)> = vec![
        (
            "without",
            Box::new(|blocks| {
                let is_segment = |block: &Block| matches!(block, Block::Segment { .. });
                let last = blocks.iter().rposition(is_segment).unwrap();
                blocks.truncate(last);
                blocks.push(Block::End);
            }),
        ),
        (
            "another number of segments",
            Box::new(|blocks| {
                if let Block::Head(head) = &mut blocks[0] {
                    head.segment_bytes += 1;
                }
            }),
        ),
        (
            "hash of a section",
            Box::new(|blocks| {
                for block in blocks {
                    if let Block::Close { hash, .. } = block {
                        *hash ^= 1;
                    }
                }
            }),
        ),
        ("the tables say None", Box::new(cut(&Block::Table(Table::Segment as u8)))),
        (
            "comes too late",
            Box::new(|blocks| {
                let table = blocks[section(blocks, &Block::Table(0))].to_vec();
                blocks.splice(1..1, table);
            }),
        ),
        ("newer release", Box::new(|blocks| blocks[1] = Block::Table(200))),
        ("may not", Box::new(|blocks| drop(blocks.remove(0)))),
        ("may not", Box::new(|blocks| drop(blocks.remove(1)))),
        (
            "do not rise",
            Box::new(|blocks| {
                let twice = [&[1, 0, 0, 0, 0, 0, 0, 0, 7][..]; 2].concat();
                blocks.insert(2, Block::Data(twice.into()));
            }),
        ),
        (
            "a row of table meta has",
            Box::new(|blocks| {
                blocks.insert(2, Block::Data(bytes::Bytes::from_static(&[255; 8])));
            }),
        ),
    ];
    for (why, change) in changes {
        let text = sent_wrong(&store, &bytes, change);
        assert!(text.contains(why), "{why}: {text}");
        assert!(leftovers(dir.path()).is_empty(), "{why}");
    }
    assert_same(&store, &own);
}

/// Rows of many lengths, in more bytes than a section is read at once.
fn with_long_tables(dir: &Path) -> (Store, MemoryStore) {
    let (store, mut model) = filled(dir, 4);
    let mut guard = store.write();
    for n in 0..3000u32 {
        let value = vec![n as u8; (n as usize * 37) % 700];
        let op = Op::Put(2, n.to_be_bytes().to_vec(), value);
        apply(&mut model, &op);
        apply(&mut guard, &op);
    }
    guard.end_batch(applied(5)).unwrap();
    store.checkpoint().unwrap();
    (store, model)
}

#[test]
fn a_table_of_many_chunks_and_rows_cut_between_blocks_arrives_whole() {
    let source = tempfile::tempdir().unwrap();
    let (store, model) = with_long_tables(source.path());
    let bytes = stream(store.export().unwrap());
    let mut decoder = Decoder::default();
    decoder.feed(&bytes);
    let blocks: Vec<Block> = std::iter::from_fn(|| decoder.next().unwrap()).collect();
    let several = blocks.windows(2).any(|two| matches!(two, [Block::Data(_), Block::Data(_)]));
    assert!(several, "no section has several blocks");
    // Now every row is cut somewhere, also within its lengths.
    let mut cut = Vec::new();
    let mut encoder = Encoder::begin(&mut cut);
    for block in &blocks {
        match block {
            Block::Data(data) => data.chunks(7).for_each(|part| {
                encoder.block(&Block::Data(data.slice_ref(part)), &mut cut);
            }),
            block => encoder.block(block, &mut cut),
        }
    }
    let digest = store.digest().unwrap();
    for bytes in [bytes, cut] {
        let dir = tempfile::tempdir().unwrap();
        let (other, _) = Store::open(dir.path(), small()).unwrap();
        received(&other, &bytes).install().unwrap();
        assert_same(&other, &model);
        assert_eq!(other.digest().unwrap(), digest);
    }
}

#[test]
fn an_image_that_stands_before_the_store_is_refused_and_an_empty_store_has_none() {
    let (bytes, _) = exported(4);
    let dir = tempfile::tempdir().unwrap();
    let (store, own) = filled(dir.path(), 5);
    let error = received(&store, &bytes).install().unwrap_err();
    assert!(matches!(error, ImageError::Older { image: 4, store: 5 }), "{error}");
    assert!(leftovers(dir.path()).is_empty());
    assert_same(&store, &own);
    assert_eq!(store.failed(), None);
    let empty = tempfile::tempdir().unwrap();
    let (empty, _) = Store::open(empty.path(), small()).unwrap();
    assert!(matches!(empty.export(), Err(ImageError::Empty)));
    assert!(matches!(empty.digest(), Err(ImageError::Empty)));
}

#[test]
fn files_of_an_image_stay_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (store, mut model) = filled(dir.path(), 6);
    store.checkpoint().unwrap();
    let at_export = model.clone();
    let (first, second) = (store.export().unwrap(), store.export().unwrap());
    let old = log_files(dir.path());
    (7..=16).for_each(|n| push(&store, &mut model, n));
    store.checkpoint().unwrap();
    drop(first);
    assert!(old.iter().all(|file| file.exists()));
    let target = tempfile::tempdir().unwrap();
    let (other, _) = Store::open(target.path(), small()).unwrap();
    received(&other, &stream(second)).install().unwrap();
    assert_same(&other, &at_export);
    let named = model.scan(Table::Segment, &[], &[0xff; 9], usize::MAX).unwrap().len();
    assert_eq!(log_files(dir.path()).len(), named);
    assert!(!old.iter().all(|file| file.exists()));
}

#[test]
fn an_image_is_sent_on_while_its_store_installs_another() {
    let (bytes, new) = exported(20);
    let dir = tempfile::tempdir().unwrap();
    let (store, old) = filled(dir.path(), 6);
    store.checkpoint().unwrap();
    let export = store.export().unwrap();
    received(&store, &bytes).install().unwrap();
    let target = tempfile::tempdir().unwrap();
    let (other, _) = Store::open(target.path(), small()).unwrap();
    received(&other, &stream(export)).install().unwrap();
    assert_same(&other, &old);
    assert_same(&store, &new);
    until("the files of before are removed", || !dir.path().join("queues").exists());
}

#[test]
fn readers_see_what_was_before_or_what_is_now() {
    let (bytes, _) = exported(40);
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = filled(dir.path(), 7);
    store.checkpoint().unwrap();
    let seen = [AtomicBool::new(false), AtomicBool::new(false)];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let view = store.read();
                    let index = view.applied().unwrap().index;
                    let row = view.get(Table::Partition, b"same").unwrap().unwrap();
                    let rows = view.scan(Table::Meta, &[], &[0xff; 9], usize::MAX).unwrap();
                    assert_eq!((&row[..], rows.len()), (&[index as u8; 10][..], index as usize));
                    assert!(index == 7 || index == 40);
                    seen[usize::from(index == 40)].store(true, Ordering::Relaxed);
                }
            });
        }
        until("the old one is read", || seen[0].load(Ordering::Relaxed));
        received(&store, &bytes).install().unwrap();
        until("the new one is read", || seen[1].load(Ordering::Relaxed));
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_full_disk_ends_an_import_and_leaves_nothing() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = disk.dir.path().join("data");
    let (store, mut model) = filled(&dir, 3);
    store.checkpoint().unwrap();
    let free = crate::space(&dir).unwrap().available;
    let noise =
        (0..9u64 << 17).flat_map(|n| xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()).to_le_bytes());
    // Too long a segment, and too long a row.
    for op in [Op::Append(1, false, 9 << 20), Op::Put(2, b"big".to_vec(), noise.collect())] {
        let source = tempfile::tempdir().unwrap();
        let (big, mut big_model) = filled(source.path(), 3);
        let mut guard = big.write();
        apply(&mut big_model, &op);
        apply(&mut guard, &op);
        guard.end_batch(applied(9)).unwrap();
        big.checkpoint().unwrap();
        let bytes = stream(big.export().unwrap());
        for pieces in [1000, 1 << 20] {
            let mut import = store.import().unwrap();
            let error = bytes.chunks(pieces).find_map(|piece| import.write(piece).err()).unwrap();
            let error = std::io::Error::from(error);
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
            assert!(leftovers(&dir).is_empty());
            assert!(crate::space(&dir).unwrap().available >= free - (64 << 10));
        }
        // A larger disk takes it.
        let target = tempfile::tempdir().unwrap();
        let (other, _) = Store::open(target.path(), small()).unwrap();
        received(&other, &bytes).install().unwrap();
        assert_same(&other, &big_model);
    }
    assert!(!store.storage_full());
    push(&store, &mut model, 4);
    store.checkpoint().unwrap();
    assert_same(&store, &model);
}

#[test]
fn a_checkpoint_that_waits_for_space_gives_way_to_an_image() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (bytes, new) = exported(20);
    let dir = disk.dir.path().join("data");
    let disk = Arc::new(disk);
    let cell: Arc<OnceLock<Store>> = Arc::default();
    let (stores, filled_up) = (cell.clone(), disk.clone());
    let at_step = AtStep(Arc::new(move |step| {
        if step == Step::RootPrepared {
            filled_up.fill(0);
            let store = stores.get().unwrap();
            store.request_checkpoint();
            until("the disk is seen to be full", || store.storage_full());
        }
    }));
    let options = StoreOptions { at_step: Some(at_step), overlay_bytes: 1 << 20, ..small() };
    let (store, _) = Store::open(&dir, options).unwrap();
    assert!(cell.set(store.clone()).is_ok());
    let mut own = MemoryStore::default();
    (1..=7).for_each(|n| push(&store, &mut own, n));
    received(&store, &bytes).install().unwrap();
    assert!(!store.storage_full());
    assert_eq!(store.failed(), None);
    assert_same(&store, &new);
    fs::remove_file(disk.dir.path().join("filler")).unwrap();
    let mut new = new;
    push(&store, &mut new, 21);
    assert_eq!(store.checkpoint().unwrap(), Some(applied(21)));
    drop(store);
    assert_same(&Store::open(&dir, small()).unwrap().0, &new);
    // The hook's handle lives in the options that its own store holds.
    std::mem::forget(cell);
}

#[test]
fn a_digest_tells_which_table_or_segment_differs() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [(one, _), (two, _)] = [0, 1].map(|n: usize| filled(dirs[n].path(), 9));
    // Other checkpoints, hence other files, hence other merges.
    one.checkpoint().unwrap();
    let mut model = MemoryStore::default();
    (1..=9).for_each(|n| batch(n).iter().for_each(|op| apply(&mut model, op)));
    let mut again = model.clone();
    (10..=19).for_each(|n| push(&one, &mut model, n));
    for n in 10..=19 {
        push(&two, &mut again, n);
        two.checkpoint().unwrap();
    }
    let (digest, other) = (one.digest().unwrap(), two.digest().unwrap());
    assert_eq!(digest.differences(&other), [""; 0]);
    assert_eq!((digest.total(), digest.to_string()), (other.total(), other.to_string()));
    assert_eq!(digest, other);
    // After a new start and a replay of nothing it is still the same.
    drop(two);
    let (two, _) = Store::open(dirs[1].path(), small()).unwrap();
    assert_eq!(two.digest().unwrap(), digest);
    let mut guard = two.write();
    apply(&mut guard, &Op::Put(2, b"other".to_vec(), b"x".to_vec()));
    guard.end_batch(applied(19)).unwrap();
    let mut guard = two.write();
    apply(&mut guard, &Op::Append(1, true, 5));
    guard.end_batch(applied(20)).unwrap();
    let other = two.digest().unwrap();
    assert_ne!(digest.total(), other.total());
    let lines = digest.differences(&other);
    assert_eq!(lines.len(), 4, "{lines:?}");
    for (line, begin) in
        lines.iter().zip(["applied up to 19", "table segment", "table kv", "segment "])
    {
        assert!(line.starts_with(begin), "{line}");
    }
    assert!(other.parts.contains_key(&Part::Table(Table::Kv)));
}

/// Images of a store that is written to, each sent bit by bit meanwhile.
fn run(ops: Vec<(Op, bool)>) {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), small()).unwrap();
    let mut model = MemoryStore::default();
    let mut models = BTreeMap::new();
    let mut exports: Vec<(Export, Vec<u8>)> = Vec::new();
    let mut whole = Vec::new();
    let (mut index, mut batch) = (0, Vec::new());
    for (op, ends) in ops {
        match op {
            Op::Checkpoint if index > 0 => {
                store.checkpoint().unwrap();
                let mut export = store.export().unwrap();
                export.set_piece_bytes(50);
                exports.push((export, Vec::new()));
            }
            op => batch.push(op),
        }
        if ends && !batch.is_empty() {
            index += 1;
            let mut guard = store.write();
            for op in batch.drain(..) {
                apply(&mut model, &op);
                apply(&mut guard, &op);
            }
            guard.end_batch(applied(index)).unwrap();
            models.insert(index, model.clone());
        }
        exports.retain_mut(|(export, bytes)| {
            let mut piece = Vec::new();
            let more = export.read(&mut piece).unwrap();
            bytes.extend_from_slice(&piece);
            if !more {
                whole.push((export.applied().index, std::mem::take(bytes)));
            }
            more
        });
    }
    for (export, mut bytes) in exports {
        let index = export.applied().index;
        bytes.extend(stream(export));
        whole.push((index, bytes));
    }
    let target = tempfile::tempdir().unwrap();
    let (other, _) = Store::open(target.path(), small()).unwrap();
    for (index, bytes) in whole {
        if other.read().applied().is_some_and(|applied| applied.index > index) {
            continue;
        }
        assert_eq!(received(&other, &bytes).install().unwrap(), applied(index));
        assert_same(&other, &models[&index]);
        assert_eq!(stream(other.export().unwrap())[..12], bytes[..12]);
        let digest = other.digest().unwrap();
        let reopened = tempfile::tempdir().unwrap();
        let (third, _) = Store::open(reopened.path(), small()).unwrap();
        received(&third, &stream(other.export().unwrap())).install().unwrap();
        assert_eq!(third.digest().unwrap(), digest);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..Default::default() })]

    #[test]
    fn an_image_taken_while_others_write_is_the_twin_of_its_position(
        ops in proptest::collection::vec((op(), prop::bool::weighted(0.6)), 1..120)
    ) {
        run(ops);
    }
}
