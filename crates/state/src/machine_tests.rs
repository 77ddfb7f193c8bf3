//! Random commands of every kind on few names: whatever they do together, every state upholds the
//! invariants (the world looks after each command), a machine without memory does the same, and time brings everything to an end.

use crate::world::*;
use crate::{Machine, MemoryStore};
use proptest::prelude::*;
use queen_core::command::*;
use queen_core::kv::{KvOp, KvOpKind};
use queen_core::options::{OptionsPatch, Patch};
use queen_core::reply::*;
use queen_core::table::Table;
use queen_core::{LeaseId, Offset, PartitionId, QueueId, Stamp};

const QUEUES: [&str; 2] = ["q", "r"];
const PARTITIONS: [&str; 3] = ["a", "b", "c"];
const GROUPS: [&str; 2] = ["g", "h"];
/// What deletions leave to ticks is gone after so many.
const TICKS: usize = 50;

#[derive(Clone, Debug)]
enum Op {
    Push { queue: usize, partitions: Vec<usize>, id: Option<u8>, count: usize },
    Pop { queue: usize, partition: Option<usize>, group: Option<usize>, batch: u32, auto: bool },
    Ack { group: Option<usize>, partition: u64, offset: u64, verdict: u8, lease: bool },
    Extend(u32),
    Return,
    Configure { queue: usize, delay: i64, buffer: i64, wait: i64, keep: i64, done: i64 },
    DeleteQueue(usize),
    Seek { queue: usize, partition: Option<usize>, group: usize, to: u8 },
    DeleteGroup { queue: Option<usize>, group: usize },
    MoveSubscription { group: usize, back: u64 },
    Replay { partition: u64, offset: u64, queue: Option<usize> },
    Purge { queue: usize, group: Option<usize> },
    Pin { queue: u32, back: u64 },
    Unpin { queue: u32 },
    Sleep(u64),
    Tick,
}

fn op() -> impl Strategy<Value = Op> {
    let (q, p, g) = (|| 0..QUEUES.len(), || 0..PARTITIONS.len(), || 0..GROUPS.len());
    let maybe = proptest::option::of::<std::ops::Range<usize>>;
    let seconds = || prop_oneof![2 => Just(0i64), 1 => 1i64..8];
    prop_oneof![
        8 => (q(), proptest::sample::subsequence(vec![0, 1, 2], 1..4), proptest::option::of(0u8..9), 1..4usize)
            .prop_map(|(queue, partitions, id, count)| Op::Push { queue, partitions, id, count }),
        10 => (q(), maybe(p()), maybe(g()), 1u32..7, proptest::bool::weighted(0.2))
            .prop_map(|(queue, partition, group, batch, auto)|
                Op::Pop { queue, partition, group, batch, auto }),
        8 => (maybe(g()), 1u64..9, 0u64..9, 0u8..4, any::<bool>())
            .prop_map(|(group, partition, offset, verdict, lease)|
                Op::Ack { group, partition, offset, verdict, lease }),
        1 => (1u32..9).prop_map(Op::Extend),
        1 => Just(Op::Return),
        2 => (q(), seconds(), seconds(), seconds(), seconds(), seconds()).prop_map(
            |(queue, delay, buffer, wait, keep, done)|
                Op::Configure { queue, delay, buffer, wait, keep, done }),
        1 => q().prop_map(Op::DeleteQueue),
        2 => (q(), maybe(p()), g(), 0u8..3)
            .prop_map(|(queue, partition, group, to)| Op::Seek { queue, partition, group, to }),
        1 => (maybe(q()), g()).prop_map(|(queue, group)| Op::DeleteGroup { queue, group }),
        1 => (g(), 0u64..20).prop_map(|(group, back)| Op::MoveSubscription { group, back }),
        1 => (1u64..9, 0u64..6, maybe(q()))
            .prop_map(|(partition, offset, queue)| Op::Replay { partition, offset, queue }),
        1 => (q(), maybe(g())).prop_map(|(queue, group)| Op::Purge { queue, group }),
        1 => (1u32..4, 0u64..20).prop_map(|(queue, back)| Op::Pin { queue, back }),
        1 => (1u32..4).prop_map(|queue| Op::Unpin { queue }),
        4 => (0u64..6).prop_map(Op::Sleep),
        3 => Just(Op::Tick),
    ]
}

