//! Power lost: what a node wrote and did not sync is gone.
//!
//! Owns: the library that keeps what it takes to undo writes (`power.c`), undoing them. Leaves to
//! others: killing the node.

use super::preload::{compile, name};
use crate::chance::Chance;
use anyhow::Context;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The library, and the records of one node; dropped, they go.
pub struct Power {
    folder: tempfile::TempDir,
    library: PathBuf,
    disk: PathBuf,
}

/// A change that was not synced.
#[derive(Debug)]
struct Change {
    at: u64,
    had: Vec<u8>,
    size: u64,
}

/// Reads records; a last one that is not whole was never followed by its change.
fn changes(mut bytes: &[u8]) -> Vec<Change> {
    let mut changes = Vec::new();
    let number = |at: usize, bytes: &[u8]| {
        let bytes = bytes.get(at..at + 8)?.try_into().ok()?;
        u64::try_from(i64::from_ne_bytes(bytes)).ok()
    };
    let one = |bytes: &[u8]| {
        let (at, len, size) = (number(0, bytes)?, number(8, bytes)?, number(16, bytes)?);
        let had = bytes.get(24..24usize.checked_add(usize::try_from(len).ok()?)?)?.to_vec();
        Some(Change { at, had, size })
    };
    while let Some(change) = one(bytes) {
        bytes = &bytes[24 + change.had.len()..];
        changes.push(change);
    }
    changes
}

/// All files below a folder by the names of their records.
fn files(folder: &Path) -> anyhow::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let about = path.symlink_metadata()?;
        if about.is_dir() {
            found.extend(files(&path)?);
        } else {
            let born = about.created()?.duration_since(UNIX_EPOCH)?;
            let (seconds, nanos) = (born.as_secs(), born.subsec_nanos());
            found.insert(format!("{}-{seconds}-{nanos}", about.ino()), path);
        }
    }
    Ok(found)
}

impl Power {
    /// For the node whose data directory this is; an error that says what is missing.
    pub fn new(disk: &Path) -> anyhow::Result<Power> {
        let folder = tempfile::Builder::new().prefix("queen-power-").tempdir()?;
        let library = compile(include_str!("power.c"), folder.path())?;
        std::fs::create_dir(folder.path().join("undo"))?;
        Ok(Power { folder, library, disk: disk.to_owned() })
    }

    fn undo(&self) -> PathBuf {
        self.folder.path().join("undo")
    }

    /// Has the writes of a process recorded that is started with these variables.
    pub fn watch(&self, variables: &mut BTreeMap<String, String>) {
        name(&self.library, variables);
        let disk = format!("{}/", self.disk.display());
        variables.insert("FAULT_DISK".to_owned(), disk);
        variables.insert("FAULT_UNDO".to_owned(), self.undo().display().to_string());
    }

    /// Undoes what is not synced, the node being dead: all of it, or of each file the last part. Gives
    /// the number of changes that were undone.
    pub fn lose(&self, chance: &mut Chance) -> anyhow::Result<u64> {
        let files = files(&self.disk)?;
        let (all, mut undone) = (chance.below(2) == 0, 0);
        let mut records: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(self.undo())? {
            records.push(entry?.path());
        }
        records.sort();
        for record in records {
            let changes = changes(&std::fs::read(&record)?);
            let name = record.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let kept = if all { 0 } else { chance.below(changes.len() as u64 + 1) as usize };
            // A file that was removed meanwhile is lost with all that was written to it.
            if let Some(path) = files.get(&name) {
                let file = OpenOptions::new().write(true).open(path)?;
                for change in changes.iter().skip(kept).rev() {
                    take_back(&file, change).with_context(|| format!("undo {}", path.display()))?;
                    undone += 1;
                }
            }
            std::fs::remove_file(&record)?;
        }
        Ok(undone)
    }
}

fn take_back(file: &File, change: &Change) -> std::io::Result<()> {
    file.write_all_at(&change.had, change.at)?;
    file.set_len(change.size)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::process::Command;

    /// What a shell command leaves of a folder, before and after the power is lost.
    fn left(command: &str) -> (String, String) {
        let disk = tempfile::tempdir().unwrap();
        let power = Power::new(disk.path()).unwrap();
        let mut variables = BTreeMap::new();
        power.watch(&mut variables);
        let python = "import os, sys\nf = os.open('f', os.O_RDWR | os.O_CREAT)\n";
        let mut shell = Command::new("python3");
        shell.args(["-c", &format!("{python}{command}")]).envs(variables).current_dir(disk.path());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = || std::fs::read_to_string(disk.path().join("f")).unwrap();
        let before = text();
        // A chance whose first draw takes all.
        let mut chance = (0..).map(Chance::new).find(|chance| chance.clone().below(2) == 0);
        power.lose(chance.as_mut().unwrap()).unwrap();
        (before, text())
    }

    #[test]
    fn what_was_synced_stays_and_what_was_not_goes() {
        let sync = "os.write(f, b'synced')\nos.fsync(f)\n";
        let told = |more: &str| left(&format!("{sync}{more}"));
        let was = |now: &str| (now.to_owned(), "synced".to_owned());
        assert_eq!(told(""), was("synced"));
        assert_eq!(told("os.write(f, b' not')"), was("synced not"));
        assert_eq!(told("os.pwrite(f, b'lost', 1)"), was("slostd"));
        assert_eq!(told("os.pwrite(f, b'll', 1)\nos.pwrite(f, b'mm', 2)"), was("slmmed"));
        assert_eq!(told("os.ftruncate(f, 2)"), was("sy"));
        assert_eq!(told("os.ftruncate(f, 2)\nos.write(f, b'!')"), was("sy\0\0\0\0!"));
        assert_eq!(told("os.posix_fallocate(f, 0, 8)"), was("synced\0\0"));
        assert_eq!(told("os.writev(f, [b'a', b'b'])"), was("syncedab"));
        assert_eq!(left("os.write(f, b'not')"), ("not".to_owned(), String::new()));
        let both = ("ab".to_owned(), "ab".to_owned());
        assert_eq!(left("os.write(f, b'a')\nos.write(f, b'b')\nos.fdatasync(f)"), both);
    }

    #[test]
    fn a_part_may_be_left_and_the_rest_goes_from_the_end() {
        let disk = tempfile::tempdir().unwrap();
        let power = Power::new(disk.path()).unwrap();
        let mut seen = BTreeSet::<String>::new();
        for seed in 0..12 {
            let mut variables = BTreeMap::new();
            power.watch(&mut variables);
            let script = "import os\nf = os.open('f', os.O_RDWR | os.O_CREAT | os.O_TRUNC)\n\
                          [os.write(f, c) for c in (b'a', b'b', b'c')]";
            let mut python = Command::new("python3");
            python.args(["-c", script]).envs(variables).current_dir(disk.path());
            assert!(python.status().unwrap().success());
            power.lose(&mut Chance::new(seed)).unwrap();
            seen.insert(std::fs::read_to_string(disk.path().join("f")).unwrap());
        }
        assert!(seen.contains("") && seen.len() > 1, "{seen:?}");
        assert!(seen.iter().all(|left| "abc".starts_with(left)), "{seen:?}");
    }
}
