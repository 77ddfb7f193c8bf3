//! Tests of locks: one holder, tokens that rise, permits that end, and any interleaving against a model.

use super::*;
use crate::MemoryStore;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// A store with a clock that only the test moves.
struct World {
    store: MemoryStore,
    now: u64,
}

impl World {
    fn new() -> World {
        World { store: MemoryStore::default(), now: 1_792_837_434_000_000 }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += seconds * 1_000_000;
    }

    fn one(&mut self, name: &str, kind: LockOpKind<'_>) -> LockResult {
        self.now += 1;
        let locks = Locks { tenant: TenantId::DEFAULT, ops: vec![LockOp { name, kind }] };
        apply(&locks, Stamp(self.now), &mut self.store).unwrap().remove(0)
    }

    fn holders(&self, name: &str) -> Vec<Holder> {
        holders(TenantId::DEFAULT, name, Stamp(self.now), &self.store).unwrap()
    }
}

fn acquire(owner: &str, limit: u32) -> LockOpKind<'_> {
    LockOpKind::Acquire { owner: Some(owner), ttl_seconds: 10, limit }
}

fn renew(slot: u32, token: u64, owner: Option<&str>) -> LockOpKind<'_> {
    LockOpKind::Renew { slot, token, owner, ttl_seconds: 10 }
}

fn token(result: &LockResult) -> u64 {
    match result {
        LockResult::Acquired { token, .. } | LockResult::Renewed { token, .. } => *token,
        other => panic!("{other:?}"),
    }
}

fn slot(result: &LockResult) -> u32 {
    match result {
        LockResult::Acquired { slot, .. } => *slot,
        other => panic!("{other:?}"),
    }
}

fn owners(holders: &[Holder]) -> Vec<&str> {
    holders.iter().map(|holder| holder.owner.as_deref().unwrap_or("")).collect()
}

#[test]
fn a_lock_has_one_holder_and_a_permit_is_a_kv_row() {
    let mut world = World::new();
    let taken = world.one("n", acquire("a", 1));
    let LockResult::Held(held) = world.one("n", acquire("b", 1)) else { panic!() };
    assert_eq!(owners(&held), ["a"]);
    let stamp = Stamp(world.now);
    let row = kv::live(TenantId::DEFAULT, "queen-locks", "n#0", stamp, &world.store).unwrap();
    let row = row.unwrap();
    assert_eq!(row.version, token(&taken));
    let value: serde_json::Value = serde_json::from_slice(&row.value).unwrap();
    assert_eq!(value["owner"], "a");
    let (slot, token) = (0, token(&taken));
    let released = world.one("n", LockOpKind::Release { slot, token });
    assert_eq!(released, LockResult::Released { slot: 0 });
    assert!(super::tests::token(&world.one("n", acquire("b", 1))) > token);
    let LockResult::Lost(held) = world.one("n", LockOpKind::Release { slot, token }) else {
        panic!()
    };
    assert_eq!(owners(&held), ["b"]);
}

#[test]
fn an_owner_that_asks_again_has_the_same_permit_untouched() {
    let mut world = World::new();
    let first = world.one("n", acquire("a", 3));
    let before = world.store.clone();
    world.wait(5);
    let LockResult::Acquired { slot, token, owner, already } = world.one("n", acquire("a", 3))
    else {
        panic!()
    };
    assert_eq!((slot, token, &*owner, already), (0, super::tests::token(&first), "a", true));
    assert!(world.store == before, "the permit was given a longer life");
    world.wait(5);
    let LockResult::Acquired { already: false, token: next, .. } = world.one("n", acquire("a", 3))
    else {
        panic!()
    };
    assert!(next > token);
}

#[test]
fn a_holder_without_a_name_gets_one_of_its_own() {
    let mut world = World::new();
    let nameless = LockOpKind::Acquire { owner: None, ttl_seconds: 10, limit: 2 };
    let [first, second] = [0, 1].map(|_| world.one("n", nameless.clone()));
    assert_eq!((slot(&first), slot(&second)), (0, 1));
    let holders = world.holders("n");
    assert_ne!(holders[0].owner, holders[1].owner);
}

