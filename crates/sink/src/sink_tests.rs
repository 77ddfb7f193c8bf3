//! The whole sink over simulated broker and bucket: whatever dies, the lake equals the log.

use super::*;
use crate::bucket::ErrorKind;
use crate::encode::pieces::sha256_hex;
use crate::settings::Surroundings;
use crate::testing::{Appended, Fault, Faults, SimBroker, SimStore};
use queen_core::sink::{Committed, LostRange, Manifest};
use tokio::task::JoinHandle;

const ORDERS: &str = "s3:default:orders";

fn settings(extra: &[(&str, &str)]) -> Settings {
    let base = [
        ("EMBEDDED", "true"),
        ("QUEUES", "orders"),
        ("ENDPOINT", "http://s3:7070"),
        ("REGION", "us-east-1"),
        ("BUCKET", "lake"),
        ("ACCESS_KEY", "queen"),
        ("SECRET_KEY", "hush"),
        ("START", "earliest"),
        ("MAX_WINDOW_MS", "10000"),
    ];
    let vars: std::collections::BTreeMap<String, String> = base
        .iter()
        .chain(extra)
        .map(|(name, value)| (format!("QUEEN_S3_{name}"), (*value).to_owned()))
        .collect();
    let around = Surroundings { node: 1, host: "h".into(), cores: 2 };
    Settings::from_vars(vars, &around).unwrap().unwrap()
}

struct Owner {
    shared: Arc<SinkLoop>,
    task: JoinHandle<()>,
    faults: Arc<Faults>,
}

impl Owner {
    fn start(
        broker: &Arc<SimBroker>,
        store: &SimStore,
        settings: Settings,
        faults: Arc<Faults>,
    ) -> Owner {
        let host = broker.host(faults.clone());
        let bucket = store.bucket(faults.clone());
        let shared = Arc::new(SinkLoop::new(settings, TenantId::DEFAULT, host, bucket));
        let running = shared.clone();
        let task = tokio::spawn(async move { running.run().await });
        Owner { shared, task, faults }
    }

    fn plain(broker: &Arc<SimBroker>, store: &SimStore) -> Owner {
        Owner::start(broker, store, settings(&[]), Arc::default())
    }

    fn state(&self) -> String {
        self.queue()["state"].as_str().unwrap_or_default().to_owned()
    }

