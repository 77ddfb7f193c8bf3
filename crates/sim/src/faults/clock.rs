//! The wall clocks of the nodes, each of which can be set.
//!
//! Owns: the library that moves a process's clock (`clock.c`), a file for each node that says how far.
//! Leaves to others: when it is set.

use super::preload::{compile, name};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The library and the files; dropped, they go.
pub struct Clocks {
    folder: tempfile::TempDir,
    library: PathBuf,
    moved: Vec<i64>,
}

impl Clocks {
    /// Clocks that are right, for so many nodes; an error that says what is missing.
    pub fn new(size: u64) -> anyhow::Result<Clocks> {
        let folder = tempfile::Builder::new().prefix("queen-clock-").tempdir()?;
        let library = compile(include_str!("clock.c"), folder.path())?;
        let mut clocks = Clocks { folder, library, moved: vec![0; size as usize] };
        for id in 1..=size {
            std::fs::write(clocks.file(id), [0; 8])?;
            clocks.set(id, 0)?;
        }
        Ok(clocks)
    }

    fn file(&self, id: u64) -> PathBuf {
        self.folder.path().join(format!("node-{id}"))
    }

    /// Has a process that is started with these variables go by the clock of a node.
    pub fn watch(&self, id: u64, variables: &mut BTreeMap<String, String>) {
        name(&self.library, variables);
        variables.insert("FAULT_CLOCK".to_owned(), self.file(id).display().to_string());
    }

    /// How far a node's clock is ahead, in microseconds; behind if below zero.
    pub fn moved(&self, id: u64) -> i64 {
        self.moved[id as usize - 1]
    }

    /// Sets a node's clock so many microseconds ahead of the right time.
    pub fn set(&mut self, id: u64, by: i64) -> anyhow::Result<()> {
        self.moved[id as usize - 1] = by;
        // In place: the node has the file mapped.
        let file = std::fs::OpenOptions::new().write(true).open(self.file(id))?;
        Ok(file.write_all_at(&by.to_ne_bytes(), 0)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn clock(clocks: &Clocks, id: u64) -> i64 {
        let mut variables = BTreeMap::new();
        clocks.watch(id, &mut variables);
        let output = Command::new("date").arg("+%s").envs(variables).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_process_goes_by_the_clock_that_was_set_for_it() {
        let mut clocks = Clocks::new(2).unwrap();
        let right = clock(&clocks, 2);
        clocks.set(1, -300_500_000).unwrap();
        assert!((-302..=-299).contains(&(clock(&clocks, 1) - right)));
        clocks.set(1, 300_500_000).unwrap();
        assert!((299..=330).contains(&(clock(&clocks, 1) - right)));
        assert!((0..=30).contains(&(clock(&clocks, 2) - right)), "another's clock");
    }
}
