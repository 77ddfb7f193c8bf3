//! The memory that windows in work may take, all queues together.
//!
//! Owns: the budget and the grants taken from it.
//! Upholds: `memory-bounded`.
//!
//! A window first waits for a base grant that lets it make progress whatever happens; everything
//! above is taken without waiting, or not at all. So no two windows can wait for one another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared {
    limit: u64,
    used: AtomicU64,
    freed: Notify,
}

/// The budget. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Budget {
        Budget(Arc::new(Shared { limit, used: AtomicU64::new(0), freed: Notify::new() }))
    }

    /// Bytes granted now.
    pub fn used(&self) -> u64 {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Bytes there are.
    pub fn limit(&self) -> u64 {
        self.0.limit
    }

    /// A grant of nothing, to grow.
    pub fn none(&self) -> Grant {
        Grant { budget: self.clone(), bytes: 0 }
    }

    /// Waits for `bytes`, at most the whole budget. Cancel-safe.
    pub async fn take(&self, bytes: u64) -> Grant {
        let mut grant = self.none();
        let bytes = bytes.min(self.0.limit);
        loop {
            let freed = self.0.freed.notified();
            tokio::pin!(freed);
            // Listen before looking, or a release between the two is missed.
            freed.as_mut().enable();
            if grant.grow(bytes) {
                return grant;
            }
            freed.await;
        }
    }
}

/// Memory taken from a budget; given back when dropped.
#[derive(Debug)]
pub struct Grant {
    budget: Budget,
    bytes: u64,
}

impl Grant {
    /// Takes `bytes` more if they are there.
    pub fn grow(&mut self, bytes: u64) -> bool {
        let shared = &self.budget.0;
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= shared.limit);
        let taken = shared.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, fits).is_ok();
        if taken {
            self.bytes += bytes;
        }
        taken
    }

    /// Gives everything back.
    pub fn shrink(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        if bytes > 0 {
            self.budget.0.used.fetch_sub(bytes, Ordering::AcqRel);
            self.budget.0.freed.notify_waiters();
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

    #[tokio::test]
    async fn a_grant_waits_until_there_is_room() {
        let budget = Budget::new(100);
        let first = budget.take(60).await;
        let mut second = budget.none();
        assert!(!second.grow(50) && second.grow(40));
        let other = budget.clone();
        let waiting = tokio::spawn(async move { other.take(100).await.bytes });
        tokio::task::yield_now().await;
        drop(first);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(second);
        assert_eq!(waiting.await.unwrap(), 100);
        assert_eq!(budget.used(), 0);
    }
}
