//! Tests of rings: who is given what, when it comes again, when it goes.

use super::*;

const LEASE: u64 = 30_000;

struct World {
    ring: Ring,
    shelf: Shelf,
    ledger: Ledger,
    next: u64,
    now: u64,
    retry_limit: u64,
}

impl World {
    fn with_memory(bytes: u64) -> World {
        World {
            ring: Ring::new(QueueId(1), 0),
            shelf: Shelf::default(),
            ledger: Ledger::new(bytes, Arc::default()),
            next: 1,
            now: 0,
            retry_limit: 2,
        }
    }

    fn new() -> World {
        World::with_memory(1 << 20)
    }

    /// Pushes payloads; gives the number of the first.
    fn push(&mut self, texts: &[&str]) -> u64 {
        let first = self.next;
        for text in texts {
            assert!(self.ledger.take(Shelf::cost(text.len())));
            let payload = Bytes::copy_from_slice(text.as_bytes());
            let kept = Kept { partition: "p".into(), pushed: self.now, payload };
            self.ring.push(self.next, kept, &mut self.shelf);
            self.next += 1;
        }
        first
    }

    fn join(&mut self, group: &str) -> Option<GroupId> {
        self.ring.join(group, || GroupId(group.len() as u32), self.now, &mut self.ledger)
    }

    fn take_as(&mut self, group: &str, batch: u32, auto_ack: bool) -> Vec<(String, u32)> {
        self.join(group).unwrap();
        let take = Take { epoch: 7, batch, auto_ack, lease_ms: LEASE, now: self.now };
        let taken = self.ring.take(group, take, &mut self.shelf, &mut self.ledger).unwrap();
        let shown = taken.iter().map(|message| {
            assert_eq!(message.epoch, 7);
            (String::from_utf8_lossy(&message.payload).into_owned(), message.attempts)
        });
        shown.collect()
    }

    /// Payloads with their attempts.
    fn take(&mut self, group: &str, batch: u32) -> Vec<(String, u32)> {
        self.take_as(group, batch, false)
    }

    fn ack(&mut self, group: &str, number: u64, done: bool) -> Outcome {
        let limit = self.retry_limit;
        self.ring.ack(group, (number, done), limit, &mut self.shelf, &mut self.ledger)
    }

    fn pass(&mut self, millis: u64) -> Vec<GroupId> {
        self.now += millis;
        self.ring.expire(self.now, self.retry_limit, &mut self.shelf, &mut self.ledger)
    }
}

fn once(texts: &[&str]) -> Vec<(String, u32)> {
    texts.iter().map(|text| ((*text).to_owned(), 1)).collect()
}

#[test]
fn consumers_of_a_group_share_what_each_group_gets_all_of() {
    let mut world = World::new();
    world.push(&["a", "b", "c"]);
    assert_eq!(world.take("g", 2), once(&["a", "b"]));
    assert_eq!(world.take("g", 2), once(&["c"]));
    assert_eq!(world.take("g", 2), []);
    assert_eq!(world.take("h", 9), once(&["a", "b", "c"]));
}

#[test]
fn a_message_goes_when_every_group_has_settled_it() {
    let mut world = World::new();
    let first = world.push(&["a", "b"]);
    world.take("g", 2);
    world.take("h", 2);
    assert_eq!(world.ack("g", first, true), Outcome::Acked);
    assert_eq!(world.shelf.len(), 2);
    assert_eq!(world.ack("h", first, true), Outcome::Acked);
    assert_eq!((world.shelf.len(), world.shelf.bytes()), (1, 1));
    // A group that comes later begins with what is left.
    assert_eq!(world.take("late", 9), once(&["b"]));
}

