//! What must hold after a run.
//!
//! Owns: holding the bucket against the ledger, by the checker of the lake and what only memory
//! can tell: that a key never had two contents.
//! Leaves to others: the checks of files (`lake`), `one-writer-commits` (`fates`).

use super::ledger::{Entry, Rows};
use super::run::Run;
use crate::lake::{self, Expected, Files};
use queen_core::sink::{Manifest, Start};
use std::collections::BTreeMap;

/// Where the copy of a queue begins, as the first that decided it said.
fn start(run: &Run, queue: &str) -> Option<u64> {
    let key = queen_core::sink::row_key("default", queue, queen_core::sink::RowKind::Start);
    let told = run.starts.lock().get(&key).map(|row| Start::from_json(row.as_bytes()).unwrap());
    told.or(Rows::of(&run.world.broker, queue).start).map(|start| start.stamp)
}

fn wanted(run: &Run) -> impl Iterator<Item = &Entry> {
    let starts: BTreeMap<&str, Option<u64>> =
        run.plan.queues.iter().map(|queue| (*queue, start(run, queue))).collect();
    run.ledger.0.iter().filter(move |entry| {
        let start = starts.get(entry.queue).copied().flatten();
        !entry.unseen && start.is_none_or(|start| entry.pushed.stamp >= start)
    })
}

/// Records that are still to be copied.
pub(super) fn waiting(run: &Run) -> usize {
    let ends: BTreeMap<&str, u64> = run
        .plan
        .queues
        .iter()
        .map(|queue| {
            let committed = Rows::of(&run.world.broker, queue).committed;
            (*queue, committed.map_or(0, |committed| committed.t_end))
        })
        .collect();
    let records =
        wanted(run).filter(|entry| !entry.gone && entry.pushed.stamp >= ends[entry.queue]).count();
    let broker = &run.world.broker;
    let unlisted = run.plan.queues.iter().filter(|queue| broker.loss_waits(queue)).count();
    let begun = |queue: &&&str| Rows::of(broker, queue).pending().is_some();
    records + unlisted + run.plan.queues.iter().filter(begun).count()
}

/// What an object says, whoever wrote it: where releases meet, a manifest may be written anew by
/// another one, and differs in what it says of its writer.
fn told_by(key: &str, bytes: &[u8], upgrades: bool) -> Vec<u8> {
    let manifest = Manifest::from_json(bytes).ok().filter(|_| upgrades && key.contains("/_queen/"));
    match manifest {
        Some(found) => Manifest { encoder: 0, writer: String::new(), ..found }.to_json().into(),
        None => bytes.to_vec(),
    }
}

/// Holds the lake against the ledger; gives its windows and records.
pub(super) fn lake(run: &mut Run) -> (u64, u64) {
    let objects = run.world.store.objects();
    let mut expected = Expected::new();
    for Entry { queue, pushed, .. } in wanted(run) {
        let (queue, payload) = ((*queue).to_owned(), pushed.payload.clone().into_bytes());
        let (partition, transaction_id) = (pushed.partition.clone(), pushed.transaction_id.clone());
        let offset = pushed.offset;
        expected.accepted.push(lake::Accepted {
            queue,
            partition,
            offset,
            transaction_id,
            payload,
        });
    }
    let mut wrong = Vec::new();
    for (key, object) in &objects {
        let told = |bytes: &[u8]| told_by(key, bytes, run.plan.upgrades);
        if object.versions.iter().any(|version| told(version) != told(&object.bytes)) {
            wrong.push(format!("window-is-final: {key} had two contents"));
        }
    }
    let files =
        Files(objects.into_iter().map(|(key, object)| (key, object.bytes.to_vec())).collect());
    let report = lake::check(&files, run.plan.layout(), &expected);
    wrong.extend(report.faults.iter().map(|fault| fault.to_string()));
    for queue in &run.plan.queues {
        let Some(committed) = Rows::of(&run.world.broker, queue).committed else { continue };
        let manifest = files.0.get(&committed.manifest).map(|bytes| lake::sha256(bytes));
        if manifest.as_ref() != Some(&committed.manifest_sha256) {
            wrong.push(format!("the pointer names {}, which is not there", committed.manifest));
        }
    }
    run.wrong.extend(wrong);
    (report.windows, report.records)
}
