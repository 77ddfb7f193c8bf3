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
    /// Bytes written to the queue logs before a checkpoint is begun; 256 MiB.
    ///
    /// What a start after a crash has to replay grows with it.
    pub checkpoint_log_bytes: u64,
    /// Longest time between a change and the begin of the checkpoint that holds it; 30 s.
    pub checkpoint_every: Duration,
    /// Clean rows held in memory. Bytes; 16 MiB.
    pub row_cache_bytes: usize,
    /// Blocks of the tables held in memory. Bytes; 32 MiB.
    pub block_cache_bytes: u64,
    /// Queue log files held open, at least 8; 512.
    pub open_files: usize,
    /// No other node has these messages: what is damaged of them cannot come back, so the rules do
    /// without it where they look at one. Otherwise apply ends there; no.
    pub only_copy: bool,
    /// In what time the sealed segments are read once from end to end; 24 h.
    pub scrub_every: Duration,
    /// Bytes of them read a second at most, even if that takes longer; 4 MiB.
    pub scrub_bytes_per_second: u64,
    /// How often it is looked whether they are there; 60 s.
    pub look_every: Duration,
    /// Called between the steps of a checkpoint.
    #[cfg(test)]
    pub(crate) at_step: Option<AtStep>,
}

#[cfg(test)]
#[derive(Clone)]
pub(crate) struct AtStep(pub(crate) std::sync::Arc<dyn Fn(crate::checkpoint::Step) + Send + Sync>);

#[cfg(test)]
impl std::fmt::Debug for AtStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AtStep")
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            overlay_bytes: 32 << 20,
            checkpoint_log_bytes: 256 << 20,
            checkpoint_every: Duration::from_secs(30),
            row_cache_bytes: 16 << 20,
            block_cache_bytes: 32 << 20,
            open_files: 512,
            only_copy: false,
            scrub_every: Duration::from_secs(24 * 3600),
            scrub_bytes_per_second: 4 << 20,
            look_every: Duration::from_secs(60),
            #[cfg(test)]
            at_step: None,
        }
    }
}
