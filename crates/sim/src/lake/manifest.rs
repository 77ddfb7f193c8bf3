//! Manifests, as the checker reads them.
//!
//! Owns: this checker's own reading of the document. Leaves to others: whether it is true.

use serde::Deserialize;

/// A window's manifest; members that the checker does not hold against anything are not read.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Tenant id.
    pub tenant: String,
    /// Queue name.
    pub queue: String,
    /// Window number.
    pub k: u64,
    /// First stamp.
    pub t_start: u64,
    /// The stamp after the last.
    pub t_end: u64,
    /// `jsonl` or `parquet`.
    pub format: String,
    /// `zstd`, `gzip` or `none` of JSONL; `zstd` or `snappy` of Parquet.
    pub compression: String,
    /// `merged` or `per-partition`.
    pub layout: String,
    /// The window's data objects.
    pub objects: Vec<ObjectEntry>,
    /// Records of the window.
    pub records: u64,
    /// Bytes of the window's objects.
    pub bytes: u64,
    /// Partitions with a record in the window.
    pub partitions: u64,
    /// Each partition's share, in order of names; empty when in `ranges_object`.
    #[serde(default)]
    pub ranges: Vec<PartitionEntry>,
    /// Key of the sidecar with the shares, when there are many.
    #[serde(default)]
    pub ranges_object: Option<String>,
    /// SHA-256 of that sidecar, hex.
    #[serde(default)]
    pub ranges_sha256: Option<String>,
    /// Stamp of the first record; absent without records.
    #[serde(default)]
    pub min_ts: Option<u64>,
    /// Stamp of the last record; absent without records.
    #[serde(default)]
    pub max_ts: Option<u64>,
    /// Offset ranges that are in no object.
    pub lost: Vec<LostEntry>,
    /// Records whose payload is wrapped.
    #[serde(default)]
    pub wrapped: u64,
    /// Bytes of the longest record; not checked when absent.
    #[serde(default)]
    pub max_record_bytes: Option<u64>,
    /// SHA-256 of the manifest before, in hex; absent, null or empty in the first.
    #[serde(default)]
    pub prev: Option<String>,
}

/// The sidecar of a window with many partitions.
#[derive(Clone, Debug, Deserialize)]
pub struct RangesFile {
    /// Window number.
    pub k: u64,
    /// Each partition's share, in order of names.
    pub ranges: Vec<PartitionEntry>,
}

/// The sidecar of a whole hour.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct HourFile {
    /// Tenant id.
    pub tenant: String,
    /// Queue name.
    pub queue: String,
    /// `2026-10-24T10`.
    pub hour: String,
    /// First window of the hour.
    pub first_k: u64,
    /// Last window of the hour.
    pub last_k: u64,
    /// Number of windows.
    pub windows: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of their data objects.
    pub bytes: u64,
    /// Always true.
    pub complete: bool,
}

/// A partition's share of a window.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub struct PartitionEntry {
    /// Its name.
    pub partition: String,
    /// First offset in the window.
    pub first_offset: u64,
    /// Last offset in the window.
    pub last_offset: u64,
    /// Records in the window.
    pub records: u64,
}

/// A data object of a window.
#[derive(Clone, Debug, Deserialize)]
pub struct ObjectEntry {
    /// Its key in the bucket.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// Its lines.
    pub records: u64,
    /// SHA-256 of its bytes, hex.
    pub sha256: String,
}

/// An inclusive range of offsets that is in no object.
#[derive(Clone, Debug, Deserialize)]
pub struct LostEntry {
    /// Partition name.
    pub partition: String,
    /// Queue incarnation: offsets begin anew with each.
    #[serde(default)]
    pub incarnation: u64,
    /// First offset.
    pub from: u64,
    /// Last offset.
    pub to: u64,
}
