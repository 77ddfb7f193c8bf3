//! Rows of loss: records that went before a sink had copied them, until one of its manifests says so.
//!
//! ```text
//! Lost  key  tenant [16] | sink | ':' | escaped queue | ':' | window u64 BE                           value LostWindowRow
//!            tenant [16] | sink | ':' | escaped queue | ':' | window u64 BE | partition u64 BE | first offset u64 BE   value LostRow
//! ```
//!
//! The window is the first whose manifest can list the range: a later one than that of any intent
//! written before the records went. So what a window lists is fixed from its intent on. Neither a
//! sink's name nor an escaped queue holds a colon.

use super::Row;
use crate::sink::{LossReason, escape};
use crate::table::Table;
use crate::{Offset, PartitionId, QueueId, Stamp, TenantId};
use serde::{Deserialize, Serialize};

/// Most ranges that one window lists; further ones are for the windows after it.
pub const RANGES_MAX: u32 = 10_000;

/// A range of a partition that is lost to a sink.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRow {
    /// Queue incarnation.
    pub queue: QueueId,
    /// Name of the partition: its own row may be gone.
    pub partition: Box<str>,
    /// Offset after the last lost one.
    pub end: Offset,
    /// Why.
    pub reason: LossReason,
}

/// What one window will list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostWindowRow {
    /// Stamp at which the first of it went.
    pub since: Stamp,
    /// Ranges, at most [`RANGES_MAX`].
    pub ranges: u32,
    /// Records in them.
    pub records: u64,
}

impl Row for LostRow {
    const TABLE: Table = Table::Lost;
}

impl Row for LostWindowRow {
    const TABLE: Table = Table::Lost;
}

/// What the keys of a sink's loss begin with.
pub fn sink_prefix(tenant: TenantId, sink: &str) -> Vec<u8> {
    let mut out = tenant.0.to_vec();
    out.extend_from_slice(sink.as_bytes());
    out.push(b':');
    out
}

/// What the keys of a sink's loss in one queue begin with.
pub fn queue_prefix(tenant: TenantId, sink: &str, queue: &str) -> Vec<u8> {
    let mut out = sink_prefix(tenant, sink);
    out.extend_from_slice(escape(queue).as_bytes());
    out.push(b':');
    out
}

/// Key of a window; `prefix` is a [`queue_prefix`].
pub fn window_key(prefix: &[u8], window: u64) -> Vec<u8> {
    [prefix, &window.to_be_bytes()].concat()
}

/// Key of a range.
pub fn range_key(prefix: &[u8], window: u64, partition: PartitionId, from: Offset) -> Vec<u8> {
    let tail = [window.to_be_bytes(), partition.0.to_be_bytes(), from.0.to_be_bytes()];
    [prefix, tail.as_flattened()].concat()
}

/// A key behind its [`queue_prefix`]: the window and, for a range, partition and first offset.
pub fn parse_tail(tail: &[u8]) -> Option<(u64, Option<(PartitionId, Offset)>)> {
    let number = |part: &[u8]| part.try_into().ok().map(u64::from_be_bytes);
    match tail.len() {
        8 => Some((number(tail)?, None)),
        24 => {
            let (partition, from) = (number(&tail[8..16])?, number(&tail[16..])?);
            Some((number(&tail[..8])?, Some((PartitionId(partition), Offset(from)))))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::assert_golden;
    use super::*;

    #[test]
    fn the_bytes_of_loss_are_fixed() {
        let row = LostRow {
            queue: QueueId(7),
            partition: "p".into(),
            end: Offset(300),
            reason: LossReason::Deleted,
        };
        assert_golden(&row, "01070170ac0202");
        let window = LostWindowRow { since: Stamp(300), ranges: 2, records: 5 };
        assert_golden(&window, "01ac020205");
    }

    #[test]
    fn keys_of_loss_read_back_and_sort_by_window() {
        let prefix = queue_prefix(TenantId::DEFAULT, "s", "a:b");
        assert!(prefix.ends_with(b"s:a%3Ab:"));
        let window = window_key(&prefix, 3);
        let range = range_key(&prefix, 3, PartitionId(9), Offset(4));
        assert!(window < range && range < window_key(&prefix, 4));
        assert_eq!(parse_tail(&window[prefix.len()..]), Some((3, None)));
        let parts = Some((PartitionId(9), Offset(4)));
        assert_eq!(parse_tail(&range[prefix.len()..]), Some((3, parts)));
        assert_eq!(parse_tail(b"short"), None);
    }
}
