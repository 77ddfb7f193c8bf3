//! Group calls: where groups are, moving and forgetting them.
//!
//! Owns: the sums over a queue's partitions. Leaves to others: each partition's lag
//! (`queen_state::query::backlog`), the rules (`queen-state`).
//!
//! Looking costs a look-up per partition and group, in steps that give the lock back.

use crate::Class;
use crate::broker::Broker;
use crate::queues::{Partition, Queue, unexpected};
use queen_core::command::{Command, DeleteGroup, MoveSubscription, Seek};
use queen_core::reply::Reply;
use queen_core::row::GroupRow;
use queen_core::{Error, TenantId};
use queen_state::query::backlog::{self, Lag};
use queen_state::query::{group_registered, list};

/// Partitions looked at under one lock.
const STEP: usize = 512;

/// A group on a queue.
#[derive(Clone, Debug)]
pub struct GroupOnQueue {
    /// Its queue.
    pub queue: Queue,
    /// Its name.
    pub name: String,
    /// Its registration.
    pub row: GroupRow,
}

impl Broker {
    /// The registrations of a tenant's groups: of all, or of one group on each of its queues.
    pub async fn groups(
        &self,
        tenant: TenantId,
        name: Option<&str>,
    ) -> Result<Vec<GroupOnQueue>, Error> {
        let mut found = Vec::new();
        for queue in self.queues(tenant).await? {
            let groups = self.read(|view| match name {
                None => list::groups(view, queue.id, usize::MAX),
                Some(name) => {
                    let row = group_registered(view, queue.id, name)?;
                    Ok(row.map(|row| (name.to_owned(), row)).into_iter().collect())
                }
            })?;
            let on_queue = |(name, row)| GroupOnQueue { queue: queue.clone(), name, row };
            found.extend(groups.into_iter().map(on_queue));
        }
        Ok(found)
    }

    /// Gives `each` every partition of the group's queue with its lag, in name order.
    pub async fn lags(
        &self,
        group: &GroupOnQueue,
        mut each: impl FnMut(Partition, Lag),
    ) -> Result<(), Error> {
        let mut after: Option<Box<str>> = None;
        loop {
            let page = self.read(|view| {
                let page = list::partitions(view, group.queue.id, after.as_deref(), STEP)?;
                let lagged = page.into_iter().map(|partition| {
                    let lag = backlog::lag(view, &group.row, &partition.row)?;
                    Ok((partition, lag))
                });
                lagged.collect::<Result<Vec<_>, _>>()
            })?;
            after = page.last().map(|(partition, _)| partition.name.clone());
            let done = page.len() < STEP;
            page.into_iter().for_each(|(partition, lag)| each(partition, lag));
            if done {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Moves a group's cursors; partitions it concerns, `None` when there are none.
    pub async fn seek(&self, command: Seek<'_>) -> Result<Option<u64>, Error> {
        match self.submit(Class::Settle, &Command::Seek(command)).await? {
            Reply::Seek(moved) => Ok(moved),
            other => Err(unexpected(&other)),
        }
    }

    /// Forgets a group; cursors it had.
    pub async fn delete_group(&self, command: DeleteGroup<'_>) -> Result<u64, Error> {
        match self.submit(Class::Settle, &Command::DeleteGroup(command)).await? {
            Reply::GroupDeleted(cursors) => Ok(cursors),
            other => Err(unexpected(&other)),
        }
    }

    /// Moves a group's subscription time; registrations it concerned.
    pub async fn move_subscription(&self, command: MoveSubscription<'_>) -> Result<u64, Error> {
        match self.submit(Class::Settle, &Command::MoveSubscription(command)).await? {
            Reply::SubscriptionMoved(moved) => Ok(moved),
            other => Err(unexpected(&other)),
        }
    }
}
