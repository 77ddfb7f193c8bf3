//! Commands: what a log entry asks of the state machine.
//!
//! Owns: their fields and bytes (postcard; the order of variants and fields is the format, new ones
//! go at the end, none is removed or reordered). Leaves to others: what a command does
//! (`queen-state`), what a request must look like to become one (`queen-http`, `queen-broker`).

use crate::ephemeral::DeclareEphemeral;
use crate::kv::KvOp;
use crate::lock::Locks;
use crate::options::OptionsPatch;
use crate::stream::StreamCommand;
use crate::switch::SetSwitches;
use crate::timer::Timers;
use crate::trace::RecordTrace;
use crate::transaction::Transaction;
use crate::{LeaseId, Offset, PartitionId, QueueId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// One change of the state, decided entirely by the tables, the queue logs and its stamp.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)] // each variant is documented at its type
#[allow(clippy::large_enum_variant)] // commands are handled one at a time and never stored
pub enum Command<'a> {
    #[serde(borrow)]
    Push(Push<'a>),
    #[serde(borrow)]
    Pop(Pop<'a>),
    #[serde(borrow)]
    Ack(Ack<'a>),
    ExtendLease(ExtendLease),
    ReturnLease(ReturnLease),
    #[serde(borrow)]
    Configure(Configure<'a>),
    #[serde(borrow)]
    DeleteQueue(QueueRef<'a>),
    #[serde(borrow)]
    Kv(KvBatch<'a>),
    #[serde(borrow)]
    Seek(Seek<'a>),
    #[serde(borrow)]
    DeleteGroup(DeleteGroup<'a>),
    #[serde(borrow)]
    MoveSubscription(MoveSubscription<'a>),
    #[serde(borrow)]
    ReplayDeadLetter(ReplayDeadLetter<'a>),
    #[serde(borrow)]
    PurgeDeadLetters(PurgeDeadLetters<'a>),
    Tick(Tick),
    #[serde(borrow)]
    ReplaySealed(ReplaySealed<'a>),
    BreakHolds(BreakHolds),
    #[serde(borrow)]
    Transaction(Transaction<'a>),
    #[serde(borrow)]
    Locks(Locks<'a>),
    #[serde(borrow)]
    Timers(Timers<'a>),
    /// Turns timers that are due into messages, a bounded number of them.
    FireTimers,
    SetSwitches(SetSwitches),
    #[serde(borrow)]
    PopWith(PopWith<'a>),
    #[serde(borrow)]
    RecordTrace(RecordTrace<'a>),
    #[serde(borrow)]
    Stream(StreamCommand<'a>),
    #[serde(borrow)]
    DeclareEphemeral(DeclareEphemeral<'a>),
}

/// Kinds of commands that this release carries out.
pub const KINDS: u32 = 25;

impl<'a> Command<'a> {
    /// The command's bytes.
    pub fn encode(&self) -> Vec<u8> {
        self.encode_after(Vec::new())
    }

    /// The command's bytes behind those in `out`.
    pub fn encode_after(&self, out: Vec<u8>) -> Vec<u8> {
        // Writing into a Vec cannot fail and no map or sequence of unknown length is in a command.
        postcard::to_extend(self, out).unwrap_or_default()
    }

    /// Reads a command; bytes after its end are an error.
    pub fn decode(bytes: &'a [u8]) -> Result<Command<'a>, postcard::Error> {
        let (command, rest) = postcard::take_from_bytes(bytes)?;
        if rest.is_empty() { Ok(command) } else { Err(postcard::Error::DeserializeUnexpectedEnd) }
    }
}

/// Appends messages. Queues and partitions that do not exist are created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Push<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// The request's messages by (queue, partition), groups in order of first appearance. No two
    /// groups have the same queue and partition.
    #[serde(borrow)]
    pub groups: Vec<PushGroup<'a>>,
}

/// The messages of one push to one partition, in request order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PushGroup<'a> {
    /// Queue name.
    pub queue: &'a str,
    /// Partition name.
    pub partition: &'a str,
    /// Messages in `frames`, at least 1.
    pub count: u32,
    /// Whether any frame has a transaction id of its own, so that frames must be looked at.
    pub has_transaction_ids: bool,
    /// As [`crate::run::RunHeader::text_bytes`].
    pub text_bytes: u32,
    /// The messages, as they will lie in the run ([`crate::frame`]).
    #[serde(borrow, serialize_with = "whole")]
    pub frames: &'a [u8],
}

/// Writes bytes in one piece: the same bytes as one by one, without a step for each.
pub(crate) fn whole<S: serde::Serializer>(bytes: &&[u8], to: S) -> Result<S::Ok, S::Error> {
    to.serialize_bytes(bytes)
}

/// Names a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueRef<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Queue name.
    pub queue: &'a str,
}

/// Leases a batch to a group (or commits it at once), and registers the group at first contact.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pop<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Queue name; created when missing and a named group asks.
    pub queue: &'a str,
    /// One partition only, or any.
    #[serde(borrow)]
    pub partition: Option<&'a str>,
    /// Group; `None` is queue mode.
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// Most messages over all claimed partitions.
    pub batch: u32,
    /// Most partitions claimed, at least 1.
    pub partitions: u32,
    /// Lease time; `None` for the queue's.
    pub lease_seconds: Option<u32>,
    /// Commit at delivery: no lease.
    pub auto_ack: bool,
    /// Where a group that is not registered yet starts.
    pub start: GroupStart,
}

/// A pop that asks for more than [`Pop`] can say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PopWith<'a> {
    /// What is asked. Its queue counts only when there are no `queues`.
    #[serde(borrow)]
    pub pop: Pop<'a>,
    /// Queues to claim from, in this order and under one lease. One that does not exist is left out.
    #[serde(borrow)]
    pub queues: Vec<&'a str>,
    /// A group that is not registered yet conflates: of each partition it is given the newest message
    /// only, and settles all below it with it.
    pub conflation: bool,
}

/// Where a group starts in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupStart {
    /// Messages stamped at or after the registration.
    New,
    /// From the oldest retained message.
    All,
    /// From the first message stamped at or after this.
    From(Stamp),
}

/// Settles messages, each by its transaction id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ack<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Group; `None` is queue mode.
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// In request order.
    #[serde(borrow)]
    pub items: Vec<AckItem<'a>>,
}

/// One message to settle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AckItem<'a> {
    /// Transaction id as delivered.
    pub transaction_id: &'a str,
    /// Partition as delivered; `None` when the request's text was not a number.
    pub partition: Option<PartitionId>,
    /// What became of it.
    pub verdict: Verdict,
    /// Lease under which it was delivered.
    #[serde(borrow)]
    pub lease: LeaseClaim<'a>,
    /// The consumer's error text.
    #[serde(borrow)]
    pub error: Option<&'a str>,
}

/// The lease an ack names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeaseClaim<'a> {
    /// None: accepted unfenced.
    None,
    /// This one.
    Id(LeaseId),
    /// A text that is no lease id: never live.
    #[serde(borrow)]
    Foreign(&'a str),
}

/// What became of a delivered message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// Done.
    Completed,
    /// Failed: redeliver, and charge the retry budget.
    Failed,
    /// Redeliver without a charge.
    Retry,
    /// To the dead letters at once.
    DeadLetter,
}

/// Moves the end of a lease. Never to an earlier time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExtendLease {
    /// Whose.
    pub tenant: TenantId,
    /// The lease.
    pub lease: LeaseId,
    /// From the command's stamp, at least 1.
    pub seconds: u32,
}

/// Gives back a claim whose answer could not be delivered: no attempt is counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReturnLease {
    /// Whose.
    pub tenant: TenantId,
    /// The lease.
    pub lease: LeaseId,
}

/// Creates a queue or changes its options and labels.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Configure<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Queue name.
    pub queue: &'a str,
    /// What changes.
    pub patch: OptionsPatch,
    /// Everything that the patch does not set goes to its default.
    pub replace: bool,
}

/// KV operations applied together: all, or none when a required one is lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvBatch<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// In request order. At most one write per (namespace, key).
    #[serde(borrow)]
    pub ops: Vec<KvOp<'a>>,
}

/// Moves the cursors of a group on a queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seek<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Group.
    pub group: &'a str,
    /// Queue name.
    pub queue: &'a str,
    /// One partition, or all.
    #[serde(borrow)]
    pub partition: Option<&'a str>,
    /// Where to.
    pub to: SeekTo,
}

/// Where a seek goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SeekTo {
    /// After the newest message.
    End,
    /// The first message stamped at or after this.
    Time(Stamp),
    /// This offset, held within what is retained.
    Offset(Offset),
}

/// Forgets a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeleteGroup<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Group.
    pub group: &'a str,
    /// On one queue, or on every queue.
    #[serde(borrow)]
    pub queue: Option<&'a str>,
}

/// Moves the stored subscription time of a group on every queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveSubscription<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Group.
    pub group: &'a str,
    /// New time.
    pub to: Stamp,
}

/// Pushes a copy of a dead letter and removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplayDeadLetter<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Which.
    #[serde(borrow)]
    pub letter: DeadLetterRef<'a>,
    /// Another queue than its own.
    #[serde(borrow)]
    pub queue: Option<&'a str>,
    /// Another partition than its own.
    #[serde(borrow)]
    pub partition: Option<&'a str>,
}

/// Pushes a copy of a dead letter with its payload encrypted for where it goes, and removes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplaySealed<'a> {
    /// Whose, which and where to.
    #[serde(borrow)]
    pub replay: ReplayDeadLetter<'a>,
    /// The payload's envelope ([`crate::envelope`]).
    #[serde(borrow, serialize_with = "whole")]
    pub envelope: &'a [u8],
}

/// Names a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeadLetterRef<'a> {
    /// By its own id (UUID bytes).
    Id([u8; 16]),
    /// The newest one of this message.
    Message {
        /// Its partition.
        partition: PartitionId,
        /// Its transaction id.
        transaction_id: &'a str,
    },
}

