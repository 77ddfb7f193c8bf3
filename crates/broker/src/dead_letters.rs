//! Dead letter calls: listing, replaying, purging.
//!
//! Owns: pages over several queues. Leaves to others: the rules (`queen-state`).

use crate::Class;
use crate::broker::Broker;
use crate::queues::unexpected;
use bytes::Bytes;
use queen_core::command::{Command, DeadLetterRef, PurgeDeadLetters, ReplayDeadLetter};
use queen_core::reply::{Replayed, Reply};
use queen_core::row::key;
use queen_core::{Error, QueueId, Stamp, TenantId};
pub use queen_state::dead_letter_admin::Letter;
use queen_state::query::list;

/// Letters looked at under one lock.
const STEP: usize = 64;

/// Which dead letters are asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct LetterFilter<'a> {
    /// Of one queue.
    pub queue: Option<&'a str>,
    /// Given up by one group.
    pub group: Option<&'a str>,
    /// Of the partitions with this name.
    pub partition: Option<&'a str>,
    /// Failed at or after this.
    pub from: Option<Stamp>,
    /// Failed before this.
    pub to: Option<Stamp>,
}

impl LetterFilter<'_> {
    fn takes(&self, letter: &Letter) -> bool {
        let row = &letter.row;
        self.group.is_none_or(|group| group == row.group)
            && self.partition.is_none_or(|partition| partition == row.partition_name)
            && self.from.is_none_or(|from| row.failed >= from)
            && self.to.is_none_or(|to| row.failed < to)
    }
}

impl Broker {
    /// A page of dead letters with their queues' names, newest failure first, and how many match.
    ///
    /// Costs a look at every letter of the queues asked for.
    pub async fn dead_letters(
        &self,
        tenant: TenantId,
        filter: LetterFilter<'_>,
        offset: usize,
        limit: usize,
    ) -> Result<(Vec<(String, Letter)>, usize), Error> {
        let queues = match filter.queue {
            Some(name) => self.queue_named(tenant, name)?.into_iter().collect(),
            None => self.queues(tenant).await?,
        };
        let mut matching: Vec<(Stamp, Bytes, usize)> = Vec::new();
        for (index, queue) in queues.iter().enumerate() {
            self.walk(queue.id, |letter| {
                if filter.takes(&letter) {
                    matching.push((letter.row.failed, letter.key, index));
                }
            })
            .await?;
        }
        let total = matching.len();
        matching.sort_unstable_by(|a, b| (b.0, &b.1).cmp(&(a.0, &a.1)));
        let mut page = Vec::new();
        for (_, letter_key, index) in matching.into_iter().skip(offset).take(limit) {
            // The one letter before the key that follows it; gone if it was purged meanwhile.
            let after = [&letter_key[..], &[0]].concat();
            let queue = &queues[index];
            let found = self.read(|view| list::dead_letters(view, queue.id, Some(&after), 1))?;
            let found = found.into_iter().filter(|letter| letter.key == letter_key);
            page.extend(found.map(|letter| (queue.row.name.clone(), letter)));
        }
        Ok((page, total))
    }

    /// Dead letters of a queue.
    pub(crate) async fn count_dead_letters(&self, queue: QueueId) -> Result<u64, Error> {
        self.read(|view| {
            queen_state::group_admin::count_prefix(
                view,
                queen_core::table::Table::DeadLetter,
                &key::queue(queue),
            )
        })
    }

    /// Gives `each` every letter of a queue, newest failure first.
    async fn walk(&self, queue: QueueId, mut each: impl FnMut(Letter)) -> Result<(), Error> {
        let mut before: Option<Bytes> = None;
        loop {
            let page = self.read(|v| list::dead_letters(v, queue, before.as_deref(), STEP))?;
            before = page.last().map(|letter| letter.key.clone());
            let done = page.len() < STEP;
            page.into_iter().for_each(&mut each);
            if done {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Dead letters of each partition of a queue, by partition name.
    pub async fn dead_letters_by_partition(
        &self,
        queue: QueueId,
    ) -> Result<std::collections::BTreeMap<String, u64>, Error> {
        let mut counts = std::collections::BTreeMap::new();
        self.walk(queue, |letter| *counts.entry(letter.row.partition_name).or_default() += 1)
            .await?;
        Ok(counts)
    }

    /// Pushes a copy of a dead letter and removes it; `None` when there is no such letter.
    pub async fn replay(&self, command: ReplayDeadLetter<'_>) -> Result<Option<Replayed>, Error> {
        match self.submit(Class::Write, &Command::ReplayDeadLetter(command)).await? {
            Reply::Replayed(replayed) => Ok(replayed),
            other => Err(unexpected(&other)),
        }
    }

    /// Removes one dead letter; whether there was one.
    pub async fn delete_dead_letter(
        &self,
        tenant: TenantId,
        letter: DeadLetterRef<'_>,
    ) -> Result<bool, Error> {
        Ok(self.purge(PurgeDeadLetters::One { tenant, letter }).await? > 0)
    }

    /// Removes the dead letters of a queue, or of one group on it; how many there were.
    pub async fn purge_dead_letters(
        &self,
        tenant: TenantId,
        queue: &str,
        group: Option<&str>,
    ) -> Result<u64, Error> {
        let mut purged = 0;
        loop {
            match self.purge(PurgeDeadLetters::Queue { tenant, queue, group }).await? {
                0 => return Ok(purged),
                step => purged += step,
            }
        }
    }

    async fn purge(&self, command: PurgeDeadLetters<'_>) -> Result<u64, Error> {
        match self.submit(Class::Settle, &Command::PurgeDeadLetters(command)).await? {
            Reply::Purged(count) => Ok(count),
            other => Err(unexpected(&other)),
        }
    }
}
