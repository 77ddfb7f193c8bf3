//! One queue's loop: claim, restore, fill, commit, again.
//!
//! Owns: the order of the steps and what is waited for between them.
//! Leaves to others: every rule: when a window closes (`plan`), the commit (`commit`), the lease
//! (`lease`), the spread (`spread`).

use crate::ahead::{Ahead, Next};
use crate::commit::Progress;
use crate::context::{Context, Stop};
use crate::filling::{Filling, PageRead};
use crate::host::{Loss, Place, ScanFrom, blocking};
use crate::lease::{Claim, Lease};
use crate::plan::Planner;
use crate::retry::pause;
use crate::settings::Queues;
use crate::signal::Signal;
use crate::spread::Spread;
use crate::start::{position, start_row};
use crate::window::{Window, windows_tile};
use queen_core::sink::{RowKind, Start, row_key};
use queen_core::{QueueId, Stamp};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tracing::{error, info, warn};

/// A refused queue is tried again after this time.
const REFUSED: Duration = Duration::from_secs(60);
/// Time between two looks at a queue that is written to all the time: each look costs a scan of
/// what is new, so looking once per push would cost more than the copy.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What the sink's owner wants of its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wish {
    /// Work.
    Run,
    /// Finish a window that is on its way, begin no other, give the lease back.
    Drain,
    /// Leave the window to the next owner, give the lease back.
    Leave,
}

/// A worker.
pub struct Worker {
    /// What all workers share.
    pub context: Arc<Context>,
    /// The queue's name.
    pub queue: String,
    /// The spread over nodes.
    pub spread: Arc<Spread>,
    /// From here on `latest` copies, unless the queue is younger.
    pub since: Stamp,
    /// What is wanted.
    pub wish: Arc<Signal<Wish>>,
}

impl Worker {
    /// Works until it is told to drain or, when all queues are copied, the queue is gone.
    pub async fn work(mut self) {
        let context = self.context.clone();
        let key = row_key(&context.settings.sink, &self.queue, RowKind::Lease);
        loop {
            if self.wish.get() != Wish::Run {
                context.state(&self.queue, "drained");
                return;
            }
            if !self.spread.below_share() && self.spread.view().nodes > 1 {
                self.rest(context.settings.lease).await;
            }
            context.state(&self.queue, "claiming");
            let settings = &context.settings;
            match Lease::claim(&context.host, &key, &settings.instance, settings.lease).await {
                Claim::Other { instance, until } => self.other(instance, until).await,
                Claim::Held(lease) => {
                    let stop = self.hold(&lease).await;
                    if stop == Stop::Missing && context.settings.queues == Queues::All {
                        // Begun anew while the queue is listed, which it can be for long.
                        self.rest(pause(context.host.random(), 1)).await;
                        return;
                    }
                    self.stopped(stop).await;
                }
            }
        }
    }

    /// Waits for a time, or until the wish changes.
    async fn rest(&mut self, time: Duration) {
        tokio::select! {
        biased;
                   () = self.wish.until(|wish| wish != Wish::Run) => {}
                   () = tokio::time::sleep(time) => {}
               }
    }

    async fn other(&mut self, instance: String, until: Option<Stamp>) {
        let context = self.context.clone();
        context.board.update(&self.queue, |line| {
            line.state = "held";
            line.owned_here = false;
            line.held_by = Some(instance);
        });
        let now = context.host.now();
        let left = until.map_or(0, |until| until.0.saturating_sub(now.0));
        let left = Duration::from_micros(left).min(context.settings.lease);
        // A released lease is seen well before it would have expired.
        let look = left.min(context.settings.lease / 6).max(Duration::from_millis(200));
        self.rest(look + pause(context.host.random(), 1)).await;
    }

    /// Works under a lease until it has to stop; the lease is given back.
    async fn hold(&mut self, lease: &Arc<Lease>) -> Stop {
        let context = self.context.clone();
        let spread = self.spread.clone();
        let _held = spread.hold();
        info!(queue = self.queue, "lease taken");
        context.board.update(&self.queue, |line| {
            line.owned_here = true;
            line.held_by = None;
            line.state = "restoring";
        });
        let leave = self.leaves();
        tokio::pin!(leave);
        let stop = tokio::select! {
        biased;
                   stop = self.run_or_wait(lease) => stop,
                   () = lease.keep() => Stop::Fenced,
                   () = &mut leave => Stop::Drained,
                   // A window on its way to a bucket that is not there is left to the next owner.
                   () = spread.stepped_back() => Stop::GivenBack,
               };
        if stop != Stop::Fenced {
            lease.release().await;
        }
        context.board.update(&self.queue, |line| line.owned_here = false);
        stop
    }

