//! Real processes under seeded faults: kill, pause, stop, cut links; with clients that work meanwhile
//! and checkers of what they were answered (`docs/design/faults.md`).
//!
//! Owns: one run (`run`), the measures of failover and of a rolling restart (`failover`, `rolling`), the
//! search for faults that were planted (`planted`),
//! what a run is judged by, and what is told of it (`report`). Leaves to
//! others: processes (`crate::process`), the rules of the product.

mod asked;
mod clock;
mod failover;
mod history;
pub(crate) mod kv;
mod lease;
mod lock;
mod lock_clients;
mod means;
mod members;
mod net;
mod planted;
mod power;
mod preload;
mod queue;
mod report;
mod rolling;
mod run;
mod scene;
mod schedule;
mod sink;
mod transaction;
mod transaction_clients;

pub use failover::failover;
pub use planted::{PLANTED, Planted, find_planted};
pub use report::{Report, Summary};
pub use rolling::rolling;
pub use run::{Options, run};
pub use schedule::Kind;
