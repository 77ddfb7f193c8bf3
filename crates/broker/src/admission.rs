//! What may come in: bounded bytes in flight, a share for settling work, the disk's high mark.
//!
//! Owns: the classes of work and their bounds. Leaves to others: the answer's HTTP form.

/// Kind of work, which decides what it may take from the bytes in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Adds data: refused first, and refused while the disk is above its high mark.
    Write,
    /// Settles, claims, deletes or configures: has a share that writes cannot take, and goes on
    /// while the disk is above its high mark.
    Settle,
}
