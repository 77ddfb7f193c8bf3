//! Runs in processes of their own.
//!
//! Owns: starting them and reading what came of them. Leaves to others: a run (`run`).
//!
//! The runtime draws, for the order in which it wakes tasks, from a counter that all runtimes of a process
//! share: so a run is the same again only if nothing has run before it in its process.

use super::{Mutation, Outcome};
use crate::seeds;
use std::ops::Range;
use std::path::Path;
use std::process::Command;

/// Runs one seed by `program`, which is `queen-sim`.
///
/// # Panics
///
/// If the process cannot be started or says nothing that can be read.
pub fn run(program: &Path, seed: u64, mutation: Option<Mutation>) -> Outcome {
    let mut command = Command::new(program);
    command.args(["cluster", "--json", "--seed", &seed.to_string()]);
    if let Some(mutation) = mutation {
        command.args(["--mutation", mutation.name()]);
    }
    let output = command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        panic!("seed {seed} ended with {} ({error}): {said}", output.status)
    })
}

/// Runs the seeds, so many at a time, until one fails; gives the failed run of the lowest seed that was tried,
/// and the number of runs.
pub fn run_seeds(
    program: &Path,
    seeds: Range<u64>,
    mutation: Option<Mutation>,
    threads: usize,
) -> (Option<Outcome>, u64) {
    seeds::search(seeds, threads, |seed| {
        let outcome = run(program, seed, mutation);
        (!outcome.wrong.is_empty()).then_some(outcome)
    })
}
