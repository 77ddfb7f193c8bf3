//! Tests of queues: bounds, age, gathering, partitions that nobody uses.

use super::*;
use queen_core::ephemeral::{EphemeralOptions, Window, message_id};

const SLEEPS: Sleeps<'_> = &|_, _| false;

struct World {
    queue: Queue,
    ledger: Ledger,
    numbers: Numbers,
    now: u64,
}

impl World {
    fn with(options: EphemeralOptions, memory: u64) -> World {
        let effective = Effective::default().under(&options);
        let terms = Terms { effective, declared: false, as_of: 1 };
        let mut ledger = Ledger::new(memory, Arc::default());
        assert!(ledger.take(Queue::cost("q")));
        World { queue: Queue::new(9, terms), ledger, numbers: Numbers::default(), now: 1000 }
    }

    fn new(options: EphemeralOptions) -> World {
        World::with(options, 1 << 20)
    }

    fn push(&mut self, partition: &str, texts: &[&str]) -> Result<QueueId, RefusalKind> {
        let payloads: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
        let (ledger, numbers) = (&mut self.ledger, &mut self.numbers);
        let pushed = self.queue.push(partition, &payloads, self.now, ledger, numbers);
        pushed.map_err(|refusal| refusal.kind)
    }

    fn pop_as(&mut self, partition: &str, batch: u32, waits: bool) -> Popped {
        let pop =
            EphemeralPop { queue: "q", partition, group: None, batch, wait_ms: 0, auto_ack: false };
        let (ledger, numbers) = (&mut self.ledger, &mut self.numbers);
        self.queue.pop(&pop, waits, self.now, ledger, numbers).unwrap().0
    }

    fn pop(&mut self, partition: &str) -> Vec<String> {
        texts(&self.pop_as(partition, 100, false))
    }

    fn sweep(&mut self) -> Vec<Rung> {
        self.queue.sweep(self.now, 300_000, SLEEPS, &mut self.ledger)
    }
}

fn texts(popped: &Popped) -> Vec<String> {
    match popped {
        Popped::Nothing(..) => Vec::new(),
        Popped::Messages(messages) => {
            messages.iter().map(|m| String::from_utf8_lossy(&m.payload).into_owned()).collect()
        }
    }
}

fn full(max_length: u64, policy: FullPolicy) -> EphemeralOptions {
    let (max_length, policy) = (Some(max_length), Some(policy));
    EphemeralOptions { max_length, policy, max_bytes: Some(10), ..EphemeralOptions::default() }
}

#[test]
fn a_full_queue_refuses_a_push_as_a_whole() {
    let mut world = World::new(full(3, FullPolicy::Reject));
    world.push("p", &["a", "b"]).unwrap();
    let before = world.ledger.used();
    assert_eq!(world.push("other", &["c", "d"]), Err(RefusalKind::Full));
    assert_eq!((world.queue.len(), world.ledger.used()), (2, before));
    world.push("p", &["c"]).unwrap();
    assert_eq!(world.push("p", &["d"]), Err(RefusalKind::Full));
    // The bounds are those of all partitions together, and settling makes room.
    assert_eq!(world.pop("p"), ["a", "b", "c"]);
    assert_eq!(world.push("p", &["d"]), Err(RefusalKind::Full), "what is leased is there still");
    let id = message_id(9, "p", 1);
    let (outcomes, again) = world.queue.ack(None, &[(&id, true)], world.now, &mut world.ledger);
    assert_eq!((outcomes, again), (vec![Outcome::Acked], Vec::new()));
    world.push("p", &["d"]).unwrap();
    let dropped = &world.ledger.counters.ephemeral_dropped_bounds;
    assert_eq!(dropped.get(), 0);
}

#[test]
fn bytes_bound_a_queue_as_messages_do() {
    let mut world = World::new(full(100, FullPolicy::Reject));
    world.push("p", &["12345", "1234"]).unwrap();
    assert_eq!(world.push("p", &["12"]), Err(RefusalKind::Full));
    world.push("p", &["1"]).unwrap();
}

