//! Tests of settling, named after the rules of the HTTP contract.

use crate::world::*;
use queen_core::command::*;
use queen_core::reply::*;
use queen_core::{LeaseId, PartitionId};

/// A queue `q` with messages `m0`, `m1`, … in one partition, all popped by group `g`.
fn popped(count: usize, retry_limit: i64) -> (World, PartitionId, LeaseId) {
    let mut world = World::new();
    world.configure("q", |options| options.retry_limit = retry_limit);
    let ids: Vec<String> = (0..count).map(|index| format!("m{index}")).collect();
    let items: Vec<_> = ids.iter().map(|id| (Some(&id[..]), "{\"a\":1}")).collect();
    let partition = world.push_ids("q", "p", &items).partition;
    let lease = world.pop("q", "g", 100).lease.unwrap();
    (world, partition, lease)
}

fn item(partition: PartitionId, id: &str, verdict: Verdict, lease: LeaseId) -> AckItem<'_> {
    let (partition, lease) = (Some(partition), LeaseClaim::Id(lease));
    AckItem { transaction_id: id, partition, verdict, lease, error: None }
}

fn accepted() -> AckOutcome {
    AckOutcome::default()
}

fn released() -> AckOutcome {
    AckOutcome { lease_released: true, ..accepted() }
}

fn refused(refusal: AckRefusal) -> AckOutcome {
    AckOutcome { refusal: Some(refusal), ..accepted() }
}

#[test]
fn completed_settles_everything_at_or_below_it_and_ends_the_batch_at_its_end() {
    let (mut world, p, lease) = popped(3, 3);
    assert_eq!(world.ack_one("g", p, "m1", Verdict::Completed, Some(lease)), accepted());
    assert_eq!(world.one("q", "g", 9), None, "the lease stays until the batch ends");
    assert_eq!(world.ack_one("g", p, "m2", Verdict::Completed, Some(lease)), released());
    world.push("q", "p", 1);
    assert_eq!(world.one("q", "g", 9), Some((3, 4, 1)));
}

#[test]
fn completed_below_the_cursor_is_a_noop_with_any_lease() {
    let (mut world, p, lease) = popped(2, 3);
    let noop = AckOutcome { noop: true, ..accepted() };
    world.ack_one("g", p, "m1", Verdict::Completed, Some(lease));
    assert_eq!(world.ack_one("g", p, "m1", Verdict::Completed, Some(lease)), noop);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, None), noop);
    for verdict in [Verdict::Failed, Verdict::Retry, Verdict::DeadLetter] {
        let outcome = world.ack_one("g", p, "m0", verdict, Some(lease));
        assert_eq!(outcome, refused(AckRefusal::Committed));
    }
}

#[test]
fn failed_redelivers_from_it_until_the_budget_is_spent_then_files_it() {
    let (mut world, p, mut lease) = popped(3, 2);
    for attempt in 2..=3 {
        assert_eq!(world.ack_one("g", p, "m1", Verdict::Failed, Some(lease)), released());
        let again = world.pop("q", "g", 9);
        let claim = &again.claims[0];
        assert_eq!((claim.first.0, claim.end.0, claim.attempt), (1, 3, attempt));
        lease = again.lease.unwrap();
    }
    let filed = AckOutcome { dead_lettered: true, ..released() };
    assert_eq!(world.ack_one("g", p, "m1", Verdict::Failed, Some(lease)), filed);
    let letter = world.letters("q").remove(0);
    assert_eq!((&letter.transaction_id[..], letter.retries), ("m1", 2));
    assert_eq!((&letter.error[..], &letter.payload[..]), ("Retries exhausted", &b"{\"a\":1}"[..]));
    assert_eq!(world.one("q", "g", 9), Some((2, 3, 4)));
}

#[test]
fn without_retries_the_first_failed_ack_files() {
    let (mut world, p, lease) = popped(1, 0);
    assert!(world.ack_one("g", p, "m0", Verdict::Failed, Some(lease)).dead_lettered);
    assert_eq!(world.one("q", "g", 9), None);
}

#[test]
fn with_dead_letters_off_a_message_out_of_retries_is_dropped() {
    let (mut world, p, lease) = popped(2, 0);
    world.configure("q", |options| {
        options.retry_limit = 0;
        options.dead_letter_queue = false;
        options.dlq_after_max_retries = false;
    });
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Failed, Some(lease)), released());
    assert_eq!(world.letters("q").len(), 0);
    assert_eq!(world.one("q", "g", 9), Some((1, 2, 2)));
}

