//! Tests of pushing, named after the rules of the HTTP contract.

use crate::logs::{Place, QueueLogs, QueueLogsMut};
use crate::tables::{Row, StorageError};
use crate::world::*;
use crate::{MemoryStore, Tables, TablesMut};
use bytes::Bytes;
use queen_core::command::*;
use queen_core::reply::*;
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};
use std::cell::Cell;

fn offsets(pushed: &PushedGroup) -> Vec<(u64, bool)> {
    let each = pushed.items.iter().map(|item| match item {
        PushedItem::Queued(offset) => (offset.0, true),
        PushedItem::Duplicate { offset, .. } => (offset.0, false),
    });
    each.collect()
}

#[test]
fn items_of_one_partition_get_consecutive_offsets_over_pushes() {
    let mut world = World::new();
    assert_eq!(world.push("q", "a", 3).first_offset.0, 0);
    assert_eq!(world.push("q", "b", 2).first_offset.0, 0);
    assert_eq!(world.push("q", "a", 1).first_offset.0, 3);
    assert_eq!(world.rows(Table::Tail), 2);
    assert_eq!(world.rows(Table::TransactionId), 0, "minted ids cost no row");
}

#[test]
fn a_queue_made_by_a_push_has_labels_of_its_name_and_a_lease_of_60_s() {
    let mut world = World::new();
    world.push("ns.taskA.q", "p", 1);
    let queue = crate::step::queue_named(&world.store, TENANT, "ns.taskA.q").unwrap().unwrap();
    let options = queue.row.options;
    assert_eq!((&options.namespace[..], &options.task[..]), ("ns", "taskA"));
    assert_eq!(options.lease_time, 60);
}

#[test]
fn a_stamp_that_does_not_rise_is_refused_and_changes_nothing() {
    let mut world = World::new();
    world.push("q", "p", 1);
    let before = world.store.clone();
    let tick = Command::Tick(Tick::default());
    let stamp = Stamp(world.now);
    let reply = world.machine.apply(&tick, stamp, &mut world.store, &mut Vec::new()).unwrap();
    assert!(matches!(reply, Reply::Refused(error) if error.code == queen_core::Code::Retry));
    assert!(before == world.store);
    // A new machine over the same store knows the last stamp as well.
    let reply = crate::Machine::new().apply(&tick, stamp, &mut world.store, &mut Vec::new());
    assert!(matches!(reply.unwrap(), Reply::Refused(_)));
}

#[test]
fn a_repeated_transaction_id_answers_the_place_of_the_stored_one() {
    let mut world = World::new();
    let first = world.push_ids("q", "p", &[(Some("a"), "1"), (Some("b"), "2")]);
    assert!(first.items.is_empty());
    let again = world.push_ids("q", "p", &[(Some("b"), "x"), (Some("c"), "3"), (None, "4")]);
    assert_eq!(offsets(&again), [(1, false), (2, true), (3, true)]);
    let PushedItem::Duplicate { stamp, .. } = again.items[0] else { panic!() };
    assert_eq!(stamp, first.stamp);
    let other = world.push_ids("q", "other", &[(Some("b"), "x")]);
    assert!(other.items.is_empty(), "the same id in another partition is a new message");
    let partition = again.partition;
    assert_eq!(world.id_at(partition, 2), "c");
    assert_eq!(world.one("q", "g", 100), Some((0, 4, 1)));
}

#[test]
fn a_push_of_duplicates_alone_appends_nothing() {
    let mut world = World::new();
    world.push_ids("q", "p", &[(Some("a"), "1")]);
    let before = world.rows(Table::Run);
    let again = world.push_ids("q", "p", &[(Some("a"), "1"), (Some("a"), "1")]);
    assert_eq!(offsets(&again), [(0, false), (0, false)]);
    assert_eq!(world.rows(Table::Run), before);
    assert!(world.events.is_empty());
}

