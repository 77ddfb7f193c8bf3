//! Changes of members, on the leader.
//!
//! Owns: their rules and codes. Leaves to others: the joint step between two sets of voters (the
//! library), carrying a change to the leader (`group`).

use crate::address::Address;
use crate::cluster::{Members, MembershipCode as Code, MembershipError, Peer};
use crate::exchange::Exchange;
use crate::message::Change;
use crate::net::greeting::Purpose;
use crate::types::{self, TypeConfig};
use openraft::error::{ChangeMembershipError, ClientWriteError, RaftError};
use openraft::{BasicNode, ChangeMembers, Raft};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A change that is not committed in this time is given up by the one who waits for it.
const LIMIT: Duration = Duration::from_secs(30);
/// A learner this many entries behind the leader may be promoted.
const LAG_MAX: u64 = 1000;
/// How long a promotion waits for a learner that catches up.
const CATCH_UP: Duration = Duration::from_secs(20);
/// A node that answered this long ago lives; one that has just come back has as long to answer.
const LIVES: Duration = Duration::from_secs(3);

type Outcome = Result<Members, MembershipError>;

fn refused(code: Code, text: impl Into<String>) -> MembershipError {
    MembershipError { code, text: text.into() }
}

impl Exchange {
    /// Does one change; they come one at a time, by the library's own rule.
    pub(crate) async fn change(self: &Arc<Self>, change: Change) -> Outcome {
        let raft = self.raft.get().filter(|_| self.leads());
        let raft = raft.ok_or_else(|| {
            refused(Code::LeaderChanged, format!("node {} does not lead any more", self.me))
        })?;
        tracing::info!(?change, "members change");
        match change {
            Change::AddLearner { id, raft: at, http } => {
                self.add_learner_here(raft, id, Peer { raft: at, http }).await
            }
            Change::Promote(ids) => self.promote_here(raft, ids).await,
            Change::SetVoters(ids) => self.set_voters_here(raft, ids).await,
            Change::Remove(id) => self.remove_here(raft, id).await,
        }
    }

    /// From the library itself: its metrics may lag behind a change that it has answered.
    async fn now(&self, raft: &Raft<TypeConfig>) -> Result<Members, MembershipError> {
        let asked = raft.with_raft_state(|state| {
            types::members_of(state.membership_state.effective().membership())
        });
        asked.await.map_err(|error| refused(Code::LeaderChanged, error.to_string()))
    }

    async fn write(
        &self,
        raft: &Raft<TypeConfig>,
        change: ChangeMembers<u64, BasicNode>,
        retain: bool,
    ) -> Outcome {
        match timeout(LIMIT, raft.change_membership(change, retain)).await {
            Ok(Ok(done)) => {
                let members = done.membership.as_ref().map(types::members_of);
                match members {
                    Some(members) => Ok(members),
                    None => self.now(raft).await,
                }
            }
            Ok(Err(error)) => Err(coded(error)),
            Err(_) => Err(refused(
                Code::Timeout,
                "the change is not committed yet: look at the members before trying again",
            )),
        }
    }

    /// Writes this node's own address and disk into the membership, where a group of one has none.
    pub(crate) async fn name_self(&self, raft: &Raft<TypeConfig>) -> Outcome {
        let own = self.own_address();
        let known = raft.server_metrics().borrow().membership_config.membership().clone();
        let known = known.get_node(&self.me).map(Address::of);
        if known.is_none_or(|known| known == own) {
            return self.now(raft).await;
        }
        let nodes = BTreeMap::from([(self.me, own.node())]);
        self.write(raft, ChangeMembers::SetNodes(nodes), true).await
    }

    async fn add_learner_here(&self, raft: &Raft<TypeConfig>, id: u64, peer: Peer) -> Outcome {
        if id == 0 || u32::try_from(id).is_err() || !peer.raft.contains(':') {
            let text = format!("node {id} at {:?} needs an id from 1 and host:port", peer.raft);
            return Err(refused(Code::BadRequest, text));
        }
        let now = self.now(raft).await?;
        if let Some(known) = now.peers.get(&id) {
            if known.raft != peer.raft {
                let text = format!("node {id} is a member already, at {}", known.raft);
                return Err(refused(Code::AddressMismatch, text));
            }
            if now.voters.contains(&id) {
                return Err(refused(Code::AlreadyVoter, format!("node {id} votes already")));
            }
        }
        self.name_self(raft).await?;
        let mut address = Address { peer, disk: [0; 16] };
        let greeted =
            timeout(crate::net::link::CONNECT, self.connect(id, &address, Purpose::Control));
        let listener = match greeted.await {
            Ok(Ok((_, listener))) => listener,
            Ok(Err(error)) => {
                let text = format!("node {id} at {} cannot be added: {error}", address.peer.raft);
                return Err(refused(Code::BadRequest, text));
            }
            Err(_) => {
                let text = format!("node {id} does not answer at {}", address.peer.raft);
                return Err(refused(Code::BadRequest, text));
            }
        };
        address.disk = listener.disk;
        let nodes = BTreeMap::from([(id, address.node())]);
        self.write(raft, ChangeMembers::SetNodes(nodes), true).await
    }

