//! Ephemeral queues: what is declared of them. What is in them is no state.
//!
//! Owns: the rows of the declarations, and how many there may be. Leaves to others: what an option may be
//! (`queen-http`), what it does to the contents (`queen_broker`).

use crate::step::{Step, decode, get, scan_prefix};
use crate::tables::StorageError;
use crate::{Reading, Storage};
use queen_core::ephemeral::{DECLARED_MAX, DeclareEphemeral, EphemeralOptions};
use queen_core::reply::{Event, Reply};
use queen_core::row::ephemeral::{META_EPHEMERAL, name_of, queue};
use queen_core::row::{EphemeralRow, EphemeralTotalsRow};
use queen_core::table::Table;
use queen_core::{Code, Error, TenantId};

/// Declares a queue, or takes its declaration away; says whether there was one.
pub(crate) fn declare<S: Storage>(
    step: &mut Step<'_, S>,
    declare: &DeclareEphemeral<'_>,
) -> Result<Reply, StorageError> {
    let key = queue(declare.tenant, declare.queue);
    let before = get::<EphemeralRow>(&*step.store, &key)?;
    let mut totals = totals(&*step.store)?;
    match (&before, declare.options) {
        (None, None) => return Ok(Reply::Declared(false)),
        (None, Some(_)) if totals.declared >= DECLARED_MAX => {
            let text = format!(
                "{DECLARED_MAX} ephemeral queues are declared, as many as may be: delete some, or use \
                 this one without declaring it"
            );
            return Ok(Reply::Refused(Error::new(Code::BadRequest, text)));
        }
        (_, Some(options)) => {
            let created = before.map_or(step.stamp, |row| row.created);
            step.put(&key, &EphemeralRow { options, created });
            totals.declared += u64::from(before.is_none());
        }
        (Some(_), None) => {
            step.store.delete(Table::EphemeralQueue, &key);
            totals.declared = totals.declared.saturating_sub(1);
        }
    }
    step.put(META_EPHEMERAL, &totals);
    step.events.push(Event::EphemeralChanged);
    Ok(Reply::Declared(before.is_some()))
}

/// How many are declared, of all tenants.
pub fn totals(store: &impl Reading) -> Result<EphemeralTotalsRow, StorageError> {
    Ok(get::<EphemeralTotalsRow>(store, META_EPHEMERAL)?.unwrap_or_default())
}

/// What is declared of a queue.
pub fn declared(
    store: &impl Reading,
    tenant: TenantId,
    name: &str,
) -> Result<Option<EphemeralOptions>, StorageError> {
    Ok(get::<EphemeralRow>(store, &queue(tenant, name))?.map(|row| row.options))
}

/// The declared queues of a tenant, by name.
pub fn all_declared(store: &impl Reading, tenant: TenantId) -> Result<Vec<String>, StorageError> {
    let most = usize::try_from(DECLARED_MAX).unwrap_or(usize::MAX);
    let rows = scan_prefix(store, Table::EphemeralQueue, &tenant.0, most)?;
    rows.iter()
        .map(|(key, value)| {
            decode::<EphemeralRow>(key, value)?;
            crate::step::parts(Table::EphemeralQueue, key, name_of(key).map(str::to_owned))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::*;
    use queen_core::command::Command;

    fn apply(world: &mut World, queue: &str, options: Option<EphemeralOptions>) -> Reply {
        world.apply(&Command::DeclareEphemeral(DeclareEphemeral { tenant: TENANT, queue, options }))
    }

    fn lasting(seconds: u64) -> Option<EphemeralOptions> {
        Some(EphemeralOptions { ttl_seconds: Some(seconds), ..EphemeralOptions::default() })
    }

    #[test]
    fn a_declaration_takes_the_place_of_the_one_before_until_it_is_taken_away() {
        let mut world = World::new();
        assert_eq!(apply(&mut world, "q", lasting(1)), Reply::Declared(false));
        assert_eq!(world.events, [Event::EphemeralChanged]);
        let shorter = Some(EphemeralOptions { lease_seconds: Some(2), ..Default::default() });
        assert_eq!(apply(&mut world, "q", shorter), Reply::Declared(true));
        assert_eq!(declared(&world.store, TENANT, "q").unwrap(), shorter);
        assert_eq!(apply(&mut world, "a", lasting(1)), Reply::Declared(false));
        assert_eq!(all_declared(&world.store, TENANT).unwrap(), ["a", "q"]);
        assert_eq!(all_declared(&world.store, TenantId([3; 16])).unwrap(), [""; 0]);
        assert_eq!(apply(&mut world, "q", None), Reply::Declared(true));
        assert_eq!(apply(&mut world, "q", None), Reply::Declared(false));
        assert_eq!(world.events, []);
        assert_eq!(declared(&world.store, TENANT, "q").unwrap(), None);
        assert_eq!(totals(&world.store).unwrap().declared, 1);
    }

    #[test]
    fn no_more_queues_are_declared_than_may_be() {
        let mut world = World::new();
        apply(&mut world, "q", lasting(1));
        let full = EphemeralTotalsRow { declared: DECLARED_MAX };
        let (now, mut events) = (queen_core::Stamp(world.now), Vec::new());
        let put = |step: &mut Step<'_, _>| step.put(META_EPHEMERAL, &full);
        world.machine.with_step(now, &mut world.store, &mut events, put);
        let declare = DeclareEphemeral { tenant: TENANT, queue: "r", options: lasting(1) };
        let refuse = |step: &mut Step<'_, _>| super::declare(step, &declare);
        let refused = world.machine.with_step(now, &mut world.store, &mut events, refuse).unwrap();
        assert!(matches!(refused, Reply::Refused(error) if error.text.contains("delete some")));
        // One that is there may still be changed.
        let declare = DeclareEphemeral { queue: "q", ..declare };
        let change = |step: &mut Step<'_, _>| super::declare(step, &declare);
        let changed = world.machine.with_step(now, &mut world.store, &mut events, change).unwrap();
        assert_eq!(changed, Reply::Declared(true));
    }
}
