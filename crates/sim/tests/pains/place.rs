//! A place to try a pain in: the double, a broker with the sink, and what was pushed.

use queen_sim::double::{Double, Event, Op};
use queen_sim::lake::{Accepted, Expected, Files, Kind, Layout, Report, check};
use queen_sim::process::{Answer, Broker, Item, Setup, sink_settings};
use serde_json::Value;
use std::time::{Duration, Instant};

/// The queue of tests that need one.
pub const QUEUE: &str = "orders";
/// Longest wait, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOK: Duration = Duration::from_millis(50);

/// Settings that cut a large window into parts of 8 MiB.
pub const IN_PARTS: &[(&str, &str)] =
    &[("QUEEN_S3_MULTIPART_THRESHOLD_MB", "5"), ("QUEEN_S3_COMPRESSION", "none")];

pub struct Place {
    pub double: Double,
    pub setup: Setup,
    pub broker: Broker,
    pub expected: Expected,
    _dir: tempfile::TempDir,
}

impl Place {
    /// A broker whose sink copies all queues in windows of 300 ms.
    pub async fn new(settings: &[(&str, &str)]) -> Place {
        Place::on(Double::start().await.unwrap(), settings).await
    }

    /// The same on a bucket that is told something before.
    pub async fn on(double: Double, settings: &[(&str, &str)]) -> Place {
        let dir = tempfile::tempdir().unwrap();
        let mut pairs = sink_settings(double.endpoint(), "*");
        pairs.push(("QUEEN_S3_MAX_WINDOW_MS".to_owned(), "300".to_owned()));
        let setup = Setup::new(dir.path()).with(pairs).with(settings.iter().copied());
        let broker = setup.start().await.unwrap();
        Place { double, setup, broker, expected: Expected::new(), _dir: dir }
    }

    /// Pushes payloads in one request, to [`QUEUE`].
    pub async fn push(&mut self, items: &[(&str, &str)]) {
        let items = items.iter().map(|(partition, payload)| item(QUEUE, partition, payload));
        self.push_items(items.collect()).await;
    }

    /// Pushes messages in one request.
    pub async fn push_items(&mut self, items: Vec<Item>) {
        let pushed = self.broker.client().push(&items).await.unwrap();
        for (item, pushed) in items.into_iter().zip(pushed) {
            self.expected.accepted.push(Accepted {
                queue: item.queue,
                partition: item.partition,
                offset: pushed.offset.unwrap(),
                transaction_id: pushed.transaction_id,
                payload: item.payload.into_bytes(),
            });
        }
    }

    /// Pushes so many MiB that no compressor finds again, in one window if the sink is quick to be
    /// asked: one message per MiB.
    pub async fn push_large(&mut self, mib: usize) {
        let items = (0..mib).map(|n| item(QUEUE, &format!("p{}", n % 3), &noise(n, 1 << 20)));
        self.push_items(items.collect()).await;
    }

    /// What is in the bucket now.
    pub fn files(&self) -> Files {
        let objects = self.double.objects();
        let newest = objects.into_iter().filter_map(|(key, mut v)| v.pop().map(|v| (key, v)));
        Files(newest.map(|(key, version)| (key, version.bytes.to_vec())).collect())
    }

    /// Data objects in the bucket, in order of keys.
    pub fn data(&self) -> Vec<String> {
        self.double.objects().into_keys().filter(|key| !key.contains("/_queen/")).collect()
    }

    /// Waits until every accepted record is in the lake once, and the lake is right in all else.
    pub async fn whole(&self) -> Report {
        self.whole_as(Layout::default()).await
    }

    /// The same of a lake that lies elsewhere.
    pub async fn whole_as(&self, layout: Layout<'_>) -> Report {
        // The whole check is long: first see that the manifests speak of so many.
        self.until("a manifest for every record", || self.recorded() >= self.recordable()).await;
        let until = Instant::now() + PATIENCE;
        loop {
            let report = check(&self.files(), layout, &self.expected);
            if report.faults.is_empty() {
                return report;
            }
            // A window in the middle of its upload has objects and no manifest yet.
            let settling = |kind| {
                matches!(kind, Kind::RecordLost | Kind::ObjectStranger | Kind::ManifestMissing)
            };
            let settles = report.faults.iter().all(|fault| settling(fault.kind));
            assert!(
                settles && Instant::now() < until,
                "{}\n{}\n{}",
                report.text(),
                self.log(),
                self.broker.tail()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Records that the manifests speak of.
    fn recorded(&self) -> u64 {
        let objects = self.double.objects();
        let manifests = objects
            .iter()
            .filter(|(key, _)| key.contains("/windows/") && !key.ends_with(".partitions.json"));
        let records = manifests.filter_map(|(_, versions)| {
            let document: Value = serde_json::from_slice(&versions.last()?.bytes).ok()?;
            document["records"].as_u64()
        });
        records.sum()
    }

    fn recordable(&self) -> u64 {
        self.expected.accepted.len() as u64
    }

    /// Waits for something.
    pub async fn until(&self, what: &str, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + PATIENCE;
        while !done() {
            assert!(
                Instant::now() < until,
                "{what} did not happen\n{}\n{}",
                self.log(),
                self.broker.tail()
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The sink's line of the queue.
    pub async fn line(&self, queue: &str) -> Value {
        let sink = self.broker.client().sink_status().await.unwrap();
        let lines = sink["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        lines.into_iter().find(|line| line["name"] == queue).unwrap_or_default()
    }

    /// Waits until the queue's last error holds this text.
    pub async fn said(&self, queue: &str, text: &str) -> Value {
        let until = Instant::now() + PATIENCE;
        loop {
            let line = self.line(queue).await;
            if line["lastError"]["message"].as_str().is_some_and(|said| said.contains(text)) {
                return line;
            }
            assert!(Instant::now() < until, "{text:?} is not in {line}\n{}", self.broker.tail());
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts the broker again on its data.
    pub async fn restart(&mut self) {
        self.broker = self.setup.start().await.unwrap();
    }

    /// The requests so far, one a line.
    pub fn log(&self) -> String {
        let event = |event: &Event| {
            format!("{:?} {} -> {:?}\n", event.request.op, event.request.key, event.status)
        };
        self.double.events().iter().map(event).collect()
    }

    /// Every key was written once.
    pub fn one_version_each(&self) {
        for (key, versions) in self.double.objects() {
            assert_eq!(versions.len(), 1, "{key} has versions\n{}", self.log());
        }
    }

    /// Ends the broker as an operator does.
    pub async fn stop(mut self) {
        let answer: anyhow::Result<Answer> = self.broker.client().get("/health").await;
        assert_eq!(answer.unwrap().status, 200, "{}", self.broker.tail());
        assert!(self.broker.stop().await.unwrap().success(), "{}", self.broker.tail());
    }
}

/// A message without a transaction id.
pub fn item(queue: &str, partition: &str, payload: &str) -> Item {
    Item {
        queue: queue.to_owned(),
        partition: partition.to_owned(),
        transaction_id: None,
        payload: payload.to_owned(),
    }
}

/// A JSON string of `bytes` letters by a seed.
pub fn noise(seed: usize, bytes: usize) -> String {
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let mut text = String::with_capacity(bytes + 2);
    text.push('"');
    for _ in 0..bytes {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.push(char::from(b'a' + (state >> 60) as u8));
    }
    text.push('"');
    text
}

/// Requests of a kind whose key holds a text.
pub fn of<'a>(events: &'a [Event], op: Op, key: &'a str) -> impl Iterator<Item = &'a Event> {
    events.iter().filter(move |e| e.request.op == op && e.request.key.contains(key))
}
