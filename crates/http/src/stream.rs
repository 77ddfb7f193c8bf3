//! `/streams/v1`: the broker's side of the clients' stream runtimes.
//!
//! Owns: their JSON. Leaves to others: limits and reading (`queen_broker::stream`), grouping pushes (`push`),
//! every rule (`queen_state::stream`).
//!
//! A malformed call is a 400. A cycle that is well-formed and cannot apply is a 200 that says why. No call
//! is answered 404, which the runtimes take for a broker without the route.

use crate::ack::{PartitionText, claim as lease_claim};
use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::object;
use crate::push::{Grouped, check_transaction_id, present};
use crate::text::Text;
use hyper::StatusCode;
use queen_broker::stream::StateRow;
use queen_core::command::PushGroup;
use queen_core::frame::Frame;
use queen_core::limits::DEFAULT_PARTITION;
use queen_core::reply::{PushedGroup, PushedItem};
use queen_core::stream::{
    CLAIM_SECONDS, CLAIM_SECONDS_MAX, ClaimPartitions, ClaimStatus, ClaimedPartition, Cycle,
    CycleAck, CycleOutcome, NO_QUERY, QueryId, RegisterQuery, Registration, StateOp, StateText,
};
use queen_core::{PartitionId, Stamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Partitions of a page.
const PARTITIONS_MAX: u64 = 1000;
/// Longest answer that is made without asking for room.
const SMALL_ANSWER_BYTES: usize = 1 << 20;

fn refused(text: impl Into<String>) -> Refusal {
    Refusal::Unsuccessful(text.into())
}

/// A text member that may be absent.
fn text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>, Refusal> {
    object::given(body, name).map_err(refused)
}

fn required<'b>(body: &'b Map<String, Value>, name: &str) -> Result<&'b str, Refusal> {
    text(body, name)?.ok_or_else(|| refused(format!("{name} is required")))
}

/// A member that is a whole number, not negative.
fn number(body: &Map<String, Value>, name: &str) -> Result<Option<u64>, Refusal> {
    match body.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Number(number)) if number.as_i64().is_some_and(|number| number < 0) => {
            Ok(Some(0))
        }
        Some(other) => match other.as_u64() {
            Some(number) => Ok(Some(number)),
            None => Err(refused(format!("{name}: {other} is not a whole number"))),
        },
    }
}

/// A member that lists texts, or numbers as theirs; null and nothing are an empty list.
fn texts(body: &Map<String, Value>, name: &str) -> Result<Vec<String>, Refusal> {
    let all = match body.get(name) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(all)) => all,
        Some(other) => return Err(refused(format!("{name}: {other} is not a list"))),
    };
    let read = all.iter().map(|one| match one {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        other => Err(refused(format!("{name}: {other} is not a text"))),
    });
    read.collect()
}

/// The partition that a text names; `None` when there can be none.
fn partition(text: &str) -> Option<PartitionId> {
    text.parse().ok().map(PartitionId)
}

/// `POST /streams/v1/queries`.
pub(crate) async fn register(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let reset = object::flag(&body, "reset").map_err(refused)?.unwrap_or(false);
    let query = RegisterQuery {
        tenant: call.tenant(),
        name: required(&body, "name")?,
        source: required(&body, "source_queue")?,
        sink: text(&body, "sink_queue")?,
        config_hash: required(&body, "config_hash")?,
        reset,
    };
    let registered = call.broker().register_query(&query).await?;
    let (id, name) = (registered.query.to_string(), query.name);
    if registered.how == Registration::OtherConfig {
        let error = format!(
            "config_hash mismatch: query {name:?} is registered with another operator chain, which made its \
             state: send reset:true to wipe that, or take another name"
        );
        let body = json!({"success": false, "query_id": id, "name": name, "error": error});
        return Ok(json(StatusCode::CONFLICT, &body));
    }
    let body = json!({
        "success": true,
        "query_id": id,
        "name": name,
        "config_hash": query.config_hash,
        "fresh": registered.how == Registration::Fresh,
        "reset": registered.how == Registration::Reset,
    });
    Ok(json(StatusCode::OK, &body))
}

#[derive(Serialize)]
struct ShownRow<'a> {
    key: &'a str,
    value: &'a RawValue,
    updated_at: String,
}

