//! `GET /api/v1/pop/queue/:queue[/partition/:partition]`: leasing a batch.
//!
//! Owns: the parameters, the shape of the answer, and that an answer which never went out gives its
//! batch back. Leaves to others: what is claimed (`queen-state`), waiting (`queen-broker`).

use crate::answer::{Answer, Held, Refusal, json_held, json_text, no_content};
use crate::call::Call;
use crate::push::name_too_long;
use crate::query::{on, whole};
use crate::text::{put_json_str, put_number, put_uuid};
use bytes::Bytes;
use hyper::StatusCode;
use queen_broker::{Delivery, Message, Undelivered};
use queen_core::command::{GroupStart, Pop};
use queen_core::limits::{
    NAME_BYTES_MAX, POP_BATCH_DEFAULT, POP_BATCH_MAX, POP_PARTITIONS_MAX, QUEUE_MODE_GROUP,
};
use queen_core::{MessageId, Stamp};
use std::time::Duration;

/// Longest wait that a request may ask for.
const WAIT_MS_MAX: i64 = 60_000;
/// Wait when the request does not say how long.
const WAIT_MS_DEFAULT: i64 = 30_000;

/// What a request asks for, its names apart.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wish {
    batch: u32,
    partitions: u32,
    wait: Option<Duration>,
    group: Option<String>,
    lease_seconds: Option<u32>,
    auto_ack: bool,
    start: GroupStart,
}

/// `GET /api/v1/pop/queue/:queue`.
pub(crate) async fn queue(call: Call) -> Result<Answer, Refusal> {
    pop(call, false).await
}

/// `GET /api/v1/pop/queue/:queue/partition/:partition`.
pub(crate) async fn partition(call: Call) -> Result<Answer, Refusal> {
    pop(call, true).await
}

/// `GET /api/v1/pop`: discovery by label.
pub(crate) async fn discovery(call: Call) -> Result<Answer, Refusal> {
    let query = call.query();
    let text = match (query.get("namespace"), query.get("task")) {
        (None, None) => "namespace or task is required",
        _ => "popping by namespace or task is not supported yet: pop the queues by name",
    };
    Err(Refusal::Pop(text.to_owned()))
}

async fn pop(call: Call, fixed: bool) -> Result<Answer, Refusal> {
    let wish = wish(&call).map_err(Refusal::Pop)?;
    let queue = call.param(0);
    let partition = fixed.then(|| call.param(1));
    let longer = partition.map_or(0, str::len).max(wish.group.as_deref().map_or(0, str::len));
    if queue.len() + longer > NAME_BYTES_MAX {
        return Err(name_too_long("the pop", queue.len() + longer));
    }
    let pop = Pop {
        tenant: call.tenant(),
        queue,
        partition,
        group: wish.group.as_deref(),
        batch: wish.batch,
        partitions: if fixed { 1 } else { wish.partitions },
        lease_seconds: wish.lease_seconds,
        auto_ack: wish.auto_ack,
        start: wish.start,
    };
    let Some(delivery) = call.broker().pop(&pop, wish.wait).await? else {
        return Ok(no_content());
    };
    let body = Bytes::from(write(queue, wish.group.as_deref(), &delivery));
    Ok(match delivery.undelivered {
        Some(claim) => json_held(StatusCode::OK, body, Box::new(OnTheWay(claim))),
        None => json_text(StatusCode::OK, body),
    })
}

/// A batch whose answer is on its way.
struct OnTheWay(Undelivered);

impl Held for OnTheWay {
    fn sent(self: Box<Self>) {
        self.0.delivered();
    }
}

fn wish(call: &Call) -> Result<Wish, String> {
    let mut wish = Wish {
        batch: POP_BATCH_DEFAULT,
        partitions: 1,
        wait: None,
        group: None,
        lease_seconds: None,
        auto_ack: false,
        start: GroupStart::New,
    };
    let (mut wait, mut wait_ms, mut from) = (false, WAIT_MS_DEFAULT, None);
    for (name, value) in call.query().pairs().filter(|(_, value)| !value.is_empty()) {
        match &*name {
            "batch" => wish.batch = within(&name, &value, POP_BATCH_MAX)?,
            "partitions" => wish.partitions = within(&name, &value, POP_PARTITIONS_MAX)?,
            "wait" => wait = on(&value),
            "timeout" => wait_ms = whole(&name, &value)?.clamp(0, WAIT_MS_MAX),
            "consumerGroup" => {
                wish.group = Some(value.into_owned()).filter(|group| group != QUEUE_MODE_GROUP);
            }
            "leaseSeconds" => {
                let seconds = whole(&name, &value)?.min(i64::from(u32::MAX));
                wish.lease_seconds = u32::try_from(seconds).ok().filter(|seconds| *seconds > 0);
            }
            "autoAck" | "commitOnDelivery" => wish.auto_ack |= on(&value),
            "subscriptionMode" => wish.start = mode(&value),
            "subscriptionFrom" => from = Some(start_from(&value)?),
            "conflation" if on(&value) => {
                return Err("conflation is not supported yet: pop without it".to_owned());
            }
            _ => {}
        }
    }
    wish.start = from.unwrap_or(wish.start);
    wish.wait = wait.then(|| Duration::from_millis(wait_ms as u64));
    Ok(wish)
}

/// A count from 1 to `max`: a larger one is held there, a smaller one refused.
fn within(name: &str, value: &str, max: u32) -> Result<u32, String> {
    match whole(name, value)? {
        count if count < 1 => Err(format!("parameter {name}: {count} is not at least 1")),
        count => Ok(u32::try_from(count).unwrap_or(max).min(max)),
    }
}

