//! The cluster as an operator sees and changes it; whether this node can serve.
//!
//! Owns: readiness, and what pages and routes are told of the group. Leaves to others: elections,
//! members, their checks (`queen-raft`).

use crate::broker::Broker;
use crate::forward;
use queen_core::Error;
pub use queen_raft::{
    ClusterOptions, Leader, Members, MembershipCode, MembershipError, Peer, Role, TlsFiles,
};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::timeout;

/// A node may be this many entries behind what it knows to be committed and still serve.
const LAG_ENTRIES: u64 = 1000;
/// And this far behind in time: so long may the leader take to confirm itself, and this node to
/// apply what was committed then.
const LAG: Duration = Duration::from_secs(2);

/// The group as this node sees it.
#[derive(Clone, Debug)]
pub struct ClusterView {
    /// The log's own view.
    pub raft: queen_raft::Standing,
    /// Whoever leads.
    pub leader: Option<Leader>,
    /// On the leader: whether the disk of each node that lately reported is full.
    pub storage_full: BTreeMap<u64, bool>,
}

impl Broker {
    /// Why this node cannot commit, or is too far behind to serve; `None` when it can. Asked anew:
    /// the leader confirms itself with a majority.
    pub async fn unfit(&self) -> Option<String> {
        let Some(node) = self.shared.proposer.node() else {
            return Some("the log is starting".into());
        };
        if !self.shared.clustered {
            return (!self.leads()).then(|| "this node does not lead its log".into());
        }
        let standing = node.standing();
        if let Some(why) = standing.refused {
            return Some(why);
        }
        if node.leader().borrow().is_none() {
            return Some("no leader is known".into());
        }
        let (committed, applied) = (standing.committed.unwrap_or(0), standing.applied.unwrap_or(0));
        let lag = committed.saturating_sub(applied);
        if lag > LAG_ENTRIES {
            return Some(format!("{lag} entries are committed and not applied here yet"));
        }
        match timeout(LAG, forward::confirmed(node)).await {
            Ok(Ok(())) => None,
            Ok(Err(why)) => Some(format!("the leader did not confirm itself: {why}")),
            Err(_) => Some(format!(
                "the leader was not confirmed by a majority, or this node did not catch up, within \
                 {LAG:?}"
            )),
        }
    }

    /// The group as this node sees it.
    pub fn cluster(&self) -> Option<ClusterView> {
        let node = self.shared.proposer.node()?;
        let storage_full = match self.leads() {
            true => self.shared.peers.reported(),
            false => BTreeMap::new(),
        };
        Some(ClusterView { raft: node.standing(), leader: self.leader(), storage_full })
    }

    /// Voters and learners, as committed when this was called.
    pub async fn membership(&self) -> Result<Members, Error> {
        self.barrier().await?;
        Ok(self.shared.node()?.members())
    }

    /// Lets a node receive the log, without a vote.
    pub async fn add_learner(&self, id: u64, peer: Peer) -> Result<Members, MembershipError> {
        self.log()?.add_learner(id, peer).await
    }

    /// Gives learners a vote, once they have caught up.
    pub async fn promote(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        self.log()?.promote(ids).await
    }

    /// Makes these members the voters.
    pub async fn set_voters(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        self.log()?.set_voters(ids).await
    }

    /// Takes a node out of the group.
    pub async fn remove_member(&self, id: u64) -> Result<Members, MembershipError> {
        self.log()?.remove(id).await
    }

    fn log(&self) -> Result<&queen_raft::RaftNode, MembershipError> {
        self.shared.node().map_err(|error| MembershipError {
            code: MembershipCode::LeaderUnreachable,
            text: error.text,
        })
    }
}
