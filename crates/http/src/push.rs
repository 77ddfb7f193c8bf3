//! `POST /api/v1/push`: items in, one result per item out.
//!
//! Owns: reading the items without touching their payloads, grouping them by (queue, partition),
//! writing the answer. Leaves to others: dedup and offsets (`queen-state`).
//!
//! The payload is cut out of the body as it stands there, so its bytes are the producer's own.

use crate::answer::{Answer, Refusal, json_text};
use crate::call::Call;
use crate::text::{Text, put_json_str, put_number, put_uuid};
use hyper::StatusCode;
use queen_core::command::{Push, PushGroup};
use queen_core::frame::Frame;
use queen_core::limits::{DEFAULT_PARTITION, NAME_BYTES_MAX, TRANSACTION_ID_BYTES_MAX};
use queen_core::reply::{PushedGroup, PushedItem};
use queen_core::{Code, Error, MessageId, TenantId};
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
fn present<'de: 'a, 'a, D>(from: D) -> Result<Option<&'a RawValue>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    <&RawValue>::deserialize(from).map(Some)
}

/// The items of one request that go to one partition.
struct Group<'a> {
    queue: &'a str,
    partition: &'a str,
    count: u32,
    has_transaction_ids: bool,
    text_bytes: usize,
    frames: Vec<u8>,
}

/// Where an item went: its group, and its number in it.
#[derive(Clone, Copy)]
struct Slot {
    group: u32,
    number: u32,
}

struct Grouped<'a> {
    groups: Vec<Group<'a>>,
    slots: Vec<Slot>,
}

/// `POST /api/v1/push`.
pub(crate) async fn push(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let items = read(&body)?;
    if items.is_empty() {
        return Ok(json_text(StatusCode::CREATED, &b"[]"[..]));
    }
    let grouped = group(&items, body.len())?;
    let results = call.broker().push(command(&grouped, call.tenant())).await?;
    Ok(json_text(StatusCode::CREATED, write(&items, &grouped, &results)?))
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
    let id_bytes = item.transaction_id.as_deref().map_or(0, str::len);
    if id_bytes > TRANSACTION_ID_BYTES_MAX {
        return Err(Refusal::bad_request(format!(
            "item {index}: transactionId has {id_bytes} bytes, at most {TRANSACTION_ID_BYTES_MAX}"
        )));
    }
    Ok((queue, partition, payload.get()))
}

/// 413 for names that do not fit into a key.
pub(crate) fn name_too_long(what: &str, bytes: usize) -> Refusal {
    let text = format!(
        "{what}: the names of queue and partition (or group) have {bytes} bytes together, at most {NAME_BYTES_MAX}"
    );
    Refusal::Plain(Error::new(Code::NameTooLong, text))
}

fn group<'i>(items: &'i [Item<'_>], body_bytes: usize) -> Result<Grouped<'i>, Refusal> {
    let mut groups: Vec<Group<'i>> = Vec::new();
    let mut slots = Vec::with_capacity(items.len());
    // Only filled once a request has more partitions than one looks through faster than one hashes.
    let mut places: HashMap<(&'i str, &'i str), usize> = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let (queue, partition, payload) = check(index, item)?;
        let here = |group: &Group<'_>| group.partition == partition && group.queue == queue;
        let found = match groups.last() {
            Some(last) if here(last) => Some(groups.len() - 1),
            _ if places.is_empty() => groups.iter().position(here),
            _ => places.get(&(queue, partition)).copied(),
        };
        let at = found.unwrap_or_else(|| {
            let room = if groups.is_empty() { body_bytes.min(1 << 20) } else { payload.len() + 64 };
            groups.push(Group {
                queue,
                partition,
                count: 0,
                has_transaction_ids: false,
                text_bytes: 0,
                frames: Vec::with_capacity(room),
            });
            let new = groups.len() - 1;
            if new >= 8 {
                if places.is_empty() {
                    let known = groups.iter().enumerate();
                    places.extend(known.map(|(at, group)| ((group.queue, group.partition), at)));
                }
                places.insert((queue, partition), new);
            }
            new
        });
        let group = &mut groups[at];
        slots.push(Slot { group: at as u32, number: group.count });
        group.add(item.transaction_id.as_deref().filter(|id| !id.is_empty()), payload);
    }
    Ok(Grouped { groups, slots })
}

impl Group<'_> {
    fn add(&mut self, transaction_id: Option<&str>, payload: &str) {
        self.count += 1;
        self.has_transaction_ids |= transaction_id.is_some();
        let frame = Frame { transaction_id, payload: payload.as_bytes(), ..Frame::default() };
        self.text_bytes += frame.text_bytes();
        frame.encode(&mut self.frames);
    }
}

fn command<'g>(grouped: &'g Grouped<'_>, tenant: TenantId) -> Push<'g> {
    let groups = grouped.groups.iter().map(|group| PushGroup {
        queue: group.queue,
        partition: group.partition,
        count: group.count,
        has_transaction_ids: group.has_transaction_ids,
        text_bytes: u32::try_from(group.text_bytes).unwrap_or(u32::MAX),
        frames: &group.frames,
    });
    Push { tenant, groups: groups.collect() }
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
        let (id, offset, status) = result
            .and_then(|result| place(result, slot.number))
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
        out.push_str(status);
        out.push_str("\",\"offset\":");
        put_number(&mut out, offset);
        out.push('}');
    }
    out.push(']');
    Ok(out)
}

/// Id, offset and status of the group's item of this number.
fn place(result: &PushedGroup, number: u32) -> Option<(MessageId, u64, &'static str)> {
    let (stamp, offset, status) = if result.items.is_empty() {
        (result.stamp, result.first_offset.plus(u64::from(number)), "queued")
    } else {
        match result.items.get(number as usize)? {
            PushedItem::Queued(offset) => (result.stamp, *offset, "queued"),
            PushedItem::Duplicate { offset, stamp } => (*stamp, *offset, "duplicate"),
        }
    };
    Some((MessageId::mint(stamp, result.partition, offset), offset.0, status))
}

#[cfg(test)]
#[path = "push_tests.rs"]
mod tests;
