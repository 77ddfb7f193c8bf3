//! Random commands against a model that keeps messages in plain lists and asks every partition.
//!
//! The model shares no code with the rules and knows no tables. Beside it runs a twin: the same
//! commands on a second store, each under a machine that remembers nothing.

use crate::world::*;
use crate::{Machine, MemoryStore};
use proptest::prelude::*;
use queen_core::command::*;
use queen_core::kv::{KvOp, KvOpKind};
use queen_core::options::QueueOptions;
use queen_core::reply::*;
use queen_core::row::{LastStampRow, key};
use queen_core::transaction::*;
use queen_core::{LeaseId, MessageId, Offset, PartitionId, Stamp};
use std::collections::{BTreeMap, BTreeSet};

const PARTITIONS: [&str; 3] = ["a", "b", "c"];
const GROUPS: [Option<&str>; 3] = [Some("g"), Some("h"), None];

/// Ids of messages by partition.
type Pushed = BTreeMap<usize, Vec<Option<u8>>>;
/// An ack: partition, offset near the cursor, verdict, lease.
type Near = (usize, u8, u8, u8);

#[derive(Clone, Debug)]
enum Op {
    Push(Pushed),
    Pop {
        group: usize,
        named: Option<usize>,
        batch: u32,
        width: u32,
        auto: bool,
        new: bool,
    },
    Ack {
        group: usize,
        items: Vec<Near>,
    },
    /// Acks, pushes and a gate, which holds or not, together.
    Transaction {
        group: usize,
        items: Vec<Near>,
        pushed: Pushed,
        gate: Option<bool>,
    },
    Extend {
        group: usize,
        partition: usize,
        seconds: u32,
    },
    Return {
        group: usize,
        partition: usize,
    },
    Sleep(u64),
    Tick,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let (g, p) = (0..GROUPS.len(), 0..PARTITIONS.len());
    let ids = proptest::collection::vec(proptest::option::of(0u8..12), 1..5);
    let named = proptest::option::weighted(0.25, p.clone());
    let item = (p.clone(), 0u8..12, 0u8..8, 0u8..8);
    let pushed = proptest::collection::btree_map(p.clone(), ids, 1..4);
    // In a transaction mostly what is refused alone is left out: else none would commit.
    let sound = (p.clone(), 2u8..6, 0u8..8, prop_oneof![Just(0u8), Just(7u8)]);
    let items = prop_oneof![
        3 => proptest::collection::vec(sound, 0..3),
        1 => proptest::collection::vec(item.clone(), 0..4),
    ];
    let gate = prop_oneof![4 => Just(Some(true)), 1 => Just(Some(false)), 2 => Just(None)];
    let maybe = prop_oneof![2 => pushed.clone(), 1 => Just(Pushed::new())];
    let op = prop_oneof![
        4 => pushed.prop_map(Op::Push),
        4 => (g.clone(), items, maybe, gate).prop_map(|(group, items, pushed, gate)|
            Op::Transaction { group, items, pushed, gate }),
        6 => (g.clone(), named, 0u32..7, 1u32..4, proptest::bool::weighted(0.2), any::<bool>())
            .prop_map(|(group, named, batch, width, auto, new)|
                Op::Pop { group, named, batch, width, auto, new }),
        6 => (g.clone(), proptest::collection::vec(item, 1..5))
            .prop_map(|(group, items)| Op::Ack { group, items }),
        1 => (g.clone(), p.clone(), 1u32..20)
            .prop_map(|(group, partition, seconds)| Op::Extend { group, partition, seconds }),
        1 => (g, p).prop_map(|(group, partition)| Op::Return { group, partition }),
        3 => (0u64..6).prop_map(Op::Sleep),
        1 => Just(Op::Tick),
    ];
    proptest::collection::vec(op, 1..80)
}

fn options() -> impl Strategy<Value = QueueOptions> {
    let few = || prop_oneof![3 => Just(0i64), 1 => 1i64..6];
    (few(), few(), 0i64..3, 0i64..20, any::<bool>(), few(), few()).prop_map(
        |(delay, buffer, retries, window, letters, wait, keep)| QueueOptions {
            delayed_processing: delay,
            window_buffer: buffer,
            retry_limit: retries,
            dedup_window_seconds: window,
            dead_letter_queue: letters,
            dlq_after_max_retries: false,
            max_wait_time_seconds: wait * 4,
            retention_enabled: true,
            retention_seconds: keep * 5,
            ..QueueOptions::default()
        },
    )
}

