//! What a node offers to its own process beyond proposing: reads, questions to the leader, members.
//!
//! Owns: these calls. Leaves to others: start and shutdown (`node`), what an answer means (`Service`).

use crate::cluster::{
    AskError, Leader, Members, MembershipCode, MembershipError, Peer, Role, Service, Standing,
};
use crate::exchange::{ASKED_BYTES, Exchange};
use crate::message::{self, Change};
use crate::net::frame::Kind;
use crate::net::greeting::Purpose;
use crate::net::link::LinkError;
use crate::node::{Life, RaftNode, Shared};
use crate::{NotProposed, types};
use bytes::Bytes;
use openraft::ServerState;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// A request to the leader without an answer for this long has an unknown outcome.
const ASK: Duration = Duration::from_secs(60);
/// The same for one to any node.
const CONSULT: Duration = Duration::from_secs(3);
const READ: Duration = Duration::from_secs(5);
const CHANGE: Duration = Duration::from_secs(60);

impl From<LinkError> for AskError {
    fn from(error: LinkError) -> AskError {
        match error {
            LinkError::NotSent(why) | LinkError::Refused(why) => AskError::NotSent(why),
            LinkError::Lost(why) => AskError::OutcomeUnknown(why),
        }
    }
}

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
        if self.shared.gather.leads() {
            let service = self.shared.service.get();
            let service =
                service.ok_or_else(|| AskError::NotSent("the leader is still starting".into()))?;
            return Ok(service.answer(request).await);
        }
        let leader = self.shared.leader.borrow().clone().ok_or(AskError::NoLeader)?;
        let exchange = self.shared.exchange.as_ref().ok_or(AskError::NoLeader)?;
        if leader.id == self.shared.id {
            return Err(AskError::NoLeader);
        }
        let size = request.len().clamp(1, ASKED_BYTES) as u32;
        let _size = exchange.asked.acquire_many(size).await;
        let link = exchange.link(leader.id, Purpose::Ask).ok_or(AskError::NoLeader)?;
        link.ask(Kind::Ask, request, ASK).await.map_err(AskError::from)
    }

    /// Asks the [`Service`] of another node, whether it leads or not. For small questions that wait
    /// for nothing.
    pub async fn consult(&self, id: u64, request: Bytes) -> Result<Bytes, AskError> {
        let link = self.shared.exchange.as_ref().and_then(|all| all.link(id, Purpose::Control));
        let link = link.ok_or_else(|| AskError::NotSent(format!("node {id} is not known")))?;
        link.ask(Kind::Consult, request, CONSULT).await.map_err(AskError::from)
    }

    /// An index that holds everything answered, by any node, before this call. What is read once
    /// [`RaftNode::applied_at_least`] it is linearizable.
    pub async fn read_index(&self) -> Result<u64, NotProposed> {
        if *self.shared.life.borrow() != Life::Running {
            return Err(NotProposed::Stopped);
        }
        let leads = self.shared.gather.leads();
        let Some(exchange) = &self.shared.exchange else {
            // Alone, a node answers only what it has applied.
            let applied = self.shared.applied().unwrap_or(0);
            return if leads { Ok(applied) } else { Err(NotProposed::NotLeader) };
        };
        if leads {
            return exchange.confirmed_index().await;
        }
        let leader = self.shared.leader.borrow().as_ref().map(|leader| leader.id);
        let leader = leader.filter(|id| *id != self.shared.id).ok_or(NotProposed::NotLeader)?;
        let link = exchange.link(leader, Purpose::Control).ok_or(NotProposed::NotLeader)?;
        let answer = link.ask(Kind::ReadIndex, Bytes::new(), READ).await;
        answer.ok().and_then(|index| message::decode(&index)).ok_or(NotProposed::NotLeader)
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
        let shared = &self.shared;
        let metrics = shared.raft.metrics();
        let now = metrics.borrow();
        let leader = shared.leader.borrow().as_ref().map(|leader| leader.id);
        let leads = shared.gather.leads();
        let role = match now.state {
            ServerState::Shutdown => Role::Stopped,
            ServerState::Learner => Role::Learner,
            _ if leads => Role::Leader,
            ServerState::Follower if leader.is_some() => Role::Follower,
            _ => Role::Candidate,
        };
        let index = |id: &Option<types::Id>| id.map(|id| id.index);
        let matched: BTreeMap<u64, Option<u64>> = match &now.replication {
            Some(all) => all.iter().map(|(id, at)| (*id, index(at))).collect(),
            None => BTreeMap::new(),
        };
        let applied = index(&now.last_applied);
        let exchange = shared.exchange.as_ref();
        let told = exchange.and_then(|exchange| exchange.committed());
        let quorum_ack_ms = exchange
            .filter(|_| now.replication.is_some())
            .map(|exchange| exchange.quorum_age().map_or(0, |age| age.as_millis() as u64));
        Standing {
            id: shared.id,
            role,
            term: now.current_term,
            leader,
            last: now.last_log_index,
            committed: applied.max(told.min(now.last_log_index)),
            applied,
            members: types::members_of(now.membership_config.membership()),
            matched,
            quorum_ack_ms: quorum_ack_ms.or(now.millis_since_quorum_ack),
            refused: exchange.and_then(|exchange| exchange.refused.borrow().clone()),
        }
    }

    /// Lets node `id` at `peer` receive the log, without a vote. Returns once that is committed.
    pub async fn add_learner(&self, id: u64, peer: Peer) -> Result<Members, MembershipError> {
        let Peer { raft, http } = peer;
        self.change(Change::AddLearner { id, raft, http }).await
    }

    /// Gives learners a vote, once they hold nearly all of the log.
    pub async fn promote(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        self.change(Change::Promote(ids)).await
    }

    /// Makes exactly `ids` the voters; they must be members. Voters that are left out become learners.
    pub async fn set_voters(&self, ids: Vec<u64>) -> Result<Members, MembershipError> {
        self.change(Change::SetVoters(ids)).await
    }

    /// Takes node `id` out of the group.
    pub async fn remove(&self, id: u64) -> Result<Members, MembershipError> {
        self.change(Change::Remove(id)).await
    }

    async fn change(&self, change: Change) -> Result<Members, MembershipError> {
        let failed = |code, text: &str| Err(MembershipError { code, text: text.into() });
        let Some(exchange) = &self.shared.exchange else {
            let text = "this node runs alone: start it with a raft listener first";
            return failed(MembershipCode::BadRequest, text);
        };
        if self.shared.gather.leads() {
            return exchange.change(change).await;
        }
        let leader = self.shared.leader.borrow().as_ref().map(|leader| leader.id);
        let link = leader.and_then(|id| exchange.link(id, Purpose::Control));
        let Some(link) = link else {
            return failed(MembershipCode::LeaderUnreachable, "no leader is known");
        };
        match link.ask(Kind::Change, message::encode(&change), CHANGE).await {
            Ok(answer) => message::decode(&answer).unwrap_or_else(|| {
                failed(MembershipCode::LeaderUnreachable, "the leader's answer cannot be read")
            }),
            Err(LinkError::Lost(why)) => failed(MembershipCode::Timeout, &why),
            Err(LinkError::NotSent(why) | LinkError::Refused(why)) => {
                failed(MembershipCode::LeaderUnreachable, &why)
            }
        }
    }

    /// Gives the lead to the most advanced voter, if there is another one. Part of
    /// [`RaftNode::shutdown`].
    pub async fn hand_over(&self) {
        if let Some(exchange) = &self.shared.exchange
            && self.shared.gather.leads()
        {
            exchange.hand_over(self.shared.leadership.clone()).await;
        }
    }
}

