//! Transactions: acks, pushes and riders that apply together or not at all.
//!
//! Owns: what a transaction holds and what became of it. Leaves to others: the rules
//! (`queen-state`), JSON (`queen-http`), the parts that other commands have too: ack items and push
//! groups (`command`), KV operations (`kv`), operations on timers (`timer`).
//!
//! The command's types are part of the log's format, as `command` says; a new kind of rider goes at
//! the end of [`Rider`].

use crate::command::{AckItem, GroupStart, PushGroup};
use crate::kv::{KvLoss, KvOp, KvResult, KvRow};
use crate::reply::{AckOutcome, AckRefusal, PushedGroup};
use crate::timer::{TimerOp, TimerResult};
use crate::{MessageId, Offset, PartitionId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Acks, pushes and riders: all are applied under one stamp, or nothing is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Transaction<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Acks by consumer group, in order of first appearance. No two have the same group.
    #[serde(borrow)]
    pub acks: Vec<AckGroup<'a>>,
    /// As in [`crate::command::Push`].
    #[serde(borrow)]
    pub pushes: Vec<PushGroup<'a>>,
    /// In request order.
    #[serde(borrow)]
    pub riders: Vec<Rider<'a>>,
}

/// The acks of a transaction for one consumer group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckGroup<'a> {
    /// Group; `None` is queue mode.
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// In request order.
    #[serde(borrow)]
    pub items: Vec<AckItem<'a>>,
}

/// What a transaction carries beside acks and pushes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rider<'a> {
    /// A KV operation. No `GetPrefix`; at most one write per (namespace, key) in a transaction.
    #[serde(borrow)]
    Kv(KvOp<'a>),
    /// A group's place in a partition.
    #[serde(borrow)]
    Position(Position<'a>),
    /// An operation on a timer. No `Seal`; no two of a transaction on the same queue and key.
    #[serde(borrow)]
    Timer(TimerOp<'a>),
}

/// Sets where a group goes on in a partition; its claim there ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Position<'a> {
    /// Queue name.
    pub queue: &'a str,
    /// Partition name.
    pub partition: &'a str,
    /// Group.
    pub group: &'a str,
    /// Next offset, held within what is retained; `None` registers the group and moves nothing.
    pub offset: Option<Offset>,
    /// Where the group starts in other partitions, if it is not registered yet.
    pub start: GroupStart,
}

/// The id of the transaction stamped `stamp`: no message has it.
pub fn id(stamp: Stamp) -> MessageId {
    MessageId::mint(stamp, PartitionId(u64::MAX - 2), Offset(0))
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq)]
pub struct TransactionOutcome {
    /// Stamp of its command.
    pub stamp: Stamp,
    /// What its parts came to, or why nothing was applied.
    pub result: Result<Committed, RolledBack>,
}

/// What the parts of a transaction came to, each list in the order of the command.
#[derive(Clone, Debug, PartialEq)]
pub struct Committed {
    /// One list per ack group. None is refused.
    pub acks: Vec<Vec<AckOutcome>>,
    /// One per push group. Duplicates are repeats within the transaction.
    pub pushes: Vec<PushedGroup>,
    /// One per rider.
    pub riders: Vec<RiderResult>,
}

/// What a rider came to.
#[derive(Clone, Debug, PartialEq)]
pub enum RiderResult {
    /// Of a KV operation. Reads see the state after the transaction.
    Kv(KvResult),
    /// The offset a group goes on at; `None` when it was not to be moved.
    Position(Option<Offset>),
    /// Of an operation on a timer. One that finds no timer undoes nothing.
    Timer(TimerResult),
}

/// Why nothing of a transaction was applied. Indexes count in the command's own lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RolledBack {
    /// An ack was refused.
    Ack {
        /// Its ack group.
        group: usize,
        /// Its item there.
        item: usize,
        /// Why.
        refusal: AckRefusal,
    },
    /// A message is stored already under a pushed transaction id.
    Duplicate {
        /// Its push group.
        group: usize,
        /// Its message there.
        item: usize,
    },
    /// A position names a queue or a partition that is not there.
    NoPartition {
        /// The rider.
        rider: usize,
    },
    /// A required KV operation was lost.
    Precondition {
        /// The rider.
        rider: usize,
        /// Why.
        reason: KvLoss,
        /// The row as it is, if it exists.
        row: Option<KvRow>,
    },
}
