//! What happened in a run, in order: its hash tells whether two runs were the same.
//!
//! Owns: the hash, and the lines where a person wants to see them.

use parking_lot::Mutex;
use std::fmt::Write as _;

/// A run's trace.
pub struct Trace {
    state: Mutex<State>,
    shown: bool,
}

struct State {
    hash: u64,
    line: String,
    begun: tokio::time::Instant,
}

impl Trace {
    /// An empty trace; `shown` prints each line.
    pub fn new(shown: bool) -> Trace {
        let begun = tokio::time::Instant::now();
        Trace {
            state: Mutex::new(State { hash: 0xcbf2_9ce4_8422_2325, line: String::new(), begun }),
            shown,
        }
    }

    /// Adds what happened now.
    pub fn note(&self, what: std::fmt::Arguments<'_>) {
        let time = self.state.lock().begun.elapsed();
        self.note_at(time.as_secs_f64(), what);
    }

    /// Adds what happened so many seconds after the begin.
    pub fn note_at(&self, seconds: f64, what: std::fmt::Arguments<'_>) {
        let mut state = self.state.lock();
        let State { hash, line, .. } = &mut *state;
        line.clear();
        let _ = write!(line, "{seconds:>12.3} {what}");
        for byte in line.bytes() {
            *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if self.shown {
            println!("{line}");
        }
    }

    /// The hash of everything so far.
    pub fn hash(&self) -> u64 {
        self.state.lock().hash
    }
}
