//! Tests of streams: queries and their resets, cycles that apply whole or not at all, claims, and when what is
//! remembered goes.

use super::*;
use crate::world::*;
use proptest::prelude::*;
use queen_core::Offset;
use queen_core::command::{Command, LeaseClaim, PopWith, PushGroup, QueueRef, Verdict};
use queen_core::reply::AckRefusal;
use queen_core::row::CursorRow;
use queen_core::stream::{
    ClaimPartitions, ClaimStatus, Claimed, Cycle, CycleAck, CycleDone, CycleOutcome, CycleRefusal,
    STATE_BYTES_MAX, StateOp, StateText,
};
use queen_core::{Code, LeaseId};

const GROUP: &str = "streams.n";

fn asked<'a>(config_hash: &'a str, reset: bool) -> RegisterQuery<'a> {
    let (tenant, name, source, sink) = (TENANT, "n", "in", Some("out"));
    RegisterQuery { tenant, name, source, sink, config_hash, reset }
}

fn cycle(query: QueryId, partition: PartitionId) -> Cycle<'static> {
    let (group, ops, pushes, ack) = (None, Vec::new(), Vec::new(), None);
    Cycle { tenant: TENANT, query, partition, group, ops, pushes, ack }
}

fn upsert<'a>(key: &'a str, value: &'a str) -> StateOp<'a> {
    StateOp { key, value: Some(StateText::plain(value)) }
}

fn done_with(lease: Option<LeaseId>, transaction_id: &str) -> CycleAck<'_> {
    let lease = lease.map_or(LeaseClaim::None, LeaseClaim::Id);
    CycleAck { lease, transaction_id, count: 1, completed: true, release: true }
}

fn push<'a>(queue: &'a str, partition: &'a str, frames: &'a [u8]) -> PushGroup<'a> {
    PushGroup { queue, partition, count: 1, has_transaction_ids: true, text_bytes: 3, frames }
}

impl World {
    fn register(&mut self, query: RegisterQuery<'_>) -> Registered {
        match self.apply(&Command::Stream(StreamCommand::Register(query))) {
            Reply::Stream(StreamReply::Registered(registered)) => registered,
            other => panic!("{other:?}"),
        }
    }

    /// A query `n` from `in` to `out`.
    fn query(&mut self) -> QueryId {
        self.register(asked("h", false)).query
    }

