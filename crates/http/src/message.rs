//! `GET /api/v1/messages` and one message: what became of it, for every group.
//!
//! Owns: their JSON, the words for a status. Leaves to others: pages and look-ups
//! (`queen_broker`), dead letters by message (`dead_letter`).

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::query::Query;
use hyper::StatusCode;
use queen_broker::browse::{MessageFilter, MessagePage};
use queen_broker::messages::{Content, GroupAt, MessageDetail, ShownMessage, Status};
use queen_core::limits::QUEUE_MODE_GROUP;
use queen_core::row::transaction_id::hash;
use queen_core::{MessageId, PartitionId, Stamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Messages of one page.
const LIMIT_DEFAULT: i64 = 200;
const LIMIT_MAX: i64 = 1000;
/// How far back a page reaches when the request does not say, seconds.
const SPAN_SECONDS: u64 = 3600;
const MINUTE_MICROS: u64 = 60_000_000;

/// What every answer says of a message.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Common<'a> {
    id: String,
    transaction_id: &'a str,
    partition_id: String,
    queue_path: String,
    queue: &'a str,
    partition: &'a str,
    namespace: &'a str,
    task: &'a str,
    offset: u64,
    status: &'static str,
    trace_id: Option<String>,
    producer_sub: Option<&'a str>,
    created_at: String,
    lease_expires_at: Option<String>,
    data: &'a RawValue,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreadable: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    txn_hash: String,
    queue_status: Option<&'static str>,
    bus_status: Value,
    payload_available: bool,
    segment: Option<Value>,
}

#[derive(Serialize)]
struct Page<'a> {
    messages: Vec<Row<'a>>,
    mode: Value,
    total: usize,
    truncated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Detail<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    is_encrypted: bool,
    error_message: Option<&'a str>,
    retry_count: u32,
    queue_config: Map<String, Value>,
    consumer_groups: Vec<Value>,
    mode: Value,
}

fn word(status: Status) -> &'static str {
    match status {
        Status::Pending => "pending",
        Status::Processing => "processing",
        Status::Completed => "completed",
        Status::DeadLetter => "dead_letter",
    }
}

fn status_of(word: &str) -> Result<Status, String> {
    Ok(match word {
        "pending" => Status::Pending,
        "processing" => Status::Processing,
        "completed" => Status::Completed,
        "dead_letter" => Status::DeadLetter,
        _ => {
            return Err(format!(
                "parameter status: {word:?} is none of pending, processing, completed, dead_letter"
            ));
        }
    })
}

/// `GET /api/v1/messages`.
pub(crate) async fn browse(call: Call) -> Result<Answer, Refusal> {
    let (query, broker) = (call.query(), call.broker());
    let number = |name| query.number(name).map_err(Refusal::bad_request);
    let limit = number("limit")?.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let skip = number("offset")?.unwrap_or(0).max(0);
    let [queue, partition, task] = ["queue", "partition", "task"].map(|name| query.get(name));
    let namespace = query.get("namespace").or_else(|| query.get("ns"));
    let status = query.get("status").map(|word| status_of(&word)).transpose();
    let (from, to) = span(query, broker.now()).map_err(Refusal::bad_request)?;
    let filter = MessageFilter {
        queue: queue.as_deref(),
        partition: partition.as_deref(),
        namespace: namespace.as_deref(),
        task: task.as_deref(),
        status: status.map_err(Refusal::bad_request)?,
        from,
        to,
    };
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    let page = broker.browse(call.tenant(), &filter, skip, limit as usize).await?;
    Ok(json(StatusCode::OK, &show_page(&page)))
}

/// From when to before when: without a word the last hour, up to the end of this minute.
fn span(query: Query<'_>, now: Stamp) -> Result<(Stamp, Stamp), String> {
    let from = query.time("from")?.unwrap_or_else(|| now.minus_seconds(SPAN_SECONDS));
    let to = match query.time("to")? {
        Some(to) => to,
        None => Stamp((now.0 / MINUTE_MICROS + 1) * MINUTE_MICROS),
    };
    Ok((from, to))
}

fn show_page(page: &MessagePage) -> Page<'_> {
    let groups = page.messages.iter().flat_map(|message| message.groups.iter());
    Page {
        mode: mode(groups),
        total: page.messages.len(),
        truncated: page.truncated,
        messages: page.messages.iter().map(row).collect(),
    }
}

/// Who consumes: workers that share the messages, groups of which each gets them all, or both.
fn mode<'g>(groups: impl Iterator<Item = &'g GroupAt>) -> Value {
    let mut names: BTreeSet<&str> = groups.map(|group| group.name.as_str()).collect();
    let shared = names.remove(QUEUE_MODE_GROUP);
    let kind = match (shared, names.is_empty()) {
        (true, true) => "queue",
        (true, false) => "hybrid",
        (false, false) => "bus",
        (false, true) => "none",
    };
    json!({"hasQueueMode": shared, "busGroupsCount": names.len(), "type": kind})
}