#[test]
fn a_message_is_settled_once() {
    let mut world = World::new();
    let first = world.push(&["a"]);
    world.take("g", 1);
    assert_eq!(world.ack("none", first, true), Outcome::Unknown);
    assert_eq!(world.ack("g", first + 1, true), Outcome::Unknown);
    assert_eq!(world.ack("g", first, true), Outcome::Acked);
    assert_eq!(world.ack("g", first, true), Outcome::Unknown);
    assert_eq!(world.ack("g", first, false), Outcome::Unknown);
}

#[test]
fn a_message_that_failed_comes_again_before_new_ones_with_one_attempt_more() {
    let mut world = World::new();
    let first = world.push(&["a", "b", "c"]);
    world.take("g", 2);
    assert_eq!(world.ack("g", first, false), Outcome::Redelivered);
    assert_eq!(world.ack("g", first, false), Outcome::Redelivered, "said twice, charged once");
    assert_eq!(world.take("g", 9), [("a".to_owned(), 2), ("c".to_owned(), 1)]);
}

#[test]
fn a_lease_that_ends_brings_the_message_back_and_says_to_whom() {
    let mut world = World::new();
    world.push(&["a", "b"]);
    let group = world.join("g").unwrap();
    world.take("g", 2);
    assert_eq!(world.ring.next_end(), Some(LEASE));
    assert_eq!(world.pass(LEASE - 1), []);
    assert_eq!(world.take("g", 9), []);
    assert_eq!(world.pass(1), [group, group]);
    assert_eq!(world.ring.next_end(), None);
    assert_eq!(world.take("g", 1), [("a".to_owned(), 2)]);
}

#[test]
fn an_ack_after_the_end_of_the_lease_counts_as_long_as_nobody_settled_the_message() {
    let mut world = World::new();
    let first = world.push(&["a", "b"]);
    world.take("g", 2);
    world.pass(LEASE);
    assert_eq!(world.ack("g", first, true), Outcome::Acked);
    assert_eq!(world.take("g", 9), [("b".to_owned(), 2)]);
    assert_eq!(world.ack("g", first + 1, true), Outcome::Acked);
    assert_eq!(world.ledger.used(), CURSOR_BYTES + 2);
}

#[test]
fn a_message_is_given_up_once_it_failed_more_often_than_it_may() {
    let mut world = World::new();
    let first = world.push(&["a"]);
    for attempt in 1..=3 {
        assert_eq!(world.take("g", 1), [("a".to_owned(), attempt)]);
        let last = attempt == 3;
        // A failure and the end of a lease are charged alike.
        if attempt == 2 {
            world.pass(LEASE);
        } else {
            let want = if last { Outcome::Acked } else { Outcome::Redelivered };
            assert_eq!(world.ack("g", first, false), want);
        }
    }
    assert_eq!((world.take("g", 1), world.shelf.len()), (Vec::new(), 0));
    assert_eq!(world.ledger.counters.ephemeral_dropped_retry.get(), 1);

    world.retry_limit = 0;
    world.push(&["b"]);
    world.take("g", 1);
    assert_eq!(world.pass(LEASE), []);
    assert_eq!((world.shelf.len(), world.ledger.counters.ephemeral_dropped_retry.get()), (0, 2));
}

#[test]
fn what_one_group_gives_up_another_still_gets() {
    let mut world = World::new();
    world.retry_limit = 0;
    let first = world.push(&["a"]);
    world.join("h").unwrap();
    world.take("g", 1);
    assert_eq!(world.ack("g", first, false), Outcome::Acked);
    assert_eq!(world.take("h", 1), once(&["a"]));
}

