//! Tests of transactions: what each part does, what undoes all, and that then nothing is left.

use crate::world::*;
use queen_core::command::*;
use queen_core::kv::*;
use queen_core::reply::*;
use queen_core::table::Table;
use queen_core::transaction::*;
use queen_core::{Code, LeaseId, Offset, PartitionId, Stamp};

/// A push group that outlives its frames' encoding.
struct Out {
    queue: &'static str,
    partition: &'static str,
    count: u32,
    ids: bool,
    text_bytes: u32,
    frames: Vec<u8>,
}

fn out(queue: &'static str, partition: &'static str, items: &[(Option<&str>, &str)]) -> Out {
    let (frames, text_bytes) = frames(items);
    let ids = items.iter().any(|(id, _)| id.is_some());
    Out { queue, partition, count: items.len() as u32, ids, text_bytes, frames }
}

impl Out {
    fn group(&self) -> PushGroup<'_> {
        PushGroup {
            queue: self.queue,
            partition: self.partition,
            count: self.count,
            has_transaction_ids: self.ids,
            text_bytes: self.text_bytes,
            frames: &self.frames,
        }
    }
}

fn item<'a>(partition: PartitionId, id: &'a str, lease: Option<LeaseId>) -> AckItem<'a> {
    AckItem {
        transaction_id: id,
        partition: Some(partition),
        verdict: Verdict::Completed,
        lease: lease.map_or(LeaseClaim::None, LeaseClaim::Id),
        error: None,
    }
}

fn acks<'a>(group: &'a str, items: Vec<AckItem<'a>>) -> Vec<AckGroup<'a>> {
    vec![AckGroup { group: Some(group), items }]
}

fn kv(kind: KvOpKind<'_>) -> Rider<'_> {
    Rider::Kv(KvOp { ns: "shop", kind, required: true })
}

fn put(key: &str, expect: Option<u64>) -> Rider<'_> {
    kv(KvOpKind::Put { key, value: "1", ttl_seconds: None, expect })
}

fn position<'a>(queue: &'a str, partition: &'a str, offset: Option<u64>) -> Rider<'a> {
    let (offset, start) = (offset.map(Offset), GroupStart::All);
    Rider::Position(Position { queue, partition, group: "g", offset, start })
}

fn of<'a>(acks: Vec<AckGroup<'a>>, pushes: &'a [Out], riders: Vec<Rider<'a>>) -> Transaction<'a> {
    let pushes = pushes.iter().map(Out::group).collect();
    Transaction { tenant: TENANT, acks, pushes, riders }
}

impl World {
    fn run(&mut self, transaction: Transaction<'_>) -> Result<Committed, RolledBack> {
        match self.apply(&Command::Transaction(transaction)) {
            Reply::Transaction(outcome) => {
                assert_eq!(outcome.stamp.0, self.now);
                outcome.result
            }
            other => panic!("{other:?}"),
        }
    }

    /// Runs a transaction that rolls back, and finds nothing changed but the last stamp.
    fn rolls_back(&mut self, transaction: Transaction<'_>) -> RolledBack {
        let rows = |world: &World| -> Vec<_> {
            let rows = world.store.rows().filter(|(table, ..)| *table != Table::Meta);
            rows.map(|(table, key, value)| (table, key.clone(), value.clone())).collect()
        };
        let before = (rows(self), self.machine_ids());
        let why = self.run(transaction).unwrap_err();
        assert!(before == (rows(self), self.machine_ids()), "{why:?} left something");
        assert_eq!(self.events, [], "{why:?} told something");
        why
    }

    fn machine_ids(&mut self) -> queen_core::row::NextIdsRow {
        let (stamp, mut events) = (Stamp(self.now), Vec::new());
        self.machine.with_step(stamp, &mut self.store, &mut events, |step| step.next_ids().unwrap())
    }

    /// Pushes messages with ids and pops all of them: their partition and lease.
    fn popped_ids(&mut self, queue: &str, ids: &[&str]) -> (PartitionId, LeaseId) {
        let items: Vec<_> = ids.iter().map(|id| (Some(*id), "{}")).collect();
        let partition = self.push_ids(queue, "p", &items).partition;
        let lease = self.pop(queue, "g", 100).lease.unwrap();
        (partition, lease)
    }
}

