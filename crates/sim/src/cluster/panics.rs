//! Panics of a run's tasks, which the runtime would keep to itself.
//!
//! Owns: noting them by thread. Leaves to others: telling (`run`).

use super::entropy;
use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    static SEEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// From now on panics on threads of runs are noted there, beside being told as before.
pub fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if entropy::is_seeded() {
                SEEN.with_borrow_mut(|seen| seen.push(panic.to_string()));
            }
            before(panic);
        }));
    });
}

/// What was noted on this thread.
pub fn take() -> Vec<String> {
    SEEN.take()
}