    async fn promote_here(&self, raft: &Raft<TypeConfig>, ids: Vec<u64>) -> Outcome {
        let now = self.now(raft).await?;
        if ids.is_empty() {
            return Err(refused(Code::BadRequest, "no node to promote is named"));
        }
        for id in &ids {
            if now.voters.contains(id) {
                return Err(refused(Code::AlreadyVoter, format!("node {id} votes already")));
            }
            if !now.learners.contains(id) {
                return Err(refused(Code::NotALearner, format!("node {id} is no learner")));
            }
        }
        self.caught_up(raft, &ids).await?;
        self.write(raft, ChangeMembers::AddVoterIds(ids.into_iter().collect()), true).await
    }

    /// Waits until each of `ids` holds nearly all of the log.
    async fn caught_up(&self, raft: &Raft<TypeConfig>, ids: &[u64]) -> Result<(), MembershipError> {
        let mut metrics = raft.data_metrics();
        let near = metrics.wait_for(|now| {
            let last = now.last_log.map_or(0, |id| id.index);
            let holds = |id: &u64| now.replication.as_ref()?.get(id).copied().flatten();
            ids.iter().all(|id| holds(id).is_some_and(|at| at.index + LAG_MAX >= last))
        });
        match timeout(CATCH_UP, near).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) => Err(refused(Code::LeaderChanged, "this node stops")),
            Err(_) => Err(refused(
                Code::LearnerBehind,
                format!("not all of {ids:?} hold the log yet: try again when they do"),
            )),
        }
    }

    async fn set_voters_here(&self, raft: &Raft<TypeConfig>, ids: Vec<u64>) -> Outcome {
        let now = self.now(raft).await?;
        let voters: BTreeSet<u64> = ids.into_iter().collect();
        if voters.is_empty() {
            return Err(refused(Code::LastVoter, "a group needs a voter"));
        }
        if let Some(id) = voters.iter().find(|id| !now.peers.contains_key(id)) {
            return Err(refused(Code::NotAMember, format!("node {id} is no member")));
        }
        self.enough_answer(&voters).await?;
        let new: Vec<u64> = voters.difference(&now.voters).copied().collect();
        self.caught_up(raft, &new).await?;
        self.write(raft, ChangeMembers::ReplaceAllVoters(voters), true).await
    }

    async fn remove_here(&self, raft: &Raft<TypeConfig>, id: u64) -> Outcome {
        let now = self.now(raft).await?;
        if now.learners.contains(&id) {
            return self.write(raft, ChangeMembers::RemoveNodes([id].into()), true).await;
        }
        if !now.voters.contains(&id) {
            return Err(refused(Code::NotAMember, format!("node {id} is no member")));
        }
        let left: BTreeSet<u64> = now.voters.iter().copied().filter(|one| *one != id).collect();
        if left.is_empty() {
            let text = format!("node {id} is the last voter: promote another one first");
            return Err(refused(Code::LastVoter, text));
        }
        self.enough_answer(&left).await?;
        self.write(raft, ChangeMembers::RemoveVoters([id].into()), false).await
    }

    /// Refuses voters that could commit nothing.
    async fn enough_answer(&self, voters: &BTreeSet<u64>) -> Result<(), MembershipError> {
        let enough = async {
            loop {
                let mut answered = std::pin::pin!(self.answered.notified());
                // From here on no answer is missed.
                answered.as_mut().enable();
                if self.living(voters) * 2 > voters.len() {
                    return;
                }
                answered.await;
            }
        };
        if timeout(LIVES, enough).await.is_ok() {
            return Ok(());
        }
        let living = self.living(voters);
        let text =
            format!("of the voters {voters:?} only {living} answer: they could commit nothing");
        Err(refused(Code::NoQuorum, text))
    }

    fn living(&self, voters: &BTreeSet<u64>) -> usize {
        let acks = self.acks.lock();
        let lives =
            |id: &&u64| **id == self.me || acks.get(id).is_some_and(|at| at.elapsed() < LIVES);
        voters.iter().filter(lives).count()
    }
}

fn coded(error: RaftError<u64, ClientWriteError<u64, BasicNode>>) -> MembershipError {
    use ClientWriteError::{ChangeMembershipError as Refused, ForwardToLeader};
    let code = match &error {
        RaftError::APIError(ForwardToLeader(_)) | RaftError::Fatal(_) => Code::LeaderChanged,
        RaftError::APIError(Refused(ChangeMembershipError::InProgress(_))) => Code::InFlight,
        RaftError::APIError(Refused(ChangeMembershipError::EmptyMembership(_))) => Code::LastVoter,
        RaftError::APIError(Refused(ChangeMembershipError::LearnerNotFound(_))) => {
            Code::NotALearner
        }
    };
    refused(code, error.to_string())
}
