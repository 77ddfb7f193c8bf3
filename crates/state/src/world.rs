//! A machine over the in-memory store, for tests: a clock, and commands in short.

use crate::{Machine, MemoryStore};
use queen_core::command::*;
use queen_core::frame::Frame;
use queen_core::options::QueueOptions;
use queen_core::reply::*;
use queen_core::row::key;
use queen_core::{LeaseId, Offset, PartitionId, QueueId, Stamp, TenantId};

pub(crate) const TENANT: TenantId = TenantId::DEFAULT;
pub(crate) const SECOND: u64 = 1_000_000;

pub(crate) struct World {
    pub(crate) machine: Machine,
    pub(crate) store: MemoryStore,
    pub(crate) now: u64,
    pub(crate) events: Vec<Event>,
}

pub(crate) fn frames(items: &[(Option<&str>, &str)]) -> (Vec<u8>, u32) {
    let (mut out, mut text_bytes) = (Vec::new(), 0);
    for (transaction_id, payload) in items {
        let payload = payload.as_bytes();
        Frame { transaction_id: *transaction_id, payload, ..Frame::default() }.encode(&mut out);
        text_bytes += transaction_id.map_or(36, str::len) + payload.len();
    }
    (out, text_bytes as u32)
}

pub(crate) fn pop<'a>(queue: &'a str, group: Option<&'a str>, batch: u32) -> Pop<'a> {
    Pop {
        tenant: TENANT,
        queue,
        partition: None,
        group,
        batch,
        partitions: 1,
        lease_seconds: Some(30),
        auto_ack: false,
        start: GroupStart::All,
    }
}

impl World {
    pub(crate) fn new() -> World {
        let now = 1_792_837_434_000_000;
        World { machine: Machine::new(), store: MemoryStore::default(), now, events: Vec::new() }
    }

    pub(crate) fn sleep(&mut self, seconds: u64) {
        self.now += seconds * SECOND;
    }

    /// Applies a command one microsecond later, and holds the tables against the invariants.
    pub(crate) fn apply(&mut self, command: &Command<'_>) -> Reply {
        self.now += 1;
        self.events.clear();
        let bytes = command.encode();
        let command = Command::decode(&bytes).unwrap();
        let stamp = Stamp(self.now);
        let reply = self.machine.apply(&command, stamp, &mut self.store, &mut self.events).unwrap();
        crate::invariants::check_all(&self.store).unwrap();
        reply
    }

    pub(crate) fn push_ids(
        &mut self,
        queue: &str,
        partition: &str,
        items: &[(Option<&str>, &str)],
    ) -> PushedGroup {
        let (frames, text_bytes) = frames(items);
        let has_transaction_ids = items.iter().any(|(id, _)| id.is_some());
        let count = items.len() as u32;
        let frames = &frames[..];
        let group = PushGroup { queue, partition, count, has_transaction_ids, text_bytes, frames };
        let push = Push { tenant: TENANT, groups: vec![group] };
        match self.apply(&Command::Push(push)) {
            Reply::Push(mut groups) => groups.remove(0),
            other => panic!("{other:?}"),
        }
    }

    /// Pushes so many messages without ids.
    pub(crate) fn push(&mut self, queue: &str, partition: &str, count: usize) -> PushedGroup {
        self.push_ids(queue, partition, &vec![(None, "{}"); count])
    }

    pub(crate) fn configure(&mut self, queue: &str, change: impl FnOnce(&mut QueueOptions)) {
        let mut step_events = Vec::new();
        let mut options = QueueOptions::implicit(queue);
        change(&mut options);
        self.machine.with_step(
            Stamp(self.now),
            &mut self.store,
            &mut step_events,
            |step| match step.queue(TENANT, queue).unwrap() {
                Some(known) => {
                    let mut row = known.row.clone();
                    row.options = options;
                    step.put_queue(crate::step::Queue { id: known.id, row });
                }
                None => drop(step.create_queue(TENANT, queue, options).unwrap()),
            },
        );
    }

