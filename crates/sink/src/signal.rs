//! A value that others wait for.
//!
//! Owns: waking everyone who waits when the value changes, in the order in which they came. A
//! `watch` channel of the runtime draws that order, and a simulation could not run twice.

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The value, and those that wait for it. Shared by reference.
#[derive(Debug)]
pub struct Signal<T> {
    value: Mutex<T>,
    turned: Notify,
}

impl<T: Copy + PartialEq> Signal<T> {
    /// Begins with a value.
    pub fn new(value: T) -> Signal<T> {
        Signal { value: Mutex::new(value), turned: Notify::new() }
    }

    /// The value now.
    pub fn get(&self) -> T {
        *self.value.lock()
    }

    /// Changes the value, and wakes those that wait if it is another.
    pub fn update(&self, change: impl FnOnce(T) -> T) {
        let mut value = self.value.lock();
        let before = *value;
        *value = change(before);
        let turned = before != *value;
        drop(value);
        if turned {
            self.turned.notify_waiters();
        }
    }

    /// Completes when the value is as wanted. Cancel-safe.
    pub async fn until(&self, mut wanted: impl FnMut(T) -> bool) {
        loop {
            let turned = self.turned.notified();
            tokio::pin!(turned);
            // Listen before looking, or a change between the two is missed.
            turned.as_mut().enable();
            if wanted(self.get()) {
                return;
            }
            turned.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn those_that_wait_are_woken_in_the_order_in_which_they_came() {
        let (signal, order) = (Arc::new(Signal::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for waiter in 0..20 {
            let (signal, order) = (signal.clone(), order.clone());
            tasks.push(tokio::spawn(async move {
                signal.until(|value| value > 0).await;
                order.lock().push(waiter);
            }));
            tokio::task::yield_now().await;
        }
        signal.update(|_| 1);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    }
}
