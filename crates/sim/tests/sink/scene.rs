//! Broker, bucket and owners of a test, and the fates of their requests.
//!
//! Owns: which request an owner dies at, waiting under the paused clock, and holding the lake against
//! what was pushed. Leaves to others: the twins (`queen_sim::twin`), the checker (`queen_sim::lake`).

use queen_core::sink::{Committed, LostRange, Manifest, RowKind, row_key};
use queen_sim::chance::Chance;
use queen_sim::lake::{self, Accepted, Expected, Files};
use queen_sim::twin::{self, Call, Dies, Fate, Fates, Owner, Pushed, World};
use queen_sink::settings::Settings;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The queue of most tests.
pub const ORDERS: &str = "orders";
/// A late request arrives after this time.
const LATE: Duration = Duration::from_secs(150);

/// What happens to one effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The owner dies before it.
    Before,
    /// The owner dies after it.
    After,
    /// It takes place, the answer is lost.
    AnswerLost,
    /// Of an object: it is written long after its owner is dead. Else as `After`.
    Late,
}

type Hook = (String, usize, Box<dyn FnOnce() + Send>);

/// The fates of one owner's requests.
pub struct Script {
    state: Mutex<State>,
    chance: Mutex<Chance>,
}

impl Default for Script {
    /// Names of claims have to differ from owner to owner.
    fn default() -> Script {
        static SCRIPTS: AtomicU64 = AtomicU64::new(0);
        let chance = Chance::new(SCRIPTS.fetch_add(1, Ordering::Relaxed));
        Script { state: Mutex::default(), chance: Mutex::new(chance) }
    }
}

#[derive(Default)]
struct State {
    effects: usize,
    at: Option<(usize, Fault)>,
    refuse_puts: bool,
    slow: Duration,
    hook: Option<Hook>,
}

impl Script {
    /// A fault at effect number `at` (from 0).
    pub fn at(at: usize, fault: Fault) -> Arc<Script> {
        let script = Script::default();
        script.state.lock().unwrap().at = Some((at, fault));
        Arc::new(script)
    }

    /// Effects so far.
    pub fn effects(&self) -> usize {
        self.state.lock().unwrap().effects
    }

    /// From now on every PUT fails, or none.
    pub fn refuse_puts(&self, refuse: bool) {
        self.state.lock().unwrap().refuse_puts = refuse;
    }

    /// From now on each PUT takes so long.
    pub fn slow_down(&self, time: Duration) {
        self.state.lock().unwrap().slow = time;
    }

    /// Right before write number `nth` (from 1) of the row `key` is applied, `hook` is called.
    pub fn before_write(&self, key: &str, nth: usize, hook: impl FnOnce() + Send + 'static) {
        self.state.lock().unwrap().hook = Some((key.to_owned(), nth, Box::new(hook)));
    }
}

impl Fates for Script {
    fn fate(&self, _owner: u64, call: Call<'_>) -> Fate {
        let mut state = self.state.lock().unwrap();
        if call.op == "kv"
            && let Some((key, mut left, hook)) = state.hook.take()
        {
            left -= usize::from(key == call.key);
            match left {
                0 => hook(),
                _ => state.hook = Some((key, left, hook)),
            }
        }
        let mut fate = Fate::default();
        if call.op == "put" {
            fate.there = state.slow;
            if state.refuse_puts {
                return Fate { lost: true, ..fate };
            }
        }
        if !matches!(call.op, "kv" | "put" | "part" | "complete") {
            return fate;
        }
        let number = state.effects;
        state.effects += 1;
        match state.at.filter(|(at, _)| *at == number).map(|(_, fault)| fault) {
            None => {}
            Some(Fault::Before) => fate.dies = Some(Dies::Before),
            Some(Fault::AnswerLost) => fate.unanswered = true,
            Some(Fault::Late) if call.op == "put" => {
                (fate.there, fate.dies) = (LATE, Some(Dies::OnTheWay));
            }
            Some(Fault::After | Fault::Late) => fate.dies = Some(Dies::After),
        }
        fate
    }

    fn random(&self) -> u64 {
        self.chance.lock().unwrap().draw()
    }
}

/// An empty broker, which does in time what is due, and an empty bucket.
pub fn world() -> World {
    let world = World::new();
    let broker = world.broker.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(5)).await;
            broker.tick_if_due();
        }
    });
    world
}

/// Settings of the node `h`: windows of ten seconds, from the first record on.
pub fn settings(extra: &[(&str, &str)]) -> Settings {
    let base = [("START", "earliest"), ("MAX_WINDOW_MS", "10000")];
    twin::settings(&[&base, extra].concat())
}

