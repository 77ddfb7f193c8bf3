//! The machine under a simulated node, as the log asks for it.
//!
//! Owns: the adapter. Leaves to others: what it adapts (`disk`, `net`).

use super::disk::Disk;
use super::net::Net;
use super::vitals::Vitals;
use crate::chance::Chance;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use queen_raft::host::{Host, Journal, Network, SavedVote};
use queen_raft::{ClusterOptions, RaftOptions, StartError};
use std::io;
use std::sync::Arc;

/// What one process of a node runs on.
pub struct SimHost {
    /// The node.
    pub id: u64,
    /// Its disk.
    pub disk: Disk,
    /// The network.
    pub net: Net,
    /// The process.
    pub vitals: Arc<Vitals>,
    /// What it draws.
    pub chance: Mutex<Chance>,
}

impl Host for SimHost {
    fn threaded(&self) -> bool {
        false
    }

    fn draw(&self) -> u64 {
        self.chance.lock().draw()
    }

    fn open_journal(&self, _: &RaftOptions) -> Result<Arc<dyn Journal>, StartError> {
        Ok(self.disk.open(&self.vitals))
    }

    fn load_vote(&self) -> Result<Option<SavedVote>, StartError> {
        Ok(self.disk.vote())
    }

    fn save_vote(&self, vote: SavedVote) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(self.disk.save_vote(vote, &self.vitals))
    }

    fn disk_id(&self) -> Result<[u8; 16], StartError> {
        Ok(self.disk.name())
    }

    fn rename_disk(&self) -> io::Result<[u8; 16]> {
        Ok(self.disk.rename())
    }

    fn set_installing(&self, installing: bool) -> io::Result<()> {
        if self.vitals.effect() {
            self.disk.set_installing(installing);
        }
        Ok(())
    }

    fn was_installing(&self) -> bool {
        self.disk.installing()
    }

    fn network(&self, _: &ClusterOptions) -> Result<Network, StartError> {
        Ok(self.net.of(self.id, &self.vitals))
    }
}