/// When the window of a value ends: its number `windowEnd`.
fn window_end(value: &[u8]) -> Option<f64> {
    #[derive(Deserialize)]
    struct Window {
        #[serde(default, rename = "windowEnd")]
        end: Value,
    }
    // Members could also stand in a list, in their order.
    if value.first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice::<Window>(value).ok()?.end.as_f64()
}

/// `POST /streams/v1/state/get`.
pub(crate) async fn state(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let query = QueryId::parse(required(&body, "query_id")?);
    let of = match body.get("partition_id") {
        Some(Value::Number(number)) => number.as_u64().map(PartitionId),
        _ => partition(required(&body, "partition_id")?),
    };
    let keys = texts(&body, "keys")?;
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let prefix = text(&body, "key_prefix")?.unwrap_or_default();
    let ripe = match body.get("ripe_at_or_before") {
        None | Some(Value::Null) => None,
        Some(Value::Number(at)) => at.as_f64(),
        Some(other) => return Err(refused(format!("ripe_at_or_before: {other} is not a number"))),
    };
    // An id that no partition has finds nothing.
    let of = of.unwrap_or_default();
    let rows = match query {
        Some(query) => call.broker().stream_state(call.tenant(), query, of, &keys, prefix).await?,
        None => None,
    };
    let mut rows = rows.ok_or_else(|| refused(NO_QUERY))?;
    if let Some(at) = ripe {
        rows.retain(|row| window_end(&row.value).is_some_and(|end| end <= at));
    }
    let bytes = rows.iter().map(|row| row.key.len() + row.value.len() + 64).sum::<usize>();
    if bytes > SMALL_ANSWER_BYTES {
        call.room = Some(call.face.room_for(bytes)?);
    }
    let shown = |row: &'_ StateRow| -> Option<String> {
        let value = serde_json::from_slice(&row.value).unwrap_or(RawValue::NULL);
        let shown = ShownRow { key: &row.key, value, updated_at: row.updated.to_iso() };
        serde_json::to_string(&shown).ok()
    };
    let mut out = String::with_capacity(bytes + 64);
    out.push_str("{\"success\":true,\"rows\":[");
    for (at, row) in rows.iter().filter_map(shown).enumerate() {
        out.push_str(if at == 0 { "" } else { "," });
        out.push_str(&row);
    }
    out.push_str("]}");
    Ok(crate::answer::json_text(StatusCode::OK, out))
}

/// `POST /streams/v1/state/partitions`.
pub(crate) async fn partitions(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let query = QueryId::parse(required(&body, "query_id")?);
    let untouched = number(&body, "untouched_for_ms")?.unwrap_or(0);
    let limit = number(&body, "limit")?.unwrap_or(PARTITIONS_MAX).clamp(1, PARTITIONS_MAX);
    let after = match text(&body, "after")? {
        None => PartitionId(0),
        Some(after) => partition(after)
            .ok_or_else(|| refused(format!("after: {after:?} is no partition's id")))?,
    };
    let page = match query {
        Some(query) => {
            let (tenant, limit) = (call.tenant(), limit as usize);
            call.broker().stream_partitions(tenant, query, untouched, after, limit).await?
        }
        None => None,
    };
    let page = page.ok_or_else(|| refused(NO_QUERY))?;
    let shown = page.partitions.iter().map(|found| {
        json!({
            "partition_id": found.id.to_string(),
            "partition": found.name,
            "queue": found.queue,
            "updated_at": found.updated.to_iso(),
        })
    });
    let shown: Vec<Value> = shown.collect();
    let next = page.next.map(|id| id.to_string());
    Ok(json(StatusCode::OK, &json!({"success": true, "partitions": shown, "next": next})))
}

/// `POST /streams/v1/claim`.
pub(crate) async fn claim(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let query = QueryId::parse(required(&body, "query_id")?);
    let asked = texts(&body, "partition_ids")?;
    let seconds = number(&body, "lease_seconds")?.filter(|seconds| *seconds > 0);
    let seconds = seconds.unwrap_or(u64::from(CLAIM_SECONDS)).min(u64::from(CLAIM_SECONDS_MAX));
    let query = query.ok_or_else(|| refused(NO_QUERY))?;
    let claim = ClaimPartitions {
        tenant: call.tenant(),
        query,
        partitions: asked.iter().filter_map(|text| partition(text)).collect(),
        group: text(&body, "consumer_group")?,
        seconds: seconds as u32,
    };
    let claimed = call.broker().claim_partitions(&claim).await?;
    let claimed = claimed.ok_or_else(|| refused(NO_QUERY))?;
    let mut found = claimed.partitions.iter();
    // An id that no partition has was not asked for.
    let shown = asked.iter().map(|text| {
        let found = partition(text).and_then(|_| found.next());
        shown_claim(text, found)
    });
    let shown: Vec<Value> = shown.collect();
    let body = json!({
        "success": true,
        "lease_id": claimed.lease.to_string(),
        "lease_seconds": seconds,
        "now_ms": claimed.stamp.0 / 1000,
        "partitions": shown,
    });
    Ok(json(StatusCode::OK, &body))
}

