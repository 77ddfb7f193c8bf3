//! Tests of retention and timelines, named after the rules of the HTTP contract.

use crate::timeline::{self, Bounds, LogPosition};
use crate::world::*;
use crate::{Place, QueueLogs, pin};
use queen_core::command::*;
use queen_core::row::pin::PinValue;
use queen_core::table::Table;
use queen_core::{QueueId, Stamp};

const ALL: Bounds = Bounds { runs: usize::MAX, bytes: u64::MAX, before: Stamp::MAX };

fn offsets(world: &World, queue: QueueId) -> Vec<(u64, u64)> {
    let found = timeline::scan(&world.store, queue, LogPosition::default(), ALL).unwrap();
    assert!(found.end);
    found.runs.iter().map(|run| (run.header.partition.0, run.header.first_offset.0)).collect()
}

fn log_start(world: &World, partition: &str) -> u64 {
    let queue = world.queue_id("q");
    let found = crate::step::partition_named(&world.store, queue, partition).unwrap();
    found.unwrap().row.log_start.0
}

#[test]
fn messages_older_than_the_retention_go_consumed_or_not() {
    let mut world = World::new();
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 100;
    });
    world.push("q", "p", 2);
    world.sleep(60);
    world.push("q", "p", 1);
    world.sleep(50);
    let queue = world.queue_id("q");
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 2);
    assert_eq!(world.one("q", "g", 9), Some((2, 3, 1)));
    world.sleep(100);
    world.tick(&[queue]);
    assert_eq!((world.rows(Table::Run), world.rows(Table::Segment)), (0, 0), "idle, but old");
    assert_eq!(log_start(&world, "p"), 3);
    // The log goes on in a new segment, offsets where they were.
    assert_eq!(world.push("q", "p", 1).first_offset.0, 3);
    let extent = timeline::extent(&world.store, queue).unwrap().unwrap();
    assert_eq!(extent.start, LogPosition { segment: 2, byte: 0 });
}

#[test]
fn retention_has_no_effect_unless_enabled() {
    let mut world = World::new();
    world.configure("q", |options| options.retention_seconds = 1);
    world.push("q", "p", 1);
    world.sleep(100);
    let queue = world.queue_id("q");
    assert!(!world.tick(&[queue, QueueId(99)]).more);
    assert_eq!(log_start(&world, "p"), 0);
}

#[test]
fn completed_messages_go_when_all_groups_have_passed_them() {
    let mut world = World::new();
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.completed_retention_seconds = 10;
    });
    let queue = {
        world.push("q", "p", 2);
        world.queue_id("q")
    };
    world.sleep(20);
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 0, "a partition with no group keeps");
    let auto = |group| Pop { auto_ack: true, ..pop("q", Some(group), 9) };
    world.popped(auto("a"));
    world.popped(Pop { partition: Some("nope"), ..auto("b") });
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 0, "b has not passed");
    world.popped(auto("b"));
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 2);
}

#[test]
fn messages_that_waited_too_long_are_trimmed_without_retention_enabled() {
    let mut world = World::new();
    world.configure("q", |options| options.max_wait_time_seconds = 10);
    world.push("q", "p", 2);
    world.sleep(20);
    let queue = world.queue_id("q");
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 2);
}

#[test]
fn what_a_pin_holds_stays_until_the_pin_goes() {
    let mut world = World::new();
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
    });
    let first = world.push("q", "p", 1);
    world.sleep(1);
    let held = world.push("q", "p", 1);
    let queue = world.queue_id("q");
    let pin = PinValue { window: 1, from: held.stamp, to: Stamp(held.stamp.0 + 1) };
    use crate::TablesMut;
    let key = queen_core::row::pin::key(queue, "lake");
    world.store.put(Table::Pin, &key, &pin.encode());
    assert!(pin::pinned(&pin::pins(queue, &world.store).unwrap(), held.stamp, held.stamp));
    world.sleep(100);
    world.tick(&[queue]);
    assert_eq!(offsets(&world, queue), [(first.partition.0, 1)]);
    world.store.delete(Table::Pin, &key);
    world.tick(&[queue]);
    assert_eq!(offsets(&world, queue), []);
}

#[test]
fn retention_waits_for_the_sink_it_is_told_to_but_not_for_ever() {
    for (name, key) in [("q/ä", "s3:lake:q%2F%C3%A4:committed"), ("..", "s3:lake:%2E%2E:committed")]
    {
        held_until(name, key);
    }
}

