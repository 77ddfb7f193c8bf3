//! Public pains of sinks like ours, each tried on the real binary against the scripted bucket.
//!
//! Numbers are rows of the project's collection of such pains; every one of priority 1 and 2 stands in
//! one of these files, as a test or as a line that says why it needs none here.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test's unwrap is its failure

mod delivery;
mod files;
mod headers;
mod names;
mod payload;
mod place;
mod throttle;
