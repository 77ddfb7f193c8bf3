//! `POST /api/v1/push`: items in, one result per item out.
//!
//! Owns: reading the items without touching their payloads, grouping them by (queue, partition),
//! writing the answer. Leaves to others: dedup and offsets (`queen-state`).
//!
//! The payload is cut out of the body as it stands there, so its bytes are the producer's own.

use crate::answer::{Answer, Refusal, json, json_text};
use crate::binary::{Binary, is_binary};
use crate::call::Call;
use crate::text::{Text, put_json_str, put_number, put_uuid};
use hyper::StatusCode;
use queen_core::command::{Push, PushGroup};
use queen_core::frame::Frame;
use queen_core::limits::{DEFAULT_PARTITION, NAME_BYTES_MAX, TRANSACTION_ID_BYTES_MAX};
use queen_core::reply::{PushedGroup, PushedItem};
use queen_core::{Code, Error, MessageId, Offset};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::HashMap;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    items: Option<Vec<Item<'a>>>,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "transactionId")]
    transaction_id: Option<Text<'a>>,
}

/// Tells a member that is `null` from one that is not there.
pub(crate) fn present<'de: 'a, 'a, D>(from: D) -> Result<Option<&'a RawValue>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    <&RawValue>::deserialize(from).map(Some)
}

/// The messages of one request that go to one partition.
struct Group<'a> {
    queue: &'a str,
    partition: &'a str,
    count: u32,
    has_transaction_ids: bool,
    text_bytes: usize,
    frames: Vec<u8>,
}

/// Where a message went: its group, and its number in it.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Slot {
    pub(crate) group: u32,
    pub(crate) number: u32,
}

/// The messages of one request by (queue, partition), groups in order of first appearance.
pub(crate) struct Grouped<'a> {
    groups: Vec<Group<'a>>,
    /// One per message, in request order.
    slots: Vec<Slot>,
    /// Only filled once a request has more partitions than one looks through faster than one hashes.
    places: HashMap<(&'a str, &'a str), usize>,
    body_bytes: usize,
    producer: Option<&'a str>,
}

/// `POST /api/v1/push`.
pub(crate) async fn push(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    if is_binary(&call.parts.headers) {
        return binary(&mut call, &body).await;
    }
    let items = read(&body)?;
    if items.is_empty() {
        return Ok(json_text(StatusCode::CREATED, &b"[]"[..]));
    }
    let grouped = group(&items, body.len(), call.producer())?;
    let push = Push { tenant: call.tenant(), groups: grouped.commands() };
    let results = call.broker().push(push).await?;
    Ok(json_text(StatusCode::CREATED, write(&items, &grouped, &results)?))
}

/// A push whose body is binary.
async fn binary(call: &mut Call, body: &[u8]) -> Result<Answer, Refusal> {
    let mut rooms = Vec::new();
    let mut room =
        |bytes| call.face.room_for(bytes).map(|room| rooms.push(room)).map_err(Into::into);
    let binary = Binary::push(body, &mut room)?;
    let groups = binary.groups(&mut room)?;
    let mut items = Vec::new();
    for group in &groups {
        for message in group.messages()? {
            let (queue, partition) = (Some(group.queue.into()), Some(group.partition.into()));
            let (payload, data) = (Some(message.payload), None);
            let transaction_id = message.transaction_id.map(Text::from);
            items.push(Item { queue, partition, payload, data, transaction_id });
        }
    }
    let grouped = group(&items, body.len(), call.producer())?;
    let results = match items.is_empty() {
        true => Vec::new(),
        false => {
            let push = Push { tenant: call.tenant(), groups: grouped.commands() };
            call.broker().push(push).await?
        }
    };
    if !binary.counts {
        return Ok(json_text(StatusCode::CREATED, write(&items, &grouped, &results)?));
    }
    let there = |slot: &&Slot| {
        let result = results.get(slot.group as usize).and_then(|group| pushed(group, slot.number));
        result.is_some_and(|(_, _, duplicate)| duplicate)
    };
    let (count, duplicate) = (items.len(), grouped.slots.iter().filter(there).count());
    let counts = serde_json::json!({"count": count, "queued": count - duplicate,
        "duplicate": duplicate, "error": 0});
    Ok(json(StatusCode::CREATED, &counts))
}