struct Trial {
    world: World,
    twin: MemoryStore,
    lease: Option<LeaseId>,
}

impl Trial {
    fn apply(&mut self, command: &Command<'_>) {
        let reply = self.world.apply(command);
        let (stamp, mut events) = (Stamp(self.world.now), Vec::new());
        let twin = Machine::new().apply(command, stamp, &mut self.twin, &mut events).unwrap();
        assert_eq!(reply, twin, "a machine's memory changes an outcome");
        if let Reply::Pop(Popped { lease: Some(lease), .. }) = reply {
            self.lease = Some(lease);
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Sleep(seconds) => self.world.sleep(seconds),
            Op::Push { queue, ref partitions, id, count } => {
                self.push(QUEUES[queue], partitions, id, count);
            }
            Op::Pop { queue, partition, group, batch, auto } => {
                let pop = Pop {
                    partition: partition.map(|p| PARTITIONS[p]),
                    partitions: 2,
                    auto_ack: auto,
                    lease_seconds: Some(4),
                    start: if batch % 2 == 0 { GroupStart::New } else { GroupStart::All },
                    ..pop(QUEUES[queue], group.map(|g| GROUPS[g]), batch)
                };
                self.apply(&Command::Pop(pop));
            }
            Op::Ack { .. } => self.ack(op),
            Op::Tick => self.tick(),
            Op::Pin { queue, back } => self.pin(queue, back),
            Op::Unpin { queue } => {
                let key = format!("s3:lake:{queue}:committed");
                self.put(&key, r#"{"k":1,"tEnd":1}"#);
            }
            _ => self.administer(op),
        }
    }

    fn push(&mut self, queue: &str, partitions: &[usize], id: Option<u8>, count: usize) {
        let ids: Vec<_> = (0..count)
            .map(|index| id.map(|id| format!("id-{}", usize::from(id) + index)))
            .collect();
        let items: Vec<_> = ids.iter().map(|id| (id.as_deref(), "{}")).collect();
        let (bytes, text_bytes) = frames(&items);
        let groups = partitions.iter().map(|p| PushGroup {
            queue,
            partition: PARTITIONS[*p],
            count: count as u32,
            has_transaction_ids: id.is_some(),
            text_bytes,
            frames: &bytes,
        });
        self.apply(&Command::Push(Push { tenant: TENANT, groups: groups.collect() }));
    }

    fn ack(&mut self, op: &Op) {
        let Op::Ack { group, partition, offset, verdict, lease } = *op else { return };
        let id = self.text(partition, offset);
        let verdicts = [Verdict::Completed, Verdict::Failed, Verdict::Retry, Verdict::DeadLetter];
        let item = AckItem {
            transaction_id: &id,
            partition: Some(PartitionId(partition)),
            verdict: verdicts[usize::from(verdict)],
            lease: self.lease.filter(|_| lease).map_or(LeaseClaim::None, LeaseClaim::Id),
            error: None,
        };
        let group = group.map(|g| GROUPS[g]);
        self.apply(&Command::Ack(Ack { tenant: TENANT, group, items: vec![item] }));
    }

    /// The transaction id of a message that may be there.
    fn text(&self, partition: u64, offset: u64) -> String {
        let id = PartitionId(partition);
        match crate::run::at(&self.world.store, id, Offset(offset)).unwrap() {
            Some(_) => self.world.id_at(id, offset),
            None => "unknown".to_owned(),
        }
    }

    fn tick(&mut self) {
        let keys = self.world.store.rows().filter(|(table, _, _)| *table == Table::Queue);
        let ids = keys.filter_map(|(_, key, _)| queen_core::row::key::queue_of(key));
        let retention: Vec<QueueId> = ids.collect();
        self.apply(&Command::Tick(Tick { retention }));
    }

    fn pin(&mut self, queue: u32, back: u64) {
        let (start, end) = (self.world.now - back * SECOND, self.world.now + SECOND);
        let intent = format!(r#"{{"queueId":{queue},"k":2,"tStart":{start},"tEnd":{end}}}"#);
        self.put(&format!("s3:lake:{queue}:intent"), &intent);
    }

    fn put(&mut self, key: &str, value: &str) {
        let value = if key.ends_with("committed") { r#"{"k":2,"tEnd":1}"# } else { value };
        let kind = KvOpKind::Put { key, value, ttl_seconds: None, expect: None };
        let ops = vec![KvOp { ns: "queen-s3", kind, required: false }];
        self.apply(&Command::Kv(KvBatch { tenant: TENANT, ops }));
    }

    fn administer(&mut self, op: &Op) {
        let tenant = TENANT;
        let lease = self.lease.unwrap_or(LeaseId([0; 16]));
        let text = match op {
            Op::Replay { partition, offset, .. } => self.text(*partition, *offset),
            _ => String::new(),
        };
        let command = match *op {
            Op::Extend(seconds) => Command::ExtendLease(ExtendLease { tenant, lease, seconds }),
            Op::Return => Command::ReturnLease(ReturnLease { tenant, lease }),
            Op::Configure { queue, delay, buffer, wait, keep, done } => {
                let patch = OptionsPatch {
                    delayed_processing: Patch::Set(delay),
                    window_buffer: Patch::Set(buffer),
                    // Never off again: what a group has skipped is only waiting to be trimmed.
                    max_wait_time_seconds: if wait > 0 { Patch::Set(wait) } else { Patch::Keep },
                    retention_enabled: Patch::Set(true),
                    retention_seconds: Patch::Set(keep),
                    completed_retention_seconds: Patch::Set(done),
                    retry_limit: Patch::Set(1),
                    ..OptionsPatch::default()
                };
                let queue = QUEUES[queue];
                Command::Configure(Configure { tenant, queue, patch, replace: false })
            }
            Op::DeleteQueue(queue) => {
                Command::DeleteQueue(QueueRef { tenant, queue: QUEUES[queue] })
            }
            Op::Seek { queue, partition, group, to } => Command::Seek(Seek {
                tenant,
                group: GROUPS[group],
                queue: QUEUES[queue],
                partition: partition.map(|p| PARTITIONS[p]),
                to: match to {
                    0 => SeekTo::End,
                    1 => SeekTo::Time(Stamp(self.world.now - 5 * SECOND)),
                    _ => SeekTo::Offset(Offset(2)),
                },
            }),
            Op::DeleteGroup { queue, group } => Command::DeleteGroup(DeleteGroup {
                tenant,
                group: GROUPS[group],
                queue: queue.map(|q| QUEUES[q]),
            }),
            Op::MoveSubscription { group, back } => {
                let to = Stamp(self.world.now - back * SECOND);
                Command::MoveSubscription(MoveSubscription { tenant, group: GROUPS[group], to })
            }
            Op::Replay { partition, queue, .. } => Command::ReplayDeadLetter(ReplayDeadLetter {
                tenant,
                letter: DeadLetterRef::Message {
                    partition: PartitionId(partition),
                    transaction_id: &text,
                },
                queue: queue.map(|q| QUEUES[q]),
                partition: None,
            }),
            Op::Purge { queue, group } => Command::PurgeDeadLetters(PurgeDeadLetters::Queue {
                tenant,
                queue: QUEUES[queue],
                group: group.map(|g| GROUPS[g]),
            }),
            _ => return,
        };
        self.apply(&command);
    }

    /// Deletes everything and lets time pass: nothing may be left of any queue.
    fn end(&mut self) {
        for queue in 1..4 {
            self.run(&Op::Unpin { queue });
        }
        for queue in 0..QUEUES.len() {
            self.run(&Op::DeleteQueue(queue));
        }
        self.world.sleep(100_000);
        for _ in 0..TICKS {
            self.tick();
        }
        let kept = [Table::Meta, Table::Kv, Table::KvExpiry, Table::KvNamespace];
        let left: Vec<_> =
            self.world.store.rows().filter(|(table, _, _)| !kept.contains(table)).collect();
        assert!(left.is_empty(), "left behind: {left:?}");
        assert!(self.world.store == self.twin, "two stores differ");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn every_state_upholds_the_invariants(ops in proptest::collection::vec(op(), 1..70)) {
        let mut trial =
            Trial { world: World::new(), twin: MemoryStore::default(), lease: None };
        for op in &ops {
            trial.run(op);
        }
        trial.end();
    }
}