struct Message {
    stamp: u64,
    id: String,
}

#[derive(Clone, Default)]
struct Cursor {
    next: usize,
    delivered: usize,
    attempts: u32,
    failures: i64,
    /// Lease, end, expiry.
    lease: Option<(LeaseId, usize, u64)>,
    last_lease: Option<LeaseId>,
}

#[derive(Default)]
struct Partition {
    id: Option<PartitionId>,
    messages: Vec<Message>,
    log_start: usize,
}

struct Group {
    start: u64,
    cursors: BTreeMap<usize, Cursor>,
}

struct Model {
    options: QueueOptions,
    partitions: Vec<Partition>,
    groups: BTreeMap<usize, Group>,
    letters: usize,
}

impl Model {
    fn seconds(option: i64) -> u64 {
        option as u64 * SECOND
    }

    /// Where a group without a cursor would start.
    fn first(&self, start: u64, partition: usize) -> usize {
        let p = &self.partitions[partition];
        let from = p.messages.iter().position(|m| m.stamp >= start).unwrap_or(p.messages.len());
        from.max(p.log_start)
    }

    fn cursor(&self, group: usize, partition: usize) -> Cursor {
        let g = &self.groups[&group];
        g.cursors.get(&partition).cloned().unwrap_or_else(|| {
            let next = self.first(g.start, partition);
            Cursor { next, delivered: next, ..Cursor::default() }
        })
    }

    /// What may be delivered of a partition to a cursor now.
    fn visible(&self, partition: usize, cursor: &Cursor, now: u64) -> Option<(usize, usize)> {
        let p = &self.partitions[partition];
        if cursor.lease.is_some_and(|(_, _, expires)| expires > now) {
            return None;
        }
        let wait = Model::seconds(self.options.max_wait_time_seconds);
        let alive = |m: &Message| wait == 0 || m.stamp >= now - wait;
        let mut first = cursor.next.max(p.log_start);
        while first < p.messages.len() && !alive(&p.messages[first]) {
            first += 1;
        }
        let last = p.messages.last()?.stamp;
        let buffer = Model::seconds(self.options.window_buffer);
        if buffer > 0 && last + buffer > now {
            return None;
        }
        let delay = Model::seconds(self.options.delayed_processing);
        let ripe = p.messages[first..].iter().take_while(|m| m.stamp + delay <= now).count();
        (ripe > 0).then_some((first, first + ripe))
    }

    fn push(&mut self, partition: usize, ids: &[Option<String>], pushed: &PushedGroup) {
        let window = Model::seconds(self.options.dedup_window_seconds);
        let now = pushed.stamp.0;
        let p = &mut self.partitions[partition];
        assert_eq!(*p.id.get_or_insert(pushed.partition), pushed.partition);
        assert_eq!(pushed.first_offset.0 as usize, p.messages.len());
        let mut expected = Vec::new();
        for id in ids {
            let next = p.messages.len();
            let twin = id.as_ref().and_then(|id| {
                let of_id = |m: &Message| m.id == *id && (m.stamp == now || m.stamp + window > now);
                p.messages.iter().rposition(of_id)
            });
            if let Some(at) = twin {
                let stamp = Stamp(p.messages[at].stamp);
                expected.push(PushedItem::Duplicate { offset: Offset(at as u64), stamp });
                continue;
            }
            let at = Offset(next as u64);
            let minted = || MessageId::mint(pushed.stamp, pushed.partition, at).to_string();
            p.messages.push(Message { stamp: now, id: id.clone().unwrap_or_else(minted) });
            expected.push(PushedItem::Queued(at));
        }
        if expected.iter().all(|item| matches!(item, PushedItem::Queued(_))) {
            expected.clear();
        }
        assert_eq!(pushed.items, expected);
    }