#[test]
fn acks_pushes_and_riders_apply_under_one_stamp() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a", "b"]);
    let pushes =
        [out("out", "x", &[(Some("r"), "1"), (None, "2")]), out("log", "y", &[(None, "3")])];
    let riders = vec![put("done", Some(0)), kv(KvOpKind::Get { key: "done" })];
    let items = vec![item(from, "b", Some(lease)), item(from, "a", Some(lease))];
    let done = world.run(of(acks("g", items), &pushes, riders)).unwrap();
    assert_eq!(done.acks[0].iter().filter(|one| one.lease_released).count(), 2);
    let stamps: Vec<_> = done.pushes.iter().map(|group| group.stamp.0).collect();
    assert_eq!(stamps, [world.now; 2]);
    let RiderResult::Kv(KvResult::Applied(Some(row))) = &done.riders[0] else { panic!() };
    assert_eq!(row.updated_at.0, world.now);
    assert_eq!(done.riders[1], RiderResult::Kv(KvResult::Row(Some(row.clone()))));
    assert_eq!(world.one("in", "g", 9), None);
    assert_eq!(world.one("out", "h", 9), Some((0, 2, 1)));
    assert_eq!(world.one("log", "h", 9), Some((0, 1, 1)));
}

#[test]
fn verdicts_do_what_they_do_alone_and_letters_of_all_groups_are_kept() {
    let mut world = World::new();
    world.configure("in", |options| options.retry_limit = 0);
    let (from, lease) = world.popped_ids("in", &["a", "b"]);
    let other = world.pop("in", "h", 100).lease.unwrap();
    let failed =
        |id, lease, verdict| AckItem { verdict, error: Some("why"), ..item(from, id, Some(lease)) };
    let groups = vec![
        AckGroup { group: Some("g"), items: vec![failed("a", lease, Verdict::Failed)] },
        AckGroup { group: Some("h"), items: vec![failed("a", other, Verdict::DeadLetter)] },
    ];
    let done = world.run(of(groups, &[], Vec::new())).unwrap();
    assert!(done.acks.iter().all(|acks| acks[0].dead_lettered && acks[0].lease_released));
    let letters = world.letters("in");
    let groups: Vec<_> = letters.iter().map(|letter| letter.group.as_str()).collect();
    assert_eq!(groups, ["g", "h"]);
    assert!(letters.iter().all(|letter| letter.error == "why" && letter.transaction_id == "a"));
    let back = world.one("in", "g", 9).unwrap();
    assert_eq!(back, (1, 2, 2));
    let retry = AckItem { verdict: Verdict::Retry, ..item(from, "b", None) };
    assert!(world.run(of(acks("g", vec![retry]), &[], Vec::new())).is_ok());
    assert_eq!(world.one("in", "g", 9), Some((1, 2, 3)));
}

#[test]
fn a_refused_ack_undoes_all_and_names_itself() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a", "b"]);
    let pushes = [out("out", "x", &[(Some("r"), "1")])];
    let riders = || vec![put("done", None), position("in", "p", Some(0))];
    let cases = [
        (item(from, "b", Some(LeaseId([7; 16]))), AckRefusal::Lease),
        (item(from, "none", Some(lease)), AckRefusal::Unresolvable),
        (item(PartitionId(99), "a", None), AckRefusal::Unresolvable),
    ];
    for (bad, refusal) in cases {
        let items = vec![item(from, "a", Some(lease)), bad];
        let why = world.rolls_back(of(acks("g", items), &pushes, riders()));
        assert_eq!(why, RolledBack::Ack { group: 0, item: 1, refusal });
    }
    let stranger = acks("nobody", vec![item(from, "a", Some(lease))]);
    let why = world.rolls_back(of(stranger, &pushes, riders()));
    let refusal = AckRefusal::NoConsumer;
    assert_eq!(why, RolledBack::Ack { group: 0, item: 0, refusal });
    // The batch is still out, and can be settled.
    let items = vec![item(from, "b", Some(lease))];
    assert!(world.run(of(acks("g", items), &pushes, riders())).is_ok());
}

