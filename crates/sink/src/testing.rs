//! Simulated twins of the broker and the bucket, for tests.
//!
//! Both count their effects on one [`Faults`]: a test says at which effect the owner dies, before
//! or after it took place, or that the answer is lost. A dead owner's calls never return.

mod allocations;
mod broker;
mod bucket;

pub use allocations::most_held;
pub use broker::{Appended, SimBroker};
pub use bucket::SimStore;

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::sync::watch;

/// What happens to one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The owner dies before it.
    Before,
    /// The owner dies after it.
    After,
    /// It takes place, the answer is lost.
    AnswerLost,
    /// It takes place after the owner is dead and the next one has done this many effects.
    Late,
}

/// Counts the effects of one owner.
#[derive(Default)]
pub struct Faults {
    count: Mutex<usize>,
    at: Mutex<Option<(usize, Fault)>>,
    dead: watch::Sender<bool>,
}

impl Faults {
    /// A fault at effect number `at` (from 0).
    pub fn at(at: usize, fault: Fault) -> Arc<Faults> {
        Arc::new(Faults { at: Mutex::new(Some((at, fault))), ..Faults::default() })
    }

    /// Effects so far.
    pub fn count(&self) -> usize {
        *self.count.lock()
    }

    /// Completes when the owner is dead.
    pub async fn died(&self) {
        let _ = self.dead.subscribe().wait_for(|dead| *dead).await;
    }

    /// Called before an effect.
    pub(super) async fn step(&self) -> Option<Fault> {
        if *self.dead.borrow() {
            std::future::pending::<()>().await;
        }
        let now = {
            let mut count = self.count.lock();
            *count += 1;
            *count - 1
        };
        let fault = self.at.lock().filter(|(at, _)| *at == now).map(|(_, fault)| fault);
        if fault == Some(Fault::Before) {
            self.die().await;
        }
        fault
    }

    pub(super) async fn die(&self) {
        self.dead.send_replace(true);
        std::future::pending::<()>().await;
    }
}
