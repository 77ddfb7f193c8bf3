//! One queue's loop: claim, restore, fill, commit, again.
//!
//! Owns: the order of the steps and what is waited for between them.
//! Leaves to others: every rule: when a window closes (`plan`), the commit (`commit`), the lease
//! (`lease`), the spread (`spread`).

use crate::commit::Progress;
use crate::context::{Context, Stop};
use crate::host::{Place, QueueInfo, ScanFrom, TimelinePage, blocking};
use crate::layout::{KEY_BYTES_MAX, QueueKeys};
use crate::lease::{Claim, Lease, put_once, rows};
use crate::plan::{CloseRule, Planner, weight};
use crate::retry::pause;
use crate::settings::{Queues, StartAt};
use crate::spread::Spread;
use crate::window::{Window, windows_tile};
use queen_core::sink::{RowKind, Start, row_key};
use queen_core::{PartitionId, QueueId, Stamp};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tracing::{error, info, warn};

/// Headers asked for at a time.
const PAGE_RUNS: usize = 4096;
/// Lengths of partition names remembered while a window fills.
const NAMES_MAX: usize = 200_000;
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

/// Stamps of the sink's own start.
#[derive(Clone, Copy, Debug)]
pub struct TurnedOn {
    /// The sink was first turned on, ever.
    pub first: Stamp,
    /// This process turned it on.
    pub boot: Stamp,
}

/// A worker.
pub struct Worker {
    /// What all workers share.
    pub context: Arc<Context>,
    /// The queue's name.
    pub queue: String,
    /// The spread over nodes.
    pub spread: Arc<Spread>,
    /// When the sink was turned on.
    pub on: TurnedOn,
    /// What is wanted.
    pub wish: watch::Receiver<Wish>,
}

