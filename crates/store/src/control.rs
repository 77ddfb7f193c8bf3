//! What apply, the checkpoint thread and those who wait for it tell each other.
//!
//! Owns: requests for checkpoints, the durable position and its watchers, waiting for space, the
//! failure that ends all. Leaves to others: doing the checkpoint (`checkpoint`).

use crate::lsm::WriteError;
use crate::store::Applied;
use crate::{StoreError, StoreOptions};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Time between two tries of a write that the system refuses for now.
const RETRY_AFTER: Duration = Duration::from_millis(200);

pub(crate) type Watcher = Box<dyn Fn(&Applied) + Send + Sync>;

/// Who waits for space.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Writer {
    Apply = 1,
    Checkpoint = 2,
    Merge = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Not yet.
    No,
    /// After one more checkpoint.
    AfterCheckpoint,
    /// Now.
    Now,
}

struct State {
    /// Number of the last checkpoint asked for.
    requested: u64,
    /// Number of the last one begun.
    begun: u64,
    /// Number of the last one done.
    done: u64,
    ending: Ending,
    failed: Option<String>,
    durable: Option<Applied>,
}

/// The shared words and the bell.
pub(crate) struct Control {
    state: Mutex<State>,
    bell: Condvar,
    /// `state` says that nothing more may be applied; here so that each batch can look cheaply.
    stopped: AtomicBool,
    /// One bit per [`Writer`] that waits for space.
    full: AtomicU8,
    /// An image is about to take the place of all: a checkpoint that waits gives up.
    replacing: AtomicBool,
    watchers: Mutex<Vec<Watcher>>,
}

impl Control {
    pub(crate) fn new(durable: Option<Applied>) -> Control {
        let state =
            State { requested: 0, begun: 0, done: 0, ending: Ending::No, failed: None, durable };
        Control {
            state: Mutex::new(state),
            bell: Condvar::new(),
            stopped: AtomicBool::new(false),
            full: AtomicU8::new(0),
            replacing: AtomicBool::new(false),
            watchers: Mutex::default(),
        }
    }

    pub(crate) fn durable(&self) -> Option<Applied> {
        self.state.lock().durable.clone()
    }

    pub(crate) fn watch(&self, watcher: Watcher) {
        self.watchers.lock().push(watcher);
    }

    pub(crate) fn storage_full(&self) -> bool {
        self.full.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn failed(&self) -> Option<StoreError> {
        self.state.lock().failed.clone().map(StoreError::Failed)
    }

    /// Ends all for a reason; the first one counts and is given back.
    pub(crate) fn fail(&self, why: String) -> StoreError {
        let mut state = self.state.lock();
        if state.failed.is_none() {
            tracing::error!(why, "the store failed");
        }
        let why = state.failed.get_or_insert(why).clone();
        self.stopped.store(true, Ordering::Release);
        self.bell.notify_all();
        StoreError::Failed(why)
    }

    /// An error when nothing more may be applied.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if !self.stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        self.state.lock().check()
    }

    /// Asks for a checkpoint of what is applied now, and gives its number.
    pub(crate) fn request(&self) -> u64 {
        let mut state = self.state.lock();
        let request = state.request();
        self.bell.notify_all();
        request
    }

    /// Waits for a checkpoint that was asked for.
    pub(crate) fn wait_until_done(&self, request: u64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        while state.done < request {
            state.check()?;
            self.bell.wait(&mut state);
        }
        Ok(())
    }

    /// Asks for a checkpoint when enough has changed; waits when far too much has.
    pub(crate) fn batch_ended(
        &self,
        options: &StoreOptions,
        dirty_bytes: usize,
        log_bytes: u64,
    ) -> Result<(), StoreError> {
        if dirty_bytes < options.overlay_bytes && log_bytes < options.checkpoint_log_bytes {
            return self.check();
        }
        let mut state = self.state.lock();
        if state.requested == state.begun {
            state.request();
            self.bell.notify_all();
        }
        if dirty_bytes >= options.overlay_bytes.saturating_mul(2) {
            let request = state.requested;
            while state.begun < request && state.check().is_ok() {
                self.bell.wait(&mut state);
            }
        }
        state.check()
    }