    fn cycled(&mut self, cycle: &Cycle<'_>) -> CycleOutcome {
        match self.apply(&Command::Stream(StreamCommand::Cycle(cycle.clone()))) {
            Reply::Stream(StreamReply::Cycle(outcome)) => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn cycle_done(&mut self, cycle: &Cycle<'_>) -> CycleDone {
        self.cycled(cycle).result.unwrap()
    }

    /// Has a cycle refused, and checks that nothing changed.
    fn refused(&mut self, cycle: &Cycle<'_>) -> CycleRefusal {
        let before = self.kept();
        let refusal = self.cycled(cycle).result.unwrap_err();
        assert_eq!(self.kept(), before, "{refusal:?}");
        refusal
    }

    /// All rows but the single ones.
    fn kept(&self) -> Vec<(Table, Bytes, Bytes)> {
        let rows = self.store.rows().filter(|(table, _, _)| *table != Table::Meta);
        rows.map(|(table, key, value)| (table, key.clone(), value.clone())).collect()
    }

    fn claim(&mut self, query: QueryId, partitions: &[PartitionId]) -> Option<Claimed> {
        let (tenant, partitions, group) = (TENANT, partitions.to_vec(), None);
        let claim = ClaimPartitions { tenant, query, partitions, group, seconds: 30 };
        match self.apply(&Command::Stream(StreamCommand::Claim(claim))) {
            Reply::Stream(StreamReply::Claimed(claimed)) => claimed,
            other => panic!("{other:?}"),
        }
    }

    /// The lease and the status of a claim of one partition.
    fn claim_one(&mut self, query: QueryId, partition: PartitionId) -> (LeaseId, ClaimStatus) {
        let claimed = self.claim(query, &[partition]).unwrap();
        assert_eq!(claimed.stamp, Stamp(self.now));
        (claimed.lease, claimed.partitions[0].status)
    }

    /// Keys and values that a query remembers of a partition.
    fn remembered(&self, query: QueryId, partition: PartitionId) -> Vec<(String, String)> {
        let query = query_with_id(&self.store, TENANT, query).unwrap().unwrap();
        let found = rows(&self.store, query.row.state, partition, "", None, 100).unwrap();
        let text = |row: StateRow| (row.key, String::from_utf8(row.value.to_vec()).unwrap());
        found.into_iter().map(text).collect()
    }

    fn cursor(&self, queue: &str, partition: PartitionId) -> CursorRow {
        let queue = self.queue_id(queue);
        let group = crate::group::registered(&self.store, queue, GROUP).unwrap().unwrap();
        crate::group::cursor(&self.store, group.id, partition).unwrap().unwrap()
    }
}

fn pairs(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_query_keeps_its_id_and_its_state_until_it_is_reset() {
    let mut world = World::new();
    let first = world.register(asked("h", true));
    assert_eq!(first.how, Registration::Fresh, "there was nothing to wipe");
    let partition = world.push("in", "p", 1).partition;
    let ops = vec![upsert("k", "1")];
    world.cycle_done(&Cycle { ops, ..cycle(first.query, partition) });
    let again = world.register(asked("h", false));
    assert_eq!(again, Registered { query: first.query, how: Registration::Known });
    let other = world.register(asked("i", false));
    assert_eq!(other, Registered { query: first.query, how: Registration::OtherConfig });
    assert_eq!(world.remembered(first.query, partition), pairs(&[("k", "1")]));
    let reset = world.register(asked("i", true));
    assert_eq!(reset, Registered { query: first.query, how: Registration::Reset });
    assert_eq!(world.remembered(first.query, partition), []);
    assert_eq!((world.rows(Table::StreamState), world.rows(Table::StreamPartition)), (0, 0));
    assert_eq!(world.register(asked("i", false)).how, Registration::Known);
    assert_eq!(world.register(asked("h", false)).how, Registration::OtherConfig);
    let stranger = world.register(RegisterQuery { tenant: TenantId([3; 16]), ..asked("h", false) });
    assert_eq!(stranger.how, Registration::Fresh);
    assert_ne!(stranger.query, first.query);
}

#[test]
fn a_cycle_is_state_pushes_and_the_ack_in_one() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 3).partition;
    let popped = world.pop("in", GROUP, 10);
    let (frames, _) = frames(&[(Some("r"), "1")]);
    let last = world.id_at(partition, 2);
    let full = Cycle {
        ops: vec![upsert("a", "1"), upsert("b", "{}"), upsert("a", "2")],
        pushes: vec![push("out", "x", &frames)],
        ack: Some(done_with(popped.lease, &last)),
        ..cycle(query, partition)
    };
    let outcome = world.cycled(&full);
    assert_eq!(outcome.queue.as_deref(), Some("in"));
    let done = outcome.result.unwrap();
    assert!(done.released);
    assert_eq!((done.pushes.len(), done.pushes[0].first_offset), (1, Offset(0)));
    assert_eq!(world.remembered(query, partition), pairs(&[("a", "2"), ("b", "{}")]));
    assert_eq!(world.one("out", "g", 9), Some((0, 1, 1)));
    assert_eq!(world.one("in", GROUP, 9), None, "the batch is settled");
    // Its answer was lost, and the runner sends it again.
    assert_eq!(world.refused(&full), CycleRefusal::Ack(AckRefusal::Lease));

    let let_go = vec![StateOp { key: "a", value: None }, StateOp { key: "z", value: None }];
    let again = Cycle { ops: let_go, ack: None, ..full };
    let done = world.cycle_done(&again);
    assert!(!done.released && !done.pushes[0].items.is_empty(), "r is stored already");
    assert_eq!(world.remembered(query, partition), pairs(&[("b", "{}")]));
    let ops = vec![StateOp { key: "b", value: None }];
    world.cycle_done(&Cycle { ops, ..cycle(query, partition) });
    assert_eq!((world.rows(Table::StreamState), world.rows(Table::StreamPartition)), (0, 0));
}

#[test]
fn whatever_refuses_a_cycle_undoes_all_of_it() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 2).partition;
    world.configure("sealed", |options| options.encryption_enabled = true);
    let popped = world.pop("in", GROUP, 1);
    let ids = [world.id_at(partition, 0), world.id_at(partition, 1)];
    let (frames, _) = frames(&[(None, "1")]);
    let good = Cycle {
        ops: vec![upsert("a", "1")],
        pushes: vec![push("out", "x", &frames)],
        ack: Some(done_with(popped.lease, &ids[0])),
        ..cycle(query, partition)
    };
    let with = |ack| Cycle { ack: Some(ack), ..good.clone() };
    let lease = CycleRefusal::Ack(AckRefusal::Lease);
    let unknown = QueryId(Stamp(7));
    assert_eq!(world.refused(&Cycle { query: unknown, ..good.clone() }), CycleRefusal::NoQuery);
    let nowhere = Cycle { partition: PartitionId(99), ..good.clone() };
    assert_eq!(world.refused(&nowhere), CycleRefusal::NoPartition);
    let stranger = Cycle { tenant: TenantId([3; 16]), ..good.clone() };
    assert_eq!(world.refused(&stranger), CycleRefusal::NoQuery);
    assert_eq!(world.refused(&with(done_with(None, &ids[0]))), lease);
    let other = Some(LeaseId([9; 16]));
    assert_eq!(world.refused(&with(done_with(other, &ids[0]))), lease);
    let missed = CycleAck { completed: false, ..done_with(other, &ids[0]) };
    assert_eq!(world.refused(&with(missed)), lease);
    assert_eq!(world.refused(&with(done_with(popped.lease, &ids[1]))), lease, "not of the batch");
    let unresolvable = CycleRefusal::Ack(AckRefusal::Unresolvable);
    assert_eq!(world.refused(&with(done_with(popped.lease, "nothing"))), unresolvable);
    let nobody = Cycle { group: Some("nobody"), ..good.clone() };
    assert_eq!(world.refused(&nobody), CycleRefusal::Ack(AckRefusal::NoConsumer));
    let large = format!("\"{}\"", "x".repeat(STATE_BYTES_MAX as usize));
    let full = Cycle { ops: vec![upsert("a", &large)], ..good.clone() };
    let bytes = large.len() as u64 + 1 + 64;
    assert_eq!(world.refused(&full), CycleRefusal::StateFull(bytes));

    let before = world.kept();
    let clear = Cycle { pushes: vec![push("sealed", "x", &frames)], ..good.clone() };
    let reply = world.apply(&Command::Stream(StreamCommand::Cycle(clear)));
    assert!(matches!(reply, Reply::Refused(e) if e.code == Code::NotSealed));
    assert_eq!(world.kept(), before);
    world.configure("in", |options| options.encryption_enabled = true);
    let before = world.kept();
    let reply = world.apply(&Command::Stream(StreamCommand::Cycle(good.clone())));
    assert!(matches!(reply, Reply::Refused(e) if e.code == Code::NotSealed));
    assert_eq!(world.kept(), before);
    world.configure("in", |_| {});
    world.sleep(31);
    assert_eq!(world.refused(&good), lease, "the lease has ended");
    let popped = world.pop("in", GROUP, 1);
    world.cycle_done(&with(done_with(popped.lease, &ids[0])));
    world.apply(&Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "in" }));
    assert_eq!(world.refused(&good), CycleRefusal::NoPartition);
}