fn common(message: &ShownMessage) -> Common<'_> {
    let ShownMessage { queue, content, .. } = message;
    let (name, options) = (&queue.row.name, &queue.row.options);
    let leases = message.groups.iter().filter_map(|group| group.holds(message.offset));
    let payload = payload(content);
    Common {
        id: MessageId(content.id).to_string(),
        transaction_id: &content.transaction_id,
        partition_id: message.partition.to_string(),
        queue_path: format!("{name}/{}", message.partition_name),
        queue: name,
        partition: &message.partition_name,
        namespace: &options.namespace,
        task: &options.task,
        offset: message.offset.0,
        status: word(message.status),
        trace_id: content.trace_id.map(|id| MessageId(id).to_string()),
        producer_sub: content.producer.as_deref(),
        created_at: message.stamp.to_iso(),
        lease_expires_at: leases.map(|lease| lease.expires).max().map(Stamp::to_iso),
        data: payload,
        payload,
        unreadable: content.trouble.as_deref(),
    }
}

/// The JSON text that was pushed.
fn payload(content: &Content) -> &RawValue {
    serde_json::from_slice(&content.payload).unwrap_or(RawValue::NULL)
}

fn row(message: &ShownMessage) -> Row<'_> {
    let (mut queue_status, mut consumed, mut total) = (None, 0, 0);
    for group in message.groups.iter() {
        let status = group.status(message.offset);
        if group.name == QUEUE_MODE_GROUP {
            queue_status = Some(word(status));
        } else {
            total += 1;
            consumed += u64::from(status == Status::Completed);
        }
    }
    Row {
        common: common(message),
        txn_hash: format!("{:016x}", hash(&message.content.transaction_id)),
        queue_status,
        bus_status: json!({"consumedBy": consumed, "totalGroups": total}),
        payload_available: message.content.trouble.is_none(),
        segment: message.place.map(|(seq, index)| json!({"seq": seq, "frameIdx": index})),
    }
}

/// `GET /api/v1/messages/:partitionId/:transactionId`.
pub(crate) async fn detail(call: Call) -> Result<Answer, Refusal> {
    let (partition, transaction_id) = (call.param(0), call.param(1));
    let found = match partition.parse() {
        Ok(id) => call.broker().message(call.tenant(), PartitionId(id), transaction_id).await?,
        Err(_) => None,
    };
    match found {
        Some(found) => Ok(json(StatusCode::OK, &show(&found))),
        None => Err(Refusal::Bare(StatusCode::NOT_FOUND, "Message not found".to_owned())),
    }
}

fn show(found: &MessageDetail) -> Detail<'_> {
    let MessageDetail { message, letter } = found;
    let letter = letter.as_ref().map(|shown| &shown.letter.row);
    let next = message.groups.iter().filter(|group| group.next == message.offset);
    let failures = next.map(|group| group.failures).max().unwrap_or(0);
    let visited = message.groups.iter().filter(|group| group.visited);
    let groups = visited.map(|group| {
        let lease = group.holds(message.offset).map(|lease| lease.expires.to_iso());
        let consumed = message.offset < group.next;
        json!({"name": group.name, "group": group.name, "consumed": consumed,
            "leaseExpiresAt": lease})
    });
    Detail {
        common: common(message),
        is_encrypted: message.content.encrypted,
        error_message: letter.map(|row| row.error.as_str()),
        retry_count: letter.map_or(failures, |row| row.retries),
        queue_config: message.queue.row.options.to_json(),
        consumer_groups: groups.collect(),
        mode: mode(message.groups.iter()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reaches_an_hour_back_and_to_the_end_of_the_minute() {
        let now = Stamp::parse_iso("2026-03-01T09:30:20.5Z").unwrap();
        let iso = |query: &str| {
            let (from, to) = span(Query::new(Some(query)), now).unwrap();
            [from.to_iso(), to.to_iso()]
        };
        let default = ["2026-03-01T08:30:20.500000Z", "2026-03-01T09:31:00.000000Z"];
        assert_eq!(iso(""), default);
        let given = "from=2026-03-01T08:00:00Z&to=2026-03-01T10:00:00+01:00";
        assert_eq!(iso(given), ["2026-03-01T08:00:00.000000Z", "2026-03-01T09:00:00.000000Z"]);
        let bad = span(Query::new(Some("from=soon")), now).unwrap_err();
        assert_eq!(bad, "from: \"soon\" is not an ISO 8601 time");
    }

    #[test]
    fn a_status_is_one_of_its_words() {
        use Status::{Completed, DeadLetter, Pending, Processing};
        for status in [Pending, Processing, Completed, DeadLetter] {
            assert_eq!(status_of(word(status)), Ok(status));
        }
        assert!(status_of("done").unwrap_err().contains("\"done\""));
    }

    #[test]
    fn the_mode_says_who_consumes() {
        let group = |name: &str| GroupAt {
            name: name.to_owned(),
            next: queen_core::Offset(0),
            held: None,
            failures: 0,
            visited: true,
        };
        let kind = |names: &[&str]| {
            let groups: Vec<GroupAt> = names.iter().map(|name| group(name)).collect();
            mode(groups.iter().chain(groups.iter()))["type"].clone()
        };
        assert_eq!(kind(&[]), "none");
        assert_eq!(kind(&[QUEUE_MODE_GROUP]), "queue");
        assert_eq!(kind(&["a", "b"]), "bus");
        assert_eq!(kind(&["a", QUEUE_MODE_GROUP]), "hybrid");
    }
}
