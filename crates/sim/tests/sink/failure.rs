//! Buckets that fail, for minutes and hours.

use crate::scene::*;
use queen_core::sink::{RowKind, row_key};
use queen_sink::Wish;
use queen_sink::bucket::ErrorKind;
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[tokio::test(start_paused = true)]
async fn a_bucket_that_refuses_is_shown_and_waited_for() {
    let world = world();
    world.store.fail(Some(ErrorKind::WrongSecret));
    let log = world.broker.push(ORDERS, &[("p", "1")]);
    let owner = plain(&world);
    until("failed", || state(&owner) == "failed").await;
    assert_eq!(owner.queue(ORDERS)["lastError"]["message"], "the bucket is wrong_secret");
    assert_eq!(owner.sink.status(false)["sinks"][0]["bucket"]["kind"], "wrong_secret");
    world.store.fail(Some(ErrorKind::Unreachable));
    sleep(Duration::from_secs(120)).await;
    let lag = || owner.queue(ORDERS)["lagSeconds"].as_f64().unwrap();
    let before = lag();
    sleep(Duration::from_secs(30)).await;
    assert!(lag() > before + 29.0, "the lag climbs while stuck");
    assert!(owner.sink.healthy().is_err());
    world.store.fail(None);
    all_there(&world, 1).await;
    check_whole(&world, &log);
    until("health", || owner.sink.healthy().is_ok()).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_does_not_wait_for_a_bucket_that_is_down() {
    let world = world();
    let log = world.broker.push(ORDERS, &[("p", "1")]);
    let one = plain(&world);
    until("filling", || state(&one) == "filling").await;
    world.store.fail(Some(ErrorKind::Unreachable));
    until("upload", || state(&one) == "upload").await;
    sleep(Duration::from_secs(1)).await;
    one.sink.wish(Wish::Drain);
    let told = Instant::now();
    until("the end", || one.ended()).await;
    assert!(told.elapsed() < Duration::from_secs(2));
    assert_eq!(world.broker.row(&row_key("default", ORDERS, RowKind::Lease)), None);
    world.store.fail(None);
    let _two = plain(&world);
    all_there(&world, 1).await;
    check_whole(&world, &log);
}

/// An hour or so of a bucket that fails; gives the requests that failed meanwhile.
async fn long_failure(kind: ErrorKind, time: Duration) -> u64 {
    let world = world();
    world.broker.configure(ORDERS, 0);
    let owner = plain(&world);
    let mut log = world.broker.push(ORDERS, &[("p", "1")]);
    all_there(&world, 1).await;
    world.store.fail(Some(kind));
    let (begun, mut lag) = (Instant::now(), 0.0);
    while begun.elapsed() < time {
        log.extend(world.broker.push(ORDERS, &[("p", "2"), ("q", "{}")]));
        sleep(Duration::from_secs(60)).await;
        let line = owner.queue(ORDERS);
        assert_eq!(committed(&world).unwrap().records, 1, "the pointer stands: {line}");
        let now = line["lagSeconds"].as_f64().unwrap();
        assert!(now > lag + 50.0, "the lag grows with the time: {lag}, {line}");
        lag = now;
        let said = line["lastError"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(kind.word()), "{line}");
    }
    let failed = ["put", "get", "head"].map(|op| {
        let sample =
            format!("queen_s3_s3_requests_total{{op=\"{op}\",result=\"{}\"}}", kind.word());
        metric(&owner, &sample).unwrap_or_default()
    });
    world.store.fail(None);
    all_there(&world, log.len()).await;
    check_whole(&world, &log);
    failed.iter().sum()
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
