//! The sink's loop, without the threads it runs on: the list of queues, one worker for each.
//!
//! Owns: which queues have a worker, the drain, `/status` and metrics.
//! Leaves to others: threads (`sink`), what a worker does (`worker`).
//!
//! A simulation runs it as it stands, on a runtime whose time it moves.

use crate::bucket::Bucket;
use crate::context::Context;
use crate::filling::PAGES_AT_ONCE;
use crate::host::Host;
use crate::memory::Budget;
use crate::metrics::Metrics;
use crate::needs::{for_filling, given_out};
use crate::retry::Limiter;
use crate::settings::{Queues, Settings};
use crate::signal::Signal;
use crate::spread::{Spread, share};
use crate::start::turn_on;
use crate::status::{Board, BucketStatus};
use crate::turns::Turns;
use crate::worker::{Wish, Worker};
use futures::FutureExt as _;
use parking_lot::Mutex;
use queen_core::{Stamp, TenantId};
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::error;

/// The loop of one node.
pub struct SinkLoop {
    context: Arc<Context>,
    spread: Arc<Spread>,
    wish: Arc<Signal<Wish>>,
    begun: Instant,
}

impl SinkLoop {
    /// A loop that does not run yet.
    pub fn new(
        settings: Settings,
        tenant: TenantId,
        host: Arc<dyn Host>,
        bucket: Arc<dyn Bucket>,
    ) -> SinkLoop {
        let metrics = Arc::new(Metrics::default());
        let bucket_status = Arc::new(Mutex::new(BucketStatus {
            name: settings.bucket.bucket.clone(),
            endpoint: settings.bucket.endpoint.clone(),
            region: settings.bucket.region.clone(),
            prefix: settings.prefix.clone(),
            ..BucketStatus::default()
        }));
        let budget = Budget::new(given_out(settings.memory_bytes, settings.encoding));
        let context = Context {
            limiter: {
                let host = host.clone();
                let random = Box::new(move || host.random());
                Limiter::new(random, bucket_status.clone(), metrics.clone())
            },
            turns: Turns::new(settings.threads, budget.clone()),
            budget,
            filling: Budget::new(for_filling(settings.memory_bytes)),
            pages: Semaphore::new(PAGES_AT_ONCE),
            board: Board::default(),
            bucket_status,
            metrics,
            tenant,
            host,
            bucket,
            settings,
        };
        SinkLoop {
            context: Arc::new(context),
            spread: Arc::default(),
            wish: Arc::new(Signal::new(Wish::Run)),
            begun: Instant::now(),
        }
    }

    /// Runs until every worker has drained. Dropped before that, it stops where it stands, as a
    /// process does that is killed.
    pub async fn run(&self) {
        let wish = self.wish.clone();
        let since = tokio::select! {
        biased;
                   since = turn_on(&self.context) => since,
                   () = wish.until(|wish| wish != Wish::Run) => return,
               };
        tokio::select! {
        biased;
                   () = self.workers(since) => {}
                   () = self.spread.keep(&self.context) => {}
               }
        self.spread.leave(&self.context).await;
    }

    async fn workers(&self, since: Stamp) {
        let wish = self.wish.clone();
        let mut known: BTreeSet<String> = BTreeSet::new();
        let mut workers = JoinSet::new();
        let mut seen = 0;
        while wish.get() == Wish::Run {
            for queue in self.wanted() {
                if known.insert(queue.clone()) {
                    workers.spawn(self.worker(queue, since));
                }
            }
            let there = known.iter().filter(|name| self.context.host.queue(name).is_some());
            self.spread.queues(there.count());
            tokio::select! {
            biased;
                           now = self.context.host.queues_changed(seen) => seen = now,
                           () = wish.until(|wish| wish != Wish::Run) => {}
                           Some(Ok(ended)) = workers.join_next() => {
                               known.remove(&ended);
                               if self.wish.get() == Wish::Run {
                                   self.context.board.remove(&ended);
                               }
                           }
                       }
        }
        while workers.join_next().await.is_some() {}
    }

