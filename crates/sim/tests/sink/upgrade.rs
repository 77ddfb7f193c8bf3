//! An owner of an older release that wakes up after a newer one began its window anew.
//!
//! Owns: that order of events, which seeds leave out. Leaves to others: the twins
//! (`queen_sim::twin`).

use crate::scene::*;
use queen_core::sink::{RowKind, row_key};
use queen_sim::twin::{Call, Dies, Fate, Fates, Owner, World};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OLD: u64 = 1;
const NEW: u64 = 2;
const LAST: u64 = 3;

/// The old owner's intent is answered late; the new owner dies before its manifest.
#[derive(Default)]
struct Order {
    puts: Mutex<Vec<u64>>,
    drawn: AtomicU64,
}

impl Fates for Order {
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

fn release(world: &World, fates: &Arc<Order>, owner: u64, release: u32) -> Owner {
    let instance = format!("n{owner}");
    let mut settings = settings(&[("INSTANCE", &instance)]);
    settings.encoder += release;
    start_as(world, owner, settings, fates.clone())
}

#[tokio::test(start_paused = true)]
async fn an_owner_that_wakes_after_a_newer_encoder_began_its_window_sends_nothing() {
    let (world, fates) = (world(), Arc::new(Order::default()));
    world.broker.push("orders", &[("p", "1")]);
    let row = |kind| world.broker.row(&row_key("default", "orders", kind));
    let old = release(&world, &fates, OLD, 0);
    until("an intent", || row(RowKind::Intent).is_some()).await;
    old.freeze();
    let new = release(&world, &fates, NEW, 1);
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
    let _last = release(&world, &fates, LAST, 1);
    until("a commit", || row(RowKind::Committed).is_some()).await;
    for (key, object) in world.store.objects() {
        assert!(object.versions.iter().all(|bytes| *bytes == object.bytes), "{key}");
    }
}
