//! Starts after crashes: torn tails, damage, rolled back sectors, copies made while writing.

use super::fault_disk::FaultDisk;
use super::format::{RECORDS_START, record_bytes};
use super::wal_tests::{all, append, entry, open, small};
use super::*;
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const FIRST: &str = "00000000000000000000.wal";

/// A log of `groups`, each of so many entries of 100 bytes, closed; and the position of each record.
fn written(groups: &[u64]) -> (tempfile::TempDir, Vec<u64>) {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let (mut next, mut position, mut positions) = (0, RECORDS_START, Vec::new());
    for count in groups {
        let group: Vec<_> = (next..next + count).map(|index| entry(1, index, 100)).collect();
        for entry in &group {
            positions.push(position);
            position += record_bytes(entry);
        }
        append(&wal, group).unwrap();
        next += count;
    }
    wal.close();
    positions.push(position);
    (dir, positions)
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let path = item.unwrap().path();
        std::fs::copy(&path, to.path().join(path.file_name().unwrap())).unwrap();
    }
    to
}

fn file(dir: &Path) -> std::fs::File {
    std::fs::OpenOptions::new().read(true).write(true).open(dir.join(FIRST)).unwrap()
}

fn flip(dir: &Path, position: u64) {
    let mut byte = [0];
    file(dir).read_exact_at(&mut byte, position).unwrap();
    file(dir).write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

fn start_error(dir: &Path) -> StartError {
    match Wal::open(dir, &small(), Arc::new(RealDisk)) {
        Ok(wal) => {
            wal.close();
            panic!("the log was opened");
        }
        Err(error) => error,
    }
}

/// Opens, expects `count` entries, appends one of another size, and expects it after another start.
fn goes_on_after(dir: &Path, count: u64) {
    let wal = open(dir);
    assert_eq!(all(&wal), (0..count).map(|index| entry(1, index, 100)).collect::<Vec<_>>());
    append(&wal, vec![entry(2, count, 100)]).unwrap();
    wal.close();
    let wal = open(dir);
    let last = all(&wal);
    assert_eq!(last.len() as u64, count + 1);
    assert_eq!(last.last(), Some(&entry(2, count, 100)));
    wal.close();
}

#[test]
fn a_tail_cut_at_any_byte_loses_only_the_records_that_are_not_whole() {
    let (dir, positions) = written(&[2, 1, 3]);
    let end = *positions.last().unwrap();
    for cut in positions[4]..end {
        // What counts of a record ends before its padding.
        let whole = positions.windows(2).filter(|pair| pair[1] <= cut).count() as u64;
        let zeroed = copy(dir.path());
        file(zeroed.path()).write_all_at(&vec![0; (end - cut) as usize], cut).unwrap();
        let wal = open(zeroed.path());
        let found = all(&wal).len() as u64;
        wal.close();
        assert!(found == whole || found == whole + 1, "cut at {cut}: {found}, {whole}");
        if cut % 16 == 0 {
            goes_on_after(zeroed.path(), found);
        }
        let shortened = copy(dir.path());
        file(shortened.path()).set_len(cut).unwrap();
        let wal = open(shortened.path());
        assert!(all(&wal).len() as u64 >= whole);
        wal.close();
    }
}

#[test]
fn a_flipped_bit_in_the_last_group_is_a_torn_tail() {
    let (dir, positions) = written(&[2, 3]);
    for (at, position) in positions.iter().enumerate().take(5).skip(2) {
        for byte in [0, 3, 9, 13, 17, 30, 37] {
            let flipped = copy(dir.path());
            flip(flipped.path(), position + byte);
            goes_on_after(flipped.path(), at as u64);
        }
    }
}

#[test]
fn a_bad_record_that_was_answered_for_stops_the_start() {
    let (dir, positions) = written(&[2, 3, 1]);
    for (at, position) in positions.iter().enumerate().take(5) {
        let flipped = copy(dir.path());
        flip(flipped.path(), position + 20);
        let text = start_error(flipped.path()).to_string();
        assert!(text.contains(&format!("{FIRST} is damaged at byte {position}: ")), "{text}");
        assert!(text.contains(&format!("entry {at} cannot be read")), "{text}");
        assert!(text.contains("restore the whole data directory"), "{text}");
    }
}

#[test]
fn a_bad_record_before_another_file_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    append(&wal, (0..30).map(|index| entry(1, index, 900)).collect()).unwrap();
    wal.close();
    flip(dir.path(), RECORDS_START + 50);
    let text = start_error(dir.path()).to_string();
    assert!(text.contains(&format!("{FIRST} is damaged at byte 4096: ")), "{text}");
}

