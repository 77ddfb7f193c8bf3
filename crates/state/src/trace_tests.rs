//! Tests of traces: where events are found, and when they go.

use super::*;
use crate::query::tick_due_at;
use crate::world::*;
use queen_core::command::Command;
use queen_core::limits::TRANSACTION_ID_BYTES_MAX;

fn event<'a>(partition: PartitionId, id: &'a str, names: &[&'a str]) -> RecordTrace<'a> {
    RecordTrace {
        tenant: TENANT,
        partition,
        transaction_id: id,
        group: Some("g"),
        worker: None,
        event_type: "info",
        names: names.to_vec(),
        data: "{\"n\":1}",
    }
}

fn recorded(world: &mut World, event: &RecordTrace<'_>) -> Result<Stamp, Error> {
    match world.apply(&Command::RecordTrace(event.clone())) {
        Reply::Traced(stamp) => Ok(stamp),
        Reply::Refused(refusal) => Err(refusal),
        other => panic!("{other:?}"),
    }
}

/// A world with a partition to trace the messages of.
fn world() -> (World, PartitionId) {
    let mut world = World::new();
    let partition = world.push("q", "p", 1).partition;
    (world, partition)
}

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().map(|(_, row)| row.transaction_id.as_str()).collect()
}

#[test]
fn events_are_found_by_message_and_by_name() {
    let (mut world, partition) = world();
    for (id, names) in [("a", &["x", "y"][..]), ("b", &["x"]), ("a", &["x"]), ("c", &[])] {
        recorded(&mut world, &event(partition, id, names)).unwrap();
    }
    let of_a = of_message(&world.store, TENANT, partition, "a").unwrap();
    assert_eq!(of_a.iter().map(|(_, row)| row.names.len()).collect::<Vec<_>>(), [2, 1]);
    assert_eq!((of_a[0].1.queue.as_str(), of_a[0].1.partition_name.as_str()), ("q", "p"));
    let of = |tenant, name, before| with_name(&world.store, tenant, name, before, 9).unwrap();
    let newest = of(TENANT, "x", Stamp::MAX);
    assert_eq!(ids(&newest), ["a", "b", "a"]);
    assert_eq!(ids(&of(TENANT, "x", newest[0].0)), ["b", "a"]);
    assert_eq!(skip_named(&world.store, TENANT, "x", Stamp::MAX, 1).unwrap(), Some(newest[0].0));
    assert_eq!(skip_named(&world.store, TENANT, "x", Stamp::MAX, 4).unwrap(), None);
    assert!(
        of(TENANT, "", Stamp::MAX).is_empty() && of(TenantId([3; 16]), "x", Stamp::MAX).is_empty()
    );
    let counted: Vec<_> = names(&world.store, TENANT, None, 9).unwrap();
    let shown = counted.iter().map(|(name, row)| (name.as_str(), row.events, row.messages));
    assert_eq!(shown.collect::<Vec<_>>(), [("x", 3, 2), ("y", 1, 1)]);
    assert_eq!(counted[0].1.last, newest[0].0);
    assert_eq!(names(&world.store, TENANT, Some("x"), 9).unwrap().len(), 1);
    assert_eq!(count(&world.store, TENANT, "none").unwrap(), TraceNameRow::default());
}

#[test]
fn events_go_when_their_time_is_over_and_a_tick_knows_when() {
    let (mut world, partition) = world();
    let first = recorded(&mut world, &event(partition, "a", &["x"])).unwrap();
    world.sleep(100);
    recorded(&mut world, &event(partition, "a", &["x"])).unwrap();
    world.sleep(TRACE_SECONDS - 101);
    world.tick(&[]);
    assert_eq!(count(&world.store, TENANT, "x").unwrap().events, 2);
    assert_eq!(tick_due_at(&world.store).unwrap(), Some(first.plus_seconds(TRACE_SECONDS + 5)));
    world.sleep(2);
    world.tick(&[]);
    let left = count(&world.store, TENANT, "x").unwrap();
    assert_eq!((left.events, left.messages), (1, 1));
    world.sleep(100);
    world.tick(&[]);
    for table in [Table::Trace, Table::TraceOfMessage, Table::TraceName, Table::TraceNameCount] {
        assert_eq!(world.rows(table), 0, "{table:?}");
    }
}

#[test]
fn a_tick_lets_a_bounded_number_of_events_go_and_says_that_more_are_due() {
    let (mut world, partition) = world();
    for n in 0..300 {
        recorded(&mut world, &event(partition, &format!("id-{n}"), &["x"])).unwrap();
    }
    world.sleep(TRACE_SECONDS + 1);
    assert!(world.tick(&[]).more);
    let left = world.rows(Table::Trace);
    assert!((1..300).contains(&left), "{left}");
    assert!(!world.tick(&[]).more);
    assert_eq!(world.rows(Table::Trace), 0);
}

#[test]
fn a_message_has_a_bounded_number_of_events_and_its_partition_must_be_there() {
    let (mut world, partition) = world();
    for _ in 0..TRACE_EVENTS_PER_MESSAGE {
        recorded(&mut world, &event(partition, "a", &[])).unwrap();
    }
    let refused = recorded(&mut world, &event(partition, "a", &[])).unwrap_err();
    assert_eq!(refused.code, Code::BadRequest);
    assert!(refused.text.contains("100 events"), "{}", refused.text);
    recorded(&mut world, &event(partition, "b", &[])).unwrap();
    let unknown = recorded(&mut world, &event(PartitionId(99), "a", &[])).unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
    let foreign = RecordTrace { tenant: TenantId([3; 16]), ..event(partition, "b", &[]) };
    assert_eq!(recorded(&mut world, &foreign).unwrap_err().code, Code::NotFound);
    let long = "x".repeat(TRANSACTION_ID_BYTES_MAX);
    recorded(&mut world, &event(partition, &long, &["x"])).unwrap();
    assert_eq!(of_message(&world.store, TENANT, partition, &long).unwrap().len(), 1);
}

#[test]
fn the_oldest_events_make_room_for_new_ones() {
    let (mut world, partition) = world();
    for id in ["a", "b", "c"] {
        recorded(&mut world, &event(partition, id, &["x"])).unwrap();
    }
    let one = event(partition, "d", &["x"]);
    let full = [
        TraceTotalsRow { events: TRACE_EVENTS_MAX, bytes: 0 },
        TraceTotalsRow { events: 3, bytes: TRACE_BYTES_MAX - one.bytes() + 1 },
    ];
    for (number, totals) in (0..).zip(full) {
        let (stamp, events) = (Stamp(world.now), &mut Vec::new());
        let World { machine, store, .. } = &mut world;
        machine.with_step(stamp, store, events, |step| step.put(trace::META_TRACES, &totals));
        world.now += 1;
        let command = Command::RecordTrace(event(partition, "d", &["x"]));
        let (stamp, events) = (Stamp(world.now), &mut Vec::new());
        // The totals are not of what there is: the invariants would say so.
        let reply = world.machine.apply(&command, stamp, &mut world.store, events).unwrap();
        assert_eq!(reply, Reply::Traced(stamp));
        let left = with_name(&world.store, TENANT, "x", Stamp::MAX, 9).unwrap();
        assert_eq!(ids(&left), [["d", "c", "b"], ["d", "d", "c"]][number]);
    }
}
