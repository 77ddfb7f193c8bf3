//! Chance that the runtime and the standard library draw by themselves, under a seed.
//!
//! Owns: what `getrandom` gives on the thread of a run: the order of hash maps, and the first branch that
//! `select!` looks at, follow from the run's seed. On all other threads it is the system's. The standard
//! library refers to the function weakly so that a program may put its own in its place.
//! Leaves to others: what a run draws itself (`crate::chance`).

use crate::chance::Chance;
use std::cell::Cell;
use std::ffi::{c_uint, c_void};

thread_local! {
    /// Where the thread's numbers come from; `None`: the system.
    static SEED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Runs `work` on a thread of its own, whose chance follows from `seed`.
///
/// A thread of its own, since the standard library draws the keys of its hash maps once per thread.
pub fn seeded<T: Send>(seed: u64, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let run = scope.spawn(move || {
            SEED.set(Some(seed));
            let done = work();
            SEED.set(None);
            done
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Whether this is the thread of a run.
pub fn is_seeded() -> bool {
    SEED.try_with(Cell::get).is_ok_and(|seed| seed.is_some())
}

/// In the place of libc's.
///
/// # Safety
///
/// As libc's: `into` must have room for `length` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn getrandom(into: *mut c_void, length: usize, flags: c_uint) -> isize {
    let Ok(Some(seed)) = SEED.try_with(Cell::get) else {
        // SAFETY: the caller's promise is the system call's own.
        return unsafe { libc::syscall(libc::SYS_getrandom, into, length, flags) as isize };
    };
    // SAFETY: the caller vouches for the room.
    let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
    let mut chance = Chance::new(seed);
    into.iter_mut().for_each(|byte| *byte = chance.draw() as u8);
    SEED.set(Some(chance.draw()));
    length as isize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::{BuildHasher as _, RandomState};

    #[test]
    fn a_seed_fixes_what_the_standard_library_draws() {
        let drawn = || RandomState::new().hash_one(1);
        assert_eq!(seeded(5, drawn), seeded(5, drawn));
        assert_ne!(seeded(5, drawn), seeded(6, drawn));
        assert_ne!(drawn(), std::thread::spawn(drawn).join().unwrap());
    }
}