/// Starts an owner.
pub fn start(world: &World, settings: Settings, script: &Arc<Script>) -> Owner {
    start_as(world, 0, settings, script.clone())
}

/// Starts an owner whom `owner` names in the fates.
pub fn start_as(world: &World, owner: u64, settings: Settings, fates: Arc<dyn Fates>) -> Owner {
    let line = world.line(owner, fates);
    let (host, bucket) = (line.host(), line.bucket());
    Owner::start(line, settings, host, bucket)
}

/// An owner that meets no fault.
pub fn plain(world: &World) -> Owner {
    start(world, settings(&[]), &Arc::default())
}

/// What an owner says of the queue.
pub fn state(owner: &Owner) -> String {
    owner.queue(ORDERS)["state"].as_str().unwrap_or_default().to_owned()
}

/// The value of a sample on the owner's page of metrics.
pub fn metric(owner: &Owner, sample: &str) -> Option<u64> {
    let mut page = String::new();
    owner.sink.write_metrics(&mut page);
    page.lines().find_map(|line| line.strip_prefix(sample)?.trim().parse().ok())
}

/// Memory of windows in work.
pub fn memory(owner: &Owner) -> u64 {
    owner.sink.status(false)["sinks"][0]["memory"]["bufferedBytes"].as_u64().unwrap()
}

/// The pointer of a queue.
pub fn committed_of(world: &World, queue: &str) -> Option<Committed> {
    let row = world.broker.row(&row_key("default", queue, RowKind::Committed))?;
    Some(Committed::from_json(row.as_bytes()).unwrap())
}

/// The pointer of [`ORDERS`].
pub fn committed(world: &World) -> Option<Committed> {
    committed_of(world, ORDERS)
}

/// Lets time pass until `done`, at most ten minutes of it.
pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < Duration::from_secs(600), "{what} did not happen");
        sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the lake has so many records.
pub async fn all_there(world: &World, records: usize) {
    let there = || committed(world).is_some_and(|c| c.records == records as u64);
    until("every record in the bucket", there).await;
}

/// Waits until what dead owners had sent has arrived.
pub async fn late_ones(world: &World) {
    while world.under_way() > 0 {
        sleep(Duration::from_secs(60)).await;
    }
}

/// Retention takes what is older than `age` now, and nothing after that.
pub fn expire(world: &World, queue: &str, age: Duration) {
    world.broker.configure(queue, age.as_secs() as i64);
    world.broker.tick();
    world.broker.configure(queue, 0);
}

/// Holds the lake of [`ORDERS`] against the pushes of it; gives what is listed as lost, in order of
/// windows.
pub fn check(world: &World, log: &[Pushed]) -> Vec<LostRange> {
    let mut expected = Expected::new();
    expected.accepted.extend(log.iter().cloned().map(|pushed| Accepted {
        queue: ORDERS.to_owned(),
        partition: pushed.partition,
        offset: pushed.offset,
        transaction_id: pushed.transaction_id,
        payload: pushed.payload.into_bytes(),
    }));
    let mut files = Files::default();
    let mut lost = Vec::new();
    for (key, object) in world.store.objects() {
        assert!(object.versions.iter().all(|v| *v == object.bytes), "{key}: one name, one content");
        if key.contains("/windows/") {
            lost.extend(Manifest::from_json(&object.bytes).unwrap().lost);
        }
        files.0.insert(key, object.bytes.to_vec());
    }
    let report = lake::check(&files, lake::Layout::default(), &expected);
    assert!(report.faults.is_empty(), "{}", report.text());
    lost
}

/// The same where nothing may be lost.
pub fn check_whole(world: &World, log: &[Pushed]) {
    assert_eq!(check(world, log), []);
    assert_eq!(committed(world).map_or(0, |c| c.records), log.len() as u64);
}

/// Several pushes, with a payload that must be wrapped; `round` varies the partitions, whose names
/// differ between incarnations of the queue.
pub fn fill(world: &World, round: usize) -> Vec<Pushed> {
    let id = world.broker.configure(ORDERS, 0);
    let (a, b) = (format!("a.{id}"), format!("b.{id}"));
    let push = |items: &[(&str, &str)]| world.broker.push(ORDERS, items);
    let mut log = push(&[(&b, "1"), (&a, "{\"x\": 2}"), (&b, "3"), (&a, "\"\\ud800\"")]);
    for n in 0..3 {
        let name = format!("part-{}.{id}", (n * 7 + round) % 5);
        log.extend(push(&[(&name, "[4.50]"), (&a, "null")]));
    }
    log
}
