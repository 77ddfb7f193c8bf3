//! The log clock: what time it is for the rules.
//!
//! Owns: how the clock runs on a node that leads and on one that does not, and the only look at the
//! machine's wall clock. Leaves to others: giving a stamp to a command (`proposer`), telling the
//! others (`peers`).
//! Upholds: `stamps-rise` on the way in.
//!
//! Leases, delays and windows are measured in stamps, so the clock must pass as time passes: it runs
//! with the machine's monotonic clock and is only drawn towards the wall clock. Otherwise a wall clock
//! that leaps ahead would end every lease, and one that leaps back would stop time until it is where it
//! was. A node that comes to lead goes on from the leader's clock as it last heard it, whatever its own
//! wall clock says; one that has heard nothing since it began asks the others first (`peers`).

use queen_core::Stamp;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tracing::{info, warn};

/// The clock runs faster or slower than time by at most one part in so many. Where it is drawn, the others
/// lag by so much of the time since they last heard it, which is a few seconds when a link is bad: a new
/// leader must not end by that what the one before gave.
const PULL: i64 = 50;
/// Between two draws; well above what one part of it rounds to.
const DRAW: Duration = Duration::from_millis(1);
/// Longest time that the wall clock draws at once: after more the process stood still, and another node
/// may have led meanwhile, whose clock nothing drew here.
const DRAWS_MOST: Duration = Duration::from_secs(1);
/// A wall clock that is ahead by more was wrong before, or the machine slept: it is taken at once.
const AT_ONCE: Duration = Duration::from_secs(3600);
/// An answer that took longer does not say well enough what time it is, if nothing was known.
pub(crate) const PROMPT: Duration = Duration::from_millis(250);
/// A difference that an operator is told.
const ASTRAY: Duration = Duration::from_secs(10);

/// A moment, by both clocks of this machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Microseconds since 1970, as the machine was told.
    wall: u64,
    /// The monotonic clock.
    instant: Instant,
}

impl Moment {
    /// Now.
    pub(crate) fn now() -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
        Moment { wall, instant: Instant::now() }
    }
}

/// The log clock of a node.
#[derive(Debug)]
pub(crate) struct LogClock {
    /// The last stamp that was given or applied here.
    last: Stamp,
    /// What the clock said at `as_of`.
    then: u64,
    as_of: Instant,
    /// When the wall clock drew it last.
    drawn: Instant,
    /// This node leads: its wall clock draws.
    leads: bool,
    /// What the clock says was heard, or is what this node began to lead with.
    known: bool,
    /// The operator was told of a difference.
    astray: bool,
}

impl LogClock {
    /// A clock that begins with the wall clock.
    pub(crate) fn new(now: Moment) -> LogClock {
        let Moment { wall: then, instant: as_of } = now;
        let last = Stamp::ZERO;
        LogClock { last, then, as_of, drawn: as_of, leads: false, known: false, astray: false }
    }

    /// The time: later than every stamp that was given or applied here.
    pub(crate) fn read(&mut self, now: Moment) -> Stamp {
        let passed = micros(now.instant.saturating_duration_since(self.as_of));
        self.then += passed;
        // By whole microseconds: what is left counts at the next look.
        self.as_of += Duration::from_micros(passed);
        let passed = now.instant.saturating_duration_since(self.drawn);
        if self.leads && (passed >= DRAW || on_wall_clock()) {
            self.draw(now.wall, micros(passed.min(DRAWS_MOST)));
            self.drawn = now.instant;
        }
        Stamp(self.then.max(self.last.0 + 1))
    }

    /// A stamp that follows every one before.
    pub(crate) fn stamp(&mut self, now: Moment) -> Stamp {
        self.last = self.read(now);
        self.last
    }

    /// This stamp was applied, or lies in the store: the clock is not behind it.
    pub(crate) fn applied(&mut self, stamp: Stamp, now: Moment) {
        self.read(now);
        self.last = self.last.max(stamp);
        self.then = self.then.max(stamp.0);
    }