#[test]
fn retry_never_charges() {
    let (mut world, p, mut lease) = popped(1, 0);
    for attempt in 2..6 {
        assert_eq!(world.ack_one("g", p, "m0", Verdict::Retry, Some(lease)), released());
        let again = world.pop("q", "g", 9);
        assert_eq!(again.claims[0].attempt, attempt);
        lease = again.lease.unwrap();
    }
    assert_eq!(world.letters("q").len(), 0);
}

#[test]
fn dlq_files_at_once_with_the_consumers_error() {
    let (mut world, p, lease) = popped(2, 3);
    let poison = AckItem { error: Some("bad row"), ..item(p, "m0", Verdict::DeadLetter, lease) };
    let outcome = world.ack("g", &[poison]).remove(0);
    assert_eq!(outcome, AckOutcome { dead_lettered: true, ..released() });
    assert_eq!(world.letters("q")[0].error, "bad row");
    assert_eq!(world.one("q", "g", 9), Some((1, 2, 2)));
}

#[test]
fn the_budget_is_charged_once_per_call_and_reset_when_a_batch_completes() {
    let (mut world, p, lease) = popped(3, 1);
    let fail = |id| item(p, id, Verdict::Failed, lease);
    world.ack("g", &[fail("m0"), fail("m1"), fail("m2")]);
    let again = world.pop("q", "g", 9);
    world.ack_one("g", p, "m2", Verdict::Completed, again.lease);
    world.push_ids("q", "p", &[(Some("m3"), "1")]);
    let next = world.pop("q", "g", 9);
    let outcome = world.ack_one("g", p, "m3", Verdict::Failed, next.lease);
    assert_eq!(outcome, released(), "the budget is whole again");
}

#[test]
fn inside_one_call_the_cursor_stops_at_the_lowest_redelivered_item() {
    let (mut world, p, lease) = popped(4, 3);
    let items = [
        item(p, "m3", Verdict::Completed, lease),
        item(p, "m1", Verdict::Retry, lease),
        item(p, "m0", Verdict::Completed, lease),
        item(p, "m2", Verdict::DeadLetter, lease),
    ];
    let outcomes = world.ack("g", &items);
    assert!(outcomes.iter().all(|outcome| *outcome == released()), "{outcomes:?}");
    assert_eq!(world.letters("q").len(), 0, "what comes again is not filed");
    assert_eq!(world.one("q", "g", 9), Some((1, 4, 2)));
}

#[test]
fn at_one_offset_dlq_beats_failed_beats_retry_beats_completed() {
    let (mut world, p, lease) = popped(2, 0);
    let both = |a, b| [item(p, "m0", a, lease), item(p, "m0", b, lease)];
    let outcomes = world.ack("g", &both(Verdict::Retry, Verdict::DeadLetter));
    assert!(outcomes[0].dead_lettered && outcomes[1].dead_lettered);
    let lease = world.pop("q", "g", 9).lease.unwrap();
    let items = [item(p, "m1", Verdict::Completed, lease), item(p, "m1", Verdict::Retry, lease)];
    world.ack("g", &items);
    let lease = world.pop("q", "g", 9).lease.unwrap();
    let items = [item(p, "m1", Verdict::Retry, lease), item(p, "m1", Verdict::Failed, lease)];
    world.ack("g", &items);
    assert_eq!(world.letters("q").len(), 2, "failed with no budget");
}

#[test]
fn a_lease_that_is_not_live_or_not_the_holders_is_refused() {
    let (mut world, p, lease) = popped(2, 3);
    let lost = refused(AckRefusal::Lease);
    let stranger = LeaseId([7; 16]);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, Some(stranger)), lost);
    let foreign = AckItem {
        lease: LeaseClaim::Foreign("nope"),
        ..item(p, "m0", Verdict::Completed, stranger)
    };
    assert_eq!(world.ack("g", &[foreign]).remove(0), lost);
    world.sleep(30);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, Some(lease)), lost);
    let new = world.pop("q", "g", 9).lease;
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Failed, Some(lease)), lost);
    assert_eq!(world.ack_one("g", p, "m1", Verdict::Completed, new), released());
}

#[test]
fn an_ack_without_a_lease_is_taken_also_after_expiry() {
    let (mut world, p, _) = popped(3, 3);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, None), accepted());
    world.sleep(31);
    assert_eq!(world.ack_one("g", p, "m1", Verdict::Completed, None), accepted());
    assert_eq!(world.one("q", "g", 9), Some((2, 3, 2)));
}

