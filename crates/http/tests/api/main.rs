//! The HTTP face over loopback, against a broker on disk in a directory of its own.

#![allow(clippy::unwrap_used)]

mod ack;
mod analytics;
mod auth;
mod bad_input;
mod binary;
mod cluster;
mod damage;
mod dead_letter;
mod discovery;
mod encryption;
mod ephemeral;
mod fetch;
mod group;
mod kv;
mod lease;
mod lock;
mod message;
mod node;
mod pop;
mod pop_frames;
mod push;
mod queue;
mod stream;
mod timer;
mod tls;
mod trace;
mod transaction;
