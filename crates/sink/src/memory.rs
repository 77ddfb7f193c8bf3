//! The memory that windows in work may take, all queues together.
//!
//! Owns: the budget and the grants taken from it.
//! Upholds: `memory-bounded`.
//!
//! A window first waits for the memory to be encoded in (`turns`), which lets it make progress whatever
//! happens; everything above is taken without waiting, or not at all. So no two windows can wait for
//! one another. A grant goes with whoever uses the memory, threads included: it outlives a task that
//! is cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
    /// Memory, or whatever else is waited for together with it, has come free.
    changed: Notify,
}

/// The budget. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Shared { limit, used: AtomicU64::new(0), changed: Notify::new() }))
    }

    /// Bytes granted now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes there are.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// A grant of nothing, to grow as long as it leaves `spare` bytes to others.
    pub fn sparing(&self, spare: u64) -> Grant {
        Grant { budget: self.clone(), bytes: 0, spare }
    }

    /// Completes when something that was waited for may be there. Enabled, it misses no change.
    pub fn changed(&self) -> Notified<'_> {
        self.0.changed.notified()
    }

    /// Wakes all who wait for a change.
    pub fn notify(&self) {
        self.0.changed.notify_waiters();
    }
}

/// Memory taken from a budget; given back when dropped.
#[derive(Debug)]
pub struct Grant {
    budget: Budget,
    bytes: u64,
    spare: u64,
}

impl Grant {
    /// Takes `bytes` more if they are there.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let shared = &self.budget.0;
        let most = shared.limit.saturating_sub(self.spare);
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= most);
        let taken = shared.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Bytes taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Parts with `bytes` of it, or with all there is.
    pub fn split(&mut self, bytes: u64) -> Grant {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Grant { budget: self.budget.clone(), bytes, spare: self.spare }
    }

    /// Gives everything back.
    pub fn shrink(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.budget.0.used.fetch_sub(bytes, Ordering::AcqRel);
            self.budget.notify();
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.shrink();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_grows_as_long_as_there_is_room() {
        let budget = Budget::new(100);
        let (mut first, mut second) = (budget.sparing(0), budget.sparing(20));
        assert!(first.grow(60) && !first.grow(41));
        assert!(!second.grow(21) && second.grow(20), "20 are left to others");
        assert!(first.grow(20) && budget.used() == 100);
        drop(first);
        second.shrink();
        assert_eq!(budget.used(), 0);
    }
}