#[test]
fn a_queue_that_drops_its_oldest_takes_them_from_whichever_partition() {
    let mut world = World::new(full(3, FullPolicy::DropOldest));
    world.push("a", &["1"]).unwrap();
    world.push("b", &["2"]).unwrap();
    world.push("a", &["3"]).unwrap();
    assert_eq!(world.pop("b"), ["2"]);
    world.push("b", &["4", "5"]).unwrap();
    assert_eq!((world.pop("a"), world.pop("b")), (vec!["3".into()], vec!["4".into(), "5".into()]));
    assert_eq!(world.ledger.counters.ephemeral_dropped_bounds.get(), 2);
    let id = message_id(9, "b", 2);
    let (outcomes, _) = world.queue.ack(None, &[(&id, true)], world.now, &mut world.ledger);
    assert_eq!(outcomes, [Outcome::Unknown], "its message was dropped under its lease");
}

#[test]
fn a_push_that_never_fits_is_refused_for_good_whatever_the_policy() {
    for policy in [FullPolicy::Reject, FullPolicy::DropOldest] {
        let mut world = World::new(full(2, policy));
        world.push("p", &["a"]).unwrap();
        assert_eq!(world.push("p", &["1", "2", "3"]), Err(RefusalKind::TooLarge));
        assert_eq!(world.push("p", &["12345678901"]), Err(RefusalKind::TooLarge));
        assert_eq!(world.pop("p"), ["a"]);
    }
}

#[test]
fn without_memory_of_the_node_nothing_is_dropped_for_a_push() {
    let memory = Queue::cost("q") + Queue::ring_cost("p") + 2 * Shelf::cost(1);
    let mut world = World::with(full(2, FullPolicy::DropOldest), memory);
    world.push("p", &["a", "b"]).unwrap();
    assert_eq!(world.push("p", &["c"]), Err(RefusalKind::Unavailable));
    assert_eq!((world.queue.len(), world.ledger.used()), (2, memory));
}

#[test]
fn messages_go_when_they_are_too_old_delivered_or_not() {
    let ttl_seconds = Some(5);
    let mut world = World::new(EphemeralOptions { ttl_seconds, ..EphemeralOptions::default() });
    world.push("p", &["a"]).unwrap();
    assert_eq!(world.pop("p"), ["a"]);
    world.now += 2000;
    world.push("p", &["b"]).unwrap();
    assert_eq!(world.queue.next_due(world.now, 300_000), 6000);
    world.now += 3000;
    world.sweep();
    assert_eq!(world.queue.len(), 1);
    world.now += 1999;
    assert_eq!(world.pop("p"), ["b"]);
    world.now += 1;
    let id = message_id(9, "p", 2);
    let (outcomes, _) = world.queue.ack(None, &[(&id, true)], world.now, &mut world.ledger);
    assert_eq!(outcomes, [Outcome::Unknown]);
    assert_eq!(world.ledger.counters.ephemeral_dropped_ttl.get(), 2);
}

fn window(ms: u64, count: u64) -> EphemeralOptions {
    EphemeralOptions { window: Some(Window { ms, count }), ..EphemeralOptions::default() }
}

fn until(popped: &Popped) -> Option<u64> {
    match popped {
        Popped::Nothing(_, _, until) => *until,
        Popped::Messages(_) => panic!("{popped:?}"),
    }
}

#[test]
fn a_waiting_pop_gathers_until_there_are_enough_or_the_window_is_over() {
    let mut world = World::new(window(50, 3));
    assert_eq!(until(&world.pop_as("p", 10, true)), None);
    world.push("p", &["a"]).unwrap();
    world.now += 20;
    world.push("p", &["b"]).unwrap();
    assert_eq!(until(&world.pop_as("p", 10, true)), Some(1050), "since the first of them");
    world.push("p", &["c"]).unwrap();
    assert_eq!(texts(&world.pop_as("p", 10, true)), ["a", "b", "c"]);
    world.push("p", &["d"]).unwrap();
    assert_eq!(until(&world.pop_as("p", 10, true)), Some(world.now + 50));
    world.now += 50;
    assert_eq!(texts(&world.pop_as("p", 10, true)), ["d"]);
}