    /// What another node, asked at `asked`, says the clock is. It was that at some moment since, so
    /// what is known already moves only as far as it must. It may be behind that of the leader before,
    /// but not behind what was applied: a node that answers and leads no more can be. A late answer to a
    /// node that leads itself says nothing.
    pub(crate) fn heard(&mut self, stamp: Stamp, asked: Instant, now: Moment) {
        if self.leads {
            return;
        }
        self.read(now);
        let took = now.instant.saturating_duration_since(asked);
        let latest = if self.known { stamp.0.saturating_add(micros(took)) } else { stamp.0 };
        self.then = self.then.clamp(stamp.0, latest).max(self.last.0);
        self.known |= took < PROMPT;
    }

    /// Whether this is the clock of the log, and not only what this machine was told.
    pub(crate) fn known(&self) -> bool {
        self.known
    }

    /// This node leads, or does not.
    pub(crate) fn leads(&mut self, leads: bool, now: Moment) {
        self.read(now);
        (self.leads, self.drawn) = (leads, now.instant);
        self.known |= leads;
    }

    /// Draws the clock towards the wall clock, `passed` microseconds after the last time.
    fn draw(&mut self, wall: u64, passed: u64) {
        let off = wall as i64 - self.then as i64;
        self.tell(off);
        if on_wall_clock() || off > micros(AT_ONCE) as i64 {
            self.then = wall;
        } else {
            let most = passed as i64 / PULL;
            self.then = self.then.saturating_add_signed(off.clamp(-most, most));
        }
    }

    fn tell(&mut self, off: i64) {
        let astray = off.unsigned_abs() > micros(ASTRAY);
        if astray == self.astray {
            return;
        }
        self.astray = astray;
        let ahead_seconds = off / 1_000_000;
        if !astray {
            info!("the log clock and this machine's clock agree again");
        } else if off > micros(AT_ONCE) as i64 {
            warn!(
                ahead_seconds,
                "the log clock is set to this machine's clock, which is far ahead"
            );
        } else {
            warn!(
                ahead_seconds,
                "this machine's clock is not where the log clock is: was it set? the log clock \
                 follows by a second in fifty, so that leases keep their length"
            );
        }
    }
}

#[cfg(not(feature = "planted-bugs"))]
fn on_wall_clock() -> bool {
    false
}

