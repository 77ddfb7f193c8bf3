//! Tests of claiming, named after the rules of the HTTP contract.

use crate::world::*;
use queen_core::command::*;
use queen_core::reply::*;
use queen_core::table::Table;
use queen_core::{PartitionId, Stamp};

fn spans(popped: &Popped) -> Vec<(&str, u64, u64)> {
    let claims = popped.claims.iter();
    claims.map(|claim| (&claim.partition_name[..], claim.first.0, claim.end.0)).collect()
}

/// Completes the last message of every claim.
fn complete(world: &mut World, group: &str, popped: &Popped) {
    for claim in &popped.claims {
        let id = world.id_at(claim.partition, claim.end.0 - 1);
        let outcome = world.ack_one(group, claim.partition, &id, Verdict::Completed, popped.lease);
        assert_eq!(outcome.refusal, None);
    }
}

#[test]
fn a_push_is_popped_and_acked() {
    let mut world = World::new();
    let pushed = world.push("q", "p", 3);
    assert_eq!((pushed.first_offset.0, pushed.items.len()), (0, 0));
    let popped = world.pop("q", "g", 2);
    assert_eq!(spans(&popped), [("p", 0, 2)]);
    complete(&mut world, "g", &popped);
    assert_eq!(world.one("q", "g", 10), Some((2, 3, 1)));
    assert_eq!(world.one("q", "g", 10), None);
}

#[test]
fn the_batch_bounds_the_sum_over_partitions_exactly() {
    let mut world = World::new();
    for partition in ["a", "b", "c"] {
        world.push("q", partition, 4);
    }
    let wide = Pop { partitions: 64, ..pop("q", Some("g"), 10) };
    let popped = world.popped(wide);
    assert_eq!(spans(&popped), [("a", 0, 4), ("b", 0, 4), ("c", 0, 2)]);
    complete(&mut world, "g", &popped);
    assert_eq!(world.one("q", "g", 10), Some((2, 4, 1)));
}

#[test]
fn a_pop_takes_one_partition_unless_it_asks_for_more() {
    let mut world = World::new();
    world.push("q", "a", 1);
    world.push("q", "b", 1);
    world.push("q", "c", 1);
    assert_eq!(spans(&world.pop("q", "g", 10)), [("a", 0, 1)]);
    let two = Pop { partitions: 2, ..pop("q", Some("g"), 10) };
    assert_eq!(spans(&world.popped(two)), [("b", 0, 1), ("c", 0, 1)]);
}

#[test]
fn partitions_of_one_push_are_given_one_after_the_other() {
    let mut world = World::new();
    let (bytes, text_bytes) = frames(&[(None, "1")]);
    let names: Vec<String> = (0..100).map(|index| format!("p{index}")).collect();
    let group = |name| PushGroup {
        queue: "q",
        partition: name,
        count: 1,
        has_transaction_ids: false,
        text_bytes,
        frames: &bytes,
    };
    let groups = names.iter().map(|name| group(&name[..])).collect();
    world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    for name in &names {
        assert_eq!(spans(&world.pop("q", "g", 1)), [(&name[..], 0, 1)]);
    }
    assert_eq!(world.one("q", "g", 1), None);
}

#[test]
fn a_leased_partition_is_not_given_to_another_worker_of_the_group() {
    let mut world = World::new();
    world.push("q", "p", 1);
    assert!(world.one("q", "g", 1).is_some());
    world.push("q", "p", 1);
    assert_eq!(world.one("q", "g", 1), None);
    let named = Pop { partition: Some("p"), ..pop("q", Some("g"), 1) };
    assert_eq!(world.popped(named).claims, []);
    assert_eq!(world.one("q", "other", 9), Some((0, 2, 1)), "groups are independent");
}

