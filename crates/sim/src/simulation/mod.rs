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

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the seeds on so many threads until one fails; gives the failed run of the lowest seed that
/// was tried, and the number of runs.
pub fn run_seeds(
    seeds: std::ops::Range<u64>,
    mutation: Option<Mutation>,
    threads: usize,
) -> (Option<Outcome>, u64) {
    let next = AtomicU64::new(seeds.start);
    let (failed, runs) = (Mutex::new(None::<Outcome>), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed_already = failed.lock().unwrap().is_some();
                    if seed >= seeds.end || failed_already {
                        return;
                    }
                    let outcome = run(seed, mutation, false);
                    runs.fetch_add(1, Ordering::Relaxed);
                    if !outcome.wrong.is_empty() {
                        let mut failed = failed.lock().unwrap();
                        if failed.as_ref().is_none_or(|other| outcome.seed < other.seed) {
                            *failed = Some(outcome);
                        }
                    }
                }
            });
        }
    });
    (failed.into_inner().unwrap(), runs.into_inner())
}
