//! Tests of configuring and deleting queues.

use crate::tables::TablesMut;
use crate::world::{SECOND, TENANT, World};
use queen_core::command::*;
use queen_core::kv::{KvOp, KvOpKind};
use queen_core::options::{OptionsPatch, QueueOptions};
use queen_core::reply::{Event, Reply};
use queen_core::table::Table;
use serde_json::{Value, json};

fn configured(world: &mut World, queue: &str, options: Value, replace: bool) -> QueueOptions {
    let patch = OptionsPatch::read(options.as_object().unwrap()).unwrap();
    let command = Configure { tenant: TENANT, queue, patch, replace };
    match world.apply(&Command::Configure(command)) {
        Reply::Configured(configured) => configured.options,
        other => panic!("{other:?}"),
    }
}

fn deleted(world: &mut World, queue: &str) -> bool {
    match world.apply(&Command::DeleteQueue(QueueRef { tenant: TENANT, queue })) {
        Reply::Deleted(existed) => existed,
        other => panic!("{other:?}"),
    }
}

/// Tables that have rows, but for `Meta`.
fn tables(world: &World) -> Vec<&'static str> {
    let mut names: Vec<&str> = world.store.rows().map(|(table, ..)| table.name()).collect();
    names.dedup();
    names.retain(|name| *name != "meta");
    names
}

#[test]
fn configure_creates_with_the_defaults_and_a_lease_of_300_seconds() {
    let mut world = World::new();
    let options = configured(&mut world, "q", json!({"retryLimit": 7}), false);
    assert_eq!(options, QueueOptions { retry_limit: 7, ..QueueOptions::default() });
    assert_eq!(options.lease_time, 300);
    let id = world.queue_id("q");
    assert!(world.events.contains(&Event::QueueChanged { queue: id }));
}

#[test]
fn merge_keeps_what_is_absent_and_replace_does_not() {
    let mut world = World::new();
    world.push("q", "p", 1);
    let id = world.queue_id("q");
    let merged = configured(&mut world, "q", json!({"retryLimit": 7}), false);
    assert_eq!((merged.lease_time, merged.retry_limit), (60, 7));
    let reset = configured(&mut world, "q", json!({"leaseTime": null}), false);
    assert_eq!((reset.lease_time, reset.retry_limit), (300, 7));
    let replaced = configured(&mut world, "q", json!({"leaseTime": 9}), true);
    assert_eq!((replaced.lease_time, replaced.retry_limit), (9, 3));
    assert_eq!(world.queue_id("q"), id);
}

#[test]
fn the_default_of_labels_is_what_the_dotted_name_says() {
    let mut world = World::new();
    let labels = |options: QueueOptions| (options.namespace, options.task);
    let of = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(labels(configured(&mut world, "ns.t.q", json!({}), false)), of("ns", "t"));
    assert_eq!(labels(configured(&mut world, "plain", json!({}), false)), of("", ""));
    let set = json!({"namespace": "n", "task": "m"});
    assert_eq!(labels(configured(&mut world, "ns.t.q", set, false)), of("n", "m"));
    assert_eq!(labels(configured(&mut world, "ns.t.q", json!({}), false)), of("n", "m"));
    let null = json!({"namespace": null});
    assert_eq!(labels(configured(&mut world, "ns.t.q", null, false)), of("ns", "m"));
}

#[test]
fn a_deleted_queue_leaves_nothing_behind() {
    let mut world = World::new();
    world.push_ids("q", "a", &[(Some("t-1"), "{}"), (None, "{}")]);
    world.push("q", "b", 3);
    assert!(world.one("q", "g", 2).is_some());
    let popped = world.pop("q", "h", 9);
    let partition = popped.claims[0].partition;
    let id = world.id_at(partition, popped.claims[0].first.0);
    world.ack_one("h", partition, &id, Verdict::DeadLetter, popped.lease);
    assert_eq!(world.letters("q").len(), 1);
    assert!(deleted(&mut world, "q"));
    assert!(!deleted(&mut world, "q"));
    world.sleep(4000);
    world.tick(&[]);
    assert_eq!(tables(&world), Vec::<&str>::new());
}

#[test]
fn a_queue_of_the_same_name_is_another_one() {
    let mut world = World::new();
    world.push_ids("q", "a", &[(Some("t"), "1")]);
    let (old, first) = (world.queue_id("q"), world.pop("q", "g", 9));
    deleted(&mut world, "q");
    let pushed = world.push_ids("q", "a", &[(Some("t"), "2")]);
    assert_eq!((pushed.first_offset.0, pushed.items.len()), (0, 0), "not a duplicate");
    assert_ne!(world.queue_id("q"), old);
    let again = world.pop("q", "g", 9);
    assert_ne!(again.claims[0].partition, first.claims[0].partition);
    assert_eq!(again.claims[0].attempt, 1);
}

