//! Streams: queries of the clients' stream runtimes, what they remember, and the cycles that move them on.
//!
//! Owns: the commands, their outcomes, their bounds, the ids of queries. Leaves to others: the rules
//! (`queen-state`), JSON (`queen-http`), the rows (`row::stream`).
//!
//! The commands' types are part of the log's format, as `command` says; a new one goes at the end of
//! [`StreamCommand`].

use crate::command::{LeaseClaim, PushGroup};
use crate::reply::{AckRefusal, PushedGroup};
use crate::{LeaseId, MessageId, Offset, PartitionId, Stamp, TenantId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes of a key of a query's state.
pub const STATE_KEY_BYTES_MAX: usize = 4096;
/// Bytes that a query may remember of one partition: keys, values and [`STATE_ROW_BYTES`] a row.
pub const STATE_BYTES_MAX: u64 = 64 << 20;
/// Bytes that a row of state counts beside its key and its value.
pub const STATE_ROW_BYTES: u64 = 64;
/// Bytes of a query's `config_hash`.
pub const CONFIG_HASH_BYTES_MAX: usize = 1024;
/// Partitions of one claim.
pub const CLAIM_PARTITIONS_MAX: usize = 256;
/// Seconds of a claim's lease, if it does not say.
pub const CLAIM_SECONDS: u32 = 30;
/// Seconds of a claim's lease.
pub const CLAIM_SECONDS_MAX: u32 = 600;
/// A query whose source queue does not exist is forgotten when it has been found so for this long, seconds.
pub const ORPHAN_SECONDS: u64 = 86_400;
/// What the group of a query is called that names none: this and the query's name.
pub const GROUP_PREFIX: &str = "streams.";

/// A query's id: the stamp under which it was registered first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct QueryId(pub Stamp);

impl QueryId {
    fn minted(self) -> MessageId {
        // A partition id that no partition has: ids of queries are never those of messages.
        MessageId::mint(self.0, PartitionId(u64::MAX - 5), Offset(0))
    }

    /// Reads the UUID that a query's id displays as, and nothing else.
    pub fn parse(text: &str) -> Option<QueryId> {
        let id = MessageId::parse(text)?;
        let query = QueryId(id.minted_at()?.stamp);
        (query.minted() == id).then_some(query)
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.minted().fmt(f)
    }
}

/// A command of a stream runtime.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each variant is documented at its type
pub enum StreamCommand<'a> {
    #[serde(borrow)]
    Register(RegisterQuery<'a>),
    #[serde(borrow)]
    Cycle(Cycle<'a>),
    #[serde(borrow)]
    Claim(ClaimPartitions<'a>),
}

/// Makes a query known, or comes back to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RegisterQuery<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Name: two runners with the same one share state and group.
    pub name: &'a str,
    /// Queue that it reads.
    pub source: &'a str,
    /// Queue that it writes to.
    #[serde(borrow)]
    pub sink: Option<&'a str>,
    /// What its state was made by: state of another one is not its own.
    pub config_hash: &'a str,
    /// What it remembers goes, whatever it was made by.
    pub reset: bool,
}

/// A step of a query on one partition: state, pushes and the ack together, or nothing of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cycle<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which query.
    pub query: QueryId,
    /// Partition of the messages, and of the state.
    pub partition: PartitionId,
    /// Consumer group; `None` for the query's own ([`GROUP_PREFIX`]).
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// In order: the last one on a key counts.
    #[serde(borrow)]
    pub ops: Vec<StateOp<'a>>,
    /// As in [`crate::command::Push`].
    #[serde(borrow)]
    pub pushes: Vec<PushGroup<'a>>,
    /// `None` when it reads no messages.
    #[serde(borrow)]
    pub ack: Option<CycleAck<'a>>,
}

/// Changes a row of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateOp<'a> {
    /// Key.
    pub key: &'a str,
    /// `None` removes the row.
    #[serde(borrow)]
    pub value: Option<StateText<'a>>,
}

/// What is remembered under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateText<'a> {
    /// Whether `bytes` is an envelope ([`crate::envelope`]): the partition's queue is encrypted.
    pub encrypted: bool,
    /// JSON text, or its envelope.
    #[serde(borrow, serialize_with = "crate::command::whole")]
    pub bytes: &'a [u8],
}

