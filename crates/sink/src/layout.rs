//! Names of objects in the bucket.
//!
//! Owns: keys as a function of (prefix, tenant, queue, layout, align, window, ext), and the parts of
//! a key that are escaped.
//! Leaves to others: what an object holds (`encode`, `manifest`).

/// How a window is spread over objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One object per window.
    Merged,
    /// One object per window and partition.
    PerPartition,
}

/// The boundary that no window crosses, and the depth of folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Align {
    /// `dt=` and `hour=`.
    Hour,
    /// `dt=` only.
    Day,
    /// `dt=` and `hour=` of the window's start; a window may pass both.
    None,
}
