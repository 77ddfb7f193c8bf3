//! Whose window is encoded next, when there are more of them than threads.
//!
//! Owns: the threads' places, the order in which they are given out, and that a place comes with the
//! memory to encode in.
//! Leaves to others: what the memory is (`memory`), which kind a window is (`commit`).
//! Upholds: `memory-bounded`.
//!
//! Windows of queues that keep up go first: they are small, and somebody waits for them. Those of a
//! backfill come next, one for every [`LIVE_IN_A_ROW`] of the others if these never end. A window that
//! is encoded ahead of its turn gets a place that nobody else wants. Within a kind it is first come,
//! first served: a queue that had its turn stands at the end, so queues of a kind take turns.
//!
//! Who is next waits for its memory, and those behind wait with it: a large window is never passed
//! over for ever. Nobody holds one of the two while it waits for the other.

use crate::memory::{Budget, Grant};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Turns of queues that keep up, given in a row while a backfill waits.
const LIVE_IN_A_ROW: u32 = 4;

/// How a window waits for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Its queue keeps up: it closed by age or at a boundary, or is small.
    Live,
    /// It closed because it was full.
    Backfill,
    /// The window before it is still on its way.
    Ahead,
}

#[derive(Debug, Default)]
struct State {
    free: usize,
    tickets: u64,
    live_in_a_row: u32,
    live: VecDeque<u64>,
    backfill: VecDeque<u64>,
    ahead: VecDeque<u64>,
}

impl State {
    fn line(&mut self, kind: Kind) -> &mut VecDeque<u64> {
        match kind {
            Kind::Live => &mut self.live,
            Kind::Backfill => &mut self.backfill,
            Kind::Ahead => &mut self.ahead,
        }
    }

    /// Who gets the next place.
    fn next(&self) -> Option<u64> {
        let (live, backfill) = (self.live.front(), self.backfill.front());
        let first = match self.live_in_a_row < LIVE_IN_A_ROW {
            true => live.or(backfill),
            false => backfill.or(live),
        };
        first.or(self.ahead.front()).copied()
    }
}

#[derive(Debug)]
struct Shared {
    budget: Budget,
    state: Mutex<State>,
}

/// The encoding threads' places. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Turns(Arc<Shared>);

impl Turns {
    /// Places of so many threads, with memory from `budget`.
    pub fn new(threads: usize, budget: Budget) -> Turns {
        let state = State { free: threads, ..State::default() };
        Turns(Arc::new(Shared { budget, state: Mutex::new(state) }))
    }

    /// Waits for a place and for `bytes` of memory, at most the whole budget. Cancel-safe.
    pub async fn take(&self, kind: Kind, bytes: u64) -> Turn {
        let waiting = Waiting::new(self, kind);
        let bytes = bytes.min(self.0.budget.limit());
        loop {
            let changed = self.0.budget.changed();
            tokio::pin!(changed);
            // Listen before looking, or a change between the two is missed.
            changed.as_mut().enable();
            if let Some(memory) = self.try_take(&waiting, bytes) {
                return Turn { _place: Place(self.clone()), memory };
            }
            changed.await;
        }
    }

    fn try_take(&self, waiting: &Waiting<'_>, bytes: u64) -> Option<Grant> {
        let mut state = self.0.state.lock();
        if state.free == 0 || state.next() != Some(waiting.ticket) {
            return None;
        }
        // What is ahead of its turn leaves room for a turn of the same size.
        let spare = if waiting.kind == Kind::Ahead { bytes } else { 0 };
        let mut memory = self.0.budget.sparing(spare);
        if !memory.grow(bytes) {
            return None;
        }
        state.free -= 1;
        state.live_in_a_row = match waiting.kind {
            Kind::Live if !state.backfill.is_empty() => state.live_in_a_row + 1,
            _ => 0,
        };
        Some(memory)
    }
}

/// A place in a line, given up when dropped.
struct Waiting<'a> {
    turns: &'a Turns,
    kind: Kind,
    ticket: u64,
}

impl Waiting<'_> {
    fn new(turns: &Turns, kind: Kind) -> Waiting<'_> {
        let mut state = turns.0.state.lock();
        state.tickets += 1;
        let ticket = state.tickets;
        state.line(kind).push_back(ticket);
        Waiting { turns, kind, ticket }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turns.0.state.lock().line(self.kind).retain(|ticket| *ticket != self.ticket);
        self.turns.0.budget.notify();
    }
}