fn shown_claim(asked: &str, found: Option<&ClaimedPartition>) -> Value {
    let status = found.map_or(ClaimStatus::Missing, |found| found.status);
    let (word, until) = match status {
        ClaimStatus::Claimed(until) => ("claimed", Some(until)),
        ClaimStatus::Busy(until) => ("busy", Some(until)),
        ClaimStatus::Backlog => ("backlog", None),
        ClaimStatus::Missing => ("missing", None),
    };
    json!({
        "partition_id": asked,
        "partition": found.map_or("", |found| &*found.name),
        "status": word,
        "lease_expires_at": until.map(Stamp::to_iso),
    })
}

#[derive(Deserialize)]
struct CycleBody<'a> {
    #[serde(borrow, default)]
    query_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition_id: Option<PartitionText<'a>>,
    #[serde(borrow, default)]
    consumer_group: Option<Text<'a>>,
    #[serde(borrow, default)]
    state_ops: Option<Vec<AskedOp<'a>>>,
    #[serde(borrow, default)]
    push_items: Option<Vec<PushItem<'a>>>,
    #[serde(borrow, default)]
    ack: Option<AskedAck<'a>>,
    #[serde(default)]
    release_lease: Option<bool>,
}

#[derive(Deserialize)]
struct AskedOp<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Option<Text<'a>>,
    #[serde(borrow, default)]
    key: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PushItem<'a> {
    #[serde(borrow, default)]
    queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition: Option<Text<'a>>,
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    transaction_id: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AskedAck<'a> {
    #[serde(borrow, default)]
    transaction_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    lease_id: Option<Text<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
    #[serde(default)]
    count: Option<i64>,
}

impl AskedAck<'_> {
    fn count(&self) -> u64 {
        self.count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }

    fn command(&self, release: bool) -> CycleAck<'_> {
        let status = self.status.as_deref();
        CycleAck {
            lease: lease_claim(self.lease_id.as_deref()),
            transaction_id: self.transaction_id.as_deref().unwrap_or_default(),
            count: self.count(),
            completed: matches!(status, None | Some("completed" | "success" | "acked" | "ok")),
            release,
        }
    }
}

/// `POST /streams/v1/cycle`.
pub(crate) async fn cycle(mut call: Call) -> Result<Answer, Refusal> {
    let bytes = call.body().await?;
    if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(Refusal::bad_body("the body is not a cycle: it is a list"));
    }
    let body: CycleBody<'_> = serde_json::from_slice(&bytes)
        .map_err(|e| Refusal::bad_body(format!("the body is not a cycle: {e}")))?;
    let query = given(&body.query_id).ok_or_else(|| refused("query_id is required"))?;
    let partition = match &body.partition_id {
        None => return Err(refused("partition_id is required")),
        Some(PartitionText::Text(text)) if text.is_empty() => {
            return Err(refused("partition_id is required"));
        }
        Some(partition) => partition,
    };
    let ops = state_ops(body.state_ops.as_deref().unwrap_or_default())?;
    let items = body.push_items.as_deref().unwrap_or_default();
    let pushes = grouped(items, bytes.len(), call.producer())?;
    let command = Cycle {
        tenant: call.tenant(),
        // An id that nothing has is that of nothing that is there.
        query: QueryId::parse(query).unwrap_or_default(),
        partition: partition.id().unwrap_or_default(),
        group: given(&body.consumer_group),
        ops,
        pushes: pushes.commands(),
        ack: body.ack.as_ref().map(|ack| ack.command(body.release_lease.unwrap_or(true))),
    };
    let outcome = call.broker().cycle(&command).await?;
    Ok(answer(query, partition, &command, &outcome))
}

