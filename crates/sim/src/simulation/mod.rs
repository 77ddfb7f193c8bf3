//! Seeded runs of the sink's real loop against the twins of broker and bucket.
//!
//! Owns: one run per seed, its faults, what must hold after it, and the mutations that show that a
//! broken protocol is found.
//! Leaves to others: the twins (`twin`), the check of the lake's files (`lake`), the sink.
//! Upholds, by finding what breaks them: `windows-tile`, `window-is-final`, `once-in-the-lake`,
//! `loss-is-listed`, `one-writer-commits`, `manifest-chain`; and that in the end everything is
//! copied.

// What was written here reads, or the run is at fault and has to say so.
#![allow(clippy::unwrap_used)]

mod fates;
mod ledger;
mod mutation;
mod plan;
mod run;
mod trace;
mod verdict;

pub use mutation::Mutation;
pub use run::{Outcome, run};
pub(crate) use trace::Trace;

/// Runs the seeds on so many threads until one fails; gives the failed run of the lowest seed that
/// was tried, and the number of runs.
pub fn run_seeds(
    seeds: std::ops::Range<u64>,
    mutation: Option<Mutation>,
    threads: usize,
) -> (Option<Outcome>, u64) {
    crate::seeds::search(seeds, threads, |seed| {
        let outcome = run(seed, mutation, false);
        (!outcome.wrong.is_empty()).then_some(outcome)
    })
}
