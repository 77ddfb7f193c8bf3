//! Full disks and failing syncs.

use super::fault_disk::FaultDisk;
use super::wal_tests::{all, append, entry, open, small};
use super::*;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

#[test]
fn a_failed_sync_is_final() {
    let dir = tempfile::tempdir().unwrap();
    let disk = Arc::new(FaultDisk::default());
    let wal = Wal::open(dir.path(), &small(), disk.clone()).unwrap();
    append(&wal, vec![entry(1, 0, 10)]).unwrap();
    disk.fail_syncs_after(0);
    let text = append(&wal, vec![entry(1, 1, 10)]).unwrap_err().to_string();
    assert!(text.contains("cannot be written") && text.contains("os error 5"), "{text}");
    // The disk works again, but what it holds is not known.
    disk.fail_syncs_after(100);
    assert!(append(&wal, vec![entry(1, 2, 10)]).is_err());
    wal.close();
}

/// A log with one answered entry and a group of 29 that its disk has no space for.
fn waiting_for_space(dir: &Path) -> (Arc<FaultDisk>, Wal, mpsc::Receiver<io::Result<()>>) {
    let disk = Arc::new(FaultDisk::default());
    let wal = Wal::open(dir, &small(), disk.clone()).unwrap();
    append(&wal, vec![entry(1, 0, 10)]).unwrap();
    disk.set_full(true);
    let (done, told) = mpsc::channel();
    let group: Vec<_> = (1..30).map(|index| entry(1, index, 900)).collect();
    wal.append(group, Box::new(move |result| done.send(result).unwrap())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(wal.full().wait_for(|full| *full)).unwrap();
    (disk, wal, told)
}

#[test]
fn a_full_disk_is_told_and_writing_goes_on_when_space_returns() {
    let dir = tempfile::tempdir().unwrap();
    let (disk, wal, told) = waiting_for_space(dir.path());
    assert!(told.try_recv().is_err(), "answered without space");
    disk.set_full(false);
    told.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
    assert!(!*wal.full().borrow());
    assert_eq!(all(&wal).len(), 30);
    wal.close();
}

#[test]
fn a_log_that_waits_for_space_can_be_closed_and_loses_nothing_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (_disk, wal, told) = waiting_for_space(dir.path());
    wal.close();
    assert!(told.recv().unwrap().is_err());
    let wal = open(dir.path());
    assert_eq!(all(&wal)[0], entry(1, 0, 10));
    wal.close();
}

/// A file system of its own, unmounted at the end.
struct Tiny(tempfile::TempDir);

impl Tiny {
    fn mount() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "tmpfs"])
            .arg(dir.path())
            .output();
        match mount {
            Ok(output) if output.status.success() => Some(Self(dir)),
            other => {
                assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "cannot mount: {other:?}");
                eprintln!("SKIPPED: a tiny file system cannot be mounted here: {other:?}");
                None
            }
        }
    }
}

impl Drop for Tiny {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_really_full_file_system_is_survived() {
    let Some(tiny) = Tiny::mount() else { return };
    let dir = tiny.0.path();
    let wal = open(&dir.join("wal"));
    append(&wal, vec![entry(1, 0, 10)]).unwrap();
    let ballast = dir.join("ballast");
    let full = std::fs::write(&ballast, vec![1; 256 << 10]).unwrap_err();
    assert_eq!(full.raw_os_error(), Some(libc::ENOSPC));
    let (done, told) = mpsc::channel();
    let group: Vec<_> = (1..40).map(|index| entry(1, index, 900)).collect();
    wal.append(group, Box::new(move |result| done.send(result).unwrap())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(wal.full().wait_for(|full| *full)).unwrap();
    assert!(told.try_recv().is_err(), "answered without space");
    std::fs::remove_file(&ballast).unwrap();
    told.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
    wal.close();
    let wal = open(&dir.join("wal"));
    assert_eq!(all(&wal).len(), 40);
    wal.close();
}
