//! The exactly-once copy of queues into a bucket.
//!
//! Owns: windows and their commit, leases on queues, encoding, upload, the sink's settings, status
//! and metrics.
//! Leaves to others: the broker, seen through [`host::Host`] only; the bytes of persisted documents
//! (`queen_core::sink`).
//! Upholds: `windows-tile`, `window-is-final`, `once-in-the-lake`, `one-writer-commits`,
//! `manifest-chain`, `memory-bounded`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ahead;
mod below;
pub mod bucket;
pub mod bucket_s3;
mod commit;
mod context;
pub mod encode;
mod filling;
pub mod host;
mod intent;
pub mod layout;
mod lease;
mod making;
mod manifest;
mod memory;
mod metrics;
mod names;
mod needs;
mod object;
mod open_uploads;
mod plan;
mod priority;
mod produce;
mod ranges;
mod read;
mod retry;
pub mod settings;
mod signal;
mod sink;
mod sink_loop;
mod spread;
mod start;
pub mod status;
#[cfg(test)]
mod testing;
mod turns;
mod upload;
mod window;
mod worker;

pub use sink::Sink;
pub use sink_loop::SinkLoop;
pub use worker::Wish;