    pub(crate) fn pop(&mut self, queue: &str, group: &str, batch: u32) -> Popped {
        self.popped(pop(queue, Some(group), batch))
    }

    pub(crate) fn popped(&mut self, pop: Pop<'_>) -> Popped {
        match self.apply(&Command::Pop(pop)) {
            Reply::Pop(popped) => popped,
            other => panic!("{other:?}"),
        }
    }

    /// First and end offset and attempt of the only claim; `None` when there is none.
    pub(crate) fn one(&mut self, queue: &str, group: &str, batch: u32) -> Option<(u64, u64, u32)> {
        let popped = self.pop(queue, group, batch);
        assert!(popped.claims.len() <= 1);
        popped.claims.first().map(|claim| (claim.first.0, claim.end.0, claim.attempt))
    }

    pub(crate) fn ack(&mut self, group: &str, items: &[AckItem<'_>]) -> Vec<AckOutcome> {
        let ack = Ack { tenant: TENANT, group: Some(group), items: items.to_vec() };
        match self.apply(&Command::Ack(ack)) {
            Reply::Ack(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    /// Settles one message.
    pub(crate) fn ack_one(
        &mut self,
        group: &str,
        partition: PartitionId,
        transaction_id: &str,
        verdict: Verdict,
        lease: Option<LeaseId>,
    ) -> AckOutcome {
        let lease = lease.map_or(LeaseClaim::None, LeaseClaim::Id);
        let partition = Some(partition);
        let item = AckItem { transaction_id, partition, verdict, lease, error: None };
        self.ack(group, &[item]).remove(0)
    }

    pub(crate) fn tick(&mut self, retention: &[QueueId]) -> Ticked {
        match self.apply(&Command::Tick(Tick { retention: retention.to_vec() })) {
            Reply::Ticked(ticked) => ticked,
            other => panic!("{other:?}"),
        }
    }

    /// Ticks as long as a tick says that more is due.
    pub(crate) fn tick_until_done(&mut self) {
        loop {
            self.now += 1;
            let (tick, stamp) = (Command::Tick(Tick::default()), Stamp(self.now));
            let reply = self.machine.apply(&tick, stamp, &mut self.store, &mut self.events);
            if !matches!(reply.unwrap(), Reply::Ticked(ticked) if ticked.more) {
                return;
            }
        }
    }

    pub(crate) fn queue_id(&self, queue: &str) -> QueueId {
        crate::step::queue_named(&self.store, TENANT, queue).unwrap().unwrap().id
    }

    /// The transaction id of the message at an offset.
    pub(crate) fn id_at(&self, partition: PartitionId, offset: u64) -> String {
        let known = crate::step::partition_with_id(&self.store, partition).unwrap().unwrap();
        let offset = Offset(offset);
        let run = crate::run::kept_at(&self.store, partition, offset).unwrap();
        let frames = crate::run::frames(&self.store, known.queue, &run).unwrap().unwrap();
        let frame = crate::run::frame_in(&frames, &run, offset).unwrap();
        let minted = queen_core::MessageId::mint(run.row.stamp, partition, offset).to_string();
        crate::run::own_id(&frame).map_or(minted, |id| id.into_owned())
    }

    pub(crate) fn rows(&self, table: queen_core::table::Table) -> usize {
        self.store.rows().filter(|(found, _, _)| *found == table).count()
    }

    pub(crate) fn letters(&self, queue: &str) -> Vec<queen_core::row::DeadLetterRow> {
        let prefix = key::queue(self.queue_id(queue));
        let table = queen_core::table::Table::DeadLetter;
        let rows = crate::step::scan_prefix(&self.store, table, &prefix, 1000).unwrap();
        rows.iter().map(|(key, value)| crate::step::decode(key, value).unwrap()).collect()
    }
}