/// A thread's place; free again when dropped.
#[derive(Debug)]
struct Place(Turns);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.0.state.lock().free += 1;
        self.0.0.budget.notify();
    }
}

/// A place with memory.
#[derive(Debug)]
pub struct Turn {
    _place: Place,
    /// What was asked for.
    pub memory: Grant,
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinHandle, yield_now};

    struct Line {
        turns: Turns,
        order: Arc<Mutex<Vec<&'static str>>>,
        tasks: Vec<JoinHandle<()>>,
    }

    impl Line {
        fn new(threads: usize, budget: u64) -> Line {
            let turns = Turns::new(threads, Budget::new(budget));
            Line { turns, order: Arc::default(), tasks: Vec::new() }
        }

        /// Stands in line; once served, notes its name and leaves.
        async fn stand(&mut self, name: &'static str, kind: Kind, bytes: u64) {
            let (turns, order) = (self.turns.clone(), self.order.clone());
            self.tasks.push(tokio::spawn(async move {
                let turn = turns.take(kind, bytes).await;
                order.lock().push(name);
                yield_now().await;
                drop(turn);
            }));
            yield_now().await;
        }

        async fn served(self) -> Vec<&'static str> {
            for task in self.tasks {
                task.await.unwrap();
            }
            assert_eq!(self.turns.0.budget.used(), 0);
            assert_eq!(self.turns.0.state.lock().free, 1);
            std::mem::take(&mut self.order.lock())
        }
    }

    #[tokio::test]
    async fn a_live_window_waits_for_no_more_than_what_is_being_encoded() {
        let mut line = Line::new(1, 100);
        let busy = line.turns.take(Kind::Backfill, 10).await;
        line.stand("ahead", Kind::Ahead, 10).await;
        line.stand("backfill 1", Kind::Backfill, 10).await;
        line.stand("backfill 2", Kind::Backfill, 10).await;
        line.stand("live", Kind::Live, 10).await;
        drop(busy);
        assert_eq!(line.served().await, ["live", "backfill 1", "backfill 2", "ahead"]);
    }

    #[tokio::test]
    async fn live_windows_without_end_do_not_starve_a_backfill() {
        let mut line = Line::new(1, 100);
        let busy = line.turns.take(Kind::Live, 10).await;
        line.stand("backfill", Kind::Backfill, 10).await;
        for _ in 0..8 {
            line.stand("live", Kind::Live, 10).await;
        }
        drop(busy);
        let served = line.served().await;
        let at = served.iter().position(|name| *name == "backfill");
        assert_eq!(at, Some(LIVE_IN_A_ROW as usize), "{served:?}");
    }

    #[tokio::test]
    async fn the_next_in_line_waits_for_memory_and_is_not_passed_over() {
        let mut line = Line::new(1, 100);
        let mut pieces = line.turns.0.budget.sparing(0);
        assert!(pieces.grow(60));
        line.stand("large", Kind::Backfill, 80).await;
        line.stand("small", Kind::Backfill, 10).await;
        assert!(line.order.lock().is_empty());
        drop(pieces);
        assert_eq!(line.served().await, ["large", "small"]);
    }

    #[tokio::test]
    async fn what_is_encoded_ahead_leaves_memory_for_a_turn() {
        let mut line = Line::new(1, 100);
        let pieces = line.turns.take(Kind::Live, 50).await;
        let Turn { _place: place, memory } = pieces;
        drop(place);
        line.stand("ahead", Kind::Ahead, 30).await;
        assert!(line.order.lock().is_empty(), "30 more would not fit");
        line.stand("live", Kind::Live, 30).await;
        drop(memory);
        assert_eq!(line.served().await, ["live", "ahead"]);
    }

    #[tokio::test]
    async fn who_gives_up_waiting_leaves_the_line() {
        let mut line = Line::new(1, 100);
        let busy = line.turns.take(Kind::Live, 10).await;
        line.stand("gone", Kind::Live, 10).await;
        line.stand("next", Kind::Live, 10).await;
        line.tasks.remove(0).abort();
        yield_now().await;
        drop(busy);
        assert_eq!(line.served().await, ["next"]);
    }
}
