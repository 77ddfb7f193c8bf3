//! Real processes under seeded faults: kill, pause, stop, cut links; with clients that work meanwhile
//! and checkers of what they were answered (`docs/design/faults.md`).
//!
//! Owns: one run (`run`), the measure of failover (`failover`), and what a run is judged by. Leaves to
//! others: processes (`crate::process`), the rules of the product.

mod failover;
mod history;
mod kv;
mod net;
mod queue;
mod run;
mod schedule;

pub use failover::failover;
pub use run::{Options, Report, run};
