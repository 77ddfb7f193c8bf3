//! Pushing: offsets, deduplication, the append.
//!
//! Owns: what a push does to its partitions. Leaves to others: places (`segment`), the memory of
//! transaction ids (`transaction_id`), what groups make of it (`pop`), sealing payloads (the caller: keys
//! never come here).
//!
//! Upholds `offsets-gapless`, `encrypted-at-rest`. Costs a fixed number of row operations per partition, whatever the
//! number of groups, and two more per message that has a transaction id of its own.

use crate::Storage;
use crate::step::{Partition, Queue, Step, partition_named};
use crate::tables::StorageError;
use crate::transaction_id::{self, Found, Known, New};
use queen_core::command::{Push, PushGroup};
use queen_core::frame::{BadFrame, Frame, Frames};
use queen_core::options::QueueOptions;
use queen_core::reply::{Event, PushedGroup, PushedItem, Reply};
use queen_core::row::transaction_id::hash;
use queen_core::row::{PartitionRow, RunRow, key};
use queen_core::run::RunHeader;
use queen_core::table::Table;
use queen_core::{Code, Error, Offset, QueueId, Stamp, TenantId};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

/// A frame and its bytes.
struct Item<'a> {
    frame: Frame<'a>,
    bytes: &'a [u8],
}

/// Appends the messages of every group that are not there already.
pub(crate) fn apply<S: Storage>(
    step: &mut Step<'_, S>,
    push: &Push<'_>,
) -> Result<Reply, StorageError> {
    match Checked::new(step, push.tenant, &push.groups)? {
        Ok(checked) => checked.append(step).map(Reply::Push),
        Err(refusal) => Ok(Reply::Refused(refusal)),
    }
}

/// Groups that may go into their queues. Making it changes nothing, so that a refusal has no effect.
pub(crate) struct Checked<'g, 'a> {
    tenant: TenantId,
    groups: &'g [PushGroup<'a>],
    /// Frames of the groups that have to be looked at.
    items: Vec<Option<Vec<Item<'a>>>>,
    /// Queues of the groups that were there.
    queues: Vec<Option<Arc<Queue>>>,
}

impl<'g, 'a> Checked<'g, 'a> {
    /// Looks at groups, no two of which have the same partition.
    pub(crate) fn new<S: Storage>(
        step: &mut Step<'_, S>,
        tenant: TenantId,
        groups: &'g [PushGroup<'a>],
    ) -> Result<Result<Checked<'g, 'a>, Error>, StorageError> {
        let items: Result<Vec<_>, BadFrame> = groups.iter().map(read_items).collect();
        let items = match items {
            Ok(items) => items,
            Err(bad) => return Ok(Err(Error::new(Code::BadBody, bad.to_string()))),
        };
        let mut queues = Vec::with_capacity(groups.len());
        for group in groups {
            let queue = step.queue(tenant, group.queue)?;
            if let Some(refusal) = queue.as_ref().and_then(|queue| unsealed(queue, group)) {
                return Ok(Err(refusal));
            }
            queues.push(queue);
        }
        Ok(Ok(Checked { tenant, groups, items, queues }))
    }

    /// The first message, by group and number in it, whose transaction id a stored message has.
    pub(crate) fn stored_duplicate<S: Storage>(
        &self,
        step: &Step<'_, S>,
    ) -> Result<Option<(usize, usize)>, StorageError> {
        for (at, group) in self.groups.iter().enumerate() {
            let (Some(items), Some(queue)) = (&self.items[at], &self.queues[at]) else { continue };
            let Some(partition) = partition_named(&*step.store, queue.id, group.partition)? else {
                continue;
            };
            let (window, mut known) = (dedup_window(queue), Known::new(&partition));
            for (number, item) in items.iter().enumerate() {
                let Some(id) = crate::run::own_id(&item.frame) else { continue };
                if let Found::Duplicate(_) = known.look_up(step, hash(&id), &id, window)? {
                    return Ok(Some((at, number)));
                }
            }
        }
        Ok(None)
    }

    /// Appends what is not there already; one result per group.
    pub(crate) fn append<S: Storage>(
        self,
        step: &mut Step<'_, S>,
    ) -> Result<Vec<PushedGroup>, StorageError> {
        let mut pushed = Vec::with_capacity(self.groups.len());
        for ((group, items), queue) in self.groups.iter().zip(self.items).zip(self.queues) {
            pushed.push(push_group(step, self.tenant, group, items, queue)?);
        }
        Ok(pushed)
    }
}

