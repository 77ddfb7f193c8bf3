//! Starting and stopping the sink.
//!
//! Owns: the sink's runtime and threads, but for those that send (`below`).
//! Leaves to others: what runs on them (`sink_loop`).

use crate::below::{self, Below};
use crate::bucket::Bucket;
use crate::host::Host;
use crate::needs::large_at_once;
use crate::settings::Settings;
use crate::sink_loop::SinkLoop;
use crate::worker::Wish;
use queen_core::TenantId;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{info, warn};

/// A thread that encodes ends after so long without work. The allocator keeps what a thread has freed for
/// that thread, and work goes to the one that has slept longest: threads that stayed would each keep
/// the memory of a window, which no budget counts.
const KEEP_ALIVE: Duration = Duration::from_millis(20);

/// A running sink. Dropped without [`Sink::shutdown`], it works on until the process ends, and its
/// leases expire.
pub struct Sink {
    shared: Arc<SinkLoop>,
    done: watch::Receiver<bool>,
}

impl Sink {
    /// Starts the sink on threads of its own (`queen-s3`). Fails only if they cannot be made: a
    /// bucket that is down does not stop a start.
    pub fn start(
        settings: Settings,
        tenant: TenantId,
        host: Arc<dyn Host>,
        bucket: Arc<dyn Bucket>,
    ) -> std::io::Result<Sink> {
        let sending = below::threads()?;
        let bucket = Arc::new(Below::new(bucket, sending.handle()));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(settings.threads + 8 + large_at_once(settings.memory_bytes))
            .thread_keep_alive(KEEP_ALIVE)
            .thread_name("queen-s3")
            .enable_all()
            .build()?;
        for warning in &settings.warnings {
            warn!("{warning}");
        }
        info!(?settings, "sink starts");
        let shared = Arc::new(SinkLoop::new(settings, tenant, host, bucket));
        let (finished, done) = watch::channel(false);
        let running = shared.clone();
        std::thread::Builder::new().name("queen-s3-main".to_owned()).spawn(move || {
            runtime.block_on(running.run());
            runtime.shutdown_timeout(Duration::from_secs(1));
            sending.shutdown_timeout(Duration::from_secs(1));
            finished.send_replace(true);
        })?;
        Ok(Sink { shared, done })
    }

    /// Drains: windows that are on their way are finished within `grace`, then all leases are given
    /// back, so that the next owner starts at once.
    pub async fn shutdown(&self, grace: Duration) {
        info!("sink drains");
        self.shared.wish(Wish::Drain);
        let mut done = self.done.clone();
        let ended = done.wait_for(|done| *done);
        if tokio::time::timeout(grace.mul_f32(0.8), ended).await.is_err() {
            self.shared.wish(Wish::Leave);
            let ended = done.wait_for(|done| *done);
            let _ = tokio::time::timeout(grace.mul_f32(0.2), ended).await;
        }
        info!("sink stopped");
    }

    /// The `s3` of `/status`.
    pub fn status(&self) -> serde_json::Value {
        self.shared.status(*self.done.borrow())
    }

    /// Whether all queues of this node keep up and the bucket answers, for `/health?sink=true`.
    pub fn healthy(&self) -> Result<(), String> {
        self.shared.healthy()
    }

    /// Appends the sink's metric families.
    pub fn write_metrics(&self, out: &mut String) {
        self.shared.write_metrics(out);
    }
}