#[test]
fn what_is_settled_at_delivery_is_gone_and_leaves_no_lease() {
    let mut world = World::new();
    let first = world.push(&["a", "b", "c"]);
    world.take("g", 1);
    world.ack("g", first, false);
    assert_eq!(world.take_as("g", 2, true), [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!((world.shelf.len(), world.ring.next_end()), (1, None));
    assert_eq!(world.ack("g", first, true), Outcome::Unknown);
    assert_eq!(world.ledger.used(), Shelf::cost(1) + CURSOR_BYTES + 2);
}

#[test]
fn a_pop_takes_no_more_bytes_than_one_answer_should_have_but_one_message() {
    let mut world = World::with_memory(1 << 30);
    let large = "x".repeat(POP_BYTES_MAX);
    world.push(&["a", &large, "b"]);
    assert_eq!(world.take("g", 9), once(&["a"]));
    assert_eq!(world.take("g", 9), once(&[&large]));
    assert_eq!(world.take("g", 9), once(&["b"]));
}

#[test]
fn without_memory_for_a_lease_nothing_is_delivered_and_nothing_is_passed_over() {
    let cursor = CURSOR_BYTES + 2;
    let mut world = World::with_memory(2 * Shelf::cost(1) + cursor + HELD_BYTES);
    let first = world.push(&["a", "b"]);
    assert_eq!(world.take("g", 9), once(&["a"]));
    let take = Take { epoch: 7, batch: 1, auto_ack: false, lease_ms: LEASE, now: 0 };
    assert!(world.ring.take("g", take, &mut world.shelf, &mut world.ledger).is_err());
    assert_eq!(world.join("h"), None, "nor is there any for another group");
    assert_eq!(world.ack("g", first, true), Outcome::Acked);
    assert_eq!(world.take("g", 9), once(&["b"]));
}

#[test]
fn a_group_that_is_silent_for_long_holds_nothing_back_any_more() {
    let mut world = World::new();
    let first = world.push(&["a", "b", "c"]);
    for group in ["g", "silent", "sleeps"] {
        world.take(group, 2);
    }
    world.ack("g", first, true);
    world.ack("sleeps", first, true);
    world.pass(LEASE);
    let leave = |world: &mut World, before| {
        let sleeps = |name: &str| name == "sleeps";
        world.ring.leave(before, sleeps, &mut world.shelf, &mut world.ledger);
    };
    world.now = 400_000;
    world.join("g").unwrap();
    leave(&mut world, 100_000);
    assert_eq!(world.shelf.len(), 2, "only what the others had settled goes");
    let mut depths = BTreeMap::new();
    world.ring.count(&mut depths);
    let shown: Vec<_> = depths.values().map(|d| (d.group.as_str(), d.pending, d.leased)).collect();
    assert_eq!(shown, [("g", 2, 0), ("sleeps", 2, 0)]);
    // It may come again, and begins with what is left.
    assert_eq!(world.take("silent", 9), once(&["b", "c"]));
    leave(&mut world, 500_000);
    assert_eq!(world.ring.longest_silence(), Some(0), "who sleeps or holds something stays");
    assert_eq!(world.take("silent", 9), []);
}

#[test]
fn the_last_group_that_leaves_leaves_the_messages_there() {
    let mut world = World::new();
    world.push(&["a", "b"]);
    world.take_as("g", 1, true);
    world.now = 400_000;
    world.ring.leave(100_000, |_| false, &mut world.shelf, &mut world.ledger);
    assert_eq!((world.shelf.len(), world.ring.longest_silence()), (1, None));
    assert_eq!(world.ledger.used(), Shelf::cost(1));
    assert_eq!(world.take("g", 9), once(&["b"]));
}

#[test]
fn all_memory_comes_back() {
    let mut world = World::new();
    let first = world.push(&["a", "b", "c", "d"]);
    world.take("g", 3);
    world.take("h", 1);
    world.ack("g", first, false);
    world.ring.clear(&mut world.shelf, &mut world.ledger);
    assert!(world.ring.is_empty());
    assert_eq!((world.shelf.len(), world.shelf.bytes()), (0, 0));
    assert_eq!(world.ack("g", first + 1, true), Outcome::Unknown);
    assert_eq!(world.take("g", 9), []);
    world.ring.close(&mut world.ledger);
    assert_eq!(world.ledger.used(), 0);
}
