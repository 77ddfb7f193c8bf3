//! Tests of timers: due once, replaced, cancelled, bounded, sealed, switched off, and any order of
//! operations against a model.

use super::*;
use crate::world::*;
use crate::{Machine, TablesMut};
use proptest::prelude::*;
use queen_core::Offset;
use queen_core::command::{Command, QueueRef};
use queen_core::kv::{KvOp, KvOpKind};
use queen_core::switch::SetSwitches;
use queen_core::transaction::{Rider, RiderResult, RolledBack, Transaction};

fn message<'a>(payload: &'a str, delay_ms: u64) -> TimerMessage<'a> {
    TimerMessage {
        partition: "p",
        delay_ms,
        transaction_id: None,
        producer: None,
        encrypted: false,
        payload: payload.as_bytes(),
    }
}

fn scheduling<'a>(key: &'a str, payload: &'a str, delay_ms: u64) -> TimerOp<'a> {
    TimerOp { queue: "q", key, kind: TimerOpKind::Schedule(message(payload, delay_ms)) }
}

fn cancelling(key: &str) -> TimerOp<'_> {
    TimerOp { queue: "q", key, kind: TimerOpKind::Cancel }
}

impl World {
    fn timers(&mut self, ops: Vec<TimerOp<'_>>) -> Vec<TimerResult> {
        match self.apply(&Command::Timers(Timers { tenant: TENANT, ops })) {
            Reply::Timers(results) => results,
            other => panic!("{other:?}"),
        }
    }

    fn set(&mut self, key: &str, payload: &str, delay_ms: u64) -> Promised {
        match self.timers(vec![scheduling(key, payload, delay_ms)]).remove(0) {
            TimerResult::Scheduled { timer, .. } => timer,
            other => panic!("{other:?}"),
        }
    }

    fn fire(&mut self) -> Fired {
        match self.apply(&Command::FireTimers) {
            Reply::Fired(fired) => fired,
            other => panic!("{other:?}"),
        }
    }

    /// Message id, transaction id and payload of every message of a partition of `q`.
    fn messages(&self, partition: &str) -> Vec<(String, String, String)> {
        let Some(queue) = crate::step::queue_named(&self.store, TENANT, "q").unwrap() else {
            return Vec::new();
        };
        let found = crate::step::partition_named(&self.store, queue.id, partition).unwrap();
        let Some(found) = found else { return Vec::new() };
        let of = |offset| {
            let run = crate::run::kept_at(&self.store, found.row.id, Offset(offset)).unwrap();
            let frames = crate::run::frames(&self.store, queue.id, &run).unwrap().unwrap();
            let frame = crate::run::frame_in(&frames, &run, Offset(offset)).unwrap();
            let id = queen_core::MessageId(frame.message_id.unwrap_or_default()).to_string();
            let transaction_id = crate::run::own_id(&frame).unwrap().into_owned();
            (id, transaction_id, String::from_utf8(frame.payload.to_vec()).unwrap())
        };
        (0..found.row.next.0).map(of).collect()
    }

    fn payloads(&self, partition: &str) -> Vec<String> {
        self.messages(partition).into_iter().map(|(.., payload)| payload).collect()
    }

    fn switch(&mut self, timers_fire: bool) {
        let change = SetSwitches { timers_fire: Some(timers_fire), ..SetSwitches::default() };
        assert!(matches!(self.apply(&Command::SetSwitches(change)), Reply::Switches(_)));
    }
}

#[test]
fn a_timer_becomes_a_message_once_and_not_before_its_time() {
    let mut world = World::new();
    let set = world.set("k", "{\"n\":1}", 10_000);
    assert_eq!(set.due, Stamp(world.now + 10 * SECOND));
    assert_eq!(world.events, [Event::QueueChanged { queue: QueueId(1) }, Event::TimerDue(set.due)]);
    assert_eq!(due_at(&world.store).unwrap(), Some(set.due));
    world.now = set.due.0 - 2;
    assert_eq!(world.fire(), Fired::default());
    assert_eq!(world.messages("p"), []);
    let fired = Fired { fired: 1, ..Fired::default() };
    assert_eq!((world.now + 1, world.fire()), (set.due.0, fired));
    let id = set.message.to_string();
    assert_eq!(set.transaction_id, id);
    assert_eq!(world.messages("p"), [(id.clone(), id, "{\"n\":1}".to_owned())]);
    assert!(world.events.iter().any(|event| matches!(event, Event::Written { .. })));
    world.sleep(100);
    assert_eq!(world.fire(), Fired::default());
    assert_eq!((due_at(&world.store).unwrap(), world.rows(Table::Timer)), (None, 0));
    assert_eq!(world.timers(vec![cancelling("k")]), [TimerResult::Absent]);
    let popped = world.one("q", "g", 9);
    assert_eq!(popped, Some((0, 1, 1)), "the queue that a timer created gives it out");
}

