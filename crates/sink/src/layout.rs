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
//!
//! `<Q>` and `<P>` are names percent-encoded; one that would be too long is cut and ends in `~` and its
//! hash. No encoded name holds a `~`, so none is taken for another; the whole name is in the manifest.

use crate::encode::pieces::sha256_hex;
use queen_core::sink::{escape, folder_value};
use queen_core::{Stamp, TenantId};

/// Longest form of a queue's name in its folder, bytes: S3 takes keys of 1,024 bytes, and servers that
/// keep files take names of 255, `queue=` included.
const QUEUE_BYTES_MAX: usize = 240;
/// Longest form of a partition's name in the name of a file, beside at most 90 bytes more.
const PARTITION_BYTES_MAX: usize = 160;
/// Hex digits of the SHA-256 of a name that had to be shortened.
const HASH_DIGITS: usize = 32;

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
        let queue = in_key(folder_value(queue), queue, QUEUE_BYTES_MAX);
        let scope = format!("tenant={}/queue={queue}", escape(&tenant.to_string()));
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
    format!(
        "-p-{}-{first:012}-{last:012}",
        in_key(escape(partition), partition, PARTITION_BYTES_MAX)
    )
}

/// The escaped `text` of a name as it stands in keys, at most `bytes_max` long.
fn in_key(mut text: String, name: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text;
    }
    text.truncate(bytes_max - HASH_DIGITS - 1);
    // Half an escape is none.
    if let Some(at) =
        text.len().checked_sub(2).and_then(|from| text[from..].find('%').map(|n| from + n))
    {
        text.truncate(at);
    }
    format!("{text}~{}", &sha256_hex(name.as_bytes())[..HASH_DIGITS])
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
    fn long_names_are_cut_where_an_escape_ends_and_stay_apart() {
        let keys = |queue: &str| {
            let keys = QueueKeys::new(&"p".repeat(256), TenantId::DEFAULT, queue);
            let suffix = partition_suffix(queue, 999_999_999_999, 999_999_999_999);
            let (k, stamp) = (9_999_999_999, Stamp(9_999_999_999_999_999));
            keys.window(Align::Hour, k, stamp, stamp) + &suffix
        };
        let mut seen = std::collections::BTreeSet::new();
        for length in 1..=411 {
            for name in ["x".repeat(length), "\u{65e5}".repeat(length / 3), "~".repeat(length)] {
                let key = keys(&name) + ".jsonl.zst";
                assert!(key.len() <= 1024, "{} bytes", key.len());
                assert!(key.split('/').all(|part| part.len() <= 255 || part.starts_with("ppp")));
                let folder = key.split('/').find_map(|part| part.strip_prefix("queue=")).unwrap();
                let (shown, hash) = folder.split_once('~').unwrap_or((folder, ""));
                assert!(queen_core::sink::unescape(shown).is_some(), "{folder}");
                assert_eq!(hash.is_empty(), escape(&name).len() <= QUEUE_BYTES_MAX);
                seen.insert((name, key));
            }
        }
        let keys: std::collections::BTreeSet<_> = seen.iter().map(|(_, key)| key).collect();
        assert_eq!(keys.len(), seen.len());
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
