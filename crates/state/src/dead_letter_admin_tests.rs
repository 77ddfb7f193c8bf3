//! Tests of replaying and purging dead letters.

use super::{find, uuid_text};
use crate::world::{TENANT, World};
use queen_core::command::*;
use queen_core::frame::Frame;
use queen_core::reply::{PushedItem, Replayed, Reply};
use queen_core::row::DeadLetterRow;
use queen_core::table::Table;
use queen_core::{Code, TenantId};

/// Pushes a message with this transaction id and has the group give it up.
fn bury(world: &mut World, queue: &str, partition: &str, group: &str, id: &str) -> DeadLetterRow {
    world.push_ids(queue, partition, &[(Some(id), "{\"n\":42.00}")]);
    let popped = world.pop(queue, group, 100);
    let claim = &popped.claims[0];
    world.ack_one(group, claim.partition, id, Verdict::DeadLetter, popped.lease);
    world.letters(queue).into_iter().rev().find(|row| row.transaction_id == id).unwrap()
}

fn replay(world: &mut World, letter: DeadLetterRef<'_>, queue: Option<&str>) -> Option<Replayed> {
    let command = ReplayDeadLetter { tenant: TENANT, letter, queue, partition: None };
    match world.apply(&Command::ReplayDeadLetter(command)) {
        Reply::Replayed(replayed) => replayed,
        other => panic!("{other:?}"),
    }
}

