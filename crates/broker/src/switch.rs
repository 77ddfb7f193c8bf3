//! Kill switches: turning them, and what is on as of the last applied entry.
//!
//! Owns: the copy that requests look at. Leaves to others: what each one stops (`queen-http` for calls,
//! `queen-state` for firing timers).
//!
//! The copy is brought up to date before the turn is answered: a request that comes to this node
//! after that answer sees it, one that comes to another node once that has applied the turn.

use crate::queues::unexpected;
use crate::{Broker, Class};
use parking_lot::RwLock;
use queen_core::Error;
use queen_core::command::Command;
use queen_core::reply::Reply;
use queen_core::switch::{SetSwitches, Switches};
use queen_state::{Reading, StorageError, switch};

/// What is on.
#[derive(Default)]
pub(crate) struct Turned(RwLock<Switches>);

impl Turned {
    /// Looks again.
    pub(crate) fn load(&self, view: &impl Reading) -> Result<(), StorageError> {
        *self.0.write() = switch::all(view)?;
        Ok(())
    }
}

impl Broker {
    /// What is on.
    pub fn switches(&self) -> Switches {
        *self.shared.switches.0.read()
    }

    /// Turns switches on every node; gives what is on then.
    pub async fn set_switches(&self, change: SetSwitches) -> Result<Switches, Error> {
        match self.submit(Class::Settle, &Command::SetSwitches(change)).await? {
            Reply::Switches(now) => Ok(now),
            other => Err(unexpected(&other)),
        }
    }
}
