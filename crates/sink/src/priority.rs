//! The priority of the threads that read and encode windows.
//!
//! Owns: how far it is below that of the threads that answer clients, and how the system is told.
//! Leaves to others: which threads those are (`host`).
//!
//! A backfill can use a core without an end, and a push that waits for it waits for a whole slice of
//! time. So these threads have a tenth of the weight, and on Linux from 6.12 on a slice so long that
//! whoever wakes beside them runs at once. They keep a share when clients fill all cores: a copy that
//! stood still would be overtaken by retention. Threads that send, and renew leases, stay as they are.

use std::cell::Cell;

/// Steps below the process; each is a weight 1.25 times smaller.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;
/// Longest slice that the system gives, ns.
#[cfg(target_os = "linux")]
const SLICE_NS: u64 = 100_000_000;

thread_local! {
    static LOWERED: Cell<bool> = const { Cell::new(false) };
}

/// Lowers the thread that calls, for good: an unprivileged process may not raise it again.
pub fn lower() {
    if !LOWERED.replace(true)
        && let Err(err) = set()
    {
        tracing::debug!(%err, "the priority of an encoding thread stays as it is");
    }
}

#[cfg(target_os = "linux")]
fn set() -> std::io::Result<()> {
    // The process may have been started at a lower priority than most.
    // SAFETY: takes two numbers; 0 is this thread.
    let now = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER.cast_unsigned(),
        sched_flags: 0,
        sched_nice: (now + NICE).min(19),
        sched_priority: 0,
        sched_runtime: SLICE_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure lives through the call, which only reads it and says how long it is.
    let failed = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Elsewhere a priority is one of the whole process.
#[cfg(not(target_os = "linux"))]
fn set() -> std::io::Result<()> {
    Ok(())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::NICE;
    use crate::host::blocking;
    use crate::testing::Log;

    fn nice() -> i32 {
        // SAFETY: takes two numbers; 0 is this thread.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[tokio::test]
    async fn what_encodes_runs_below_what_answers() {
        let host = Log::default();
        let before = nice();
        for _ in 0..2 {
            assert_eq!(blocking(&host, nice).await, (before + NICE).min(19), "once, not twice");
        }
        assert_eq!(nice(), before, "the thread that waits stays as it is");
    }
}
