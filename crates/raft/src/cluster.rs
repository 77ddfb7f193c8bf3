//! What a cluster is told and what it tells: options, members, leader, standing, the service of a leader.
//!
//! Owns: the public types of a group of several nodes. Leaves to others: everything that happens with
//! them (`node`).

use bytes::Bytes;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Where a node is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Peer {
    /// Its raft listener, `host:port`.
    pub raft: String,
    /// Its HTTP listener, `host:port`; told to others, never used here.
    pub http: String,
}

/// Files for mutual TLS between nodes, PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Certificates of the authority that every node's certificate must come from.
    pub ca: PathBuf,
    /// This node's certificate and its chain; its names must cover the host in its [`Peer::raft`].
    pub cert: PathBuf,
    /// The key of that certificate.
    pub key: PathBuf,
}

/// How a node takes part in a group of several.
#[derive(Clone)]
pub struct ClusterOptions {
    /// The founding voters, this node included; the same on every node. Read again only for this node's
    /// own addresses once the group exists.
    pub peers: BTreeMap<u64, Peer>,
    /// Start empty and wait to be added by [`crate::RaftNode::add_learner`].
    pub join: bool,
    /// Where this node's raft listener binds.
    pub listen: SocketAddr,
    /// The secret that every node of the group shares. It never crosses the wire.
    pub token: String,
    /// Mutual TLS between nodes; `None`: plain TCP.
    pub tls: Option<TlsFiles>,
    /// A voter that heard of no leader for a time drawn from this range asks to be elected.
    pub election: (Duration, Duration),
}

impl ClusterOptions {
    /// The default of [`ClusterOptions::election`].
    pub const ELECTION: (Duration, Duration) =
        (Duration::from_millis(1000), Duration::from_millis(2000));
}

impl fmt::Debug for ClusterOptions {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ClusterOptions")
            .field("peers", &self.peers)
            .field("join", &self.join)
            .field("listen", &self.listen)
            .field("tls", &self.tls)
            .field("election", &self.election)
            .finish_non_exhaustive()
    }
}

/// The leader, as one node knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its node id.
    pub id: u64,
    /// The term in which it leads.
    pub term: u64,
    /// Its raft listener; empty on a single node.
    pub raft: String,
    /// Its HTTP listener; empty on a single node.
    pub http: String,
}

/// What a node is in its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Takes proposals, with a majority behind it.
    Leader,
    /// A voter that follows.
    Follower,
    /// A voter that asks to be elected, or knows of no leader.
    Candidate,
    /// Receives the log and has no vote; also a node that is not in any group yet.
    Learner,
    /// Has ended.
    Stopped,
}

impl Role {
    /// The word for people and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Candidate => "candidate",
            Self::Learner => "learner",
            Self::Stopped => "stopped",
        }
    }
}

/// Voters, learners and where they are, as one node knows them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// Nodes that vote. During a change: those before and those after it.
    pub voters: BTreeSet<u64>,
    /// Nodes that receive the log and have no vote.
    pub learners: BTreeSet<u64>,
    /// Addresses of all of them.
    pub peers: BTreeMap<u64, Peer>,
}

/// This node's own view of itself and its group, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// This node's id.
    pub id: u64,
    /// What it is.
    pub role: Role,
    /// Newest term that it knows.
    pub term: u64,
    /// The leader it follows, if it knows one that lives.
    pub leader: Option<u64>,
    /// Index of the last entry in its log.
    pub last: Option<u64>,
    /// Index up to which it knows entries to be committed.
    pub committed: Option<u64>,
    /// Index up to which its machine has applied.
    pub applied: Option<u64>,
    /// Voters and learners.
    pub members: Members,
    /// On the leader: index up to which each other node holds the log.
    pub matched: BTreeMap<u64, Option<u64>>,
    /// On the leader: milliseconds since a majority last answered it.
    pub quorum_ack_ms: Option<u64>,
    /// Why this node takes no part in its group, and what to do; `None` for a sound one.
    pub refused: Option<String>,
}

/// Answers what other nodes ask.
pub trait Service: Send + Sync + 'static {
    /// Answers one request of [`crate::RaftNode::ask_leader`]. Many run at a time, in any order.
    ///
    /// Asked only while this node leads; the lead may be lost before the answer.
    fn answer(&self, request: Bytes) -> BoxFuture<'static, Bytes>;

    /// Answers one request of [`crate::RaftNode::consult`], whoever leads.
    fn consulted(&self, request: Bytes) -> BoxFuture<'static, Bytes>;
}

/// A request to the leader has no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum AskError {
    /// No leader is known: nothing was sent.
    #[error("no leader is known")]
    NoLeader,
    /// The request reached no service: nothing of it was or will be done.
    #[error("the request did not arrive: {0}")]
    NotSent(String),
    /// The request was sent and the answer is lost: it may have been done, now or later.
    #[error("the answer is lost: {0}")]
    OutcomeUnknown(String),
}

/// A change of members was refused or did not finish.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq, Serialize, Deserialize)]
#[error("{text}")]
pub struct MembershipError {
    /// What kind, for programs.
    pub code: MembershipCode,
    /// What happened, and what to do.
    pub text: String,
}

/// Kinds of [`MembershipError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipCode {
    /// The request makes no sense as it is.
    BadRequest,
    /// A node to promote is no learner.
    NotALearner,
    /// A node to remove is no member.
    NotAMember,
    /// Another change is on its way.
    InFlight,
    /// The voters asked for have no majority that is reachable.
    NoQuorum,
    /// The last voter cannot be removed.
    LastVoter,
    /// A learner has not caught up with the log yet.
    LearnerBehind,
    /// The node votes already.
    AlreadyVoter,
    /// The id belongs to a node at other addresses.
    AddressMismatch,
    /// The members changed meanwhile.
    MembershipChanged,
    /// The leader changed meanwhile; the change may or may not have happened.
    LeaderChanged,
    /// This node does not lead and cannot reach the leader.
    LeaderUnreachable,
    /// No answer in time; the change may or may not happen.
    Timeout,
}

impl MembershipCode {
    /// The code as clients see it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::NotALearner => "not_a_learner",
            Self::NotAMember => "not_a_member",
            Self::InFlight => "in_flight",
            Self::NoQuorum => "no_quorum",
            Self::LastVoter => "last_voter",
            Self::LearnerBehind => "learner_behind",
            Self::AlreadyVoter => "already_voter",
            Self::AddressMismatch => "address_mismatch",
            Self::MembershipChanged => "membership_changed",
            Self::LeaderChanged => "leader_changed",
            Self::LeaderUnreachable => "leader_unreachable",
            Self::Timeout => "timeout",
        }
    }

    /// Every code.
    pub const ALL: [Self; 13] = [
        Self::BadRequest,
        Self::NotALearner,
        Self::NotAMember,
        Self::InFlight,
        Self::NoQuorum,
        Self::LastVoter,
        Self::LearnerBehind,
        Self::AlreadyVoter,
        Self::AddressMismatch,
        Self::MembershipChanged,
        Self::LeaderChanged,
        Self::LeaderUnreachable,
        Self::Timeout,
    ];
}