#[test]
fn repeats_in_one_request_collapse_even_with_the_window_off() {
    let mut world = World::new();
    world.configure("q", |options| options.dedup_window_seconds = 0);
    let pushed = world.push_ids("q", "p", &[(Some("a"), "1"), (Some("b"), "2"), (Some("a"), "3")]);
    assert_eq!(offsets(&pushed), [(0, true), (1, true), (0, false)]);
    let again = world.push_ids("q", "p", &[(Some("a"), "1")]);
    assert!(again.items.is_empty(), "the window is off");
    assert_eq!(again.first_offset.0, 2);
}

#[test]
fn an_id_may_come_again_after_the_window() {
    let mut world = World::new();
    world.configure("q", |options| options.dedup_window_seconds = 10);
    world.push_ids("q", "p", &[(Some("a"), "1")]);
    world.sleep(9);
    assert_eq!(offsets(&world.push_ids("q", "p", &[(Some("a"), "1")])), [(0, false)]);
    world.sleep(2);
    assert!(world.push_ids("q", "p", &[(Some("a"), "1")]).items.is_empty());
    world.tick(&[]);
    assert_eq!(world.rows(Table::TransactionId), 1, "kept for acks");
    world.sleep(901);
    world.tick(&[]);
    assert_eq!(world.rows(Table::TransactionId) + world.rows(Table::TransactionIdExpiry), 0);
}

#[test]
fn ids_with_one_hash_are_told_apart_by_the_log() {
    let mut world = World::new();
    let pushed = world.push_ids("q", "p", &[(Some("a"), "1")]);
    // The row that a colliding id would have found.
    let hash = queen_core::row::transaction_id::hash;
    let from = queen_core::row::key::transaction_id(pushed.partition, hash("a"));
    let to = queen_core::row::key::transaction_id(pushed.partition, hash("b"));
    let row = world.store.get(Table::TransactionId, &from).unwrap().unwrap();
    world.store.put(Table::TransactionId, &to, &row);
    let (frames, text_bytes) = frames(&[(Some("b"), "2")]);
    let group = PushGroup {
        queue: "q",
        partition: "p",
        count: 1,
        has_transaction_ids: true,
        text_bytes,
        frames: &frames,
    };
    let push = Command::Push(Push { tenant: TENANT, groups: vec![group] });
    let stamp = Stamp(world.now + 1);
    let reply = world.machine.apply(&push, stamp, &mut world.store, &mut Vec::new()).unwrap();
    let Reply::Push(groups) = reply else { panic!("{reply:?}") };
    assert!(groups[0].items.is_empty(), "b is not a: {groups:?}");
}

/// A store that counts what is read of the queue logs.
struct Counting {
    store: MemoryStore,
    bytes_read: Cell<usize>,
}

impl Tables for Counting {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<Bytes>, StorageError> {
        self.store.get(table, key)
    }

    fn scan(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.store.scan(table, from, to, limit)
    }

    fn scan_back(
        &self,
        table: Table,
        from: &[u8],
        to: &[u8],
        limit: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.store.scan_back(table, from, to, limit)
    }
}

impl TablesMut for Counting {
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) {
        self.store.put(table, key, value);
    }

    fn delete(&mut self, table: Table, key: &[u8]) {
        self.store.delete(table, key);
    }
}

impl QueueLogs for Counting {
    fn read(&self, place: Place, len: usize) -> Result<Bytes, StorageError> {
        self.bytes_read.set(self.bytes_read.get() + len);
        self.store.read(place, len)
    }
}

impl QueueLogsMut for Counting {
    fn write(&mut self, place: Place, parts: &[&[u8]]) -> Result<(), StorageError> {
        self.store.write(place, parts)
    }

    fn remove_segment(&mut self, queue: QueueId, segment: u32) {
        self.store.remove_segment(queue, segment);
    }

    fn remove_queue(&mut self, queue: QueueId) {
        self.store.remove_queue(queue);
    }
}