#[test]
fn the_longest_waiting_partition_comes_first() {
    let mut world = World::new();
    world.push("q", "a", 2);
    let first = world.pop("q", "g", 1);
    world.push("q", "b", 1);
    complete(&mut world, "g", &first);
    world.push("q", "c", 1);
    let wide = Pop { partitions: 9, ..pop("q", Some("g"), 9) };
    assert_eq!(spans(&world.popped(wide)), [("b", 0, 1), ("a", 1, 2), ("c", 0, 1)]);
}

#[test]
fn an_expired_lease_is_redelivered_with_the_next_attempt_and_no_charge() {
    let mut world = World::new();
    world.configure("q", |options| options.retry_limit = 0);
    world.push("q", "p", 2);
    for attempt in 1..=5 {
        assert_eq!(world.one("q", "g", 9), Some((0, 2, attempt)));
        assert_eq!(world.one("q", "g", 9), None);
        world.sleep(30);
    }
    assert_eq!(world.letters("q").len(), 0);
}

#[test]
fn a_tick_ends_leases_and_tells_their_group() {
    let mut world = World::new();
    world.push("q", "p", 1);
    world.one("q", "g", 1);
    world.sleep(31);
    assert!(!world.tick(&[]).more);
    let queue = world.queue_id("q");
    assert!(matches!(world.events[..], [Event::Ready { queue: q, .. }] if q == queue));
    assert_eq!(world.rows(Table::Lease) + world.rows(Table::LeaseExpiry), 0);
    assert_eq!(world.rows(Table::Ready), 1);
}

#[test]
fn queue_mode_never_skips_a_backlog() {
    let mut world = World::new();
    world.push("q", "p", 2);
    let late = Pop { start: GroupStart::New, group: None, ..pop("q", None, 9) };
    assert_eq!(spans(&world.popped(late)), [("p", 0, 2)]);
}

#[test]
fn a_new_group_starts_at_the_end_of_partitions_that_exist() {
    let mut world = World::new();
    world.push("q", "old", 2);
    let new = || Pop { start: GroupStart::New, partitions: 9, ..pop("q", Some("g"), 9) };
    assert_eq!(world.popped(new()).claims, []);
    world.push("q", "old", 1);
    world.push("q", "born later", 2);
    assert_eq!(spans(&world.popped(new())), [("old", 2, 3), ("born later", 0, 2)]);
}

#[test]
fn registration_and_not_first_contact_decides_where_new_starts() {
    let mut world = World::new();
    let new = Pop { start: GroupStart::New, ..pop("q", Some("g"), 9) };
    assert_eq!(world.popped(new).claims, []);
    assert_eq!(world.rows(Table::Queue), 1, "the queue is made at first contact");
    world.push("q", "p", 3);
    let all = Pop { start: GroupStart::All, partition: Some("p"), ..pop("q", Some("g"), 9) };
    assert_eq!(spans(&world.popped(all)), [("p", 0, 3)]);
}

#[test]
fn a_group_may_start_at_a_time() {
    let mut world = World::new();
    world.push("q", "p", 2);
    world.sleep(10);
    let from = Stamp(world.now);
    world.push("q", "p", 3);
    world.push("q", "other", 1);
    let start = GroupStart::From(from);
    let popped = world.popped(Pop { start, partitions: 9, ..pop("q", Some("g"), 9) });
    assert_eq!(spans(&popped), [("p", 2, 5), ("other", 0, 1)]);
}

#[test]
fn queue_mode_makes_no_queue_and_an_unknown_partition_is_empty() {
    let mut world = World::new();
    assert_eq!(world.popped(pop("q", None, 1)).claims, []);
    assert_eq!(world.rows(Table::Queue), 0);
    world.push("q", "p", 1);
    let named = Pop { partition: Some("nope"), ..pop("q", Some("g"), 1) };
    assert_eq!(world.popped(named).claims, []);
    assert_eq!(world.rows(Table::Partition), 1);
}