    /// Completes when the window in work is to be left to the next owner: it is wanted, or there is
    /// no bucket to finish it in.
    fn leaves(&self) -> impl Future<Output = ()> + use<> {
        let (wish, bucket) = (self.wish.clone(), self.context.bucket_status.clone());
        async move {
            wish.until(|wish| wish != Wish::Run).await;
            while wish.get() != Wish::Leave && bucket.lock().reachable != Some(false) {
                tokio::select! {
                biased;
                                   () = wish.until(|wish| wish == Wish::Leave) => {}
                                   () = tokio::time::sleep(LOOK_EVERY) => {}
                               }
            }
        }
    }

    /// Runs; alone on the field, it keeps the lease through refusals, so that lag and state stay.
    async fn run_or_wait(&mut self, lease: &Lease) -> Stop {
        loop {
            let stop = self.run(lease).await;
            let (state, text) = stop.shown();
            let mends =
                matches!(stop, Stop::Diverged(_) | Stop::Undecryptable(_) | Stop::Failed(_));
            if !mends || self.spread.view().nodes > 1 {
                return stop;
            }
            self.show_refusal(state, text);
            self.rest(REFUSED).await;
            if self.wish.get() != Wish::Run {
                return Stop::Drained;
            }
        }
    }

    fn show_refusal(&self, state: &'static str, text: Option<&str>) {
        self.context.state(&self.queue, state);
        if let Some(text) = text {
            self.context.error(&self.queue, text);
            error!(queue = self.queue, state, error = text, "queue stopped, tried again in 60 s");
        }
    }

    async fn stopped(&mut self, stop: Stop) {
        let context = self.context.clone();
        match &stop {
            Stop::Drained => info!(queue = self.queue, "lease given back"),
            Stop::GivenBack => {
                info!(queue = self.queue, "queue given to another node");
                self.rest(context.settings.lease * 2).await;
            }
            Stop::Fenced => {
                context.metrics.preconditions_lost.fetch_add(1, Ordering::Relaxed);
                context.state(&self.queue, "fenced");
                warn!(queue = self.queue, "lease lost");
                self.rest(pause(context.host.random(), 3)).await;
            }
            Stop::Missing => {
                context.state(&self.queue, "missing");
                self.until_there().await;
                // A queue that comes and goes must not keep this loop spinning.
                self.rest(pause(context.host.random(), 1)).await;
            }
            refusal => {
                let (state, text) = refusal.shown();
                self.show_refusal(state, text);
                self.rest(REFUSED).await;
            }
        }
    }

    /// Waits until there is something to do: the queue, or a window or loss of one that was deleted,
    /// also when another owner began the window.
    async fn until_there(&mut self) {
        let mut seen = 0;
        let wish = self.wish.clone();
        let host = &self.context.host;
        let listed = || host.queues().iter().any(|info| *info.name == *self.queue);
        while !listed() {
            tokio::select! {
                biased;
                now = host.queues_changed(seen) => seen = now,
                () = wish.until(|wish| wish != Wish::Run) => return,
            }
        }
    }

    async fn run(&mut self, lease: &Lease) -> Stop {
        match self.windows(lease).await {
            Ok(()) => Stop::Drained,
            Err(stop) => stop,
        }
    }

