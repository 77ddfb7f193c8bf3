//! A broker in memory: the real state machine over its in-memory store, and a clock that leaps.
//!
//! Owns: stamping and applying commands, waking those that wait, pushes in short (sealed where the
//! queue is encrypted), the keys, backups.
//! Leaves to others: every rule (`queen-state`), the cipher (`queen-broker`), how requests get here
//! (`owner`).

use super::keys::Keys;
use super::reading;
use parking_lot::Mutex;
use queen_core::command::{Command, Configure, KvBatch, Push, PushGroup, QueueRef, Tick};
use queen_core::envelope::bound_to;
use queen_core::frame::Frame;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult};
use queen_core::limits::SINK_NAMESPACE;
use queen_core::options::{OptionsPatch, Patch};
use queen_core::reply::{Event, Reply};
use queen_core::row::Row as _;
use queen_core::sink::LossReason;
use queen_core::table::Table;
use queen_core::{MessageId, Offset, PartitionId, QueueId, Stamp, TenantId};
use queen_sink::host::QueueInfo;
use queen_state::{Machine, MemoryStore, query};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// 2026-10-24T10:23:54.910988Z, of which the clock starts.
pub const BEGIN: u64 = 1_792_837_434_910_988;

struct State {
    machine: Machine,
    store: MemoryStore,
    last: Stamp,
    changes: u64,
    /// The clock is so much ahead of the time that has passed, µs.
    leap: i64,
    /// Pins are forgotten as soon as they are made.
    unpinned: bool,
}

/// The broker that all owners of a run share.
pub struct SimBroker {
    state: Mutex<State>,
    keys: Mutex<Keys>,
    news: Notify,
    begun: Instant,
}

/// An appended record, as its producer knows it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pushed {
    /// Partition name.
    pub partition: String,
    /// Its offset.
    pub offset: u64,
    /// Stamp of the push.
    pub stamp: u64,
    /// The producer's, or the minted one.
    pub transaction_id: String,
    /// Payload text.
    pub payload: String,
}

impl SimBroker {
    /// A broker without queues.
    pub fn new() -> Arc<SimBroker> {
        let state = State {
            machine: Machine::new(),
            store: MemoryStore::default(),
            last: Stamp(BEGIN),
            changes: 1,
            leap: 0,
            unpinned: false,
        };
        let (state, keys) = (Mutex::new(state), Mutex::new(Keys::new()));
        Arc::new(SimBroker { state, keys, news: Notify::new(), begun: Instant::now() })
    }

    /// From now on pins hold nothing: the mutation that shows what they are for.
    pub fn forget_pins(&self) {
        self.state.lock().unpinned = true;
    }

    /// The wall clock of the broker leaps by so many µs; stamps rise all the same.
    pub fn leap(&self, micros: i64) {
        self.state.lock().leap += micros;
        self.news.notify_waiters();
    }

    fn clock(&self, state: &State) -> u64 {
        let time = BEGIN + self.begun.elapsed().as_micros() as u64;
        time.saturating_add_signed(state.leap)
    }

    /// The log clock.
    pub fn now(&self) -> Stamp {
        let state = self.state.lock();
        Stamp(self.clock(&state)).max(state.last)
    }

    /// Stamp of the last command.
    pub fn applied(&self) -> Stamp {
        self.state.lock().last
    }

    /// Stamps and applies a command.
    pub fn apply(&self, command: &Command<'_>) -> Reply {
        let mut state = self.state.lock();
        let stamp = Stamp(self.clock(&state).max(state.last.0 + 1));
        let State { machine, store, .. } = &mut *state;
        let mut events = Vec::new();
        let reply = machine.apply(command, stamp, store, &mut events).unwrap();
        state.last = stamp;
        if state.unpinned {
            self.unpin(&mut state);
        }
        if events.iter().any(|event| matches!(event, Event::QueueChanged { .. })) {
            state.changes += 1;
        }
        drop(state);
        if !events.is_empty() {
            self.news.notify_waiters();
        }
        reply
    }

    fn unpin(&self, state: &mut State) {
        use queen_state::{Tables as _, TablesMut as _};
        let pins = state.store.scan(Table::Pin, &[], &[u8::MAX; 5], usize::MAX).unwrap();
        for (key, _) in pins {
            state.store.delete(Table::Pin, &key);
        }
    }

