//! What a crash leaves, by kill and by loss of power, opens at a checkpoint that was whole.

use crate::checkpoint::Step;
use crate::conformance_tests::{Op, applied, apply, assert_same, small};
use crate::options::AtStep;
use crate::{OpenError, Store, StoreOptions};
use parking_lot::Mutex;
use queen_core::QueueId;
use queen_core::row::{Row, SegmentRow, key};
use queen_core::table::Table;
use queen_state::{MemoryStore, Tables};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    // What is being removed may be gone at any moment.
    for child in fs::read_dir(from).into_iter().flatten().flatten() {
        let target = to.join(child.file_name());
        match child.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => copy_dir(&child.path(), &target),
            // Gone meanwhile: a merge has ended, and the version file has changed with it.
            false => drop(fs::copy(child.path(), target)),
        }
    }
}

/// The directory as a kill would leave it now: copied until no merge has changed it meanwhile.
pub(crate) fn image(dir: &Path) -> tempfile::TempDir {
    let version = || fs::read(dir.join("tables/current")).ok();
    for _ in 0..100 {
        let image = tempfile::tempdir().unwrap();
        let before = version();
        copy_dir(dir, image.path());
        if before == version() {
            return image;
        }
    }
    panic!("merges never end");
}

/// A batch of rows and runs that differs from any other.
pub(crate) fn batch(n: u8) -> Vec<Op> {
    let mut ops = vec![
        Op::Put(0, vec![n], vec![n; 30]),
        Op::Put(1, b"same".to_vec(), vec![n; 10]),
        Op::Insert(2, vec![n], vec![n]),
        Op::Delete(2, vec![n.wrapping_sub(1)]),
        Op::Append(1, n.is_multiple_of(3), 700),
        Op::Append(2, false, 40),
    ];
    if n % 4 == 3 {
        ops.extend([Op::RemoveSegment(1), Op::RemoveQueue(2), Op::Append(2, false, 9)]);
    }
    ops
}

pub(crate) fn push(store: &Store, model: &mut MemoryStore, n: u8) {
    let mut guard = store.write();
    for op in batch(n) {
        apply(model, &op);
        apply(&mut guard, &op);
    }
    guard.end_batch(applied(u64::from(n))).unwrap();
}

pub(crate) fn log_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for queue in fs::read_dir(dir.join("queues")).unwrap() {
        let queue = queue.unwrap().path();
        files.extend(fs::read_dir(queue).unwrap().map(|file| file.unwrap().path()));
    }
    files.sort();
    files
}

#[test]
fn a_kill_between_any_two_steps_leaves_the_old_or_the_new_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let images = Arc::new(Mutex::new(Vec::new()));
    let (at, taken) = (dir.path().to_owned(), images.clone());
    let at_step = AtStep(Arc::new(move |step| taken.lock().push((step, image(&at)))));
    let options = StoreOptions { at_step: Some(at_step), ..small() };
    let (store, _) = Store::open(dir.path(), options).unwrap();
    let (mut model, mut old) = (MemoryStore::default(), (0, MemoryStore::default()));
    for n in 1..=24u8 {
        push(&store, &mut model, n);
        if n % 4 != 0 {
            continue;
        }
        store.checkpoint().unwrap();
        // The last step may still be on its way when the checkpoint is told.
        let taken: Vec<_> =
            images.lock().drain(..).filter(|(step, _)| *step != Step::Told).collect();
        assert_eq!(taken.len(), 4);
        for (step, image) in taken {
            let is_new = matches!(step, Step::RowsWritten | Step::Removed);
            let (index, twin) = if is_new { (u64::from(n), &model) } else { (old.0, &old.1) };
            let (opened, recovered) = Store::open(image.path(), small()).unwrap();
            assert_eq!(recovered.applied.map_or(0, |a| a.index), index, "{step:?}");
            assert_same(&opened, twin);
            let named = twin.scan(Table::Segment, &[], &[0xff; 9], usize::MAX).unwrap().len();
            assert_eq!(log_files(image.path()).len(), named, "{step:?}");
        }
        old = (u64::from(n), model.clone());
    }
}