impl<'a> StateText<'a> {
    /// JSON text in the clear.
    pub fn plain(text: &'a str) -> StateText<'a> {
        StateText { encrypted: false, bytes: text.as_bytes() }
    }
}

/// What a cycle makes of the batch that it read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleAck<'a> {
    /// The lease of the batch, which must be live.
    #[serde(borrow)]
    pub lease: LeaseClaim<'a>,
    /// The last message that it is done with; empty for `count`.
    pub transaction_id: &'a str,
    /// Messages that it is done with, from the first of the batch on.
    pub count: u64,
    /// False: it is done with none of them.
    pub completed: bool,
    /// The claim ends, also before the end of the batch.
    pub release: bool,
}

/// Leases partitions of a query's source of which its group has read everything: with an empty batch,
/// so that one runner at a time closes their windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimPartitions<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which query.
    pub query: QueryId,
    /// Partitions.
    pub partitions: Vec<PartitionId>,
    /// As in [`Cycle`].
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// Length of the lease, 1 to [`CLAIM_SECONDS_MAX`].
    pub seconds: u32,
}

/// What became of a [`StreamCommand`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamReply {
    /// Of a registration.
    Registered(Registered),
    /// Of a cycle.
    Cycle(CycleOutcome),
    /// Of a claim; `None` when there is no such query.
    Claimed(Option<Claimed>),
}

/// A query after a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    /// Its id.
    pub query: QueryId,
    /// How.
    pub how: Registration,
}

/// How a registration went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Registration {
    /// There was no such query.
    Fresh,
    /// It is known and keeps its state.
    Known,
    /// It is known and its state went.
    Reset,
    /// Its state was made by another configuration: nothing changed.
    OtherConfig,
}

/// What became of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleOutcome {
    /// Name of the partition's queue, if there is one.
    pub queue: Option<String>,
    /// What its parts came to, or why nothing was applied.
    pub result: Result<CycleDone, CycleRefusal>,
}

/// What the parts of a cycle came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CycleDone {
    /// One per push group.
    pub pushes: Vec<PushedGroup>,
    /// The claim on the partition ended.
    pub released: bool,
}

/// Why nothing of a cycle was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CycleRefusal {
    /// There is no such query.
    NoQuery,
    /// There is no such partition.
    NoPartition,
    /// The batch is not the runner's, or its message is not in it.
    Ack(AckRefusal),
    /// The partition's state would have so many bytes.
    StateFull(u64),
}

impl fmt::Display for CycleRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CycleRefusal::NoQuery => f.write_str(NO_QUERY),
            CycleRefusal::NoPartition => {
                f.write_str("there is no partition with this partition_id: its queue was deleted")
            }
            CycleRefusal::Ack(refusal) => f.write_str(refusal.text()),
            CycleRefusal::StateFull(bytes) => write!(
                f,
                "the state of this partition would have {bytes} bytes, at most {STATE_BYTES_MAX}: \
                 remember fewer keys, or spread them over more partitions"
            ),
        }
    }
}

/// There is no such query, and the way out.
pub const NO_QUERY: &str = "there is no query with this query_id: register it again";

/// What a claim got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The lease of every partition that it got.
    pub lease: LeaseId,
    /// When it was claimed.
    pub stamp: Stamp,
    /// One per partition asked for, in that order.
    pub partitions: Vec<ClaimedPartition>,
}

/// A partition that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimedPartition {
    /// Its id.
    pub id: PartitionId,
    /// Its name; empty when there is no such partition.
    pub name: Box<str>,
    /// Whether it was claimed.
    pub status: ClaimStatus,
}

/// Whether a partition was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimStatus {
    /// It is the claim's until this stamp.
    Claimed(Stamp),
    /// It is somebody's until this stamp.
    Busy(Stamp),
    /// Messages wait for the group: its next pop is given them.
    Backlog,
    /// There is no such partition, or it is not of the query's source.
    Missing,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_querys_id_reads_back_and_is_never_that_of_something_else() {
        let query = QueryId(Stamp(1_792_837_434_000_123));
        assert_eq!(QueryId::parse(&query.to_string()), Some(query));
        let message = MessageId::mint(query.0, PartitionId(7), Offset(0));
        for other in [message.to_string(), LeaseId::mint(query.0).to_string(), "x".to_owned()] {
            assert_eq!(QueryId::parse(&other), None, "{other}");
        }
    }
}
