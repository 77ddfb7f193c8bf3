//! Messages as they may be shown, without a lease and without moving a cursor.
//!
//! Owns: what a message holds, as far as it can be read, and finding one by its transaction id.
//! Leaves to others: pages of them (`browse`), what became of a message
//! (`queen_state::query::message`), reading runs (`reads`), JSON (`queen-http`).

use crate::broker::Broker;
use crate::dead_letters::{Letter, ShownLetter};
use crate::queues::{Partition, Queue};
use crate::reads::{RunAt, read_runs};
use crate::sealing::Sealed;
use bytes::Bytes;
use queen_core::frame::Frame;
use queen_core::limits::ACK_MEMORY_SECONDS_MIN;
use queen_core::run;
use queen_core::{Error, MessageId, Offset, PartitionId, Stamp, TenantId};
use queen_state::query::browse::{Browse, Browsed};
use queen_state::query::message::{self, groups_at};
pub use queen_state::query::message::{GroupAt, Status};
use queen_state::query::{message_with_id, partition_of};
use queen_state::run::{Run, has_id};
use std::sync::Arc;

/// Dead letters that one call looks at: of those that failed first the messages show as completed.
pub(crate) const LETTERS_MAX: usize = 4096;
/// Looks at the state under one lock.
pub(crate) const STEP: usize = 64;
/// Groups of a queue that are asked, first ones by name.
pub(crate) const GROUPS_ASKED: usize = 64;
/// Of a message whose id is not remembered any more: so many are looked through, newest first.
const SEARCHED_MESSAGES: u64 = 65_536;
/// Bytes of log that are read for that.
const SEARCHED_BYTES: u64 = 32 << 20;

/// What a message holds, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct Content {
    /// Message id.
    pub id: [u8; 16],
    /// Transaction id.
    pub transaction_id: String,
    /// Trace id.
    pub trace_id: Option<[u8; 16]>,
    /// Subject of the producer's token.
    pub producer: Option<String>,
    /// It lies encrypted.
    pub encrypted: bool,
    /// The payload in the clear; empty when it is not to be had.
    pub payload: Vec<u8>,
    /// Why it is not to be had.
    pub trouble: Option<String>,
}

/// A message as it may be shown.
#[derive(Clone, Debug)]
pub struct ShownMessage {
    /// Its queue.
    pub queue: Arc<Queue>,
    /// Its partition.
    pub partition: PartitionId,
    /// Name of that.
    pub partition_name: Box<str>,
    /// Stamp of its append.
    pub stamp: Stamp,
    /// Segment of the queue's log, and its place in the run there; `None` when the log has lost it.
    pub place: Option<(u32, u64)>,
    /// Its offset.
    pub offset: Offset,
    /// What became of it.
    pub status: Status,
    /// Where the groups are.
    pub groups: Arc<Vec<GroupAt>>,
    /// What it holds.
    pub content: Content,
}

/// One message, and the newest dead letter made of it.
#[derive(Debug)]
pub struct MessageDetail {
    /// The message.
    pub message: ShownMessage,
    /// Its dead letter.
    pub letter: Option<ShownLetter>,
}

/// A message that is to be shown.
pub(crate) struct Pick {
    pub(crate) queue: Arc<Queue>,
    pub(crate) partition: Partition,
    pub(crate) run: Run,
    pub(crate) offset: Offset,
    pub(crate) status: Status,
    pub(crate) groups: Arc<Vec<GroupAt>>,
}

impl Pick {
    fn run_at(&self) -> RunAt {
        (self.queue.id, self.partition.row.id, self.run.first, self.run.row)
    }
}

