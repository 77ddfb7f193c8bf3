//! How a group comes to be.
//!
//! Owns: what an empty founding voter does until it is part of a group. Leaves to others: the first entry
//! (the library).
//!
//! The voter with the lowest id writes the first membership, once every founding voter has told it the
//! name of its disk and that it is empty too. So the membership knows every disk from its first entry on,
//! and a voter that comes back empty under another name is told from one that never started: no entry
//! can be committed, and no leader elected, by disks that the group does not know.
//! Hence all founding voters must be up once.

use crate::address::Address;
use crate::exchange::Exchange;
use crate::net::greeting::{Listener, Purpose};
use openraft::BasicNode;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

const AGAIN: Duration = Duration::from_millis(300);

/// Runs until this node is part of a group.
pub(crate) async fn run(exchange: Arc<Exchange>) {
    let mut said = String::new();
    loop {
        let Some(raft) = exchange.raft.get() else { return };
        if raft.metrics().borrow().last_log_index.is_some() {
            return;
        }
        let waits_for = match look(&exchange).await {
            Ok(members) => match raft.initialize(members).await {
                Ok(()) => return tracing::info!(node = exchange.me, "founded a group"),
                Err(error) => error.to_string(),
            },
            Err(why) => why,
        };
        if waits_for != said {
            tracing::info!(node = exchange.me, why = %waits_for, "not in a group yet");
            said = waits_for;
        }
        sleep(AGAIN).await;
    }
}

/// The first membership, or why this node cannot write it.
async fn look(exchange: &Exchange) -> Result<BTreeMap<u64, BasicNode>, String> {
    let peers = &exchange.options.peers;
    let own = exchange.own_address();
    let mut members = BTreeMap::from([(exchange.me, own.node())]);
    for (id, peer) in peers.iter().filter(|(id, _)| **id != exchange.me) {
        let mut address = Address { peer: peer.clone(), disk: [0; 16] };
        let connect = exchange.connect(*id, &address, Purpose::Control);
        let greeted = timeout(crate::net::link::CONNECT, connect).await;
        let Listener { in_group, disk, .. } = match greeted {
            Ok(Ok((_, listener))) => listener,
            Ok(Err(error)) => return Err(format!("node {id} at {}: {error}", peer.raft)),
            Err(_) => return Err(format!("node {id} at {} does not answer", peer.raft)),
        };
        if in_group {
            return Err(format!("node {id} is in a group already, which will send its log"));
        }
        address.disk = disk;
        members.insert(*id, address.node());
    }
    match members.keys().next() {
        Some(lowest) if *lowest != exchange.me => {
            Err(format!("node {lowest} founds the group once all founding voters are up"))
        }
        _ => Ok(members),
    }
}
