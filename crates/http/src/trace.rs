//! Trace routes: recording an event of a message, and finding events by message or by name.
//!
//! Owns: their JSON. Leaves to others: limits and pages (`queen_broker::traces`), the rules
//! (`queen_state::trace`).

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::object;
use hyper::StatusCode;
use queen_broker::traces::{Event, event_id};
use queen_core::trace::RecordTrace;
use queen_core::{PartitionId, Stamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// Events of one page.
const EVENTS_DEFAULT: i64 = 100;
/// Names of one page.
const NAMES_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 1000;

#[derive(Serialize)]
struct Shown<'a> {
    id: String,
    event_type: &'a str,
    data: &'a RawValue,
    consumer_group: Option<&'a str>,
    worker_id: Option<&'a str>,
    created_at: String,
    trace_names: &'a [String],
}

#[derive(Serialize)]
struct Found<'a> {
    #[serde(flatten)]
    shown: Shown<'a>,
    transaction_id: &'a str,
    partition_id: String,
    queue_name: &'a str,
    partition_name: &'a str,
    message_payload: Value,
}

fn show((stamp, row): &Event) -> Shown<'_> {
    Shown {
        id: event_id(*stamp).to_string(),
        event_type: &row.event_type,
        data: serde_json::from_str(&row.data).unwrap_or(RawValue::NULL),
        consumer_group: row.group.as_deref(),
        worker_id: row.worker.as_deref(),
        created_at: stamp.to_iso(),
        trace_names: &row.names,
    }
}

fn find(event: &Event) -> Found<'_> {
    let row = &event.1;
    Found {
        shown: show(event),
        transaction_id: &row.transaction_id,
        partition_id: row.partition.to_string(),
        queue_name: &row.queue,
        partition_name: &row.partition_name,
        message_payload: Value::Null,
    }
}

/// `POST /api/v1/traces`.
pub(crate) async fn record(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let Some(transaction_id) = text(&body, "transactionId")? else {
        return Err(missing("transactionId"));
    };
    let partition = partition(&body)?;
    let Some(data) = body.get("data").filter(|data| !data.is_null()) else {
        return Err(missing("data"));
    };
    let data = data.to_string();
    let event = RecordTrace {
        tenant: call.tenant(),
        partition,
        transaction_id,
        group: text(&body, "consumerGroup")?,
        worker: text(&body, "workerId")?,
        event_type: text(&body, "eventType")?.unwrap_or("info"),
        names: names(&body)?,
        data: &data,
    };
    let stamp: Stamp = call.broker().record_trace(&event).await?;
    let body = json!({"success": true, "traceId": event_id(stamp).to_string()});
    Ok(json(StatusCode::CREATED, &body))
}

fn missing(name: &str) -> Refusal {
    Refusal::bad_request(format!("{name} is required"))
}

/// A text member that may be absent.
fn text<'b>(body: &'b Map<String, Value>, name: &str) -> Result<Option<&'b str>, Refusal> {
    object::given(body, name).map_err(Refusal::bad_request)
}

fn partition(body: &Map<String, Value>) -> Result<PartitionId, Refusal> {
    let id = match body.get("partitionId") {
        None | Some(Value::Null) => return Err(missing("partitionId")),
        Some(Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_u64(),
    };
    let given = || Refusal::bad_request(format!("partitionId: {} is none", body["partitionId"]));
    id.map(PartitionId).ok_or_else(given)
}

/// `traceNames`: a text or several; one that is named twice counts once.
fn names(body: &Map<String, Value>) -> Result<Vec<&str>, Refusal> {
    let all = match body.get("traceNames") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(all)) => all,
        Some(one) => std::slice::from_ref(one),
    };
    let mut names = Vec::with_capacity(all.len());
    for name in all {
        let Some(name) = name.as_str() else {
            return Err(Refusal::bad_request(format!("traceNames: {name} is not a text")));
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    Ok(names)
}

/// `limit` and `offset` of a page.
fn page(call: &Call, limit: i64) -> Result<(usize, usize), Refusal> {
    let query = call.query();
    let number = |name| query.number(name).map_err(Refusal::bad_request);
    let limit = number("limit")?.unwrap_or(limit).clamp(1, LIMIT_MAX);
    let offset = number("offset")?.unwrap_or(0).max(0);
    Ok((usize::try_from(offset).unwrap_or(usize::MAX), limit as usize))
}

/// `GET /api/v1/traces/:partitionId/:transactionId`.
pub(crate) async fn of_message(call: Call) -> Result<Answer, Refusal> {
    let events = match call.param(0).parse() {
        Ok(id) => call.broker().traces_of(call.tenant(), PartitionId(id), call.param(1))?,
        Err(_) => Vec::new(),
    };
    let shown: Vec<Shown<'_>> = events.iter().map(show).collect();
    Ok(json(StatusCode::OK, &json!({ "traces": shown })))
}

/// `GET /api/v1/traces/by-name/:name`.
pub(crate) async fn by_name(call: Call) -> Result<Answer, Refusal> {
    let (offset, limit) = page(&call, EVENTS_DEFAULT)?;
    let name = call.param(0);
    let (events, all) = call.broker().traces_named(call.tenant(), name, offset, limit).await?;
    let found: Vec<Found<'_>> = events.iter().map(find).collect();
    let body = json!({"traces": found, "total": all.events,
        "pagination": {"limit": limit, "offset": offset}});
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/traces/names`.
pub(crate) async fn all_names(call: Call) -> Result<Answer, Refusal> {
    let (offset, limit) = page(&call, NAMES_DEFAULT)?;
    let search = call.query().get("search");
    let (names, total) =
        call.broker().trace_names(call.tenant(), search.as_deref(), offset, limit).await?;
    let names: Vec<Value> = names
        .iter()
        .map(|(name, row)| {
            json!({"trace_name": name, "trace_count": row.events, "message_count": row.messages,
                "last_seen": row.last.to_iso()})
        })
        .collect();
    let body = json!({"trace_names": names, "total": total,
        "pagination": {"limit": limit, "offset": offset}});
    Ok(json(StatusCode::OK, &body))
}
