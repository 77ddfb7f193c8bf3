//! The sink under seeded faults: the protocol holds, and a broken one is found.
//!
//! Owns: how many seeds a run of the tests takes. Leaves to others: the runs
//! (`queen_sim::simulation`).

#![allow(clippy::unwrap_used)] // a test's unwrap is its failure

use queen_sim::simulation::{Mutation, run, run_seeds};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

/// Seeds of the real protocol: all of them where they take two minutes.
const SEEDS: u64 = if cfg!(debug_assertions) { 500 } else { 20_000 };
/// Seeds within which a mutation has to be caught.
const WITHIN: u64 = 10_000;

#[test]
fn one_seed_gives_one_run() {
    for seed in 0..40 {
        let (one, two) = (run(seed, None, false), run(seed, None, false));
        assert_eq!(one.hash, two.hash, "seed {seed}");
        assert_ne!(one.hash, run(seed + 1, None, false).hash, "seed {seed}");
    }
}

#[test]
fn the_protocol_holds_under_every_seed() {
    let (failed, runs) = run_seeds(0..SEEDS, None, 2);
    if let Some(outcome) = failed {
        panic!("cargo run -p queen-sim -- --seed {} --trace\n{outcome:#?}", outcome.seed);
    }
    assert_eq!(runs, SEEDS);
}

#[test]
fn retention_takes_what_lies_behind_pinned_windows_in_many_runs() {
    const RUNS: u64 = 100;
    let passed = (0..RUNS).filter(|seed| run(*seed, None, false).passed > 0).count();
    assert!(passed as u64 >= RUNS / 20, "in {passed} of {RUNS} runs only");
}

fn is_caught(mutation: Mutation) {
    let (failed, runs) = run_seeds(0..WITHIN, Some(mutation), 1);
    let caught = failed.unwrap_or_else(|| panic!("{} survives {runs} seeds", mutation.name()));
    println!("{} is caught by seed {}: {:?}", mutation.name(), caught.seed, caught.wrong);
    assert!(run(caught.seed, None, false).wrong.is_empty(), "the seed itself is good");
}

#[test]
fn rows_written_without_a_look_at_the_lease_are_found() {
    is_caught(Mutation::NoLeaseCheck);
}

#[test]
fn an_intent_that_pins_nothing_is_found() {
    is_caught(Mutation::IntentNotPinned);
}

#[test]
fn a_pointer_that_moves_before_the_manifest_is_found() {
    is_caught(Mutation::PointerBeforeManifest);
}

#[test]
fn a_start_that_is_kept_in_memory_is_found() {
    is_caught(Mutation::StartInMemory);
}

#[test]
fn a_redo_with_todays_settings_is_found() {
    is_caught(Mutation::RedoWithTodaysSettings);
}

#[test]
fn a_reader_that_has_seen_enough_ends_the_command_without_a_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = Command::new(env!("CARGO_BIN_EXE_queen-sim"))
        .args(["--seed", "1", "--trace"])
        .stdout(writer)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.signal(), Some(libc::SIGPIPE), "{said}");
    assert!(said.is_empty(), "{said}");
}
