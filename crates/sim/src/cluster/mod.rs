//! Seeded runs of a whole cluster: the log and the rules that ship, over simulated network, disks and clocks
//! (`docs/design/cluster-simulator.md`).
//!
//! Owns: one run per seed, its faults, what must hold, and the mutations that show that a broken protocol is
//! found. Leaves to others: the rules (`queen-state`), the log (`queen-raft`).

// What was written here reads, or the run is at fault and has to say so.
#![allow(clippy::unwrap_used)]

pub mod apart;
mod broker;
mod disk;
mod door;
pub mod entropy;
mod forward;
mod host;
mod image;
mod kv_clients;
mod ledger;
mod machine;
mod mutation;
mod net;
mod node;
mod panics;
mod queue_clients;
mod run;
mod vitals;

pub use mutation::Mutation;
pub use run::{Outcome, run};