fn sink_put(world: &mut World, key: &str, value: &str) {
    let kind = KvOpKind::Put { key, value, ttl_seconds: None, expect: None };
    let ops = vec![KvOp { ns: "queen-s3", kind, required: false }];
    world.apply(&Command::Kv(KvBatch { tenant: TENANT, ops }));
}

#[test]
fn a_pinned_log_outlives_its_queue_until_the_sink_has_committed() {
    let mut world = World::new();
    world.push("q", "a", 3);
    world.pop("q", "g", 1);
    let id = world.queue_id("q");
    let (start, end) = (world.now - SECOND, world.now + SECOND);
    let intent = format!(r#"{{"queueId":{id},"k":1,"tStart":{start},"tEnd":{end}}}"#);
    sink_put(&mut world, "s3:default:q:intent", &intent);
    assert!(deleted(&mut world, "q"));
    assert!(crate::query::queue_named(&world.store, TENANT, "q").unwrap().is_none());
    for table in [Table::Group, Table::Cursor, Table::Lease, Table::LeaseExpiry, Table::Ready] {
        assert_eq!(world.rows(table), 0, "{}", table.name());
    }
    world.push("q", "a", 1);
    world.tick(&[id]);
    let kept = crate::query::queue_with_id(&world.store, id).unwrap().unwrap();
    assert!(kept.row.deleted.is_some());
    assert!(!crate::gone::is_due(&world.store).unwrap());
    assert_eq!(crate::query::log_extent(&world.store, id).unwrap().map(|_| ()), Some(()));
    assert_eq!((world.rows(Table::Run), world.rows(Table::Gone)), (1, 1), "the new one's");
    sink_put(&mut world, "s3:default:q:committed", r#"{"k":1}"#);
    assert!(crate::gone::is_due(&world.store).unwrap());
    world.tick(&[]);
    assert!(crate::query::queue_with_id(&world.store, id).unwrap().is_none());
    assert_eq!((world.rows(Table::Run), world.rows(Table::Gone)), (1, 0));
}

#[test]
fn a_deleted_queue_goes_however_many_wait_for_their_sinks() {
    let mut world = World::new();
    let mut ids = Vec::new();
    for number in 0..257 {
        let name = format!("q{number}");
        world.push(&name, "a", 1);
        let id = world.queue_id(&name);
        let (start, end) = (world.now - SECOND, world.now + SECOND);
        let intent = format!(r#"{{"queueId":{id},"k":1,"tStart":{start},"tEnd":{end}}}"#);
        sink_put(&mut world, &format!("s3:default:{name}:intent"), &intent);
        assert!(deleted(&mut world, &name));
        ids.push(id);
    }
    assert_eq!(crate::query::tick_due_at(&world.store).unwrap(), None, "all wait");
    sink_put(&mut world, "s3:default:q256:committed", r#"{"k":1}"#);
    assert_eq!(crate::query::tick_due_at(&world.store).unwrap(), Some(queen_core::Stamp::ZERO));
    world.tick(&[]);
    assert!(crate::query::queue_with_id(&world.store, ids[256]).unwrap().is_none());
    assert_eq!((world.rows(Table::Gone), world.rows(Table::Segment)), (256, 256));
    assert_eq!(crate::query::tick_due_at(&world.store).unwrap(), None);
}

#[test]
fn a_large_deletion_is_finished_by_ticks() {
    let mut world = World::new();
    world.push("q", "a", 1);
    world.machine.with_step(
        queen_core::Stamp(world.now),
        &mut world.store,
        &mut Vec::new(),
        |step| {
            for number in 0..(crate::gone::FIRST_STEP_ROWS + 5_000) as u64 {
                let key = queen_core::row::key::run(
                    queen_core::PartitionId(1),
                    queen_core::Offset(number + 1),
                );
                step.store.put(Table::Run, &key, &[]);
            }
        },
    );
    let command = Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "q" });
    world.now += 1;
    let stamp = queen_core::Stamp(world.now);
    world.machine.apply(&command, stamp, &mut world.store, &mut Vec::new()).unwrap();
    assert_eq!(world.rows(Table::Run), 5_001);
    let due = crate::query::tick_due_at(&world.store).unwrap();
    assert_eq!(due, Some(queen_core::Stamp::ZERO));
    assert!(crate::query::queue_named(&world.store, TENANT, "q").unwrap().is_none());
    world.now += 1;
    let tick = Command::Tick(Tick::default());
    let stamp = queen_core::Stamp(world.now);
    let reply = world.machine.apply(&tick, stamp, &mut world.store, &mut Vec::new()).unwrap();
    assert!(matches!(reply, Reply::Ticked(ticked) if ticked.more));
    world.tick_until_done();
    assert_eq!(tables(&world), Vec::<&str>::new());
}
