//! Letting time pass for ephemeral queues: ends of leases and of ages, groups and queues that nobody uses.
//!
//! Owns: when the contents are looked at, and waking those to whom a message came back. Leaves to others:
//! what is due (`house`).

use crate::broker::Broker;
use std::time::Duration;
use tokio::time::timeout;

/// Shortest time between two looks: leases that end one after the other are seen to together.
const SHORTEST: u64 = 20;

/// Looks when something is due, until the broker stops.
pub(crate) async fn run(broker: Broker) {
    let ephemeral = &broker.shared.ephemeral;
    let mut stop = broker.shared.stop.subscribe();
    loop {
        let due = ephemeral.house.lock().next_due();
        let woken = async {
            match due {
                None => ephemeral.wake.notified().await,
                Some(at) => {
                    let rest = at.saturating_sub(ephemeral.now()).max(SHORTEST);
                    let earlier = ephemeral.wake.notified();
                    drop(timeout(Duration::from_millis(rest), earlier).await);
                }
            }
        };
        tokio::select! {
            () = woken => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        let parking = &ephemeral.parking;
        let sleeps = |ring, group: &str| parking.parked_of(ring, group) > 0;
        let rings = ephemeral.house.lock().sweep(ephemeral.now(), &sleeps);
        ephemeral.ring(rings);
    }
}
