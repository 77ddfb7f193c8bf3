//! Spreads the queues over the nodes that are there.
//!
//! Owns: the presence rows, a node's fair share, and who gives a queue back when.
//! Leaves to others: claiming and draining (`worker`).

use crate::context::Context;
use crate::lease::{incarnation, op};
use crate::signal::Signal;
use queen_core::kv::{KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::sink::{Presence, node_key, node_prefix};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A bucket that cannot be reached for this long makes a node give its queues away, if another
/// node can reach it.
const UNREACHABLE_FOR: Duration = Duration::from_secs(30);

/// What a node knows of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Nodes that are there, this one included.
    pub nodes: usize,
    /// Queues to copy.
    pub queues: usize,
    /// This node should own none: it cannot reach the bucket and another can.
    pub step_back: bool,
}

/// Most queues that a node should own: its fair share, rounded up.
pub fn share(view: View) -> usize {
    if view.step_back { 0 } else { view.queues.div_ceil(view.nodes.max(1)) }
}

/// The spread, as this node's workers share it.
#[derive(Debug)]
pub struct Spread {
    view: Signal<View>,
    held: AtomicUsize,
}

/// Counts a queue as held until it is dropped.
pub struct Held<'a>(&'a Spread);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Default for Spread {
    fn default() -> Spread {
        let view = View { nodes: 1, queues: 0, step_back: false };
        Spread { view: Signal::new(view), held: AtomicUsize::new(0) }
    }
}

impl Spread {
    /// What is known now.
    pub fn view(&self) -> View {
        self.view.get()
    }

    /// Queues held by this node.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }

    /// The number of queues to copy changed.
    pub fn queues(&self, queues: usize) {
        self.view.update(|view| View { queues, ..view });
    }

    /// Counts one more queue as held.
    pub fn hold(&self) -> Held<'_> {
        self.held.fetch_add(1, Ordering::AcqRel);
        Held(self)
    }

    /// Whether this node may claim one more at once; above its share it leaves others a turn first.
    pub fn below_share(&self) -> bool {
        self.held() < share(self.view())
    }

    /// Completes when this node owns more than its share. Cancel-safe.
    pub async fn above_share(&self) {
        self.view.until(|view| view.nodes > 1 && self.held() > share(view)).await;
    }

    /// Completes when this node should own no queue: it cannot reach the bucket, and another can.
    /// Cancel-safe.
    pub async fn stepped_back(&self) {
        self.view.until(|view| view.step_back).await;
    }

    /// Renews this node's presence row and counts the others'; never ends.
    pub async fn keep(&self, context: &Context) {
        let settings = &context.settings;
        let key = node_key(&settings.sink, &settings.instance);
        let prefix = node_prefix(&settings.sink);
        let incarnation = incarnation(&*context.host);
        loop {
            let unreachable = {
                let bucket = context.bucket_status.lock();
                let long = bucket.since.is_some_and(|since| since.elapsed() >= UNREACHABLE_FOR);
                bucket.reachable == Some(false) && long
            };
            let row = Presence {
                instance: settings.instance.clone(),
                incarnation: incarnation.clone(),
                reachable: !unreachable,
            };
            let value = row.to_json();
            let ttl_seconds = Some(settings.lease.as_secs().max(1));
            let ops = [
                op(KvOpKind::Put { key: &key, value: &value, ttl_seconds, expect: None }, false),
                op(
                    KvOpKind::GetPrefix {
                        prefix: &prefix,
                        after: None,
                        limit: 1000,
                        keys_only: false,
                    },
                    false,
                ),
            ];
            let results = match context.host.kv(&ops).await {
                Ok(KvOutcome::Done(results)) => results,
                _ => Vec::new(),
            };
            if let Some(KvResult::Rows { rows, .. }) = results.get(1) {
                let read = |row: &KvRow| Presence::from_json(&row.value).ok();
                let all: Vec<Presence> = rows.iter().filter_map(read).collect();
                let others = all.iter().any(|p| p.instance != settings.instance && p.reachable);
                let nodes = all.iter().filter(|p| p.reachable).count().max(1);
                let step_back = unreachable && others;
                self.view.update(|view| View { nodes, step_back, ..view });
            }
            tokio::time::sleep(settings.lease / 3).await;
        }
    }

    /// Removes this node's presence row; best effort.
    pub async fn leave(&self, context: &Context) {
        let key = node_key(&context.settings.sink, &context.settings.instance);
        let _ = context.host.kv(&[op(KvOpKind::Delete { key: &key, expect: None }, false)]).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_cover_all_queues() {
        for queues in 0..20 {
            for nodes in 1..6 {
                let share = share(View { nodes, queues, step_back: false });
                assert!(share * nodes >= queues && (share == 0 || (share - 1) * nodes < queues));
            }
        }
        assert_eq!(share(View { nodes: 2, queues: 9, step_back: true }), 0);
    }
}