#[test]
fn commit_at_delivery_takes_no_lease_and_moves_on() {
    let mut world = World::new();
    world.push("q", "p", 5);
    let auto = || Pop { auto_ack: true, ..pop("q", Some("g"), 2) };
    for span in [(0, 2), (2, 4), (4, 5)] {
        let popped = world.popped(auto());
        assert_eq!((popped.lease, spans(&popped)), (None, vec![("p", span.0, span.1)]));
    }
    assert_eq!(world.popped(auto()).claims, []);
    assert_eq!(world.rows(Table::Lease) + world.rows(Table::Ready), 0);
}

#[test]
fn a_delayed_message_is_given_so_long_after_its_append() {
    let mut world = World::new();
    world.configure("q", |options| options.delayed_processing = 10);
    world.push("q", "p", 1);
    world.sleep(5);
    world.push("q", "p", 1);
    assert_eq!(world.one("q", "g", 9), None);
    world.sleep(5);
    let popped = world.pop("q", "g", 9);
    assert_eq!(spans(&popped), [("p", 0, 1)]);
    complete(&mut world, "g", &popped);
    assert_eq!(world.one("q", "g", 9), None);
    world.sleep(5);
    assert_eq!(world.one("q", "g", 9), Some((1, 2, 1)));
}

#[test]
fn a_buffered_partition_is_given_after_so_long_of_quiet() {
    let mut world = World::new();
    world.configure("q", |options| options.window_buffer = 10);
    for _ in 0..3 {
        world.push("q", "p", 1);
        world.sleep(6);
        assert_eq!(world.one("q", "g", 9), None);
    }
    world.sleep(5);
    assert_eq!(world.one("q", "g", 2), Some((0, 2, 1)));
    // The rest waits for quiet again when it is written to while leased.
    world.push("q", "p", 1);
    world.sleep(9);
    let popped = world.popped(Pop { partition: Some("p"), ..pop("q", Some("other"), 9) });
    assert_eq!(popped.claims, []);
    world.sleep(2);
    assert_eq!(world.one("q", "other", 9), Some((0, 4, 1)));
}

#[test]
fn messages_that_waited_too_long_are_given_to_no_group() {
    let mut world = World::new();
    world.configure("q", |options| options.max_wait_time_seconds = 60);
    world.push("q", "p", 2);
    world.sleep(59);
    world.push("q", "p", 1);
    world.sleep(2);
    assert_eq!(world.one("q", "g", 9), Some((2, 3, 1)));
    assert_eq!(world.letters("q").len(), 0);
}

#[test]
fn an_undelivered_claim_goes_back_without_an_attempt() {
    let mut world = World::new();
    world.push("q", "a", 1);
    world.push("q", "b", 1);
    let popped = world.popped(Pop { partitions: 2, ..pop("q", Some("g"), 9) });
    let lease = popped.lease.unwrap();
    let back = Command::ReturnLease(ReturnLease { tenant: TENANT, lease });
    assert!(matches!(world.apply(&back), Reply::Lease(LeaseExtended { claims: 2, .. })));
    assert!(matches!(world.apply(&back), Reply::Lease(LeaseExtended { claims: 0, .. })));
    assert_eq!(world.one("q", "g", 9), Some((0, 1, 1)));
}

#[test]
fn a_lease_is_extended_for_all_its_claims_and_never_shortened() {
    let mut world = World::new();
    world.push("q", "a", 1);
    world.push("q", "b", 1);
    let popped = world.popped(Pop { partitions: 2, ..pop("q", Some("g"), 9) });
    let lease = popped.lease.unwrap();
    let extend = |world: &mut World, seconds| {
        let command = ExtendLease { tenant: TENANT, lease, seconds };
        match world.apply(&Command::ExtendLease(command)) {
            Reply::Lease(extended) => extended,
            other => panic!("{other:?}"),
        }
    };
    let claimed = world.now;
    let shorter = extend(&mut world, 1);
    assert_eq!((shorter.claims, shorter.expires_at.0), (2, claimed + 30 * SECOND));
    let longer = extend(&mut world, 60);
    assert_eq!((longer.claims, longer.expires_at.0), (2, world.now + 60 * SECOND));
    let stranger = ExtendLease { tenant: queen_core::TenantId([7; 16]), lease, seconds: 900 };
    let reply = world.apply(&Command::ExtendLease(stranger));
    assert!(matches!(reply, Reply::Lease(LeaseExtended { claims: 0, .. })), "not its lease");
    world.sleep(59);
    assert_eq!(world.one("q", "g", 9), None);
    world.sleep(1);
    assert_eq!(extend(&mut world, 60).claims, 0, "over, swept or not");
    assert_eq!(world.one("q", "g", 9), Some((0, 1, 2)));
}