fn read(body: &[u8]) -> Result<Vec<Item<'_>>, Refusal> {
    let text = std::str::from_utf8(body).map_err(|e| {
        Refusal::bad_body(format!("the body is not UTF-8 at byte {}", e.valid_up_to()))
    })?;
    let request: Request<'_> = serde_json::from_str(text)
        .map_err(|e| Refusal::bad_body(format!("the body is not a push: {e}")))?;
    request.items.ok_or_else(|| Refusal::bad_body("the body has no items: {\"items\":[...]}"))
}

fn check<'i>(index: usize, item: &'i Item<'_>) -> Result<(&'i str, &'i str, &'i str), Refusal> {
    let Some(queue) = item.queue.as_deref() else {
        return Err(Refusal::bad_body(format!("item {index} has no queue")));
    };
    let Some(payload) = item.payload else {
        let what = match item.data {
            Some(_) => "has data instead of payload: name the member payload",
            None => "has no payload",
        };
        return Err(Refusal::bad_body(format!("item {index} {what}")));
    };
    let partition = item.partition.as_deref().unwrap_or(DEFAULT_PARTITION);
    if queue.len() + partition.len() > NAME_BYTES_MAX {
        return Err(name_too_long(&format!("item {index}"), queue.len() + partition.len()));
    }
    check_transaction_id(index, item.transaction_id.as_deref())?;
    Ok((queue, partition, payload.get()))
}

/// 400 for a transaction id that no message can have.
pub(crate) fn check_transaction_id(index: usize, id: Option<&str>) -> Result<(), Refusal> {
    let bytes = id.map_or(0, str::len);
    if bytes <= TRANSACTION_ID_BYTES_MAX {
        return Ok(());
    }
    Err(Refusal::bad_request(format!(
        "item {index}: transactionId has {bytes} bytes, at most {TRANSACTION_ID_BYTES_MAX}"
    )))
}

/// 413 for names that do not fit into a key.
pub(crate) fn name_too_long(what: &str, bytes: usize) -> Refusal {
    let text = format!(
        "{what}: the names of queue and partition (or group) have {bytes} bytes together, at most {NAME_BYTES_MAX}"
    );
    Refusal::Plain(Error::new(Code::NameTooLong, text))
}

fn group<'i>(
    items: &'i [Item<'_>],
    body_bytes: usize,
    producer: Option<&'i str>,
) -> Result<Grouped<'i>, Refusal> {
    let mut grouped = Grouped::new(items.len(), body_bytes, producer);
    for (index, item) in items.iter().enumerate() {
        let (queue, partition, payload) = check(index, item)?;
        let transaction_id = item.transaction_id.as_deref().filter(|id| !id.is_empty());
        let frame = Frame { transaction_id, payload: payload.as_bytes(), ..Frame::default() };
        let slot = grouped.add(queue, partition, &frame);
        grouped.slots.push(slot);
    }
    Ok(grouped)
}

