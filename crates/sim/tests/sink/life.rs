//! From the first window to the drain: what an owner does when nothing fails.

use crate::scene::*;
use queen_core::sink::{Manifest, RowKind, row_key};
use queen_sim::twin::{Owner, World};
use queen_sink::Wish;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

fn leased(world: &World) -> bool {
    world.broker.row(&row_key("default", ORDERS, RowKind::Lease)).is_some()
}

#[tokio::test(start_paused = true)]
async fn the_demo_of_the_seed_gives_one_window() {
    let world = world();
    let owner = plain(&world);
    until("missing", || state(&owner) == "missing").await;
    let log = world.broker.push(
        ORDERS,
        &[
            ("cust-1", r#"{"order":1,"status":"new","total":42.00}"#),
            ("cust-2", r#"{"order":2,"status":"new","total":17.50}"#),
            ("cust-1", r#"{"order":1,"status":"paid","total":42.00}"#),
        ],
    );
    let pushed = Instant::now();
    all_there(&world, 3).await;
    let took = pushed.elapsed();
    assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(12), "{took:?}");
    until("filling", || state(&owner) == "filling").await;
    let line = owner.queue(ORDERS);
    assert_eq!(
        (&line["k"], &line["windowsCommitted"], &line["records"], &line["lagSeconds"]),
        (&1.into(), &1.into(), &3.into(), &0.0.into())
    );
    let keys = world.store.keys();
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
    check_whole(&world, &log);
    assert_eq!(world.store.objects()[&keys[1]].versions.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_hour_is_closed_without_a_later_push() {
    let world = world();
    world.broker.push(ORDERS, &[("p", "1")]);
    let _owner = plain(&world);
    all_there(&world, 1).await;
    sleep(Duration::from_secs(36 * 60)).await;
    let written =
        || world.store.keys().into_iter().find(|key| key.ends_with("/hours/2026-10-24T10.json"));
    until("the hour file", || written().is_some()).await;
    let (hour, _) = world.store.get(&written().unwrap()).unwrap();
    let text = std::str::from_utf8(&hour).unwrap();
    assert!(
        text.contains("\"windows\":1,\"records\":1,") && text.ends_with("\"complete\":true}"),
        "{text}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_lag_is_the_age_of_the_oldest_record_that_waits_and_nothing_when_none_does() {
    let world = world();
    world.broker.configure(ORDERS, 0);
    let owner = plain(&world);
    until("a claim", || state(&owner) == "filling").await;
    let lag = || owner.queue(ORDERS)["lagSeconds"].as_f64().unwrap();
    for records in [1, 2] {
        world.broker.push(ORDERS, &[("p", "1")]);
        let mut highest: f64 = 0.0;
        until("the record in the bucket", || {
            highest = highest.max(lag());
            committed(&world).is_some_and(|c| c.records == records)
        })
        .await;
        assert!((9.0..12.0).contains(&highest), "up to the window's age: {highest}");
        until("filling", || state(&owner) == "filling").await;
        // Idle for more than an hour, and past the end of one.
        for _ in 0..400 {
            assert_eq!(lag(), 0.0);
            sleep(Duration::from_secs(10)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_made_anew_goes_on_with_pointer_and_number() {
    let world = world();
    let mut log = world.broker.push(ORDERS, &[("p", "1")]);
    let owner = plain(&world);
    all_there(&world, 1).await;
    world.broker.delete(ORDERS);
    until("missing", || state(&owner) == "missing").await;
    log.extend(world.broker.push(ORDERS, &[("anew", "2")]));
    all_there(&world, 2).await;
    assert_eq!(committed(&world).unwrap().k, 2);
    check_whole(&world, &log);
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_the_lease_back_at_once() {
    let world = world();
    world.broker.push(ORDERS, &[("p", "1")]);
    let one = plain(&world);
    until("filling", || state(&one) == "filling").await;
    assert!(leased(&world));
    one.sink.wish(Wish::Drain);
    until("the end", || one.ended()).await;
    assert!(!leased(&world));
    assert_eq!(state(&one), "drained");
}

#[tokio::test(start_paused = true)]
async fn of_all_queues_the_deleted_ones_leave_no_line() {
    let world = world();
    let owner = start(&world, settings(&[("QUEUES", "*")]), &Arc::default());
    world.broker.configure(ORDERS, 0);
    until("filling", || state(&owner) == "filling").await;
    world.broker.delete(ORDERS);
    until("no line", || owner.queue(ORDERS).is_null()).await;
    let log = world.broker.push(ORDERS, &[("p", "1")]);
    all_there(&world, 1).await;
    check_whole(&world, &log);
}

#[tokio::test(start_paused = true)]
async fn of_all_queues_one_that_is_listed_and_not_there_is_tried_with_pauses() {
    let (world, script) = (world(), Arc::default());
    let _owner = start(&world, settings(&[("QUEUES", "*")]), &script);
    world.broker.list("ghost");
    sleep(Duration::from_secs(10)).await;
    // A claim and a release each time; pauses are 50 ms on average.
    let effects = script.effects();
    assert!((50..2000).contains(&effects), "{effects} effects in 10 s");
}

#[tokio::test(start_paused = true)]
async fn queues_spread_over_nodes_and_come_back() {
    let world = world();
    let names: Vec<String> = (0..4).map(|n| format!("q{n}")).collect();
    for name in &names {
        world.broker.configure(name, 0);
    }
    let node = |name: &str| {
        start(&world, settings(&[("QUEUES", "*"), ("INSTANCE", name)]), &Arc::default())
    };
    let held =
        |owner: &Owner| owner.sink.status(false)["sinks"][0]["placement"]["held"].as_u64().unwrap();
    let one = node("a");
    until("all on one node", || held(&one) == 4).await;
    let two = node("b");
    until("an even spread", || held(&one) == 2 && held(&two) == 2).await;
    sleep(Duration::from_secs(120)).await;
    assert_eq!((held(&one), held(&two)), (2, 2), "and it stays");
    drop(two);
    for name in &names {
        world.broker.push(name, &[("p", "1")]);
    }
    until("all on one node again", || held(&one) == 4).await;
    let there = |name: &String| committed_of(&world, name).is_some();
    until("every queue copied", || names.iter().all(there)).await;
}

#[tokio::test(start_paused = true)]
async fn a_backfill_makes_windows_of_the_target() {
    let world = world();
    let payload = format!("\"{}\"", "x".repeat(1000));
    let mut log = Vec::new();
    for n in 0..3000 {
        let partition = if n % 3 == 0 { "a" } else { "b" };
        log.extend(world.broker.push(ORDERS, &[(partition, &payload)]));
    }
    let _owner = start(&world, settings(&[("TARGET_MB", "1")]), &Arc::default());
    all_there(&world, log.len()).await;
    check_whole(&world, &log);
    let k = committed(&world).unwrap().k;
    assert!((4..=5).contains(&k), "{k} windows of 3.3 MB");
}

#[tokio::test(start_paused = true)]
async fn metrics_name_every_family() {
    let world = world();
    world.broker.push(ORDERS, &[("p", "1")]);
    let owner = plain(&world);
    all_there(&world, 1).await;
    let mut out = String::new();
    owner.sink.write_metrics(&mut out);
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
    let world = world();
    // The longest name there can be, one that is like it but for the end, and a short one.
    let names = [
        format!("{}aa", "\u{e9}".repeat(204)),
        format!("{}ab", "\u{e9}".repeat(204)),
        ORDERS.into(),
    ];
    for name in &names {
        world.broker.push(name, &[(name, "1")]);
    }
    let all = settings(&[("QUEUES", "*"), ("LAYOUT", "per-partition")]);
    let _owner = start(&world, all, &Arc::default());
    until("every window and its manifest", || world.store.keys().len() == 6).await;
    let mut found = BTreeSet::new();
    for (key, object) in world.store.objects() {
        assert!(key.len() <= 1024 && key.split('/').all(|part| part.len() <= 255), "{key}");
        if key.contains("/windows/") {
            let manifest = Manifest::from_json(&object.bytes).unwrap();
            assert_eq!(manifest.objects[0].partition.as_ref(), Some(&manifest.queue));
            found.insert(manifest.queue);
        }
    }
    assert_eq!(found, names.into(), "the whole names are in the manifests");
}