fn held_until(name: &str, key: &str) {
    let mut world = World::new();
    world.configure(name, |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
        options.retention_sink_hold = "lake".into();
        options.retention_sink_hold_max_seconds = 1000;
    });
    let p = world.push(name, "p", 1).partition;
    world.sleep(100);
    let last = world.push(name, "p", 1);
    let queue = world.queue_id(name);
    let start = |world: &World| {
        crate::step::partition_with_id(&world.store, p).unwrap().unwrap().row.log_start.0
    };
    world.sleep(100);
    world.tick(&[queue]);
    assert_eq!(start(&world), 0, "nothing is confirmed");
    let value = format!(r#"{{"k":1,"tEnd":{}}}"#, last.stamp.0 + 1);
    let op = queen_core::kv::KvOp {
        ns: "queen-s3",
        kind: queen_core::kv::KvOpKind::Put { key, value: &value, ttl_seconds: None, expect: None },
        required: false,
    };
    world.apply(&Command::Kv(KvBatch { tenant: TENANT, ops: vec![op] }));
    world.tick(&[queue]);
    assert_eq!(start(&world), 2, "all is committed");
    world.push(name, "p", 1);
    world.sleep(900);
    world.tick(&[queue]);
    assert_eq!(start(&world), 2, "not committed");
    world.sleep(101);
    world.tick(&[queue]);
    assert_eq!(start(&world), 3, "held long enough");
    let lost = crate::lost::ranges(&world.store, TENANT, "lake", name, 2).unwrap();
    assert_eq!(lost.iter().map(|r| (r.from, r.to)).collect::<Vec<_>>(), [(2, 2)]);
}

#[test]
fn a_sink_that_is_away_for_a_week_is_warned_of_then_no_longer_waited_for_and_its_loss_is_listed() {
    use crate::hold::{Phase, held};
    const DAY: u64 = 86_400;
    let mut world = World::new();
    // The cap is the default: seven days.
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
        options.retention_sink_hold = "lake".into();
    });
    let kind = queen_core::kv::KvOpKind::Put {
        key: "s3:lake:q:start",
        value: r#"{"stamp":1,"mode":"earliest"}"#,
        ttl_seconds: None,
        expect: None,
    };
    let op = queen_core::kv::KvOp { ns: "queen-s3", kind, required: false };
    world.apply(&Command::Kv(KvBatch { tenant: TENANT, ops: vec![op] }));
    let oldest = world.push("q", "p", 2).stamp;
    let queue = world.queue_id("q");
    let mut at = |after: u64| {
        // A command is applied one microsecond after `now`.
        world.now = oldest.plus_seconds(after).0 - 1;
        world.tick(&[queue]);
        let row = crate::step::queue_with_id(&world.store, queue).unwrap().unwrap();
        let hold = held(&world.store, &row, Stamp(world.now)).unwrap();
        let lost = crate::lost::ranges(&world.store, TENANT, "lake", "q", 1).unwrap();
        let lost: Vec<_> = lost.iter().map(|range| (range.from, range.to, range.reason)).collect();
        (hold.map(|hold| hold.phase), log_start(&world, "p"), lost)
    };
    assert_eq!(at(6 * DAY - 1), (Some(Phase::Holding), 0, vec![]));
    assert_eq!(at(6 * DAY), (Some(Phase::Ending), 0, vec![]));
    assert_eq!(at(7 * DAY), (Some(Phase::Ended), 0, vec![]));
    let gap = vec![(0, 1, queen_core::sink::LossReason::Retention)];
    assert_eq!(at(7 * DAY + 1), (None, 2, gap));
}

#[test]
fn a_full_disk_ends_a_hold_and_is_named_as_the_reason() {
    let mut world = World::new();
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
        options.retention_sink_hold = "lake".into();
        options.retention_sink_hold_max_seconds = 1000;
    });
    let start = r#"{"stamp":1,"mode":"earliest"}"#;
    let kind = queen_core::kv::KvOpKind::Put {
        key: "s3:lake:q:start",
        value: start,
        ttl_seconds: None,
        expect: None,
    };
    let op = queen_core::kv::KvOp { ns: "queen-s3", kind, required: false };
    world.apply(&Command::Kv(KvBatch { tenant: TENANT, ops: vec![op] }));
    world.push("q", "p", 2);
    world.sleep(20);
    let young = world.push("q", "p", 1);
    let queue = world.queue_id("q");
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 0);
    world.apply(&Command::BreakHolds(BreakHolds { queues: vec![queue] }));
    assert_eq!(log_start(&world, "p"), young.first_offset.0, "what retention wants anyway");
    let lost = crate::lost::ranges(&world.store, TENANT, "lake", "q", 1).unwrap();
    let lost: Vec<_> = lost.iter().map(|range| (range.from, range.to, range.reason)).collect();
    assert_eq!(lost, [(0, 1, queen_core::sink::LossReason::DiskFull)]);
}

