//! Kill switches: what an operator turned off.
//!
//! Owns: their row. Leaves to others: what each one stops.

use crate::step::{Step, get};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use queen_core::Stamp;
use queen_core::reply::{Event, Reply};
use queen_core::row::SwitchesRow;
use queen_core::row::switch::META_KEY;
use queen_core::switch::{SetSwitches, Switches};

/// What is on.
pub fn all(store: &impl Reading) -> Result<Switches, StorageError> {
    Ok(get::<SwitchesRow>(store, META_KEY)?.unwrap_or_default().0)
}

/// Turns switches; gives what is on then.
pub(crate) fn set<S: Storage>(
    step: &mut Step<'_, S>,
    change: &SetSwitches,
) -> Result<Reply, StorageError> {
    let before = all(&*step.store)?;
    let now = before.set(change);
    step.put(META_KEY, &SwitchesRow(now));
    step.events.push(Event::SwitchesChanged);
    if now.timers_fire && !before.timers_fire {
        step.events.push(Event::TimerDue(Stamp::ZERO));
    }
    Ok(Reply::Switches(now))
}
