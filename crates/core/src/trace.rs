//! Traces: what consumers say of messages on their way.
//!
//! Owns: the fields of an event, its bounds. Leaves to others: the rules (`queen-state`), JSON
//! (`queen-http`).

use crate::{PartitionId, TenantId};
use serde::{Deserialize, Serialize};

/// How long an event is kept, seconds.
pub const TRACE_SECONDS: u64 = 7 * 86_400;
/// Events of one message.
pub const TRACE_EVENTS_PER_MESSAGE: usize = 100;
/// Events of all messages: beyond them the oldest go.
pub const TRACE_EVENTS_MAX: u64 = 200_000;
/// Bytes of all events ([`RecordTrace::bytes`]): beyond them the oldest go.
pub const TRACE_BYTES_MAX: u64 = 256 << 20;
/// Names of one event.
pub const TRACE_NAMES_MAX: usize = 16;
/// Bytes of one name.
pub const TRACE_NAME_BYTES_MAX: usize = 256;
/// Bytes of the event's type.
pub const TRACE_TYPE_BYTES_MAX: usize = 64;
/// Bytes of the event's data, compact JSON.
pub const TRACE_DATA_BYTES_MAX: usize = 64 << 10;

/// Records an event of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RecordTrace<'a> {
    /// Whose.
    pub tenant: TenantId,
    /// Partition of the message.
    pub partition: PartitionId,
    /// Transaction id of the message; whether there is such a message is not looked at.
    pub transaction_id: &'a str,
    /// Group of the consumer.
    #[serde(borrow)]
    pub group: Option<&'a str>,
    /// What the consumer calls itself.
    #[serde(borrow)]
    pub worker: Option<&'a str>,
    /// Kind of the event.
    pub event_type: &'a str,
    /// Names under which it is found, no two the same.
    #[serde(borrow)]
    pub names: Vec<&'a str>,
    /// JSON text.
    pub data: &'a str,
}

impl RecordTrace<'_> {
    /// Bytes that the event counts for among all.
    pub fn bytes(&self) -> u64 {
        let texts = [self.transaction_id, self.event_type, self.data]
            .into_iter()
            .chain(self.group)
            .chain(self.worker)
            .chain(self.names.iter().copied());
        texts.map(|text| text.len() as u64).sum()
    }
}