#[test]
fn a_renewal_gives_a_new_token_and_keeps_the_beginning() {
    let mut world = World::new();
    let first = token(&world.one("n", acquire("a", 1)));
    let since = Stamp(world.now);
    world.wait(9);
    let second = token(&world.one("n", renew(0, first, None)));
    assert!(second > first);
    world.wait(9);
    let [holder] = &world.holders("n")[..] else { panic!() };
    assert_eq!((holder.token, holder.since), (second, Some(since)));
    assert_eq!(holder.renewed, Stamp(world.now - 9_000_000));
    assert_eq!(holder.expires, Some(holder.renewed.plus_seconds(10)));
    // The answer got lost: the owner comes with its old token, a stranger must not.
    assert!(token(&world.one("n", renew(0, first, Some("a")))) > second);
    for (old, owner) in [(first, None), (second, Some("b")), (u64::MAX, Some("a"))] {
        let LockResult::Lost(held) = world.one("n", renew(0, old, owner)) else { panic!() };
        assert_eq!(owners(&held), ["a"]);
    }
    world.wait(11);
    assert_eq!(world.one("n", renew(0, first, Some("a"))), LockResult::Lost(Vec::new()));
}

#[test]
fn a_permit_whose_time_is_over_is_free_before_any_sweep() {
    let mut world = World::new();
    let old = token(&world.one("n", acquire("a", 1)));
    world.wait(10);
    assert_eq!(world.holders("n"), []);
    let new = token(&world.one("n", acquire("b", 1)));
    assert!(new > old);
    let back = LockOpKind::Release { slot: 0, token: old };
    assert!(matches!(world.one("n", back), LockResult::Lost(_)));
    assert_eq!(owners(&world.holders("n")), ["b"]);
}

#[test]
fn a_semaphore_gives_its_lowest_free_permit() {
    let mut world = World::new();
    let names: Vec<String> = (0..12).map(|n| format!("o{n}")).collect();
    let taken: Vec<_> = names.iter().map(|name| world.one("n", acquire(name, 12))).collect();
    assert_eq!(taken.iter().map(slot).collect::<Vec<_>>(), (0..12).collect::<Vec<_>>());
    let LockResult::Held(held) = world.one("n", acquire("late", 12)) else { panic!() };
    assert_eq!(
        held.iter().map(|holder| holder.slot).collect::<Vec<_>>(),
        (0..12).collect::<Vec<_>>()
    );
    for at in [11, 2] {
        let back = LockOpKind::Release { slot: at, token: token(&taken[at as usize]) };
        assert_eq!(world.one("n", back), LockResult::Released { slot: at });
    }
    assert_eq!(slot(&world.one("n", acquire("late", 12))), 2);
}

#[test]
fn locks_whose_names_begin_alike_and_rows_written_by_hand_do_not_meet() {
    let mut world = World::new();
    world.one("n", acquire("a", 1));
    world.one("nn", acquire("b", 1));
    let put = |key, value| KvOp {
        ns: LOCK_NAMESPACE,
        kind: KvOpKind::Put { key, value, ttl_seconds: None, expect: None },
        required: false,
    };
    let ops = vec![put("n#01", "1"), put("n#x", "1"), put("n#1", "\"by hand\"")];
    let batch = KvBatch { tenant: TenantId::DEFAULT, ops };
    kv::apply(&batch, Stamp(world.now), &mut world.store).unwrap();
    let holders = world.holders("n");
    assert_eq!(owners(&holders), ["a", ""]);
    assert_eq!((holders[1].slot, holders[1].since, holders[1].expires), (1, None, None));
    assert_eq!(slot(&world.one("n", acquire("c", 3))), 2);
    assert_eq!(owners(&world.holders("nn")), ["b"]);
}

