//! The rules: a deterministic `apply` over ordered tables and queue logs.
//!
//! Owns: every decision about queues, partitions, groups, leases, dead letters, KV, locks, timers, traces,
//! streams, declared ephemeral queues and retention; the pure reading of their state. Leaves to others: storing
//! (`queen-store`), ordering
//! (`queen-raft`), time (a command's stamp is the only clock here).
//!
//! No I/O but through the traits, no clock, no randomness, no hash-order iteration, no floats in
//! decisions. Upholds `stamps-rise`, `offsets-gapless`, `apply-deterministic`, `one-live-lease`,
//! `cursor-never-passes-unsettled`, `kv-versions-rise`, `loss-is-listed`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ack;
mod dead_letter;
pub mod dead_letter_admin;
pub mod ephemeral;
pub mod gone;
pub mod group;
pub mod group_admin;
pub mod hold;
pub mod invariants;
pub mod kv;
pub mod lease;
pub mod lock;
pub mod logs;
pub mod lost;
mod machine;
pub mod memory;
#[cfg(test)]
mod model_tests;
pub mod pin;
mod pop;
pub mod push;
pub mod query;
pub mod queue_admin;
pub mod ready;
mod retention;
pub mod run;
mod segment;
pub mod step;
pub mod stream;
pub mod switch;
pub mod tables;
mod tick;
pub mod timeline;
pub mod timer;
pub mod trace;
mod transaction;
mod transaction_id;
#[cfg(test)]
mod world;

pub use logs::{Place, QueueLogs, QueueLogsMut};
pub use machine::Machine;
pub use memory::MemoryStore;
pub use tables::{StorageError, Tables, TablesMut};

/// All that the rules write to.
pub trait Storage: TablesMut + QueueLogsMut {}

impl<T: TablesMut + QueueLogsMut> Storage for T {}

/// All that reading needs.
pub trait Reading: Tables + QueueLogs {}

impl<T: Tables + QueueLogs> Reading for T {}