    async fn windows(&mut self, lease: &Lease) -> Result<(), Stop> {
        let context = self.context.clone();
        context.state(&self.queue, "restoring");
        let mut progress = Progress::load(&context, &self.queue).await?;
        context.pointer(&self.queue, progress.committed.0.as_ref());
        let start = start_row(&context, &self.queue, self.since).await?;
        self.show_oldest(&progress, &start).await?;
        if let Some(intent) = progress.pending() {
            info!(queue = self.queue, window = intent.k, "finishing a window found at the claim");
            context.board.update(&self.queue, |line| line.redo = true);
            context.metrics.redos.fetch_add(1, Ordering::Relaxed);
            progress.redo(&context, lease).await?;
            context.board.update(&self.queue, |line| line.redo = false);
        }
        progress.look_ahead(&context).await?;
        let mut ahead: Option<Ahead> = None;
        loop {
            let k = progress.k() + 1;
            ahead = ahead.filter(|ahead| ahead.is_next(&context, &self.queue, k));
            let window = match &ahead {
                Some(ahead) => self.show_closed(ahead.window),
                None => self.fill(&mut progress, &start).await?,
            };
            let next = Next {
                context: &context,
                queue: &self.queue,
                k: k + 1,
                before: &window,
                encoded: &Notify::new(),
                wanted: &|| self.wish.get() == Wish::Run,
            };
            let commit = progress.commit(&context, lease, &window, ahead.take(), next.encoded);
            ((), ahead) = next.beside(commit).await?;
            if self.wish.get() != Wish::Run {
                return Ok(());
            }
        }
    }

    /// Shows the oldest record that is not in the bucket, before anything can get stuck.
    async fn show_oldest(&self, progress: &Progress, start: &Start) -> Result<(), Stop> {
        let Some(queue) = self.context.host.queue(&self.queue) else { return Ok(()) };
        let (_, from) = position(progress, start, &queue);
        let host = self.context.host.clone();
        let page = blocking(&*self.context.host, move || host.timeline(queue.id, from, 1)).await?;
        let oldest = page.runs.first().map(|run| run.header.stamp);
        self.context.board.update(&self.queue, |line| line.oldest = oldest);
        Ok(())
    }

    /// Waits until the next window is closed.
    async fn fill(&mut self, progress: &mut Progress, start: &Start) -> Result<Window, Stop> {
        loop {
            if let Some(window) = self.fill_from(progress, start).await? {
                return Ok(window);
            }
        }
    }

    /// Fills a window from one incarnation of the queue; `None` when the queue has come or gone.
    async fn fill_from(
        &mut self,
        progress: &mut Progress,
        start: &Start,
    ) -> Result<Option<Window>, Stop> {
        let context = self.context.clone();
        context.state(&self.queue, "filling");
        // Read first: a queue made after the look below has all its records above it.
        let applied = context.host.applied();
        let Some(queue) = context.host.queue(&self.queue) else {
            return self.fill_without_queue(progress, applied).await;
        };
        let (end_before, mut from) = position(progress, start, &queue);
        let mut filling = Filling::new(&context, queue.id, end_before);
        loop {
            let page = filling.page(&context, from).await?;
            if let Some(window) = page.closed {
                return self.closed(end_before, window);
            }
            from = ScanFrom::Place(page.next);
            self.show_filling(&filling.planner, &page);
            if self.wish.get() != Wish::Run {
                return Err(Stop::Drained);
            }
            if !page.end {
                continue;
            }
            if let Some(window) = filling.close_through(page.through) {
                return self.closed(end_before, window);
            }
            let planner = &filling.planner;
            let waiting = self.loss(progress)?;
            let loss = waiting.filter(|_| planner.first().is_none());
            let empty = loss.and_then(|loss| planner.close_empty(&loss, page.through, page.next));
            if let Some(window) = empty {
                return self.closed(end_before, window);
            }
            // A window without records may yet count in the hour in which its loss began.
            let after_loss = |end: &Stamp| waiting.is_none_or(|loss| loss.since >= *end);
            let hour = progress.open_hour_end(&context).filter(after_loss);
            let open_after =
                planner.first().is_none_or(|first| hour.is_some_and(|end| first >= end));
            if open_after && hour.is_some_and(|end| end <= page.through) {
                progress.close_hour(&context).await?;
                continue;
            }
            let limit = planner.limit().or(loss.map(|loss| planner.loss_limit(&loss)));
            let due = limit.into_iter().chain(hour).min();
            if !self.until_news(Some(queue.id), page.through, due, progress).await? {
                return Ok(None);
            }
        }
    }

    /// Loss that the next window has to list.
    fn loss(&self, progress: &Progress) -> Result<Option<Loss>, Stop> {
        let loss = self.context.host.loss(&self.queue, progress.k() + 1)?;
        self.context.board.update(&self.queue, |line| {
            line.records_lost_waiting = loss.map_or(0, |loss| loss.records);
        });
        Ok(loss)
    }