/// How loss of power may treat the bytes of a file that were written after the last sync.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// They and the file names are gone.
    All,
    /// The file has its length, the bytes are zero.
    Zeroed,
    /// Half of them are there, the end of those is not what was written.
    Torn,
}

fn lose(live: &Path, synced: &Path, loss: Loss) {
    for file in log_files(live) {
        let was = synced.join(file.strip_prefix(live).unwrap());
        let kept = fs::read(&was).unwrap_or_default();
        let mut bytes = fs::read(&file).unwrap();
        assert!(bytes.starts_with(&kept), "synced bytes have changed in {}", file.display());
        match loss {
            Loss::All if !was.exists() => {
                fs::remove_file(&file).unwrap();
                continue;
            }
            Loss::All => bytes = kept,
            Loss::Zeroed => bytes[kept.len()..].fill(0),
            Loss::Torn => {
                bytes.truncate(kept.len() + (bytes.len() - kept.len()) / 2);
                let torn = bytes.len().saturating_sub(16).max(kept.len());
                bytes[torn..].fill(0xa5);
            }
        }
        fs::write(&file, bytes).unwrap();
    }
}

#[test]
fn writes_that_were_not_synced_may_be_lost_in_any_way() {
    for loss in [Loss::All, Loss::Zeroed, Loss::Torn] {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
        let mut model = MemoryStore::default();
        (1..=6).for_each(|n| push(&store, &mut model, n));
        store.checkpoint().unwrap();
        let (synced, at_checkpoint) = (image(dir.path()), model.clone());
        // Removal is part of it: what was removed since must still be there.
        (7..=16).for_each(|n| push(&store, &mut model, n));
        let lost = image(dir.path());
        lose(lost.path(), synced.path(), loss);
        drop(store);

        let (opened, recovered) = Store::open(lost.path(), small()).unwrap();
        assert_eq!(recovered.applied, Some(applied(6)), "{loss:?}");
        assert_same(&opened, &at_checkpoint);
        // The replay comes to the same state, and writes the same bytes.
        let mut again = at_checkpoint;
        (7..=16).for_each(|n| push(&opened, &mut again, n));
        opened.checkpoint().unwrap();
        assert_same(&opened, &model);
    }
}

#[test]
fn tables_rolled_back_to_the_last_checkpoint_find_their_logs() {
    let dir = tempfile::tempdir().unwrap();
    let files_before_rows = Arc::new(Mutex::new(None));
    let (at, taken) = (dir.path().to_owned(), files_before_rows.clone());
    let at_step = AtStep(Arc::new(move |step| {
        if step == Step::LogsSynced {
            *taken.lock() = Some(image(&at));
        }
    }));
    let options = StoreOptions { at_step: Some(at_step), ..StoreOptions::default() };
    let (store, _) = Store::open(dir.path(), options).unwrap();
    let mut model = MemoryStore::default();
    (1..=6).for_each(|n| push(&store, &mut model, n));
    store.checkpoint().unwrap();
    let at_checkpoint = model.clone();
    (7..=16).for_each(|n| push(&store, &mut model, n));
    store.checkpoint().unwrap();
    // The second checkpoint had all its logs, and none of its rows.
    let image = files_before_rows.lock().take().unwrap();
    let (opened, recovered) = Store::open(image.path(), small()).unwrap();
    assert_eq!(recovered.applied, Some(applied(6)));
    assert!(recovered.cut_files > 0 && recovered.removed_files > 0, "{recovered:?}");
    assert_same(&opened, &at_checkpoint);
}

#[test]
fn a_log_shorter_than_its_row_stops_the_start_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let mut model = MemoryStore::default();
    (1..=3).for_each(|n| push(&store, &mut model, n));
    store.close().unwrap();
    drop(store);
    let file = log_files(dir.path()).remove(0);
    let bytes = fs::read(&file).unwrap();
    fs::write(dir.path().join("queues/1/0000000099.log"), "no row names it").unwrap();
    for found in [0, bytes.len() - 1] {
        fs::write(&file, &bytes[..found]).unwrap();
        let Err(error) = Store::open(dir.path(), StoreOptions::default()) else {
            panic!("opened with {found} bytes");
        };
        let text = error.to_string();
        assert!(matches!(error, OpenError::LogShort { .. }), "{text}");
        assert!(text.contains(&file.display().to_string()), "{text}");
        assert!(text.contains(&format!("has {found} bytes")), "{text}");
        assert!(text.contains(&format!("say {}", bytes.len())), "{text}");
        assert!(dir.path().join("queues/1/0000000099.log").exists());
    }
    fs::remove_file(&file).unwrap();
    let error = Store::open(dir.path(), StoreOptions::default()).err().unwrap();
    assert!(matches!(error, OpenError::LogMissing { .. }), "{error}");
    assert!(error.to_string().contains(&format!("{} is missing", file.display())), "{error}");
    fs::write(&file, &bytes).unwrap();
    let (opened, recovered) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!((recovered.cut_files, recovered.removed_files), (0, 1));
    assert_same(&opened, &model);
}