/// Longest wait for a voter that holds the whole log.
const CATCH_UP: Duration = Duration::from_secs(1);
/// For so many milliseconds after the leader's last append a voter votes for nobody else.
///
/// The library insists on such a lease; nothing here relies on it. A read is confirmed by a majority that
/// is asked after the question (`reads`), so a leader that has been followed by another confirms none,
/// however short the lease was. And nobody stands whom a majority has not told that it hears no leader
/// (`pacing`), unless the leader itself asks for it, below. So it is short, but not so short that the
/// library, which looks at its clock every 1.5 times as long, costs an idle node anything.
pub(crate) const LEASE_MS: u64 = 20;
/// What a leader that hands over waits after its last append, before the other stands: it votes for the
/// other at once itself, which is a majority of three; of five one more is needed.
const LEASE_OVER: Duration = Duration::from_millis(LEASE_MS + 5);
const TAKEN_OVER: Duration = Duration::from_millis(1500);

impl Exchange {
    async fn hand_over(self: &Arc<Self>, mut leadership: watch::Receiver<Option<u64>>) {
        let Some(raft) = self.raft.get() else { return };
        let members = raft.server_metrics().borrow().membership_config.membership().clone();
        let voters: Vec<u64> = members.voter_ids().filter(|id| *id != self.me).collect();
        if voters.is_empty() {
            return;
        }
        self.step_down(true);
        let _ = leadership.wait_for(Option::is_none).await;
        let mut data = raft.data_metrics();
        let whole = data.wait_for(|now| {
            let holds = |id: &u64| now.replication.as_ref()?.get(id).copied();
            voters.iter().any(|id| holds(id) == Some(now.last_log)) || now.replication.is_none()
        });
        let target = match tokio::time::timeout(CATCH_UP, whole).await {
            Ok(Ok(now)) => voters.iter().copied().find(|id| {
                now.replication.as_ref().and_then(|all| all.get(id)) == Some(&now.last_log)
            }),
            _ => None,
        };
        if let Some(target) = target
            && let Some(link) = self.link(target, Purpose::Control)
        {
            tokio::time::sleep(LEASE_OVER).await;
            let asked = link.ask(Kind::Stand, Bytes::new(), TAKEN_OVER).await;
            let mut server = raft.server_metrics();
            let followed = server.wait_for(|now| now.state != ServerState::Leader);
            let taken = tokio::time::timeout(TAKEN_OVER, followed).await.is_ok();
            tracing::info!(to = target, asked = asked.is_ok(), taken, "handed over the lead");
        }
        self.step_down(false);
    }
}

impl Shared {
    fn applied(&self) -> Option<u64> {
        self.raft.data_metrics().borrow().last_applied.map(|id| id.index)
    }
}
