//! `queen-sim`: runs the sink under seeded faults and says which seed breaks it.
//!
//! Owns: the command line. Leaves to others: the runs (`queen_sim::simulation`).

use clap::Parser;
use queen_sim::simulation::{Mutation, Outcome, run, run_seeds};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the sink's loop against simulated broker and bucket under seeded faults.
#[derive(Parser)]
struct Arguments {
    /// Run this seed.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Run the seeds FROM..TO (TO is not run).
    #[arg(long, value_parser = range, default_value = "0..20000")]
    seeds: Range<u64>,
    /// Break the protocol: no-lease-check, intent-not-pinned, pointer-before-manifest,
    /// start-in-memory, redo-with-todays-settings.
    #[arg(long, value_parser = mutation)]
    mutation: Option<Mutation>,
    /// Print everything that happens (with --seed).
    #[arg(long)]
    trace: bool,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bad = || format!("{text:?} is no range, give FROM..TO, for example 0..20000");
    let (from, to) = text.split_once("..").ok_or_else(bad)?;
    Ok(from.parse().map_err(|_| bad())?..to.parse().map_err(|_| bad())?)
}

fn mutation(name: &str) -> Result<Mutation, String> {
    Mutation::from_name(name).ok_or_else(|| {
        let names = Mutation::ALL.map(Mutation::name).join(", ");
        format!("{name:?} is no mutation, give one of {names}")
    })
}

fn report(outcome: &Outcome, mutation: Option<Mutation>) {
    let Outcome { seed, hash, wrong, requests, windows, records, passed } = outcome;
    println!(
        "seed {seed}: trace {hash:016x}, {requests} requests, {windows} windows, {records} records, \
         {passed} times passed over a pin"
    );
    for wrong in wrong {
        println!("  {wrong}");
    }
    if !wrong.is_empty() {
        let mutation = mutation.map_or(String::new(), |m| format!(" --mutation {}", m.name()));
        println!("again: cargo run -p queen-sim -- --seed {seed}{mutation} --trace");
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(seed) = arguments.seed {
        let outcome = run(seed, arguments.mutation, arguments.trace);
        report(&outcome, arguments.mutation);
        return ExitCode::from(u8::from(!outcome.wrong.is_empty()));
    }
    let begun = Instant::now();
    let (failed, runs) = run_seeds(arguments.seeds, arguments.mutation, arguments.threads);
    println!("{runs} seeds in {:.1} s", begun.elapsed().as_secs_f64());
    match failed {
        None => ExitCode::SUCCESS,
        Some(outcome) => {
            report(&outcome, arguments.mutation);
            ExitCode::FAILURE
        }
    }
}