/// Appends one group, for other commands that push. The inner error is a refusal without effect.
pub fn append_group<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    group: &PushGroup<'_>,
) -> Result<Result<PushedGroup, Error>, StorageError> {
    let items = read_items(group).map_err(|bad| StorageError(bad.to_string()))?;
    let queue = step.queue(tenant, group.queue)?;
    if let Some(refusal) = queue.as_ref().and_then(|queue| unsealed(queue, group)) {
        return Ok(Err(refusal));
    }
    push_group(step, tenant, group, items, queue).map(Ok)
}

/// Why a group must not go into its queue: the queue is encrypted and a payload of the group is not.
fn unsealed(queue: &Queue, group: &PushGroup<'_>) -> Option<Error> {
    if !queue.row.options.encryption_enabled {
        return None;
    }
    if Frames::new(group.frames).all(|frame| frame.is_ok_and(|frame| frame.encrypted)) {
        return None;
    }
    let text = format!("queue {:?} is encrypted: its payloads are stored sealed only", group.queue);
    Some(Error::new(Code::NotSealed, text))
}

/// The frames of a group that have to be looked at; `None` when none has.
fn read_items<'a>(group: &PushGroup<'a>) -> Result<Option<Vec<Item<'a>>>, BadFrame> {
    if group.count == 0 {
        return Err(BadFrame { at: 0, what: "at least one message in a group" });
    }
    if !group.has_transaction_ids {
        return Ok(None);
    }
    let mut items = Vec::with_capacity(group.count as usize);
    let mut frames = Frames::new(group.frames);
    let mut from = 0;
    while let Some(frame) = frames.next() {
        let frame = frame?;
        items.push(Item { frame, bytes: &group.frames[from..frames.position()] });
        from = frames.position();
    }
    if items.len() != group.count as usize {
        return Err(BadFrame { at: from, what: "as many frames as the group says" });
    }
    Ok(Some(items))
}

fn push_group<S: Storage>(
    step: &mut Step<'_, S>,
    tenant: TenantId,
    group: &PushGroup<'_>,
    items: Option<Vec<Item<'_>>>,
    queue: Option<Arc<Queue>>,
) -> Result<PushedGroup, StorageError> {
    // One that was not there may have been made by the group before.
    let queue = match queue.map_or_else(|| step.queue(tenant, group.queue), |q| Ok(Some(q)))? {
        Some(queue) => queue,
        None => step.create_queue(tenant, group.queue, QueueOptions::implicit(group.queue))?,
    };
    let partition_key = key::partition(queue.id, group.partition);
    let row = match crate::step::get::<PartitionRow>(step.store, &partition_key)? {
        Some(row) => row,
        None => step.create_partition(queue.id, group.partition)?,
    };
    let run = Append { queue: &queue, partition_key: &partition_key, row };
    let (stamp, first_offset, partition) = (step.stamp, row.next, row.id);
    let pushed = |items| PushedGroup { partition, stamp, first_offset, items };
    let Some(items) = items else {
        run.append(step, group.count, group.text_bytes, group.frames, false)?;
        return Ok(pushed(Vec::new()));
    };
    let partition = Partition { queue: queue.id, name: group.partition.into(), row };
    let (outcomes, fresh) = deduplicate(step, &queue, &partition, &items)?;
    if fresh == items.len() {
        run.append(step, group.count, group.text_bytes, group.frames, true)?;
        return Ok(pushed(Vec::new()));
    }
    if fresh > 0 {
        let (mut frames, mut text_bytes) = (Vec::with_capacity(group.frames.len()), 0usize);
        for (item, outcome) in items.iter().zip(&outcomes) {
            if matches!(outcome, PushedItem::Queued(_)) {
                frames.extend_from_slice(item.bytes);
                text_bytes += item.frame.text_bytes();
            }
        }
        let text_bytes = u32::try_from(text_bytes).unwrap_or(u32::MAX);
        run.append(step, fresh as u32, text_bytes, &frames, true)?;
    }
    Ok(pushed(outcomes))
}