#[test]
fn a_damaged_or_newer_header_stops_the_start() {
    let (dir, _) = written(&[2]);
    let flipped = copy(dir.path());
    flip(flipped.path(), 17);
    let text = start_error(flipped.path()).to_string();
    assert!(text.contains("is damaged at byte 0"), "{text}");
    let mut header = [0; 40];
    file(dir.path()).read_exact_at(&mut header, 0).unwrap();
    header[4] = 2;
    let crc = crc32fast::hash(&header[..36]);
    header[36..].copy_from_slice(&crc.to_le_bytes());
    file(dir.path()).write_all_at(&header, 0).unwrap();
    let text = start_error(dir.path()).to_string();
    assert!(text.contains("has format version 2, this release reads up to 1"), "{text}");
}

#[test]
fn a_file_that_was_never_begun_is_kept_as_a_spare() {
    let (dir, _) = written(&[2]);
    let begun = |name: &str| dir.path().join(name).exists();
    std::fs::write(dir.path().join("00000000000000000002.wal"), vec![0; 16 << 10]).unwrap();
    std::fs::write(dir.path().join("00000000000000000000.spare"), vec![0; 8 << 10]).unwrap();
    goes_on_after(dir.path(), 2);
    assert!(begun("00000000000000000002.spare") && !begun("00000000000000000002.wal"));
    assert!(!begun("00000000000000000000.spare"), "a spare of an unusual size was kept");
}

#[test]
fn records_of_a_torn_group_do_not_come_back_behind_new_ones() {
    // The first record of the last group is lost; a new one of the same size takes its place. What
    // stood behind it in the file must stay void.
    let (dir, positions) = written(&[1, 3]);
    file(dir.path()).write_all_at(&[0; 40], positions[1]).unwrap();
    goes_on_after(dir.path(), 1);
    // The same where the torn group is all there is in the file.
    let (dir, positions) = written(&[3]);
    file(dir.path()).write_all_at(&[0; 40], positions[0]).unwrap();
    goes_on_after(dir.path(), 0);
}

#[test]
fn a_copy_made_while_writing_holds_all_that_was_answered_for() {
    let dir = tempfile::tempdir().unwrap();
    let wal = open(dir.path());
    let answered = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (wal, told) = (wal.clone(), answered.clone());
        scope.spawn(move || {
            for index in 0..400 {
                append(&wal, vec![entry(1, index, 700)]).unwrap();
                told.store(index + 1, Ordering::SeqCst);
            }
        });
        loop {
            let before = answered.load(Ordering::SeqCst);
            let copied = copy(dir.path());
            let opened = open(copied.path());
            let found = all(&opened);
            opened.close();
            assert!(found.len() as u64 >= before, "{} of {before}", found.len());
            assert!(found.iter().zip(0..).all(|(one, index)| *one == entry(1, index, 700)));
            if before == 400 {
                break;
            }
        }
    });
    wal.close();
}

/// Writes groups until a sync fails, then rolls back sectors that were not synced.
fn power_cut(
    groups: &[Vec<u16>],
    syncs: u64,
    seed: u64,
) -> (tempfile::TempDir, Vec<WalEntry>, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_owned();
    let disk = Arc::new(FaultDisk::default());
    let wal = Wal::open(&path, &small(), disk.clone()).unwrap();
    disk.fail_syncs_after(syncs);
    let (mut next, mut answered) = (0, Vec::new());
    for sizes in groups {
        let group: Vec<_> =
            sizes.iter().zip(next..).map(|(size, at)| entry(1, at, usize::from(*size))).collect();
        next += group.len() as u64;
        match append(&wal, group.clone()) {
            Ok(()) => answered.extend(group),
            Err(error) => {
                assert!(error.to_string().contains("cannot be written"), "{error}");
                break;
            }
        }
    }
    wal.close();
    let mut state = seed | 1;
    disk.cut_power(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state & 1 == 0
    });
    (dir, answered, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_was_answered_for_survives_the_loss_of_any_unsynced_sectors(
        groups in proptest::collection::vec(proptest::collection::vec(0u16..1500, 1..6), 1..20),
        syncs in 0u64..24,
        seed: u64,
    ) {
        let (_dir, answered, path) = power_cut(&groups, syncs, seed);
        let wal = open(&path);
        let found = all(&wal);
        prop_assert!(found.len() >= answered.len());
        prop_assert_eq!(&found[..answered.len()], &answered[..]);
        // It goes on, and nothing of the lost group comes back.
        let next = found.len() as u64;
        let more: Vec<_> = (next..next + 3).map(|index| entry(2, index, 64)).collect();
        append(&wal, more.clone()).unwrap();
        wal.close();
        let wal = open(&path);
        let again = all(&wal);
        wal.close();
        prop_assert_eq!(&again[..found.len()], &found[..]);
        prop_assert_eq!(&again[found.len()..], &more[..]);
    }
}
