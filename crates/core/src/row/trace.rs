//! Rows of traces, and their keys.
//!
//! ```text
//! Trace            [8] stamp                                  → the event
//! TraceOfMessage   [8] partition, [8] hash of the id, [8] stamp → nothing
//! TraceName        [16] tenant, [2] length + name, [8] stamp    → nothing
//! TraceNameCount   [16] tenant, name                            → how many
//! ```
//!
//! Numbers in keys are big-endian, so events are in the order of their stamps everywhere.

use super::Row;
use crate::table::Table;
use crate::{PartitionId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Key of [`Table::Meta`] for [`TraceTotalsRow`].
pub const META_TRACES: &[u8] = b"traces";

/// An event of a message. Its stamp is its key: no two commands share one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceRow {
    /// Whose.
    pub tenant: TenantId,
    /// Partition of the message.
    pub partition: PartitionId,
    /// Name of the queue.
    pub queue: String,
    /// Name of the partition.
    pub partition_name: String,
    /// Transaction id of the message.
    pub transaction_id: String,
    /// Group of the consumer.
    pub group: Option<String>,
    /// What the consumer calls itself.
    pub worker: Option<String>,
    /// Kind of the event.
    pub event_type: String,
    /// Names under which it is found.
    pub names: Vec<String>,
    /// JSON text.
    pub data: String,
    /// What it counts for among all ([`crate::trace::RecordTrace::bytes`]).
    pub bytes: u64,
}

/// Events that have a name. Tenant and name are its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceNameRow {
    /// Events.
    pub events: u64,
    /// Messages of them.
    pub messages: u64,
    /// Stamp of the newest.
    pub last: Stamp,
}

/// All events together ([`META_TRACES`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceTotalsRow {
    /// Events.
    pub events: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Row for TraceRow {
    const TABLE: Table = Table::Trace;
}

impl Row for TraceNameRow {
    const TABLE: Table = Table::TraceNameCount;
}

impl Row for TraceTotalsRow {
    const TABLE: Table = Table::Meta;
}

/// `Trace`: the event's stamp.
pub fn event(stamp: Stamp) -> [u8; 8] {
    stamp.0.to_be_bytes()
}

/// The stamp at the end of a `Trace`, `TraceOfMessage` or `TraceName` key.
pub fn stamp_of(key: &[u8]) -> Option<Stamp> {
    let (_, stamp) = key.split_last_chunk()?;
    Some(Stamp(u64::from_be_bytes(*stamp)))
}

/// What the `TraceOfMessage` keys of a message begin with: its partition, and its id's hash
/// ([`super::transaction_id::hash`]).
pub fn message(partition: PartitionId, hash: u64) -> Vec<u8> {
    [partition.0.to_be_bytes(), hash.to_be_bytes()].concat()
}

/// What the `TraceName` keys of a name begin with.
pub fn name(tenant: TenantId, name: &str) -> Vec<u8> {
    let length = u16::try_from(name.len()).unwrap_or(u16::MAX);
    [&tenant.0[..], &length.to_be_bytes(), name.as_bytes()].concat()
}

/// A `TraceOfMessage` or `TraceName` key: what it begins with, and the event's stamp.
pub fn at(mut prefix: Vec<u8>, stamp: Stamp) -> Vec<u8> {
    prefix.extend_from_slice(&stamp.0.to_be_bytes());
    prefix
}

/// `TraceNameCount`: tenant, name.
pub fn count(tenant: TenantId, name: &str) -> Vec<u8> {
    [&tenant.0[..], name.as_bytes()].concat()
}

/// The name in a `TraceNameCount` key.
pub fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key.get(16..)?).ok()
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_trace_rows_are_fixed() {
        let row = TraceRow {
            tenant: TenantId::DEFAULT,
            partition: PartitionId(300),
            queue: "q".into(),
            partition_name: "p".into(),
            transaction_id: "t".into(),
            group: Some("g".into()),
            worker: None,
            event_type: "info".into(),
            names: vec!["a".into(), "b".into()],
            data: "{}".into(),
            bytes: 300,
        };
        let hex = "0100000000000000000000000000000001ac0201710170017401016700\
                   04696e666f020161016202 7b7dac02";
        assert_golden(&row, &hex.replace(' ', ""));
        let row = TraceNameRow { events: 300, messages: 2, last: Stamp(7) };
        assert_golden(&row, "01ac020207");
        assert_golden(&TraceTotalsRow { events: 300, bytes: 7 }, "01ac0207");
    }

    #[test]
    fn the_bytes_of_trace_keys_are_fixed_and_read_back() {
        let hex = |key: &[u8]| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let (tenant, stamp) = (TenantId::DEFAULT, Stamp(258));
        assert_eq!(hex(&event(stamp)), "0000000000000102");
        let of_message = at(message(PartitionId(2), 3), stamp);
        assert_eq!(hex(&of_message), "000000000000000200000000000000030000000000000102");
        let named = at(name(tenant, "ab"), stamp);
        let owner = "00000000000000000000000000000001";
        assert_eq!(hex(&named), format!("{owner}000261620000000000000102"));
        assert_eq!(hex(&count(tenant, "ab")), format!("{owner}6162"));
        for key in [&event(stamp)[..], &of_message, &named] {
            assert_eq!(stamp_of(key), Some(stamp));
        }
        assert_eq!((name_of(&count(tenant, "ä/b")), stamp_of(&[1; 7])), (Some("ä/b"), None));
    }
}