    fn pop(&mut self, group: usize, pop: &Pop<'_>, popped: &Popped, now: u64) {
        let start = match pop.start {
            GroupStart::New if GROUPS[group].is_some() => now,
            _ => 0,
        };
        self.groups.entry(group).or_insert(Group { start, cursors: BTreeMap::new() });
        let mut budget = pop.batch as usize;
        let mut seen = BTreeSet::new();
        assert_eq!(popped.lease.is_some(), !popped.claims.is_empty() && !pop.auto_ack);
        for claim in &popped.claims {
            let partition = PARTITIONS.iter().position(|p| **p == *claim.partition_name).unwrap();
            assert!(seen.insert(partition), "a partition twice in one pop");
            assert!(pop.partition.is_none_or(|name| name == &*claim.partition_name));
            let mut cursor = self.cursor(group, partition);
            let (first, end) = self.visible(partition, &cursor, now).expect("nothing is visible");
            let end = end.min(first + budget);
            assert_eq!((claim.first.0 as usize, claim.end.0 as usize), (first, end));
            if first >= cursor.delivered {
                cursor.attempts = 0;
            }
            assert_eq!(claim.attempt, cursor.attempts + 1);
            budget -= end - first;
            cursor.delivered = cursor.delivered.max(end);
            if pop.auto_ack {
                cursor.next = end;
                cursor.failures = 0;
                cursor.lease = None;
                if end >= cursor.delivered {
                    cursor.attempts = 0;
                }
            } else {
                cursor.next = first;
                cursor.attempts += 1;
                let lease = popped.lease.unwrap();
                let seconds = u64::from(pop.lease_seconds.unwrap());
                cursor.lease = Some((lease, end, now + seconds * SECOND));
                cursor.last_lease = Some(lease);
            }
            self.groups.get_mut(&group).unwrap().cursors.insert(partition, cursor);
        }
        let width = if pop.partition.is_some() { 1 } else { pop.partitions as usize };
        assert!(seen.len() <= width);
        if budget > 0 && seen.len() < width {
            for (partition, name) in PARTITIONS.iter().enumerate() {
                let asked = pop.partition.is_none_or(|wanted| wanted == *name);
                if asked && !seen.contains(&partition) {
                    let cursor = self.cursor(group, partition);
                    let left = self.visible(partition, &cursor, now);
                    assert_eq!(left, None, "partition {name} was left out");
                }
            }
        }
    }

    /// The offset that an ack of this id means.
    fn resolve(&self, partition: usize, cursor: &Cursor, id: &str) -> Option<usize> {
        let messages = &self.partitions[partition].messages;
        let all: Vec<usize> = (0..messages.len()).filter(|at| messages[*at].id == id).collect();
        let ahead = all.iter().find(|at| **at >= cursor.next);
        ahead.or(all.last()).copied()
    }