#[test]
fn files_that_are_not_ours_stay() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("queues/5")).unwrap();
    for name in ["queues/note", "queues/5/note", "queues/5/1.log"] {
        fs::write(dir.path().join(name), "x").unwrap();
    }
    fs::write(dir.path().join("queues/5/0000000001.log"), "x").unwrap();
    let (_, recovered) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(recovered.removed_files, 1);
    for name in ["queues/note", "queues/5/note", "queues/5/1.log"] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
}

#[test]
fn a_batch_that_is_not_ended_fails_the_store_and_no_checkpoint_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    let mut model = MemoryStore::default();
    push(&store, &mut model, 1);
    apply(&mut store.write(), &Op::Put(0, b"half".to_vec(), b"half".to_vec()));
    assert!(store.failed().is_some());
    assert!(store.checkpoint().is_err());
    assert!(store.write().end_batch(applied(2)).is_err());
    drop(store);
    let (_, recovered) = Store::open(dir.path(), StoreOptions::default()).unwrap();
    assert_eq!(recovered.applied, None);
}

#[test]
fn many_queues_need_few_handles() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = Store::open(dir.path(), small()).unwrap();
    let mut model = MemoryStore::default();
    for round in 1..=2 {
        let mut guard = store.write();
        for queue in 1..=1500 {
            let op = Op::Append(queue * 100_000, false, 50);
            apply(&mut model, &op);
            apply(&mut guard, &op);
        }
        guard.end_batch(applied(round)).unwrap();
        let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        assert!(open < 200, "{open} handles");
    }
    store.close().unwrap();
    drop(store);
    let (opened, recovered) = Store::open(dir.path(), small()).unwrap();
    assert_eq!(recovered.applied, Some(applied(2)));
    let place = queen_state::Place { queue: QueueId(150_000_000), segment: 1, position: 0 };
    let row = opened.read().get(Table::Segment, &key::segment(place.queue, 1)).unwrap().unwrap();
    assert_eq!(SegmentRow::decode(&row).unwrap().bytes, 100);
    assert_eq!(opened.read().slice(place, 100).unwrap().read().unwrap().len(), 100);
}

/// Run by the next test in a process that may open few files.
#[test]
#[ignore = "run by a_process_that_may_open_few_files_goes_on"]
fn among_few_files() {
    let dir = tempfile::tempdir().unwrap();
    let options = StoreOptions { open_files: 512, ..small() };
    let (store, _) = Store::open(dir.path(), options).unwrap();
    let mut model = MemoryStore::default();
    for round in 1..=6 {
        let mut guard = store.write();
        for queue in 1..=60 {
            let name = Op::Put(1, vec![queue as u8], vec![round as u8; 100]);
            for op in [name, Op::Append(queue * 1000, false, 50)] {
                apply(&mut model, &op);
                apply(&mut guard, &op);
            }
        }
        guard.end_batch(applied(round)).unwrap();
        assert_same(&store, &model);
        store.checkpoint().unwrap();
    }
    assert_same(&store, &model);
}

#[test]
fn a_process_that_may_open_few_files_goes_on() {
    let name = "crash_tests::among_few_files";
    let done = std::process::Command::new("sh")
        .args(["-c", "ulimit -n 40 && exec timeout 60 \"$0\" --exact \"$1\" --ignored --nocapture"])
        .arg(std::env::current_exe().unwrap())
        .arg(name)
        .output()
        .unwrap();
    let text = format!("{done:?}");
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}
