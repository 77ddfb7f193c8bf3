//! An owner of an older release that wakes up after a newer one began its window anew.
//!
//! Owns: that order of events, which seeds leave out. Leaves to others: the twins
//! (`queen_sim::twin`).

#![allow(clippy::unwrap_used)]

use queen_core::sink::{RowKind, row_key};
use queen_sim::twin::{Call, Dies, Fate, Fates, Owner, World};
use queen_sink::settings::{Settings, Surroundings};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OLD: u64 = 1;
const NEW: u64 = 2;
const LAST: u64 = 3;

/// The old owner's intent is answered late; the new owner dies before its manifest.
#[derive(Default)]
struct Script {
    puts: Mutex<Vec<u64>>,
    drawn: AtomicU64,
}

impl Fates for Script {
    fn fate(&self, owner: u64, call: Call<'_>) -> Fate {
        if call.op == "put" {
            self.puts.lock().unwrap().push(owner);
        }
        match (owner, call.op) {
            (OLD, "kv") if call.key.ends_with(":intent") => {
                Fate { back: Duration::from_secs(1), ..Fate::default() }
            }
            (NEW, "put") if call.key.contains("/windows/") => {
                Fate { dies: Some(Dies::Before), ..Fate::default() }
            }
            _ => Fate::default(),
        }
    }

    /// Names of claims have to differ.
    fn random(&self) -> u64 {
        self.drawn.fetch_add(1, Ordering::Relaxed)
    }
}

fn start(world: &World, fates: &Arc<Script>, owner: u64, release: u32) -> Owner {
    let vars = [
        ("EMBEDDED", "true"),
        ("QUEUES", "orders"),
        ("ENDPOINT", "http://s3:7070"),
        ("REGION", "us-east-1"),
        ("BUCKET", "lake"),
        ("ACCESS_KEY", "queen"),
        ("SECRET_KEY", "hush"),
        ("START", "earliest"),
        ("MAX_WINDOW_MS", "1000"),
    ];
    let vars = vars.map(|(name, value)| (format!("QUEEN_S3_{name}"), value.to_owned()));
    let around = Surroundings { node: 1, host: "h".into(), cores: 1 };
    let mut settings = Settings::from_vars(vars, &around).unwrap().unwrap();
    settings.instance = format!("n{owner}");
    settings.encoder += release;
    let line = world.line(owner, fates.clone());
    let (host, bucket) = (line.host(), line.bucket());
    Owner::start(line, settings, host, bucket)
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{what} did not happen");
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_wakes_after_a_newer_encoder_began_its_window_sends_nothing() {
    let (world, fates) = (World::new(), Arc::new(Script::default()));
    world.broker.push("orders", &[("p", "1")]);
    let row = |kind| world.broker.row(&row_key("default", "orders", kind));
    let old = start(&world, &fates, OLD, 0);
    until("an intent", || row(RowKind::Intent).is_some()).await;
    old.freeze();
    let new = start(&world, &fates, NEW, 1);
    until("the new owner's death", || new.is_dead()).await;
    assert_eq!(
        *fates.puts.lock().unwrap(),
        [NEW, NEW],
        "an object, and a manifest that is not sent"
    );
    old.thaw();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(*fates.puts.lock().unwrap(), [NEW, NEW], "the old owner sent something");
    drop(old);
    let _last = start(&world, &fates, LAST, 1);
    until("a commit", || row(RowKind::Committed).is_some()).await;
    for (key, object) in world.store.objects() {
        assert!(object.versions.iter().all(|bytes| *bytes == object.bytes), "{key}");
    }
}