    fn queue(&self) -> serde_json::Value {
        self.shared.status(false)["sinks"][0]["queues"][0].clone()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn committed(broker: &SimBroker) -> Option<Committed> {
    broker
        .row(&format!("{ORDERS}:committed"))
        .map(|row| Committed::from_json(row.as_bytes()).unwrap())
}

/// Lets time pass until `done`, at most ten minutes of it.
async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not happen");
}

async fn all_there(broker: &SimBroker, records: usize) {
    let there = || committed(broker).is_some_and(|c| c.records == records as u64);
    until("every record in the bucket", there).await;
}

/// Reads the lake as a reader does, and holds it against the log; gives what is listed as lost.
fn check_lake(store: &SimStore, log: &[Appended]) -> Vec<LostRange> {
    let (mut lake, lost) = read_lake(store);
    let mut log = log.to_vec();
    lake.sort();
    log.sort();
    assert_eq!(lake, log, "each record once");
    lost
}

/// `loss-is-listed`: each record is in one object or in one lost range. `ids`: the incarnations of
/// the queue in the order of their creation.
fn check_each_once(store: &SimStore, log: &[Appended], ids: &[queen_core::QueueId]) {
    let (lake, lost) = read_lake(store);
    let mut seen: Vec<&Appended> = lake.iter().collect();
    for range in &lost {
        // Offsets begin anew with an incarnation: the n-th record of that name and offset.
        let nth = ids.iter().position(|id| id.0 == range.incarnation).unwrap();
        for offset in range.from..=range.to {
            let same = |a: &&Appended| a.partition == range.partition && a.offset == offset;
            let found: Vec<&Appended> = log.iter().filter(same).collect();
            // A partition that only one incarnation had is found by that alone.
            seen.push(found.get(nth).or(found.last()).unwrap());
        }
    }
    let mut log: Vec<&Appended> = log.iter().collect();
    seen.sort();
    log.sort();
    assert_eq!(seen, log, "each record once, in the lake or listed");
}

/// Holds the lake against itself; gives its records and what is listed as lost.
fn read_lake(store: &SimStore) -> (Vec<Appended>, Vec<LostRange>) {
    let mut lost = Vec::new();
    let objects = store.objects();
    let mut listed = Vec::new();
    let mut lake = Vec::new();
    let mut prev = String::new();
    let mut end = 0;
    for k in 1.. {
        let suffix = format!("/windows/{k:010}.json");
        let Some((_, object)) = objects.iter().find(|(key, _)| key.ends_with(&suffix)) else {
            break;
        };
        let manifest = Manifest::from_json(&object.bytes).unwrap();
        assert_eq!((manifest.k, &manifest.prev), (k, &prev), "manifest-chain");
        assert!(manifest.t_start >= end && manifest.t_end > manifest.t_start, "windows-tile");
        (prev, end) = (sha256_hex(&object.bytes), manifest.t_end);
        lost.extend(manifest.lost.iter().cloned());
        let mut records = 0;
        for entry in &manifest.objects {
            let data = &objects[&entry.key];
            assert_eq!(entry.bytes, data.bytes.len() as u64);
            assert_eq!((&entry.sha256, &data.sha256), (&sha256_hex(&data.bytes), &entry.sha256));
            let text = match entry.key.ends_with(".zst") {
                true => zstd::stream::decode_all(&data.bytes[..]).unwrap(),
                false => data.bytes.to_vec(),
            };
            let text = String::from_utf8(text).unwrap();
            let lines: Vec<Appended> = text.lines().map(line).collect();
            let order = |a: &Appended| (a.partition.clone(), a.offset);
            assert!(lines.is_sorted_by_key(order), "sorted by partition and offset");
            assert!(lines.iter().all(|l| l.stamp >= manifest.t_start && l.stamp < manifest.t_end));
            assert_eq!(entry.records, lines.len() as u64);
            records += entry.records;
            lake.extend(lines);
            listed.push(entry.key.clone());
        }
        assert_eq!(manifest.records, records);
        assert_eq!(manifest.ranges.iter().map(|r| r.records).sum::<u64>(), records);
    }
    let data: Vec<String> =
        objects.keys().filter(|key| !key.contains("/_queen/")).cloned().collect();
    listed.sort();
    assert_eq!(data, listed, "every data object stands in one manifest");
    for (key, object) in &objects {
        assert!(object.versions.iter().all(|v| *v == object.bytes), "{key}: same name, same bytes");
    }
    (lake, lost)
}

fn line(text: &str) -> Appended {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    let (_, payload) = text.split_once(",\"payload\":").unwrap();
    Appended {
        partition: value["partition"].as_str().unwrap().to_owned(),
        offset: value["offset"].as_u64().unwrap(),
        stamp: Stamp::parse_iso(value["ts"].as_str().unwrap()).unwrap().0,
        transaction_id: value["transactionId"].as_str().unwrap().to_owned(),
        payload: payload.strip_suffix('}').unwrap().to_owned(),
    }
}

#[tokio::test(start_paused = true)]
async fn the_demo_of_the_seed_gives_one_window() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let owner = Owner::plain(&broker, &store);
    until("missing", || owner.state() == "missing").await;
    let id = broker.create("orders");
    let log = broker.push(
        id,
        &[
            ("cust-1", r#"{"order":1,"status":"new","total":42.00}"#),
            ("cust-2", r#"{"order":2,"status":"new","total":17.50}"#),
            ("cust-1", r#"{"order":1,"status":"paid","total":42.00}"#),
        ],
    );
    let pushed = tokio::time::Instant::now();
    all_there(&broker, 3).await;
    let took = pushed.elapsed();
    assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(12), "{took:?}");
    until("filling", || owner.state() == "filling").await;
    let line = owner.queue();
    assert_eq!(
        (&line["k"], &line["windowsCommitted"], &line["records"]),
        (&1.into(), &1.into(), &3.into())
    );
    assert_eq!(line["lagSeconds"], 0.0);
    let keys = store.keys();
    assert_eq!(keys.len(), 2, "{keys:?}");
    let t_end = log[0].stamp + 10_000_000;
    assert!(
        keys[1].ends_with(&format!(
            "dt=2026-10-24/hour=10/w-0000000001-1792836000000000-{t_end}.jsonl.zst"
        )),
        "{keys:?}"
    );
    assert!(
        keys[0].contains("/_queen/") && keys[0].ends_with("/queue=orders/windows/0000000001.json")
    );
    check_lake(&store, &log);
    let object = &store.objects()[&keys[1]];
    assert_eq!(object.writes, 1);
}

#[tokio::test(start_paused = true)]
async fn an_hour_is_closed_without_a_later_push() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("p", "1")]);
    let _owner = Owner::plain(&broker, &store);
    all_there(&broker, 1).await;
    tokio::time::sleep(Duration::from_secs(36 * 60)).await;
    until("the hour file", || {
        store.keys().iter().any(|key| key.ends_with("/hours/2026-10-24T10.json"))
    })
    .await;
    let (_, hour) = store.objects().into_iter().find(|(key, _)| key.contains("/hours/")).unwrap();
    let text = std::str::from_utf8(&hour.bytes).unwrap();
    assert!(
        text.contains("\"windows\":1,\"records\":1,") && text.ends_with("\"complete\":true}"),
        "{text}"
    );
}

