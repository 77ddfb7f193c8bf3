//! Timers: messages for later, each under a key of its queue.
//!
//! Owns: operations on them, their results, the ids they promise. Leaves to others: the rules
//! (`queen-state`), JSON (`queen-http`), the rows (`row::timer`).

use crate::{MessageId, Offset, PartitionId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Most operations of one call.
pub const OPERATIONS_MAX: usize = 256;
/// Bytes of a timer's key, at least 1.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of a payload.
pub const PAYLOAD_BYTES_MAX: usize = 1 << 20;
/// Milliseconds that a timer may be set ahead: 90 days.
pub const DELAY_MS_MAX: u64 = 90 * 24 * 3600 * 1000;

/// Operations on timers, each on another one: they do not depend on each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timers<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// In request order. No two have the same queue and key.
    #[serde(borrow)]
    pub ops: Vec<TimerOp<'a>>,
}

/// One operation on a timer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerOp<'a> {
    /// Queue that the message goes to.
    pub queue: &'a str,
    /// The timer's key in it.
    pub key: &'a str,
    /// What to do.
    #[serde(borrow)]
    pub kind: TimerOpKind<'a>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TimerOpKind<'a> {
    /// Sets a timer, in place of the one that the key has. A queue that is not there is created.
    #[serde(borrow)]
    Schedule(TimerMessage<'a>),
    /// Takes a timer away.
    Cancel,
    /// Replaces a payload by its envelope: the queue became encrypted after the timer was set.
    Seal {
        /// The timer's number: nothing is done to one that was set again.
        number: u64,
        /// The payload's envelope ([`crate::envelope`]).
        #[serde(borrow, serialize_with = "crate::command::whole")]
        envelope: &'a [u8],
    },
}

/// A message for later.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimerMessage<'a> {
    /// Partition that it goes to.
    pub partition: &'a str,
    /// From the command's stamp on; 0: at once.
    pub delay_ms: u64,
    /// `None`: the promised message id serves as such.
    #[serde(borrow)]
    pub transaction_id: Option<&'a str>,
    /// Subject of the producer's token.
    #[serde(borrow)]
    pub producer: Option<&'a str>,
    /// Whether `payload` is an envelope.
    pub encrypted: bool,
    /// The payload.
    #[serde(borrow, serialize_with = "crate::command::whole")]
    pub payload: &'a [u8],
}

/// The id that the message of a timer will have: `number` is the timer's own, and `due` when it is
/// to be delivered. Ids of timers that fall due one after the other sort so.
pub fn promise(due: Stamp, number: u64) -> MessageId {
    // A partition id that no partition has: it is never that of a message with a minted id.
    MessageId::mint(due, PartitionId(u64::MAX - 4), Offset(number))
}

/// What a timer promises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Promised {
    /// Id of its message.
    pub message: MessageId,
    /// Transaction id of its message.
    pub transaction_id: String,
    /// Not before this.
    pub due: Stamp,
}

/// Result of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimerResult {
    /// Of `Schedule`.
    Scheduled {
        /// The timer.
        timer: Promised,
        /// It took the place of another one.
        replaced: bool,
    },
    /// Of `Cancel`: the timer that there was.
    Cancelled(Promised),
    /// Of `Cancel` and `Seal`: there is no such timer. Its message may be in the queue already.
    Absent,
    /// Of `Seal`.
    Sealed,
}

/// What firing did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fired {
    /// Timers that became messages; repeats of transaction ids included.
    pub fired: u32,
    /// Timers that could not, and are tried again later.
    pub failed: u32,
    /// More are due.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promised_ids_sort_as_timers_fall_due() {
        let due = |at, number| promise(Stamp(at), number).to_string();
        let ids = [due(1_000, 9), due(2_000, 3), due(2_000, 4), due(2_001, 1), due(9_000_000, 0)];
        assert!(ids.is_sorted(), "{ids:?}");
    }
}
