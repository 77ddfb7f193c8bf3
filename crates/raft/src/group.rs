//! What a node offers to its own process beyond proposing: reads, questions to the leader, members.
//!
//! Owns: these calls. Leaves to others: start and shutdown (`node`), what an answer means (`Service`).

use crate::cluster::{
    AskError, Leader, Members, MembershipCode, MembershipError, Peer, Role, Service, Standing,
};
use crate::node::{Life, RaftNode};
use crate::types;
use crate::{NotProposed, node::Shared};
use bytes::Bytes;
use openraft::ServerState;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

impl RaftNode {
    /// The leader that this node knows of and takes to be alive.
    pub fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.shared.leader.clone()
    }

    /// Sets what answers other nodes while this one leads. Only the first call counts.
    pub fn serve(&self, service: Arc<dyn Service>) {
        let _ = self.shared.service.set(service);
    }

    /// Asks the leader's [`Service`], which may be this node's own.
    pub async fn ask_leader(&self, request: Bytes) -> Result<Bytes, AskError> {
        if self.shared.leads() {
            let service = self.shared.service.get();
            let service =
                service.ok_or_else(|| AskError::NotSent("the leader is still starting".into()))?;
            return Ok(service.answer(request).await);
        }
        Err(AskError::NoLeader)
    }

    /// An index that holds everything answered, by any node, before this call. What is read once
    /// [`RaftNode::applied_at_least`] it is linearizable.
    pub async fn read_index(&self) -> Result<u64, NotProposed> {
        if *self.shared.life.borrow() != Life::Running {
            return Err(NotProposed::Stopped);
        }
        if !self.shared.leads() {
            return Err(NotProposed::NotLeader);
        }
        // Alone, a node answers only what it has applied.
        Ok(self.shared.applied().unwrap_or(0))
    }

    /// Waits until this node's machine has applied the entry at `index`.
    pub async fn applied_at_least(&self, index: u64) -> Result<(), NotProposed> {
        let mut metrics = self.shared.raft.data_metrics();
        let mut life = self.shared.life.clone();
        tokio::select! {
            reached = metrics.wait_for(|now| now.last_applied.is_some_and(|id| id.index >= index)) => {
                reached.map(|_| ()).map_err(|_| NotProposed::Stopped)
            }
            _ = life.wait_for(|life| *life != Life::Running) => Err(NotProposed::Stopped),
        }
    }

    /// Voters and learners, as this node knows them.
    pub fn members(&self) -> Members {
        types::members_of(self.shared.raft.metrics().borrow().membership_config.membership())
    }

    /// This node's own view of itself and its group.
    pub fn standing(&self) -> Standing {
        let metrics = self.shared.raft.metrics();
        let now = metrics.borrow();
        let role = match now.state {
            ServerState::Leader => Role::Leader,
            ServerState::Follower => Role::Follower,
            ServerState::Candidate => Role::Candidate,
            ServerState::Learner => Role::Learner,
            ServerState::Shutdown => Role::Stopped,
        };
        let applied = now.last_applied.map(|id| id.index);
        Standing {
            id: self.shared.id,
            role,
            term: now.current_term,
            leader: self.shared.leader.borrow().as_ref().map(|leader| leader.id),
            last: now.last_log_index,
            committed: applied,
            applied,
            members: types::members_of(now.membership_config.membership()),
            matched: BTreeMap::new(),
            quorum_ack_ms: now.millis_since_quorum_ack,
            refused: None,
        }
    }

    /// Lets node `id` at `peer` receive the log, without a vote. Returns once that is committed.
    pub async fn add_learner(&self, id: u64, peer: Peer) -> Result<Members, MembershipError> {
        let _ = (id, peer);
        Err(alone())
    }

    /// Gives learners a vote, once they hold nearly all of the log.
    pub async fn promote(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        let _ = ids;
        Err(alone())
    }

    /// Makes exactly `ids` the voters; they must be members. Voters that are left out become learners.
    pub async fn set_voters(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        let _ = ids;
        Err(alone())
    }

    /// Takes node `id` out of the group.
    pub async fn remove(&self, id: u64) -> Result<Members, MembershipError> {
        let _ = id;
        Err(alone())
    }

    /// Gives the lead to the most advanced voter, if there is another one. Part of
    /// [`RaftNode::shutdown`].
    pub async fn hand_over(&self) {}
}

fn alone() -> MembershipError {
    MembershipError {
        code: MembershipCode::BadRequest,
        text: "this node runs alone: start it with a raft listener first".into(),
    }
}

impl Shared {
    fn leads(&self) -> bool {
        self.leadership.borrow().is_some()
    }

    fn applied(&self) -> Option<u64> {
        self.raft.data_metrics().borrow().last_applied.map(|id| id.index)
    }
}
