//! How the nodes of a cluster are, beyond what the log knows of them.
//!
//! Owns: what each node tells the leader once a second, and where a node has the log clock from. Leaves
//! to others: how the clock runs (`clock`), who leads and who is how far (`queen-raft`), the message
//! (`queen_core::relay`).
//!
//! A node that has just begun knows only its own wall clock, which may be minutes from the log clock. Were
//! it to lead, leases would end early, or those that it gives would under the next leader. So it asks all
//! others until one knows, and does not take commands before; only where nobody knows, which is so when all
//! began, it goes by its own.

use crate::broker::{Broker, Shared};
use crate::clock::PROMPT;
use bytes::Bytes;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use parking_lot::Mutex;
use queen_core::relay::{Answer, Report, time_ask};
use queen_core::{Code, Error};
use queen_raft::RaftNode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

/// Between two reports.
const EVERY: Duration = Duration::from_secs(1);
/// Between two questions for the log clock.
const SOON: Duration = Duration::from_millis(20);
/// Longest wait for an answer to one.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long a node that leads looks for one that knows the log clock, before it goes by its own.
const LOOKS: Duration = Duration::from_millis(500);
/// A report says nothing of a node any more after so long.
const STALE: Duration = Duration::from_secs(10);

/// The last report of each node, on the node that leads.
#[derive(Default)]
pub(crate) struct Peers(Mutex<BTreeMap<u64, (Report, Instant)>>);

impl Peers {
    /// Takes a report; says when a disk has become full, or has space again.
    pub(crate) fn report(&self, report: Report) {
        let before = self.0.lock().insert(report.node, (report, Instant::now()));
        let was = before.is_some_and(|(before, _)| before.storage_full);
        match (was, report.storage_full) {
            (false, true) => warn!(
                node = report.node,
                "the disk of another node is full: it falls behind and does not count for the \
                 majority until it has space"
            ),
            (true, false) => info!(node = report.node, "the disk of another node has space again"),
            _ => {}
        }
    }

    /// Nodes that lately reported how they are, and whether the disk of each is full.
    pub(crate) fn reported(&self) -> BTreeMap<u64, bool> {
        let all = self.0.lock();
        let fresh = all.iter().filter(|(_, (_, at))| at.elapsed() < STALE);
        fresh.map(|(node, (report, _))| (*node, report.storage_full)).collect()
    }
}

/// Reports to the leader until the broker stops.
pub(crate) async fn run(broker: Broker) {
    let mut stop = broker.shared.stop.subscribe();
    let work = async {
        while broker.shared.proposer.known_time().is_none() {
            ask_the_time(&broker.shared).await;
            sleep(SOON).await;
        }
        let Some(mut leader) = broker.shared.proposer.node().map(RaftNode::leader) else { return };
        loop {
            leader.borrow_and_update();
            // A new leader is asked at once: its clock is the log's now.
            let changed = tokio::select! {
                changed = leader.changed() => changed,
                prompt = report(&broker.shared) => {
                    let pause = if prompt { EVERY } else { SOON };
                    timeout(pause, leader.changed()).await.unwrap_or(Ok(()))
                }
            };
            if changed.is_err() {
                return; // The log has ended.
            }
        }
    };
    tokio::select! {
        () = work => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// The log clock, for another node.
pub(crate) fn time(shared: &Shared) -> Answer {
    let unknown = || Error::new(Code::NoLeader, "this node does not know the log clock yet");
    shared.proposer.known_time().map_or_else(|| Answer::Refused(unknown()), Answer::Clock)
}

/// Takes commands in `term` as soon as this node, which leads, knows the log clock or nobody does.
pub(crate) fn take_up(shared: Arc<Shared>, term: u64) {
    let runtime = shared.runtime.clone();
    runtime.spawn(async move {
        let look = async {
            while ask_the_time(&shared).await == Found::Unclear {
                sleep(SOON).await;
            }
        };
        let looked = timeout(LOOKS, look).await;
        let known = shared.proposer.known_time().is_some();
        info!(term, known, in_time = looked.is_ok(), "looked for the log clock before leading");
        shared.proposer.begin(term);
    });
}

/// What a round of questions brought.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Found {
    /// The log clock.
    Known,
    /// All others answered, and none knows it.
    Nobody,
    /// Not all answered.
    Unclear,
}

/// Asks every other node what the log clock is, until one says.
async fn ask_the_time(shared: &Shared) -> Found {
    let Ok(node) = shared.node() else { return Found::Unclear };
    let others: Vec<u64> =
        node.members().peers.into_keys().filter(|id| *id != shared.node_id).collect();
    let asked = Instant::now();
    let mut answers: FuturesUnordered<_> =
        others.iter().map(|id| node.consult(*id, Bytes::from(time_ask()))).collect();
    let round = async {
        let mut ignorant = 0;
        while let Some(answer) = answers.next().await {
            match answer.map(|bytes| Answer::decode(&bytes)) {
                Ok(Ok(Answer::Clock(now))) => {
                    shared.proposer.heard(now, asked);
                    if shared.proposer.known_time().is_some() {
                        return Found::Known;
                    }
                }
                Ok(Ok(Answer::Refused(why))) if why.code == Code::NoLeader => ignorant += 1,
                other => debug!(?other, "a node does not say what the log clock is"),
            }
        }
        if ignorant == others.len() { Found::Nobody } else { Found::Unclear }
    };
    timeout(PROMPT, round).await.unwrap_or(Found::Unclear)
}

/// One report; whether the answer came soon enough to say well what time it is.
async fn report(shared: &Shared) -> bool {
    let Ok(node) = shared.node() else { return true };
    let report = Report { node: shared.node_id, storage_full: shared.admission.storage_full() };
    if node.leadership().borrow().is_some() {
        shared.peers.report(report);
        return true;
    }
    let asked = Instant::now();
    match timeout(PATIENCE, node.ask_leader(Bytes::from(report.encode()))).await {
        Ok(Ok(bytes)) => match Answer::decode(&bytes) {
            Ok(Answer::Clock(now)) => {
                shared.proposer.heard(now, asked);
                return asked.elapsed() < PROMPT;
            }
            other => debug!(?other, "a report was answered with something else"),
        },
        // Somebody leads again soon, or `/health` says that nobody does.
        Ok(Err(why)) => debug!(?why, "nobody took the report"),
        Err(_) => {
            debug!("the leader did not answer the report");
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_report_of_each_node_counts() {
        let peers = Peers::default();
        for (node, storage_full) in [(1, false), (2, true), (2, false), (3, true)] {
            peers.report(Report { node, storage_full });
        }
        assert_eq!(peers.reported(), [(1, false), (2, false), (3, true)].into());
    }
}
