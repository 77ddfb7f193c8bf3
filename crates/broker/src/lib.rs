//! The shell around the rules: from a request's command to its durable answer.
//!
//! Owns: stamping and proposing (`proposer`, `clock`), getting commands to whoever leads (`forward`, `peers`),
//! applying what the log committed (`machine`), answering (`waiters`), long polls (`parking`, `ready`), followers (`following`), reading payloads (`reads`), encrypting them (`sealing`, `keyring`), admission (`admission`,
//! `disk`), letting time pass (`ticker`, `holds`), what an operator has switched off (`switch`), queues in memory only (`ephemeral`), start and stop (`lifecycle`), the
//! group for operators (`cluster`). One file per noun adds its
//! calls to [`Broker`]: `push`, `pop`, `ack`, `lease`, …
//! Leaves to others: what a command does (`queen-state`), where bytes lie and when a checkpoint is
//! made (`queen-store`), the order of commands and the sync they share (`queen-raft`), HTTP
//! (`queen-http`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ack;
mod admission;
pub mod autopilot;
mod broker;
pub mod browse;
mod clock;
pub mod cluster;
mod counters;
pub mod dead_letters;
pub mod discovery;
mod disk;
pub mod ephemeral;
pub mod fetch;
mod following;
mod forward;
pub mod groups;
pub mod history;
mod holds;
pub mod keyring;
pub mod kv;
mod lease;
mod lifecycle;
mod lock;
mod machine;
mod machine_snapshot;
pub mod messages;
mod parking;
mod peers;
mod pop;
pub mod process;
mod proposer;
mod push;
pub mod queues;
mod reads;
mod ready;
mod sealing;
pub mod stream;
mod switch;
mod ticker;
pub mod timer;
pub mod traces;
mod transaction;
mod view;
mod waiters;

pub use admission::Class;
pub use broker::{Broker, View};
pub use counters::{Counter, Counters};
pub use disk::DiskMarks;
pub use following::Following;
pub use holds::HeldQueue;
pub use kv::{Fault, KvError, KvRefusal};
pub use lifecycle::{BrokerOptions, StartError};
pub use pop::Delivery;
pub use queen_state::hold::Phase;
pub use queen_store::Finding;
pub use reads::{Delivered, Message};
pub use sealing::Sealed;
pub use view::Standing;
pub use waiters::Undelivered;
