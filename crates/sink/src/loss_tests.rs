//! Loss over simulated broker and bucket: what is not in the lake is listed, once.

use super::*;
use crate::host::{Place, ScanFrom};
use crate::window::{Closed, Window};
use queen_core::QueueId;
use queen_core::sink::{LossReason, LostRange};

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
async fn seen(broker: &Arc<SimBroker>, store: &SimStore) {
    let owner = Owner::plain(broker, store);
    until("filling", || owner.state() == "filling").await;
}

async fn window(broker: &SimBroker, k: u64) {
    until("the window", || committed(broker).is_some_and(|c| c.k == k)).await;
}

#[tokio::test(start_paused = true)]
async fn what_retention_took_while_the_sink_was_off_is_listed_and_windows_flow() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    seen(&broker, &store).await;
    for _ in 0..50 {
        broker.push(id, &[("a", "1"), ("b", "2"), ("a", "3")]);
    }
    broker.trim(id, usize::MAX);
    let owner = Owner::plain(&broker, &store);
    let begun = tokio::time::Instant::now();
    window(&broker, 1).await;
    assert!(begun.elapsed() < Duration::from_secs(12), "within the window's age");
    let want =
        [lost("a", id, 0..100, LossReason::Retention), lost("b", id, 0..50, LossReason::Retention)];
    assert_eq!(check_lake(&store, &[]), want);
    assert_eq!(store.objects().len(), 1, "a manifest and no data");
    until("filling", || owner.state() == "filling").await;
    let line = owner.queue();
    assert_eq!((&line["recordsLost"], &line["gaps"]), (&150.into(), &2.into()));
    assert_eq!((&line["recordsLostWaiting"], &line["lagSeconds"]), (&0.into(), &0.0.into()));
    let log = broker.push(id, &[("a", "4")]);
    window(&broker, 2).await;
    assert_eq!(check_lake(&store, &log), want);
    let mut out = String::new();
    let context = &owner.shared.context;
    context.metrics.write(&mut out, &context.board.lines(context.host.now()), 0, Some(true));
    assert!(out.contains("queen_s3_records_lost_total{queue=\"orders\"} 150\n"), "{out}");
}

#[tokio::test(start_paused = true)]
async fn loss_goes_with_the_next_window_that_has_records() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    seen(&broker, &store).await;
    broker.push(id, &[("a", "1")]);
    broker.trim(id, 1);
    let log = broker.push(id, &[("a", "2")]);
    let _owner = Owner::plain(&broker, &store);
    window(&broker, 1).await;
    assert_eq!(check_lake(&store, &log), [lost("a", id, 0..1, LossReason::Retention)]);
}

#[tokio::test(start_paused = true)]
async fn records_trimmed_out_of_an_open_window_are_listed_in_it() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    broker.push(id, &[("a", "1")]);
    let _owner = Owner::plain(&broker, &store);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let log = broker.push(id, &[("a", "2")]);
    broker.trim(id, 1);
    window(&broker, 1).await;
    assert_eq!(check_lake(&store, &log), [lost("a", id, 0..1, LossReason::Retention)]);
}

#[tokio::test(start_paused = true)]
async fn a_queue_deleted_while_the_sink_was_off_is_lost_and_the_next_one_goes_on() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let old = broker.create("orders");
    let mut log = broker.push(old, &[("a", "1")]);
    let one = Owner::plain(&broker, &store);
    window(&broker, 1).await;
    drop(one);
    broker.push(old, &[("a", "2"), ("b", "3")]);
    broker.delete(old);
    let new = broker.create("orders");
    log.extend(broker.push(new, &[("a", "4")]));
    let _two = Owner::plain(&broker, &store);
    window(&broker, 2).await;
    let want =
        [lost("a", old, 1..2, LossReason::Deleted), lost("b", old, 0..1, LossReason::Deleted)];
    assert_eq!(check_lake(&store, &log), want);
}