#[test]
fn a_tick_takes_bounded_steps_and_says_when_more_is_due() {
    let mut world = World::new();
    world.configure("q", |options| options.max_wait_time_seconds = 1);
    for _ in 0..30 {
        world.push("q", "p", 1);
    }
    world.sleep(10);
    let queue = world.queue_id("q");
    let queues = vec![queue; 100];
    assert!(world.tick(&queues[..99]).more || log_start(&world, "p") == 30);
    world.tick(&queues);
    assert_eq!(log_start(&world, "p"), 30);
}

#[test]
fn ids_outlive_the_messages_that_retention_took() {
    let mut world = World::new();
    world.configure("q", |options| options.max_wait_time_seconds = 1);
    let p = world.push_ids("q", "p", &[(Some("a"), "1")]).partition;
    let popped = world.pop("q", "g", 1);
    world.sleep(5);
    let queue = world.queue_id("q");
    world.tick(&[queue]);
    assert_eq!(log_start(&world, "p"), 1);
    assert!(!world.push_ids("q", "p", &[(Some("a"), "1")]).items.is_empty());
    let outcome = world.ack_one("g", p, "a", Verdict::DeadLetter, popped.lease);
    assert!(outcome.dead_lettered, "{outcome:?}");
    assert_eq!(world.letters("q")[0].payload, b"", "only its place is known");
}

#[test]
fn a_timeline_goes_on_from_any_position() {
    let mut world = World::new();
    let mut stamps = Vec::new();
    for index in 0..9 {
        let partition = ["a", "b"][index % 2];
        stamps.push(world.push("q", partition, 1 + index).stamp);
        world.sleep(1200);
    }
    let queue = world.queue_id("q");
    assert_eq!(world.rows(Table::Segment), 3 + 1);
    let mut found = Vec::new();
    let mut from = LogPosition::default();
    loop {
        let bounds = Bounds { runs: 2, ..ALL };
        let part = timeline::scan(&world.store, queue, from, bounds).unwrap();
        for run in &part.runs {
            let bytes = world.store.read(run.place, run.header.run_len() as usize).unwrap();
            assert_eq!(queen_core::run::decode(&bytes).unwrap().0, run.header);
            found.push(run.header.stamp);
        }
        from = part.next;
        if part.end {
            break;
        }
    }
    assert_eq!(found, stamps);
    let extent = timeline::extent(&world.store, queue).unwrap().unwrap();
    assert_eq!((extent.first, extent.last, extent.end), (stamps[0], stamps[8], from));
    for (index, stamp) in stamps.iter().enumerate() {
        let position = timeline::position_at(&world.store, queue, *stamp).unwrap();
        let rest = timeline::scan(&world.store, queue, position, ALL).unwrap();
        assert_eq!(rest.runs.len(), 9 - index);
        let before = Bounds { before: *stamp, ..ALL };
        let part = timeline::scan(&world.store, queue, LogPosition::default(), before).unwrap();
        assert_eq!((part.runs.len(), part.next), (index, position));
    }
    let end = timeline::position_at(&world.store, queue, Stamp(world.now)).unwrap();
    assert_eq!(end, extent.end);
}

/// Three runs, the second too long for a look at its sum; `flipped`: a byte of the log.
fn trimmed(flipped: Option<u64>) -> World {
    let mut world = World::new();
    world.configure("q", |options| {
        options.retention_enabled = true;
        options.retention_seconds = 10;
    });
    let long = format!("\"{}\"", "x".repeat(5000));
    world.push("q", "a", 2);
    world.push_ids("q", "b", &[(Some("own"), &long)]);
    world.push("q", "c", 1);
    world.sleep(20);
    world.push("q", "a", 1);
    let queue = world.queue_id("q");
    if let Some(position) = flipped {
        world.store.flip(Place { queue, segment: 1, position });
    }
    while world.tick(&[queue]).more {}
    world
}

#[test]
fn damage_in_the_log_changes_nothing_that_retention_does() {
    let rows = |world: &World| -> Vec<_> {
        let rows = world.store.rows();
        rows.map(|(table, key, value)| (table, key.clone(), value.clone())).collect()
    };
    let sound = trimmed(None);
    assert_eq!(sound.rows(Table::Run), 1);
    // The headers of the first run and of the second, and what lies around them.
    for position in 0..160 {
        assert!(rows(&trimmed(Some(position))) == rows(&sound), "byte {position}");
    }
}
