//! A full disk stops writing, loses nothing, and is over when space returns.

use crate::conformance_tests::{Op, applied, apply, assert_same};
use crate::{Store, StoreOptions, space};
use queen_core::QueueId;
use queen_core::table::Table;
use queen_state::{MemoryStore, Place, Tables};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A file system of 8 MiB.
pub(crate) struct SmallDisk {
    pub(crate) dir: tempfile::TempDir,
}

impl SmallDisk {
    /// `None`, with a word about it, where mounting is not permitted; never in CI.
    pub(crate) fn mount() -> Option<SmallDisk> {
        let disk = SmallDisk { dir: tempfile::tempdir().unwrap() };
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"])
            .arg(disk.dir.path())
            .status()
            .is_ok_and(|status| status.success());
        if !mounted {
            assert!(std::env::var("CI").is_err(), "mounting a tmpfs must be permitted in CI");
            eprintln!("NOT TESTED: mounting a tmpfs is not permitted here");
            return None;
        }
        Some(disk)
    }

    /// Leaves this many bytes free, near enough.
    pub(crate) fn fill(&self, leave: u64) -> PathBuf {
        let filler = self.dir.path().join("filler");
        let mut file = fs::File::options().append(true).create(true).open(&filler).unwrap();
        loop {
            let free = space(self.dir.path()).unwrap().available;
            let more = free.saturating_sub(leave).min(64 << 10) as usize;
            if more == 0 || file.write_all(&vec![1; more]).is_err() {
                return filler;
            }
        }
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

/// Waits for what must come; a test that waits for half a minute has failed.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn push(store: &Store, model: &mut MemoryStore, index: u64, len: usize) {
    let mut guard = store.write();
    let row = Op::Put(0, index.to_be_bytes().to_vec(), vec![index as u8; 100]);
    for op in [row, Op::Append(1, false, len), Op::Append(2, index.is_multiple_of(5), 100)] {
        apply(model, &op);
        apply(&mut guard, &op);
    }
    guard.end_batch(applied(index)).unwrap();
}

fn options() -> StoreOptions {
    StoreOptions { overlay_bytes: 64 << 10, ..Default::default() }
}

fn reopen(dir: &Path, index: u64, model: &MemoryStore) {
    let (store, recovered) = Store::open(dir, options()).unwrap();
    assert_eq!(recovered.applied, Some(applied(index)));
    assert_same(&store, model);
}

#[test]
fn a_batch_waits_for_space_and_readers_do_not() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = disk.dir.path().join("data");
    let (store, _) = Store::open(&dir, options()).unwrap();
    let mut model = MemoryStore::default();
    (1..=3).for_each(|index| push(&store, &mut model, index, 1000));
    let filler = disk.fill(8 << 10);
    assert!(!store.storage_full());
    std::thread::scope(|scope| {
        let batch = scope.spawn(|| push(&store, &mut model, 4, 300_000));
        until("the disk is seen to be full", || store.storage_full());
        assert!(!batch.is_finished());
        // The batch is there for readers, bytes that no file holds included.
        let place = Place { queue: QueueId(1), segment: 1, position: 2000 };
        assert_eq!(store.read().slice(place, 301_000).unwrap().read().unwrap().len(), 301_000);
        assert!(store.read().get(Table::Meta, &4u64.to_be_bytes()).unwrap().is_some());
        fs::remove_file(&filler).unwrap();
        batch.join().unwrap();
    });
    assert!(!store.storage_full());
    push(&store, &mut model, 5, 1000);
    store.close().unwrap();
    drop(store);
    reopen(&dir, 5, &model);
}

#[test]
fn a_checkpoint_waits_for_space_and_leaves_no_files_behind() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = disk.dir.path().join("data");
    let (store, _) = Store::open(&dir, options()).unwrap();
    let mut model = MemoryStore::default();
    push(&store, &mut model, 1, 1000);
    store.checkpoint().unwrap();
    let mut guard = store.write();
    for n in 0..200u32 {
        let op = Op::Put(2, n.to_be_bytes().to_vec(), vec![n as u8; 200]);
        apply(&mut model, &op);
        apply(&mut guard, &op);
    }
    guard.end_batch(applied(2)).unwrap();
    let filler = disk.fill(0);
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint().unwrap());
        until("the disk is seen to be full", || store.storage_full());
        assert_eq!(store.durable(), Some(applied(1)));
        assert_same(&store, &model);
        fs::remove_file(&filler).unwrap();
        assert_eq!(checkpoint.join().unwrap(), Some(applied(2)));
    });
    assert!(!store.storage_full());
    let files = fs::read_dir(dir.join("tables/tables")).unwrap().count();
    assert!(files <= 2, "{files} files for two checkpoints");
    drop(store);
    reopen(&dir, 2, &model);
}

#[test]
fn closing_on_a_full_disk_ends_at_the_last_checkpoint() {
    let Some(disk) = SmallDisk::mount() else { return };
    let dir = disk.dir.path().join("data");
    let (store, _) = Store::open(&dir, options()).unwrap();
    let mut model = MemoryStore::default();
    push(&store, &mut model, 1, 1000);
    store.checkpoint().unwrap();
    let at_checkpoint = model.clone();
    push(&store, &mut model, 2, 1000);
    let filler = disk.fill(0);
    store.request_checkpoint();
    until("the disk is seen to be full", || store.storage_full());
    store.close().unwrap();
    drop(store);
    fs::remove_file(&filler).unwrap();
    reopen(&dir, 1, &at_checkpoint);
}
