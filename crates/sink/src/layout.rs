//! Names of objects in the bucket.
//!
//! Owns: keys as a function of (prefix, tenant, queue, layout, align, window, ext), and the
//! boundaries of hours and days that folders and windows share.
//! Leaves to others: what an object holds (`encode`, `manifest`).
//!
//! ```text
//! <prefix>/tenant=<T>/queue=<Q>/dt=YYYY-MM-DD/hour=HH/w-<k>-<tStart>-<tEnd>.<ext>
//! <prefix>/tenant=<T>/queue=<Q>/dt=…/hour=…/w-<k>-<tStart>-<tEnd>-p-<P>-<first>-<last>.<ext>
//! <prefix>/_queen/tenant=<T>/queue=<Q>/windows/<k>.json
//! <prefix>/_queen/tenant=<T>/queue=<Q>/windows/<k>.partitions.json
//! <prefix>/_queen/tenant=<T>/queue=<Q>/hours/YYYY-MM-DDTHH.json
//! ```

use queen_core::sink::{escape, folder_value};
use queen_core::{Stamp, TenantId};

/// Longest key of S3, bytes.
pub const KEY_BYTES_MAX: usize = 1024;

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;

/// How a window is spread over objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One object per window.
    Merged,
    /// One object per window and partition.
    PerPartition,
}

impl Layout {
    /// The word of settings and documents.
    pub fn word(self) -> &'static str {
        match self {
            Layout::Merged => "merged",
            Layout::PerPartition => "per-partition",
        }
    }

    /// Undoes [`Layout::word`].
    pub fn from_word(word: &str) -> Option<Layout> {
        [Layout::Merged, Layout::PerPartition].into_iter().find(|l| l.word() == word)
    }
}

/// The boundary that no window crosses, and the depth of folders. Always UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Align {
    /// `dt=` and `hour=`.
    Hour,
    /// `dt=` only.
    Day,
    /// `dt=` and `hour=` of the window's start; a window may pass both.
    None,
}

impl Align {
    /// The word of settings and documents.
    pub fn word(self) -> &'static str {
        match self {
            Align::Hour => "hour",
            Align::Day => "day",
            Align::None => "none",
        }
    }

    /// Undoes [`Align::word`].
    pub fn from_word(word: &str) -> Option<Align> {
        [Align::Hour, Align::Day, Align::None].into_iter().find(|a| a.word() == word)
    }

    fn unit(self) -> Option<u64> {
        match self {
            Align::Hour => Some(HOUR),
            Align::Day => Some(DAY),
            Align::None => None,
        }
    }

    /// The last boundary at or before a stamp.
    pub fn below(self, stamp: Stamp) -> Option<Stamp> {
        self.unit().map(|unit| Stamp(stamp.0 / unit * unit))
    }

    /// The first boundary after a stamp.
    pub fn above(self, stamp: Stamp) -> Option<Stamp> {
        self.unit().map(|unit| Stamp((stamp.0 / unit + 1).saturating_mul(unit)))
    }
}

/// Start of the hour of a stamp.
pub fn hour_of(stamp: Stamp) -> Stamp {
    Stamp(stamp.0 / HOUR * HOUR)
}

/// End of the hour that starts at `hour`.
pub fn hour_end(hour: Stamp) -> Stamp {
    Stamp(hour.0 + HOUR)
}

/// Names of the objects of one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueKeys {
    prefix: String,
    scope: String,
}

impl QueueKeys {
    /// For the queue of this (unescaped) name.
    pub fn new(prefix: &str, tenant: TenantId, queue: &str) -> QueueKeys {
        let scope = format!("tenant={}/queue={}", escape(&tenant.to_string()), folder_value(queue));
        QueueKeys { prefix: prefix.to_owned(), scope }
    }

    /// Key of a window's data object without its extension: the whole of it in the layout `merged`.
    pub fn window(&self, align: Align, k: u64, t_start: Stamp, t_end: Stamp) -> String {
        let (year, month, day, hour) = t_start.utc_hour();
        let mut key = format!("{}/{}/dt={year:04}-{month:02}-{day:02}", self.prefix, self.scope);
        if align != Align::Day {
            key.push_str(&format!("/hour={hour:02}"));
        }
        key.push_str(&format!("/w-{k:010}-{:016}-{:016}", t_start.0, t_end.0));
        key
    }

    /// Length in bytes of the longest key of the queue in the layout `merged`; the layout
    /// `per-partition` adds the partition's part.
    pub fn bytes_max(&self, align: Align, extension: &str) -> usize {
        let window = self.window(align, 0, Stamp(0), Stamp(0)).len() + 1 + extension.len();
        window.max(self.partitions(0).len()).max(self.hour(Stamp(0)).len())
    }

    /// Key of a window's manifest.
    pub fn manifest(&self, k: u64) -> String {
        format!("{}/_queen/{}/windows/{k:010}.json", self.prefix, self.scope)
    }

    /// Key of the ranges of a window with many partitions.
    pub fn partitions(&self, k: u64) -> String {
        format!("{}/_queen/{}/windows/{k:010}.partitions.json", self.prefix, self.scope)
    }

    /// Key of the hour file of the hour that starts at `hour`.
    pub fn hour(&self, hour: Stamp) -> String {
        format!("{}/_queen/{}/hours/{}.json", self.prefix, self.scope, hour_name(hour))
    }
}

/// `2026-10-24T10`.
pub fn hour_name(hour: Stamp) -> String {
    let (year, month, day, hour) = hour.utc_hour();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}")
}

/// What follows a window's key in the layout `per-partition`, extension not included.
pub fn partition_suffix(partition: &str, first: u64, last: u64) -> String {
    format!("-p-{}-{first:012}-{last:012}", escape(partition))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_seed() {
        let keys = QueueKeys::new("queen", TenantId::DEFAULT, "orders");
        let (start, end) = (Stamp(1_792_836_000_000_000), Stamp(1_792_837_437_745_538));
        assert_eq!(
            keys.window(Align::Hour, 1, start, end),
            "queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/dt=2026-10-24/hour=10/\
             w-0000000001-1792836000000000-1792837437745538"
        );
        assert_eq!(
            keys.manifest(1),
            "queen/_queen/tenant=00000000-0000-0000-0000-000000000001/queue=orders/windows/0000000001.json"
        );
        assert!(keys.window(Align::Day, 1, start, end).contains("/dt=2026-10-24/w-"));
        assert!(keys.window(Align::None, 1, start, end).contains("/hour=10/w-"));
        assert!(keys.hour(start).ends_with("/hours/2026-10-24T10.json"));
        assert_eq!(partition_suffix("a/b", 0, 12), "-p-a%2Fb-000000000000-000000000012");
    }

    #[test]
    fn boundaries_are_of_utc_and_half_open() {
        let ten = Stamp(1_792_836_000_000_000);
        assert_eq!(Align::Hour.below(ten), Some(ten));
        assert_eq!(Align::Hour.above(ten), Some(Stamp(ten.0 + HOUR)));
        assert_eq!(Align::Hour.below(Stamp(ten.0 - 1)), Some(Stamp(ten.0 - HOUR)));
        assert_eq!(Align::Day.below(ten).unwrap().to_iso(), "2026-10-24T00:00:00.000000Z");
        assert_eq!(Align::None.above(ten), None);
    }
}