    fn ack(&mut self, group: usize, items: &[AckItem<'_>], now: u64) -> Vec<AckOutcome> {
        let mut outcomes = vec![AckOutcome::default(); items.len()];
        for partition in 0..PARTITIONS.len() {
            let id = self.partitions[partition].id;
            let mine: Vec<usize> =
                (0..items.len()).filter(|i| id.is_some() && items[*i].partition == id).collect();
            let known = self.groups.get(&group).and_then(|g| g.cursors.get(&partition)).cloned();
            let Some(cursor) = known else {
                mine.iter().for_each(|i| outcomes[*i].refusal = Some(AckRefusal::NoConsumer));
                continue;
            };
            self.ack_partition(group, partition, cursor, &mine, items, now, &mut outcomes);
        }
        outcomes
    }

    #[allow(clippy::too_many_arguments)]
    fn ack_partition(
        &mut self,
        group: usize,
        partition: usize,
        mut cursor: Cursor,
        mine: &[usize],
        items: &[AckItem<'_>],
        now: u64,
        outcomes: &mut [AckOutcome],
    ) {
        let held = cursor.lease.filter(|(_, _, expires)| *expires > now);
        let mut accepted: Vec<(usize, usize)> = Vec::new();
        for &index in mine {
            let item = &items[index];
            let Some(at) = self.resolve(partition, &cursor, item.transaction_id) else {
                outcomes[index].refusal = Some(AckRefusal::Unresolvable);
                continue;
            };
            let holds = match item.lease {
                LeaseClaim::None => true,
                LeaseClaim::Id(id) => held.is_some_and(|(held, end, _)| held == id && at < end),
                LeaseClaim::Foreign(_) => false,
            };
            match item.verdict {
                Verdict::Completed if at < cursor.next => outcomes[index].noop = true,
                _ if at < cursor.next => outcomes[index].refusal = Some(AckRefusal::Committed),
                _ if !holds => outcomes[index].refusal = Some(AckRefusal::Lease),
                _ => accepted.push((at, index)),
            }
        }
        if accepted.is_empty() {
            return;
        }
        let spent = cursor.failures >= self.options.retry_limit;
        let of = |at: usize, verdict| {
            accepted.iter().any(|(other, index)| *other == at && items[*index].verdict == verdict)
        };
        let (mut over, mut charged) = (false, false);
        let offsets: BTreeSet<usize> = accepted.iter().map(|(at, _)| *at).collect();
        let mut stopped = None;
        let mut filed = BTreeSet::new();
        for at in offsets {
            let dead = of(at, Verdict::DeadLetter);
            let failed = !dead && of(at, Verdict::Failed);
            let retry = !dead && !failed && of(at, Verdict::Retry);
            over |= dead || failed || retry;
            charged |= failed && !spent;
            if stopped.is_none() {
                if (failed && !spent) || retry {
                    stopped = Some(at);
                    cursor.next = at;
                } else {
                    cursor.next = at + 1;
                    if (dead || failed) && self.options.dead_letters() {
                        filed.insert(at);
                    }
                }
            }
        }
        self.letters += filed.len();
        cursor.failures += i64::from(charged);
        if cursor.next >= held.map_or(cursor.delivered, |(_, end, _)| end) {
            over = true;
            cursor.failures = 0;
        }
        if cursor.next >= cursor.delivered {
            cursor.delivered = cursor.next;
            cursor.attempts = 0;
        }
        if over {
            cursor.lease = None;
        }
        for (at, index) in accepted {
            outcomes[index].lease_released = over && held.is_some();
            outcomes[index].dead_lettered = filed.contains(&at);
        }
        self.groups.get_mut(&group).unwrap().cursors.insert(partition, cursor);
    }

    fn tick(&mut self, now: u64) {
        let before = |option: i64| match option {
            0 => 0,
            option => now - Model::seconds(option),
        };
        let cutoff =
            before(self.options.retention_seconds).max(before(self.options.max_wait_time_seconds));
        for partition in &mut self.partitions {
            let kept = partition.messages.iter().position(|m| m.stamp >= cutoff);
            let kept = kept.unwrap_or(partition.messages.len());
            partition.log_start = partition.log_start.max(kept);
        }
    }
}

/// Messages of a push, encoded.
struct Made {
    named: Vec<(usize, Vec<Option<String>>)>,
    encoded: Vec<(Vec<u8>, u32)>,
}

impl Made {
    fn of(pushed: &Pushed) -> Made {
        let text = |id: &Option<u8>| id.map(|id| format!("id-{id}"));
        let named: Vec<(usize, Vec<Option<String>>)> =
            pushed.iter().map(|(p, ids)| (*p, ids.iter().map(text).collect())).collect();
        let encoded = named
            .iter()
            .map(|(_, ids)| frames(&ids.iter().map(|id| (id.as_deref(), "{}")).collect::<Vec<_>>()))
            .collect();
        Made { named, encoded }
    }

    fn groups(&self) -> Vec<PushGroup<'_>> {
        let groups = self.named.iter().zip(&self.encoded);
        let groups = groups.map(|((p, ids), (bytes, text_bytes))| PushGroup {
            queue: "q",
            partition: PARTITIONS[*p],
            count: ids.len() as u32,
            has_transaction_ids: ids.iter().any(Option::is_some),
            text_bytes: *text_bytes,
            frames: bytes,
        });
        groups.collect()
    }
}

/// A message to settle.
struct Acked {
    text: String,
    partition: PartitionId,
    verdict: Verdict,
    lease: Option<LeaseId>,
}

impl Acked {
    fn item(&self) -> AckItem<'_> {
        AckItem {
            transaction_id: &self.text,
            partition: Some(self.partition),
            verdict: self.verdict,
            lease: self.lease.map_or(LeaseClaim::None, LeaseClaim::Id),
            error: None,
        }
    }
}

/// The world under test, the model, and the twin.
struct Trial {
    world: World,
    model: Model,
    twin: MemoryStore,
}

impl Trial {
    fn new(options: QueueOptions) -> Trial {
        let mut world = World::new();
        world.configure("q", |known| *known = options.clone());
        let twin = world.store.clone();
        let partitions = PARTITIONS.iter().map(|_| Partition::default()).collect();
        let model = Model { options, partitions, groups: BTreeMap::new(), letters: 0 };
        Trial { world, model, twin }
    }