/// Removes dead letters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PurgeDeadLetters<'a> {
    /// One.
    One {
        /// Whose.
        tenant: TenantId,
        /// Which.
        #[serde(borrow)]
        letter: DeadLetterRef<'a>,
    },
    /// All of a queue, or of one group on it.
    Queue {
        /// Whose.
        tenant: TenantId,
        /// Queue name.
        queue: &'a str,
        /// One group only.
        #[serde(borrow)]
        group: Option<&'a str>,
    },
}

/// Lets time pass: ends leases and rows that are due, and takes retention steps.
///
/// Each step is bounded; the reply says whether more is due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    /// Queues whose retention is to be looked at, at most a few.
    pub retention: Vec<QueueId>,
}

/// Takes retention steps that no sink's hold stops: the disk is full.
///
/// Each step is bounded; the reply says whether more is due.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BreakHolds {
    /// Queues whose retention is to be looked at, at most a few.
    pub queues: Vec<QueueId>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_kind_is_known_and_none_comes_after_it() {
        let declare = DeclareEphemeral { tenant: TenantId::DEFAULT, queue: "q", options: None };
        let last = Command::DeclareEphemeral(declare).encode();
        assert_eq!(u32::from(last[0]) + 1, KINDS);
        assert!(Command::decode(&[KINDS as u8, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn a_push_reads_back_and_its_frames_are_one_piece() {
        let group = PushGroup {
            queue: "q",
            partition: "p",
            count: 1,
            has_transaction_ids: false,
            text_bytes: 38,
            frames: b"\x00\x02{}",
        };
        let push = Command::Push(Push { tenant: TenantId::DEFAULT, groups: vec![group] });
        let bytes = push.encode_after(vec![7]);
        assert_eq!(bytes[0], 7);
        assert_eq!(bytes[1..], push.encode());
        assert_eq!(&bytes[bytes.len() - 5..], b"\x04\x00\x02{}");
        assert_eq!(Command::decode(&bytes[1..]).unwrap(), push);
        assert!(Command::decode(&bytes).is_err());
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod golden_tests;
