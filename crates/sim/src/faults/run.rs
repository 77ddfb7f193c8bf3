//! One run: a cluster, clients at work, faults one after the other, peace, and a verdict.
//!
//! Owns: the order of its steps, the verdict. Leaves to others: what there is to run with (`means`),
//! which faults (`schedule`), carrying them out (`scene`), the clients and their rules (`queue`, `kv`, `lease`,
//! `transaction`, `lock`, `sink`).

use super::history::History;
use super::means::Means;
use super::report::{Report, again};
use super::scene::Scene;
use super::schedule::{Kind, draw};
use super::sink::Watch;
use super::{kv, lease, lock_clients, queue, transaction_clients};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// All that was pushed must be delivered so long after the faults: leases last five seconds.
const DRAINED: Duration = Duration::from_secs(30);
/// Longest search for an order of one key's calls.
const SEARCH: Duration = Duration::from_secs(60);

/// What is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Draws faults and requests.
    pub seed: u64,
    /// How long faults go on; `None`: until each kind came once.
    pub length: Option<Duration>,
    /// Where histories are kept.
    pub folder: PathBuf,
    /// Settings of all nodes beside the usual ones.
    pub variables: Vec<(String, String)>,
    /// Kinds of faults; empty: all.
    pub only: Vec<Kind>,
}

/// Runs a seed. An error is a fault of the harness's surroundings, or a cluster that never began.
pub async fn run(options: &Options) -> anyhow::Result<Report> {
    let seed = options.seed;
    let history = Arc::new(History::new(&options.folder, seed)?);
    let (means, cluster) = Means::find(seed, &options.variables).await?;
    let schedule = draw(seed, options.length, &means.kinds(&options.only));
    let left_out = means.left_out.clone();
    history.note("schedule", json!({"seed": seed, "faults": schedule, "left out": left_out}));
    let mut scene = Scene::start(means, cluster, &history).await?;
    let clients = scene.clients();
    let watch = scene.bucket().map(|_| Watch::start(clients, &history));
    let queue = queue::Workload::start(clients, seed, &history);
    let registers = kv::Workload::start(clients, seed, &history);
    let holders = lease::Workload::start(clients, seed, &history);
    let movers = transaction_clients::Workload::start(clients, seed, &history);
    let locks = lock_clients::Workload::start(clients, seed, &history);
    let mut faults = Vec::new();
    for fault in &schedule {
        faults.push(fault.kind);
        // A verdict in the middle of a run ends its faults, not its judgement.
        if let Err(why) = scene.befall(fault).await {
            scene.wrong.push(format!("fault: {:?}: {why:#}", fault.kind));
            break;
        }
    }
    scene.heal().await;
    let (calls, holds, permits, moves, facts) = tokio::try_join!(
        registers.stop(),
        holders.stop(),
        locks.stop(),
        movers.stop(DRAINED),
        queue.stop(DRAINED)
    )?;
    let mut wrong = facts.judge();
    wrong.extend(moves.judge());
    if !wrong.is_empty() {
        scene.note_state().await;
    }
    wrong.extend(lease::judge(&holds));
    wrong.extend(permits.judge());
    let mut counts = BTreeMap::from([
        ("records pushed", facts.answered() as u64),
        ("records acked", facts.settled() as u64),
        ("leases held", holds.len() as u64),
        ("permits held", permits.holds.len() as u64),
        ("guarded writes", permits.writes.len() as u64),
        ("jobs handed on", moves.done() as u64),
        ("KV calls", calls.values().map(Vec::len).sum::<usize>() as u64),
    ]);
    if let Some(bucket) = scene.bucket() {
        match bucket.judge(&facts).await {
            Ok((found, windows)) => {
                wrong.extend(found);
                counts.insert("windows copied", windows);
            }
            Err(why) => wrong.push(format!("lake: {why:#}")),
        }
    }
    if let Some(seen) = watch.as_ref().map(Watch::seen) {
        counts.insert("moves of the sink", seen.moves);
        wrong.extend(seen.wrong);
    }
    wrong.extend(scene.compare(&facts).await);
    wrong.extend(judge_calls(calls).await);
    history.note("verdict", json!(wrong));
    let history = history.path().to_owned();
    Ok(Report { seed, wrong, left_out, faults, counts, history, again: again(options) })
}

async fn judge_calls(calls: BTreeMap<String, Vec<kv::Call>>) -> Vec<String> {
    let mut wrong = Vec::new();
    for (key, calls) in calls {
        let count = calls.len();
        let (found, answer) = tokio::sync::oneshot::channel();
        // A thread of its own: a search that is given up must not hold up the end of the program.
        std::thread::spawn(move || found.send(kv::is_linearizable(&calls)));
        match timeout(SEARCH, answer).await.map(Result::unwrap_or_default) {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("not linearizable: {key}, {count} calls")),
            Err(_) => wrong.push(format!("undecided: {key}, {count} calls, {SEARCH:?}")),
        }
    }
    wrong
}
