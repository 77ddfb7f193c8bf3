//! Files that stay for a while although no row names them any more.
//!
//! Owns: who reads an image of the files, and which removals wait for that. Leaves to others:
//! removing (`log_writer`), what an image is (`image`).
//!
//! A pin is taken before the rows of an image are looked at. So each removal either waits for the
//! pin, or belongs to a checkpoint whose rows the image has seen.

use crate::log_files::LogFiles;
use crate::log_writer::LogChanges;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};

#[derive(Default)]
struct State {
    next: u64,
    held: BTreeSet<u64>,
    /// What is to be removed, each with the first pin that it need not wait for; rising.
    waiting: VecDeque<(u64, LogChanges)>,
}

/// The pins and what waits for them.
#[derive(Default)]
pub(crate) struct Pins {
    state: Mutex<State>,
}

impl Pins {
    /// From now on nothing is removed, until [`Pins::release`].
    pub(crate) fn hold(&self) -> u64 {
        let mut state = self.state.lock();
        let pin = state.next;
        state.next += 1;
        state.held.insert(pin);
        pin
    }

    /// Lets go, and removes what has waited for nobody else.
    pub(crate) fn release(&self, pin: u64, files: &LogFiles) {
        let mut free = Vec::new();
        {
            let mut state = self.state.lock();
            state.held.remove(&pin);
            let oldest = state.held.first().copied().unwrap_or(u64::MAX);
            while state.waiting.front().is_some_and(|(until, _)| *until <= oldest) {
                free.extend(state.waiting.pop_front());
            }
        }
        free.iter().for_each(|(_, changes)| changes.remove(files));
    }

    /// Removes now, or when those who hold a pin now have let it go.
    pub(crate) fn remove(&self, changes: LogChanges, files: &LogFiles) {
        let mut state = self.state.lock();
        if state.held.is_empty() {
            drop(state);
            changes.remove(files);
        } else {
            let until = state.next;
            state.waiting.push_back((until, changes));
        }
    }
}