#[test]
fn a_key_is_set_anew_as_a_whole_and_cancelled_for_good() {
    let mut world = World::new();
    let first = world.set("k", "1", 1_000);
    let created = find(&world.store, QueueId(1), "k").unwrap().unwrap().row.created;
    let again = world.timers(vec![scheduling("k", "2", 5_000), scheduling("other", "3", 1_000)]);
    let [
        TimerResult::Scheduled { timer, replaced: true },
        TimerResult::Scheduled { timer: other, replaced: false },
    ] = &again[..]
    else {
        panic!("{again:?}")
    };
    assert!(timer.message != first.message && timer.due > first.due);
    let row = find(&world.store, QueueId(1), "k").unwrap().unwrap().row;
    assert_eq!((row.created, row.updated), (created, Stamp(world.now)));
    world.sleep(2);
    assert_eq!(world.fire().fired, 1);
    assert_eq!(world.payloads("p"), ["3"], "the one that was replaced never fires");
    let cancelled = world.timers(vec![cancelling("k"), cancelling("other"), cancelling("none")]);
    let gone = TimerResult::Absent;
    assert_eq!(cancelled, [TimerResult::Cancelled(timer.clone()), gone.clone(), gone]);
    assert_eq!(world.messages("p")[0].0, other.message.to_string());
    world.sleep(100);
    assert_eq!(world.fire(), Fired::default());
    assert_eq!(all(&world.store).unwrap(), TimersRow { next: 3, pending: 0 });
    let nowhere = TimerOp { queue: "no such queue", ..cancelling("k") };
    assert_eq!(world.timers(vec![nowhere]), [TimerResult::Absent]);
    assert_eq!(world.rows(Table::QueueName), 1, "a cancel created a queue");
}

#[test]
fn a_transaction_id_that_is_stored_already_is_not_stored_twice() {
    let mut world = World::new();
    world.push_ids("q", "p", &[(Some("t"), "{}")]);
    let kind = TimerOpKind::Schedule(TimerMessage { transaction_id: Some("t"), ..message("1", 0) });
    world.timers(vec![TimerOp { queue: "q", key: "k", kind }]);
    assert_eq!(world.fire().fired, 1);
    assert_eq!((world.payloads("p"), world.rows(Table::Timer)), (vec!["{}".to_owned()], 0));
}

#[test]
fn one_command_fires_a_bounded_number_and_size_in_the_order_of_their_time() {
    let mut world = World::new();
    let keys: Vec<String> = (0..FIRED_MAX + 44).map(|n| format!("{n}")).collect();
    for (at, some) in keys.chunks(100).enumerate() {
        // The later a timer is set, the earlier it is due.
        let op = |key| scheduling(key, key, 9_000 - 1_000 * at as u64);
        world.timers(some.iter().map(|key| op(key)).collect());
    }
    world.sleep(20);
    let (all, rest) = (FIRED_MAX as u32, Fired { fired: 44, ..Fired::default() });
    assert_eq!(world.fire(), Fired { fired: all, failed: 0, more: true });
    assert_eq!(world.fire(), rest);
    let messages = world.messages("p");
    let want: Vec<String> = keys.chunks(100).rev().flatten().cloned().collect();
    assert_eq!(world.payloads("p"), want);
    assert!(messages.is_sorted_by_key(|(id, ..)| id.clone()), "ids sort as offsets do");

    let long = "1".repeat(FIRED_BYTES_MAX / 4);
    let ops = keys[..6].iter().map(|key| scheduling(key, &long, 0)).collect();
    world.timers(ops);
    assert_eq!(world.fire(), Fired { fired: 4, failed: 0, more: true });
    assert_eq!(world.fire(), Fired { fired: 2, ..Fired::default() });
}

