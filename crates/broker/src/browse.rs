//! Browsing messages: pages of them, newest first.
//!
//! Owns: which messages a page takes, which dead letters are looked at for it, its bounds. Leaves to
//! others: the order (`queen_state::query::browse`), what became of a message
//! (`queen_state::query::message`), what it holds (`messages`), JSON (`queen-http`).
//!
//! What a page costs is bounded: messages looked at, dead letters looked at, bytes read. A page that
//! ends for that says so.

use crate::broker::Broker;
use crate::dead_letters::Letter;
use crate::messages::{GROUPS_ASKED, LETTERS_MAX, Pick, STEP, ShownMessage};
use crate::queues::Queue;
use queen_core::{Error, Offset, PartitionId, QueueId, Stamp, TenantId};
use queen_state::query::browse::{Browse, Browsed};
use queen_state::query::message::{self, GroupAt, Status, groups_at};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Messages that one browse looks at.
const MESSAGES_MAX: usize = 100_000;
/// Bytes of runs that one page is read from; one run is read whatever its size.
const PAGE_BYTES: u64 = 16 << 20;
/// Partitions whose groups are remembered within a browse.
const PARTITIONS_KEPT: usize = 4096;

/// Which messages are asked for.
#[derive(Clone, Copy, Debug)]
pub struct MessageFilter<'a> {
    /// Of one queue.
    pub queue: Option<&'a str>,
    /// Of the partitions with this name.
    pub partition: Option<&'a str>,
    /// Of the queues with this label.
    pub namespace: Option<&'a str>,
    /// Of the queues with this label.
    pub task: Option<&'a str>,
    /// What became of them.
    pub status: Option<Status>,
    /// Stamped at or after this.
    pub from: Stamp,
    /// Stamped before this.
    pub to: Stamp,
}

impl MessageFilter<'_> {
    fn takes(&self, queue: &Queue) -> bool {
        let options = &queue.row.options;
        self.namespace.is_none_or(|label| label == options.namespace)
            && self.task.is_none_or(|label| label == options.task)
    }
}

/// A page of messages, newest first.
#[derive(Debug, Default)]
pub struct MessagePage {
    /// The messages.
    pub messages: Vec<ShownMessage>,
    /// More may match: a bound of the call ended the page.
    pub truncated: bool,
}

/// A page that is filled from newest to oldest.
struct Page<'f> {
    filter: &'f MessageFilter<'f>,
    /// Messages that dead letters were made of.
    dead: BTreeSet<(PartitionId, Offset)>,
    /// Matching ones to be left out.
    skip: usize,
    limit: usize,
    picks: Vec<Pick>,
    seen: usize,
    bytes: u64,
    truncated: bool,
}

impl Page<'_> {
    fn new<'f>(filter: &'f MessageFilter<'f>) -> Page<'f> {
        let (dead, picks) = (BTreeSet::new(), Vec::new());
        Page { filter, dead, skip: 0, limit: 0, picks, seen: 0, bytes: 0, truncated: false }
    }

    fn full(&self) -> bool {
        self.truncated || self.picks.len() >= self.limit
    }

    /// Takes what is wanted of a run.
    fn take(&mut self, queue: &Arc<Queue>, met: &Browsed, groups: &Arc<Vec<GroupAt>>) {
        let Browsed { partition, run, first } = met;
        let before = self.picks.len();
        for offset in (first.0..run.end().0).rev().map(Offset) {
            if self.full() {
                return;
            }
            self.seen += 1;
            let status = match self.dead.contains(&(partition.row.id, offset)) {
                true => Status::DeadLetter,
                false => message::status(groups, offset),
            };
            if self.filter.status.is_some_and(|wanted| wanted != status) {
                continue;
            }
            if self.skip > 0 {
                self.skip -= 1;
                continue;
            }
            let (queue, groups) = (Arc::clone(queue), Arc::clone(groups));
            let partition = partition.clone();
            self.picks.push(Pick { queue, partition, run: *run, offset, status, groups });
        }
        if self.picks.len() > before {
            self.bytes += run.row.run_len();
        }
        self.truncated = self.bytes >= PAGE_BYTES || self.seen >= MESSAGES_MAX;
    }
}

impl Broker {
    /// A page of messages, newest first, the first `skip` matching ones left out.
    pub async fn browse(
        &self,
        tenant: TenantId,
        filter: &MessageFilter<'_>,
        skip: usize,
        limit: usize,
    ) -> Result<MessagePage, Error> {
        let mut queues = match filter.queue {
            Some(name) => self.queue_named(tenant, name)?.into_iter().collect(),
            None => self.queues(tenant).await?,
        };
        queues.retain(|queue| filter.takes(queue));
        let queues: BTreeMap<QueueId, Arc<Queue>> =
            queues.into_iter().map(|queue| (queue.id, Arc::new(queue))).collect();
        let dead = self.given_up(queues.keys(), filter.from).await?;
        let named = filter.partition.map(str::to_owned);
        let mut browse =
            Browse::new(queues.keys().copied().collect(), named, filter.from, filter.to);
        let mut groups: HashMap<PartitionId, Arc<Vec<GroupAt>>> = HashMap::new();
        let mut page = Page { dead, skip, limit, ..Page::new(filter) };
        while !browse.is_done() && !page.full() {
            for (met, groups) in self.browse_step(&mut browse, &queues, &mut groups)? {
                if let Some(queue) = queues.get(&met.partition.queue) {
                    page.take(queue, &met, &groups);
                }
            }
            tokio::task::yield_now().await;
        }
        let Page { picks, truncated, .. } = page;
        Ok(MessagePage { messages: self.show_messages(tenant, picks).await?, truncated })
    }

    /// Goes on with a browse, and finds where the groups are of the partitions met.
    #[allow(clippy::type_complexity)]
    fn browse_step(
        &self,
        browse: &mut Browse,
        queues: &BTreeMap<QueueId, Arc<Queue>>,
        groups: &mut HashMap<PartitionId, Arc<Vec<GroupAt>>>,
    ) -> Result<Vec<(Browsed, Arc<Vec<GroupAt>>)>, Error> {
        let now = self.now();
        if groups.len() > PARTITIONS_KEPT {
            groups.clear();
        }
        self.read(|view| {
            let mut met = Vec::new();
            for one in browse.step(view, STEP)? {
                let row = &one.partition.row;
                let Some(queue) = queues.get(&one.partition.queue) else { continue };
                let at = match groups.get(&row.id) {
                    Some(known) => Arc::clone(known),
                    None => {
                        let at = Arc::new(groups_at(view, queue, row, now, GROUPS_ASKED)?);
                        groups.insert(row.id, Arc::clone(&at));
                        at
                    }
                };
                met.push((one, at));
            }
            Ok(met)
        })
    }

    /// The messages that dead letters were made of, failed since a stamp.
    async fn given_up(
        &self,
        queues: impl Iterator<Item = &QueueId>,
        since: Stamp,
    ) -> Result<BTreeSet<(PartitionId, Offset)>, Error> {
        let (mut found, mut seen) = (BTreeSet::new(), 0);
        for queue in queues {
            let each = |letter: Letter| {
                seen += 1;
                let row = letter.row;
                let wanted = row.failed >= since && seen <= LETTERS_MAX;
                if wanted {
                    found.insert((row.partition, row.offset));
                }
                wanted
            };
            self.walk_while(*queue, each).await?;
        }
        Ok(found)
    }
}
