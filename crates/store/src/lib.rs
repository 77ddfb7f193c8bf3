//! The disk: tables, queue logs, checkpoints and recovery.
//!
//! Owns: where the rows and the runs lie, how they reach the disk and how they are found again
//! after any crash. Leaves to others: what the rows mean and where a run goes (`queen-state`),
//! the order of the commands and their log (`queen-raft`).
//!
//! Upholds: after a crash the store stands exactly where its last durable checkpoint stood, so that
//! a replay of the log from there reaches the same state, byte for byte.
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod checkpoint;
mod control;
mod damage;
mod digest;
mod disk;
mod error;
mod export;
pub mod fuzzing;
mod gaps;
mod image;
mod import;
mod install;
mod lock;
mod log_files;
mod log_writer;
mod lsm;
mod options;
mod overlay;
mod pins;
mod recovery;
mod root;
mod row_cache;
mod scrub;
mod scrubber;
mod snapshot;
mod space;
mod store;
mod stream;
mod tables;

#[cfg(test)]
mod conformance_tests;
#[cfg(test)]
mod crash_tests;
#[cfg(test)]
mod full_disk_tests;
#[cfg(test)]
mod image_tests;

pub use damage::Finding;
pub use digest::{Digest, Part, PartDigest};
pub use error::{ImageError, LockError, OpenError, StoreError};
pub use export::{Export, ImageSize, PIECE_BYTES_MAX};
pub use import::Import;
pub use lock::DirLock;
pub use log_writer::LogSlice;
pub use options::StoreOptions;
pub use space::{Space, space};
pub use store::{Applied, ReadGuard, Recovered, Store, WriteGuard};
