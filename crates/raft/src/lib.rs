//! Write-ahead log and consensus over the openraft library.
//!
//! Owns: the log's files and their sync (`wal`), the vote, elections, the order of entries, and the
//! hand-over of committed entries to the [`Machine`]. The only crate that names the library.
//! Leaves to others: what an entry means (it is opaque bytes here), the tables (`queen-store`),
//! gathering of commands and answers to clients (`queen-broker`).
//! Upholds: `synced-before-applied` (the machine sees an entry only after its bytes are synced),
//! `applied-in-order` (each index once, rising, on one thread).

// The library's error types are large, and its traits fix them.
#![allow(clippy::result_large_err)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod address;
mod cluster;
mod disk_id;
mod error;
mod exchange;
mod founding;
#[doc(hidden)]
pub mod fuzzing;
mod gather;
mod group;
mod held;
pub mod host;
mod log_storage;
mod machine;
mod mark;
mod members;
mod message;
mod net;
mod node;
mod pacing;
mod reads;
mod replay;
mod running;
mod runtime;
mod snapshots;
mod state_machine;
mod transport;
mod types;
mod vote;
mod wal;

#[cfg(test)]
mod cluster_tests;

pub use cluster::{
    AskError, ClusterOptions, Leader, Members, MembershipCode, MembershipError, Peer, Role,
    Service, Standing, TlsFiles,
};
pub use error::{NotProposed, StartError};
pub use machine::{Committed, Machine, MachineFailed, SnapshotSink, SnapshotSource};
pub use node::{RaftNode, RaftOptions, WalOptions};

/// Whether `QUEEN_PLANTED_BUG` names this fault. Only in builds that show what the harness finds.
#[cfg(feature = "planted-bugs")]
pub fn planted(name: &str) -> bool {
    std::env::var("QUEEN_PLANTED_BUG").is_ok_and(|set| set == name)
}
