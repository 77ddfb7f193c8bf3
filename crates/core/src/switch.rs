//! Kill switches: what an operator can turn off in a running broker.
//!
//! Owns: their names and what a change of them holds. Leaves to others: what each one stops (the rules
//! for firing, the routes for the rest), JSON (`queen-http`).

use serde::{Deserialize, Serialize};

/// What is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// KV calls and KV operations of transactions. Locks and the sink go on.
    pub kv: bool,
    /// Setting timers. Taking them away goes on.
    pub timers_schedule: bool,
    /// Turning timers that are due into messages.
    pub timers_fire: bool,
    /// Pushes, pops, acks and declarations of ephemeral queues. Looking, emptying and deleting go on.
    pub ephemeral: bool,
}

impl Default for Switches {
    fn default() -> Switches {
        Switches { kv: true, timers_schedule: true, timers_fire: true, ephemeral: true }
    }
}

/// Turns switches; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSwitches {
    /// As in [`Switches`].
    pub kv: Option<bool>,
    /// As in [`Switches`].
    pub timers_schedule: Option<bool>,
    /// As in [`Switches`].
    pub timers_fire: Option<bool>,
    /// As in [`Switches`].
    pub ephemeral: Option<bool>,
}

impl Switches {
    /// These, changed.
    pub fn set(self, change: &SetSwitches) -> Switches {
        Switches {
            kv: change.kv.unwrap_or(self.kv),
            timers_schedule: change.timers_schedule.unwrap_or(self.timers_schedule),
            timers_fire: change.timers_fire.unwrap_or(self.timers_fire),
            ephemeral: change.ephemeral.unwrap_or(self.ephemeral),
        }
    }
}