#[test]
fn an_expired_lease_undoes_all_even_when_another_consumer_has_settled() {
    let mut world = World::new();
    let (from, old) = world.popped_ids("in", &["a"]);
    world.sleep(31);
    let lapsed = || acks("g", vec![item(from, "a", Some(old))]);
    let late = [out("out", "x", &[(Some("late"), "1")])];
    let refused = RolledBack::Ack { group: 0, item: 0, refusal: AckRefusal::Lease };
    assert_eq!(world.rolls_back(of(lapsed(), &late, Vec::new())), refused);
    let new = world.pop("in", "g", 9).lease.unwrap();
    assert_eq!(world.rolls_back(of(lapsed(), &late, Vec::new())), refused);
    let taken = acks("g", vec![item(from, "a", Some(new))]);
    assert!(world.run(of(taken, &[out("out", "x", &[(Some("r"), "1")])], Vec::new())).is_ok());
    // Alone, the ack of a settled message is a success: here it would hand the message on twice.
    assert_eq!(world.rolls_back(of(lapsed(), &late, Vec::new())), refused);
    assert!(world.ack("g", &lapsed()[0].items)[0].noop);
    assert_eq!(world.one("out", "h", 9), Some((0, 1, 1)));
}

#[test]
fn messages_of_a_batch_may_be_settled_in_any_order_while_its_lease_lives() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a", "b", "c"]);
    for (id, result) in [("b", "rb"), ("a", "ra")] {
        let pushes = [out("out", "x", &[(Some(result), "1")])];
        let one = acks("g", vec![item(from, id, Some(lease))]);
        let done = world.run(of(one, &pushes, Vec::new())).unwrap();
        assert_eq!(done.acks[0][0].noop, id == "a");
    }
    assert_eq!(world.one("out", "h", 9), Some((0, 2, 1)));
}

#[test]
fn a_stored_transaction_id_undoes_all_and_a_repeat_within_does_not() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a"]);
    world.push_ids("out", "x", &[(Some("known"), "1")]);
    let ack = || acks("g", vec![item(from, "a", Some(lease))]);
    let pushes = [
        out("new", "x", &[(Some("known"), "1")]),
        out("out", "x", &[(Some("r"), "1"), (None, "2"), (Some("known"), "3")]),
    ];
    let why = world.rolls_back(of(ack(), &pushes, vec![put("k", None)]));
    assert_eq!(why, RolledBack::Duplicate { group: 1, item: 2 });
    let repeats = [out("out", "x", &[(Some("r"), "1"), (Some("r"), "2")])];
    let done = world.run(of(ack(), &repeats, Vec::new())).unwrap();
    let (offset, stamp) = (Offset(1), Stamp(world.now));
    let items = vec![PushedItem::Queued(offset), PushedItem::Duplicate { offset, stamp }];
    assert_eq!(done.pushes[0].items, items);
}

#[test]
fn a_transaction_sent_again_is_told_that_its_messages_are_there() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a"]);
    let pushes = [out("out", "x", &[(Some("r"), "1")])];
    let bundle = || {
        let riders = vec![kv(KvOpKind::Incr {
            key: "n",
            delta: "1",
            min: None,
            max: None,
            ttl_seconds: None,
        })];
        of(acks("g", vec![item(from, "a", Some(lease))]), &pushes, riders)
    };
    world.run(bundle()).unwrap();
    assert_eq!(world.rolls_back(bundle()), RolledBack::Duplicate { group: 0, item: 0 });
    // The window is over, the ack is not taken for another one.
    world.sleep(3601);
    let refusal = AckRefusal::Lease;
    assert_eq!(world.rolls_back(bundle()), RolledBack::Ack { group: 0, item: 0, refusal });
}

#[test]
fn a_lost_required_operation_undoes_all_and_others_do_not() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a"]);
    world.run(of(Vec::new(), &[], vec![put("taken", None)])).unwrap();
    let ack = || acks("g", vec![item(from, "a", Some(lease))]);
    let pushes = [out("out", "x", &[(Some("r"), "1")])];
    let riders = || vec![position("in", "p", Some(0)), put("new", None), put("taken", Some(0))];
    let why = world.rolls_back(of(ack(), &pushes, riders()));
    let RolledBack::Precondition { rider: 2, reason: KvLoss::Exists, row: Some(row) } = why else {
        panic!("{why:?}")
    };
    assert_eq!((row.key.as_str(), &row.value[..]), ("taken", &b"1"[..]));
    let check = |expect| kv(KvOpKind::Check { key: "taken", expect });
    let why = world.rolls_back(of(ack(), &pushes, vec![check(row.version + 1)]));
    assert!(matches!(why, RolledBack::Precondition { rider: 0, reason: KvLoss::Version, .. }));
    let Rider::Kv(op) = put("taken", Some(0)) else { panic!() };
    let optional = Rider::Kv(KvOp { required: false, ..op });
    let done = world.run(of(ack(), &pushes, vec![check(row.version), optional])).unwrap();
    assert!(matches!(done.riders[0], RiderResult::Kv(KvResult::Applied(_))));
    assert!(matches!(done.riders[1], RiderResult::Kv(KvResult::Lost { .. })));
    assert_eq!(world.one("out", "h", 9), Some((0, 1, 1)));
}

