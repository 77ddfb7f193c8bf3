//! Windows encoded while the one before is on its way, and many queues on few threads.

use super::*;
use crate::turns::Kind;

/// Pushes that fill `windows` windows of 1 MiB and begin one more.
fn backlog(broker: &SimBroker, id: queen_core::QueueId, windows: usize) -> Vec<Appended> {
    let payload = format!("\"{}\"", "x".repeat(100_000));
    let mut log = Vec::new();
    for n in 0..windows * 10 + 5 {
        log.extend(broker.push(id, &[(if n % 3 == 0 { "a" } else { "b" }, &payload)]));
    }
    log
}

const PLAIN: [(&str, &str); 2] = [("TARGET_MB", "1"), ("COMPRESSION", "none")];

/// An owner with a backlog and a bucket that takes nothing, once two windows wait in memory.
async fn two_in_memory(broker: &Arc<SimBroker>, store: &SimStore) -> Owner {
    store.refuse_puts(true);
    let owner = Owner::start(broker, store, settings(&PLAIN), Arc::default());
    until("two windows", || kinds(&owner) == [Kind::Backfill, Kind::Ahead]).await;
    let context = owner.shared.context.clone();
    until("both are encoded", || (1 << 20..4 << 20).contains(&context.budget.used())).await;
    owner
}

fn kinds(owner: &Owner) -> Vec<Kind> {
    owner.shared.context.turns.given().into_iter().map(|(kind, _)| kind).collect()
}

