//! The allocator of the process, and how soon it gives memory back.
//!
//! Owns: which allocator it is and its settings. Leaves to others: bounds on what is allocated (`admission`
//! of the broker, the sink's budget).
//!
//! By itself it gives freed pages back to the system after a second. The sink fills and frees its budget
//! several times in that time, and each time on other threads: memory that is free and not given back
//! counts for whoever watches the process, and is what a container is killed for.

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of mimalloc's header, ms.
const PURGE_DELAY: c_int = 15;
/// What it is set to, ms.
const PURGE_AFTER_MS: c_long = 100;

/// Sets it up, before the first thread is made. `MIMALLOC_PURGE_DELAY` in the environment wins.
pub fn set_up() {
    if std::env::var_os("MIMALLOC_PURGE_DELAY").is_none() {
        // SAFETY: takes two numbers; an option that is not there is ignored.
        unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, PURGE_AFTER_MS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_delay_that_mimalloc_documents() {
        // SAFETY: takes a number.
        let now = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        assert_eq!(now(), 1000, "another number, or another default: look at mimalloc.h");
        set_up();
        assert_eq!(now(), PURGE_AFTER_MS);
    }
}