#[test]
fn an_ack_moves_the_cursor_to_the_message_it_names_and_no_further() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 6).partition;
    let ids: Vec<String> = (0..6).map(|offset| world.id_at(partition, offset)).collect();
    let popped = world.pop("in", GROUP, 4);
    let with = |ack| Cycle { ack: Some(ack), ..cycle(query, partition) };
    let keep = |id| CycleAck { release: false, ..done_with(popped.lease, id) };
    assert!(!world.cycle_done(&with(keep(&ids[1]))).released);
    assert_eq!(world.cursor("in", partition).next, Offset(2));
    assert_eq!(world.one("in", GROUP, 9), None, "the rest is held");
    let committed = CycleRefusal::Ack(AckRefusal::Committed);
    assert_eq!(world.refused(&with(keep(&ids[1]))), committed, "sent again, it moves nothing");
    assert!(!world.cycle_done(&with(CycleAck { count: 1, ..keep("") })).released);
    assert_eq!(world.cursor("in", partition).next, Offset(3));
    assert!(world.cycle_done(&with(keep(&ids[3]))).released, "that was all of the batch");

    // Of a batch that ends before a message which cannot be read, only what was handed out is settled.
    let popped = world.pop("in", GROUP, 2);
    assert!(world.cycle_done(&with(done_with(popped.lease, &ids[4]))).released);
    assert_eq!(world.one("in", GROUP, 9), Some((5, 6, 2)));
    let lease = world.cursor("in", partition).lease.map(|held| held.id);
    let failed = CycleAck { completed: false, ..done_with(lease, &ids[5]) };
    assert!(world.cycle_done(&with(failed)).released);
    let cursor = world.cursor("in", partition);
    assert_eq!((cursor.next, cursor.failures), (Offset(5), 0), "no budget is charged");
    assert_eq!(world.one("in", GROUP, 9), Some((5, 6, 3)));
    let lease = world.cursor("in", partition).lease.map(|held| held.id);
    let all = CycleAck { count: 9, ..done_with(lease, "") };
    assert!(world.cycle_done(&with(all)).released);
    assert_eq!(world.cursor("in", partition).next, Offset(6), "a count ends with the batch");
}