#[tokio::test(start_paused = true)]
async fn the_loss_of_a_queue_that_stays_deleted_is_listed_too() {
    for queues in ["orders", "*"] {
        let (broker, store) = (SimBroker::new(), SimStore::default());
        let id = broker.create("orders");
        let settings = settings(&[("QUEUES", queues)]);
        let one = Owner::start(&broker, &store, settings.clone(), Arc::default());
        until("filling", || one.state() == "filling").await;
        broker.push(id, &[("a", "1")]);
        if queues == "*" {
            drop(one);
            broker.delete(id);
            let two = Owner::start(&broker, &store, settings, Arc::default());
            window(&broker, 1).await;
            until("no line", || two.queue().is_null()).await;
        } else {
            broker.delete(id);
            window(&broker, 1).await;
            until("missing", || one.state() == "missing").await;
        }
        assert_eq!(check_lake(&store, &[]), [lost("a", id, 0..1, LossReason::Deleted)]);
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_queue_deleted_in_the_middle_of_an_upload_the_window_is_kept_and_the_rest_lost() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let old = broker.create("orders");
    let mut log = broker.push(old, &[("a", "1")]);
    let owner = Owner::plain(&broker, &store);
    until("filling", || owner.state() == "filling").await;
    store.fail(Some(ErrorKind::Unreachable));
    until("upload", || owner.state() == "upload").await;
    broker.push(old, &[("a", "2"), ("b", "3")]);
    broker.delete(old);
    let new = broker.create("orders");
    log.extend(broker.push(new, &[("a", "4")]));
    tokio::time::sleep(Duration::from_secs(90)).await;
    store.fail(None);
    window(&broker, 2).await;
    let want =
        [lost("a", old, 1..2, LossReason::Deleted), lost("b", old, 0..1, LossReason::Deleted)];
    assert_eq!(check_lake(&store, &log), want);
}

#[tokio::test(start_paused = true)]
async fn a_window_whose_queue_was_deleted_before_its_intent_is_all_loss() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    seen(&broker, &store).await;
    let first = broker.push(id, &[("a", "1")])[0].stamp;
    let owner = Owner::start(&broker, &store, settings(&[("QUEUES", "other")]), Arc::default());
    let context = &owner.shared.context;
    let host = context.host.clone();
    let page = host.timeline(id, ScanFrom::Stamp(Stamp(0)), 9).unwrap();
    let planned = Window {
        queue: id,
        t_start: Stamp(first),
        t_end: Stamp(first + 1),
        first: Stamp(first),
        from: Place::default(),
        to: page.next,
        records: 1,
        weight: 1,
        shape: Default::default(),
        why: Closed::Size,
    };
    broker.delete(id);
    let key = format!("{ORDERS}:lease");
    let crate::lease::Claim::Held(lease) = crate::lease::Lease::claim(
        &host,
        &key,
        &context.settings.instance,
        Duration::from_secs(30),
    )
    .await
    else {
        panic!("nobody else is there")
    };
    let mut progress = crate::commit::Progress::load(context, "orders").await.unwrap();
    progress.commit(context, &lease, &planned, None, &tokio::sync::Notify::new()).await.unwrap();
    assert_eq!(check_lake(&store, &[]), [lost("a", id, 0..1, LossReason::Deleted)]);
}

#[tokio::test(start_paused = true)]
async fn more_loss_than_one_window_lists_goes_to_the_windows_after_it() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    broker.list_at_most(3);
    let id = broker.create("orders");
    seen(&broker, &store).await;
    let names: Vec<String> = (0..8).map(|n| format!("p{n}")).collect();
    for name in &names {
        broker.push(id, &[(name, "1")]);
    }
    broker.delete(id);
    let _owner = Owner::plain(&broker, &store);
    window(&broker, 3).await;
    let want: Vec<LostRange> =
        names.iter().map(|name| lost(name, id, 0..1, LossReason::Deleted)).collect();
    assert_eq!(check_lake(&store, &[]), want);
    assert_eq!(committed(&broker).unwrap().gaps, 8);
}

/// Retention and deletions between the rounds of one owner with a fault, then another owner; whether
/// the fault was reached.
async fn lose_and_take_over(at: usize, fault: Fault) -> bool {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let mut id = broker.create("orders");
    let mut log = fill(&broker, id, 0);
    let mut ids = vec![id];
    seen(&broker, &store).await;
    let one = Owner::start(&broker, &store, settings(&[]), Faults::at(at, fault));
    let mut died = false;
    for round in 1..5 {
        tokio::select! {
            () = one.faults.died(), if !died => died = true,
            () = tokio::time::sleep(Duration::from_secs(7)) => {}
        }
        log.extend(fill(&broker, id, round));
        broker.trim(id, round);
        if round == 3 {
            broker.delete(id);
            id = broker.create("orders");
            ids.push(id);
        }
    }
    tokio::select! {
        () = one.faults.died(), if !died => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => {}
    }
    let ended = one.faults.count() <= at;
    drop(one);
    let two = Owner::start(&broker, &store, settings(&[("INSTANCE", "two")]), Arc::default());
    tokio::time::sleep(Duration::from_secs(90)).await;
    store.deliver_late();
    drop(two);
    check_each_once(&store, &log, &ids);
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
async fn latest_of_a_named_queue_counts_from_the_first_start_however_often_it_restarts() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let latest = settings(&[("START", "latest")]);
    let one = Owner::start(&broker, &store, latest.clone(), Arc::default());
    until("missing", || one.state() == "missing").await;
    drop(one);
    let id = broker.create("orders");
    let mut log = broker.push(id, &[("p", "1")]);
    let two = Owner::start(&broker, &store, latest.clone(), Arc::default());
    until("filling", || two.state() == "filling").await;
    drop(two);
    log.extend(broker.push(id, &[("p", "2")]));
    let _three = Owner::start(&broker, &store, latest, Arc::default());
    all_there(&broker, 2).await;
    check_lake(&store, &log);
}

#[tokio::test(start_paused = true)]
async fn a_queue_born_and_trimmed_before_the_sink_of_all_queues_sees_it_is_listed() {
    for (start, k) in [("latest", 1), ("earliest", 1)] {
        let (broker, store) = (SimBroker::new(), SimStore::default());
        let all = settings(&[("QUEUES", "*"), ("START", start)]);
        let one = Owner::start(&broker, &store, all.clone(), Arc::default());
        until("on", || broker.row("s3:default:on").is_some()).await;
        drop(one);
        let id = broker.create("orders");
        broker.push(id, &[("p", "1"), ("p", "2")]);
        broker.trim(id, 1);
        let _two = Owner::start(&broker, &store, all, Arc::default());
        window(&broker, k).await;
        assert_eq!(check_lake(&store, &[]), [lost("p", id, 0..2, LossReason::Retention)]);
    }
}
