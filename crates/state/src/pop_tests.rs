use crate::world::*;
use queen_core::command::*;
use queen_core::reply::*;

#[test]
fn a_push_is_popped_and_acked() {
    let mut world = World::new();
    let pushed = world.push("q", "p", 3);
    assert_eq!((pushed.first_offset.0, pushed.items.len()), (0, 0));
    let popped = world.pop("q", "g", 2);
    let claim = &popped.claims[0];
    assert_eq!((claim.first.0, claim.end.0, claim.attempt), (0, 2, 1));
    let id = world.id_at(claim.partition, 1);
    let outcome = world.ack_one("g", claim.partition, &id, Verdict::Completed, popped.lease);
    assert_eq!(outcome, AckOutcome { lease_released: true, ..AckOutcome::default() });
    assert_eq!(world.one("q", "g", 10), Some((2, 3, 1)));
    assert_eq!(world.one("q", "g", 10), None);
}
