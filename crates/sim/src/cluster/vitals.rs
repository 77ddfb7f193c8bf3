//! Whether a process still lives, between any two of its effects.
//!
//! Owns: the fuse that ends a process at one of its effects. Leaves to others: what an effect is, and
//! taking the process away once it is dead (`node`).
//!
//! An effect is whatever outlives the process or is seen by others: bytes on the network, what the disk
//! holds, an answer to a client. A process whose fuse has burnt runs on until the end of its turn, and has
//! no effect any more: as if it had died there.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// One process.
pub struct Vitals {
    /// Effects that are left to it.
    fuse: AtomicI64,
    /// It died with its machine: nobody closes its connections.
    silent: AtomicBool,
}

impl Vitals {
    /// A process that lives until it is told to die.
    pub fn new() -> Vitals {
        Vitals { fuse: AtomicI64::new(i64::MAX), silent: AtomicBool::new(false) }
    }

    /// Whether it lives.
    pub fn lives(&self) -> bool {
        self.fuse.load(Ordering::Relaxed) > 0
    }

    /// Whether the effect that comes now still happens.
    pub fn effect(&self) -> bool {
        self.fuse.fetch_sub(1, Ordering::Relaxed) > 0
    }

    /// It dies after so many more effects; `silent`: with its machine.
    pub fn die_after(&self, effects: u64, silent: bool) {
        self.silent.store(silent, Ordering::Relaxed);
        self.fuse.store(i64::try_from(effects).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    /// Whether nobody closes its connections.
    pub fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }
}