#[test]
fn a_repeated_id_costs_a_read_of_its_run_however_long_the_history_is() {
    let read_with = |history: usize| {
        let mut world = World::new();
        for n in 0..history {
            world.push_ids("q", "p", &[(Some(&format!("id-{n}")), "{}")]);
        }
        let (frames, text_bytes) = frames(&[(Some("id-0"), "{}")]);
        let group = PushGroup {
            queue: "q",
            partition: "p",
            count: 1,
            has_transaction_ids: true,
            text_bytes,
            frames: &frames,
        };
        let push = Command::Push(Push { tenant: TENANT, groups: vec![group] });
        let mut store = Counting { store: world.store, bytes_read: Cell::new(0) };
        let stamp = Stamp(world.now + 1);
        let reply = world.machine.apply(&push, stamp, &mut store, &mut Vec::new()).unwrap();
        let Reply::Push(groups) = reply else { panic!("{reply:?}") };
        assert_eq!(offsets(&groups[0]), [(0, false)]);
        store.bytes_read.get()
    };
    let (short, long) = (read_with(1), read_with(400));
    assert!(short > 0 && short == long, "{short} bytes of a short history, {long} of a long one");
}

#[test]
fn new_ids_of_one_push_that_collide_keep_each_others_places() {
    use crate::transaction_id::{New, remember};
    use queen_core::row::{TransactionIdRow, key};
    let mut world = World::new();
    let partition = world.push("q", "p", 2).partition;
    let new = |offset| {
        let others = TransactionIdRow::default();
        New { hash: 7, offset: queen_core::Offset(offset), others }
    };
    let stamp = Stamp(world.now);
    world.machine.with_step(stamp, &mut world.store, &mut Vec::new(), |step| {
        remember(step, partition, 10, vec![new(0), new(1)]).unwrap();
    });
    let row_key = key::transaction_id(partition, 7);
    let row = crate::step::get::<TransactionIdRow>(&world.store, &row_key).unwrap().unwrap();
    let offsets: Vec<_> = row.0.iter().map(|place| place.offset.0).collect();
    assert_eq!(offsets, [0, 1]);
}

#[test]
fn the_text_of_a_minted_id_is_known_as_a_transaction_id() {
    let mut world = World::new();
    let pushed = world.push("q", "p", 2);
    let id = world.id_at(pushed.partition, 1);
    let again = world.push_ids("q", "p", &[(Some(&id), "copy")]);
    assert_eq!(offsets(&again), [(1, false)]);
}

#[test]
fn a_push_tells_how_many_partitions_were_written() {
    let mut world = World::new();
    let (bytes, text_bytes) = frames(&[(None, "1")]);
    let group = |partition| PushGroup {
        queue: "q",
        partition,
        count: 1,
        has_transaction_ids: false,
        text_bytes,
        frames: &bytes,
    };
    let groups = vec![group("a"), group("b")];
    world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    let queue = world.queue_id("q");
    let created = Event::QueueChanged { queue };
    assert_eq!(world.events, [created, Event::Written { queue, partitions: 2 }]);
}

#[test]
fn frames_that_do_not_read_are_refused_whole() {
    let mut world = World::new();
    let (good, _) = frames(&[(None, "1")]);
    let group = |partition, frames| PushGroup {
        queue: "q",
        partition,
        count: 1,
        has_transaction_ids: true,
        text_bytes: 0,
        frames,
    };
    let groups = vec![group("a", &good[..]), group("b", &good[..1])];
    let reply = world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    assert!(matches!(reply, Reply::Refused(_)));
    let none = PushGroup { count: 0, has_transaction_ids: false, ..group("c", b"") };
    let reply = world.apply(&Command::Push(Push { tenant: TENANT, groups: vec![none] }));
    assert!(matches!(reply, Reply::Refused(_)));
    assert_eq!(world.rows(Table::Queue), 0);
}

#[test]
fn a_segment_is_rolled_at_the_hour_and_before_it_would_grow_too_long() {
    let mut world = World::new();
    world.push("q", "p", 1);
    world.push("q", "p", 1);
    assert_eq!(world.rows(Table::Segment), 1);
    world.sleep(3600);
    world.push("q", "p", 1);
    assert_eq!(world.rows(Table::Segment), 2);
    let big = format!("\"{}\"", "x".repeat(40 << 20));
    world.push_ids("q", "p", &[(None, &big)]);
    assert_eq!(world.rows(Table::Segment), 2);
    world.push_ids("q", "p", &[(None, &big)]);
    assert_eq!(world.rows(Table::Segment), 3);
    // A machine that remembers nothing goes on in the same segment.
    world.machine = crate::Machine::new();
    world.push("q", "p", 1);
    assert_eq!(world.rows(Table::Segment), 3);
}