#[test]
fn a_group_that_conflates_is_done_with_all_below_the_message_it_was_given() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 3).partition;
    let newest = |world: &mut World| {
        let (pop, queues) = (pop("in", Some(GROUP), 9), Vec::new());
        match world.apply(&Command::PopWith(PopWith { pop, queues, conflation: true })) {
            Reply::Pop(popped) => popped,
            other => panic!("{other:?}"),
        }
    };
    let popped = newest(&mut world);
    let ack = Some(done_with(popped.lease, ""));
    assert!(world.cycle_done(&Cycle { ack, ..cycle(query, partition) }).released);
    assert_eq!(world.cursor("in", partition).next, Offset(3));
    world.push("in", "p", 2);
    let (popped, last) = (newest(&mut world), world.id_at(partition, 4));
    let ack = Some(done_with(popped.lease, &last));
    assert!(world.cycle_done(&Cycle { ack, ..cycle(query, partition) }).released);
    assert_eq!(world.cursor("in", partition).next, Offset(5));
}

#[test]
fn a_partition_is_claimed_when_nobody_holds_it_and_all_of_it_was_read() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 1).partition;
    assert_eq!(world.claim_one(query, partition).1, ClaimStatus::Backlog, "no such group yet");
    let popped = world.pop("in", GROUP, 9);
    let held = Stamp(world.now).plus_seconds(30);
    assert_eq!(world.claim_one(query, partition).1, ClaimStatus::Busy(held));
    let ack = Some(done_with(popped.lease, ""));
    world.cycle_done(&Cycle { ack, ..cycle(query, partition) });
    let elsewhere = world.push("other", "p", 1).partition;
    let asked = [partition, elsewhere, PartitionId(99), partition];
    let claimed = world.claim(query, &asked).unwrap();
    let until = ClaimStatus::Claimed(Stamp(world.now).plus_seconds(30));
    let found: Vec<_> = claimed.partitions.iter().map(|one| (&*one.name, one.status)).collect();
    let missing = ("", ClaimStatus::Missing);
    assert_eq!(found, [("p", until), missing, missing, ("p", until)]);
    assert!(matches!(world.claim_one(query, partition).1, ClaimStatus::Busy(_)));

    // What comes in meanwhile waits for the cycle that closes windows.
    world.push("in", "p", 1);
    assert_eq!(world.one("in", GROUP, 9), None);
    let ops = vec![StateOp { key: "w", value: None }];
    let empty = CycleAck { count: 0, ..done_with(Some(claimed.lease), "") };
    let close = Cycle { ops, ack: Some(empty), ..cycle(query, partition) };
    assert!(world.cycle_done(&close).released);
    assert_eq!(world.refused(&close), CycleRefusal::Ack(AckRefusal::Lease), "it closes once");
    assert_eq!(world.claim_one(query, partition).1, ClaimStatus::Backlog);
    assert_eq!(world.one("in", GROUP, 9), Some((1, 2, 1)));
    assert_eq!(world.claim(QueryId(Stamp(7)), &asked), None);
}

#[test]
fn a_claim_lapses_and_the_close_that_comes_late_is_refused_whole() {
    let mut world = World::new();
    let query = world.query();
    let partition = world.push("in", "p", 1).partition;
    let popped = world.pop("in", GROUP, 9);
    world.ack_one(GROUP, partition, &world.id_at(partition, 0), Verdict::Completed, popped.lease);
    let (late, status) = world.claim_one(query, partition);
    assert!(matches!(status, ClaimStatus::Claimed(_)));
    world.push("in", "p", 1);
    world.sleep(31);
    world.tick(&[]);
    assert_eq!(world.one("in", GROUP, 9), Some((1, 2, 1)), "the next runner is given it");
    let empty = CycleAck { count: 0, ..done_with(Some(late), "") };
    let ops = vec![upsert("w", "1")];
    let close = Cycle { ops, ack: Some(empty), ..cycle(query, partition) };
    assert_eq!(world.refused(&close), CycleRefusal::Ack(AckRefusal::Lease));

    // A claim that nobody swept yet has ended all the same.
    world.sleep(31);
    assert_eq!(world.claim_one(query, partition).1, ClaimStatus::Backlog);
    let popped = world.pop("in", GROUP, 9);
    world.ack_one(GROUP, partition, &world.id_at(partition, 1), Verdict::Completed, popped.lease);
    let (first, _) = world.claim_one(query, partition);
    world.sleep(31);
    let (second, status) = world.claim_one(query, partition);
    assert!(first != second && matches!(status, ClaimStatus::Claimed(_)));
}

