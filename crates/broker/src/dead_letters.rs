//! Dead letter calls: listing, replaying, purging.
//!
//! Owns: pages over several queues, their payloads in the clear, and what a replay must seal. Leaves
//! to others: the rules (`queen-state`), the cipher (`keyring`).

use crate::Class;
use crate::broker::Broker;
use crate::push::TRIES;
use crate::queues::{Queue, unexpected};
use crate::sealing::Sealed;
use bytes::Bytes;
use queen_core::command::{
    Command, DeadLetterRef, PurgeDeadLetters, ReplayDeadLetter, ReplaySealed,
};
use queen_core::envelope::bound_to;
use queen_core::reply::{Replayed, Reply};
use queen_core::row::key;
use queen_core::{Code, Error, QueueId, Stamp, TenantId};
use queen_state::dead_letter_admin;
pub use queen_state::dead_letter_admin::Letter;
use queen_state::query::list;

/// A dead letter as it may be shown.
#[derive(Clone, Debug)]
pub struct ShownLetter {
    /// Its queue's name.
    pub queue: String,
    /// The letter, its payload in the clear.
    pub letter: Letter,
    /// Why the payload is missing, if it does not open.
    pub stuck: Option<Sealed>,
}

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
    ) -> Result<(Vec<ShownLetter>, usize), Error> {
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
            page.extend(found.map(|letter| self.show(queue, letter)));
        }
        Ok((page, total))
    }

    /// The letter with its payload in the clear; empty when it does not open.
    pub(crate) fn show(&self, queue: &Queue, mut letter: Letter) -> ShownLetter {
        let row = &mut letter.row;
        let mut stuck = None;
        if row.encrypted {
            let bound = bound_to(queue.row.tenant, &queue.row.name, &row.partition_name);
            let mut payload = Vec::new();
            let sealing = &self.shared.sealing;
            if let Err(why) = sealing.keyring.open(&bound, &row.payload, &mut payload) {
                let (offset, partition) = (row.offset, row.partition_name.clone());
                let sealed = Sealed { queue: queue.row.name.clone(), partition, offset, why };
                sealing.tell(queue.id, &sealed);
                stuck = Some(sealed);
            }
            (row.payload, row.encrypted) = (payload, false);
        }
        ShownLetter { queue: queue.row.name.clone(), letter, stuck }
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
        let all = |letter| {
            each(letter);
            true
        };
        self.walk_while(queue, all).await
    }

    /// Gives `each` the letters of a queue, newest failure first, until it wants no more.
    pub(crate) async fn walk_while(
        &self,
        queue: QueueId,
        mut each: impl FnMut(Letter) -> bool,
    ) -> Result<(), Error> {
        let mut before: Option<Bytes> = None;
        loop {
            let page = self.read(|v| list::dead_letters(v, queue, before.as_deref(), STEP))?;
            before = page.last().map(|letter| letter.key.clone());
            let done = page.len() < STEP;
            if !page.into_iter().all(&mut each) || done {
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
    ///
    /// What was encrypted stays so wherever it goes, and what goes to an encrypted queue becomes so.
    pub async fn replay(&self, command: ReplayDeadLetter<'_>) -> Result<Option<Replayed>, Error> {
        let mut tries = 0;
        loop {
            let found = self.read(|view| {
                let found = dead_letter_admin::find(view, command.tenant, command.letter)?;
                let Some(letter) = found else { return Ok(None) };
                let queue = queen_state::step::queue_with_id(view, letter.queue)?;
                Ok(queue.map(|queue| (letter, queue)))
            })?;
            let Some((letter, own)) = found else { return Ok(None) };
            let mut envelope = Vec::new();
            let sealed = self.seal_replay(&command, &own, &letter, &mut envelope)?;
            let letter = DeadLetterRef::Id(letter.row.id);
            let replay = ReplayDeadLetter { letter, ..command.clone() };
            let command = match sealed {
                true => Command::ReplaySealed(ReplaySealed { replay, envelope: &envelope }),
                false => Command::ReplayDeadLetter(replay),
            };
            match self.submit(Class::Write, &command).await {
                Ok(Reply::Replayed(replayed)) => return Ok(replayed),
                Ok(other) => return Err(unexpected(&other)),
                // The queue became encrypted since the look: nothing was written.
                Err(e) if e.code == Code::NotSealed && tries < TRIES => tries += 1,
                Err(e) => return Err(e),
            }
        }
    }

    /// Seals a letter's payload for where a replay takes it; whether that is needed.
    fn seal_replay(
        &self,
        command: &ReplayDeadLetter<'_>,
        own: &Queue,
        letter: &Letter,
        envelope: &mut Vec<u8>,
    ) -> Result<bool, Error> {
        let (row, sealing) = (&letter.row, &self.shared.sealing);
        let queue = command.queue.unwrap_or(&own.row.name);
        let partition = command.partition.unwrap_or(&row.partition_name);
        let moved = queue != own.row.name || partition != row.partition_name;
        let needed =
            if row.encrypted { moved } else { sealing.is_encrypted(command.tenant, queue) };
        if needed {
            let shown = self.show(own, letter.clone());
            if let Some(stuck) = shown.stuck {
                return Err(stuck.into());
            }
            let bound = bound_to(command.tenant, queue, partition);
            sealing.seal(queue, &bound, &shown.letter.row.payload, envelope)?;
        }
        Ok(needed)
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