/// A log of several windows, one of them of several pushes, with a payload that must be wrapped.
fn fill(broker: &SimBroker, id: queen_core::QueueId, round: usize) -> Vec<Appended> {
    let mut log = broker.push(id, &[("b", "1"), ("a", "{\"x\": 2}"), ("b", "3")]);
    for n in 0..3 {
        let name = format!("part-{}", (n * 7 + round) % 5);
        log.extend(broker.push(id, &[(&name, "[4.50]"), ("a", "null")]));
    }
    log
}

/// Runs one owner with a fault, then another; gives the number of effects the first had.
async fn crash_and_take_over(at: usize, fault: Fault, same_node: bool, layout: &str) -> bool {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let mut log = fill(&broker, id, 0);
    let first = settings(&[("LAYOUT", layout)]);
    let one = Owner::start(&broker, &store, first, Faults::at(at, fault));
    let mut died = false;
    for round in 1..4 {
        tokio::select! {
            () = one.faults.died() => died = true,
            () = tokio::time::sleep(Duration::from_secs(11)) => {}
        }
        log.extend(fill(&broker, id, round));
    }
    tokio::select! {
        () = one.faults.died() => died = true,
        () = all_there(&broker, log.len()) => {}
    }
    let ended = one.faults.count() <= at;
    drop(one);
    let node = if same_node { "one" } else { "two" };
    // The next owner has other settings: a redo must not use them.
    let second = settings(&[("LAYOUT", "merged"), ("COMPRESSION", "none"), ("INSTANCE", node)]);
    let second = if died { second } else { settings(&[("INSTANCE", node)]) };
    let two = Owner::start(&broker, &store, second, Arc::default());
    all_there(&broker, log.len()).await;
    store.deliver_late();
    drop(two);
    check_lake(&store, &log);
    !ended
}

