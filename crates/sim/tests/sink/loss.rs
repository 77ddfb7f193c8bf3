//! Loss: what is not in the lake is listed, once.

use crate::scene::*;
use queen_core::QueueId;
use queen_core::row::lost::RANGES_MAX;
use queen_core::sink::{LossReason, LostRange, RowKind, row_key};
use queen_sim::twin::World;
use queen_sink::bucket::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

fn lost(
    partition: &str,
    id: QueueId,
    offsets: std::ops::Range<u64>,
    reason: LossReason,
) -> LostRange {
    let (from, to) = (offsets.start, offsets.end - 1);
    LostRange { partition: partition.into(), incarnation: id.0, from, to, reason }
}

/// A sink that has seen the queue and is off again.
async fn seen(world: &World) {
    let owner = plain(world);
    until("filling", || state(&owner) == "filling").await;
}

async fn window(world: &World, k: u64) {
    until("the window", || committed(world).is_some_and(|c| c.k == k)).await;
}

#[tokio::test(start_paused = true)]
async fn what_retention_took_while_the_sink_was_off_is_listed_and_windows_flow() {
    let world = world();
    let id = world.broker.configure(ORDERS, 0);
    seen(&world).await;
    for _ in 0..50 {
        world.broker.push(ORDERS, &[("a", "1"), ("b", "2"), ("a", "3")]);
    }
    sleep(2 * SECOND).await;
    expire(&world, ORDERS, SECOND);
    let owner = plain(&world);
    let begun = Instant::now();
    window(&world, 1).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "within the window's age");
    let want =
        [lost("a", id, 0..100, LossReason::Retention), lost("b", id, 0..50, LossReason::Retention)];
    assert_eq!(check(&world, &[]), want);
    assert_eq!(world.store.objects().len(), 1, "a manifest and no data");
    until("filling", || state(&owner) == "filling").await;
    let line = owner.queue(ORDERS);
    assert_eq!((&line["recordsLost"], &line["gaps"]), (&150.into(), &2.into()));
    assert_eq!((&line["recordsLostWaiting"], &line["lagSeconds"]), (&0.into(), &0.0.into()));
    let log = world.broker.push(ORDERS, &[("a", "4")]);
    window(&world, 2).await;
    assert_eq!(check(&world, &log), want);
    assert_eq!(metric(&owner, "queen_s3_records_lost_total{queue=\"orders\"}"), Some(150));
}

#[tokio::test(start_paused = true)]
async fn loss_goes_with_the_next_window_that_has_records() {
    let world = world();
    let id = world.broker.configure(ORDERS, 0);
    seen(&world).await;
    world.broker.push(ORDERS, &[("a", "1")]);
    sleep(2 * SECOND).await;
    expire(&world, ORDERS, SECOND);
    let log = world.broker.push(ORDERS, &[("a", "2")]);
    let _owner = plain(&world);
    window(&world, 1).await;
    assert_eq!(check(&world, &log), [lost("a", id, 0..1, LossReason::Retention)]);
}

