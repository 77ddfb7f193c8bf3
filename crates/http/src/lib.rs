//! The HTTP face: routes, one file per noun, errors and the metrics page.
//!
//! Owns: the listener and its connections (`server`, `tls`), who may call (`auth`), the route table (`routes`), what a handler
//! gets (`call`) and gives (`answer`), and per noun the mapping between JSON and the broker's types
//! (`push`, `pop`, `ack`, `lease`, …). Leaves to others: every rule (`queen-state`), everything that
//! waits or is durable (`queen-broker`).
//!
//! To add a noun: write `<noun>.rs` with handlers `async fn(Call) -> Result<Answer, Refusal>`, and
//! give each a line in the table of `routes`.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod ack;
mod analytics;
mod answer;
pub mod auth;
mod binary;
mod call;
mod cluster;
mod dead_letter;
mod ephemeral;
mod fetch;
mod group;
mod health;
mod kv;
mod kv_answer;
mod lease;
mod lock;
mod message;
mod metrics;
mod object;
mod pop;
mod pop_answer;
mod pop_frames;
mod push;
mod query;
mod queue;
mod queue_status;
mod routes;
mod server;
mod status;
mod stream;
mod switch;
mod text;
mod timer;
pub mod tls;
mod trace;
mod transaction;
mod transaction_answer;
mod unread;

pub use server::{Extra, Server, ServerOptions};
