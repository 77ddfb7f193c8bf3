//! Where a copy begins.

use crate::scene::*;
use queen_core::sink::{RowKind, row_key};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn latest_skips_what_was_there_and_copies_new_queues_whole() {
    let world = world();
    world.broker.push(ORDERS, &[("old", "1")]);
    let all = settings(&[("QUEUES", "*"), ("START", "latest")]);
    let one = start(&world, all.clone(), &Arc::default());
    let row = row_key("default", ORDERS, RowKind::Start);
    until("the start row", || world.broker.row(&row).is_some()).await;
    drop(one);
    // Written while no sink runs: the start is durable, so it is copied.
    let log = world.broker.push(ORDERS, &[("new", "2")]);
    let late = world.broker.push("late", &[("p", "3")]);
    let _two = start(&world, all, &Arc::default());
    all_there(&world, 1).await;
    until("the new queue", || committed_of(&world, "late").is_some()).await;
    assert_eq!(committed_of(&world, "late").unwrap().records, late.len() as u64);
    let files = world.store.objects();
    let orders: Vec<&String> = files.keys().filter(|key| key.contains("queue=orders/dt")).collect();
    let [key] = orders[..] else { panic!("{orders:?}") };
    let text = zstd::stream::decode_all(&files[key].bytes[..]).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert_eq!(text.lines().count(), 1);
    assert!(text.contains(&log[0].transaction_id), "{text}");
}

#[tokio::test(start_paused = true)]
async fn earliest_starts_at_the_first_record_that_is_kept() {
    let world = world();
    world.broker.push(ORDERS, &[("p", "1")]);
    tokio::time::sleep(Duration::from_secs(60)).await;
    let log = world.broker.push(ORDERS, &[("p", "2")]);
    expire(&world, ORDERS, Duration::from_secs(30));
    let _owner = plain(&world);
    all_there(&world, 1).await;
    check_whole(&world, &log);
}

#[tokio::test(start_paused = true)]
async fn latest_of_a_named_queue_counts_from_the_first_start_however_often_it_restarts() {
    let world = world();
    let latest = settings(&[("START", "latest")]);
    let one = start(&world, latest.clone(), &Arc::default());
    until("missing", || state(&one) == "missing").await;
    drop(one);
    let mut log = world.broker.push(ORDERS, &[("p", "1")]);
    let two = start(&world, latest.clone(), &Arc::default());
    until("filling", || state(&two) == "filling").await;
    drop(two);
    log.extend(world.broker.push(ORDERS, &[("p", "2")]));
    let _three = start(&world, latest, &Arc::default());
    all_there(&world, 2).await;
    check_whole(&world, &log);
}

#[tokio::test(start_paused = true)]
async fn a_bucket_ahead_of_the_broker_is_left_alone() {
    let world = world();
    let empty = world.broker.backup();
    let log = fill(&world, 0);
    let one = plain(&world);
    all_there(&world, log.len()).await;
    drop(one);
    world.broker.restore(empty);
    fill(&world, 0);
    let before = world.store.keys();
    let two = plain(&world);
    until("diverged", || state(&two) == "diverged").await;
    let line = two.queue(ORDERS);
    let said = line["lastError"]["message"].as_str().unwrap();
    assert!(said.contains("windows/0000000001.json exists"), "{line}");
    tokio::time::sleep(Duration::from_secs(200)).await;
    assert_eq!(world.store.keys(), before);
    assert_eq!(world.broker.row(&row_key("default", ORDERS, RowKind::Intent)), None);
}

#[tokio::test(start_paused = true)]
async fn a_window_begun_before_a_backup_is_not_finished_in_a_bucket_that_has_more() {
    let world = world();
    let behind = Arc::new(Mutex::new(None));
    let script = Arc::new(Script::default());
    let (broker, kept) = (world.broker.clone(), behind.clone());
    let backup = move || *kept.lock().unwrap() = Some(broker.backup());
    script.before_write(&row_key("default", ORDERS, RowKind::Committed), 2, backup);
    // An owner that writes no files of hours.
    let one = start(&world, settings(&[("ALIGN", "none")]), &script);
    for records in 1..=3 {
        world.broker.push(ORDERS, &[("p", "1")]);
        all_there(&world, records).await;
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    drop(one);
    world.broker.restore(behind.lock().unwrap().take().unwrap());
    let before = world.store.keys();
    assert!(before.iter().all(|key| !key.contains("/hours/")), "{before:?}");
    let two = plain(&world);
    until("diverged", || state(&two) == "diverged").await;
    assert_eq!(world.store.keys(), before);
}