#[test]
fn what_is_remembered_goes_with_its_partition_and_with_a_reset_in_steps() {
    let mut world = World::new();
    let query = world.query();
    let keys: Vec<String> = (0..gone::FIRST_STEP_ROWS + 10).map(|n| n.to_string()).collect();
    let ops: Vec<StateOp<'_>> = keys.iter().map(|key| upsert(key, "1")).collect();
    let [one, two] = ["p", "r"].map(|name| world.push("in", name, 1).partition);
    let fill = |world: &mut World, of| {
        world.cycle_done(&Cycle { ops: ops.clone(), ..cycle(query, of) });
    };
    fill(&mut world, one);
    world.register(asked("h", true));
    assert_eq!(world.remembered(query, one), [], "at once out of reach");
    assert_eq!(world.rows(Table::StreamState), 10);
    world.cycle_done(&Cycle { ops: vec![upsert("new", "1")], ..cycle(query, one) });
    assert!(gone::is_due(&world.store).unwrap());
    world.tick_until_done();
    assert_eq!((world.rows(Table::StreamState), world.rows(Table::Gone)), (1, 0));

    fill(&mut world, two);
    // Between its steps a deletion leaves rows without their counterparts: the invariants are for the end.
    world.now += 1;
    let (delete, stamp) = (QueueRef { tenant: TENANT, queue: "in" }, Stamp(world.now));
    let delete = Command::DeleteQueue(delete);
    world.machine.apply(&delete, stamp, &mut world.store, &mut world.events).unwrap();
    assert!(world.rows(Table::StreamState) > 0);
    world.tick_until_done();
    assert_eq!((world.rows(Table::StreamState), world.rows(Table::StreamPartition)), (0, 0));
    crate::invariants::check_all(&world.store).unwrap();
}

#[test]
fn a_query_without_a_source_is_forgotten_after_a_day_unless_that_comes_back() {
    let mut world = World::new();
    let names: Vec<String> = (0..LOOKS + 3).map(|n| format!("n{n}")).collect();
    for name in &names {
        world.register(RegisterQuery { name, source: "nowhere", ..asked("h", false) });
    }
    let kept = world.query();
    world.push("in", "p", 1);
    for _ in 0..4 {
        world.tick(&[]);
    }
    world.sleep(ORPHAN_SECONDS - 1);
    for _ in 0..4 {
        world.tick(&[]);
    }
    assert_eq!(world.rows(Table::StreamQuery), names.len() + 1);
    world.register(RegisterQuery { name: "n0", source: "nowhere", ..asked("h", false) });
    world.sleep(2);
    for _ in 0..4 {
        world.tick(&[]);
    }
    let left = (world.rows(Table::StreamQuery), world.rows(Table::StreamQueryById));
    assert_eq!(left, (2, 2), "the one with a source, and the one that was registered again");
    assert!(query_with_id(&world.store, TENANT, kept).unwrap().is_some());

    // A runner that polls makes its source again, so its query stays.
    world.apply(&Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "in" }));
    world.tick(&[]);
    world.sleep(ORPHAN_SECONDS);
    world.pop("in", GROUP, 1);
    world.tick(&[]);
    world.apply(&Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "in" }));
    world.tick(&[]);
    assert!(query_with_id(&world.store, TENANT, kept).unwrap().is_some());
    world.sleep(ORPHAN_SECONDS + 1);
    world.tick(&[]);
    assert_eq!(world.rows(Table::StreamQuery), 0);
    assert_eq!(world.register(asked("h", false)).how, Registration::Fresh);
}