impl<'a> Grouped<'a> {
    /// For about so many messages of a producer, out of a body of so many bytes.
    pub(crate) fn new(
        messages: usize,
        body_bytes: usize,
        producer: Option<&'a str>,
    ) -> Grouped<'a> {
        let slots = Vec::with_capacity(messages);
        Grouped { groups: Vec::new(), slots, places: HashMap::new(), body_bytes, producer }
    }

    /// Adds the next message, as one of the producer's; gives its slot.
    pub(crate) fn add(&mut self, queue: &'a str, partition: &'a str, frame: &Frame<'_>) -> Slot {
        let here = |group: &Group<'_>| group.partition == partition && group.queue == queue;
        let found = match self.groups.last() {
            Some(last) if here(last) => Some(self.groups.len() - 1),
            _ if self.places.is_empty() => self.groups.iter().position(here),
            _ => self.places.get(&(queue, partition)).copied(),
        };
        let at = found.unwrap_or_else(|| self.open(queue, partition, frame.payload.len()));
        let group = &mut self.groups[at];
        let slot = Slot { group: at as u32, number: group.count };
        group.count += 1;
        group.has_transaction_ids |= frame.transaction_id.is_some();
        group.text_bytes += frame.text_bytes();
        Frame { producer: self.producer, ..*frame }.encode(&mut group.frames);
        slot
    }

    /// Opens a group; gives its number.
    fn open(&mut self, queue: &'a str, partition: &'a str, payload_bytes: usize) -> usize {
        let first = self.groups.is_empty();
        let room = if first { self.body_bytes.min(1 << 20) } else { payload_bytes + 64 };
        self.groups.push(Group {
            queue,
            partition,
            count: 0,
            has_transaction_ids: false,
            text_bytes: 0,
            frames: Vec::with_capacity(room),
        });
        let new = self.groups.len() - 1;
        if new >= 8 {
            if self.places.is_empty() {
                let known = self.groups.iter().enumerate();
                self.places.extend(known.map(|(at, group)| ((group.queue, group.partition), at)));
            }
            self.places.insert((queue, partition), new);
        }
        new
    }

    /// The groups as a command has them.
    pub(crate) fn commands(&self) -> Vec<PushGroup<'_>> {
        let groups = self.groups.iter().map(|group| PushGroup {
            queue: group.queue,
            partition: group.partition,
            count: group.count,
            has_transaction_ids: group.has_transaction_ids,
            text_bytes: u32::try_from(group.text_bytes).unwrap_or(u32::MAX),
            frames: &group.frames,
        });
        groups.collect()
    }

    /// Queue and partition of a slot.
    pub(crate) fn place(&self, slot: Slot) -> (&'a str, &'a str) {
        let group = &self.groups[slot.group as usize];
        (group.queue, group.partition)
    }
}

fn write(
    items: &[Item<'_>],
    grouped: &Grouped<'_>,
    results: &[PushedGroup],
) -> Result<String, Refusal> {
    let names: usize = items.iter().map(|i| i.transaction_id.as_deref().map_or(36, str::len)).sum();
    let queues: usize =
        grouped.slots.iter().map(|s| grouped.groups[s.group as usize].queue.len()).sum();
    let mut out = String::with_capacity(2 + names + queues + items.len() * 150);
    out.push('[');
    for (index, (item, slot)) in items.iter().zip(&grouped.slots).enumerate() {
        let result = results.get(slot.group as usize);
        let (id, offset, duplicate) = result
            .and_then(|result| pushed(result, slot.number))
            .ok_or_else(|| Error::new(Code::Internal, "the push has fewer results than items"))?;
        out.push_str(if index == 0 { "{\"index\":" } else { ",{\"index\":" });
        put_number(&mut out, index as u64);
        out.push_str(",\"message_id\":\"");
        put_uuid(&mut out, &id.0);
        out.push_str("\",\"transaction_id\":");
        match item.transaction_id.as_deref().filter(|id| !id.is_empty()) {
            Some(given) => put_json_str(&mut out, given),
            None => {
                out.push('"');
                put_uuid(&mut out, &id.0);
                out.push('"');
            }
        }
        out.push_str(",\"queueName\":");
        put_json_str(&mut out, grouped.groups[slot.group as usize].queue);
        out.push_str(",\"status\":\"");
        out.push_str(if duplicate { "duplicate" } else { "queued" });
        out.push_str("\",\"offset\":");
        put_number(&mut out, offset.0);
        out.push('}');
    }
    out.push(']');
    Ok(out)
}

/// Id and offset of the group's message of this number, and whether it was there already.
pub(crate) fn pushed(result: &PushedGroup, number: u32) -> Option<(MessageId, Offset, bool)> {
    let (stamp, offset, duplicate) = if result.items.is_empty() {
        (result.stamp, result.first_offset.plus(u64::from(number)), false)
    } else {
        match result.items.get(number as usize)? {
            PushedItem::Queued(offset) => (result.stamp, *offset, false),
            PushedItem::Duplicate { offset, stamp } => (*stamp, *offset, true),
        }
    };
    Some((MessageId::mint(stamp, result.partition, offset), offset, duplicate))
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
