//! The whole sink over the twins of broker and bucket: whatever dies, the lake equals the log.
//!
//! Owns: single orders of events, each as a test named after what must come of it. Leaves to others:
//! orders that nobody thought of (`simulation`), one part of the sink alone (`queen-sink`).

#![allow(clippy::unwrap_used)] // a test's unwrap is its failure

mod ahead;
mod calendar;
mod crash;
mod failure;
mod life;
mod loss;
mod scene;
mod start;
mod upgrade;
