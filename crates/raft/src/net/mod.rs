//! The network between nodes.
//!
//! Owns: connections, their greeting and frames. Leaves to others: what a request means (`group`,
//! `transport`).

pub(crate) mod frame;
pub(crate) mod greeting;
pub(crate) mod link;
pub(crate) mod listener;
pub(crate) mod stream;