    /// A queue's worker; gives the queue's name at its end. A bug in one queue's work must not stop
    /// the others: it is logged, shown, and the queue is begun anew after a minute.
    fn worker(&self, queue: String, since: Stamp) -> impl Future<Output = String> + use<> {
        let context = self.context.clone();
        let worker = Worker {
            context: context.clone(),
            queue: queue.clone(),
            spread: self.spread.clone(),
            since,
            wish: self.wish.clone(),
        };
        let wish = self.wish.clone();
        async move {
            if AssertUnwindSafe(worker.work()).catch_unwind().await.is_err() {
                error!(queue, "the queue's worker panicked, begun anew in 60 s");
                context.state(&queue, "failed");
                context.error(&queue, "a bug stopped the work on this queue; see the log");
                tokio::select! {
                biased;
                                   () = wish.until(|wish| wish != Wish::Run) => {}
                                   () = tokio::time::sleep(Duration::from_secs(60)) => {}
                               }
            }
            queue
        }
    }

    fn wanted(&self) -> Vec<String> {
        match &self.context.settings.queues {
            Queues::Named(names) => names.clone(),
            Queues::All => {
                let mut all: Vec<String> =
                    self.context.host.queues().iter().map(|info| info.name.to_string()).collect();
                all.sort();
                all.dedup();
                all
            }
        }
    }

    /// Says what is wanted of the workers from now on.
    pub fn wish(&self, wish: Wish) {
        self.wish.update(|_| wish);
    }

    /// Whether all queues of this node keep up and the bucket answers, for `/health?sink=true`.
    pub fn healthy(&self) -> Result<(), String> {
        let context = &self.context;
        let limit = (context.settings.max_window * 3).max(Duration::from_secs(30));
        for line in context.board.lines(context.host.now()) {
            if line.lag_seconds.is_some_and(|lag| lag > limit.as_secs_f64()) {
                return Err(format!("queue {} lags behind by more than {limit:?}", line.name));
            }
        }
        match &*context.bucket_status.lock() {
            BucketStatus { reachable: Some(false), error, .. } => {
                Err(error.clone().unwrap_or_else(|| "the bucket does not answer".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Appends the sink's metric families.
    pub fn write_metrics(&self, out: &mut String) {
        let context = &self.context;
        let lines = context.board.lines(context.host.now());
        let reachable = context.bucket_status.lock().reachable;
        context.metrics.write(out, &lines, context.budget.used(), reachable);
    }

    /// The `s3` of `/status`.
    pub fn status(&self, stopped: bool) -> serde_json::Value {
        let context = &self.context;
        let settings = &context.settings;
        let health = self.healthy();
        let queues = context.board.lines(context.host.now());
        let view = self.spread.view();
        let phase = if stopped { "stopped" } else { "running" };
        let health_line = match &health {
            Ok(()) => serde_json::json!({ "ok": true, "queues": queues.len() }),
            Err(why) => serde_json::json!({ "ok": false, "why": why }),
        };
        serde_json::json!({
            "enabled": true,
            "mode": "in-process",
            "phase": phase,
            "threads": settings.threads,
            "sinks": [{
                "tenant": context.tenant.to_string(),
                "source": "env",
                "phase": phase,
                "uptimeMs": self.begun.elapsed().as_millis() as u64,
                "ok": health.is_ok(),
                "sink": settings.sink,
                "instance": settings.instance,
                "version": env!("CARGO_PKG_VERSION"),
                "running": !stopped,
                "bucket": &*context.bucket_status.lock(),
                "format": settings.encoding.format(),
                "compression": settings.encoding.compression(),
                "layout": settings.layout.word(),
                "align": settings.align.word(),
                "start": settings.start.word(),
                "health": health_line,
                "placement": {
                    "nodes": view.nodes,
                    "queues": view.queues,
                    "share": share(view),
                    "held": self.spread.held(),
                },
                "memory": {
                    "bufferedBytes": context.budget.used(),
                    "limitBytes": context.budget.limit(),
                },
                "queues": queues,
            }],
        })
    }
}
