//! Three brokers in one process: what they pass on to each other.

use super::*;
use crate::{BrokerOptions, Delivery};
use queen_core::command::{GroupStart, LeaseClaim, Pop, Push, PushGroup, Seek, SeekTo};
use queen_core::frame::Frame;
use queen_core::kv::{KvOp, KvOpKind};
use queen_core::lock::{LockOp, LockOpKind, LockResult, Locks};
use queen_core::relay::HEAD_BYTES;
use queen_core::reply::PushedGroup;
use queen_core::stream::{
    ClaimPartitions, ClaimStatus, Cycle, CycleAck, RegisterQuery, StateOp, StateText,
};
use queen_core::transaction::{Rider, Transaction};
use queen_core::{Stamp, TenantId};
use queen_raft::{ClusterOptions, Peer};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::task::Poll;
use tokio::task::yield_now;

pub(crate) struct Three {
    pub(crate) brokers: Vec<Broker>,
    dirs: Vec<tempfile::TempDir>,
    cluster: Vec<ClusterOptions>,
}

/// An address of this machine on which nothing listens.
fn free() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Three {
    pub(crate) async fn start() -> Three {
        let listeners: Vec<SocketAddr> = (0..3).map(|_| free()).collect();
        let peer = |addr: &SocketAddr| Peer { raft: addr.to_string(), http: "x:1".into() };
        let peers: BTreeMap<u64, Peer> = (1..).zip(listeners.iter().map(peer)).collect();
        let of = |listen| ClusterOptions {
            peers: peers.clone(),
            join: false,
            listen,
            token: "a token for tests only".into(),
            tls: None,
            election: ClusterOptions::ELECTION,
        };
        let cluster: Vec<ClusterOptions> = listeners.into_iter().map(of).collect();
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let mut three = Three { brokers: Vec::new(), dirs, cluster };
        for id in 1..=3 {
            let broker = three.broker(id).await;
            three.brokers.push(broker);
        }
        for broker in &three.brokers {
            fit(broker).await;
        }
        three
    }

    /// Starts a node on its directory.
    async fn broker(&self, id: u64) -> Broker {
        let at = id as usize - 1;
        let mut options = BrokerOptions::new(self.dirs[at].path());
        options.node_id = id;
        options.disk = crate::DiskMarks { high_percent: 101, low_percent: 101 };
        // What a checkpoint holds is let go, however far behind others are.
        options.wal.hold_bytes = 0;
        (options.wal.segment_bytes, options.wal.first_segment_bytes) = (64 << 10, 16 << 10);
        options.cluster = Some(self.cluster[at].clone());
        Broker::start(options).await.unwrap()
    }

    /// The leader, and the others.
    pub(crate) async fn split(&self) -> (Broker, Vec<Broker>) {
        loop {
            let leader = self.brokers.iter().find(|broker| broker.leads());
            if let Some(leader) = leader {
                let id = leader.shared.node_id;
                let others = self.brokers.iter().filter(|broker| broker.shared.node_id != id);
                return (leader.clone(), others.cloned().collect());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// Waits until a node can commit.
async fn fit(broker: &Broker) {
    while let Some(why) = broker.unfit().await {
        println!("not yet: {why}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn push(broker: &Broker, text: &str) -> Result<PushedGroup, Error> {
    let mut frames = Vec::new();
    Frame { payload: text.as_bytes(), ..Frame::default() }.encode(&mut frames);
    let group = PushGroup {
        queue: "q",
        partition: "p",
        count: 1,
        has_transaction_ids: false,
        text_bytes: 38,
        frames: &frames,
    };
    let push = Push { tenant: TenantId::DEFAULT, groups: vec![group] };
    broker.push(push).await.map(|groups| groups[0].clone())
}

fn pop(group: &str) -> Pop<'_> {
    Pop {
        tenant: TenantId::DEFAULT,
        queue: "q",
        partition: None,
        group: Some(group),
        batch: 10,
        partitions: 1,
        lease_seconds: Some(300),
        auto_ack: false,
        start: GroupStart::All,
    }
}

fn texts(delivery: &Delivery) -> Vec<String> {
    let messages = delivery.claims.iter().flat_map(|claim| claim.messages());
    messages.map(|m| String::from_utf8_lossy(m.frame.payload).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_holds_what_any_node_has_answered() {
    let three = Three::start().await;
    let mut pushed = Vec::new();
    for (n, broker) in three.brokers.iter().enumerate() {
        let text = format!("\"{n}\"");
        assert_eq!(push(broker, &text).await.unwrap().first_offset.0, n as u64);
        pushed.push(text);
        for (m, other) in three.brokers.iter().enumerate() {
            let group = format!("g-{n}-{m}");
            let delivery = other.pop(&pop(&group), None).await.unwrap().unwrap();
            assert_eq!(texts(&delivery), pushed, "pushed to {n}, popped from {m}");
            delivery.undelivered.unwrap().delivered();
        }
    }
    let (leader, others) = three.split().await;
    let forwarded: u64 = others.iter().map(|b| b.counters().forwarded.get()).sum();
    assert!(forwarded >= 2 && leader.counters().served.get() >= 2, "{forwarded}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_takes_transactions_and_locks_and_every_other_knows_at_once() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let (asker, other) = (&others[0], &others[1]);
    let tenant = TenantId::DEFAULT;
    let acquire = |owner| {
        let kind = LockOpKind::Acquire { owner: Some(owner), ttl_seconds: 300, limit: 1 };
        Locks { tenant, ops: vec![LockOp { name: "n", kind }] }
    };
    let taken = asker.locks(&acquire("a")).await.unwrap();
    let LockResult::Acquired { token, .. } = taken[0] else { panic!("{taken:?}") };
    for broker in [other, &leader] {
        let held = broker.locks(&acquire("b")).await.unwrap();
        assert!(matches!(&held[0], LockResult::Held(holders) if holders[0].token == token));
        let get = Locks { tenant, ops: vec![LockOp { name: "n", kind: LockOpKind::Get }] };
        let got = broker.locks(&get).await.unwrap();
        assert!(matches!(&got[0], LockResult::Holders(holders) if holders[0].token == token));
    }
    let push = |text: &str, expect| {
        let (queue, partition) = ("q", "p");
        let frame = Frame { payload: text.as_bytes(), ..Frame::default() };
        let mut frames = Vec::new();
        frame.encode(&mut frames);
        let text_bytes = frame.text_bytes() as u32;
        async move {
            let (count, has_transaction_ids, frames) = (1, false, &frames[..]);
            let group =
                PushGroup { queue, partition, count, has_transaction_ids, text_bytes, frames };
            let kind = KvOpKind::Check { key: "n#0", expect };
            let guard = KvOp { ns: "queen-locks", kind, required: true };
            let (pushes, riders) = (vec![group], vec![Rider::Kv(guard)]);
            let transaction = Transaction { tenant, acks: Vec::new(), pushes, riders };
            asker.transaction(&transaction).await.unwrap().result.is_ok()
        }
    };
    assert!(push("\"1\"", token).await);
    assert!(!push("\"2\"", token + 1).await);
    let delivery = other.pop(&pop("g"), None).await.unwrap().unwrap();
    assert_eq!(texts(&delivery), ["\"1\""]);
    delivery.undelivered.unwrap().delivered();
    assert!(asker.counters().forwarded.get() >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn any_node_runs_cycles_of_streams_and_every_other_reads_what_they_left() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let (asker, other) = (&others[0], &others[1]);
    let tenant = TenantId::DEFAULT;
    let registration = RegisterQuery {
        tenant,
        name: "n",
        source: "q",
        sink: None,
        config_hash: "h",
        reset: false,
    };
    let query = asker.register_query(&registration).await.unwrap().query;
    assert_eq!(leader.register_query(&registration).await.unwrap().query, query);
    let partition = push(asker, "1").await.unwrap().partition;
    let delivery = other.pop(&pop("streams.n"), None).await.unwrap().unwrap();
    let lease = LeaseClaim::Id(delivery.lease.unwrap());
    delivery.undelivered.unwrap().delivered();
    let cycle = |lease, count, value| Cycle {
        tenant,
        query,
        partition,
        group: None,
        ops: vec![StateOp { key: "k", value: Some(StateText::plain(value)) }],
        pushes: Vec::new(),
        ack: Some(CycleAck { lease, transaction_id: "", count, completed: true, release: true }),
    };
    assert!(asker.cycle(&cycle(lease, 1, "1")).await.unwrap().result.is_ok());
    let (partitions, group, seconds) = (vec![partition], None, 30);
    let claim = ClaimPartitions { tenant, query, partitions, group, seconds };
    let claimed = other.claim_partitions(&claim).await.unwrap().unwrap();
    assert!(matches!(claimed.partitions[0].status, ClaimStatus::Claimed(_)));
    let lease = LeaseClaim::Id(claimed.lease);
    for (broker, closes) in [(&leader, true), (asker, false)] {
        let closed = broker.cycle(&cycle(lease, 0, "2")).await.unwrap();
        assert_eq!(closed.result.is_ok(), closes, "{closed:?}");
    }
    for broker in [&leader, asker, other] {
        broker.barrier().await.unwrap();
        let state = broker.stream_state(tenant, query, partition, &[], "").await.unwrap().unwrap();
        assert_eq!((state.len(), &state[0].value[..]), (1, &b"2"[..]));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_request_has_gone_goes_back_from_a_node_that_does_not_lead() {
    let three = Three::start().await;
    let (_, others) = three.split().await;
    let asker = &others[0];
    push(asker, "\"1\"").await.unwrap();
    let asked = pop("g");
    for moment in 0..40 {
        let given_up = loop {
            let mut pop = Box::pin(asker.pop(&asked, None));
            match poll_fn(|context| Poll::Ready(pop.as_mut().poll(context))).await {
                Poll::Pending => break pop,
                // This node has not heard yet that the message is back, and asks nobody.
                Poll::Ready(answer) => assert!(answer.unwrap().is_none()),
            }
            sleep(Duration::from_millis(1)).await;
        };
        // Not looked at again, though its answer may come: a lease would last five minutes. A timer
        // of the runtime would round all moments up to whole milliseconds, which a pop outruns.
        let from = Instant::now();
        while from.elapsed() < Duration::from_micros(50 * moment) {
            yield_now().await;
        }
        drop(given_up);
        let again = timeout(Duration::from_secs(20), async {
            loop {
                if let Some(delivery) = asker.pop(&asked, None).await.unwrap() {
                    return delivery;
                }
                sleep(Duration::from_millis(1)).await;
            }
        });
        let delivery = again.await.unwrap_or_else(|_| panic!("given up at {moment}: not back"));
        assert_eq!(texts(&delivery), ["\"1\""]);
        // Goes back as it is dropped.
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stamps_rise_through_a_leader_whose_clock_is_behind() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    // As if the leader's wall clock were an hour ahead of all others.
    let ahead = Stamp(leader.now().0 + 3_600_000_000);
    leader.shared.proposer.seen(ahead);
    let before = push(&others[0], "\"1\"").await.unwrap().stamp;
    assert!(before > ahead);
    assert!(others[0].now() > before, "a node's log clock is behind what it has applied");
    leader.begin_shutdown();
    leader.shutdown().await;
    for other in &others {
        assert!(push(other, "\"2\"").await.unwrap().stamp > before);
    }
    let to = SeekTo::Time(before);
    let seek = Seek { tenant: TenantId::DEFAULT, group: "g", queue: "q", partition: None, to };
    others[1].seek(seek).await.unwrap();
    let delivery = others[1].pop(&pop("g"), None).await.unwrap().unwrap();
    assert_eq!(texts(&delivery), ["\"1\"", "\"2\"", "\"2\""]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_has_just_begun_takes_commands_by_the_clock_that_others_know() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let (begun, term) = (&others[0].shared, 1_000_000);
    // The clock of the log is half an hour ahead of all wall clocks, and no stamp tells of it.
    leader.shared.proposer.seen(Stamp(leader.now().0 + 1_800_000_000));
    begun.proposer.forget_time();
    assert!(begun.proposer.now().0 + 1_700_000_000 < leader.now().0);
    assert!(!begun.proposer.leads(Some(term), false), "it takes commands by its wall clock");
    peers::take_up(begun.clone(), term);
    begins(begun, term).await;
    let off = begun.proposer.now().0.abs_diff(leader.now().0);
    assert!(off < 1_000_000, "it is {off} µs from the clock of the log");
    // Who lost the lead meanwhile does not begin.
    begun.proposer.forget_time();
    assert!(!begun.proposer.leads(Some(term + 1), false));
    assert!(begun.proposer.leads(None, false));
    begun.proposer.begin(term + 1);
    assert!(!begun.proposer.takes_commands(term + 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_knows_the_time_a_node_leads_by_its_own_clock() {
    let three = Three::start().await;
    let (_, others) = three.split().await;
    let (begun, term) = (&others[0].shared, 1_000_000);
    for broker in &three.brokers {
        broker.begin_shutdown();
        if broker.shared.node_id != begun.node_id {
            broker.shutdown().await;
        }
    }
    begun.proposer.forget_time();
    assert!(!begun.proposer.leads(Some(term), false));
    peers::take_up(begun.clone(), term);
    begins(begun, term).await;
}

/// Waits until a node takes commands.
async fn begins(shared: &Shared, term: u64) {
    let until = Instant::now() + Duration::from_secs(20);
    while !shared.proposer.takes_commands(term) {
        assert!(Instant::now() < until, "it does not begin");
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_commands_only_in_the_term_that_they_name() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let term = others[0].leader().unwrap().term;
    let Ok(entry) = Proposer::encode(&Command::Tick(Default::default()), 16) else { panic!() };
    for (asked, taken) in [(term - 1, false), (term, true), (term + 1, false)] {
        let permit = others[0].shared.admission.admit(Class::Settle, 1, &others[0].shared.counters);
        let (proposed, head) = others[0].shared.proposer.expect(asked, false, permit.unwrap());
        let mut bytes = entry.clone();
        bytes[..HEAD_BYTES].copy_from_slice(&head.bytes());
        let answer = answer(&leader.shared, Bytes::from(bytes)).await;
        assert_eq!(matches!(answer, Answer::Applied(_)), taken, "{asked} of {term}: {answer:?}");
        if taken {
            // The reply comes from the asker's own state.
            let reply = told(proposed.pending.await).unwrap().reply;
            assert!(matches!(reply, Reply::Ticked(_)), "{reply:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_leader_knows_of_a_full_disk_elsewhere_and_the_others_of_its_clock() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let full = others[0].shared.node_id;
    others[0].shared.peers.report(queen_core::relay::Report { node: full, storage_full: true });
    assert!(others[0].cluster().unwrap().storage_full.is_empty(), "only the leader is told");
    let ask = queen_core::relay::Report { node: full, storage_full: true }.encode();
    let answer = others[0].shared.node().unwrap().ask_leader(Bytes::from(ask)).await.unwrap();
    let Ok(Answer::Clock(clock)) = Answer::decode(&answer) else { panic!("{answer:?}") };
    assert_eq!(leader.cluster().unwrap().storage_full.get(&full), Some(&true));
    // An hour ahead: the others reckon with the leader's clock, not with their own.
    leader.shared.proposer.seen(Stamp(clock.0 + 3_600_000_000));
    let until = Instant::now() + Duration::from_secs(20);
    while others[1].now().0 < clock.0 + 3_600_000_000 {
        assert!(Instant::now() < until, "the leader's clock was not heard");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_was_away_for_long_catches_up_by_a_snapshot_and_remembers_it() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let away = &others[0];
    push(&leader, "\"0\"").await.unwrap();
    away.begin_shutdown();
    away.shutdown().await;
    let mut pushed = vec!["\"0\"".to_owned()];
    for n in 1..30 {
        let text = format!("\"{n}\"");
        push(&leader, &text).await.unwrap();
        pushed.push(text);
        // The log before it is let go.
        leader.shared.store.checkpoint().unwrap();
        others[1].shared.store.checkpoint().unwrap();
    }
    let back = three.broker(away.shared.node_id).await;
    // Sleeps at a queue that this node has not heard the last of.
    let wait = Some(Duration::from_secs(20));
    let asked = pop("g");
    let sleeper = tokio::spawn({
        let (back, asked) = (back.clone(), Pop { batch: 100, ..asked.clone() });
        async move { back.pop(&asked, wait).await }
    });
    fit(&back).await;
    let delivery = sleeper.await.unwrap().unwrap().unwrap();
    assert_eq!(texts(&delivery), pushed);
    assert!(back.counters().snapshots.get() > 0, "it caught up from the log");
    let last = push(&back, "\"more\"").await.unwrap();
    assert_eq!(last.first_offset.0, 30);
    assert!(back.now() > last.stamp);
    let all = [&back, &leader, &others[1]];
    let until = Instant::now() + Duration::from_secs(20);
    while all.iter().any(|broker| broker.standing().applied != all[0].standing().applied) {
        assert!(Instant::now() < until, "they do not come level");
        sleep(Duration::from_millis(20)).await;
    }
    let digests = all.map(|broker| broker.shared.store.digest().unwrap());
    assert!(digests[0] == digests[1] && digests[1] == digests[2], "{digests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn a_barrier_waits_until_this_node_has_applied_what_was_answered() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let behind = &others[0];
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (held, holds) = tokio::sync::oneshot::channel();
    let store = behind.shared.store.clone();
    // As long as somebody reads its store, it applies nothing. The others are a majority.
    let reader = std::thread::spawn(move || {
        let view = store.read();
        held.send(()).unwrap();
        let _ = released.recv();
        view.applied().unwrap().index
    });
    holds.await.unwrap();
    push(&leader, "\"1\"").await.unwrap();
    // The store of a node is asked, not what its group says of itself, which comes a moment after an answer.
    let answered = leader.shared.store.read().applied().unwrap().index;
    let mut barrier = std::pin::pin!(behind.barrier());
    assert!(futures::poll!(barrier.as_mut()).is_pending(), "it waits for nobody");
    // It is no node for clients either: what it would answer is old.
    let unfit = behind.unfit().await.unwrap();
    assert!(unfit.contains("did not catch up"), "{unfit}");
    assert!(futures::poll!(barrier.as_mut()).is_pending(), "it does not wait for what it lacks");
    drop(release);
    barrier.await.unwrap();
    assert!(behind.shared.store.read().applied().unwrap().index >= answered);
    assert!(reader.join().unwrap() < answered, "it was not behind");
}
