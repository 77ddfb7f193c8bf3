//! What every queue's worker shares, and why a worker stops.
//!
//! Owns: [`Context`], [`Stop`], and the lines that workers write on the status board.
//! Leaves to others: the loop (`worker`), starting and stopping (`sink`).

use crate::bucket::{Bucket, BucketError};
use crate::host::{Host, HostError};
use crate::lease::Fenced;
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::object::Sender;
use crate::plan::CloseRule;
use crate::read::ReadError;
use crate::retry::Limiter;
use crate::settings::{CrashPoint, Settings};
use crate::status::{Board, BucketStatus, LastError};
use crate::turns::Turns;
use crate::upload::UploadError;
use parking_lot::Mutex;
use queen_core::sink::{Committed, Manifest};
use queen_core::{Stamp, TenantId};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::Semaphore;
use tracing::{info, warn};

/// What every worker of a sink shares.
pub struct Context {
    /// Settings.
    pub settings: Settings,
    /// Tenant.
    pub tenant: TenantId,
    /// The broker.
    pub host: Arc<dyn Host>,
    /// The bucket.
    pub bucket: Arc<dyn Bucket>,
    /// Pauses of the bucket.
    pub limiter: Limiter,
    /// Memory of windows in work.
    pub budget: Budget,
    /// Memory for what is remembered of windows that fill.
    pub filling: Budget,
    /// Places to look at a page of headers.
    pub pages: Semaphore,
    /// The encoding threads.
    pub turns: Turns,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Lines of `/status`.
    pub board: Board,
    /// The bucket's line.
    pub bucket_status: Arc<Mutex<BucketStatus>>,
}

/// Why work on a queue ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Another node owns the queue.
    Fenced,
    /// The sink stops, or gives the queue away.
    Drained,
    /// Another node should have the queue.
    GivenBack,
    /// The queue does not exist.
    Missing,
    /// The bucket is ahead of the broker.
    Diverged(String),
    /// A payload cannot be opened.
    Undecryptable(String),
    /// Anything else that a pause may or may not mend; tried again each minute.
    Failed(String),
}

impl Stop {
    /// [`Stop::Failed`] with this text.
    pub fn failed(text: impl Into<String>) -> Stop {
        Stop::Failed(text.into())
    }

    /// The state shown, and its text.
    pub fn shown(&self) -> (&'static str, Option<&str>) {
        match self {
            Stop::Fenced => ("fenced", None),
            Stop::Drained | Stop::GivenBack => ("drained", None),
            Stop::Missing => ("missing", Some("the queue does not exist")),
            Stop::Diverged(text) => ("diverged", Some(text)),
            Stop::Undecryptable(text) => ("undecryptable", Some(text)),
            Stop::Failed(text) => ("failed", Some(text)),
        }
    }
}

impl From<Fenced> for Stop {
    fn from(_: Fenced) -> Stop {
        Stop::Fenced
    }
}

impl From<HostError> for Stop {
    fn from(err: HostError) -> Stop {
        match err {
            HostError::Gone(_) => Stop::Missing,
            err => Stop::Failed(err.to_string()),
        }
    }
}

impl From<UploadError> for Stop {
    fn from(err: UploadError) -> Stop {
        match err {
            UploadError::Committed => Stop::Fenced,
            UploadError::Fenced(_) => Stop::Fenced,
            UploadError::Read(ReadError::Sealed { .. }) => Stop::Undecryptable(err.to_string()),
            // A pinned window is never gone; if it is, that is for a person to see.
            err => Stop::Failed(err.to_string()),
        }
    }
}

impl Context {
    /// When windows close.
    pub fn rule(&self) -> CloseRule {
        CloseRule {
            target_bytes: self.settings.target_bytes,
            max_window_us: self.settings.max_window.as_micros() as u64,
            align: self.settings.align,
        }
    }

    /// Sets a queue's state.
    pub fn state(&self, queue: &str, state: &'static str) {
        self.board.update(queue, |line| line.state = state);
    }

    /// Sends objects of a queue.
    pub fn sender<'a>(&'a self, told: &'a (dyn Fn(&BucketError) + Sync)) -> Sender<'a> {
        Sender { bucket: &*self.bucket, limiter: &self.limiter, told }
    }

    /// What to call with an error that is tried again.
    pub fn tells<'a>(&'a self, queue: &'a str) -> impl Fn(&BucketError) + Sync + 'a {
        move |err| {
            warn!(queue, %err, "bucket request failed, will retry");
            self.error(queue, &err.text);
        }
    }

    /// Shows an error of a queue.
    pub fn error(&self, queue: &str, text: &str) {
        let at = self.host.now().to_iso();
        let message = text.to_owned();
        self.board.update(queue, |line| line.last_error = Some(LastError { at, message }));
    }

    /// Shows the pointer of a queue.
    pub fn pointer(&self, queue: &str, committed: Option<&Committed>) {
        let Some(committed) = committed else { return };
        self.board.update(queue, |line| {
            line.k = committed.k;
            line.windows_committed = committed.k;
            line.records = committed.records;
            line.bytes = committed.bytes;
            line.records_lost = committed.records_lost;
            line.gaps = committed.gaps;
            line.t_end = Some(Stamp(committed.t_end).to_iso());
        });
    }

    /// Shows and counts a committed window.
    pub fn committed(&self, queue: &str, committed: Option<&Committed>, manifest: &Manifest) {
        self.pointer(queue, committed);
        self.metrics.window(manifest.records, manifest.bytes);
        self.metrics.wrapped.fetch_add(manifest.wrapped, Ordering::Relaxed);
        let (window, records, bytes) = (manifest.k, manifest.records, manifest.bytes);
        info!(queue, window, records, bytes, t_end = manifest.t_end, "window committed");
        for lost in &manifest.lost {
            let (from, to) = (lost.from, lost.to);
            warn!(queue, partition = lost.partition, from, to, reason = ?lost.reason, "records lost");
        }
    }

    /// Aborts the process if a crash test asks for it here.
    pub fn crash(&self, at: CrashPoint) {
        if self.settings.crash_at == Some(at) {
            tracing::error!(?at, "crash point reached, aborting");
            std::process::abort();
        }
    }
}
