//! An owner: one run of the sink's loop, and the world that owners share.
//!
//! Owns: the life of an owner (awake, frozen, dead), and settings to start one with. Leaves to others:
//! its requests (`line`).

use super::line::{Fates, Life, Line};
use super::{SimBroker, SimStore};
use queen_core::TenantId;
use queen_sink::SinkLoop;
use queen_sink::bucket::Bucket;
use queen_sink::host::Host;
use queen_sink::settings::{Settings, Surroundings};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// Settings of an owner that copies the queue `orders`, unless `vars` say otherwise: names without
/// `QUEEN_S3_`.
pub fn settings(vars: &[(&str, &str)]) -> Settings {
    let base = [
        ("EMBEDDED", "true"),
        ("QUEUES", "orders"),
        ("ENDPOINT", "http://s3:7070"),
        ("REGION", "us-east-1"),
        ("BUCKET", "lake"),
        ("ACCESS_KEY", "queen"),
        ("SECRET_KEY", "hush"),
    ];
    let all: BTreeMap<String, String> = base
        .iter()
        .chain(vars)
        .map(|(name, value)| (format!("QUEEN_S3_{name}"), (*value).to_owned()))
        .collect();
    let around = Surroundings { node: 1, host: "h".into(), cores: 1 };
    Settings::from_vars(all, &around).unwrap().unwrap()
}

/// An owner at work.
pub struct Owner {
    /// The loop, for its status and its wishes.
    pub sink: Arc<SinkLoop>,
    line: Line,
    done: watch::Receiver<bool>,
}

/// All that owners share.
#[derive(Clone)]
pub struct World {
    /// The broker.
    pub broker: Arc<SimBroker>,
    /// The bucket.
    pub store: Arc<SimStore>,
    under_way: Arc<AtomicUsize>,
}

impl World {
    /// An empty broker and an empty bucket.
    pub fn new() -> World {
        World { broker: SimBroker::new(), store: Arc::default(), under_way: Arc::default() }
    }

    /// Requests on their way, those of the dead included.
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// A line for an owner, whom `owner` names in the fates.
    pub fn line(&self, owner: u64, fates: Arc<dyn Fates>) -> Line {
        Line {
            owner,
            broker: self.broker.clone(),
            store: self.store.clone(),
            fates,
            life: Arc::default(),
            abort: Arc::default(),
            under_way: self.under_way.clone(),
        }
    }
}

impl Default for World {
    fn default() -> World {
        World::new()
    }
}

impl Owner {
    /// Starts an owner. `host` and `bucket` are [`Line::host`] and [`Line::bucket`], or something
    /// around them.
    pub fn start(
        line: Line,
        settings: Settings,
        host: Arc<dyn Host>,
        bucket: Arc<dyn Bucket>,
    ) -> Owner {
        let sink = Arc::new(SinkLoop::new(settings, TenantId::DEFAULT, host, bucket));
        let (running, (ended, done)) = (sink.clone(), watch::channel(false));
        let task = tokio::spawn(async move {
            running.run().await;
            ended.send_replace(true);
        });
        *line.abort.lock() = Some(task.abort_handle());
        Owner { sink, line, done }
    }

    /// Its loop has drained.
    pub fn ended(&self) -> bool {
        *self.done.borrow()
    }

    /// It was killed.
    pub fn is_dead(&self) -> bool {
        self.line.life.get() == Life::Dead
    }

    /// Completes when it is dead.
    pub async fn died(&self) {
        self.line.life.until(Life::Dead).await;
    }

    /// Kills it: requests that are on their way arrive all the same.
    pub fn kill(&self) {
        self.line.kill();
    }

    /// Stops it where it stands: nothing it sends leaves, nothing it is sent arrives.
    pub fn freeze(&self) {
        self.line.turn(Life::Frozen);
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.line.turn(Life::Awake);
    }

    /// The sink's line of a queue in `/status`.
    pub fn queue(&self, name: &str) -> serde_json::Value {
        let status = self.sink.status(false);
        let lines = status["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        lines.into_iter().find(|line| line["name"] == name).unwrap_or_default()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.line.kill();
    }
}
