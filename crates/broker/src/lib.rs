//! The shell around the rules: from a request's command to its durable answer.
//!
//! Owns: batching and stamping (`proposer`), applying what the log committed (`machine`), answering
//! (`waiters`), long polls (`parking`), reading payloads (`reads`), admission (`admission`), letting
//! time pass (`ticker`), checkpoints (`checkpointer`), start and stop (`lifecycle`). One file per
//! noun adds its calls to [`Broker`]: `push`, `pop`, `ack`, `lease`, …
//! Leaves to others: what a command does (`queen-state`), where bytes lie (`queen-store`), the order
//! of commands (`queen-raft`), HTTP (`queen-http`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod admission;
mod broker;
pub mod kv;

pub use admission::Class;
pub use broker::{Broker, View};
pub use kv::{KvError, KvRefusal};
