//! Sizes and times of the store.
//!
//! Owns: the defaults and their check. Leaves to others: reading them from the environment.

use std::time::Duration;

/// Sizes and times; the defaults suit a small machine.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Dirty rows held in memory before a checkpoint is begun. Bytes, at least 64 KiB; 32 MiB.
    ///
    /// Apply waits when twice as many are dirty while a checkpoint still runs.
    pub overlay_bytes: usize,
    /// Longest time between a change and the begin of the checkpoint that holds it; 30 s.
    pub checkpoint_every: Duration,
    /// Clean rows held in memory. Bytes; 16 MiB.
    pub row_cache_bytes: usize,
    /// Blocks of the tables held in memory. Bytes; 8 MiB.
    pub block_cache_bytes: u64,
    /// Queue log files held open, at least 8; 512.
    pub open_files: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            overlay_bytes: 32 << 20,
            checkpoint_every: Duration::from_secs(30),
            row_cache_bytes: 16 << 20,
            block_cache_bytes: 8 << 20,
            open_files: 512,
        }
    }
}
