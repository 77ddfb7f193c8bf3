//! How the nodes of a cluster are, beyond what the log knows of them.
//!
//! Owns: what each node tells the leader once a second, and taking the log clock from the answer.
//! Leaves to others: who leads and who is how far (`queen-raft`), the message (`queen_core::relay`).

use crate::broker::Broker;
use bytes::Bytes;
use parking_lot::Mutex;
use queen_core::relay::{Answer, Report};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tracing::{debug, info, warn};

/// Between two reports.
const EVERY: Duration = Duration::from_secs(1);
/// The same until the leader's clock was heard: a node that comes to lead before goes by its own wall
/// clock, whatever that says.
const SOON: Duration = Duration::from_millis(20);
/// Longest wait for an answer to one.
const PATIENCE: Duration = Duration::from_secs(3);
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
    let mut knows = false;
    loop {
        knows |= report(&broker).await;
        tokio::select! {
            () = tokio::time::sleep(if knows { EVERY } else { SOON }) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

/// One report; whether this node knows the log clock now: it leads, or has heard the leader's.
async fn report(broker: &Broker) -> bool {
    let shared = &broker.shared;
    let Some(node) = shared.proposer.node() else { return false };
    let storage_full = shared.admission.storage_full();
    let report = Report { node: shared.node_id, storage_full };
    if node.leadership().borrow().is_some() {
        shared.peers.report(report);
        return true;
    }
    let asked = timeout(PATIENCE, node.ask_leader(Bytes::from(report.encode()))).await;
    match asked {
        Ok(Ok(bytes)) => match Answer::decode(&bytes) {
            Ok(Answer::Clock(now)) => {
                shared.proposer.heard(now);
                return true;
            }
            other => debug!(?other, "a report was answered with something else"),
        },
        // Somebody leads again soon, or `/health` says that nobody does.
        Ok(Err(why)) => debug!(?why, "nobody took the report"),
        Err(_) => debug!("the leader did not answer the report"),
    }
    false
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