impl Broker {
    /// Reads what messages hold; those of one run must follow each other.
    pub(crate) async fn show_messages(
        &self,
        tenant: TenantId,
        picks: Vec<Pick>,
    ) -> Result<Vec<ShownMessage>, Error> {
        let mut runs: Vec<RunAt> = picks.iter().map(Pick::run_at).collect();
        runs.dedup_by_key(|(_, partition, first, _)| (*partition, *first));
        let places: Vec<_> = runs.iter().map(|run| (run.1, run.2)).collect();
        let read = read_runs(self, runs).await?;
        let mut shown = Vec::with_capacity(picks.len());
        let mut picks = picks.into_iter().peekable();
        for (place, bytes) in places.into_iter().zip(read) {
            let frames = bytes.as_ref().map(frames_of);
            let of_run = |pick: &Pick| (pick.partition.row.id, pick.run.first) == place;
            while let Some(pick) = picks.next_if(of_run) {
                let index = pick.offset.0 - pick.run.first.0;
                let frame = frames.as_ref().map(|frames| frames.get(index as usize));
                let frame = frame.map_err(|why| *why);
                let content = self.content(tenant, &pick, frame);
                shown.push(ShownMessage {
                    queue: pick.queue,
                    partition: pick.partition.row.id,
                    partition_name: pick.partition.name,
                    stamp: pick.run.row.stamp,
                    place: Some((pick.run.row.segment, index)),
                    offset: pick.offset,
                    status: pick.status,
                    groups: pick.groups,
                    content,
                });
            }
        }
        Ok(shown)
    }

    /// What a message holds, of its frame or why there is none.
    fn content(
        &self,
        tenant: TenantId,
        pick: &Pick,
        frame: Result<Option<&Frame<'_>>, &String>,
    ) -> Content {
        let Pick { queue, partition, run, offset, .. } = pick;
        let minted = MessageId::mint(run.row.stamp, partition.row.id, *offset);
        let frame = match frame {
            Ok(Some(frame)) => frame,
            Ok(None) | Err(_) => {
                let why = frame.err().map_or("its frame is damaged", |why| why.as_str());
                let trouble = Some(format!("the message cannot be read: {why}"));
                let transaction_id = minted.to_string();
                return Content { id: minted.0, transaction_id, trouble, ..Content::default() };
            }
        };
        let id = frame.message_id.unwrap_or(minted.0);
        let given = frame.transaction_id.map(str::to_owned);
        let mut content = Content {
            id,
            transaction_id: given.unwrap_or_else(|| MessageId(id).to_string()),
            trace_id: frame.trace_id,
            producer: frame.producer.map(str::to_owned),
            encrypted: frame.encrypted,
            ..Content::default()
        };
        if !frame.encrypted {
            content.payload = frame.payload.to_vec();
            return content;
        }
        let (name, into) = (&queue.row.name, &mut content.payload);
        if let Err(why) = self.open_payload(tenant, name, &partition.name, frame.payload, into) {
            let (queue, partition) = (name.clone(), partition.name.to_string());
            let sealed = Sealed { queue, partition, offset: *offset, why };
            content.trouble = Some(sealed.to_string());
        }
        content
    }

    /// The message of a partition that has a transaction id, the newest of several; `None` when
    /// neither the log nor the dead letters have it.
    pub async fn message(
        &self,
        tenant: TenantId,
        partition: PartitionId,
        transaction_id: &str,
    ) -> Result<Option<MessageDetail>, Error> {
        let found = self.read(|view| {
            let found = partition_of(view, tenant, partition)?;
            let Some((queue, partition)) = found else { return Ok(None) };
            let offset = message_with_id(view, &partition, transaction_id)?;
            Ok(Some((Arc::new(queue), partition, offset)))
        })?;
        let Some((queue, partition, offset)) = found else { return Ok(None) };
        let offset = match offset {
            Some(offset) => Some(offset),
            None => self.search(&partition, transaction_id).await?,
        };
        let pick = match offset {
            Some(offset) => self.pick(&queue, &partition, offset)?,
            None => None,
        };
        let Some(pick) = pick else {
            let letter = self.letter(&queue, &partition, transaction_id, usize::MAX).await?;
            return Ok(letter.map(|letter| only_letter(queue, letter)));
        };
        let passed = pick.groups.iter().any(|group| group.visited && group.next > pick.offset);
        let letter = match passed {
            true => self.letter(&queue, &partition, transaction_id, LETTERS_MAX).await?,
            false => None,
        };
        let mut shown = self.show_messages(tenant, vec![pick]).await?;
        Ok(shown.pop().map(|mut message| {
            if letter.is_some() {
                message.status = Status::DeadLetter;
            }
            MessageDetail { message, letter }
        }))
    }

