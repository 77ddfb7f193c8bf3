//! Configuring and deleting queues.
//!
//! Owns: how a change of options meets what a queue has, and what makes a queue unreachable. Leaves
//! to others: reading options (`queen_core::options`), removing what is left (`gone`).

use crate::Storage;
use crate::gone;
use crate::step::{Queue, Step};
use crate::tables::StorageError;
use queen_core::command::{Configure, QueueRef};
use queen_core::options::{OptionsPatch, Patch, QueueOptions};
use queen_core::reply::{ConfiguredQueue, Event, Reply};
use queen_core::row::key;
use queen_core::table::Table;

/// Creates a queue or changes its options.
pub(crate) fn configure<S: Storage>(
    step: &mut Step<'_, S>,
    command: &Configure<'_>,
) -> Result<Reply, StorageError> {
    let known = step.queue(command.tenant, command.queue)?;
    let base = known.as_ref().map(|queue| queue.row.options.clone());
    let options = options(command, base.as_ref());
    let id = match known {
        None => step.create_queue(command.tenant, command.queue, options.clone())?.id,
        Some(queue) if queue.row.options == options => queue.id,
        Some(queue) => {
            let mut row = queue.row.clone();
            row.options = options.clone();
            step.put_queue(Queue { id: queue.id, row }).id
        }
    };
    step.events.push(Event::QueueChanged { queue: id });
    Ok(Reply::Configured(ConfiguredQueue { queue: id, options }))
}

/// The options after a change; `known` are those before it.
fn options(command: &Configure<'_>, known: Option<&QueueOptions>) -> QueueOptions {
    let OptionsPatch { namespace, task, .. } = &command.patch;
    let defaults = QueueOptions::default();
    let mut options = known.unwrap_or(&defaults).patched(&command.patch, command.replace);
    // The default of a label is what the dotted name says.
    let fresh = known.is_none() || command.replace;
    let by_name = |patch: &Patch<String>| {
        matches!(patch, Patch::Default) || (fresh && matches!(patch, Patch::Keep))
    };
    let dotted = command.queue.contains('.');
    let mut parts = command.queue.split('.').filter(|_| dotted);
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    if by_name(namespace) {
        options.namespace = first.to_owned();
    }
    if by_name(task) {
        options.task = second.to_owned();
    }
    options
}

/// Deletes a queue: no name leads to it any more, and all of it goes, but for a log that a sink has
/// pinned.
pub(crate) fn delete<S: Storage>(
    step: &mut Step<'_, S>,
    command: &QueueRef<'_>,
) -> Result<Reply, StorageError> {
    let Some(queue) = step.queue(command.tenant, command.queue)? else {
        return Ok(Reply::Deleted(false));
    };
    let mut row = queue.row.clone();
    row.deleted = Some(step.stamp);
    step.store.delete(Table::QueueName, &key::queue_name(command.tenant, command.queue));
    step.memo.forget(queue.id);
    let queue = step.put_queue(Queue { id: queue.id, row });
    gone::queue(step, &queue)?;
    step.events.push(Event::QueueChanged { queue: queue.id });
    Ok(Reply::Deleted(true))
}

#[cfg(test)]
#[path = "queue_admin_tests.rs"]
mod tests;
