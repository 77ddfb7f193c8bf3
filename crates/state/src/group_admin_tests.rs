//! Tests of seeking, deleting and moving groups.

use crate::world::{SECOND, TENANT, World, pop};
use queen_core::command::*;
use queen_core::reply::{AckRefusal, Reply};
use queen_core::table::Table;
use queen_core::{Code, Offset, Stamp};

fn seek_on(world: &mut World, queue: &str, partition: Option<&str>, to: SeekTo) -> Option<u64> {
    match world.apply(&Command::Seek(Seek { tenant: TENANT, group: "g", queue, partition, to })) {
        Reply::Seek(moved) => moved,
        other => panic!("{other:?}"),
    }
}

fn seek(world: &mut World, to: SeekTo) -> Option<u64> {
    seek_on(world, "q", None, to)
}

fn forget(world: &mut World, queue: Option<&str>) -> u64 {
    let command = DeleteGroup { tenant: TENANT, group: "g", queue };
    match world.apply(&Command::DeleteGroup(command)) {
        Reply::GroupDeleted(cursors) => cursors,
        other => panic!("{other:?}"),
    }
}

/// Pops and settles everything there is for group `g`.
fn drain(world: &mut World, queue: &str) -> u64 {
    let mut got = 0;
    loop {
        let popped = world.popped(Pop { auto_ack: true, ..pop(queue, Some("g"), 100) });
        let Some(claim) = popped.claims.first() else { return got };
        got += claim.end.0 - claim.first.0;
    }
}

#[test]
fn a_seek_to_a_time_delivers_what_was_stamped_from_it_on() {
    let mut world = World::new();
    world.push("q", "a", 2);
    world.sleep(10);
    let middle = Stamp(world.now);
    world.push("q", "a", 3);
    world.push("q", "b", 4);
    assert_eq!(drain(&mut world, "q"), 9);
    assert_eq!(seek(&mut world, SeekTo::Time(middle)), Some(2));
    assert_eq!(drain(&mut world, "q"), 7);
    assert_eq!(seek(&mut world, SeekTo::Time(Stamp::ZERO)), Some(2));
    assert_eq!(drain(&mut world, "q"), 9);
}

#[test]
fn a_seek_to_the_end_skips_the_backlog_and_no_more() {
    let mut world = World::new();
    world.push("q", "a", 2);
    assert_eq!(seek(&mut world, SeekTo::End), Some(1));
    assert_eq!(drain(&mut world, "q"), 0);
    world.push("q", "a", 1);
    world.push("q", "born-later", 1);
    assert_eq!(drain(&mut world, "q"), 2);
}

#[test]
fn a_seek_ends_leases_and_the_retry_count() {
    let mut world = World::new();
    world.push("q", "a", 2);
    let popped = world.pop("q", "g", 2);
    let partition = popped.claims[0].partition;
    let id = world.id_at(partition, 0);
    seek(&mut world, SeekTo::Time(Stamp::ZERO));
    assert_eq!((world.rows(Table::Lease), world.rows(Table::LeaseExpiry)), (0, 0));
    let late = world.ack_one("g", partition, &id, Verdict::Completed, popped.lease);
    assert!(matches!(late.refusal, Some(AckRefusal::Lease | AckRefusal::NoConsumer)));
    assert_eq!(world.one("q", "g", 9), Some((0, 2, 1)));
}

#[test]
fn a_seek_of_one_partition_leaves_the_others() {
    let mut world = World::new();
    world.push("q", "a", 3);
    world.push("q", "b", 3);
    drain(&mut world, "q");
    assert_eq!(seek_on(&mut world, "q", Some("a"), SeekTo::Offset(Offset(1))), Some(1));
    assert_eq!(world.one("q", "g", 9), Some((1, 3, 1)));
    assert_eq!(seek_on(&mut world, "q", Some("a"), SeekTo::End), Some(1));
    assert_eq!(world.one("q", "g", 9), None);
    assert_eq!(seek_on(&mut world, "q", Some("b"), SeekTo::Time(Stamp::ZERO)), Some(1));
    assert_eq!(drain(&mut world, "q"), 3);
    assert_eq!(seek_on(&mut world, "q", Some("b"), SeekTo::Offset(Offset(99))), Some(1));
    assert_eq!(drain(&mut world, "q"), 0);
}

#[test]
fn a_seek_before_the_first_pop_positions_the_group() {
    let mut world = World::new();
    world.push("q", "a", 3);
    seek_on(&mut world, "q", Some("a"), SeekTo::Offset(Offset(2)));
    assert_eq!(world.one("q", "g", 9), Some((2, 3, 1)));
}

#[test]
fn a_seek_where_there_is_nothing_says_so() {
    let mut world = World::new();
    assert_eq!(seek(&mut world, SeekTo::End), None);
    world.configure("q", |_| {});
    assert_eq!(seek(&mut world, SeekTo::End), None, "no partitions");
    world.push("q", "a", 1);
    assert_eq!(seek_on(&mut world, "q", Some("x"), SeekTo::End), None);
    let to = SeekTo::Offset(Offset(1));
    let command = Seek { tenant: TENANT, group: "g", queue: "q", partition: None, to };
    let reply = world.apply(&Command::Seek(command));
    assert!(matches!(reply, Reply::Refused(error) if error.code == Code::BadRequest));
}

#[test]
fn a_forgotten_group_begins_anew() {
    let mut world = World::new();
    for queue in ["q", "r"] {
        world.push(queue, "a", 2);
        world.push(queue, "b", 2);
        assert_eq!(drain(&mut world, queue), 4);
    }
    assert_eq!(forget(&mut world, Some("q")), 2);
    assert_eq!(world.rows(Table::Group), 1);
    assert_eq!((drain(&mut world, "q"), drain(&mut world, "r")), (4, 0));
    assert_eq!(forget(&mut world, None), 4);
    assert_eq!((world.rows(Table::Group), world.rows(Table::Cursor)), (0, 0));
    assert_eq!((forget(&mut world, None), forget(&mut world, Some("nowhere"))), (0, 0));
    assert_eq!((drain(&mut world, "q"), drain(&mut world, "r")), (4, 4));
}

#[test]
fn forgetting_a_group_ends_its_leases_and_leaves_other_groups() {
    let mut world = World::new();
    world.push("q", "a", 2);
    world.pop("q", "g", 1);
    world.pop("q", "other", 1);
    forget(&mut world, Some("q"));
    assert_eq!((world.rows(Table::Lease), world.rows(Table::LeaseExpiry)), (1, 1));
    assert_eq!(world.one("q", "g", 9), Some((0, 2, 1)));
}

#[test]
fn a_moved_subscription_decides_where_new_partitions_begin() {
    let mut world = World::new();
    world.push("q", "old", 2);
    let middle = Stamp(world.now + 5 * SECOND);
    world.sleep(10);
    world.push("q", "late", 3);
    let new = Pop { start: GroupStart::New, ..pop("q", Some("g"), 10) };
    assert!(world.popped(new).claims.is_empty());
    let to = MoveSubscription { tenant: TENANT, group: "g", to: middle };
    let reply = world.apply(&Command::MoveSubscription(to.clone()));
    assert_eq!(reply, Reply::SubscriptionMoved(1));
    assert_eq!(drain(&mut world, "q"), 3);
    let nobody = MoveSubscription { group: "nobody", ..to };
    assert_eq!(world.apply(&Command::MoveSubscription(nobody)), Reply::SubscriptionMoved(0));
}