    /// Waits until a window is due that lists the loss of a deleted queue.
    async fn fill_without_queue(
        &self,
        progress: &Progress,
        applied: Stamp,
    ) -> Result<Option<Window>, Stop> {
        let Some(loss) = self.loss(progress)? else { return Err(Stop::Missing) };
        let committed = progress.committed.0.as_ref();
        let (end_before, at) = match committed {
            Some(c) => (Some(Stamp(c.t_end)), Place { segment: c.log_to.0, at: c.log_to.1 }),
            None => (None, Place::default()),
        };
        let queue = committed.map_or(loss.queue, |c| QueueId(c.queue_id));
        let planner = Planner::new(self.context.rule(), queue, end_before);
        if let Some(window) = planner.close_empty(&loss, applied, at) {
            return self.closed(end_before, window);
        }
        let due = planner.loss_limit(&loss);
        self.until_news(None, applied, Some(due), progress).await?;
        Ok(None)
    }

    fn closed(&self, end_before: Option<Stamp>, window: Window) -> Result<Option<Window>, Stop> {
        windows_tile(end_before, &window).map_err(Stop::failed)?;
        Ok(Some(self.show_closed(window)))
    }

    fn show_closed(&self, window: Window) -> Window {
        let oldest = (window.records > 0).then_some(window.first);
        self.context.board.update(&self.queue, |line| line.oldest = oldest);
        window
    }

    fn show_filling(&self, planner: &Planner, page: &PageRead) {
        let through = planner.first().or(page.end.then_some(page.through));
        self.context.board.update(&self.queue, |line| {
            line.oldest = planner.first();
            line.buffered_bytes = planner.weight();
            if let Some(through) = through {
                line.complete_through = Some(through.to_iso());
            }
        });
    }

    /// Waits for records stamped above `seen`, for `due` on the log clock, for loss, for the queue to
    /// come or go, or for a drain; whether the queue is still the same. `queue`: `None` when there
    /// is none.
    async fn until_news(
        &self,
        queue: Option<QueueId>,
        seen: Stamp,
        due: Option<Stamp>,
        progress: &Progress,
    ) -> Result<bool, Stop> {
        let host = self.context.host.clone();
        let wait = |due: Stamp| Duration::from_micros(due.0.saturating_sub(host.now().0));
        let clock = async {
            match due {
                None => std::future::pending().await,
                Some(due) => {
                    while host.now() < due {
                        tokio::time::sleep(wait(due)).await;
                    }
                }
            }
        };
        let news = async {
            match queue {
                Some(queue) => host.written(queue, seen).await,
                None => std::future::pending().await,
            }
            let pace = due.map_or(LOOK_EVERY, |due| wait(due).min(LOOK_EVERY));
            tokio::time::sleep(pace).await;
        };
        let waiting = self.loss(progress)?;
        let changed = async {
            let mut changes = 0;
            loop {
                changes = host.queues_changed(changes).await;
                let loss = host.loss(&self.queue, progress.k() + 1).unwrap_or(waiting);
                let more = |loss: Option<Loss>| loss.map(|loss| loss.more);
                if self.live() != queue || more(loss) != more(waiting) {
                    return;
                }
            }
        };
        let wish = self.wish.clone();
        let drained = wish.until(|wish| wish != Wish::Run);
        let due_now = tokio::select! {
        biased;
                   () = drained => return Err(Stop::Drained),
                   () = self.spread.above_share() => {
                       self.context.metrics.given_back.fetch_add(1, Ordering::Relaxed);
                       return Err(Stop::GivenBack);
                   }
                   () = changed => false,
                   () = news => false,
                   () = clock => true,
               };
        // Nothing is written, so the log clock stands still: a tick moves it on.
        let late = due.is_some_and(|due| host.applied() < due);
        if due_now && late && host.tick().await.is_err() {
            tokio::time::sleep(pause(host.random(), 3)).await;
        }
        Ok(self.live() == queue)
    }

    fn live(&self) -> Option<QueueId> {
        self.context.host.queue(&self.queue).map(|queue| queue.id)
    }
}