/// The changes of state that a cycle asks for.
fn state_ops<'b>(asked: &'b [AskedOp<'_>]) -> Result<Vec<StateOp<'b>>, Refusal> {
    let ops = asked.iter().enumerate().map(|(index, op)| {
        let key = op.key.as_deref();
        let key = key.ok_or_else(|| refused(format!("state_ops {index}: it names no key")))?;
        match op.kind.as_deref() {
            Some("upsert") => {
                let value = op.value.unwrap_or(RawValue::NULL).get();
                Ok(StateOp { key, value: Some(StateText::plain(value)) })
            }
            Some("delete") => Ok(StateOp { key, value: None }),
            kind => {
                let kind = kind.unwrap_or_default();
                Err(refused(format!("state_ops {index}: type {kind:?}: upsert or delete")))
            }
        }
    });
    ops.collect()
}

/// A text that is not empty.
fn given<'b>(text: &'b Option<Text<'_>>) -> Option<&'b str> {
    text.as_deref().filter(|text| !text.is_empty())
}

/// The messages that a cycle pushes.
fn grouped<'b>(
    items: &'b [PushItem<'_>],
    body_bytes: usize,
    producer: Option<&'b str>,
) -> Result<Grouped<'b>, Refusal> {
    let mut grouped = Grouped::new(items.len(), body_bytes, producer);
    for (index, item) in items.iter().enumerate() {
        let queue = given(&item.queue);
        let queue =
            queue.ok_or_else(|| refused(format!("push_items {index}: it names no queue")))?;
        let transaction_id = given(&item.transaction_id).or(given(&item.message_id));
        check_transaction_id(index, transaction_id)?;
        let payload = item.payload.or(item.data).map_or("{}", RawValue::get).as_bytes();
        let frame = Frame { transaction_id, payload, ..Frame::default() };
        grouped.add(queue, given(&item.partition).unwrap_or(DEFAULT_PARTITION), &frame);
    }
    Ok(grouped)
}

fn answer(
    query: &str,
    partition: &PartitionText<'_>,
    cycle: &Cycle<'_>,
    outcome: &CycleOutcome,
) -> Answer {
    let mut body = json!({
        "success": outcome.result.is_ok(),
        "query_id": query,
        "partition_id": match partition {
            PartitionText::Number(number) => number.to_string(),
            PartitionText::Text(text) => text.to_string(),
        },
        "queueName": outcome.queue,
        "state_ops_applied": 0,
        "push_results": [],
        "ack_result": null,
    });
    match &outcome.result {
        Ok(done) => {
            let pushes = cycle.pushes.iter().zip(&done.pushes);
            body["push_results"] =
                pushes.map(|(asked, pushed)| shown_push(asked, pushed)).collect();
            body["state_ops_applied"] = cycle.ops.len().into();
            if let Some(ack) = &cycle.ack {
                body["ack_result"] = json!({"success": true, "count": ack.count,
                    "lease_released": done.released, "dlq": false});
            }
        }
        Err(refusal) => body["error"] = refusal.to_string().into(),
    }
    json(StatusCode::OK, &body)
}

/// What became of the messages of a cycle that went to one partition.
fn shown_push(asked: &PushGroup<'_>, pushed: &PushedGroup) -> Value {
    let there = |item: &PushedItem| match item {
        PushedItem::Queued(_) => None,
        PushedItem::Duplicate { offset, .. } => Some(*offset),
    };
    // When all of them are, the first one's place is where they were stored before.
    let all = pushed.items.iter().map(there).collect::<Option<Vec<_>>>();
    let stored = all.and_then(|all| all.first().copied());
    json!({
        "queue": asked.queue,
        "partition": asked.partition,
        "status": if stored.is_some() { "duplicate" } else { "queued" },
        "baseOffset": stored.unwrap_or(pushed.first_offset).0,
        "count": asked.count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_number_named_window_end_says_when_a_window_ends() {
        let ends = |json: &str| window_end(json.as_bytes());
        assert_eq!(ends("{\"acc\":[1],\"windowEnd\":1754301600000}"), Some(1_754_301_600_000.0));
        assert_eq!(ends("{\"windowEnd\":-1.5}"), Some(-1.5));
        for none in ["{}", "{\"windowEnd\":\"7\"}", "{\"windowEnd\":null}", "[7]", "7", "null"] {
            assert_eq!(ends(none), None, "{none}");
        }
    }
}