    /// Waits a moment because the system refuses a write for now; an error when all ends.
    pub(crate) fn wait_blocked(&self, who: Writer, why: &WriteError) -> Result<(), StoreError> {
        if matches!(why, WriteError::Full) {
            let before = self.full.fetch_or(who as u8, Ordering::Relaxed);
            if before == 0 {
                tracing::warn!(?who, "the disk is full: writing waits until space returns");
            }
        }
        let mut state = self.state.lock();
        state.check()?;
        self.bell.wait_for(&mut state, RETRY_AFTER);
        state.check()?;
        drop(state);
        self.go_on(who)
    }

    /// An error when what `who` does is of no use any more.
    pub(crate) fn go_on(&self, who: Writer) -> Result<(), StoreError> {
        if let Some(failed) = self.failed() {
            return Err(failed);
        }
        if matches!(who, Writer::Checkpoint) && self.is_replacing() {
            self.unblocked(who);
            return Err(StoreError::Closed);
        }
        Ok(())
    }

    /// Whether an image is about to take the place of all.
    pub(crate) fn is_replacing(&self) -> bool {
        self.replacing.load(Ordering::Acquire)
    }

    /// Begins or ends taking the place of all.
    pub(crate) fn set_replacing(&self, replacing: bool) {
        self.replacing.store(replacing, Ordering::Release);
        let _state = self.state.lock();
        self.bell.notify_all();
    }

    /// All checkpoints asked for so far are void: an image stands here instead.
    pub(crate) fn replaced(&self, durable: Applied) {
        let request = self.begun();
        self.done(request, Some(durable));
    }

    /// The write that was refused has gone through.
    pub(crate) fn unblocked(&self, who: Writer) {
        let before = self.full.fetch_and(!(who as u8), Ordering::Relaxed);
        if before == who as u8 {
            tracing::info!(?who, "space has returned: writing goes on");
        }
    }

    /// Waits for a reason to make a checkpoint; `false` when there will be no more.
    pub(crate) fn wait_for_request(&self, every: Duration) -> bool {
        let until = Instant::now() + every;
        let mut state = self.state.lock();
        while state.requested == state.begun
            && state.ending == Ending::No
            && state.failed.is_none()
            && !self.bell.wait_until(&mut state, until).timed_out()
        {}
        state.failed.is_none() && state.ending != Ending::Now
    }

    /// Sleeps; `false` when all ends.
    pub(crate) fn sleep_until(&self, until: Instant) -> bool {
        let mut state = self.state.lock();
        while state.check().is_ok() && !self.bell.wait_until(&mut state, until).timed_out() {}
        state.check().is_ok()
    }

    /// The rows of a checkpoint have been set apart: later changes are for the next one.
    pub(crate) fn begun(&self) -> u64 {
        let mut state = self.state.lock();
        state.begun = state.requested;
        self.bell.notify_all();
        state.begun
    }

    /// A checkpoint is durable.
    pub(crate) fn done(&self, request: u64, durable: Option<Applied>) {
        let mut state = self.state.lock();
        state.done = state.done.max(request);
        let changed = durable.is_some() && durable != state.durable;
        if changed {
            state.durable.clone_from(&durable);
        }
        drop(state);
        self.bell.notify_all();
        if let Some(durable) = durable.filter(|_| changed) {
            self.watchers.lock().iter().for_each(|watcher| watcher(&durable));
        }
    }

    /// Nothing more may be applied.
    pub(crate) fn end(&self, ending: Ending) {
        let mut state = self.state.lock();
        if state.ending == Ending::No || ending == Ending::Now {
            state.ending = ending;
        }
        self.stopped.store(true, Ordering::Release);
        self.bell.notify_all();
    }

    /// Whether the last checkpoint is due, or none.
    pub(crate) fn is_ending(&self) -> bool {
        self.state.lock().ending != Ending::No
    }
}

impl State {
    fn request(&mut self) -> u64 {
        // One that was asked for and has not begun will hold what is applied now as well.
        if self.requested == self.begun {
            self.requested += 1;
        }
        self.requested
    }

    fn check(&self) -> Result<(), StoreError> {
        match (&self.failed, self.ending) {
            (Some(why), _) => Err(StoreError::Failed(why.clone())),
            (None, Ending::No) => Ok(()),
            (None, _) => Err(StoreError::Closed),
        }
    }
}
