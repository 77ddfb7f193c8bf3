//! Hearing of writes without popping: the sink's ear.
//!
//! Owns: who follows which queue, and the count of changes to the set of queues. Leaves to others:
//! what a follower does with it, pops (`parking`).

use parking_lot::Mutex;
use queen_core::QueueId;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// Followers of queues, and of the set of queues.
pub struct Following {
    ears: Mutex<Ears>,
    queues: watch::Sender<u64>,
}

#[derive(Default)]
struct Ears {
    /// The newest queue heard of: a write to a newer one is a new queue.
    newest: QueueId,
    followed: HashMap<QueueId, Arc<Notify>>,
}

impl Default for Following {
    fn default() -> Following {
        Following { ears: Mutex::default(), queues: watch::Sender::new(1) }
    }
}

impl Following {
    /// Completes at the next write to the queue, or change of it, after this call; ask before
    /// looking, so that nothing is missed between the two. Cancel-safe.
    pub fn written(&self, queue: QueueId) -> impl Future<Output = ()> + Send + use<> {
        let ear = Arc::clone(self.ears.lock().followed.entry(queue).or_default());
        ear.notified_owned()
    }

    /// Completes once the count of changes to the set of queues is above `seen`, and gives it; it
    /// begins at 1. Cancel-safe.
    pub async fn queues_changed(&self, seen: u64) -> u64 {
        let mut count = self.queues.subscribe();
        let now = count.wait_for(|now| *now > seen).await.map(|now| *now);
        // The sender lives as long as this: there is no error.
        now.unwrap_or(seen)
    }

    pub(crate) fn tell_written(&self, queue: QueueId) {
        let mut ears = self.ears.lock();
        if let Some(ear) = ears.followed.get(&queue) {
            ear.notify_waiters();
        }
        let new = queue > ears.newest;
        ears.newest = ears.newest.max(queue);
        drop(ears);
        if new {
            self.queues.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn tell_changed(&self, queue: QueueId) {
        let mut ears = self.ears.lock();
        // A follower of a deleted queue asks again if it still cares.
        if let Some(ear) = ears.followed.remove(&queue) {
            ear.notify_waiters();
        }
        ears.newest = ears.newest.max(queue);
        drop(ears);
        self.queues.send_modify(|count| *count += 1);
    }

    /// All queues may be others now: everybody looks again.
    pub(crate) fn tell_all_changed(&self) {
        let followed = std::mem::take(&mut self.ears.lock().followed);
        followed.into_values().for_each(|ear| ear.notify_waiters());
        self.queues.send_modify(|count| *count += 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_follower_hears_of_writes_and_changes_of_its_queue() {
        let following = Following::default();
        let write = following.written(QueueId(1));
        following.tell_written(QueueId(1));
        write.await;
        let change = following.written(QueueId(1));
        following.tell_changed(QueueId(1));
        change.await;
    }

    #[tokio::test]
    async fn the_first_write_to_a_queue_and_each_change_move_the_count() {
        let following = Following::default();
        assert_eq!(following.queues_changed(0).await, 1);
        following.tell_written(QueueId(3));
        following.tell_written(QueueId(3));
        assert_eq!(following.queues_changed(1).await, 2);
        following.tell_changed(QueueId(3));
        assert_eq!(following.queues_changed(2).await, 3);
    }
}