#[derive(Clone, Debug)]
enum Step {
    Acquire(u8),
    /// By an owner, with its newest token or the one before.
    Renew(u8, bool),
    Release(u8),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let owner = 0u8..4;
    prop_oneof![
        4 => owner.clone().prop_map(Step::Acquire),
        3 => (owner.clone(), any::<bool>()).prop_map(|(owner, old)| Step::Renew(owner, old)),
        2 => owner.prop_map(Step::Release),
        2 => (0u64..7).prop_map(Step::Wait),
    ]
}

/// A permit of the model.
#[derive(Clone, Copy)]
struct Held {
    owner: u8,
    token: u64,
    expires: u64,
}

proptest! {
    #[test]
    fn any_interleaving_keeps_the_limit_and_raises_tokens(
        limit in 1u32..4, steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new();
        let names = ["a", "b", "c", "d"];
        let mut permits: BTreeMap<u32, Held> = BTreeMap::new();
        // What each owner believes: slot, newest token, the one before.
        let mut beliefs: BTreeMap<u8, (u32, u64, u64)> = BTreeMap::new();
        let mut newest = 0;
        for step in steps {
            let now = world.now + 1;
            permits.retain(|_, held| held.expires > now);
            let expires = now + 10_000_000;
            match step {
                Step::Wait(seconds) => world.wait(seconds),
                Step::Acquire(owner) => {
                    let result = world.one("n", acquire(names[owner as usize], limit));
                    let own = permits.iter().find(|(_, held)| held.owner == owner);
                    let free = (0..limit).find(|slot| !permits.contains_key(slot));
                    match (own, free, result) {
                        (Some((slot, held)), _, LockResult::Acquired { slot: at, token, already, .. }) => {
                            prop_assert_eq!((*slot, held.token, true), (at, token, already));
                        }
                        (None, Some(slot), LockResult::Acquired { slot: at, token, already, .. }) => {
                            prop_assert!(slot == at && !already && token > newest);
                            newest = token;
                            permits.insert(slot, Held { owner, token, expires });
                            beliefs.insert(owner, (slot, token, token));
                        }
                        (None, None, LockResult::Held(held)) => prop_assert_eq!(held.len() as u32, limit),
                        (_, _, other) => prop_assert!(false, "{other:?}"),
                    }
                }
                Step::Renew(owner, old) => {
                    let Some(&(slot, token, before)) = beliefs.get(&owner) else { continue };
                    let sent = if old { before } else { token };
                    let result = world.one("n", renew(slot, sent, Some(names[owner as usize])));
                    match permits.get(&slot).filter(|held| held.owner == owner && held.token >= sent) {
                        Some(_) => {
                            let LockResult::Renewed { token: next, .. } = result else {
                                panic!("{result:?}")
                            };
                            prop_assert!(next > newest);
                            newest = next;
                            permits.insert(slot, Held { owner, token: next, expires });
                            beliefs.insert(owner, (slot, next, token));
                        }
                        None => prop_assert!(matches!(result, LockResult::Lost(_))),
                    }
                }
                Step::Release(owner) => {
                    let Some(&(slot, token, _)) = beliefs.get(&owner) else { continue };
                    let result = world.one("n", LockOpKind::Release { slot, token });
                    if permits.get(&slot).is_some_and(|held| held.token == token) {
                        prop_assert_eq!(result, LockResult::Released { slot });
                        permits.remove(&slot);
                    } else {
                        prop_assert!(matches!(result, LockResult::Lost(_)));
                    }
                }
            }
            permits.retain(|_, held| held.expires > world.now);
            let found: Vec<_> = world.holders("n").iter().map(|h| (h.slot, h.token)).collect();
            let want: Vec<_> = permits.iter().map(|(slot, held)| (*slot, held.token)).collect();
            prop_assert_eq!(found, want);
        }
    }
}
