//! The vocabulary of the broker, and every byte that outlives a process.
//!
//! Owns: names, ids, offsets, stamps, limits, error codes; the encodings of log entries, commands,
//! runs, message frames, envelopes of encrypted payloads, table keys and rows, sink rows and manifests,
//! and of what the nodes of a cluster ask their leader.
//! Leaves to others: what a command does (`queen-state`), where bytes lie (`queen-store`,
//! `queen-raft`). Nothing here does I/O, reads a clock or draws a random number.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod command;
pub mod decimal;
pub mod entry;
pub mod envelope;
pub mod ephemeral;
pub mod error;
pub mod frame;
pub mod ids;
pub mod kv;
pub mod limits;
pub mod lock;
pub mod metric;
pub mod options;
pub mod relay;
pub mod reply;
pub mod row;
pub mod run;
pub mod setting;
pub mod sink;
pub mod stamp;
pub mod stream;
pub mod switch;
pub mod table;
pub mod tenant;
pub mod timer;
pub mod trace;
pub mod transaction;

pub use error::{Code, Error};
pub use ids::{GroupId, LeaseId, MessageId, Offset, PartitionId, QueueId};
pub use stamp::Stamp;
pub use tenant::TenantId;
