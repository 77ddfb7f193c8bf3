//! The adapter over a real broker on a disk: what the sink sees is what was pushed.

use super::*;
use queen_broker::BrokerOptions;
use queen_core::run;
use queen_sink::host::{Place, TimelineRun};

async fn broker(dir: &std::path::Path) -> (Broker, SinkHost) {
    let broker = Broker::start(BrokerOptions::new(dir)).await.unwrap();
    (broker.clone(), SinkHost::new(broker, "default"))
}

async fn push(broker: &Broker, queue: &str, partition: &str, payloads: &[&str]) -> Stamp {
    let mut frames = Vec::new();
    let mut text = 0;
    for payload in payloads {
        let frame = queen_core::frame::Frame { payload: payload.as_bytes(), ..Default::default() };
        frame.encode(&mut frames);
        text += 36 + payload.len() as u32;
    }
    let group = queen_core::command::PushGroup {
        queue,
        partition,
        count: payloads.len() as u32,
        has_transaction_ids: false,
        text_bytes: text,
        frames: &frames,
    };
    let push = queen_core::command::Push { tenant: TenantId::DEFAULT, groups: vec![group] };
    match broker.submit(Class::Write, &Command::Push(push)).await.unwrap() {
        Reply::Push(groups) => groups[0].stamp,
        other => panic!("{other:?}"),
    }
}