#[test]
fn a_deleted_queue_takes_its_timers_with_it() {
    let mut world = World::new();
    world.set("k", "1", 1_000);
    let delete = Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "q" });
    assert_eq!(world.apply(&delete), Reply::Deleted(true));
    assert_eq!((world.rows(Table::Timer), world.rows(Table::TimerPayload)), (0, 0));
    world.set("k", "2", 1_000);
    world.sleep(9);
    assert_eq!(world.fire().fired, 1);
    assert_eq!(world.payloads("p"), ["2"]);
}

#[test]
fn timers_that_a_deletion_has_not_come_to_do_not_fire() {
    let mut world = World::new();
    let keys: Vec<String> = (0..20).map(|n| format!("{n}")).collect();
    world.timers(keys.iter().map(|key| scheduling(key, "1", 1_000)).collect());
    let (stamp, mut events) = (Stamp(world.now), Vec::new());
    // As a deletion leaves a queue that is too large for one step.
    let cut = world.machine.with_step(stamp, &mut world.store, &mut events, |step| {
        let queue = step.queue(TENANT, "q").unwrap().unwrap();
        step.store.delete(Table::QueueName, &key::queue_name(TENANT, "q"));
        step.memo.forget(queue.id);
        let mut row = queue.row.clone();
        row.deleted = Some(stamp);
        step.put_queue(Queue { id: queue.id, row });
        remove_of_queue(step, queue.id, &mut 5).unwrap()
    });
    assert!(!cut && world.rows(Table::Timer) == 15);
    world.sleep(9);
    assert_eq!(world.fire(), Fired::default());
    assert_eq!((world.rows(Table::Timer), world.rows(Table::Partition)), (0, 0));
}

#[test]
fn a_queue_that_became_encrypted_gets_no_payload_in_the_clear() {
    let mut world = World::new();
    world.set("k", "1", 1_000);
    let number = find(&world.store, QueueId(1), "k").unwrap().unwrap().row.number;
    world.configure("q", |options| options.encryption_enabled = true);
    let before = world.store.clone();
    let set = Command::Timers(Timers { tenant: TENANT, ops: vec![scheduling("x", "1", 0)] });
    let refused = world.apply(&set);
    assert!(matches!(&refused, Reply::Refused(e) if e.code == Code::NotSealed), "{refused:?}");
    assert_eq!(
        world.rows(Table::Timer),
        before.rows().filter(|(t, ..)| *t == Table::Timer).count()
    );
    world.sleep(1);
    // One try after the other, each after a longer pause, the longest a minute.
    for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert_eq!(unsealed_due(&world.store, Stamp(world.now + 1)).unwrap().len(), 1);
        assert_eq!(world.fire(), Fired { failed: 1, ..Fired::default() });
        let next = Stamp(world.now + pause * SECOND);
        assert_eq!(due_at(&world.store).unwrap(), Some(next));
        assert_eq!(unsealed_due(&world.store, Stamp(next.0 - 1)).unwrap().len(), 0);
        world.sleep(pause);
    }
    assert_eq!(world.messages("p"), []);
    let row = find(&world.store, QueueId(1), "k").unwrap().unwrap().row;
    assert_eq!(row.attempts, 8);
    assert!(row.error.unwrap().contains("not sealed"));
    let seal = |number| {
        let kind = TimerOpKind::Seal { number, envelope: b"sealed" };
        vec![TimerOp { queue: "q", key: "k", kind }]
    };
    assert_eq!(world.timers(seal(number + 1)), [TimerResult::Absent], "it was set again");
    assert_eq!(world.timers(seal(number)), [TimerResult::Sealed]);
    assert_eq!(world.timers(seal(number)), [TimerResult::Absent], "it is sealed");
    assert!(unsealed_due(&world.store, Stamp(world.now + 1)).unwrap().is_empty());
    assert_eq!(world.fire().fired, 1);
    assert_eq!(world.payloads("p"), ["sealed"]);
}

#[test]
fn nothing_fires_while_firing_is_switched_off_and_all_of_it_afterwards() {
    let mut world = World::new();
    world.set("k", "1", 1_000);
    world.switch(false);
    assert_eq!(due_at(&world.store).unwrap(), None);
    world.sleep(9);
    assert_eq!(world.fire(), Fired::default());
    assert_eq!(world.rows(Table::Timer), 1);
    world.switch(true);
    assert!(world.events.contains(&Event::TimerDue(Stamp::ZERO)));
    assert_eq!(world.fire().fired, 1);
}