    /// Applies a KV batch.
    pub fn kv(&self, ops: &[KvOp<'_>]) -> KvOutcome {
        let batch = KvBatch { tenant: TenantId::DEFAULT, ops: ops.to_vec() };
        match self.apply(&Command::Kv(batch)) {
            Reply::Kv(outcome) => outcome,
            other => panic!("a KV batch was answered with {other:?}"),
        }
    }

    /// A tick that looks at the retention of all queues.
    pub fn tick(&self) -> Stamp {
        let queues = self.look(|store| reading::queues(store).unwrap());
        let live = queues.iter().filter(|info| !info.deleted);
        let retention = live.map(|info| info.id).collect();
        self.tick_on(Tick { retention })
    }

    /// A tick, if something is due, as the broker's own ticker makes it; whether it was.
    pub fn tick_if_due(&self) -> bool {
        let due = self.look(|store| query::tick_due_at(store).unwrap());
        let due = due.is_some_and(|due| due <= self.now());
        if due {
            self.tick_on(Tick::default());
        }
        due
    }

    /// Records that a sink has not listed as lost yet.
    pub fn loss_waits(&self, queue: &str) -> bool {
        self.look(|store| reading::loss(store, queue, u64::MAX)).unwrap().is_some()
    }

    /// A tick.
    pub fn tick_on(&self, tick: Tick) -> Stamp {
        match self.apply(&Command::Tick(tick)) {
            Reply::Ticked(ticked) => ticked.stamp,
            other => panic!("a tick was answered with {other:?}"),
        }
    }

    /// Reads the state.
    pub fn look<T>(&self, look: impl FnOnce(&MemoryStore) -> T) -> T {
        look(&self.state.lock().store)
    }

    /// A KV row's value, if it lives. Reads without a command: the row's time is not looked at.
    pub fn row(&self, key: &str) -> Option<String> {
        use queen_core::row::kv::{KvValue, key as row_key};
        use queen_state::Tables as _;
        let key = row_key(TenantId::DEFAULT, SINK_NAMESPACE, key);
        let found = self.look(|store| store.get(Table::Kv, &key).unwrap())?;
        let row = KvValue::decode(&found).unwrap();
        (row.expires > self.now()).then(|| String::from_utf8(row.value.to_vec()).unwrap())
    }

    /// A KV row as the sink sees it.
    pub fn kv_row(&self, key: &str) -> Option<queen_core::kv::KvRow> {
        let get = KvOp { ns: SINK_NAMESPACE, kind: KvOpKind::Get { key }, required: false };
        match self.kv(&[get]) {
            KvOutcome::Done(mut results) => match results.pop() {
                Some(KvResult::Row(row)) => row,
                _ => None,
            },
            KvOutcome::Precondition { .. } => None,
        }
    }

    /// The live incarnation of a queue.
    pub fn queue(&self, name: &str) -> Option<QueueInfo> {
        self.look(|store| reading::queue(store, name).unwrap())
    }

    /// Makes a queue, or sets the seconds after which its retention removes a record (0: never).
    pub fn configure(&self, queue: &str, retention_seconds: i64) -> QueueId {
        self.patch(
            queue,
            OptionsPatch {
                retention_enabled: Patch::Set(retention_seconds > 0),
                retention_seconds: Patch::Set(retention_seconds),
                ..OptionsPatch::default()
            },
        )
    }

    /// Makes a queue, or lets one be, whose payloads are sealed from now on.
    pub fn encrypt(&self, queue: &str) -> QueueId {
        let encryption_enabled = Patch::Set(true);
        self.patch(queue, OptionsPatch { encryption_enabled, ..OptionsPatch::default() })
    }

    fn patch(&self, queue: &str, patch: OptionsPatch) -> QueueId {
        let tenant = TenantId::DEFAULT;
        let configure = Configure { tenant, queue, patch, replace: false };
        match self.apply(&Command::Configure(configure)) {
            Reply::Configured(configured) => configured.queue,
            other => panic!("a configure was answered with {other:?}"),
        }
    }

    /// Deletes a queue.
    pub fn delete(&self, queue: &str) {
        self.apply(&Command::DeleteQueue(QueueRef { tenant: TenantId::DEFAULT, queue }));
    }

    /// One push to one queue, which is made if it is not there: (partition, payload) each.
    pub fn push(&self, queue: &str, items: &[(&str, &str)]) -> Vec<Pushed> {
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (partition, payload) in items {
            groups.entry(partition).or_default().push(payload);
        }
        let framed: Vec<(&str, Vec<&str>, Vec<u8>)> = groups
            .into_iter()
            .map(|(partition, payloads)| {
                let frames = self.frames(queue, partition, &payloads);
                (partition, payloads, frames)
            })
            .collect();
        let groups = framed.iter().map(|(partition, payloads, frames)| PushGroup {
            queue,
            partition,
            count: payloads.len() as u32,
            has_transaction_ids: false,
            text_bytes: payloads.iter().map(|payload| 36 + payload.len() as u32).sum(),
            frames,
        });
        let push = Push { tenant: TenantId::DEFAULT, groups: groups.collect() };
        let Reply::Push(done) = self.apply(&Command::Push(push)) else {
            panic!("a push was refused");
        };
        let mut out = Vec::new();
        for ((partition, payloads, _), group) in framed.iter().zip(&done) {
            for (index, payload) in payloads.iter().enumerate() {
                let offset = group.first_offset.plus(index as u64);
                out.push(Pushed {
                    partition: (*partition).to_owned(),
                    offset: offset.0,
                    stamp: group.stamp.0,
                    transaction_id: minted(group.stamp, group.partition, offset),
                    payload: (*payload).to_owned(),
                });
            }
        }
        out
    }

    /// Frames as the broker's shell makes them of payloads.
    fn frames(&self, queue: &str, partition: &str, payloads: &[&str]) -> Vec<u8> {
        let (mut frames, mut sealed) = (Vec::new(), Vec::new());
        let encrypted = self.is_encrypted(queue);
        let keys = self.keys.lock();
        let bound = bound_to(TenantId::DEFAULT, queue, partition);
        for payload in payloads {
            let mut frame = Frame { payload: payload.as_bytes(), encrypted, ..Frame::default() };
            if encrypted {
                sealed.clear();
                keys.seal(&bound, payload.as_bytes(), &mut sealed);
                frame.payload = &sealed;
            }
            frame.encode(&mut frames);
        }
        frames
    }

    fn is_encrypted(&self, queue: &str) -> bool {
        let found = |store: &MemoryStore| query::queue_named(store, TenantId::DEFAULT, queue);
        self.look(found).unwrap().is_some_and(|queue| queue.row.options.encryption_enabled)
    }

    /// What is sealed from now on is sealed with a new key.
    pub fn rotate_key(&self) {
        self.keys.lock().rotate();
    }

    /// The sink's nodes have the keys, or none.
    pub fn give_keys(&self, give: bool) {
        self.keys.lock().give(give);
    }

    /// Opens an envelope, as the sink's host does.
    pub(super) fn open(
        &self,
        queue: QueueId,
        partition: &str,
        envelope: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), String> {
        let found = self.look(|store| query::queue_with_id(store, queue)).unwrap();
        let found = found.ok_or_else(|| format!("belongs to queue {queue}, which is gone"))?;
        let bound = bound_to(TenantId::DEFAULT, &found.row.name, partition);
        self.keys.lock().open(&bound, envelope, into)
    }

    /// Lists a queue that is not there as one of which a later window has loss to tell than any that
    /// there will be: it stays listed, and there is nothing to do.
    pub fn list(&self, name: &str) {
        use queen_core::row::lost::{LostRow, LostWindowRow, queue_prefix, range_key, window_key};
        use queen_state::TablesMut as _;
        let prefix = queue_prefix(TenantId::DEFAULT, reading::SINK, name);
        let (window, partition) = (u64::MAX - 1, PartitionId(u64::MAX));
        let counts = LostWindowRow { since: Stamp::ZERO, ranges: 1, records: 1 };
        let reason = LossReason::Retention;
        let range =
            LostRow { queue: QueueId(u32::MAX), partition: "p".into(), end: Offset(1), reason };
        let mut state = self.state.lock();
        state.changes += 1;
        let store = &mut state.store;
        store.put(Table::Lost, &window_key(&prefix, window), &counts.encode());
        store.put(Table::Lost, &range_key(&prefix, window, partition, Offset(0)), &range.encode());
        drop(state);
        self.news.notify_waiters();
    }

    /// All that a backup holds.
    pub fn backup(&self) -> MemoryStore {
        self.state.lock().store.clone()
    }

    /// The broker starts anew from a backup; its clock goes on.
    pub fn restore(&self, backup: MemoryStore) {
        let mut state = self.state.lock();
        state.store = backup;
        state.machine = Machine::new();
        state.changes += 1;
        drop(state);
        self.news.notify_waiters();
    }

    /// Completes when `ready` gives something; asked again after each event.
    pub(super) async fn wait<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if let Some(done) = ready() {
                return done;
            }
            news.await;
        }
    }

    /// Changes of the set of queues so far.
    pub(super) fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }
}

fn minted(stamp: Stamp, partition: PartitionId, offset: Offset) -> String {
    MessageId::mint(stamp, partition, offset).to_string()
}
