//! Tests of all queues of a node: memory, epochs, what is due, ownership.

use super::*;
use queen_core::ephemeral::{Effective, RefusalKind, message_id};

const TENANT: TenantId = TenantId::DEFAULT;
const SLEEPS: Sleeps<'_> = &|_, _| false;

fn key(name: &str) -> Key {
    (TENANT, name.into())
}

fn terms() -> Terms {
    Terms { effective: Effective::default(), declared: false, as_of: 1 }
}

struct World {
    house: House,
    now: u64,
}

impl World {
    fn with(max_bytes: u64, clustered: bool) -> World {
        let settings = Settings { max_bytes, ..Settings::default() };
        World { house: House::new(&settings, 100, clustered, Arc::default()), now: 1000 }
    }

    fn new() -> World {
        World::with(1 << 20, false)
    }

    fn push(&mut self, queue: &str, text: &str) -> Result<Rings, EphemeralRefusal> {
        self.house.push(&key(queue), terms(), "p", &[text.as_bytes()], self.now)
    }

    fn pop(&mut self, queue: &str, makes: bool) -> Option<Popped> {
        let pop = EphemeralPop {
            queue,
            partition: "p",
            group: Some("g"),
            batch: 9,
            wait_ms: 0,
            auto_ack: false,
        };
        let popped = self.house.pop(&key(queue), terms(), &pop, false, makes, self.now);
        popped.unwrap().map(|(popped, _)| popped)
    }

    /// Pops messages, and gives their ids.
    fn ids(&mut self, queue: &str) -> Vec<String> {
        match self.pop(queue, true) {
            Some(Popped::Messages(messages)) => {
                messages.iter().map(|m| message_id(m.epoch, "p", m.number)).collect()
            }
            _ => Vec::new(),
        }
    }

    fn ack(&mut self, queue: &str, id: &str, done: bool) -> Outcome {
        let items = [(id, done)];
        self.house.ack(&key(queue), terms(), Some("g"), &items, self.now).0[0]
    }
}

#[test]
fn the_memory_of_all_queues_is_bounded_and_comes_back() {
    let mut world = World::with(20_000, false);
    let text = "x".repeat(1500);
    let mut taken = 0;
    let refused = loop {
        match world.push(&format!("q{taken}"), &text) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.kind, taken), (RefusalKind::Unavailable, 5));
    assert!(refused.text.contains("QUEEN_EPHEMERAL_MAX_BYTES"), "{}", refused.text);
    assert_eq!(world.house.gauges(TENANT).len(), 5, "the one that was refused is not there");
    assert!(world.house.bytes() <= 20_000);
    for n in 0..taken {
        assert!(world.house.delete(&key(&format!("q{n}"))).0);
    }
    assert_eq!((world.house.bytes(), world.house.next_due()), (0, None));
    world.push("q", &text).unwrap();
}

#[test]
fn an_id_of_contents_that_are_gone_is_stale_however_they_went() {
    let mut world = World::new();
    world.push("q", "a").unwrap();
    let before_reset = world.ids("q").remove(0);
    assert_eq!((world.house.reset(&key("q")), world.house.reset(&key("none"))), (1, 0));
    assert_eq!(world.ack("q", &before_reset, true), Outcome::Stale);
    world.push("q", "b").unwrap();
    let before_delete = world.ids("q").remove(0);
    let (was, rings) = world.house.delete(&key("q"));
    assert_eq!((was, rings.all.len()), (true, 1));
    assert_eq!(world.ack("q", &before_delete, true), Outcome::Stale);
    assert_eq!(world.ack("q", "no id", true), Outcome::Unknown);
    world.push("q", "c").unwrap();
    assert_eq!(world.ack("q", &before_delete, true), Outcome::Stale);
    assert!(!world.house.delete(&key("none")).0);
    let counters = &world.house.ledger.counters;
    let wipes = (counters.ephemeral_wipes_reset.get(), counters.ephemeral_wipes_deleted.get());
    assert_eq!(wipes, (1, 1));
}

