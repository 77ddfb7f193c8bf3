//! The last window that is in the bucket, and the sums that survive restarts.

use serde::{Deserialize, Serialize};

/// The hour of the last committed window, as long as its hour file may still be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenHour {
    /// Start of the hour, µs.
    pub hour: u64,
    /// First window of the hour.
    pub first_k: u64,
    /// Records of its windows so far.
    pub records: u64,
    /// Bytes of their data objects so far.
    pub bytes: u64,
}

/// Row `committed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Committed {
    /// Window number.
    pub k: u64,
    /// Its end, µs.
    pub t_end: u64,
    /// Key of its manifest.
    pub manifest: String,
    /// SHA-256 of its manifest, lower hex.
    pub manifest_sha256: String,
    /// Records of windows 1 to k.
    pub records: u64,
    /// Bytes of their data objects.
    pub bytes: u64,
    /// Records listed as lost in windows 1 to k.
    pub records_lost: u64,
    /// Ranges listed as lost in windows 1 to k.
    #[serde(default)]
    pub gaps: u64,
    /// Queue incarnation of the window.
    pub queue_id: u32,
    /// Where the window's last run ends in that incarnation's log: the next scan starts there.
    pub log_to: super::LogPlace,
    /// The hour of the window.
    pub hour: OpenHour,
}
super::document!(Committed, "committed row");
