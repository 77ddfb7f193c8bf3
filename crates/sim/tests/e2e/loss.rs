//! Loss, end to end: what retention or a deletion took before the sink stands in a
//! manifest, each record once, and later windows flow.

use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{Broker, Item, Seaweed, Setup, sink_settings};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

fn with_sink(setup: &Setup, s3: &Seaweed) -> Setup {
    let window = ("QUEEN_S3_MAX_WINDOW_MS".to_owned(), "500".to_owned());
    setup.clone().with(sink_settings(&s3.endpoint(), "orders")).with([window])
}

/// Pushes `count` records to a partition of `orders`.
async fn push(broker: &Broker, expected: &mut Expected, partition: &str, count: usize) {
    let item = |n: usize| Item {
        queue: "orders".to_owned(),
        partition: partition.to_owned(),
        transaction_id: None,
        payload: format!("{{\"n\":{n}}}"),
    };
    let items: Vec<Item> = (0..count).map(item).collect();
    let pushed = broker.client().push(&items).await.unwrap();
    expected.accepted.extend(items.into_iter().zip(pushed).map(|(item, pushed)| Accepted {
        queue: item.queue,
        partition: item.partition,
        offset: pushed.offset.unwrap(),
        transaction_id: pushed.transaction_id,
        payload: item.payload.into_bytes(),
    }));
}

