//! What this node did, minute by minute, for the status and analytics pages.
//!
//! Owns: the minutes of the last day, in memory: they begin anew with each start. Leaves to others: the
//! counts (`counters`), what the operating system says (`process`), their JSON (`queen-http`).

use crate::broker::Broker;
use crate::process;
use parking_lot::Mutex;
use queen_core::Stamp;
use std::collections::VecDeque;
use std::time::Duration;

/// Minutes kept.
const MINUTES_KEPT: usize = 24 * 60;
const MINUTE: u64 = 60_000_000;
/// How often the running minute is looked at: as far as a minute's end can be late.
const EVERY: Duration = Duration::from_secs(1);

/// Counts since the start, or of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Push requests.
    pub push_requests: u64,
    /// Messages pushed.
    pub push_messages: u64,
    /// Pops, empty ones included.
    pub pop_requests: u64,
    /// Messages delivered.
    pub pop_messages: u64,
    /// Ack requests.
    pub ack_requests: u64,
    /// Items of them.
    pub ack_messages: u64,
    /// Transactions that were applied.
    pub transactions: u64,
    /// Commands refused with 429.
    pub overloaded: u64,
    /// Commands refused with 507.
    pub storage_full: u64,
    /// Requests whose deadline passed.
    pub timeouts: u64,
    /// Processor time of the process, microseconds.
    pub cpu_micros: u64,
}

impl Figures {
    /// These and those together.
    pub fn plus(&self, other: &Figures) -> Figures {
        self.each(other, u64::saturating_add)
    }

    fn since(&self, before: &Figures) -> Figures {
        self.each(before, u64::saturating_sub)
    }

    fn each(&self, other: &Figures, op: fn(u64, u64) -> u64) -> Figures {
        Figures {
            push_requests: op(self.push_requests, other.push_requests),
            push_messages: op(self.push_messages, other.push_messages),
            pop_requests: op(self.pop_requests, other.pop_requests),
            pop_messages: op(self.pop_messages, other.pop_messages),
            ack_requests: op(self.ack_requests, other.ack_requests),
            ack_messages: op(self.ack_messages, other.ack_messages),
            transactions: op(self.transactions, other.transactions),
            overloaded: op(self.overloaded, other.overloaded),
            storage_full: op(self.storage_full, other.storage_full),
            timeouts: op(self.timeouts, other.timeouts),
            cpu_micros: op(self.cpu_micros, other.cpu_micros),
        }
    }
}

/// What is so at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Pops that wait.
    pub parked: usize,
    /// Commands proposed and not applied.
    pub waiting: usize,
    /// Resident memory of the process, bytes; 0 where the system does not tell.
    pub resident_bytes: u64,
}

/// A minute, or the part of one that the node ran.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Minute {
    /// When it began.
    pub start: Stamp,
    /// When it ended; of the running one: now.
    pub end: Stamp,
    /// What was done in it.
    pub figures: Figures,
    /// How it was at its end.
    pub gauges: Gauges,
}

/// The minutes of the last day.
#[derive(Default)]
pub(crate) struct History(Mutex<Ring>);

#[derive(Default)]
struct Ring {
    done: VecDeque<Minute>,
    /// The running minute, its figures those since the start of the process.
    running: Option<(Minute, Figures)>,
}

impl Ring {
    /// Takes note of the figures since the start of the process.
    fn look(&mut self, now: Stamp, total: Figures, gauges: Gauges) {
        let (minute, before) =
            self.running.get_or_insert((Minute { start: now, ..Minute::default() }, total));
        if minute.start.0 / MINUTE < now.0 / MINUTE {
            if self.done.len() == MINUTES_KEPT {
                self.done.pop_front();
            }
            let figures = total.since(before);
            self.done.push_back(Minute { start: minute.start, end: now, figures, gauges });
            (*minute, *before) = (Minute { start: now, ..Minute::default() }, total);
        }
        *minute = Minute { start: minute.start, end: now, figures: total.since(before), gauges };
    }

    fn between(&self, from: Stamp, to: Stamp) -> Vec<Minute> {
        let running = self.running.iter().map(|(minute, _)| minute);
        let all = self.done.iter().chain(running);
        all.filter(|minute| minute.end > from && minute.start < to).copied().collect()
    }
}

impl Broker {
    /// The minutes that lie in a time, oldest first, the running one included.
    pub fn history(&self, from: Stamp, to: Stamp) -> Vec<Minute> {
        self.look_at_figures();
        self.shared.history.0.lock().between(from, to)
    }

    fn look_at_figures(&self) {
        let (counters, standing) = (self.counters(), self.standing());
        let total = Figures {
            push_requests: counters.push_requests.get(),
            push_messages: counters.push_messages.get(),
            pop_requests: counters.pop_requests.get(),
            pop_messages: counters.pop_messages.get(),
            ack_requests: counters.ack_requests.get(),
            ack_messages: counters.ack_messages.get(),
            transactions: counters.transactions_committed.get(),
            overloaded: counters.refused_overloaded.get(),
            storage_full: counters.refused_full.get(),
            timeouts: counters.timeouts.get(),
            cpu_micros: process::cpu_seconds().map_or(0, |seconds| (seconds * 1e6) as u64),
        };
        let gauges = Gauges {
            parked: standing.parked,
            waiting: standing.waiting,
            resident_bytes: process::resident_bytes().unwrap_or(0),
        };
        self.shared.history.0.lock().look(self.now(), total, gauges);
    }
}

/// Runs until the broker stops.
pub(crate) async fn run(broker: Broker) {
    let mut stop = broker.shared.stop.subscribe();
    loop {
        broker.look_at_figures();
        tokio::select! {
            () = tokio::time::sleep(EVERY) => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(push_messages: u64) -> Figures {
        Figures { push_messages, ..Figures::default() }
    }

    fn counts(minutes: &[Minute]) -> Vec<(u64, u64)> {
        minutes.iter().map(|m| (m.start.0 / MINUTE, m.figures.push_messages)).collect()
    }

    #[test]
    fn each_minute_has_what_was_done_in_it_and_the_running_one_what_was_so_far() {
        let mut ring = Ring::default();
        let gauges = Gauges::default();
        let at = |minute: u64, second: u64| Stamp(minute * MINUTE + second * 1_000_000);
        // What was done before the first look is in no minute.
        ring.look(at(5, 30), pushed(100), gauges);
        ring.look(at(5, 50), pushed(103), gauges);
        ring.look(at(6, 0), pushed(107), gauges);
        ring.look(at(6, 59), pushed(109), gauges);
        assert_eq!(counts(&ring.between(Stamp::ZERO, Stamp::MAX)), [(5, 7), (6, 2)]);
        // Nobody looked for two minutes: they are of the one that ran.
        ring.look(at(9, 1), pushed(110), gauges);
        ring.look(at(9, 2), pushed(110), Gauges { parked: 4, ..gauges });
        let all = ring.between(Stamp::ZERO, Stamp::MAX);
        assert_eq!(counts(&all), [(5, 7), (6, 3), (9, 0)]);
        assert_eq!((all[2].gauges.parked, all[2].end), (4, at(9, 2)));
        assert_eq!(counts(&ring.between(at(6, 30), at(8, 0))), [(6, 3)]);
    }

    #[test]
    fn a_day_is_kept() {
        let mut ring = Ring::default();
        for minute in 0..MINUTES_KEPT as u64 + 50 {
            ring.look(Stamp(minute * MINUTE), pushed(minute), Gauges::default());
        }
        assert_eq!(ring.done.len(), MINUTES_KEPT);
        assert_eq!(ring.done[0].start, Stamp(49 * MINUTE));
    }
}