impl Worker {
    /// Works until it is told to drain or, when all queues are copied, the queue is gone.
    pub async fn work(mut self) {
        let context = self.context.clone();
        let key = row_key(&context.settings.sink, &self.queue, RowKind::Lease);
        loop {
            if *self.wish.borrow() != Wish::Run {
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
                   _ = self.wish.wait_for(|wish| *wish != Wish::Run) => {}
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
        let (mut wish, bucket) = (self.wish.clone(), self.context.bucket_status.clone());
        async move {
            let _ = wish.wait_for(|wish| *wish != Wish::Run).await.map(drop);
            while *wish.borrow() != Wish::Leave && bucket.lock().reachable != Some(false) {
                tokio::select! {
                biased;
                                   _ = wish.changed() => {}
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
            if *self.wish.borrow() != Wish::Run {
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

    async fn until_there(&mut self) {
        let mut seen = 0;
        while self.context.host.queue(&self.queue).is_none() {
            tokio::select! {
            biased;
                           now = self.context.host.queues_changed(seen) => seen = now,
                           _ = self.wish.wait_for(|wish| *wish != Wish::Run) => return,
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
        keys_fit(&context, &self.queue)?;
        let mut progress = Progress::load(&context, &self.queue).await?;
        context.pointer(&self.queue, progress.committed.0.as_ref());
        let start = self.start_row().await?;
        self.show_oldest(&progress, &start).await?;
        if let Some(intent) = progress.pending() {
            info!(queue = self.queue, window = intent.k, "finishing a window found at the claim");
            context.board.update(&self.queue, |line| line.redo = true);
            context.metrics.redos.fetch_add(1, Ordering::Relaxed);
            progress.redo(&context, lease).await?;
            context.board.update(&self.queue, |line| line.redo = false);
        }
        progress.look_ahead(&context).await?;
        loop {
            let window = self.fill(&mut progress, &start).await?;
            progress.commit(&context, lease, &window).await?;
            if *self.wish.borrow() != Wish::Run {
                return Ok(());
            }
        }
    }

    /// The row that says where the queue's copy begins, written on first sight.
    async fn start_row(&self) -> Result<Start, Stop> {
        let context = &self.context;
        let key = row_key(&context.settings.sink, &self.queue, RowKind::Start);
        let found = rows(&*context.host, &[&key]).await.pop().flatten();
        let row = match found {
            Some(row) => row,
            None => {
                let queue = context.host.queue(&self.queue);
                let created = queue.as_ref().map(|queue| queue.created);
                let mode = context.settings.start;
                let stamp = match (mode, &context.settings.queues) {
                    (StartAt::Latest, Queues::All) => {
                        self.on.first.max(created.unwrap_or_default())
                    }
                    (StartAt::Latest, Queues::Named(_)) => {
                        self.on.boot.max(created.unwrap_or_default())
                    }
                    (StartAt::Earliest, _) => {
                        let Some(queue) = queue else { return Err(Stop::Missing) };
                        context.host.first_retained(queue.id)?.unwrap_or(queue.created)
                    }
                };
                let row = Start { stamp: stamp.0, mode: mode.word().to_owned() };
                put_once(&*context.host, &key, &row.to_json()).await
            }
        };
        Start::from_json(&row.value).map_err(|err| Stop::failed(format!("{err}: KV row {key}")))
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
        let context = self.context.clone();
        context.state(&self.queue, "filling");
        let Some(queue) = context.host.queue(&self.queue) else { return Err(Stop::Missing) };
        let (end_before, mut from) = position(progress, start, &queue);
        let rule = CloseRule {
            target_bytes: context.settings.target_bytes,
            max_window_us: context.settings.max_window.as_micros() as u64,
            align: context.settings.align,
        };
        let mut planner = Planner::new(rule, queue.id, end_before);
        let mut names = NameLengths::default();
        loop {
            let page = self.page(queue.id, from).await?;
            let lengths = names.of(&context, queue.id, &page).await?;
            for (run, name_bytes) in page.runs.iter().zip(lengths) {
                if let Some(window) = planner.add(run, weight(run, name_bytes)) {
                    return self.closed(end_before, window);
                }
            }
            from = ScanFrom::Place(page.next);
            self.show_filling(&planner, &page);
            if *self.wish.borrow() != Wish::Run {
                return Err(Stop::Drained);
            }
            if !page.end {
                continue;
            }
            if let Some(window) = planner.close_through(page.through) {
                return self.closed(end_before, window);
            }
            let hour = progress.open_hour_end(&context);
            let open_after =
                planner.first().is_none_or(|first| hour.is_some_and(|end| first >= end));
            if open_after && hour.is_some_and(|end| end <= page.through) {
                progress.close_hour(&context).await?;
                continue;
            }
            let due = planner.limit().into_iter().chain(hour).min();
            self.until_news(&queue, page.through, due).await?;
        }
    }

    fn closed(&self, end_before: Option<Stamp>, window: Window) -> Result<Window, Stop> {
        windows_tile(end_before, &window).map_err(Stop::failed)?;
        self.context.board.update(&self.queue, |line| line.oldest = Some(window.first));
        Ok(window)
    }

    fn show_filling(&self, planner: &Planner, page: &TimelinePage) {
        let through = planner.first().or(page.end.then_some(page.through));
        self.context.board.update(&self.queue, |line| {
            line.oldest = planner.first();
            line.buffered_bytes = planner.weight();
            if let Some(through) = through {
                line.complete_through = Some(through.to_iso());
            }
        });
    }

    async fn page(&self, queue: QueueId, from: ScanFrom) -> Result<TimelinePage, Stop> {
        let host = self.context.host.clone();
        let page =
            blocking(&*self.context.host, move || host.timeline(queue, from, PAGE_RUNS)).await?;
        Ok(page)
    }

    /// Waits for records stamped above `seen`, for `due` on the log clock, for the end of the queue
    /// or for a drain.
    async fn until_news(
        &self,
        queue: &QueueInfo,
        seen: Stamp,
        due: Option<Stamp>,
    ) -> Result<(), Stop> {
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
            host.written(queue.id, seen).await;
            let pace = due.map_or(LOOK_EVERY, |due| wait(due).min(LOOK_EVERY));
            tokio::time::sleep(pace).await;
        };
        let ended = async {
            let mut changes = 0;
            loop {
                changes = host.queues_changed(changes).await;
                if host.queue(&self.queue).is_none_or(|now| now.id != queue.id) {
                    return;
                }
            }
        };
        let mut wish = self.wish.clone();
        let drained = async { wish.wait_for(|wish| *wish != Wish::Run).await.map(drop) };
        let due_now = tokio::select! {
        biased;
                   _ = drained => return Err(Stop::Drained),
                   () = self.spread.above_share() => {
                       self.context.metrics.given_back.fetch_add(1, Ordering::Relaxed);
                       return Err(Stop::GivenBack);
                   }
                   () = ended => return Err(Stop::Missing),
                   () = news => false,
                   () = clock => true,
               };
        // Nothing is written, so the log clock stands still: a tick moves it on.
        let late = due.is_some_and(|due| host.applied() < due);
        if due_now && late && host.tick().await.is_err() {
            tokio::time::sleep(pause(host.random(), 3)).await;
        }
        match host.queue(&self.queue) {
            Some(now) if now.id == queue.id => Ok(()),
            _ => Err(Stop::Missing),
        }
    }
}

/// Nothing of a queue is written when its name makes keys that S3 does not take.
fn keys_fit(context: &Context, queue: &str) -> Result<(), Stop> {
    let settings = &context.settings;
    let keys = QueueKeys::new(&settings.prefix, context.tenant, queue);
    let bytes = keys.bytes_max(settings.align, settings.encoding.extension());
    if bytes <= KEY_BYTES_MAX {
        return Ok(());
    }
    Err(Stop::failed(format!(
        "the queue's name is too long for S3: it has {} bytes, which make object keys of {bytes}, and \
         S3 takes {KEY_BYTES_MAX}; nothing is copied. Give the queue a shorter name (bytes other than \
         A-Z a-z 0-9 . _ - count three times), or the sink a shorter QUEEN_S3_PREFIX",
        queue.len()
    )))
}

/// Where the next window begins: the end of the one before, and where its records are looked for.
fn position(progress: &Progress, start: &Start, queue: &QueueInfo) -> (Option<Stamp>, ScanFrom) {
    match &progress.committed.0 {
        Some(c) if c.queue_id == queue.id.0 => {
            let place = Place { segment: c.log_to.0, at: c.log_to.1 };
            (Some(Stamp(c.t_end)), ScanFrom::Place(place))
        }
        // The queue was made anew: its log begins anew.
        Some(c) => (Some(Stamp(c.t_end)), ScanFrom::Stamp(Stamp(c.t_end.max(start.stamp)))),
        None => {
            let first = Stamp(start.stamp);
            let free = start.mode == StartAt::Earliest.word();
            ((!free).then_some(first), ScanFrom::Stamp(first))
        }
    }
}

/// Lengths of the names of the partitions seen while a window fills.
#[derive(Default)]
struct NameLengths(HashMap<PartitionId, usize>);

impl NameLengths {
    async fn of(
        &mut self,
        context: &Context,
        queue: QueueId,
        page: &TimelinePage,
    ) -> Result<Vec<usize>, Stop> {
        if self.0.len() > NAMES_MAX {
            self.0.clear();
        }
        let ids = page.runs.iter().map(|run| run.header.partition);
        let mut unknown: Vec<PartitionId> = ids.filter(|id| !self.0.contains_key(id)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        if !unknown.is_empty() {
            let host = context.host.clone();
            let asked = unknown.clone();
            let names = blocking(&*context.host, move || host.partition_names(queue, &asked));
            let names = names.await?;
            self.0.extend(unknown.into_iter().zip(names.iter().map(|name| name.len())));
        }
        let length = |id| self.0.get(&id).copied().unwrap_or_default();
        Ok(page.runs.iter().map(|run| length(run.header.partition)).collect())
    }
}