#[tokio::test(start_paused = true)]
async fn every_crash_between_two_effects_is_finished_by_the_next_owner() {
    for layout in ["merged", "per-partition"] {
        for fault in [Fault::Before, Fault::After, Fault::Late] {
            let mut at = 0;
            while crash_and_take_over(at, fault, at % 2 == 0, layout).await {
                at += 1;
                assert!(at < 200);
            }
            assert!(at >= 12, "{layout} {fault:?}: only {at} effects");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_changes_nothing() {
    let mut at = 0;
    while crash_and_take_over(at, Fault::AnswerLost, false, "merged").await {
        at += 1;
        assert!(at < 100);
    }
    assert!(at >= 12);
}

#[tokio::test(start_paused = true)]
async fn two_owners_at_once_write_each_record_once() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let mut log = fill(&broker, id, 0);
    // The same instance twice: each takes the lease from the other whenever it looks.
    let _one = Owner::plain(&broker, &store);
    let _two = Owner::plain(&broker, &store);
    let _other = Owner::start(&broker, &store, settings(&[("INSTANCE", "x")]), Arc::default());
    for round in 1..8 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        log.extend(fill(&broker, id, round));
    }
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_ahead_of_the_broker_is_left_alone() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    fill(&broker, id, 0);
    let one = Owner::plain(&broker, &store);
    all_there(&broker, 9).await;
    drop(one);
    // The broker is restored from a backup without its rows.
    let restored = SimBroker::new();
    let id = restored.create("orders");
    fill(&restored, id, 0);
    let before = store.keys();
    let two = Owner::plain(&restored, &store);
    until("diverged", || two.state() == "diverged").await;
    assert!(
        two.queue()["lastError"]["message"]
            .as_str()
            .unwrap()
            .contains("windows/0000000001.json exists")
    );
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(store.keys(), before);
    assert_eq!(restored.row(&format!("{ORDERS}:intent")), None);
}

#[tokio::test(start_paused = true)]
async fn the_lag_is_the_age_of_the_oldest_record_that_waits_and_nothing_when_none_does() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let owner = Owner::plain(&broker, &store);
    until("a claim", || owner.state() == "filling").await;
    let lag = || owner.queue()["lagSeconds"].as_f64().unwrap();
    for records in [1, 2] {
        broker.push(id, &[("p", "1")]);
        let mut highest: f64 = 0.0;
        until("the record in the bucket", || {
            highest = highest.max(lag());
            committed(&broker).is_some_and(|c| c.records == records)
        })
        .await;
        assert!((9.0..12.0).contains(&highest), "up to the window's age: {highest}");
        until("filling", || owner.state() == "filling").await;
        // Idle for more than an hour, and past the end of one.
        for _ in 0..400 {
            assert_eq!(lag(), 0.0);
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_that_refuses_is_shown_and_waited_for() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    store.fail(Some(ErrorKind::WrongSecret));
    let id = broker.create("orders");
    let log = broker.push(id, &[("p", "1")]);
    let owner = Owner::plain(&broker, &store);
    until("failed", || owner.state() == "failed").await;
    assert_eq!(owner.queue()["lastError"]["message"], "the bucket is wrong_secret");
    assert_eq!(owner.shared.status(false)["sinks"][0]["bucket"]["kind"], "wrong_secret");
    store.fail(Some(ErrorKind::Unreachable));
    tokio::time::sleep(Duration::from_secs(120)).await;
    let lag = owner.queue()["lagSeconds"].as_f64().unwrap();
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(
        owner.queue()["lagSeconds"].as_f64().unwrap() > lag + 29.0,
        "the lag climbs while stuck"
    );
    assert!(owner.shared.healthy().is_err());
    store.fail(None);
    all_there(&broker, 1).await;
    check_lake(&store, &log);
    until("health", || owner.shared.healthy().is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn a_queue_made_anew_goes_on_with_pointer_and_number() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let mut log = broker.push(id, &[("p", "1")]);
    let owner = Owner::plain(&broker, &store);
    all_there(&broker, 1).await;
    broker.delete(id);
    until("missing", || owner.state() == "missing").await;
    let id = broker.create("orders");
    log.extend(broker.push(id, &[("p", "2")]));
    all_there(&broker, 2).await;
    assert_eq!(committed(&broker).unwrap().k, 2);
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_a_deleted_queue_is_finished_from_its_pin() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let mut log = broker.push(id, &[("p", "1")]);
    // Dies right after the intent: turned on, start, lease, intent.
    let mut at = 0;
    loop {
        let one = Owner::start(&broker, &store, settings(&[]), Faults::at(at, Fault::After));
        tokio::select! {
            () = one.faults.died() => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => {}
        }
        if broker.row(&format!("{ORDERS}:intent")).is_some() {
            break;
        }
        at += 1;
    }
    assert_eq!(committed(&broker), None);
    broker.delete(id);
    let id = broker.create("orders");
    log.extend(broker.push(id, &[("p", "[]")]));
    let _two = Owner::plain(&broker, &store);
    all_there(&broker, 2).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn latest_skips_what_was_there_and_copies_new_queues_whole() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("old", "1")]);
    let all = [("QUEUES", "*"), ("START", "latest")];
    let one = Owner::start(&broker, &store, settings(&all), Arc::default());
    until("the start row", || broker.row(&format!("{ORDERS}:start")).is_some()).await;
    drop(one);
    // Written while no sink runs: the start is durable, so it is copied.
    let log = broker.push(id, &[("new", "2")]);
    let late = broker.create("late");
    broker.push(late, &[("p", "3")]);
    let _two = Owner::start(&broker, &store, settings(&all), Arc::default());
    all_there(&broker, 1).await;
    until("the new queue", || broker.row("s3:default:late:committed").is_some()).await;
    let objects = store.objects();
    let orders: BTreeSet<String> =
        objects.keys().filter(|key| key.contains("queue=orders/dt")).cloned().collect();
    assert_eq!(orders.len(), 1);
    let text = zstd::stream::decode_all(&objects[orders.first().unwrap()].bytes[..]).unwrap();
    assert_eq!(String::from_utf8(text).unwrap().lines().map(line).collect::<Vec<_>>(), log);
}

#[tokio::test(start_paused = true)]
async fn earliest_starts_at_the_first_record_that_is_kept() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("p", "1")]);
    let log = broker.push(id, &[("p", "2")]);
    broker.trim(id, 1);
    let _owner = Owner::plain(&broker, &store);
    all_there(&broker, 1).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_the_lease_back_at_once() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("p", "1")]);
    let one = Owner::plain(&broker, &store);
    until("filling", || one.state() == "filling").await;
    assert!(broker.row(&format!("{ORDERS}:lease")).is_some());
    one.shared.wish(Wish::Drain);
    until("the end", || one.task.is_finished()).await;
    assert_eq!(broker.row(&format!("{ORDERS}:lease")), None);
    assert_eq!(one.state(), "drained");
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_bucket_that_is_down() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let log = broker.push(id, &[("p", "1")]);
    let one = Owner::plain(&broker, &store);
    until("filling", || one.state() == "filling").await;
    store.fail(Some(ErrorKind::Unreachable));
    until("upload", || one.state() == "upload").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    one.shared.wish(Wish::Drain);
    let told = tokio::time::Instant::now();
    until("the end", || one.task.is_finished()).await;
    assert!(told.elapsed() < Duration::from_secs(2));
    assert_eq!(broker.row(&format!("{ORDERS}:lease")), None);
    store.fail(None);
    let _two = Owner::plain(&broker, &store);
    all_there(&broker, 1).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn of_all_queues_the_deleted_ones_leave_no_line() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let all = settings(&[("QUEUES", "*")]);
    let owner = Owner::start(&broker, &store, all, Arc::default());
    let id = broker.create("orders");
    until("filling", || owner.state() == "filling").await;
    broker.delete(id);
    until("no line", || owner.queue().is_null()).await;
    let id = broker.create("orders");
    let log = broker.push(id, &[("p", "1")]);
    all_there(&broker, 1).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn of_all_queues_one_that_is_listed_and_not_there_is_tried_with_pauses() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let owner = Owner::start(&broker, &store, settings(&[("QUEUES", "*")]), Arc::default());
    broker.list("ghost");
    tokio::time::sleep(Duration::from_secs(10)).await;
    // A claim and a release each time; pauses are 50 ms on average.
    let effects = owner.faults.count();
    assert!((50..2000).contains(&effects), "{effects} effects in 10 s");
}