#[test]
fn what_refuses_first_is_told_in_the_order_of_the_contract() {
    let mut world = World::new();
    let (from, _) = world.popped_ids("in", &["a"]);
    world.push_ids("out", "x", &[(Some("known"), "1")]);
    world.run(of(Vec::new(), &[], vec![put("taken", None)])).unwrap();
    let bad_ack = || acks("g", vec![item(from, "a", Some(LeaseId([7; 16])))]);
    let duplicate = [out("out", "x", &[(Some("known"), "1")])];
    let riders = || vec![put("taken", Some(0)), position("nowhere", "p", None)];
    let why = world.rolls_back(of(bad_ack(), &duplicate, riders()));
    assert!(matches!(why, RolledBack::Ack { .. }));
    let why = world.rolls_back(of(Vec::new(), &duplicate, riders()));
    assert!(matches!(why, RolledBack::Duplicate { .. }));
    let why = world.rolls_back(of(Vec::new(), &[], riders()));
    assert_eq!(why, RolledBack::NoPartition { rider: 1 });
    let mut riders = riders();
    riders.pop();
    let why = world.rolls_back(of(Vec::new(), &[], riders));
    assert!(matches!(why, RolledBack::Precondition { rider: 0, .. }));
}

#[test]
fn positions_move_groups_within_what_is_retained() {
    let mut world = World::new();
    world.push("in", "p", 5);
    assert_eq!(world.one("in", "g", 2), Some((0, 2, 1)));
    let moved = |world: &mut World, offset| {
        let done = world.run(of(Vec::new(), &[], vec![position("in", "p", offset)])).unwrap();
        done.riders[0].clone()
    };
    assert_eq!(moved(&mut world, Some(3)), RiderResult::Position(Some(Offset(3))));
    assert_eq!(world.one("in", "g", 9), Some((3, 5, 1)));
    assert_eq!(moved(&mut world, None), RiderResult::Position(None));
    assert_eq!(moved(&mut world, Some(99)), RiderResult::Position(Some(Offset(5))));
    assert_eq!(world.one("in", "g", 9), None);
    let missing = of(Vec::new(), &[], vec![position("in", "none", Some(0))]);
    assert_eq!(world.rolls_back(missing), RolledBack::NoPartition { rider: 0 });
    // What the same transaction pushes is there for its position.
    let pushes = [out("in", "p", &[(None, "6")])];
    world.run(of(Vec::new(), &pushes, vec![position("in", "p", Some(6))])).unwrap();
    assert_eq!(world.one("in", "g", 9), None);
}

#[test]
fn a_payload_in_the_clear_for_an_encrypted_queue_refuses_all() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a"]);
    world.configure("secret", |options| options.encryption_enabled = true);
    let pushes = [out("out", "x", &[(None, "1")]), out("secret", "x", &[(None, "1")])];
    let bundle = of(acks("g", vec![item(from, "a", Some(lease))]), &pushes, vec![put("k", None)]);
    let reply = world.apply(&Command::Transaction(bundle));
    assert!(matches!(reply, Reply::Refused(error) if error.code == Code::NotSealed));
    assert_eq!((world.rows(Table::QueueName), world.rows(Table::Kv)), (2, 0));
}

#[test]
fn tenants_settle_and_move_only_their_own() {
    let mut world = World::new();
    let (from, lease) = world.popped_ids("in", &["a"]);
    let tenant = queen_core::TenantId([9; 16]);
    let foreign = of(acks("g", vec![item(from, "a", Some(lease))]), &[], Vec::new());
    let why = world.rolls_back(Transaction { tenant, ..foreign });
    let refusal = AckRefusal::Unresolvable;
    assert_eq!(why, RolledBack::Ack { group: 0, item: 0, refusal });
    let foreign = of(Vec::new(), &[], vec![position("in", "p", Some(0))]);
    let why = world.rolls_back(Transaction { tenant, ..foreign });
    assert_eq!(why, RolledBack::NoPartition { rider: 0 });
}
