//! A cluster of real processes under a few seeds of faults; `docs/design/faults.md` has the long runs.

#![allow(clippy::unwrap_used)] // a test's unwrap is its failure

use queen_sim::faults::{Options, run};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_its_promises_under_a_few_seeds_of_faults() {
    let length = Duration::from_secs(10);
    for seed in 1..=2 {
        let folder = std::env::temp_dir().join("queen-faults");
        let report = run(&Options { seed, length, folder, variables: Vec::new() }).await.unwrap();
        println!("{}", report.text(length));
        assert!(report.wrong.is_empty(), "{}", report.text(length));
        let (pushed, settled, calls) = report.counts;
        assert!(pushed > 100 && settled > 100 && calls > 100, "{}", report.text(length));
    }
}
