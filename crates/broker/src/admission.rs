//! What may come in: bounded bytes in flight, a share for settling work, the disk's high mark.
//!
//! Owns: the classes of work and their bounds. Leaves to others: the answer's HTTP form, asking the
//! system how full the disk is (`disk`).
//! Upholds: `memory-bounded`.

use crate::counters::Counters;
use queen_core::{Code, Error};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Kind of work, which decides what it may take from the bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Adds data: refused first, and refused while the disk is above its high mark.
    Write,
    /// Settles, claims, deletes or configures: has a share that writes cannot take, and goes on
    /// while the disk is above its high mark.
    Settle,
}

/// The bytes in flight and their bounds.
pub(crate) struct Admission {
    writes: Arc<AtomicUsize>,
    settles: Arc<AtomicUsize>,
    write_bytes_max: usize,
    settle_bytes_max: usize,
    storage_full: AtomicBool,
    closed: AtomicBool,
}

/// Bytes taken; given back when dropped.
pub(crate) struct Permit {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(write_bytes_max: usize, settle_bytes_max: usize) -> Admission {
        Admission {
            writes: Arc::default(),
            settles: Arc::default(),
            write_bytes_max,
            settle_bytes_max,
            storage_full: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        }
    }

    /// Takes bytes, or says why not. One command larger than the bound is let in alone.
    pub(crate) fn admit(
        &self,
        class: Class,
        bytes: usize,
        counters: &Counters,
    ) -> Result<Permit, Error> {
        if self.closed.load(Ordering::Relaxed) {
            return Err(Error::new(Code::Retry, "this node is stopping"));
        }
        if class == Class::Write && self.storage_full() {
            counters.refused_full.add(1);
            let text = "the data disk is full or above its high mark (QUEEN_RAFT_DISK_HIGH_PCT): free space, \
                        or consume and delete";
            return Err(Error::new(Code::StorageFull, text));
        }
        let (of, max) = match class {
            Class::Write => (&self.writes, self.write_bytes_max),
            Class::Settle => (&self.settles, self.settle_bytes_max),
        };
        let before = of.fetch_add(bytes, Ordering::Relaxed);
        let permit = Permit { of: Arc::clone(of), bytes };
        if before != 0 && before + bytes > max {
            counters.refused_overloaded.add(1);
            let text = format!("{before} bytes are in flight, try again in a second");
            return Err(Error::new(Code::Overloaded, text));
        }
        counters.admitted.add(1);
        Ok(permit)
    }

    /// Whether writes are refused for want of space.
    pub(crate) fn storage_full(&self) -> bool {
        self.storage_full.load(Ordering::Relaxed)
    }

    /// Sets it; gives what it was.
    pub(crate) fn set_storage_full(&self, full: bool) -> bool {
        self.storage_full.swap(full, Ordering::Relaxed)
    }

    /// Nothing is let in any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Bytes of commands that are not applied yet.
    pub(crate) fn in_flight(&self) -> usize {
        self.writes.load(Ordering::Relaxed) + self.settles.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_refused_first_and_settling_goes_on() {
        let (admission, counters) = (Admission::new(100, 50), Counters::default());
        let admit = |class, bytes| admission.admit(class, bytes, &counters).map_err(|e| e.code);
        let first = admit(Class::Write, 400).unwrap();
        assert_eq!(admit(Class::Write, 1).err(), Some(Code::Overloaded));
        let settle = admit(Class::Settle, 50).unwrap();
        assert_eq!(admit(Class::Settle, 1).err(), Some(Code::Overloaded));
        assert_eq!(admission.in_flight(), 450);
        drop((first, settle));
        assert_eq!(admission.in_flight(), 0);
        drop(admit(Class::Write, 100).unwrap());
        admission.set_storage_full(true);
        assert_eq!(admit(Class::Write, 1).err(), Some(Code::StorageFull));
        drop(admit(Class::Settle, 1).unwrap());
        admission.close();
        assert_eq!(admit(Class::Settle, 1).err(), Some(Code::Retry));
    }
}
