//! Queue calls: configuring, deleting, listing, counting.
//!
//! Owns: the sums over a queue's partitions. Leaves to others: each partition's counts
//! (`queen_state::query::backlog`), the rules (`queen-state`).
//!
//! Counting costs a look-up per partition and group. It is done in steps that give the lock and the
//! thread back, so the sums of a busy queue are not of one instant.

use crate::Class;
use crate::broker::{Broker, View};
use queen_core::command::{Command, Configure, QueueRef};
use queen_core::options::Patch;
use queen_core::reply::{ConfiguredQueue, Reply};
use queen_core::row::{GroupRow, key};
use queen_core::table::Table;
use queen_core::{Code, Error, GroupId, PartitionId, QueueId, Stamp, TenantId};
use queen_state::query::backlog;
pub use queen_state::query::backlog::Backlog;
use queen_state::query::list::{self, LogSize};
pub use queen_state::step::{Partition, Queue};
use queen_state::{StorageError, Tables};

/// Partitions or queues looked at under one lock.
const STEP: usize = 512;
/// Leases counted under one lock.
const LEASES_STEP: usize = 4096;
/// Groups of a queue of which the one furthest behind counts, first ones by name.
const GROUPS_ASKED: usize = 16;

/// Counts of a queue, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Partitions.
    pub partitions: u64,
    /// Partitions with pending messages.
    pub partitions_pending: u64,
    /// Partitions with messages that a pop would be given now.
    pub partitions_ready: u64,
    /// Messages.
    pub messages: Backlog,
    /// Dead letters.
    pub dead_letters: u64,
    /// The log.
    pub log: LogSize,
}

/// A partition and its counts.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The partition.
    pub partition: Partition,
    /// Its messages.
    pub messages: Backlog,
    /// Stamp of its oldest kept message.
    pub oldest: Option<Stamp>,
}

/// Whose progress is counted.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// That of the group furthest behind.
    FurthestBehind,
    /// That of one group; nothing is settled while it is not registered.
    Group(&'a str),
}

impl Totals {
    fn add(&mut self, one: &Backlog) {
        self.partitions += 1;
        self.partitions_pending += u64::from(one.pending > 0);
        self.partitions_ready += u64::from(one.ready > 0);
        let all = &mut self.messages;
        all.total += one.total;
        all.completed += one.completed;
        all.processing += one.processing;
        all.pending += one.pending;
        all.ready += one.ready;
    }
}

impl Broker {
    /// Creates a queue or changes its options.
    ///
    /// Errors beside those of [`Broker::submit`]: `BadRequest` when it turns encryption on and this
    /// node has no key.
    pub async fn configure(&self, command: Configure<'_>) -> Result<ConfiguredQueue, Error> {
        let on = matches!(command.patch.encryption_enabled, Patch::Set(true));
        if on && self.shared.sealing.keyring.current().is_none() {
            let text = format!(
                "encryptionEnabled: true: this node has no key to encrypt queue {:?} with; set \
                 QUEEN_ENCRYPTION_KEY to 64 hex digits, such as those of `openssl rand -hex 32`, and \
                 restart",
                command.queue
            );
            return Err(Error::new(Code::BadRequest, text));
        }
        match self.submit(Class::Settle, &Command::Configure(command)).await? {
            Reply::Configured(configured) => Ok(configured),
            other => Err(unexpected(&other)),
        }
    }

    /// Deletes a queue; whether there was one.
    pub async fn delete_queue(&self, tenant: TenantId, queue: &str) -> Result<bool, Error> {
        let command = Command::DeleteQueue(QueueRef { tenant, queue });
        match self.submit(Class::Settle, &command).await? {
            Reply::Deleted(existed) => Ok(existed),
            other => Err(unexpected(&other)),
        }
    }

    /// The queue that has a name.
    pub fn queue_named(&self, tenant: TenantId, name: &str) -> Result<Option<Queue>, Error> {
        self.read(|view| queen_state::query::queue_named(view, tenant, name))
    }

    /// All queues of a tenant, in name order.
    pub async fn queues(&self, tenant: TenantId) -> Result<Vec<Queue>, Error> {
        let mut all: Vec<Queue> = Vec::new();
        loop {
            let after = all.last().map(|queue| queue.row.name.clone());
            let page = self.read(|view| list::queues(view, tenant, after.as_deref(), STEP))?;
            let done = page.len() < STEP;
            all.extend(page);
            if done {
                return Ok(all);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Partitions that are leased now, of all groups.
    pub async fn count_leases(&self) -> Result<u64, Error> {
        let now = self.now();
        let mut from = key::lease_expiry(Stamp(now.0 + 1), GroupId(0), PartitionId(0)).to_vec();
        let mut count = 0;
        loop {
            let rows = self
                .read(|view| view.scan(Table::LeaseExpiry, &from, &[u8::MAX; 21], LEASES_STEP))?;
            count += rows.len() as u64;
            match rows.last() {
                Some((last, _)) if rows.len() == LEASES_STEP => from = [&last[..], &[0]].concat(),
                _ => return Ok(count),
            }
            tokio::task::yield_now().await;
        }
    }

    /// Counts a queue; `each` is given every partition, in name order.
    pub async fn count_queue(
        &self,
        queue: &Queue,
        progress: Progress<'_>,
        mut each: impl FnMut(Counted),
    ) -> Result<Totals, Error> {
        let now = self.now();
        let mut totals = Totals::default();
        let mut after: Option<Box<str>> = None;
        loop {
            let page = self.read(|view| step(view, queue, progress, after.as_deref(), now))?;
            after = page.last().map(|counted| counted.partition.name.clone());
            let done = page.len() < STEP;
            for counted in page {
                totals.add(&counted.messages);
                each(counted);
            }
            if done {
                break;
            }
            tokio::task::yield_now().await;
        }
        totals.log = self.read(|view| list::log_size(view, queue.id))?;
        totals.dead_letters = self.count_dead_letters(queue.id).await?;
        Ok(totals)
    }
}

/// Counts the next partitions of a queue.
fn step(
    view: &View<'_>,
    queue: &Queue,
    progress: Progress<'_>,
    after: Option<&str>,
    now: Stamp,
) -> Result<Vec<Counted>, StorageError> {
    let groups: Vec<(String, GroupRow)> = match progress {
        Progress::FurthestBehind => list::groups(view, queue.id, GROUPS_ASKED)?,
        Progress::Group(name) => {
            let row = queen_state::query::group_registered(view, queue.id, name)?;
            row.map(|row| (name.to_owned(), row)).into_iter().collect()
        }
    };
    let page = list::partitions(view, queue.id, after, STEP)?;
    let counted = page.into_iter().map(|partition| {
        let messages = backlog::furthest_behind(view, queue, &groups, &partition, now)?;
        let row = &partition.row;
        let oldest = match messages.total {
            0 => None,
            _ => Some(queen_state::run::kept_at(view, row.id, row.log_start)?.row.stamp),
        };
        Ok(Counted { partition, messages, oldest })
    });
    counted.collect()
}

/// A reply of another command: a bug.
pub(crate) fn unexpected(reply: &Reply) -> Error {
    Error::new(Code::Internal, format!("a command was answered with {reply:?}"))
}

/// The text of a queue's id: a UUID (version 8) that holds its number.
pub fn queue_uuid(id: QueueId) -> String {
    format!("00000000-0000-8000-8000-{:012x}", id.0)
}