#[tokio::test(start_paused = true)]
async fn queues_spread_over_nodes_and_come_back() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let queues: Vec<_> = (0..4).map(|n| broker.create(&format!("q{n}"))).collect();
    let node = |name: &str| settings(&[("QUEUES", "*"), ("INSTANCE", name)]);
    let one = Owner::start(&broker, &store, node("a"), Arc::default());
    let held = |owner: &Owner| owner.shared.spread.held();
    until("all on one node", || held(&one) == 4).await;
    let two = Owner::start(&broker, &store, node("b"), Arc::default());
    until("an even spread", || held(&one) == 2 && held(&two) == 2).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((held(&one), held(&two)), (2, 2), "and it stays");
    drop(two);
    for id in &queues {
        broker.push(*id, &[("p", "1")]);
    }
    until("all on one node again", || held(&one) == 4).await;
    let there = |n: usize| broker.row(&format!("s3:default:q{n}:committed")).is_some();
    until("every queue copied", || (0..4).all(there)).await;
}

#[tokio::test(start_paused = true)]
async fn a_backfill_makes_windows_of_the_target() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let payload = format!("\"{}\"", "x".repeat(1000));
    let mut log = Vec::new();
    for n in 0..3000 {
        log.extend(broker.push(id, &[(if n % 3 == 0 { "a" } else { "b" }, &payload)]));
    }
    let _owner = Owner::start(&broker, &store, settings(&[("TARGET_MB", "1")]), Arc::default());
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
    let k = committed(&broker).unwrap().k;
    assert!((4..=5).contains(&k), "{k} windows of 3.3 MB");
}

