//! Many seeds on several threads, until one fails.
//!
//! Owns: that search. Leaves to others: what a run is.

use parking_lot::Mutex;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Runs the seeds until one fails; gives what `run` said of the failed one of the lowest seed that was tried,
/// and the number of runs.
pub fn search<T: Send>(
    seeds: Range<u64>,
    threads: usize,
    run: impl Fn(u64) -> Option<T> + Sync,
) -> (Option<T>, u64) {
    let next = AtomicU64::new(seeds.start);
    let (failed, runs) = (Mutex::new(None::<(u64, T)>), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let failed_already = failed.lock().is_some();
                    if seed >= seeds.end || failed_already {
                        return;
                    }
                    let outcome = run(seed);
                    runs.fetch_add(1, Ordering::Relaxed);
                    let Some(outcome) = outcome else { continue };
                    let mut failed = failed.lock();
                    if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
                        *failed = Some((seed, outcome));
                    }
                }
            });
        }
    });
    (failed.into_inner().map(|(_, failed)| failed), runs.into_inner())
}
