//! What the other nodes' disks are known to hold: tells one that went back in time under its own name.
//!
//! Owns: that memory, hearing of it with the leader's pulses, barring such a disk and its node's vote.
//! Leaves to others: sending it (`pacing`), disks of another name (`exchange`).
//!
//! Only committed entries count: no leader takes these out of a log again, so a node that is known to
//! have held one and says that its log ends before it has lost what it had answered for.

use crate::exchange::Exchange;
use crate::message::{self, Ballot, Canvass, Pulse};
use crate::net::greeting::DiskId;
use crate::net::listener::Answered;
use crate::types::{Id, TypeConfig};
use openraft::Raft;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::time::Duration;

/// The newest committed entry that each node is known to have held, and on which disk.
#[derive(Default)]
pub(crate) struct Holdings(Mutex<BTreeMap<u64, (DiskId, Id)>>);

impl Holdings {
    /// A leader says that node `id` holds the log up to `upto`.
    pub(crate) fn note(&self, id: u64, disk: DiskId, upto: Id) {
        let mut all = self.0.lock();
        let known = all.entry(id).or_insert((disk, upto));
        // Another disk has answered for nothing yet.
        *known = if known.0 == disk { (disk, known.1.max(upto)) } else { (disk, upto) };
    }

    /// The entry that a node with this disk held and has no more, if its log ends at `last`.
    pub(crate) fn misses(&self, id: u64, disk: DiskId, last: Option<Id>) -> Option<Id> {
        let known = self.0.lock().get(&id).copied();
        known.filter(|(of, upto)| *of == disk && last < Some(*upto)).map(|(_, upto)| upto)
    }
}

/// What is said of a node whose disk has another name.
pub(crate) fn wrong_disk(node: u64) -> String {
    format!(
        "node {node} has another disk than the one its group knows (it was wiped or replaced), and what it \
         answered for may be lost with it: remove node {node} from the members and add it again"
    )
}

/// What is said of a node whose disk went back.
pub(crate) fn went_back(node: u64) -> String {
    format!(
        "node {node} no longer holds entries that it had answered for: its disk went back in time (an old copy \
         was restored); remove node {node} from the members and add it again"
    )
}

/// What is told of the log comes at most so long after what the log has answered.
const TOLD: Duration = Duration::from_secs(2);

impl Exchange {
    /// The leader says that it lives, and what each node is known to hold.
    pub(crate) async fn pulse(&self, pulse: Pulse) -> Answered {
        let Some(raft) = self.raft.get() else { return Err("starting".into()) };
        for (id, upto) in pulse.held {
            if id != self.me {
                let address = self.address(id).unwrap_or_default();
                self.holdings.note(id, address.disk, upto);
            } else if !self.holds(raft, upto).await {
                return Err(self.lose_disk());
            }
        }
        let term = raft.server_metrics().borrow().vote.leader_id.term;
        if pulse.term >= term {
            self.heard(pulse.leader);
        }
        Ok(message::encode(&term))
    }

    /// Whether the log reaches the entry that a leader says to be here.
    async fn holds(&self, raft: &Raft<TypeConfig>, upto: Id) -> bool {
        let mut data = raft.data_metrics();
        // What is told of the log may come a moment later than what the leader was told.
        let there = data.wait_for(|now| now.last_log >= Some(upto));
        tokio::time::timeout(TOLD, there).await.is_ok()
    }

    /// This node's disk went back in time: it takes another name, under which it has answered for
    /// nothing. So nobody counts it, now or after a start, until it is added again.
    fn lose_disk(&self) -> String {
        let why = went_back(self.me);
        match self.host.rename_disk() {
            Ok(disk) => *self.disk_now.lock() = disk,
            Err(error) => {
                tracing::error!(%error, "cannot name the disk anew: stop this node");
                // Till the next start at least.
                *self.disk_now.lock() = [u8::MAX; 16];
            }
        }
        self.cut_links();
        self.refuse(&why);
        why
    }

    /// Why a vote for or of node `id` must not count, if its log ends at `last`.
    pub(crate) fn bars(&self, id: u64, last: Option<Id>) -> Option<String> {
        let disk = self.address(id)?.disk;
        self.holdings.misses(id, disk, last).map(|upto| {
            tracing::error!(node = id, %upto, "a disk went back in time: its node has no vote");
            went_back(id)
        })
    }

    /// A voter asks whether this node would vote for it.
    pub(crate) fn canvass(&self, from: u64, canvass: Canvass) -> Answered {
        let Some(raft) = self.raft.get() else { return Err("starting".into()) };
        if let Some(why) = self.bars(from, canvass.last) {
            return Err(why);
        }
        let last = raft.data_metrics().borrow().last_log;
        let granted = !self.leads() && !self.hears_a_leader() && canvass.last >= last;
        Ok(message::encode(&Ballot { granted, last }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use openraft::CommittedLeaderId;

    #[test]
    fn a_log_that_ends_before_what_its_disk_held_is_told() {
        let id = |term, index| Id::new(CommittedLeaderId::new(term, 1), index);
        let (holdings, disk, other) = (Holdings::default(), [1; 16], [2; 16]);
        assert_eq!(holdings.misses(2, disk, None), None);
        holdings.note(2, disk, id(1, 9));
        holdings.note(2, disk, id(1, 5));
        assert_eq!(holdings.misses(2, disk, Some(id(1, 8))), Some(id(1, 9)));
        assert_eq!(holdings.misses(2, disk, None), Some(id(1, 9)));
        for last in [id(1, 9), id(2, 3)] {
            assert_eq!(holdings.misses(2, disk, Some(last)), None);
        }
        assert_eq!(holdings.misses(2, other, None), None);
        holdings.note(2, other, id(1, 4));
        assert_eq!(holdings.misses(2, other, Some(id(1, 4))), None);
        assert_eq!(holdings.misses(2, other, Some(id(1, 3))), Some(id(1, 4)));
    }
}
