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
//! over for ever. Nobody who has yet to begin holds one of the two while it waits for the other.
//!
//! Who waits for the bucket in the middle of a window gives its place to others and keeps its memory.
//! It goes before all who have yet to begin: those may wait for the memory that it holds, so it waits
//! for nothing but a place.

use crate::memory::{Budget, Grant};
use futures::FutureExt as _;
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
    begun: VecDeque<u64>,
    live: VecDeque<u64>,
    backfill: VecDeque<u64>,
    ahead: VecDeque<u64>,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    /// The first place of a window, with its memory.
    First(Kind),
    /// A place to go on.
    GoingOn,
}

impl State {
    fn line(&mut self, what: For) -> &mut VecDeque<u64> {
        match what {
            For::First(Kind::Live) => &mut self.live,
            For::First(Kind::Backfill) => &mut self.backfill,
            For::First(Kind::Ahead) => &mut self.ahead,
            For::GoingOn => &mut self.begun,
        }
    }

    /// Who gets the next place.
    fn next(&self) -> Option<u64> {
        let (live, backfill) = (self.live.front(), self.backfill.front());
        let first = match self.live_in_a_row < LIVE_IN_A_ROW {
            true => live.or(backfill),
            false => backfill.or(live),
        };
        self.begun.front().or(first).or(self.ahead.front()).copied()
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
        let bytes = bytes.min(self.0.budget.limit());
        let (place, memory) = self.wait(For::First(kind), bytes).await;
        Turn { place: Some(place), turns: self.clone(), memory }
    }

    async fn wait(&self, what: For, bytes: u64) -> (Place, Grant) {
        let waiting = Waiting::new(self, what);
        loop {
            let changed = self.0.budget.changed();
            tokio::pin!(changed);
            // Listen before looking, or a change between the two is missed.
            changed.as_mut().enable();
            if let Some(memory) = self.try_take(&waiting, bytes) {
                return (Place(self.clone()), memory);
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
        let spare = if waiting.what == For::First(Kind::Ahead) { bytes } else { 0 };
        let mut memory = self.0.budget.sparing(spare);
        if !memory.grow(bytes) {
            return None;
        }
        state.free -= 1;
        match waiting.what {
            For::First(Kind::Live) if !state.backfill.is_empty() => state.live_in_a_row += 1,
            For::First(_) => state.live_in_a_row = 0,
            For::GoingOn => {}
        }
        Some(memory)
    }
}

/// A place in a line, given up when dropped.
struct Waiting<'a> {
    turns: &'a Turns,
    what: For,
    ticket: u64,
}

impl Waiting<'_> {
    fn new(turns: &Turns, what: For) -> Waiting<'_> {
        let mut state = turns.0.state.lock();
        state.tickets += 1;
        let ticket = state.tickets;
        state.line(what).push_back(ticket);
        Waiting { turns, what, ticket }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.turns.0.state.lock().line(self.what).retain(|ticket| *ticket != self.ticket);
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
    /// `None` while it is with others.
    place: Option<Place>,
    turns: Turns,
    /// What was asked for.
    pub memory: Grant,
}

impl Turn {
    /// Waits; others may have the place until then. The memory stays. Cancelled, the turn has no place
    /// and is of no use but to be dropped.
    pub async fn aside<T>(&mut self, wait: impl Future<Output = T>) -> T {
        tokio::pin!(wait);
        // Nothing to wait for is no reason to stand in line again.
        if let Some(done) = wait.as_mut().now_or_never() {
            return done;
        }
        self.place = None;
        let done = wait.await;
        let (place, _) = self.turns.wait(For::GoingOn, 0).await;
        self.place = Some(place);
        done
    }
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
        let Turn { place, memory, .. } = line.turns.take(Kind::Live, 50).await;
        drop(place);
        line.stand("ahead", Kind::Ahead, 30).await;
        assert!(line.order.lock().is_empty(), "30 more would not fit");
        line.stand("live", Kind::Live, 30).await;
        drop(memory);
        assert_eq!(line.served().await, ["live", "ahead"]);
    }

    #[tokio::test]
    async fn who_waits_for_the_bucket_lets_others_encode_and_goes_on_before_those_yet_to_begin() {
        let mut line = Line::new(1, 100);
        let mut turn = line.turns.take(Kind::Backfill, 60).await;
        let (uploaded, wait) = tokio::sync::oneshot::channel::<()>();
        let order = line.order.clone();
        line.tasks.push(tokio::spawn(async move {
            turn.aside(wait).await.unwrap();
            order.lock().push("large, again");
        }));
        yield_now().await;
        line.stand("live", Kind::Live, 40).await;
        // It fits only once the large one is done.
        line.stand("next", Kind::Live, 50).await;
        for _ in 0..4 {
            yield_now().await;
        }
        assert_eq!(*line.order.lock(), ["live"]);
        uploaded.send(()).unwrap();
        assert_eq!(line.served().await, ["live", "large, again", "next"]);
    }

    #[tokio::test]
    async fn a_wait_that_is_over_costs_no_place() {
        let mut line = Line::new(1, 100);
        let mut turn = line.turns.take(Kind::Backfill, 10).await;
        line.stand("live", Kind::Live, 10).await;
        turn.aside(async {}).await;
        yield_now().await;
        assert!(line.order.lock().is_empty());
        drop(turn);
        assert_eq!(line.served().await, ["live"]);
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
