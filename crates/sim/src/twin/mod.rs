//! Twins of the broker and of the bucket, in memory and in the hands of a test.
//!
//! Owns: a broker that is the real state machine over tables and logs in memory, a bucket that
//! remembers every version of every object, and owners between the sink and both, whose requests
//! meet the fate that a test decides.
//! Leaves to others: which fates (`simulation` by a seed, the sink's tests by a number), what must
//! hold in the end.
//!
//! Everything runs on one thread under a paused clock: the same fates give the same run.

// What was written here reads, or the twin is at fault and has to say so.
#![allow(clippy::unwrap_used)]

mod broker;
mod bucket;
mod keys;
mod line;
mod owner;
mod reading;
mod requests;

pub use broker::{Pushed, SimBroker};
pub use bucket::{SimObject, SimStore};
pub use line::{Call, Dies, Fate, Fates, Line};
pub use owner::{Owner, World, settings};
pub use requests::key_of;