#[test]
fn a_pop_is_worth_a_try_when_something_is_or_will_be_there() {
    let mut world = World::new();
    world.configure("q", |options| options.delayed_processing = 10);
    world.one("q", "g", 1);
    let ready = |world: &World| {
        let queue = crate::query::queue_named(&world.store, TENANT, "q").unwrap().unwrap();
        let group = crate::query::group_registered(&world.store, queue.id, "g").unwrap().unwrap();
        crate::query::ready_at(&world.store, &queue, &group).unwrap().map(|stamp| stamp.0)
    };
    assert_eq!(ready(&world), None);
    let pushed = world.push("q", "p", 1);
    assert_eq!(ready(&world), Some(pushed.stamp.0));
    assert_eq!(world.one("q", "g", 1), None);
    assert_eq!(ready(&world), Some(pushed.stamp.0 + 10 * SECOND), "now the delay is known");
    world.sleep(11);
    assert!(world.one("q", "g", 1).is_some());
    assert_eq!(ready(&world), None);
    let due = crate::query::tick_due_at(&world.store).unwrap();
    assert_eq!(due, Some(Stamp(world.now + 30 * SECOND)));
}

#[test]
fn messages_are_located_over_runs() {
    let mut world = World::new();
    let id = world.push("q", "p", 3).partition;
    world.push("q", "p", 3);
    world.push("q", "p", 3);
    let (first, end) = (queen_core::Offset(2), queen_core::Offset(7));
    let found = crate::query::messages(&world.store, id, first, end).unwrap();
    let spans: Vec<_> = found.iter().map(|at| (at.run_first.0, at.first.0, at.end.0)).collect();
    assert_eq!(spans, [(0, 2, 3), (3, 3, 6), (6, 6, 7)]);
    let none = crate::query::messages(&world.store, PartitionId(99), first, end).unwrap();
    assert!(none.is_empty());
}

fn with(pop: Pop<'static>, queues: &[&'static str], conflation: bool) -> Command<'static> {
    Command::PopWith(PopWith { pop, queues: queues.to_vec(), conflation })
}

fn popped(world: &mut World, command: &Command<'_>) -> Popped {
    match world.apply(command) {
        Reply::Pop(popped) => popped,
        other => panic!("{other:?}"),
    }
}

#[test]
fn several_queues_share_one_lease_one_batch_and_the_order_asked_for() {
    let mut world = World::new();
    for (queue, count) in [("a", 3), ("b", 2), ("c", 4)] {
        world.push(queue, "p", count);
    }
    let wide = Pop { partitions: 9, ..pop("", Some("g"), 6) };
    let first = popped(&mut world, &with(wide.clone(), &["b", "none", "c", "a"], false));
    assert_eq!(spans(&first), [("p", 0, 2), ("p", 0, 4)]);
    assert!(first.lease.is_some() && !first.conflation);
    assert_eq!(world.one("c", "g", 9), None, "it is held under the same lease");
    complete(&mut world, "g", &first);
    let narrow = Pop { partitions: 1, ..wide.clone() };
    let second = popped(&mut world, &with(narrow, &["b", "c", "a"], false));
    assert_eq!(spans(&second), [("p", 0, 3)]);
    // Every queue named knows the group, whatever was claimed of it.
    world.push("a", "q", 1);
    let new = Pop { start: GroupStart::New, group: Some("late"), ..wide };
    assert!(spans(&popped(&mut world, &with(new.clone(), &["a", "b"], false))).is_empty());
    world.push("b", "p", 1);
    assert_eq!(spans(&popped(&mut world, &with(new, &["a", "b"], false))), [("p", 2, 3)]);
    assert!(is_missing(&world, "none"));
}

