//! KV operations and their results.
//!
//! Owns: the types. Leaves to others: the rules (`queen-state`), JSON (`queen-http`), what the sink
//! keeps in its namespace (`queen-sink`).

use crate::Stamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// One operation of a KV batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KvOp<'a> {
    /// Namespace, `[a-z0-9][a-z0-9._-]{0,63}`.
    pub ns: &'a str,
    /// What to do.
    #[serde(borrow)]
    pub kind: KvOpKind<'a>,
    /// Nothing of the batch applies when this one is lost.
    pub required: bool,
}

/// What a KV operation does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KvOpKind<'a> {
    /// Reads a key.
    Get {
        /// Key.
        key: &'a str,
    },
    /// Reads several keys.
    GetMany {
        /// Keys.
        #[serde(borrow)]
        keys: Vec<&'a str>,
    },
    /// Lists keys in byte order.
    GetPrefix {
        /// Not empty.
        prefix: &'a str,
        /// Only keys after this one.
        #[serde(borrow)]
        after: Option<&'a str>,
        /// 1..=1000.
        limit: u32,
        /// Leave out values.
        keys_only: bool,
    },
    /// Writes a key.
    Put {
        /// Key.
        key: &'a str,
        /// Compact JSON text.
        value: &'a str,
        /// Seconds to live; `None` for ever.
        ttl_seconds: Option<u64>,
        /// Version it must have; 0 = must not exist; `None` = whatever it is.
        expect: Option<u64>,
    },
    /// Removes a key.
    Delete {
        /// Key.
        key: &'a str,
        /// As in `Put`.
        expect: Option<u64>,
    },
    /// Adds to a counter; an absent key counts as zero.
    Incr {
        /// Key.
        key: &'a str,
        /// JSON number text, added.
        delta: &'a str,
        /// JSON number text: no result below it.
        #[serde(borrow)]
        min: Option<&'a str>,
        /// JSON number text: no result above it.
        #[serde(borrow)]
        max: Option<&'a str>,
        /// Set only when the counter is created.
        ttl_seconds: Option<u64>,
    },
    /// Holds when the key has this version.
    Check {
        /// Key.
        key: &'a str,
        /// As in `Put`.
        expect: u64,
    },
}

/// A live row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvRow {
    /// Key.
    pub key: String,
    /// JSON text; empty when only keys were asked for.
    pub value: Bytes,
    /// Greater than every earlier version of the key, deletion and expiry included.
    pub version: u64,
    /// End of life; `None` for ever.
    pub expires_at: Option<Stamp>,
    /// Last write.
    pub updated_at: Stamp,
}

/// Why a write was lost; the closed set of the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvLoss {
    /// The key exists.
    Exists,
    /// The key does not exist.
    Absent,
    /// The key has another version.
    Version,
    /// The counter would leave its bounds.
    Limit,
    /// The value is no number.
    Type,
}

impl KvLoss {
    /// The word of the HTTP API.
    pub fn word(self) -> &'static str {
        match self {
            KvLoss::Exists => "exists",
            KvLoss::Absent => "absent",
            KvLoss::Version => "version",
            KvLoss::Limit => "limit",
            KvLoss::Type => "type",
        }
    }
}

/// Result of one operation, in the order of the batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvResult {
    /// Of `Get`.
    Row(Option<KvRow>),
    /// Of `GetMany` and `GetPrefix`.
    Rows {
        /// Found, in order of the request or of the keys.
        rows: Vec<KvRow>,
        /// Asked for and not found (`GetMany`).
        missing: Vec<String>,
        /// More rows would have matched.
        truncated: bool,
    },
    /// Of a write or a check that took effect; the row as it is now (`None` after a delete).
    Applied(Option<KvRow>),
    /// Of a write or a check that did not.
    Lost {
        /// Why.
        reason: KvLoss,
        /// The row as it is, if it exists.
        row: Option<KvRow>,
    },
}

/// Outcome of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvOutcome {
    /// One result per operation.
    Done(Vec<KvResult>),
    /// A required operation was lost: nothing applied.
    Precondition {
        /// Which operation.
        index: usize,
        /// Why.
        reason: KvLoss,
        /// The row as it is, if it exists.
        row: Option<KvRow>,
    },
}
