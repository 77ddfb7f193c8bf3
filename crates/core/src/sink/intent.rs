//! The window being written: all that decides its bytes and its names.

use serde::{Deserialize, Serialize};

/// A place in a queue's log: segment number and byte position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogPlace(pub u64, pub u64);

/// What the headers tell of a window's size: the memory to redo it in follows from this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Shape {
    /// Records.
    pub records: u64,
    /// Their weight, bytes.
    pub weight: u64,
    /// Runs.
    pub runs: u64,
    /// The longest of them, bytes.
    pub run_bytes_max: u64,
    /// Partitions, or a few more.
    pub partitions: u64,
    /// Bytes of their names.
    pub name_bytes: u64,
}

/// Row `intent`. A redo takes every value from here, none from today's settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Queue incarnation whose records the window holds.
    pub queue_id: u32,
    /// Window number, from 1.
    pub k: u64,
    /// First stamp that may be in the window, µs.
    pub t_start: u64,
    /// First stamp that is not, µs.
    pub t_end: u64,
    /// Where the first run of the window begins.
    pub log_from: LogPlace,
    /// Where the last run of the window ends.
    pub log_to: LogPlace,
    /// What of it is known.
    pub shape: Shape,
    /// `jsonl` or `parquet`.
    pub format: String,
    /// `zstd`, `gzip` or `none` of JSONL; `zstd` or `snappy` of Parquet.
    pub compression: String,
    /// Compression level; 0 where there are none.
    pub level: i32,
    /// Payloads that readers cannot survive go as base64.
    pub wrap: bool,
    /// `merged` or `per-partition`.
    pub layout: String,
    /// `hour`, `day` or `none`.
    pub align: String,
    /// Encoder revision.
    pub encoder: u32,
    /// Release and format, as the manifest's `writer` shows them.
    pub writer: String,
    /// First part of all keys.
    pub prefix: String,
    /// Key of the data object (`merged`), or what the keys of all of them begin with.
    pub key: String,
    /// Bucket name, to tell a window begun in another bucket.
    pub bucket: String,
    /// Log clock when the window was decided, µs; the manifest's `committedAt`.
    pub at: u64,
    /// SHA-256 of manifest k-1, lower hex; empty for the first window.
    pub prev: String,
}
super::document!(Intent, "intent row");