fn ahead(owner: &Owner) -> u64 {
    owner.shared.context.metrics.ahead.load(std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_window_is_encoded_while_the_one_before_is_on_its_way() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let log = backlog(&broker, id, 4);
    let owner = two_in_memory(&broker, &store).await;
    assert!(committed(&broker).is_none(), "the first is not committed");
    let held = owner.shared.context.budget.used();
    store.slow_down(Duration::from_millis(100));
    store.refuse_puts(false);
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
    let objects = store.objects();
    let data = objects.iter().filter(|(key, _)| !key.contains("/_queen/"));
    let sizes: Vec<u64> = data.map(|(_, object)| object.bytes.len() as u64).collect();
    let two = sizes[0] + sizes[1];
    assert!(
        (two..two + (256 << 10)).contains(&held),
        "{held}: two objects of {two}, two manifests"
    );
    assert!(ahead(&owner) >= 3, "all windows but the first: {}", ahead(&owner));
    assert!(objects.values().all(|object| object.writes == 1));
    assert_eq!(owner.shared.context.budget.used(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_retention_takes_from_under_the_encoder_is_listed_and_not_in_the_lake() {
    for k in [2, 3] {
        let (broker, store) = (SimBroker::new(), SimStore::default());
        let id = broker.create("orders");
        let log = backlog(&broker, id, 4);
        // Window k was planned and encoded; it is pinned a moment too late for its first runs.
        broker.trim_before_intent(k, id, 10 * (k as usize - 1) + 4);
        let _owner = two_in_memory(&broker, &store).await;
        store.refuse_puts(false);
        until("the rest in the bucket", || {
            committed(&broker).is_some_and(|c| c.records + c.records_lost == log.len() as u64)
        })
        .await;
        assert!(committed(&broker).unwrap().records_lost > 0);
        check_each_once(&store, &log, &[id]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_made_anew_is_not_mixed_with_what_was_encoded_ahead() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let mut log = backlog(&broker, id, 3);
    let owner = two_in_memory(&broker, &store).await;
    broker.delete(id);
    let anew = broker.create("orders");
    log.extend(broker.push(anew, &[("new", "1")]));
    store.refuse_puts(false);
    until("the rest in the bucket", || {
        committed(&broker).is_some_and(|c| c.records + c.records_lost == log.len() as u64)
    })
    .await;
    check_each_once(&store, &log, &[id, anew]);
    assert_eq!(ahead(&owner), 0);
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_loses_its_lease_gives_the_memory_of_both_windows_back() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let log = backlog(&broker, id, 3);
    let one = two_in_memory(&broker, &store).await;
    // The same instance takes the lease without waiting for its end.
    let two = Owner::start(&broker, &store, settings(&PLAIN), Arc::default());
    let context = one.shared.context.clone();
    until("fenced", || one.state() == "fenced" || one.state() == "claiming").await;
    until("its memory is free", || context.budget.used() == 0).await;
    drop(one);
    store.refuse_puts(false);
    all_there(&broker, log.len()).await;
    check_lake(&store, &log);
    drop(two);
}

#[tokio::test(start_paused = true)]
async fn a_drain_commits_the_window_on_its_way_and_no_other() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    backlog(&broker, id, 3);
    let owner = Owner::start(&broker, &store, settings(&PLAIN), Arc::default());
    until("a commit", || committed(&broker).is_some()).await;
    owner.shared.wish(Wish::Drain);
    until("the end", || owner.task.is_finished()).await;
    let (done, intent) = (committed(&broker).unwrap().k, broker.row(&format!("{ORDERS}:intent")));
    let intent = queen_core::sink::Intent::from_json(intent.unwrap().as_bytes()).unwrap();
    assert_eq!(intent.k, done, "nothing was begun that is not finished");
    assert_eq!(owner.shared.context.budget.used(), 0);
}

/// Runs an owner that dies at effect `at` of a backfill, then another.
async fn backfill_and_take_over(at: usize, fault: Fault) -> bool {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    let id = broker.create("orders");
    let log = backlog(&broker, id, 3);
    let one = Owner::start(&broker, &store, settings(&PLAIN), Faults::at(at, fault));
    let died = tokio::select! {
        () = one.faults.died() => true,
        () = all_there(&broker, log.len()) => false,
    };
    drop(one);
    let second = settings(&[("TARGET_MB", "2"), ("INSTANCE", "two")]);
    let _two = Owner::start(&broker, &store, second, Arc::default());
    all_there(&broker, log.len()).await;
    store.deliver_late();
    check_lake(&store, &log);
    died
}

#[tokio::test(start_paused = true)]
async fn every_crash_in_a_backfill_is_finished_by_the_next_owner() {
    for fault in [Fault::Before, Fault::After, Fault::Late, Fault::AnswerLost] {
        let mut at = 0;
        while backfill_and_take_over(at, fault).await {
            at += 1;
            assert!(at < 100);
        }
        assert!(at >= 12 || fault == Fault::AnswerLost, "{fault:?}: only {at} effects");
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_queue_does_not_wait_behind_thirty_backfills() {
    let (broker, store) = (SimBroker::new(), SimStore::default());
    store.slow_down(Duration::from_millis(500));
    let queues: Vec<_> = (0..50).map(|n| broker.create(&format!("q{n:02}"))).collect();
    let mut records = vec![0; queues.len()];
    for (n, id) in queues.iter().enumerate().take(30) {
        records[n] = backlog(&broker, *id, 6).len() as u64;
    }
    let all = [("QUEUES", "*"), ("THREADS", "1"), ("MAX_WINDOW_MS", "100")];
    let owner =
        Owner::start(&broker, &store, settings(&[&PLAIN[..], &all].concat()), Arc::default());
    let done = |n: usize| {
        let row = broker.row(&format!("s3:default:q{n:02}:committed"));
        row.map_or(0, |row| Committed::from_json(row.as_bytes()).unwrap().records)
    };
    let live = *queues.last().unwrap();
    let backfills_end = || (0..30).all(|n| done(n) == records[n]);
    let mut pushed = 0;
    while !backfills_end() {
        broker.push(live, &[("p", "1")]);
        pushed += 1;
        let begun = tokio::time::Instant::now();
        until("the live record", || done(49) == pushed).await;
        // Age, tick, data, manifest; nothing of it is waiting for others.
        assert!(begun.elapsed() < Duration::from_millis(1_500), "{:?}", begun.elapsed());
    }
    assert!(pushed >= 3, "only {pushed} live windows beside the backfills");
    let mut in_a_row = 0;
    for (kind, [live, backfill, _]) in owner.shared.context.turns.given() {
        match kind {
            Kind::Live => in_a_row += 1,
            // Whoever else gets a place while a live window waits, gets it after four of those.
            Kind::Backfill => {
                assert!(live == 0 || in_a_row >= 4, "{live} live windows waited");
                in_a_row = 0;
            }
            Kind::Ahead => assert_eq!((live, backfill), (0, 0)),
        }
    }
    assert_eq!(owner.shared.context.budget.used(), 0);
}
