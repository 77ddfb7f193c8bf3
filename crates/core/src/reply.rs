//! Replies: what `apply` says of a command to the one who proposed it.
//!
//! Owns: the types. They never leave the process and are not persisted.

use crate::kv::KvOutcome;
use crate::lock::LockResult;
use crate::options::QueueOptions;
use crate::stream::StreamReply;
use crate::switch::Switches;
use crate::timer::{Fired, TimerResult};
use crate::transaction::TransactionOutcome;
use crate::{Error, LeaseId, Offset, PartitionId, QueueId, Stamp};

/// What became of a command.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs)] // each variant is documented at its type
pub enum Reply {
    Push(Vec<PushedGroup>),
    Pop(Popped),
    Ack(Vec<AckOutcome>),
    Lease(LeaseExtended),
    Configured(ConfiguredQueue),
    Deleted(bool),
    Kv(KvOutcome),
    Seek(Option<u64>),
    GroupDeleted(u64),
    SubscriptionMoved(u64),
    Replayed(Option<Replayed>),
    Purged(u64),
    Ticked(Ticked),
    Transaction(TransactionOutcome),
    Locks(Vec<LockResult>),
    Timers(Vec<TimerResult>),
    Fired(Fired),
    Switches(Switches),
    /// Stamp of the event.
    Traced(Stamp),
    Stream(StreamReply),
    /// Whether the ephemeral queue was declared before.
    Declared(bool),
    /// The command had no effect.
    Refused(Error),
}

/// One group of a push, in the order of the command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushedGroup {
    /// Where the messages went.
    pub partition: PartitionId,
    /// Stamp of the append.
    pub stamp: Stamp,
    /// Offset of the first message that was appended.
    pub first_offset: Offset,
    /// Empty when every message was appended; otherwise one per message.
    pub items: Vec<PushedItem>,
}

/// One message of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushedItem {
    /// Appended at this offset.
    Queued(Offset),
    /// The transaction id was there already; where its message lies.
    Duplicate {
        /// Of the stored original.
        offset: Offset,
        /// Of the stored original.
        stamp: Stamp,
    },
}

/// What a pop claimed.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Popped {
    /// `None` when nothing was claimed, or committed at delivery.
    pub lease: Option<LeaseId>,
    /// Claims in order of delivery; empty when there was nothing to deliver.
    pub claims: Vec<Claim>,
    /// The group conflates.
    pub conflation: bool,
}

/// A contiguous batch of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Queue incarnation.
    pub queue: QueueId,
    /// Partition.
    pub partition: PartitionId,
    /// Its name.
    pub partition_name: Box<str>,
    /// First offset delivered.
    pub first: Offset,
    /// The offset after the last delivered; greater than `first`.
    pub end: Offset,
    /// 1 for a first delivery.
    pub attempt: u32,
}

/// One settled message, in the order of the command.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AckOutcome {
    /// `None` when it was accepted.
    pub refusal: Option<AckRefusal>,
    /// The claim on the partition ended with it.
    pub lease_released: bool,
    /// It went to the dead letters.
    pub dead_lettered: bool,
    /// It was settled before.
    pub noop: bool,
    /// Messages below it that were settled with it and never delivered: the group conflates.
    pub conflated: u64,
}

/// Why an ack was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRefusal {
    /// The lease is not live or not the holder's.
    Lease,
    /// Already behind the cursor.
    Committed,
    /// The transaction id names no message of the partition.
    Unresolvable,
    /// The group has no cursor there.
    NoConsumer,
}

impl AckRefusal {
    /// The text of the HTTP API.
    pub fn text(self) -> &'static str {
        match self {
            AckRefusal::Lease => "invalid or expired lease",
            AckRefusal::Committed => "already committed",
            AckRefusal::Unresolvable => "unresolvable transactionId",
            AckRefusal::NoConsumer => "consumer not found",
        }
    }
}

/// A lease after an extension; `claims` is 0 when it was not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseExtended {
    /// Live claims under it.
    pub claims: u32,
    /// Its end now.
    pub expires_at: Stamp,
}

/// A queue after a configure.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredQueue {
    /// Its id.
    pub queue: QueueId,
    /// All effective options, labels included.
    pub options: QueueOptions,
}

/// A replayed dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Its id.
    pub letter: [u8; 16],
    /// The transaction id it had.
    pub original_transaction_id: String,
    /// The group it failed in.
    pub group: String,
    /// Where the copy went.
    pub queue: String,
    /// Where the copy went.
    pub partition: String,
    /// The copy's partition.
    pub partition_id: PartitionId,
    /// The copy.
    pub item: PushedItem,
    /// Stamp of the copy's append.
    pub stamp: Stamp,
}

/// What a tick did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ticked {
    /// The tick's own stamp.
    pub stamp: Stamp,
    /// Steps are due that did not fit into this tick.
    pub more: bool,
}

/// What others may now want to do, told by `apply` beside the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// This queue was written to; so many partitions may have become ready for every group.
    Written {
        /// Queue.
        queue: QueueId,
        /// Partitions.
        partitions: u32,
    },
    /// A partition became ready again for one group (released, expired, clamped, sought).
    Ready {
        /// Queue.
        queue: QueueId,
        /// Group.
        group: crate::GroupId,
    },
    /// The queue was created, its options changed, or it was deleted.
    QueueChanged {
        /// Queue.
        queue: QueueId,
    },
    /// A timer was set that falls due at this stamp, or timers may fall due again.
    TimerDue(Stamp),
    /// A kill switch was turned.
    SwitchesChanged,
    /// An ephemeral queue is declared otherwise, or not any more.
    EphemeralChanged,
}