fn is_missing(world: &World, queue: &str) -> bool {
    crate::step::queue_named(&world.store, TENANT, queue).unwrap().is_none()
}

#[test]
fn a_group_that_conflates_is_given_the_newest_message_of_each_partition() {
    let mut world = World::new();
    world.push("q", "a", 3);
    world.push("q", "b", 1);
    world.push("q", "a", 2);
    let wide = || Pop { partitions: 9, ..pop("q", Some("g"), 9) };
    let first = popped(&mut world, &with(wide(), &[], true));
    assert_eq!(spans(&first), [("b", 0, 1), ("a", 4, 5)]);
    assert!(first.conflation);
    world.push("q", "a", 2);
    let claim = &first.claims[1];
    let id = world.id_at(claim.partition, 4);
    let outcome = world.ack_one("g", claim.partition, &id, Verdict::Completed, first.lease);
    assert_eq!((outcome.conflated, outcome.lease_released), (4, true));
    let id = world.id_at(first.claims[0].partition, 0);
    let alone = world.ack_one("g", first.claims[0].partition, &id, Verdict::Completed, first.lease);
    assert_eq!(alone.conflated, 0);
    // The policy is the group's: a plain pop conflates too, and asking again changes nothing.
    assert_eq!(spans(&world.popped(wide())), [("a", 6, 7)]);
    world.push("q", "c", 2);
    world.popped(pop("q", Some("plain"), 1));
    let plain = popped(&mut world, &with(pop("q", Some("plain"), 9), &[], true));
    assert_eq!((spans(&plain), plain.conflation), (vec![("a", 0, 7)], false));
}

fn pop_newest(world: &mut World) -> (u64, u64, u32, Popped) {
    let newest = popped(world, &with(pop("q", Some("g"), 9), &[], true));
    let claim = newest.claims[0].clone();
    (claim.first.0, claim.end.0, claim.attempt, newest)
}

#[test]
fn what_a_conflating_group_does_not_settle_comes_again_as_its_newest() {
    let mut world = World::new();
    world.push("q", "p", 3);
    let (first, end, attempt, given) = pop_newest(&mut world);
    assert_eq!((first, end, attempt), (2, 3, 1));
    let back = ReturnLease { tenant: TENANT, lease: given.lease.unwrap() };
    world.apply(&Command::ReturnLease(back));
    let (first, end, attempt, given) = pop_newest(&mut world);
    assert_eq!((first, end, attempt), (2, 3, 1), "it was not delivered");
    let partition = given.claims[0].partition;
    let id = world.id_at(partition, 2);
    world.ack_one("g", partition, &id, Verdict::Failed, given.lease);
    let (first, end, attempt, _) = pop_newest(&mut world);
    assert_eq!((first, end, attempt), (2, 3, 2));
    world.push("q", "p", 1);
    world.sleep(60);
    let (first, end, attempt, _) = pop_newest(&mut world);
    assert_eq!((first, end, attempt), (3, 4, 1), "the lease is over, and there is a newer one");
}

#[test]
fn a_seek_keeps_a_group_conflating() {
    let mut world = World::new();
    world.push("q", "p", 3);
    pop_newest(&mut world);
    let seek = Seek {
        tenant: TENANT,
        group: "g",
        queue: "q",
        partition: None,
        to: SeekTo::Time(Stamp(0)),
    };
    world.apply(&Command::Seek(seek));
    let again = world.pop("q", "g", 9);
    assert_eq!((spans(&again), again.conflation), (vec![("p", 2, 3)], true));
}