/// A group of one message without a transaction id, sealed or not.
fn one<'a>(queue: &'a str, frames: &'a [u8]) -> PushGroup<'a> {
    let (partition, count, has_transaction_ids, text_bytes) = ("p", 1, false, 38);
    PushGroup { queue, partition, count, has_transaction_ids, text_bytes, frames }
}

fn framed(encrypted: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let payload = b"{}";
    queen_core::frame::Frame { encrypted, payload, ..Default::default() }.encode(&mut out);
    out
}

#[test]
fn a_payload_in_the_clear_is_refused_by_an_encrypted_queue_and_nothing_changes() {
    let mut world = World::new();
    world.configure("q", |options| options.encryption_enabled = true);
    let (plain, sealed) = (framed(false), framed(true));
    let mixed = [&sealed[..], &plain].concat();
    let before = world.store.clone();
    for frames in [&plain, &mixed, &b"\xff".to_vec()] {
        // The queue before it would be created, had the push an effect.
        let groups = vec![one("new", &plain), one("q", frames)];
        let reply = world.apply(&Command::Push(Push { tenant: TENANT, groups }));
        let Reply::Refused(error) = reply else { panic!("{reply:?}") };
        assert_eq!(error.code, queen_core::Code::NotSealed);
        assert!(error.text.contains("\"q\""), "{error}");
    }
    let id = |store: &crate::MemoryStore| crate::step::queue_named(store, TENANT, "new").unwrap();
    assert_eq!((id(&before), id(&world.store)), (None, None));
    assert_eq!(world.rows(Table::Run), 0);
    let groups = vec![one("new", &plain), one("q", &sealed)];
    let reply = world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    assert!(matches!(reply, Reply::Push(_)), "{reply:?}");
    world.configure("q", |options| options.encryption_enabled = false);
    let groups = vec![one("q", &plain)];
    let reply = world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    assert!(matches!(reply, Reply::Push(_)), "what is sealed may lie beside what is not");
}

#[test]
fn a_queue_pushed_to_twice_in_one_request_is_made_once() {
    let mut world = World::new();
    let plain = framed(false);
    let groups = vec![one("q", &plain), PushGroup { partition: "other", ..one("q", &plain) }];
    world.apply(&Command::Push(Push { tenant: TENANT, groups }));
    assert_eq!(world.rows(Table::Queue), 1);
}

#[test]
fn text_bytes_count_the_payload_and_not_its_envelope() {
    use queen_core::envelope::ENVELOPE_BYTES;
    let mut world = World::new();
    world.push_ids("q", "p", &[(Some("a"), "{}")]);
    let (mut frames, payload) = (Vec::new(), [7; 10 + ENVELOPE_BYTES]);
    for id in ["a", "bb"] {
        let frame = queen_core::frame::Frame {
            transaction_id: Some(id),
            encrypted: true,
            payload: &payload,
            ..Default::default()
        };
        frame.encode(&mut frames);
    }
    let group = PushGroup { count: 2, has_transaction_ids: true, ..one("q", &frames) };
    world.apply(&Command::Push(Push { tenant: TENANT, groups: vec![group] }));
    let queue = world.queue_id("q");
    let partition = crate::step::partition_named(&world.store, queue, "p").unwrap().unwrap();
    let run = crate::run::kept_at(&world.store, partition.row.id, queen_core::Offset(1)).unwrap();
    let place = crate::Place { queue, segment: run.row.segment, position: run.row.position };
    use crate::QueueLogs;
    let bytes = world.store.read(place, run.row.run_len() as usize).unwrap();
    assert_eq!(queen_core::run::RunHeader::decode(&bytes).unwrap().text_bytes, 2 + 10);
}
