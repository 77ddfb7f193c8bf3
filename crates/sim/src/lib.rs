//! Checkers of the lake and the log, and the harness of the fault tests.
//!
//! Owns: the lake checker (`lake`), real processes of the broker and of an S3 server (`process`), an
//! S3 server that a test scripts (`double`), a real cluster under seeded faults (`faults`), a simulated cluster (`cluster`), the sink under seeded faults (`simulation`) with its twins
//! of broker and bucket (`twin`), seeded chance and damaged bytes (`chance`), every decoder behind
//! one signature (`decoders`), payloads that many trip over (`corpus`). Leaves to others: every rule of the product. The
//! checker shares no code with the sink, so that one mistake cannot hide the other.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod chance;
pub mod cluster;
pub mod corpus;
pub mod decoders;
pub mod double;
pub mod faults;
pub mod lake;
pub mod process;
mod seeds;
pub mod simulation;
pub mod twin;
