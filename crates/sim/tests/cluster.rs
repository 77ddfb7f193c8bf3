//! A simulated cluster under seeded faults: what is promised holds, and a broken protocol is found.
//!
//! Owns: how many seeds a run of the tests takes. Leaves to others: the runs (`queen_sim::cluster`).

use queen_sim::cluster::Mutation;
use queen_sim::cluster::apart::{run, run_seeds};
use std::path::Path;

/// Seeds of the real protocol: all of them where they take a minute or two.
const SEEDS: u64 = if cfg!(debug_assertions) { 30 } else { 1_000 };
/// Runs a seed.
const PROGRAM: &str = env!("CARGO_BIN_EXE_queen-sim");
/// Seeds within which a mutation has to be caught.
const WITHIN: u64 = 1_000;

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| run(Path::new(PROGRAM), seed, None);
    for seed in 0..10 {
        let one = run(seed);
        assert_eq!(one, run(seed), "seed {seed}");
        assert_ne!(one.hash, run(seed + 1).hash, "seed {seed}");
    }
}

#[test]
fn what_is_promised_holds_under_every_seed() {
    let (failed, runs) = run_seeds(Path::new(PROGRAM), 0..SEEDS, None, 2);
    if let Some(outcome) = failed {
        panic!("cargo run -p queen-sim -- cluster --seed {} --trace\n{outcome:#?}", outcome.seed);
    }
    assert_eq!(runs, SEEDS);
}

fn is_caught(mutation: Mutation) {
    let (failed, runs) = run_seeds(Path::new(PROGRAM), 0..WITHIN, Some(mutation), 1);
    let caught = failed.unwrap_or_else(|| panic!("{} survives {runs} seeds", mutation.name()));
    println!("{} is caught by seed {}: {:?}", mutation.name(), caught.seed, caught.wrong);
    let sound = run(Path::new(PROGRAM), caught.seed, None);
    assert!(sound.wrong.is_empty(), "the seed itself is good");
}

#[test]
fn a_vote_that_is_answered_before_it_is_synced_is_found() {
    is_caught(Mutation::VoteNotSynced);
}

#[test]
fn an_append_that_is_answered_before_it_is_synced_is_found() {
    is_caught(Mutation::LogNotSynced);
}

#[test]
fn a_command_that_is_answered_before_a_majority_has_it_is_found() {
    is_caught(Mutation::AnswerBeforeMajority);
}

#[test]
fn a_read_without_a_barrier_is_found() {
    is_caught(Mutation::ReadWithoutBarrier);
}

#[test]
fn commands_applied_under_the_clock_of_each_node_are_found() {
    is_caught(Mutation::OwnClock);
}
