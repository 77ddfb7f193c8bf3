//! Ephemeral queues: messages in the memory of one node, which survive nothing.
//!
//! Owns: the contents (`house`, `queue`, `ring`), their memory (`ledger`), waiting for them and waking
//! (`calls`), who has them and how calls get there (`owner`), letting time pass (`janitor`). Leaves to
//! others: what is declared of queues, which is replicated state (`queen_state::ephemeral`), the bytes
//! between nodes (`queen_core::ephemeral`), HTTP (`queen-http`).
//!
//! A queue has a ring of messages per partition and a cursor per group on it. Nothing of it is in the
//! log. What a queue and a group do not say is as the settings of the owner say.
//!
//! **In a cluster the leader owns all queues**, and the other nodes pass calls on to it: there is one
//! owner whenever there is a leader, nobody has to agree on anything else, and a call meets it where
//! commands do. Contents are of one term. When another node comes to lead, or the same one in a later
//! term, they are gone; the node that led counts the queues that held messages in
//! `queen_ephemeral_wipes_total`, and ids of those messages are `stale` from then on. A leader that was
//! cut off takes and delivers messages until it knows, three seconds at most; those go with it. A restart
//! loses all as well, uncounted. So a message that was answered with 201 is delivered only as long as its
//! owner goes on.
//!
//! Upholds: `one-live-lease` for each message and group, as long as the owner goes on.

mod calls;
mod house;
mod janitor;
mod ledger;
mod owner;
mod queue;
mod ring;

pub(crate) use janitor::run;

use crate::counters::Counters;
use crate::parking::Parking;
use house::{House, Rings};
use parking_lot::Mutex;
use queen_core::ephemeral::Effective;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::{Notify, Semaphore};

/// Bounds of a node's ephemeral queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Bytes that all of them take together, what is around the payloads included; 256 MiB.
    pub max_bytes: u64,
    /// What holds for a queue of which nothing is declared.
    pub defaults: Effective,
    /// Seconds after which a group, an empty partition and an empty queue are forgotten of which nobody
    /// asked; 300.
    pub idle_seconds: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { max_bytes: 256 << 20, defaults: Effective::default(), idle_seconds: 300 }
    }
}

/// Calls that wait at the owner for a node that passed them on, at most: they take places on the
/// connection that commands go over.
const PASSED_ON_AT_ONCE: usize = 256;

/// The ephemeral queues of this node.
pub(crate) struct Ephemeral {
    house: Mutex<House>,
    parking: Parking,
    settings: Settings,
    /// Changes of the declarations that were applied here.
    declared: AtomicU64,
    /// Something is due earlier than the janitor knows.
    wake: Notify,
    passed_on: Semaphore,
    /// The clock of the contents begins here.
    begin: Instant,
}

impl Ephemeral {
    pub(crate) fn new(
        settings: Settings,
        origin: u64,
        clustered: bool,
        counters: &Arc<Counters>,
    ) -> Ephemeral {
        let house = House::new(&settings, origin, clustered, Arc::clone(counters));
        Ephemeral {
            house: Mutex::new(house),
            parking: Parking::new(Arc::clone(counters)),
            settings,
            declared: AtomicU64::new(1),
            wake: Notify::new(),
            passed_on: Semaphore::new(PASSED_ON_AT_ONCE),
            begin: Instant::now(),
        }
    }

    /// Milliseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Runs `act` on the contents, unless this node does not have them.
    fn owned<T>(&self, act: impl FnOnce(&mut House) -> T) -> Option<T> {
        let mut house = self.house.lock();
        if !house.owns() {
            return None;
        }
        let done = act(&mut house);
        let earlier = house.take_earlier();
        drop(house);
        if earlier {
            self.wake.notify_one();
        }
        Some(done)
    }

    /// Wakes those who have reason to look again.
    fn ring(&self, rings: Rings) {
        for (ring, group) in rings.one {
            self.parking.ready(ring, group);
        }
        for (ring, count) in rings.some {
            self.parking.written(ring, u32::try_from(count).unwrap_or(u32::MAX));
        }
        for ring in rings.all {
            self.parking.changed(ring);
        }
    }

    /// What is declared of some queue has changed.
    pub(crate) fn declarations_changed(&self) {
        self.declared.fetch_add(1, Ordering::AcqRel);
    }

    /// Everybody looks again: the switch was turned, or all declarations may be others.
    pub(crate) fn all_changed(&self) {
        self.declarations_changed();
        self.parking.all_changed();
    }

    /// This node leads in a term of a cluster, or not any more.
    pub(crate) fn leads(&self, term: Option<u64>) {
        let wiped = self.house.lock().leads(term);
        if wiped {
            tracing::info!(?term, "the contents of ephemeral queues are gone with the leadership");
        }
        self.parking.all_changed();
    }

    /// Answers waiting pops with nothing, and lets none wait any more.
    pub(crate) fn close(&self) {
        self.parking.close();
        self.wake.notify_one();
    }

    /// Bytes that the queues of this node take.
    pub(crate) fn bytes(&self) -> u64 {
        self.house.lock().bytes()
    }
}