#[test]
fn timers_share_the_fate_of_their_transaction() {
    let mut world = World::new();
    world.set("there", "1", 60_000);
    let gate = |expect| {
        let kind =
            KvOpKind::Put { key: "gate", value: "1", ttl_seconds: None, expect: Some(expect) };
        Rider::Kv(KvOp { ns: "n", kind, required: true })
    };
    let with = |rider| {
        let timers = [scheduling("new", "2", 0), cancelling("there"), cancelling("none")];
        let riders = timers.map(Rider::Timer).into_iter().chain([rider]).collect();
        let (acks, pushes) = (Vec::new(), Vec::new());
        Command::Transaction(Transaction { tenant: TENANT, acks, pushes, riders })
    };
    let Reply::Transaction(lost) = world.apply(&with(gate(7))) else { panic!() };
    assert!(matches!(lost.result, Err(RolledBack::Precondition { rider: 3, .. })), "{lost:?}");
    assert_eq!(world.rows(Table::Timer), 1);
    let Reply::Transaction(done) = world.apply(&with(gate(0))) else { panic!() };
    let riders = done.result.unwrap().riders;
    let RiderResult::Timer(TimerResult::Scheduled { timer, replaced: false }) = &riders[0] else {
        panic!("{riders:?}")
    };
    assert_eq!(timer.due, done.stamp, "under the transaction's own stamp");
    assert!(matches!(riders[1], RiderResult::Timer(TimerResult::Cancelled(_))), "{riders:?}");
    assert_eq!(riders[2], RiderResult::Timer(TimerResult::Absent), "which undoes nothing");
    assert!(matches!(riders[3], RiderResult::Kv(_)));
    assert_eq!(world.fire().fired, 1);
    assert_eq!(world.payloads("p"), ["2"]);
    world.configure("q", |options| options.encryption_enabled = true);
    let before = world.store.clone();
    let refused = world.apply(&with(gate(1)));
    assert!(matches!(&refused, Reply::Refused(e) if e.code == Code::NotSealed), "{refused:?}");
    let rows =
        |store: &crate::MemoryStore| store.rows().filter(|(t, ..)| *t != Table::Meta).count();
    assert_eq!(rows(&world.store), rows(&before));
}

#[test]
fn timers_are_listed_in_key_order_page_by_page() {
    let mut world = World::new();
    let keys = ["a", "b/1", "b/2", "b/3", "c"];
    world.timers(keys.iter().rev().map(|key| scheduling(key, "1", 60_000)).collect());
    let elsewhere = TimerOp { queue: "r", ..scheduling("b/4", "1", 60_000) };
    world.timers(vec![elsewhere]);
    let page = |prefix, after, limit| -> Vec<String> {
        let page = list(&world.store, QueueId(1), prefix, after, limit).unwrap();
        page.iter().map(|timer| timer.key().to_owned()).collect()
    };
    assert_eq!(page("", None, 9), keys);
    assert_eq!(page("b/", None, 2), ["b/1", "b/2"]);
    assert_eq!(page("b/", Some("b/2"), 9), ["b/3"]);
    assert_eq!(page("b/", Some("a"), 9), ["b/1", "b/2", "b/3"]);
    assert_eq!(page("b/", Some("c"), 9), [""; 0]);
}

#[derive(Clone, Debug)]
enum Op {
    Set { queue: usize, key: u8, partition: usize, delay: u64 },
    Cancel { queue: usize, key: u8 },
    Delete { queue: usize },
    Switch(bool),
    Sleep(u64),
    Fire,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..2usize, 0..6u8, 0..2usize, 0..5u64)
            .prop_map(|(queue, key, partition, delay)| Op::Set { queue, key, partition, delay }),
        2 => (0..2usize, 0..6u8).prop_map(|(queue, key)| Op::Cancel { queue, key }),
        1 => (0..2usize).prop_map(|queue| Op::Delete { queue }),
        1 => any::<bool>().prop_map(Op::Switch),
        3 => (0..4u64).prop_map(Op::Sleep),
        4 => Just(Op::Fire),
    ];
    proptest::collection::vec(op, 1..60)
}

