//! The manifest of a window: what lies where, and what was lost.

use serde::{Deserialize, Serialize};

super::fields! {
/// One data object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectEntry {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// Records in it.
    pub records: u64,
    /// SHA-256 of its bytes, lower hex.
    pub sha256: String,
    /// Its partition, in the layout `per-partition`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub partition: Option<String>,
    /// First offset in it, in that layout.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub first_offset: Option<u64>,
    /// Last offset in it, in that layout.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_offset: Option<u64>,
}
}

super::fields! {
/// The records of one partition in a window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionRange {
    /// Name.
    pub partition: String,
    /// First offset.
    pub first_offset: u64,
    /// Last offset; `records` = last - first + 1 unless some between were lost.
    pub last_offset: u64,
    /// Records.
    pub records: u64,
}
}

/// Why records are not in the bucket. Also in rows of [`crate::table::Table::Lost`], as a number: new
/// ones go at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// Retention removed them first.
    Retention,
    /// The disk was full.
    DiskFull,
    /// The queue was deleted first.
    Deleted,
}

super::fields! {
/// Records that will never be in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// Partition's name.
    pub partition: String,
    /// Queue incarnation.
    pub incarnation: u32,
    /// First lost offset.
    pub from: u64,
    /// Last lost offset.
    pub to: u64,
    /// Why: `retention`, `disk_full` or `deleted`.
    pub reason: LossReason,
}
}

super::fields! {
/// Object `windows/<k>.json`. A function of the intent and the log alone: whoever writes it writes
/// the same bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Name of the sink.
    pub sink: String,
    /// Tenant.
    pub tenant: String,
    /// Queue, unescaped.
    pub queue: String,
    /// Window number.
    pub k: u64,
    /// First stamp that may be in the window, µs.
    pub t_start: u64,
    /// First stamp that is not, µs.
    pub t_end: u64,
    /// `jsonl` or `parquet`.
    pub format: String,
    /// `zstd`, `gzip` or `none` of JSONL; `zstd` or `snappy` of Parquet.
    pub compression: String,
    /// `merged` or `per-partition`.
    pub layout: String,
    /// The data objects, in order of their keys.
    pub objects: Vec<ObjectEntry>,
    /// Records in all objects.
    pub records: u64,
    /// Bytes of all objects.
    pub bytes: u64,
    /// Partitions with at least one record.
    pub partitions: u64,
    /// Stamp of the first record, µs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub min_ts: Option<u64>,
    /// Stamp of the last record, µs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_ts: Option<u64>,
    /// Records that will never be in the bucket: what went before the intent was written and no
    /// window before lists. At most 10,000 ranges; more stand in the windows after this one.
    pub lost: Vec<LostRange>,
    /// Release and format.
    pub writer: String,
    /// Log clock when the window was decided, ISO 8601.
    pub committed_at: String,
    /// Version of this document: 1.
    pub v: u32,
    /// Encoder revision.
    pub encoder: u32,
    /// Queue incarnation.
    pub queue_id: u32,
    /// Records whose payload went as base64.
    pub wrapped: u64,
    /// Longest line or record, bytes before compression.
    pub max_record_bytes: u64,
    /// The records by partition, in order of names; in `rangesObject` when there are many.
    pub ranges: Vec<PartitionRange>,
    /// Key of the object with the ranges.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranges_object: Option<String>,
    /// SHA-256 of that object, lower hex.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ranges_sha256: Option<String>,
    /// SHA-256 of the manifest before, lower hex; empty for the first.
    pub prev: String,
}
}
super::document!(Manifest, "manifest");

super::fields! {
/// Object `windows/<k>.partitions.json`: the ranges of a window with many partitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionsFile {
    /// Version of this document: 1.
    pub v: u32,
    /// Window number.
    pub k: u64,
    /// The records by partition, in order of names.
    pub ranges: Vec<PartitionRange>,
}
}
super::document!(PartitionsFile, "partitions file");