    fn apply(&mut self, command: Command<'_>) -> Reply {
        let reply = self.world.apply(&command);
        let stamp = Stamp(self.world.now);
        let mut events = Vec::new();
        let twin = Machine::new().apply(&command, stamp, &mut self.twin, &mut events).unwrap();
        assert_eq!(reply, twin, "a machine's memory changes an outcome");
        assert_eq!(self.world.events, events);
        reply
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Push(groups) => self.push(groups),
            Op::Pop { .. } => self.pop(op),
            Op::Ack { group, items } => self.ack(*group, items),
            Op::Transaction { group, items, pushed, gate } => {
                self.transaction(*group, items, pushed, *gate);
            }
            Op::Extend { group, partition, seconds } => {
                self.touch_lease(*group, *partition, Some(*seconds));
            }
            Op::Return { group, partition } => self.touch_lease(*group, *partition, None),
            Op::Sleep(seconds) => self.world.sleep(*seconds),
            Op::Tick => {
                let queue = self.world.queue_id("q");
                self.apply(Command::Tick(Tick { retention: vec![queue] }));
                self.model.tick(self.world.now);
            }
        }
        assert_eq!(self.world.letters("q").len(), self.model.letters);
    }

    fn push(&mut self, pushed: &Pushed) {
        let made = Made::of(pushed);
        let groups = made.groups();
        let push = Push { tenant: TENANT, groups };
        let Reply::Push(replies) = self.apply(Command::Push(push)) else { panic!() };
        self.model_push(&made, &replies);
    }

    fn model_push(&mut self, made: &Made, replies: &[PushedGroup]) {
        for ((partition, ids), reply) in made.named.iter().zip(replies) {
            self.model.push(*partition, ids, reply);
        }
    }

    fn pop(&mut self, op: &Op) {
        let Op::Pop { group, named, batch, width, auto, new } = *op else { return };
        let pop = Pop {
            partition: named.map(|p| PARTITIONS[p]),
            partitions: width,
            auto_ack: auto,
            lease_seconds: Some(7),
            start: if new { GroupStart::New } else { GroupStart::All },
            ..pop("q", GROUPS[group], batch)
        };
        let Reply::Pop(popped) = self.apply(Command::Pop(pop.clone())) else { panic!() };
        self.model.pop(group, &pop, &popped, self.world.now);
    }

    fn ack(&mut self, group: usize, near: &[Near]) {
        let texts = self.texts(group, near);
        let items: Vec<_> = texts.iter().map(Acked::item).collect();
        let ack = Ack { tenant: TENANT, group: GROUPS[group], items: items.clone() };
        let Reply::Ack(outcomes) = self.apply(Command::Ack(ack)) else { panic!() };
        let expected = self.model.ack(group, &items, self.world.now);
        assert_eq!(outcomes, expected, "{items:?}");
    }

    /// The messages that acks mean.
    fn texts(&self, group: usize, near: &[Near]) -> Vec<Acked> {
        let mut texts = Vec::new();
        for &(partition, near, verdict, lease) in near {
            let p = &self.model.partitions[partition];
            let Some(id) = p.id else { continue };
            let cursor = match self.model.groups.get(&group) {
                Some(group) => match group.cursors.get(&partition) {
                    Some(cursor) => cursor.clone(),
                    // The group may have looked there and been given nothing: not the model's matter.
                    None => continue,
                },
                None => Cursor::default(),
            };
            let at = (cursor.next + usize::from(near)).saturating_sub(3);
            let text = p.messages.get(at).map_or("unknown".to_owned(), |m| m.id.clone());
            let lease = match (lease, cursor.last_lease) {
                (0..=1, _) | (_, None) => None,
                (2, _) => Some(LeaseId([lease; 16])),
                (_, last) => last,
            };
            let verdict = match verdict {
                0..=3 => Verdict::Completed,
                4..=5 => Verdict::Failed,
                6 => Verdict::Retry,
                _ => Verdict::DeadLetter,
            };
            texts.push(Acked { text, partition: id, verdict, lease });
        }
        texts
    }

    /// A transaction does what its parts do alone under its stamp, or nothing, and then a part says why.
    fn transaction(&mut self, group: usize, near: &[Near], pushed: &Pushed, gate: Option<bool>) {
        let (texts, made) = (self.texts(group, near), Made::of(pushed));
        let items: Vec<_> = texts.iter().map(Acked::item).collect();
        let holds = gate.is_none_or(|holds| holds);
        // Nobody writes the gate's key: it holds while it asks for nothing.
        let put = KvOpKind::Put { key: "k", value: "1", ttl_seconds: None, expect: None };
        let check = KvOpKind::Check { key: "gate", expect: u64::from(!holds) };
        let op = |kind| KvOp { ns: "n", kind, required: true };
        let ops = if gate.is_some() { vec![op(put), op(check)] } else { Vec::new() };
        let acks = vec![AckGroup { group: GROUPS[group], items: items.clone() }];
        let (pushes, riders) = (made.groups(), ops.iter().cloned().map(Rider::Kv).collect());
        let transaction = Transaction { tenant: TENANT, acks, pushes, riders };
        let mut alone = self.world.store.clone();
        let reply = self.apply(Command::Transaction(transaction));
        let Reply::Transaction(TransactionOutcome { stamp, result }) = reply else { panic!() };
        let ack = Ack { tenant: TENANT, group: GROUPS[group], items: items.clone() };
        let push = Push { tenant: TENANT, groups: made.groups() };
        let batch = KvBatch { tenant: TENANT, ops };
        let mut machine = Machine::new();
        let untouched = {
            let mut store = alone.clone();
            machine.with_step(stamp, &mut store, &mut Vec::new(), |step| {
                step.put(key::META_LAST_STAMP, &LastStampRow(stamp));
            });
            store
        };
        let (acked, stored) = machine.with_step(stamp, &mut alone, &mut Vec::new(), |step| {
            step.put(key::META_LAST_STAMP, &LastStampRow(stamp));
            let Reply::Ack(acked) = crate::ack::apply(step, &ack).unwrap() else { panic!() };
            let Reply::Push(groups) = crate::push::apply(step, &push).unwrap() else { panic!() };
            drop(crate::kv::apply(&batch, stamp, step.store).unwrap());
            step.flush_segments();
            (acked, groups)
        });
        let old = |item: &PushedItem| matches!(item, PushedItem::Duplicate { stamp: at, .. } if *at < stamp);
        let duplicate = stored.iter().any(|group| group.items.iter().any(old));
        match result {
            Ok(done) => {
                assert!(holds && !duplicate && acked.iter().all(|one| one.refusal.is_none()));
                assert!(self.world.store == alone, "the parts alone do something else");
                assert_eq!((&done.acks[0], &done.pushes), (&acked, &stored));
                assert_eq!(self.model.ack(group, &items, stamp.0), acked);
                self.model_push(&made, &done.pushes);
            }
            Err(why) => {
                assert!(self.world.store == untouched, "{why:?} left something");
                match why {
                    RolledBack::Ack { item, refusal, .. } => {
                        let lapsed = acked[item].noop && items[item].lease != LeaseClaim::None;
                        assert!(acked[item].refusal == Some(refusal) || lapsed, "{refusal:?}");
                    }
                    RolledBack::Duplicate { .. } => assert!(duplicate),
                    RolledBack::Precondition { .. } => assert!(!holds),
                    RolledBack::NoPartition { .. } => panic!("there was no position"),
                }
            }
        }
    }

    /// Extends the lease of a cursor, or gives it back.
    fn touch_lease(&mut self, group: usize, partition: usize, seconds: Option<u32>) {
        let known = self.model.groups.get(&group).and_then(|g| g.cursors.get(&partition));
        let Some(lease) = known.and_then(|cursor| cursor.last_lease) else { return };
        let command = match seconds {
            Some(seconds) => Command::ExtendLease(ExtendLease { tenant: TENANT, lease, seconds }),
            None => Command::ReturnLease(ReturnLease { tenant: TENANT, lease }),
        };
        let Reply::Lease(reply) = self.apply(command) else { panic!() };
        let (now, mut claims) = (self.world.now, 0);
        for cursor in self.model.groups.get_mut(&group).unwrap().cursors.values_mut() {
            let Some((id, end, expires)) = cursor.lease else { continue };
            if id == lease && expires > now {
                claims += 1;
                match seconds {
                    Some(seconds) => {
                        let wanted = now + u64::from(seconds) * SECOND;
                        cursor.lease = Some((id, end, expires.max(wanted)));
                        assert_eq!(reply.expires_at.0, expires.max(wanted));
                    }
                    None => {
                        cursor.lease = None;
                        cursor.attempts -= 1;
                    }
                }
            }
        }
        assert_eq!(reply.claims, claims);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn random_commands_do_what_the_model_does(options in options(), ops in ops()) {
        let mut trial = Trial::new(options);
        for op in &ops {
            trial.run(op);
        }
        prop_assert!(trial.world.store == trial.twin, "two stores differ");
    }
}