fn purge(world: &mut World, queue: &str, group: Option<&str>) -> u64 {
    let command = PurgeDeadLetters::Queue { tenant: TENANT, queue, group };
    match world.apply(&Command::PurgeDeadLetters(command)) {
        Reply::Purged(count) => count,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_replay_pushes_a_copy_for_every_group_and_removes_the_letter() {
    let mut world = World::new();
    let row = bury(&mut world, "q", "a", "g", "t-1");
    let replayed = replay(&mut world, DeadLetterRef::Id(row.id), None).unwrap();
    assert_eq!((replayed.queue.as_str(), replayed.partition.as_str()), ("q", "a"));
    assert_eq!((replayed.group.as_str(), replayed.original_transaction_id.as_str()), ("g", "t-1"));
    let PushedItem::Queued(offset) = replayed.item else { panic!() };
    assert_eq!(world.id_at(replayed.partition_id, offset.0), format!("dlq:{}", uuid_text(row.id)));
    assert_eq!((world.rows(Table::DeadLetter), world.rows(Table::DeadLetterById)), (0, 0));
    assert_eq!(world.one("q", "g", 9), Some((1, 2, 1)));
    assert_eq!(world.one("q", "other", 9), Some((0, 2, 1)));
    assert_eq!(replay(&mut world, DeadLetterRef::Id(row.id), None), None);
}

#[test]
fn a_replay_keeps_the_payload_and_may_go_elsewhere() {
    let mut world = World::new();
    let row = bury(&mut world, "q", "a", "g", "t-1");
    let replayed = replay(&mut world, DeadLetterRef::Id(row.id), Some("elsewhere")).unwrap();
    assert_eq!((replayed.queue.as_str(), replayed.partition.as_str()), ("elsewhere", "a"));
    let queue = world.queue_id("elsewhere");
    let id = replayed.partition_id;
    let run = crate::run::kept_at(&world.store, id, queen_core::Offset(0)).unwrap();
    let frames = crate::run::frames(&world.store, queue, &run).unwrap().unwrap();
    let frame = crate::run::frame_in(&frames, &run, queen_core::Offset(0)).unwrap();
    assert_eq!(frame.payload, b"{\"n\":42.00}");
}

#[test]
fn the_newest_letter_of_a_message_is_found_by_the_message() {
    let mut world = World::new();
    let first = bury(&mut world, "q", "a", "g", "t-1");
    bury(&mut world, "q", "a", "g", "t-2");
    let partition = first.partition;
    let popped = world.pop("q", "h", 1);
    world.ack_one("h", partition, "t-1", Verdict::DeadLetter, popped.lease);
    assert_eq!(world.letters("q").len(), 3);
    let letter = DeadLetterRef::Message { partition, transaction_id: "t-1" };
    assert_eq!(replay(&mut world, letter, None).unwrap().group, "h");
    assert_eq!(replay(&mut world, letter, None).unwrap().group, "g");
    assert_eq!(replay(&mut world, letter, None), None);
}

#[test]
fn a_purge_takes_a_queue_or_one_group_of_it() {
    let mut world = World::new();
    bury(&mut world, "q", "a", "g", "t-1");
    bury(&mut world, "q", "a", "g", "t-2");
    bury(&mut world, "r", "a", "g", "t-3");
    let popped = world.pop("q", "h", 1);
    world.ack_one("h", popped.claims[0].partition, "t-1", Verdict::DeadLetter, popped.lease);
    assert_eq!(purge(&mut world, "q", Some("nobody")), 0);
    assert_eq!(purge(&mut world, "q", Some("g")), 2);
    assert_eq!(purge(&mut world, "q", None), 1);
    assert_eq!((purge(&mut world, "q", None), purge(&mut world, "nowhere", None)), (0, 0));
    assert_eq!(world.rows(Table::DeadLetterById), 1);
}

#[test]
fn one_letter_is_deleted_by_its_message() {
    let mut world = World::new();
    let row = bury(&mut world, "q", "a", "g", "t-1");
    let letter = DeadLetterRef::Message { partition: row.partition, transaction_id: "t-1" };
    let command = Command::PurgeDeadLetters(PurgeDeadLetters::One { tenant: TENANT, letter });
    assert_eq!(world.apply(&command), Reply::Purged(1));
    assert_eq!(world.apply(&command), Reply::Purged(0));
}

#[test]
fn letters_of_another_tenant_are_not_found() {
    let mut world = World::new();
    let row = bury(&mut world, "q", "a", "g", "t-1");
    let other = TenantId([7; 16]);
    let found = find(&world.store, other, DeadLetterRef::Id(row.id)).unwrap();
    assert_eq!(found, None);
    let command = PurgeDeadLetters::One { tenant: other, letter: DeadLetterRef::Id(row.id) };
    assert_eq!(world.apply(&Command::PurgeDeadLetters(command)), Reply::Purged(0));
}

/// Files a letter of an encrypted queue, its payload an envelope.
fn bury_sealed(world: &mut World, queue: &str) -> DeadLetterRow {
    world.configure(queue, |options| options.encryption_enabled = true);
    let frame = Frame {
        transaction_id: Some("t-1"),
        encrypted: true,
        payload: b"sealed for q",
        ..Frame::default()
    };
    let mut frames = Vec::new();
    frame.encode(&mut frames);
    let group = PushGroup {
        queue,
        partition: "a",
        count: 1,
        has_transaction_ids: true,
        text_bytes: 9,
        frames: &frames,
    };
    world.apply(&Command::Push(Push { tenant: TENANT, groups: vec![group] }));
    let popped = world.pop(queue, "g", 1);
    world.ack_one("g", popped.claims[0].partition, "t-1", Verdict::DeadLetter, popped.lease);
    world.letters(queue).remove(0)
}

fn frame_of(world: &World, replayed: &Replayed) -> (bool, Vec<u8>) {
    let PushedItem::Queued(offset) = replayed.item else { panic!() };
    let run = crate::run::kept_at(&world.store, replayed.partition_id, offset).unwrap();
    let queue = world.queue_id(&replayed.queue);
    let frames = crate::run::frames(&world.store, queue, &run).unwrap().unwrap();
    let frame = crate::run::frame_in(&frames, &run, offset).unwrap();
    (frame.encrypted, frame.payload.to_vec())
}

fn asked(world: &mut World, replay: ReplayDeadLetter<'_>, envelope: Option<&[u8]>) -> Reply {
    world.apply(&match envelope {
        None => Command::ReplayDeadLetter(replay),
        Some(envelope) => Command::ReplaySealed(ReplaySealed { replay, envelope }),
    })
}

#[test]
fn an_envelope_goes_back_as_it_is_and_elsewhere_only_sealed_anew() {
    let mut world = World::new();
    let row = bury_sealed(&mut world, "q");
    assert!(row.encrypted);
    let letter = DeadLetterRef::Id(row.id);
    let back = ReplayDeadLetter { tenant: TENANT, letter, queue: None, partition: None };
    for moved in [
        ReplayDeadLetter { queue: Some("other"), ..back.clone() },
        ReplayDeadLetter { partition: Some("b"), ..back.clone() },
    ] {
        let reply = asked(&mut world, moved.clone(), None);
        assert!(matches!(&reply, Reply::Refused(e) if e.code == Code::NotSealed), "{reply:?}");
        assert_eq!(world.letters("q").len(), 1, "a refusal has no effect");
        let mut twin = World { store: world.store.clone(), ..World::new() };
        twin.now = world.now;
        let reply = asked(&mut twin, moved, Some(b"sealed for there"));
        let Reply::Replayed(Some(replayed)) = reply else { panic!("{reply:?}") };
        assert_eq!(frame_of(&twin, &replayed), (true, b"sealed for there".to_vec()));
    }
    let Reply::Replayed(Some(replayed)) = asked(&mut world, back, None) else { panic!() };
    assert_eq!(frame_of(&world, &replayed), (true, b"sealed for q".to_vec()));
}

#[test]
fn a_letter_in_the_clear_goes_to_an_encrypted_queue_sealed_only() {
    let mut world = World::new();
    let row = bury(&mut world, "q", "a", "g", "t-1");
    world.configure("q", |options| options.encryption_enabled = true);
    let letter = DeadLetterRef::Id(row.id);
    let back = ReplayDeadLetter { tenant: TENANT, letter, queue: None, partition: None };
    let reply = asked(&mut world, back.clone(), None);
    assert!(matches!(&reply, Reply::Refused(e) if e.code == Code::NotSealed), "{reply:?}");
    assert_eq!(world.letters("q").len(), 1);
    let reply = asked(&mut world, back, Some(b"sealed"));
    let Reply::Replayed(Some(replayed)) = reply else { panic!("{reply:?}") };
    assert_eq!(frame_of(&world, &replayed), (true, b"sealed".to_vec()));
    assert_eq!(world.letters("q").len(), 0);
}

#[test]
fn a_message_that_the_disk_has_lost_is_given_up_by_its_place_alone() {
    let mut world = World::new();
    world.push_ids("q", "a", &[(Some("t-1"), "{\"n\":42.00}")]);
    let popped = world.pop("q", "g", 100);
    let claim = &popped.claims[0];
    let run = crate::run::kept_at(&world.store, claim.partition, claim.first).unwrap();
    let place = run.place(world.queue_id("q"));
    world.store.flip(crate::Place { position: place.position + run.row.run_len() - 3, ..place });
    let item = AckItem {
        transaction_id: "t-1",
        partition: Some(claim.partition),
        verdict: Verdict::DeadLetter,
        lease: popped.lease.map_or(LeaseClaim::None, LeaseClaim::Id),
        error: None,
    };
    let ack = Command::Ack(Ack { tenant: TENANT, group: Some("g"), items: vec![item] });
    // Not through the world: it looks at the log after each command.
    let reply = apply(&mut world, &ack).unwrap();
    assert!(matches!(&reply, Reply::Ack(done) if done[0].dead_lettered), "{reply:?}");
    let letter = world.letters("q").remove(0);
    assert_eq!((letter.offset, letter.payload.len()), (claim.first, 0));
    assert_eq!((&*letter.transaction_id, letter.message_id), ("", [0; 16]));
}

fn apply(world: &mut World, command: &Command<'_>) -> Result<Reply, crate::StorageError> {
    world.now += 1;
    let stamp = queen_core::Stamp(world.now);
    world.machine.apply(command, stamp, &mut world.store, &mut world.events)
}