#[tokio::test(start_paused = true)]
async fn records_trimmed_out_of_an_open_window_are_listed_in_it() {
    let world = world();
    let id = world.broker.configure(ORDERS, 0);
    world.broker.push(ORDERS, &[("a", "1")]);
    let _owner = plain(&world);
    sleep(Duration::from_secs(5)).await;
    let log = world.broker.push(ORDERS, &[("a", "2")]);
    expire(&world, ORDERS, SECOND);
    window(&world, 1).await;
    assert_eq!(check(&world, &log), [lost("a", id, 0..1, LossReason::Retention)]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_deleted_while_the_sink_was_off_is_lost_and_the_next_one_goes_on() {
    let world = world();
    let old = world.broker.configure(ORDERS, 0);
    let mut log = world.broker.push(ORDERS, &[("a", "1")]);
    let one = plain(&world);
    window(&world, 1).await;
    drop(one);
    world.broker.push(ORDERS, &[("a", "2"), ("b", "3")]);
    world.broker.delete(ORDERS);
    log.extend(world.broker.push(ORDERS, &[("anew", "4")]));
    let _two = plain(&world);
    window(&world, 2).await;
    let want =
        [lost("a", old, 1..2, LossReason::Deleted), lost("b", old, 0..1, LossReason::Deleted)];
    assert_eq!(check(&world, &log), want);
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_queue_that_stays_deleted_is_listed_too() {
    for queues in ["orders", "*"] {
        let world = world();
        let id = world.broker.configure(ORDERS, 0);
        let settings = settings(&[("QUEUES", queues)]);
        let one = start(&world, settings.clone(), &Arc::default());
        until("filling", || state(&one) == "filling").await;
        world.broker.push(ORDERS, &[("a", "1")]);
        if queues == "*" {
            drop(one);
            world.broker.delete(ORDERS);
            let two = start(&world, settings, &Arc::default());
            window(&world, 1).await;
            until("no line", || two.queue(ORDERS).is_null()).await;
        } else {
            world.broker.delete(ORDERS);
            window(&world, 1).await;
            until("missing", || state(&one) == "missing").await;
        }
        assert_eq!(check(&world, &[]), [lost("a", id, 0..1, LossReason::Deleted)]);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_queue_deleted_in_the_middle_of_an_upload_the_window_is_kept_and_the_rest_lost() {
    let world = world();
    let old = world.broker.configure(ORDERS, 0);
    let mut log = world.broker.push(ORDERS, &[("a", "1")]);
    let owner = plain(&world);
    until("filling", || state(&owner) == "filling").await;
    world.store.fail(Some(ErrorKind::Unreachable));
    until("upload", || state(&owner) == "upload").await;
    world.broker.push(ORDERS, &[("a", "2"), ("b", "3")]);
    world.broker.delete(ORDERS);
    log.extend(world.broker.push(ORDERS, &[("anew", "4")]));
    sleep(Duration::from_secs(90)).await;
    world.store.fail(None);
    // The log goes when the pin does, so a window after the next may have to say it.
    until("the loss", || committed(&world).is_some_and(|c| c.gaps == 2)).await;
    let want =
        [lost("a", old, 1..2, LossReason::Deleted), lost("b", old, 0..1, LossReason::Deleted)];
    assert_eq!(check(&world, &log), want);
}

#[tokio::test(start_paused = true)]
async fn a_window_whose_queue_was_deleted_before_its_intent_is_all_loss() {
    let (world, script) = (world(), Arc::<Script>::default());
    let id = world.broker.configure(ORDERS, 0);
    seen(&world).await;
    world.broker.push(ORDERS, &[("a", "1")]);
    let broker = world.broker.clone();
    let intent = row_key("default", ORDERS, RowKind::Intent);
    script.before_write(&intent, 1, move || broker.delete(ORDERS));
    let _owner = start(&world, settings(&[]), &script);
    window(&world, 1).await;
    assert_eq!(check(&world, &[]), [lost("a", id, 0..1, LossReason::Deleted)]);
}

#[tokio::test(start_paused = true)]
async fn more_loss_than_one_window_lists_goes_to_the_windows_after_it() {
    let world = world();
    let id = world.broker.configure(ORDERS, 0);
    seen(&world).await;
    let names: Vec<String> = (0..2 * RANGES_MAX + 1).map(|n| format!("p{n:05}")).collect();
    let items: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "1")).collect();
    world.broker.push(ORDERS, &items);
    world.broker.delete(ORDERS);
    while world.broker.tick_if_due() {}
    let _owner = plain(&world);
    window(&world, 3).await;
    let want: Vec<LostRange> =
        names.iter().map(|name| lost(name, id, 0..1, LossReason::Deleted)).collect();
    assert_eq!(check(&world, &[]), want);
    assert_eq!(committed(&world).unwrap().gaps, names.len() as u64);
}

/// Retention and deletions between the rounds of one owner with a fault, then another owner; whether
/// the fault was reached.
async fn lose_and_take_over(at: usize, fault: Fault) -> bool {
    let world = world();
    let mut log = fill(&world, 0);
    seen(&world).await;
    let script = Script::at(at, fault);
    let one = start(&world, settings(&[]), &script);
    for round in 1..5 {
        tokio::select! {
            () = one.died(), if !one.is_dead() => {}
            () = sleep(7 * SECOND) => {}
        }
        log.extend(fill(&world, round));
        // Some of what no window pins yet, and of what one does.
        expire(&world, ORDERS, Duration::from_secs(3 * (round as u64 % 3) + 1));
        if round == 3 {
            world.broker.delete(ORDERS);
        }
    }
    tokio::select! {
        () = one.died(), if !one.is_dead() => {}
        () = sleep(60 * SECOND) => {}
    }
    let ended = script.effects() <= at;
    drop(one);
    let two = start(&world, settings(&[("INSTANCE", "two")]), &Arc::default());
    sleep(90 * SECOND).await;
    late_ones(&world).await;
    drop(two);
    assert!(!check(&world, &log).is_empty(), "something was lost");
    !ended
}

#[tokio::test(start_paused = true)]
async fn every_crash_among_losses_leaves_each_record_in_the_lake_or_listed_once() {
    for fault in [Fault::Before, Fault::After, Fault::Late, Fault::AnswerLost] {
        let mut at = 0;
        while lose_and_take_over(at, fault).await {
            at += 1;
            assert!(at < 200);
        }
        assert!(at >= 12, "{fault:?}: only {at} effects");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_born_and_trimmed_before_the_sink_of_all_queues_sees_it_is_listed() {
    for from in ["latest", "earliest"] {
        let world = world();
        let all = settings(&[("QUEUES", "*"), ("START", from)]);
        let one = start(&world, all.clone(), &Arc::default());
        until("on", || world.broker.row("s3:default:on").is_some()).await;
        drop(one);
        let id = world.broker.configure(ORDERS, 0);
        world.broker.push(ORDERS, &[("p", "1"), ("p", "2")]);
        sleep(2 * SECOND).await;
        expire(&world, ORDERS, SECOND);
        let _two = start(&world, all, &Arc::default());
        window(&world, 1).await;
        assert_eq!(check(&world, &[]), [lost("p", id, 0..2, LossReason::Retention)]);
    }
}
