//! Tests of the commands' bytes: every variant, with every variant of what it holds.

use super::*;
use crate::ephemeral::EphemeralOptions;
use crate::kv::KvOpKind;
use crate::lock::{LockOp, LockOpKind};
use crate::options::Patch;
use crate::stream::{ClaimPartitions, Cycle, CycleAck, QueryId, RegisterQuery, StateOp, StateText};
use crate::switch::SetSwitches;
use crate::timer::{TimerMessage, TimerOp, TimerOpKind, Timers};
use crate::transaction::{AckGroup, Position, Rider};

const TENANT: TenantId = TenantId::DEFAULT;

fn op(kind: KvOpKind<'_>) -> KvOp<'_> {
    KvOp { ns: "n", kind, required: true }
}

fn kv_ops() -> Vec<KvOp<'static>> {
    vec![
        op(KvOpKind::Get { key: "k" }),
        op(KvOpKind::GetMany { keys: vec!["a", "b"] }),
        op(KvOpKind::GetPrefix { prefix: "p", after: Some("pa"), limit: 9, keys_only: true }),
        op(KvOpKind::Put { key: "k", value: "1", ttl_seconds: Some(5), expect: Some(0) }),
        op(KvOpKind::Delete { key: "d", expect: None }),
        op(KvOpKind::Incr { key: "i", delta: "1", min: None, max: Some("9"), ttl_seconds: None }),
        op(KvOpKind::Check { key: "c", expect: 300 }),
    ]
}

fn acks() -> Vec<AckItem<'static>> {
    let item = |verdict, lease, error| AckItem {
        transaction_id: "t",
        partition: Some(PartitionId(300)),
        verdict,
        lease,
        error,
    };
    vec![
        item(Verdict::Completed, LeaseClaim::None, None),
        item(Verdict::Failed, LeaseClaim::Id(LeaseId([9; 16])), Some("e")),
        item(Verdict::Retry, LeaseClaim::Foreign("x"), None),
        AckItem { partition: None, ..item(Verdict::DeadLetter, LeaseClaim::None, None) },
    ]
}

fn push_group() -> PushGroup<'static> {
    PushGroup {
        queue: "q",
        partition: "p",
        count: 2,
        has_transaction_ids: true,
        text_bytes: 300,
        frames: b"\x00\x01 \x00\x01 ",
    }
}

fn transaction() -> Transaction<'static> {
    let group = |group| AckGroup { group, items: acks() };
    let position = |offset| Position {
        queue: "q",
        partition: "p",
        group: "g",
        offset,
        start: GroupStart::All,
    };
    let mut riders: Vec<Rider<'_>> = kv_ops().into_iter().map(Rider::Kv).collect();
    riders.push(Rider::Position(position(Some(Offset(300)))));
    riders.push(Rider::Position(position(None)));
    let acks = vec![group(Some("g")), group(None)];
    Transaction { tenant: TENANT, acks, pushes: vec![push_group()], riders }
}

fn locks() -> Locks<'static> {
    let op = |name, kind| LockOp { name, kind };
    let acquire = LockOpKind::Acquire { owner: Some("o"), ttl_seconds: 300, limit: 3 };
    let renew = LockOpKind::Renew { slot: 2, token: 300, owner: None, ttl_seconds: 9 };
    let ops = vec![
        op("a", acquire),
        op("b", renew),
        op("c", LockOpKind::Release { slot: 1, token: 300 }),
        op("d", LockOpKind::Get),
    ];
    Locks { tenant: TENANT, ops }
}

fn timers() -> Timers<'static> {
    let op = |key, kind| TimerOp { queue: "q", key, kind };
    let message = |transaction_id| TimerMessage {
        partition: "p",
        delay_ms: 300,
        transaction_id,
        producer: None,
        encrypted: false,
        payload: b"{}",
    };
    let ops = vec![
        op("a", TimerOpKind::Schedule(message(Some("t")))),
        op("b", TimerOpKind::Schedule(TimerMessage { encrypted: true, ..message(None) })),
        op("c", TimerOpKind::Cancel),
        op("d", TimerOpKind::Seal { number: 300, envelope: b"\x01 " }),
    ];
    Timers { tenant: TENANT, ops }
}

fn transaction_of_timers() -> Transaction<'static> {
    let mut riders: Vec<Rider<'_>> = timers().ops.into_iter().map(Rider::Timer).collect();
    riders.pop();
    Transaction { tenant: TENANT, acks: Vec::new(), pushes: Vec::new(), riders }
}