/// Every run of the queue, page by page.
fn all_runs(host: &SinkHost, queue: QueueId, from: ScanFrom, page: usize) -> Vec<TimelineRun> {
    let (mut runs, mut from) = (Vec::new(), from);
    loop {
        let found = host.timeline(queue, from, page).unwrap();
        runs.extend(found.runs);
        if found.end {
            return runs;
        }
        from = ScanFrom::Place(found.next);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_timeline_shows_every_run_in_order_whatever_the_page() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    let mut stamps = Vec::new();
    for i in 0..20 {
        stamps.push(push(&broker, "q", &format!("p{}", i % 3), &["{\"n\":1}", "2"]).await);
    }
    push(&broker, "other", "p", &["3"]).await;
    let queue = host.queue("q").unwrap().id;
    for page in [1, 7, 100] {
        let runs = all_runs(&host, queue, ScanFrom::Stamp(Stamp::ZERO), page);
        let seen: Vec<Stamp> = runs.iter().map(|run| run.header.stamp).collect();
        assert_eq!(seen, stamps);
    }
    let late = all_runs(&host, queue, ScanFrom::Stamp(stamps[15]), 100);
    assert_eq!(late.len(), 5);
    assert_eq!(host.first_retained(queue).unwrap(), Some(stamps[0]));
    let mut bytes = vec![0; late[0].header.run_len() as usize];
    host.log(queue).read(late[0].place, &mut bytes).unwrap();
    let (header, frames) = run::decode(&bytes).unwrap();
    assert_eq!(header, late[0].header);
    let payloads: Vec<Vec<u8>> = queen_core::frame::Frames::new(frames)
        .map(|frame| frame.unwrap().payload.to_vec())
        .collect();
    assert_eq!(payloads, [b"{\"n\":1}".to_vec(), b"2".to_vec()]);
    let names = host.partition_names(queue, &[late[0].header.partition]).unwrap();
    assert_eq!(&*names[0], "p0");
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_at_the_end_goes_on_where_later_runs_are_appended() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    push(&broker, "q", "p", &["1"]).await;
    let queue = host.queue("q").unwrap().id;
    let page = host.timeline(queue, ScanFrom::Stamp(Stamp::ZERO), 10).unwrap();
    assert!(page.end && page.through >= page.runs[0].header.stamp);
    let later = push(&broker, "q", "p", &["2"]).await;
    let next = host.timeline(queue, ScanFrom::Place(page.next), 10).unwrap();
    assert_eq!(next.runs.len(), 1);
    assert_eq!(next.runs[0].header.stamp, later);
    let past = Place { segment: 1, at: 1 << 40 };
    assert!(matches!(host.log(queue).read(past, &mut [0; 8]), Err(HostError::Gone(_))));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_and_new_queues_are_heard_of() {
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    let host = Arc::new(host);
    let seen = host.queues_changed(0).await;
    let first = push(&broker, "q", "p", &["1"]).await;
    let seen = host.queues_changed(seen).await;
    let queues = host.queues();
    assert_eq!(queues.len(), 1);
    assert_eq!((&*queues[0].name, queues[0].deleted), ("q", false));
    let queue = queues[0].id;
    host.written(queue, Stamp::ZERO).await;
    let waiting = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.written(queue, first).await }
    });
    let second = push(&broker, "q", "p", &["2"]).await;
    waiting.await.unwrap();
    assert!(host.applied() >= second && host.now() >= host.applied());
    let ticked = host.tick().await.unwrap();
    assert!(ticked > second && host.applied() >= ticked);
    let gone = queen_core::command::QueueRef { tenant: TenantId::DEFAULT, queue: "q" };
    broker.submit(Class::Settle, &Command::DeleteQueue(gone)).await.unwrap();
    host.queues_changed(seen).await;
    host.written(queue, Stamp::MAX).await;
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kv_batches_go_through_the_log() {
    use queen_core::kv::{KvOpKind, KvResult};
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    let ns = queen_core::limits::SINK_NAMESPACE;
    let put = |expect| KvOp {
        ns,
        kind: KvOpKind::Put { key: "k", value: "{\"a\":1}", ttl_seconds: None, expect },
        required: true,
    };
    let done = host.kv(&[put(Some(0))]).await.unwrap();
    assert!(
        matches!(&done, KvOutcome::Done(results) if matches!(results[0], KvResult::Applied(_)))
    );
    let lost = host.kv(&[put(Some(0))]).await.unwrap();
    assert!(matches!(lost, KvOutcome::Precondition { index: 0, .. }));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_of_queues_with_the_longest_names_are_kept() {
    use queen_core::kv::{KvOpKind, KvResult};
    use queen_core::sink::{RowKind, row_key};
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    // Over three times as long as a key of a client may be.
    let key = row_key("default", &"\u{e9}".repeat(205), RowKind::Committed);
    let op = |kind| KvOp { ns: queen_core::limits::SINK_NAMESPACE, kind, required: true };
    let put = KvOpKind::Put { key: &key, value: "{}", ttl_seconds: None, expect: Some(0) };
    assert!(matches!(host.kv(&[op(put)]).await, Ok(KvOutcome::Done(_))));
    let found = host.kv(&[op(KvOpKind::Get { key: &key })]).await.unwrap();
    let KvOutcome::Done(results) = found else { panic!("{found:?}") };
    assert!(matches!(&results[..], [KvResult::Row(Some(row))] if &row.value[..] == b"{}"));
    broker.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_queue_is_never_said_to_be_read_through_its_deletion() {
    use queen_core::kv::KvOpKind;
    use queen_core::sink::{RowKind, row_key};
    let dir = tempfile::tempdir().unwrap();
    let (broker, host) = broker(dir.path()).await;
    let host = Arc::new(host);
    for _ in 0..20 {
        push(&broker, "q", "p", &["1"]).await;
        let queue = host.queue("q").unwrap().id;
        // What another sink has pinned stays, with the stamp of the deletion.
        let intent = format!(r#"{{"queueId":{},"k":1,"tStart":0,"tEnd":9}}"#, queue.0);
        let key = row_key("other", "q", RowKind::Intent);
        let kind = KvOpKind::Put { key: &key, value: &intent, ttl_seconds: None, expect: None };
        let op = KvOp { ns: queen_core::limits::SINK_NAMESPACE, kind, required: true };
        assert!(matches!(host.kv(&[op]).await, Ok(KvOutcome::Done(_))));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let host = Arc::clone(&host);
                std::thread::spawn(move || {
                    let mut through = Stamp::ZERO;
                    while let Ok(page) = host.timeline(queue, ScanFrom::Stamp(Stamp::ZERO), 10) {
                        through = through.max(page.through);
                    }
                    through
                })
            })
            .collect();
        let gone = queen_core::command::QueueRef { tenant: TenantId::DEFAULT, queue: "q" };
        broker.submit(Class::Settle, &Command::DeleteQueue(gone)).await.unwrap();
        let kept = host.look(|view| row::<QueueRow>(view, &key::queue(queue))).unwrap();
        let deleted = kept.and_then(|kept| kept.deleted).unwrap();
        for reader in readers {
            let through = reader.join().unwrap();
            assert!(through < deleted, "read through {through:?}, deleted at {deleted:?}");
        }
    }
    broker.shutdown().await;
}