#[test]
fn pages_of_state_and_of_partitions_follow_each_other() {
    let mut world = World::new();
    let query = world.query();
    let of: Vec<_> = ["p", "r", "s"].map(|name| world.push("in", name, 1).partition).into();
    for partition in &of {
        let ops = vec![upsert("a", "1"), upsert("b/1", "2"), upsert("b/2", "3"), upsert("c", "4")];
        world.cycle_done(&Cycle { ops, ..cycle(query, *partition) });
    }
    let state = query_with_id(&world.store, TENANT, query).unwrap().unwrap().row.state;
    let page = |prefix, after, limit| {
        let found = rows(&world.store, state, of[1], prefix, after, limit).unwrap();
        found.into_iter().map(|row| row.key).collect::<Vec<_>>()
    };
    assert_eq!(page("", None, 9), ["a", "b/1", "b/2", "c"]);
    assert_eq!(page("", Some("b/1"), 1), ["b/2"]);
    assert_eq!(page("b", None, 9), ["b/1", "b/2"]);
    assert_eq!(page("b", Some("b/1"), 9), ["b/2"]);
    let at = rows_at(&world.store, state, of[0], &["c", "x", "a"]).unwrap();
    assert_eq!(at.iter().map(|row| &row.key[..]).collect::<Vec<_>>(), ["c", "a"]);
    let ids = |after, limit| {
        let found = partitions(&world.store, state, after, limit).unwrap();
        found.into_iter().map(|(id, row)| (id, row.rows)).collect::<Vec<_>>()
    };
    assert_eq!(ids(PartitionId(0), 2), [(of[0], 4), (of[1], 4)]);
    assert_eq!(ids(of[1], 2), [(of[2], 4)]);
}

/// What a runner goes by: its lease, the messages of its batch, and the sum that it read with them.
#[derive(Clone, Copy, Debug)]
struct Runner {
    lease: LeaseId,
    count: u64,
    sum: u64,
}

impl World {
    /// What the query remembers as `sum`, and how far its group is.
    fn sum(&self, query: QueryId, partition: PartitionId) -> (u64, u64) {
        let sum =
            self.remembered(query, partition).pop().map_or(0, |(_, sum)| sum.parse().unwrap());
        let group = crate::group::registered(&self.store, self.queue_id("in"), GROUP).unwrap();
        let cursor =
            group.and_then(|group| crate::group::cursor(&self.store, group.id, partition).unwrap());
        (sum, cursor.map_or(0, |cursor| cursor.next.0))
    }

    /// A runner is done with so many messages of its batch.
    fn step(
        &mut self,
        query: QueryId,
        partition: PartitionId,
        runner: &mut Runner,
        ack: CycleAck<'_>,
    ) {
        let sum = (runner.sum + ack.count).to_string();
        let ops = if ack.completed { vec![upsert("sum", &sum)] } else { Vec::new() };
        let lease = LeaseClaim::Id(runner.lease);
        let ack = Some(CycleAck { lease, ..ack });
        let done = self.cycled(&Cycle { ops, ack, ..cycle(query, partition) }).result;
        if done.is_ok_and(|done| !done.released) {
            let count = ack.map_or(0, |ack| ack.count);
            (runner.count, runner.sum) = (runner.count - count, runner.sum + count);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    /// Runners pop, claim, come late, fail and hold back, and each message is in the sum once.
    #[test]
    fn whatever_runners_do_each_message_is_folded_once(
        steps in proptest::collection::vec((0u8..8, 0usize..3, 0u64..40), 1..80),
    ) {
        let mut world = World::new();
        let query = world.query();
        let partition = world.push("in", "p", 1).partition;
        let mut runners: [Option<Runner>; 3] = [None; 3];
        for (kind, who, n) in steps {
            let sum = world.sum(query, partition).0;
            match kind {
                0 => drop(world.push("in", "p", 1 + n as usize % 3)),
                1 => world.sleep(n),
                2 | 3 => {
                    let popped = world.pop("in", GROUP, 1 + n as u32 % 4);
                    if let (Some(lease), Some(claim)) = (popped.lease, popped.claims.first()) {
                        let count = claim.end.0 - claim.first.0;
                        runners[who] = Some(Runner { lease, count, sum });
                    }
                }
                4 => {
                    let (lease, status) = world.claim_one(query, partition);
                    if matches!(status, ClaimStatus::Claimed(_)) {
                        runners[who] = Some(Runner { lease, count: 0, sum });
                    }
                }
                _ => {
                    let Some(mut runner) = runners[who] else { continue };
                    let (completed, release) = (kind != 5, kind != 6);
                    let count = if release { runner.count } else { runner.count.min(n) };
                    let ack = CycleAck { count, completed, release, ..done_with(None, "") };
                    world.step(query, partition, &mut runner, ack);
                    runners[who] = Some(runner);
                }
            }
            let (sum, next) = world.sum(query, partition);
            prop_assert_eq!(sum, next);
        }
    }
}