    /// The message at an offset, if it is kept.
    fn pick(
        &self,
        queue: &Arc<Queue>,
        partition: &Partition,
        offset: Offset,
    ) -> Result<Option<Pick>, Error> {
        let now = self.now();
        self.read(|view| {
            let row = &partition.row;
            let run = queen_state::run::at(view, row.id, offset)?;
            let Some(run) = run.filter(|_| offset >= row.log_start) else { return Ok(None) };
            let groups = Arc::new(groups_at(view, queue, row, now, GROUPS_ASKED)?);
            let status = message::status(&groups, offset);
            let (queue, partition) = (Arc::clone(queue), partition.clone());
            Ok(Some(Pick { queue, partition, run, offset, status, groups }))
        })
    }

    /// Looks for a message by its own id where that is not remembered any more.
    async fn search(
        &self,
        partition: &Partition,
        transaction_id: &str,
    ) -> Result<Option<Offset>, Error> {
        let aged = self.now().minus_seconds(ACK_MEMORY_SECONDS_MIN);
        let named = Some(partition.name.to_string());
        let mut browse = Browse::new(vec![partition.queue], named, Stamp::ZERO, aged);
        let (mut messages, mut bytes) = (0, 0);
        while !browse.is_done() {
            for Browsed { run, .. } in self.read(|view| browse.step(view, STEP))? {
                messages += u64::from(run.row.count);
                if messages > SEARCHED_MESSAGES || bytes > SEARCHED_BYTES {
                    return Ok(None);
                }
                if !run.row.own_ids {
                    continue;
                }
                bytes += run.row.run_len();
                let at = vec![(partition.queue, partition.row.id, run.first, run.row)];
                for bytes in read_runs(self, at).await?.into_iter().flatten() {
                    let frames = frames_of(&bytes);
                    let same = |frame: &Frame<'_>| has_id(frame, transaction_id);
                    if let Some(index) = frames.iter().rposition(same) {
                        return Ok(Some(run.first.plus(index as u64)));
                    }
                }
            }
        }
        Ok(None)
    }

    /// The newest dead letter of a message, among the newest `most` of its queue.
    async fn letter(
        &self,
        queue: &Queue,
        partition: &Partition,
        transaction_id: &str,
        most: usize,
    ) -> Result<Option<ShownLetter>, Error> {
        let (mut found, mut seen) = (None, 0);
        let each = |letter: Letter| {
            seen += 1;
            let row = &letter.row;
            if row.partition == partition.row.id && row.transaction_id == transaction_id {
                found = Some(letter);
            }
            found.is_none() && seen < most
        };
        self.walk_while(queue.id, each).await?;
        Ok(found.map(|letter| self.show(queue, letter)))
    }
}

fn frames_of(run: &Bytes) -> Vec<Frame<'_>> {
    run::frames(run).map_while(Result::ok).collect()
}

/// What is left of a message that the log has lost.
fn only_letter(queue: Arc<Queue>, letter: ShownLetter) -> MessageDetail {
    let row = &letter.letter.row;
    let content = Content {
        id: row.message_id,
        transaction_id: row.transaction_id.clone(),
        trace_id: row.trace_id,
        producer: row.producer.clone(),
        encrypted: queue.row.options.encryption_enabled,
        payload: row.payload.clone(),
        trouble: letter.stuck.as_ref().map(ToString::to_string),
    };
    let message = ShownMessage {
        queue,
        partition: row.partition,
        partition_name: row.partition_name.as_str().into(),
        stamp: row.created,
        place: None,
        offset: row.offset,
        status: Status::DeadLetter,
        groups: Arc::default(),
        content,
    };
    MessageDetail { message, letter: Some(letter) }
}