pub(crate) fn mode(text: &str) -> GroupStart {
    match text {
        "new" | "new-only" => GroupStart::New,
        _ => GroupStart::All,
    }
}

fn start_from(text: &str) -> Result<GroupStart, String> {
    if text == "now" {
        return Ok(GroupStart::New);
    }
    // An offset's `+` arrives as a blank when the client did not encode it.
    Stamp::parse_iso(text)
        .or_else(|| Stamp::parse_iso(&text.replace(' ', "+")))
        .map(GroupStart::From)
        .ok_or_else(|| {
            format!("parameter subscriptionFrom: {text:?} is neither now nor an ISO 8601 time")
        })
}

/// What the messages of a batch repeat.
struct Common {
    /// From the creation's closing quote to the offset.
    tail: String,
    /// The stamp written last, and its text.
    created: (Stamp, String),
}

fn write(queue: &str, group: Option<&str>, delivery: &Delivery) -> String {
    let payloads: usize = delivery.claims.iter().map(|claim| claim.bytes()).sum();
    let mut out = String::with_capacity(512 + payloads + delivery.messages() as usize * 420);
    let mut lease = String::from("\"");
    if let Some(id) = delivery.lease {
        put_uuid(&mut lease, &id.0);
    }
    lease.push('"');
    let group = group.unwrap_or(QUEUE_MODE_GROUP);
    out.push_str("{\"success\":true,\"queue\":");
    put_json_str(&mut out, queue);
    if let Some(first) = delivery.claims.first() {
        out.push_str(",\"partition\":");
        put_json_str(&mut out, &first.claim.partition_name);
        out.push_str(",\"partitionId\":\"");
        put_number(&mut out, first.claim.partition.0);
        out.push('"');
    }
    out.push_str(",\"leaseId\":");
    out.push_str(&lease);
    out.push_str(",\"consumerGroup\":");
    put_json_str(&mut out, group);
    out.push_str(",\"partitionsClaimed\":");
    put_number(&mut out, delivery.claims.len() as u64);
    out.push_str(",\"messages\":[");
    let mut comma = false;
    for delivered in &delivery.claims {
        let claim = &delivered.claim;
        let mut tail = String::from("\",\"partitionId\":\"");
        put_number(&mut tail, claim.partition.0);
        tail.push_str("\",\"partition\":");
        put_json_str(&mut tail, &claim.partition_name);
        tail.push_str(",\"leaseId\":");
        tail.push_str(&lease);
        tail.push_str(",\"consumerGroup\":");
        put_json_str(&mut tail, group);
        tail.push_str(",\"deliveryAttempt\":");
        put_number(&mut tail, u64::from(claim.attempt));
        tail.push_str(",\"offset\":");
        let mut common = Common { tail, created: (Stamp::ZERO, String::new()) };
        for message in delivered.messages() {
            if std::mem::replace(&mut comma, true) {
                out.push(',');
            }
            let id = MessageId::mint(message.stamp, claim.partition, message.offset);
            write_message(&mut out, &mut common, id, &message);
        }
    }
    out.push_str("]}");
    out
}

fn write_message(out: &mut String, common: &mut Common, minted: MessageId, message: &Message<'_>) {
    let frame = &message.frame;
    let id = frame.message_id.unwrap_or(minted.0);
    out.push_str("{\"id\":\"");
    put_uuid(out, &id);
    out.push_str("\",\"transactionId\":");
    match frame.transaction_id {
        Some(given) => put_json_str(out, given),
        None => {
            out.push('"');
            put_uuid(out, &id);
            out.push('"');
        }
    }
    match frame.trace_id {
        None => out.push_str(",\"traceId\":null,\"data\":"),
        Some(trace) => {
            out.push_str(",\"traceId\":\"");
            put_uuid(out, &trace);
            out.push_str("\",\"data\":");
        }
    }
    // A payload is the JSON text that was pushed.
    match std::str::from_utf8(frame.payload) {
        Ok(payload) if !payload.is_empty() => out.push_str(payload),
        _ => out.push_str("null"),
    }
    out.push_str(",\"producerSub\":");
    match frame.producer {
        Some(producer) => put_json_str(out, producer),
        None => out.push_str("null"),
    }
    out.push_str(",\"createdAt\":\"");
    if common.created.0 != message.stamp || common.created.1.is_empty() {
        common.created = (message.stamp, message.stamp.to_iso());
    }
    out.push_str(&common.created.1);
    out.push_str(&common.tail);
    put_number(out, message.offset.0);
    out.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_held_within_their_range_and_never_below_one() {
        assert_eq!(within("batch", "7", 100), Ok(7));
        assert_eq!(within("batch", "700", 100), Ok(100));
        assert_eq!(within("batch", "0", 100).unwrap_err(), "parameter batch: 0 is not at least 1");
        assert!(within("batch", "x", 100).is_err());
    }

    #[test]
    fn a_group_starts_where_its_mode_or_time_says() {
        assert_eq!((mode("new"), mode("new-only")), (GroupStart::New, GroupStart::New));
        assert_eq!((mode("all"), mode("from_beginning")), (GroupStart::All, GroupStart::All));
        assert_eq!(start_from("now"), Ok(GroupStart::New));
        let at = GroupStart::From(Stamp(1_000_000));
        assert_eq!(start_from("1970-01-01T00:00:01.000000Z"), Ok(at));
        assert_eq!(start_from("1970-01-01T02:00:01 02:00"), Ok(at));
        assert!(start_from("soon").unwrap_err().contains("\"soon\""));
    }
}