#[test]
fn an_unknown_id_is_unresolvable_and_leaves_the_lease() {
    let (mut world, p, lease) = popped(1, 3);
    let unknown = refused(AckRefusal::Unresolvable);
    assert_eq!(world.ack_one("g", p, "never", Verdict::Completed, Some(lease)), unknown);
    assert_eq!(world.ack_one("g", PartitionId(99), "m0", Verdict::Completed, Some(lease)), unknown);
    let text = AckItem { partition: None, ..item(p, "m0", Verdict::Completed, lease) };
    assert_eq!(world.ack("g", &[text]), [unknown]);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, Some(lease)), released());
}

#[test]
fn a_group_without_a_cursor_there_is_no_consumer() {
    let (mut world, p, _) = popped(1, 3);
    let outcome = world.ack_one("other", p, "m0", Verdict::Completed, None);
    assert_eq!(outcome, refused(AckRefusal::NoConsumer));
}

#[test]
fn partitions_of_one_lease_are_settled_by_themselves() {
    let mut world = World::new();
    world.push("q", "a", 1);
    world.push("q", "b", 1);
    let popped = world.popped(Pop { partitions: 2, ..pop("q", Some("g"), 9) });
    let ids: Vec<_> = popped.claims.iter().map(|claim| claim.partition).collect();
    let texts: Vec<_> = ids.iter().map(|id| world.id_at(*id, 0)).collect();
    assert_eq!(world.ack_one("g", ids[0], &texts[0], Verdict::Retry, popped.lease), released());
    assert_eq!(world.ack_one("g", ids[1], &texts[1], Verdict::Completed, popped.lease), released());
    assert_eq!(world.one("q", "g", 9), Some((0, 1, 2)));
    assert_eq!(world.one("q", "g", 9), None);
}

#[test]
fn an_ack_finds_its_message_after_its_id_was_forgotten() {
    let (mut world, p, _) = popped(3, 3);
    world.ack_one("g", p, "m0", Verdict::Completed, None);
    world.sleep(4000);
    world.tick(&[]);
    assert_eq!(world.rows(queen_core::table::Table::TransactionId), 0);
    let lease = world.pop("q", "g", 9).lease;
    assert_eq!(world.ack_one("g", p, "m2", Verdict::Completed, lease), released());
    let noop = AckOutcome { noop: true, ..accepted() };
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, lease), noop);
    let unknown = refused(AckRefusal::Unresolvable);
    assert_eq!(world.ack_one("g", p, "never", Verdict::Completed, None), unknown);
}

#[test]
fn of_two_messages_with_one_id_the_one_that_is_out_is_meant() {
    let mut world = World::new();
    world.configure("q", |options| options.dedup_window_seconds = 0);
    let p = world.push_ids("q", "p", &[(Some("m"), "1")]).partition;
    world.push_ids("q", "p", &[(Some("m"), "2")]);
    for offset in 0..2 {
        let popped = world.pop("q", "g", 1);
        assert_eq!(popped.claims[0].first.0, offset);
        assert_eq!(world.ack_one("g", p, "m", Verdict::Completed, popped.lease), released());
    }
}

#[test]
fn what_a_partly_settled_batch_leaves_comes_again_as_a_redelivery() {
    let (mut world, p, lease) = popped(3, 3);
    assert_eq!(world.ack_one("g", p, "m0", Verdict::Completed, Some(lease)), accepted());
    world.push_ids("q", "p", &[(Some("m3"), "1")]);
    world.sleep(31);
    let again = world.pop("q", "g", 2);
    let claim = &again.claims[0];
    assert_eq!((claim.first.0, claim.end.0, claim.attempt), (1, 3, 2));
    world.ack_one("g", p, "m1", Verdict::Completed, again.lease);
    world.sleep(31);
    assert_eq!(world.one("q", "g", 1), Some((2, 3, 3)));
}

#[test]
fn queue_mode_acks_without_naming_a_group() {
    let mut world = World::new();
    let p = world.push("q", "p", 1).partition;
    let id = world.id_at(p, 0);
    let popped = world.popped(pop("q", None, 1));
    let items = [item(p, &id, Verdict::Completed, popped.lease.unwrap())];
    let ack = Ack { tenant: TENANT, group: None, items: items.to_vec() };
    assert_eq!(world.apply(&Command::Ack(ack)), Reply::Ack(vec![released()]));
}