#[test]
fn a_pop_that_does_not_wait_or_wants_no_more_does_not_gather() {
    let mut world = World::new(window(50, 0));
    world.push("p", &["a", "b"]).unwrap();
    assert_eq!(until(&world.pop_as("p", 3, true)), Some(1050));
    assert_eq!(texts(&world.pop_as("p", 2, true)), ["a", "b"]);
    let id = message_id(9, "p", 1);
    let (_, again) = world.queue.ack(None, &[(&id, false)], world.now, &mut world.ledger);
    assert_eq!(again, [(QueueId(1), 1)]);
    assert_eq!(texts(&world.pop_as("p", 3, true)), ["a"], "what comes again has waited enough");
    world.push("p", &["c"]).unwrap();
    assert_eq!(texts(&world.pop_as("p", 3, false)), ["c"]);
}

#[test]
fn ids_of_other_contents_are_stale_and_texts_that_are_none_unknown() {
    let mut world = World::new(EphemeralOptions::default());
    world.push("p", &["a", "b"]).unwrap();
    assert_eq!(world.pop("p"), ["a", "b"]);
    let ids = [message_id(9, "p", 1), message_id(9, "x", 1), message_id(8, "p", 2), "1".into()];
    let items: Vec<(&str, bool)> = ids.iter().map(|id| (id.as_str(), true)).collect();
    let (outcomes, _) = world.queue.ack(None, &items, world.now, &mut world.ledger);
    let want = [Outcome::Acked, Outcome::Unknown, Outcome::Stale, Outcome::Unknown];
    assert_eq!(outcomes, want);
    assert_eq!(world.queue.clear(10, &mut world.ledger), 1);
    let second = message_id(9, "p", 2);
    let (outcomes, _) = world.queue.ack(None, &[(&second, true)], world.now, &mut world.ledger);
    assert_eq!(outcomes, [Outcome::Stale]);
    world.push("p", &["c"]).unwrap();
    assert_eq!(world.pop("p"), ["c"], "groups go on");
}

#[test]
fn partitions_and_groups_that_nobody_uses_are_forgotten_and_messages_are_not() {
    let mut world = World::new(EphemeralOptions::default());
    world.push("full", &["a"]).unwrap();
    assert_eq!(world.pop("empty"), [""; 0]);
    assert_eq!(world.queue.next_due(world.now, 300_000), 301_000);
    world.now = 300_999;
    world.sweep();
    assert_eq!(world.queue.gauges("q").partitions, 2);
    let sleeps: Sleeps<'_> = &|_, _| true;
    world.now = 301_000;
    world.queue.sweep(world.now, 300_000, sleeps, &mut world.ledger);
    assert_eq!(world.queue.gauges("q").partitions, 2, "somebody sleeps there");
    assert_eq!(world.queue.next_due(world.now, 300_000), 601_000);
    world.sweep();
    assert_eq!(world.queue.gauges("q").partitions, 1);
    assert!(!world.queue.is_gone());
    assert_eq!(world.pop("full"), ["a"]);
    let id = message_id(9, "full", 1);
    world.queue.ack(None, &[(&id, true)], world.now, &mut world.ledger);
    world.now += 300_000;
    world.sweep();
    assert!(world.queue.is_gone());
    assert_eq!(world.ledger.used(), Queue::cost("q"));
}

#[test]
fn a_sweep_says_to_whom_messages_came_back() {
    let mut world = World::new(EphemeralOptions::default());
    let ring = world.push("p", &["a", "b"]).unwrap();
    assert_eq!(world.pop("p"), ["a", "b"]);
    assert_eq!(world.queue.next_due(world.now, 300_000), 31_000);
    world.now = 31_000;
    let rung = world.sweep();
    assert_eq!(rung.iter().map(|(ring, _)| *ring).collect::<Vec<_>>(), [ring, ring]);
    let depth = world.queue.depth("q", world.now, &mut world.ledger);
    assert_eq!((depth.groups[0].pending, depth.groups[0].leased), (2, 0));
}