async fn until<F: AsyncFnMut() -> bool>(broker: &Broker, patience: Duration, what: &str, mut f: F) {
    let until = Instant::now() + patience;
    while !f().await {
        assert!(Instant::now() < until, "{what} did not happen\n{}", broker.tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn state(broker: &Broker, want: &str) {
    let is = async || {
        let sink = broker.client().sink_status().await.unwrap();
        sink["sinks"][0]["queues"][0]["state"] == want
    };
    until(broker, PATIENCE, want, is).await;
}

async fn kept(broker: &Broker) -> u64 {
    let detail = broker.client().get("/api/v1/resources/queues/orders").await.unwrap().json();
    detail["messages"]["total"].as_u64().unwrap_or(0)
}

async fn configure(broker: &Broker, options: Value) {
    let body = json!({"queue": "orders", "options": options}).to_string();
    let answer = broker.client().post("/api/v1/configure", body).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// What the manifests list: partition, first, last, reason.
async fn listed(s3: &Seaweed) -> Vec<(String, u64, u64, String)> {
    let bucket = queen_sim::process::bucket(&s3.endpoint()).unwrap();
    let files = queen_sim::lake::Files::of_bucket(&bucket).await.unwrap();
    let manifests = files.0.iter().filter(|(key, _)| key.contains("/windows/"));
    let mut all = Vec::new();
    for (_, bytes) in manifests {
        let manifest: Value = serde_json::from_slice(bytes).unwrap();
        for range in manifest["lost"].as_array().unwrap() {
            assert!(range["incarnation"].as_u64().is_some_and(|id| id > 0), "{range}");
            let text = |name: &str| range[name].as_str().unwrap().to_owned();
            let number = |name: &str| range[name].as_u64().unwrap();
            all.push((text("partition"), number("from"), number("to"), text("reason")));
        }
    }
    all
}

/// Waits until each record is in the lake or listed; nothing else may be wrong.
async fn whole(s3: &Seaweed, broker: &Broker, expected: &Expected) {
    let (_, report) = whole_lake(&s3.endpoint(), expected, PATIENCE).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
}

fn lost(partition: &str, from: u64, to: u64, reason: &str) -> (String, u64, u64, String) {
    (partition.to_owned(), from, to, reason.to_owned())
}

#[tokio::test]
async fn what_retention_took_while_the_sink_was_off_is_listed_and_later_windows_flow() {
    let s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let mut expected = Expected::new();
    // The sink has been on once, before there was a queue.
    let mut broker = with_sink(&setup, &s3).start().await.unwrap();
    state(&broker, "missing").await;
    broker.stop().await.unwrap();
    let mut broker = setup.start().await.unwrap();
    configure(&broker, json!({"retentionEnabled": true, "retentionSeconds": 1})).await;
    for _ in 0..10 {
        for partition in ["a", "b"] {
            push(&broker, &mut expected, partition, 500).await;
        }
    }
    until(&broker, PATIENCE, "retention", async || kept(&broker).await == 0).await;
    broker.stop().await.unwrap();
    let mut broker = with_sink(&setup, &s3).start().await.unwrap();
    whole(&s3, &broker, &expected).await;
    let want = [lost("a", 0, 4999, "retention"), lost("b", 0, 4999, "retention")];
    assert_eq!(listed(&s3).await, want);
    configure(&broker, json!({"retentionEnabled": false})).await;
    push(&broker, &mut expected, "a", 7).await;
    whole(&s3, &broker, &expected).await;
    assert_eq!(listed(&s3).await, want, "listed once");
    let sink = broker.client().sink_status().await.unwrap();
    let line = &sink["sinks"][0]["queues"][0];
    assert_eq!((&line["recordsLost"], &line["gaps"]), (&json!(10_000), &json!(2)), "{line}");
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

#[tokio::test]
async fn of_a_queue_deleted_while_the_bucket_is_down_the_rest_is_lost_and_the_next_one_goes_on() {
    let mut s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = with_sink(&Setup::new(dir.path()), &s3);
    let mut broker = setup.start().await.unwrap();
    let mut expected = Expected::new();
    push(&broker, &mut expected, "old", 1).await;
    whole(&s3, &broker, &expected).await;
    s3.stop().unwrap();
    push(&broker, &mut expected, "old", 3).await;
    state(&broker, "upload").await;
    push(&broker, &mut expected, "old", 2).await;
    broker.client().delete("/api/v1/resources/queues/orders").await.unwrap();
    push(&broker, &mut expected, "new", 2).await;
    broker.kill().unwrap();
    let mut broker = setup.start().await.unwrap();
    s3.begin().await.unwrap();
    whole(&s3, &broker, &expected).await;
    assert_eq!(listed(&s3).await, [lost("old", 4, 5, "deleted")]);
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

/// Bytes of segment files below a folder.
fn log_bytes(folder: &std::path::Path) -> u64 {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        // A file may be unlinked while we look.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { log_bytes(&entry.path()) } else { metadata.len() };
    }
    bytes
}

#[tokio::test]
async fn a_bucket_gone_in_the_middle_of_a_window_costs_that_window_and_not_the_disk() {
    const SEGMENT: u64 = 64 << 20;
    let mut s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = with_sink(&Setup::new(dir.path()), &s3).with([("RETENTION_INTERVAL", "200")]);
    let mut broker = setup.start().await.unwrap();
    let mut expected = Expected::new();
    push(&broker, &mut expected, "a", 1).await;
    whole(&s3, &broker, &expected).await;
    s3.stop().unwrap();
    push(&broker, &mut expected, "a", 3).await;
    state(&broker, "upload").await;
    // Three segments behind the window that is begun.
    let item = Item {
        queue: "orders".to_owned(),
        partition: "b".to_owned(),
        transaction_id: None,
        payload: format!("\"{}\"", "x".repeat(2 << 20)),
    };
    for _ in 0..80 {
        let pushed = broker.client().push(std::slice::from_ref(&item)).await.unwrap().remove(0);
        expected.accepted.push(Accepted {
            queue: item.queue.clone(),
            partition: item.partition.clone(),
            offset: pushed.offset.unwrap(),
            transaction_id: pushed.transaction_id,
            payload: item.payload.clone().into_bytes(),
        });
    }
    let log = folder(dir.path(), "queues").unwrap();
    assert!(log_bytes(&log) > 2 * SEGMENT, "{}", log_bytes(&log));
    configure(&broker, json!({"retentionEnabled": true, "retentionSeconds": 1})).await;
    let gone = async || log_bytes(&log) <= SEGMENT;
    until(&broker, PATIENCE, "the space behind the window", gone).await;
    let entry = json!({"entries": [{"queue": "orders", "partition": "b", "offset": 0}]});
    let answer = broker.client().post("/api/v1/fetch", entry.to_string()).await.unwrap();
    assert!(answer.text.contains("OFFSET_OUT_OF_RANGE"), "{}", answer.text);
    broker.kill().unwrap();
    let mut broker = setup.start().await.unwrap();
    s3.begin().await.unwrap();
    whole(&s3, &broker, &expected).await;
    let listed = listed(&s3).await;
    assert!(listed.iter().all(|(partition, ..)| partition == "b"), "{listed:?}");
    let last = listed.iter().map(|(_, _, to, _)| *to).max();
    assert_eq!(last, Some(79), "{listed:?}");
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}

/// The folder of this name.
fn folder(within: &std::path::Path, name: &str) -> Option<std::path::PathBuf> {
    let entries = std::fs::read_dir(within).ok()?.flatten().map(|entry| entry.path());
    let folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    let here = folders.iter().find(|path| path.ends_with(name)).cloned();
    here.or_else(|| folders.iter().find_map(|path| folder(path, name)))
}

#[tokio::test]
async fn a_hold_is_warned_of_before_its_cap_then_ends_and_the_loss_is_listed() {
    let mut s3 = Seaweed::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let setup = with_sink(&Setup::new(dir.path()), &s3).with([("RETENTION_INTERVAL", "200")]);
    let mut broker = setup.start().await.unwrap();
    let mut expected = Expected::new();
    push(&broker, &mut expected, "a", 1).await;
    whole(&s3, &broker, &expected).await;
    // The shortest cap, 60 s: the warning comes at six sevenths of it.
    let hold = json!({"retentionEnabled": true, "retentionSeconds": 1, "retentionSinkHold": "default",
        "retentionSinkHoldMaxSeconds": 60});
    configure(&broker, hold).await;
    let copied = async || kept(&broker).await == 0;
    until(&broker, PATIENCE, "retention of what is copied", copied).await;
    broker.stop().await.unwrap();
    s3.stop().unwrap();
    // Without its sink nothing is pinned.
    let without = Setup::new(dir.path()).with([("RETENTION_INTERVAL", "200")]);
    let mut broker = without.start().await.unwrap();
    let pushed = Instant::now();
    push(&broker, &mut expected, "a", 4).await;
    let says = async |broker: &Broker, text: &str, patience: u64| {
        let patience = Duration::from_secs(patience);
        until(broker, patience, text, async || broker.output().contains(text)).await;
        pushed.elapsed().as_secs()
    };
    says(&broker, "retention waits for the sink", 30).await;
    let warned = says(&broker, "a hold ends soon", 80).await;
    assert_eq!(kept(&broker).await, 4, "warned while they are there");
    assert!((51..60).contains(&warned), "{warned}");
    says(&broker, "a hold has ended", 30).await;
    until(&broker, PATIENCE, "the end of the hold", async || kept(&broker).await == 0).await;
    assert!(pushed.elapsed().as_secs() >= 60);
    broker.stop().await.unwrap();
    s3.begin().await.unwrap();
    let mut broker = with_sink(&setup, &s3).start().await.unwrap();
    whole(&s3, &broker, &expected).await;
    assert_eq!(listed(&s3).await, [lost("a", 1, 4, "retention")]);
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
}
