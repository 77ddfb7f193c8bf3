//! A cluster of real processes under every kind of fault; `docs/design/faults.md` has the long runs.

#![allow(clippy::unwrap_used)] // a test's unwrap is its failure

use queen_sim::faults::{Options, run};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_its_promises_under_each_kind_of_fault() {
    let folder = std::env::temp_dir().join("queen-faults");
    let options = Options { seed: 1, length: None, folder, variables: vec![], only: vec![] };
    let report = run(&options).await.unwrap();
    println!("{}", report.text());
    assert!(report.wrong.is_empty(), "{}", report.text());
    for (what, least) in [
        ("records pushed", 1000),
        ("records acked", 1000),
        ("KV calls", 1000),
        ("leases held", 20),
        ("permits held", 50),
        ("guarded writes", 50),
        ("jobs handed on", 100),
        ("windows copied", 20),
    ] {
        assert!(report.count(what) >= least, "{what}: {}", report.text());
    }
}