const QUEUES: [&str; 2] = ["q", "r"];
const PLACES: [&str; 2] = ["p", "s"];

/// Timers in a plain map, messages in plain lists.
#[derive(Default)]
struct Model {
    timers: BTreeMap<(usize, u8), (u64, u64, usize)>,
    /// Of each queue and partition: numbers, which are the payloads.
    messages: BTreeMap<(usize, usize), Vec<u64>>,
    off: bool,
}

impl Model {
    fn fire(&mut self, now: u64) {
        let mut due: Vec<_> = self.timers.iter().filter(|(_, (due, ..))| *due <= now).collect();
        due.sort_by_key(|(_, (due, number, _))| (*due, *number));
        let due: Vec<_> = due.into_iter().map(|(at, timer)| (*at, *timer)).collect();
        for ((queue, key), (_, number, partition)) in due {
            self.timers.remove(&(queue, key));
            self.messages.entry((queue, partition)).or_default().push(number);
        }
    }
}

fn read(world: &World, queue: usize, partition: usize) -> Vec<u64> {
    let named = crate::step::queue_named(&world.store, TENANT, QUEUES[queue]).unwrap();
    let Some(named) = named else { return Vec::new() };
    let place = crate::step::partition_named(&world.store, named.id, PLACES[partition]).unwrap();
    let Some(place) = place else { return Vec::new() };
    let of = |offset| {
        let run = crate::run::kept_at(&world.store, place.row.id, Offset(offset)).unwrap();
        let frames = crate::run::frames(&world.store, named.id, &run).unwrap().unwrap();
        let frame = crate::run::frame_in(&frames, &run, Offset(offset)).unwrap();
        std::str::from_utf8(frame.payload).unwrap().parse().unwrap()
    };
    (0..place.row.next.0).map(of).collect()
}

proptest! {
    #[test]
    fn any_order_of_operations_fires_what_a_map_with_a_clock_would(ops in ops()) {
        let (mut world, mut model) = (World::new(), Model::default());
        for op in ops {
            // A machine that remembers nothing comes to the same.
            world.machine = Machine::new();
            match op {
                Op::Set { queue, key, partition, delay } => {
                    let number = all(&world.store).unwrap().next;
                    let (name, payload) = (key.to_string(), number.to_string());
                    let message =
                        TimerMessage { partition: PLACES[partition], ..message(&payload, delay * 1000) };
                    let kind = TimerOpKind::Schedule(message);
                    let result = world.timers(vec![TimerOp { queue: QUEUES[queue], key: &name, kind }]);
                    let due = world.now + delay * SECOND;
                    let old = model.timers.insert((queue, key), (due, number, partition));
                    let TimerResult::Scheduled { timer, replaced } = &result[0] else { panic!() };
                    prop_assert_eq!((timer.due.0, *replaced), (due, old.is_some()));
                }
                Op::Cancel { queue, key } => {
                    let name = key.to_string();
                    let result = world.timers(vec![TimerOp { queue: QUEUES[queue], ..cancelling(&name) }]);
                    let was = model.timers.remove(&(queue, key)).is_some();
                    prop_assert_eq!(matches!(result[0], TimerResult::Cancelled(_)), was);
                }
                Op::Delete { queue } => {
                    let delete = QueueRef { tenant: TENANT, queue: QUEUES[queue] };
                    world.apply(&Command::DeleteQueue(delete));
                    model.timers.retain(|(of, _), _| *of != queue);
                    model.messages.retain(|(of, _), _| *of != queue);
                }
                Op::Switch(on) => {
                    world.switch(on);
                    model.off = !on;
                }
                Op::Sleep(seconds) => world.sleep(seconds),
                Op::Fire => {
                    let fired = world.fire().fired as usize;
                    let before = model.timers.len();
                    if !model.off {
                        model.fire(world.now);
                    }
                    prop_assert_eq!(fired, before - model.timers.len());
                }
            }
            prop_assert_eq!(world.rows(Table::Timer), model.timers.len());
            let next = model.timers.values().map(|(due, ..)| Stamp(*due)).min();
            prop_assert_eq!(due_at(&world.store).unwrap(), next.filter(|_| !model.off));
            for (queue, partition) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let want = model.messages.get(&(queue, partition)).cloned().unwrap_or_default();
                prop_assert_eq!(read(&world, queue, partition), want);
            }
        }
    }
}