/// Every variant, with every variant of what it holds.
fn samples() -> Vec<Command<'static>> {
    let pop = |start, named| Pop {
        tenant: TENANT,
        queue: "q",
        partition: named,
        group: named,
        batch: 200,
        partitions: 1,
        lease_seconds: Some(60),
        auto_ack: false,
        start,
    };
    let seek = |to| Seek { tenant: TENANT, group: "g", queue: "q", partition: Some("p"), to };
    let lease = LeaseId([9; 16]);
    let patch = OptionsPatch {
        namespace: Patch::Set("n".into()),
        lease_time: Patch::Default,
        retry_limit: Patch::Set(-1),
        ..OptionsPatch::default()
    };
    let id = DeadLetterRef::Id([8; 16]);
    let message = DeadLetterRef::Message { partition: PartitionId(3), transaction_id: "t" };
    let (letter, partition) = (id, Some("p"));
    let replay = ReplayDeadLetter { tenant: TENANT, letter, queue: None, partition };
    vec![
        Command::Push(Push { tenant: TENANT, groups: vec![push_group()] }),
        Command::Pop(pop(GroupStart::New, None)),
        Command::Pop(pop(GroupStart::All, Some("x"))),
        Command::Pop(pop(GroupStart::From(Stamp(300)), None)),
        Command::Ack(Ack { tenant: TENANT, group: Some("g"), items: acks() }),
        Command::ExtendLease(ExtendLease { tenant: TENANT, lease, seconds: 300 }),
        Command::ReturnLease(ReturnLease { tenant: TENANT, lease }),
        Command::Configure(Configure { tenant: TENANT, queue: "q", patch, replace: true }),
        Command::DeleteQueue(QueueRef { tenant: TENANT, queue: "q" }),
        Command::Kv(KvBatch { tenant: TENANT, ops: kv_ops() }),
        Command::Seek(seek(SeekTo::End)),
        Command::Seek(seek(SeekTo::Time(Stamp(300)))),
        Command::Seek(seek(SeekTo::Offset(Offset(300)))),
        Command::DeleteGroup(DeleteGroup { tenant: TENANT, group: "g", queue: Some("q") }),
        Command::MoveSubscription(MoveSubscription { tenant: TENANT, group: "g", to: Stamp(1) }),
        Command::ReplayDeadLetter(replay.clone()),
        Command::PurgeDeadLetters(PurgeDeadLetters::One { tenant: TENANT, letter: message }),
        Command::PurgeDeadLetters(PurgeDeadLetters::Queue {
            tenant: TENANT,
            queue: "q",
            group: None,
        }),
        Command::Tick(Tick { retention: vec![QueueId(300)] }),
        Command::ReplaySealed(ReplaySealed { replay, envelope: b"\x01 " }),
        Command::BreakHolds(BreakHolds { queues: vec![QueueId(300)] }),
        Command::Transaction(transaction()),
        Command::Locks(locks()),
        Command::Timers(timers()),
        Command::FireTimers,
        Command::SetSwitches(SetSwitches { timers_fire: Some(false), ..SetSwitches::default() }),
        Command::Transaction(transaction_of_timers()),
        Command::PopWith(PopWith {
            pop: pop(GroupStart::New, None),
            queues: vec!["a", "b"],
            conflation: false,
        }),
        Command::PopWith(PopWith {
            pop: pop(GroupStart::All, Some("g")),
            queues: Vec::new(),
            conflation: true,
        }),
        Command::RecordTrace(RecordTrace {
            tenant: TENANT,
            partition: PartitionId(300),
            transaction_id: "t",
            group: Some("g"),
            worker: None,
            event_type: "info",
            names: vec!["a", "b"],
            data: "{}",
        }),
        Command::Stream(StreamCommand::Register(RegisterQuery {
            tenant: TENANT,
            name: "n",
            source: "q",
            sink: Some("s"),
            config_hash: "h",
            reset: true,
        })),
        Command::Stream(StreamCommand::Cycle(Cycle {
            tenant: TENANT,
            query: QueryId(Stamp(300)),
            partition: PartitionId(300),
            group: Some("g"),
            ops: vec![
                StateOp { key: "k", value: Some(StateText::plain("{}")) },
                StateOp { key: "l", value: None },
            ],
            pushes: vec![PushGroup {
                queue: "q",
                partition: "p",
                count: 1,
                has_transaction_ids: false,
                text_bytes: 38,
                frames: b"\x00\x02{}",
            }],
            ack: Some(CycleAck {
                lease: LeaseClaim::Id(LeaseId([9; 16])),
                transaction_id: "t",
                count: 300,
                completed: true,
                release: false,
            }),
        })),
        Command::Stream(StreamCommand::Claim(ClaimPartitions {
            tenant: TENANT,
            query: QueryId(Stamp(300)),
            partitions: vec![PartitionId(1), PartitionId(300)],
            group: None,
            seconds: 30,
        })),
        Command::DeclareEphemeral(DeclareEphemeral {
            tenant: TENANT,
            queue: "q",
            options: Some(EphemeralOptions {
                max_length: Some(300),
                ..EphemeralOptions::default()
            }),
        }),
        Command::DeclareEphemeral(DeclareEphemeral { tenant: TENANT, queue: "q", options: None }),
    ]
}

#[test]
fn the_bytes_of_commands_are_fixed() {
    let hex = |command: &Command<'_>| -> String {
        command.encode().iter().map(|b| format!("{b:02x}")).collect()
    };
    let found: Vec<String> = samples().iter().map(hex).collect();
    let golden: Vec<&str> = include_str!("../golden/commands-v1.hex").lines().collect();
    assert_eq!(found, golden, "one line per command:\n{}", found.join("\n"));
}

#[test]
fn commands_read_back_and_no_cut_of_them_does() {
    for command in samples() {
        let bytes = command.encode();
        assert_eq!(Command::decode(&bytes).unwrap(), command);
        for cut in 0..bytes.len() {
            assert!(Command::decode(&bytes[..cut]).is_err(), "cut at {cut}: {command:?}");
        }
        let longer = [&bytes[..], b"\0"].concat();
        assert!(Command::decode(&longer).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_command_or_refused(
        at in 0usize..33, position in 0usize..400, byte in proptest::prelude::any::<u8>(),
    ) {
        let mut bytes = samples()[at].encode();
        let len = bytes.len();
        bytes[position % len] = byte;
        let _ = Command::decode(&bytes);
    }
}