/// A leap of the wall clock is one of the log clock.
#[cfg(feature = "planted-bugs")]
fn on_wall_clock() -> bool {
    queen_raft::planted("lease-on-wall-clock")
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOON: u64 = 1_700_000_000 * SECOND;

    /// A machine whose clocks a test moves.
    struct Machine(Moment);

    impl Machine {
        fn new() -> Machine {
            Machine(Moment { wall: NOON, instant: Instant::now() })
        }

        /// Time passes, on both clocks.
        fn pass(&mut self, seconds: u64) -> Moment {
            self.0.instant += Duration::from_secs(seconds);
            self.0.wall += seconds * SECOND;
            self.0
        }

        /// The wall clock is set.
        fn set(&mut self, by: i64) -> Moment {
            self.0.wall = self.0.wall.saturating_add_signed(by * SECOND as i64);
            self.0
        }
    }

    /// Time passes, and the clock is looked at each second.
    fn run(clock: &mut LogClock, machine: &mut Machine, seconds: u64) -> u64 {
        for _ in 0..seconds {
            clock.read(machine.pass(1));
        }
        clock.read(machine.0).0
    }

    fn leading(machine: &Machine) -> LogClock {
        let mut clock = LogClock::new(machine.0);
        clock.leads(true, machine.0);
        clock
    }

    #[test]
    fn a_wall_clock_that_is_right_is_the_log_clock() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        for _ in 0..100 {
            let now = machine.pass(7);
            assert_eq!(clock.read(now), Stamp(now.wall));
        }
    }

    #[test]
    fn looking_often_does_not_slow_the_clock() {
        let machine = Machine::new();
        let mut clock = LogClock::new(machine.0);
        let mut now = machine.0;
        for _ in 0..10_000 {
            now.instant += Duration::from_nanos(300);
            clock.read(now);
        }
        assert_eq!(clock.read(now), Stamp(NOON + 3000));
    }

    #[test]
    fn a_leap_ahead_ends_nothing_early_and_is_made_up_for_slowly() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        machine.set(300);
        assert_eq!(clock.read(machine.0).0, NOON, "no time has passed");
        assert_eq!(run(&mut clock, &mut machine, 50), NOON + 51 * SECOND);
        assert_eq!(run(&mut clock, &mut machine, 15_000), machine.0.wall);
    }

    #[test]
    fn a_leap_back_does_not_stop_time() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        machine.set(-300);
        let before = clock.read(machine.0).0;
        assert_eq!(run(&mut clock, &mut machine, 50), before + 49 * SECOND);
    }

    #[test]
    fn a_leader_that_stood_still_is_not_drawn_for_that_time() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        machine.set(300);
        let after = clock.read(machine.pass(8)).0;
        assert_eq!(after, NOON + 8 * SECOND + SECOND / 50, "as the next leader's ran, nearly");
    }

    #[test]
    fn a_clock_that_strobes_moves_the_log_clock_by_a_fiftieth_at_most() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        let begin = clock.read(machine.0).0;
        for second in 1..=60 {
            machine.set(if second % 2 == 0 { 300 } else { -300 });
            let now = clock.read(machine.pass(1)).0 - begin;
            let time = second * SECOND;
            assert!((time - time / 50..=time + time / 50).contains(&now), "{second}: {now}");
        }
    }

    #[test]
    fn a_clock_that_was_never_set_is_not_followed_for_years() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        machine.set(2 * 3600);
        let now = machine.pass(1);
        assert_eq!(clock.read(now), Stamp(now.wall));
    }

    #[test]
    fn a_node_that_comes_to_lead_goes_on_from_what_it_heard() {
        let mut machine = Machine::new();
        machine.set(300);
        let mut clock = LogClock::new(machine.0);
        clock.heard(Stamp(NOON), machine.0.instant, machine.0);
        assert_eq!(clock.read(machine.pass(2)).0, NOON + 2 * SECOND, "it follows");
        clock.leads(true, machine.0);
        assert_eq!(run(&mut clock, &mut machine, 50), NOON + 53 * SECOND, "it leads");
        clock.heard(Stamp(NOON), machine.0.instant, machine.0);
        assert_eq!(clock.read(machine.0).0, NOON + 53 * SECOND, "an answer that comes late");
        clock.leads(false, machine.0);
        clock.heard(Stamp(NOON), machine.0.instant, machine.0);
        assert_eq!(clock.read(machine.pass(1)).0, NOON + SECOND, "another leads, and is behind");
    }

    #[test]
    fn an_answer_that_was_long_on_its_way_moves_a_known_clock_only_as_far_as_it_must() {
        let mut machine = Machine::new();
        let mut clock = LogClock::new(machine.0);
        let asked = machine.0.instant;
        clock.heard(Stamp(NOON - 900 * SECOND), asked, machine.pass(1));
        assert!(!clock.known(), "it was that at some moment of a second");
        let asked = machine.0.instant;
        clock.heard(Stamp(NOON), asked, machine.0);
        assert!(clock.known());
        // The process stood still for six seconds with the answer at hand.
        let asked = machine.0.instant;
        clock.heard(Stamp(NOON), asked, machine.pass(6));
        assert_eq!(clock.read(machine.0), Stamp(NOON + 6 * SECOND));
        let asked = machine.0.instant;
        clock.heard(Stamp(NOON + 8 * SECOND), asked, machine.pass(1));
        assert_eq!(clock.read(machine.0), Stamp(NOON + 8 * SECOND), "it was behind");
        let asked = machine.0.instant;
        clock.heard(Stamp(NOON + 3 * SECOND), asked, machine.pass(1));
        assert_eq!(clock.read(machine.0), Stamp(NOON + 4 * SECOND), "it was ahead");
    }

    #[test]
    fn stamps_rise_whatever_the_clocks_do() {
        let mut machine = Machine::new();
        let mut clock = leading(&machine);
        let mut last = clock.stamp(machine.0);
        for _ in 0..3 {
            let next = clock.stamp(machine.0);
            assert!(next > last);
            last = next;
        }
        let ahead = Stamp(NOON + 3600 * SECOND);
        clock.applied(ahead, machine.0);
        assert!(clock.stamp(machine.0) > ahead);
        clock.leads(false, machine.0);
        clock.heard(Stamp(NOON), machine.0.instant, machine.0);
        clock.leads(true, machine.0);
        let before = clock.read(machine.0).0;
        assert!(clock.read(machine.pass(20)).0 - before >= 18 * SECOND, "and time goes on");
    }
}
