//! Owners that die, and those that finish what they began.

use crate::scene::*;
use queen_core::sink::{RowKind, row_key};
use std::sync::Arc;
use std::time::Duration;

/// Runs one owner with a fault, then another; whether the fault was reached.
async fn crash_and_take_over(at: usize, fault: Fault, same_node: bool, layout: &str) -> bool {
    let world = world();
    let mut log = fill(&world, 0);
    let script = Script::at(at, fault);
    let one = start(&world, settings(&[("LAYOUT", layout)]), &script);
    for round in 1..4 {
        tokio::select! {
            () = one.died() => {}
            () = tokio::time::sleep(Duration::from_secs(11)) => {}
        }
        log.extend(fill(&world, round));
    }
    tokio::select! {
        () = one.died() => {}
        () = all_there(&world, log.len()) => {}
    }
    let (died, ended) = (one.is_dead(), script.effects() <= at);
    drop(one);
    let node = ("INSTANCE", if same_node { "one" } else { "two" });
    // The next owner has other settings: a redo must not use them.
    let second = if died { vec![("COMPRESSION", "none"), node] } else { vec![node] };
    let two = start(&world, settings(&second), &Arc::default());
    all_there(&world, log.len()).await;
    late_ones(&world).await;
    drop(two);
    check_whole(&world, &log);
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
    let world = world();
    let mut log = fill(&world, 0);
    // The same instance twice: each takes the lease from the other whenever it looks.
    let _one = plain(&world);
    let _two = plain(&world);
    let _other = start(&world, settings(&[("INSTANCE", "x")]), &Arc::default());
    for round in 1..8 {
        tokio::time::sleep(Duration::from_secs(7)).await;
        log.extend(fill(&world, round));
    }
    all_there(&world, log.len()).await;
    check_whole(&world, &log);
}

#[tokio::test(start_paused = true)]
async fn a_window_of_a_deleted_queue_is_finished_from_its_pin() {
    let world = world();
    let mut log = world.broker.push(ORDERS, &[("p", "1")]);
    let intent = row_key("default", ORDERS, RowKind::Intent);
    // Dies right after the intent: turned on, start, lease, intent.
    let mut at = 0;
    while world.broker.row(&intent).is_none() {
        let one = start(&world, settings(&[]), &Script::at(at, Fault::After));
        tokio::select! {
            () = one.died() => {}
            () = tokio::time::sleep(Duration::from_secs(60)) => {}
        }
        at += 1;
    }
    assert_eq!(committed(&world), None);
    world.broker.delete(ORDERS);
    log.extend(world.broker.push(ORDERS, &[("anew", "[]")]));
    let _two = plain(&world);
    all_there(&world, 2).await;
    check_whole(&world, &log);
}

/// One window of 20 MiB, uncompressed; `extra` says how it goes up.
async fn large_window(extra: &[(&str, &str)]) {
    let world = world();
    let payload = format!("\"{}\"", "x".repeat(1 << 20));
    let mut log = Vec::new();
    for n in 0..20 {
        let partition = if n % 3 == 0 { "a" } else { "b" };
        log.extend(world.broker.push(ORDERS, &[(partition, &payload)]));
    }
    let settings = settings(&[&[("COMPRESSION", "none")], extra].concat());
    let one = start(&world, settings.clone(), &Script::at(6, Fault::After));
    tokio::select! {
        () = one.died() => {}
        () = all_there(&world, log.len()) => {}
    }
    assert!(one.is_dead(), "in the middle of the upload");
    drop(one);
    let two = start(&world, settings, &Arc::default());
    all_there(&world, log.len()).await;
    check_whole(&world, &log);
    assert_eq!(world.store.objects().len(), 2);
    assert_eq!(memory(&two), 0);
}

#[tokio::test(start_paused = true)]
async fn a_large_object_goes_up_in_parts() {
    large_window(&[("MULTIPART_THRESHOLD_MB", "5")]).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_larger_than_the_memory_is_encoded_twice() {
    large_window(&[("MEMORY_MB", "64")]).await;
}