#[test]
fn a_push_says_whom_to_wake_and_so_does_a_message_that_comes_again() {
    let mut world = World::new();
    let pushed = world.push("q", "a").unwrap();
    assert_eq!(pushed.some.iter().map(|(_, count)| *count).collect::<Vec<_>>(), [1]);
    let id = world.ids("q").remove(0);
    let items = [(id.as_str(), false)];
    let (_, rings) = world.house.ack(&key("q"), terms(), Some("g"), &items, world.now);
    assert_eq!(rings.some, pushed.some);
}

#[test]
fn what_is_due_is_known_and_a_sweep_sees_to_it() {
    let mut world = World::new();
    world.push("q", "a").unwrap();
    assert!(world.house.take_earlier() && !world.house.take_earlier());
    assert_eq!(world.house.next_due(), Some(301_000));
    world.now = 2000;
    world.ids("q");
    assert!(world.house.take_earlier(), "a lease ends sooner");
    assert_eq!(world.house.next_due(), Some(32_000));
    assert!(world.house.sweep(31_999, SLEEPS).one.is_empty());
    assert_eq!(world.house.sweep(32_000, SLEEPS).one.len(), 1);
    assert_eq!(world.house.next_due(), Some(302_000));
    let id = world.ids("q").remove(0);
    world.ack("q", &id, true);
    // Nobody asks any more: it goes, and nothing is due.
    let gone = world.house.sweep(700_000, SLEEPS);
    assert!(gone.one.is_empty() && world.house.gauges(TENANT).is_empty());
    assert_eq!((world.house.next_due(), world.house.bytes()), (None, 0));
}

#[test]
fn a_pop_that_has_slept_does_not_bring_a_deleted_queue_back() {
    let mut world = World::new();
    assert!(matches!(world.pop("q", true), Some(Popped::Nothing(..))));
    assert_eq!(world.house.gauges(TENANT).len(), 1);
    world.house.delete(&key("q"));
    assert!(world.pop("q", false).is_none());
    assert_eq!(world.house.gauges(TENANT).len(), 0);
}

#[test]
fn contents_are_of_one_term_of_one_owner() {
    let mut world = World::with(1 << 20, true);
    assert!(!world.house.owns() && !world.house.leads(Some(3)));
    world.push("q", "a").unwrap();
    world.push("r", "b").unwrap();
    let id = world.ids("r").remove(0);
    world.ack("r", &id, true);
    assert!(!world.house.leads(Some(3)), "told again");
    assert_eq!(world.house.gauges(TENANT).len(), 2);
    let old = world.ids("q").remove(0);
    assert!(world.house.leads(None) && !world.house.owns());
    assert_eq!((world.house.bytes(), world.house.next_due()), (0, None));
    assert_eq!(world.house.ledger.counters.ephemeral_wipes_owner.get(), 1, "one held messages");
    assert!(!world.house.leads(Some(5)) && world.house.owns());
    assert_eq!(world.ack("q", &old, true), Outcome::Stale);
    world.push("q", "c").unwrap();
    assert!(world.house.leads(Some(6)), "another may have owned them between two terms");
    assert_eq!(world.house.ledger.counters.ephemeral_wipes_owner.get(), 2);
}

#[test]
fn terms_are_known_as_of_the_declarations_they_were_read_from() {
    let mut world = World::new();
    assert_eq!(world.house.terms(&key("q"), 1), None);
    world.push("q", "a").unwrap();
    assert_eq!(world.house.terms(&key("q"), 1), Some(terms()));
    assert_eq!(world.house.terms(&key("q"), 2), None);
    let effective = Effective { max_length: 1, ..Effective::default() };
    let changed = Terms { effective, declared: true, as_of: 2 };
    let refused = world.house.push(&key("q"), changed, "p", &[&b"b"[..]], world.now).unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Full);
    let depth = world.house.depth(&key("q"), changed, world.now).unwrap();
    assert_eq!((depth.gauges.declared, depth.effective.max_length), (true, 1));
}