/// Seconds within which a transaction id is known in a queue; 0 = never.
fn dedup_window(queue: &Queue) -> u64 {
    queue.row.options.dedup_window_seconds.max(0) as u64
}

/// Decides which items are new, and remembers their transaction ids; gives each one's outcome and
/// how many are new.
fn deduplicate<S: Storage>(
    step: &mut Step<'_, S>,
    queue: &Queue,
    partition: &Partition,
    items: &[Item<'_>],
) -> Result<(Vec<PushedItem>, usize), StorageError> {
    let window = dedup_window(queue);
    let mut outcomes = Vec::with_capacity(items.len());
    let mut seen: HashMap<Cow<'_, str>, Offset> = HashMap::with_capacity(items.len());
    let mut known = Known::new(partition);
    let mut added: Vec<New> = Vec::with_capacity(items.len());
    let mut next = partition.row.next;
    for item in items {
        if let Some(id) = crate::run::own_id(&item.frame) {
            if let Some(&offset) = seen.get(&id) {
                outcomes.push(PushedItem::Duplicate { offset, stamp: step.stamp });
                continue;
            }
            let hash = hash(&id);
            let others = match known.look_up(step, hash, &id, window)? {
                Found::Duplicate(place) => {
                    let (offset, stamp) = (place.offset, place.stamp);
                    outcomes.push(PushedItem::Duplicate { offset, stamp });
                    continue;
                }
                Found::Others(others) => others,
            };
            seen.insert(id, next);
            added.push(New { hash, offset: next, others });
        }
        outcomes.push(PushedItem::Queued(next));
        next = next.plus(1);
    }
    transaction_id::remember(step, partition.row.id, window, added)?;
    Ok((outcomes, (next.0 - partition.row.next.0) as usize))
}

/// An append to a partition that is known.
struct Append<'a> {
    queue: &'a Arc<Queue>,
    partition_key: &'a [u8],
    row: PartitionRow,
}

impl Append<'_> {
    /// Appends a run of frames, and moves the partition on.
    fn append<S: Storage>(
        mut self,
        step: &mut Step<'_, S>,
        count: u32,
        text_bytes: u32,
        frames: &[u8],
        own_ids: bool,
    ) -> Result<(), StorageError> {
        let (row, stamp, queue) = (&mut self.row, step.stamp, self.queue.id);
        let frames_len = frames.len() as u32;
        let (partition, first_offset) = (row.id, row.next);
        let header = RunHeader { partition, first_offset, count, stamp, frames_len, text_bytes };
        let place = step.append(self.queue, count, [&header.encode(frames), frames])?;
        let (segment, position) = (place.segment, place.position);
        let run = RunRow { segment, position, count, stamp, frames_len, own_ids };
        step.insert(&key::run(row.id, row.next), &run);
        if row.last != Stamp::ZERO {
            step.store.delete(Table::Tail, &key::tail(queue, row.last, row.id));
        }
        step.store.insert(Table::Tail, &key::tail(queue, stamp, row.id), &[]);
        row.next = row.next.plus(u64::from(count));
        row.last = stamp;
        step.put(self.partition_key, row);
        tell_written(step.events, queue);
        Ok(())
    }
}

fn tell_written(events: &mut Vec<Event>, written: QueueId) {
    match events.last_mut() {
        Some(Event::Written { queue, partitions }) if *queue == written => *partitions += 1,
        _ => events.push(Event::Written { queue: written, partitions: 1 }),
    }
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