/// One window of 20 MiB, uncompressed; `extra` says how it goes up.
async fn large_window(extra: &[(&str, &str)]) {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    let mut log = Vec::new();
    for n in 0..20 {
        log.extend(broker.push(id, &[(if n % 3 == 0 { "a" } else { "b" }, &payload)]));
    }
    let settings = settings(&[&[("COMPRESSION", "none")], extra].concat());
    let one = Owner::start(&broker, &store, settings.clone(), Faults::at(6, Fault::After));
    tokio::select! {
        () = one.faults.died() => {}
        () = all_there(&broker, log.len()) => {}
    }
    drop(one);
    let two = Owner::start(&broker, &store, settings, Arc::default());
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
    assert_eq!(store.objects().len(), 2);
    assert_eq!(two.shared.context.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_object_goes_up_in_parts() {
    large_window(&[("MULTIPART_THRESHOLD_MB", "5")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_larger_than_the_memory_is_encoded_twice() {
    large_window(&[("MEMORY_MB", "64")]).await;
}

#[tokio::test(start_paused = true)]
async fn metrics_name_every_family() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("p", "1")]);
    let owner = Owner::plain(&broker, &store);
    all_there(&broker, 1).await;
    let mut out = String::new();
    let context = &owner.shared.context;
    context.metrics.write(&mut out, &context.board.lines(context.host.now()), 0, Some(true));
    for line in [
        "queen_s3_windows_committed_total{queue=\"orders\"} 1",
        "queen_s3_records_written_total{queue=\"orders\"} 1",
        "queen_s3_lag_seconds{queue=\"orders\"} 0",
        "queen_s3_window_records_count 1",
        "queen_s3_s3_requests_total{op=\"put\",result=\"ok\"} 2",
    ] {
        assert!(out.lines().any(|l| l == line), "{line} in\n{out}");
    }
    let tables = [queen_core::metric::sink::ALL];
    assert_eq!(queen_core::metric::faults_of_page(&out, &tables), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn long_names_are_copied_under_short_ones() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    // The longest name there can be, one that is like it but for the end, and a short one.
    let names = [
        format!("{}aa", "\u{e9}".repeat(204)),
        format!("{}ab", "\u{e9}".repeat(204)),
        "orders".into(),
    ];
    for name in &names {
        let id = broker.create(name);
        broker.push(id, &[(name, "1")]);
    }
    let all = settings(&[("QUEUES", "*"), ("LAYOUT", "per-partition")]);
    let _owner = Owner::start(&broker, &store, all, Arc::default());
    until("every window and its manifest", || store.keys().len() == 6).await;
    let mut found = BTreeSet::new();
    for (key, object) in store.objects() {
        assert!(key.len() <= 1024 && key.split('/').all(|part| part.len() <= 255), "{key}");
        if key.contains("/windows/") {
            let manifest = Manifest::from_json(&object.bytes).unwrap();
            assert_eq!(manifest.objects[0].partition.as_ref(), Some(&manifest.queue));
            found.insert(manifest.queue);
        }
    }
    assert_eq!(found, names.into(), "the whole names are in the manifests");
}

#[path = "loss_tests.rs"]
mod loss;

#[path = "ahead_tests.rs"]
mod ahead;

/// An hour or so of a bucket that fails; gives the requests that failed meanwhile.
async fn long_failure(kind: ErrorKind, time: Duration) -> u64 {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let owner = Owner::plain(&broker, &store);
    let mut log = broker.push(id, &[("p", "1")]);
    all_there(&broker, 1).await;
    store.fail(Some(kind));
    let (begun, mut lag) = (tokio::time::Instant::now(), 0.0);
    while begun.elapsed() < time {
        log.extend(broker.push(id, &[("p", "2"), ("q", "{}")]));
        tokio::time::sleep(Duration::from_secs(60)).await;
        let line = owner.queue();
        assert_eq!(committed(&broker).unwrap().records, 1, "the pointer stands: {line}");
        let now = line["lagSeconds"].as_f64().unwrap();
        assert!(now > lag + 50.0, "the lag grows with the time: {lag}, {line}");
        lag = now;
        let said = line["lastError"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(kind.word()), "{line}");
    }
    let mut metrics = String::new();
    let context = &owner.shared.context;
    context.metrics.write(&mut metrics, &context.board.lines(context.host.now()), 0, None);
    let failed = metrics.lines().filter(|line| {
        line.starts_with("queen_s3_s3_requests_total") && line.contains(kind.word())
    });
    let failed = failed.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    let failed = failed.sum();
    store.fail(None);
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
    failed
}

/// Row 12 of the public pains: endless tries, and not too many; nothing is dropped.
#[tokio::test(start_paused = true)]
async fn an_hour_of_errors_drops_nothing_and_is_met_with_patience() {
    let tries = long_failure(ErrorKind::Unreachable, Duration::from_secs(3600)).await;
    // Pauses of up to 30 s: some 240 in the hour.
    assert!((100..600).contains(&tries), "{tries} tries in an hour");
}

/// Row 10: refused for ten minutes, then everything is caught up.
#[tokio::test(start_paused = true)]
async fn ten_minutes_of_refusals_move_no_pointer_and_lose_nothing() {
    let tries = long_failure(ErrorKind::Forbidden, Duration::from_secs(600)).await;
    assert!((5..60).contains(&tries), "{tries} tries in ten minutes");
}

/// Row 60: neither the record nor those behind it wait for a release without the bug. (Parquet asks
/// of a payload only whether it is UTF-8 and begins as a wrapped one.)
#[tokio::test(start_paused = true)]
async fn a_record_that_shows_a_bug_of_the_encoder_stops_nothing() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("p", "1"), ("p", crate::encode::wrap::BUG), ("q", "2")]);
    let _owner = Owner::plain(&broker, &store);
    all_there(&broker, 3).await;
    broker.push(id, &[("p", "3")]);
    all_there(&broker, 4).await;
    let objects = store.objects();
    let manifests = objects.iter().filter(|(key, _)| key.contains("/windows/"));
    let wrapped = manifests.map(|(_, object)| Manifest::from_json(&object.bytes).unwrap().wrapped);
    assert_eq!(wrapped.collect::<Vec<_>>(), [1, 0]);
}
