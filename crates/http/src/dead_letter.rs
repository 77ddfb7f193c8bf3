//! Dead letter routes: list, replay, delete, purge.
//!
//! Owns: their JSON. Leaves to others: pages (`queen_broker::dead_letters`), rules (`queen-state`).

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::object;
use hyper::StatusCode;
use queen_broker::dead_letters::{LetterFilter, ShownLetter};
use queen_core::command::{DeadLetterRef, ReplayDeadLetter};
use queen_core::reply::{PushedItem, Replayed};
use queen_core::{MessageId, PartitionId};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Letters of one page.
const LIMIT_DEFAULT: i64 = 100;
const LIMIT_MAX: i64 = 1000;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    id: String,
    transaction_id: &'a str,
    partition_id: String,
    queue: &'a str,
    partition: &'a str,
    consumer_group: &'a str,
    error_message: &'a str,
    retry_count: u32,
    data: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    undecryptable: Option<String>,
    trace_id: Option<String>,
    producer_sub: Option<&'a str>,
    created_at: String,
    failed_at: String,
}

#[derive(Serialize)]
struct Page<'a> {
    messages: Vec<Shown<'a>>,
    pagination: Value,
    total: usize,
}

fn show(shown: &ShownLetter) -> Shown<'_> {
    let (queue, row) = (&shown.queue, &shown.letter.row);
    Shown {
        id: uuid(row.id),
        transaction_id: &row.transaction_id,
        partition_id: row.partition.to_string(),
        queue,
        partition: &row.partition_name,
        consumer_group: &row.group,
        error_message: &row.error,
        retry_count: row.retries,
        data: serde_json::from_slice(&row.payload).unwrap_or(RawValue::NULL),
        undecryptable: shown.stuck.as_ref().map(ToString::to_string),
        trace_id: row.trace_id.map(uuid),
        producer_sub: row.producer.as_deref(),
        created_at: row.created.to_iso(),
        failed_at: row.failed.to_iso(),
    }
}

fn uuid(id: [u8; 16]) -> String {
    MessageId(id).to_string()
}

/// `GET /api/v1/dlq`.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let query = call.query();
    let number = |name| query.number(name).map_err(Refusal::bad_request);
    let limit = number("limit")?.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX);
    let offset = number("offset")?.unwrap_or(0).max(0);
    let (queue, group) = (query.get("queue"), query.get("consumerGroup"));
    let partition = query.get("partition");
    let time = |name| query.time(name).map_err(Refusal::bad_request);
    let filter = LetterFilter {
        queue: queue.as_deref(),
        group: group.as_deref(),
        partition: partition.as_deref(),
        from: time("from")?,
        to: time("to")?,
    };
    let broker = call.broker();
    let (letters, total) =
        broker.dead_letters(call.tenant(), filter, offset as usize, limit as usize).await?;
    let page = Page {
        messages: letters.iter().map(show).collect(),
        pagination: json!({"limit": limit, "offset": offset}),
        total,
    };
    Ok(json(StatusCode::OK, &page))
}

/// `DELETE /api/v1/dlq`.
pub(crate) async fn purge(call: Call) -> Result<Answer, Refusal> {
    let query = call.query();
    let Some(queue) = query.get("queue") else {
        return Err(Refusal::bad_request("queue is required"));
    };
    let group = query.get("consumerGroup");
    let broker = call.broker();
    let deleted = broker.purge_dead_letters(call.tenant(), &queue, group.as_deref()).await?;
    let body = json!({"success": true, "deleted": deleted, "queue": queue, "consumerGroup": group});
    Ok(json(StatusCode::OK, &body))
}

/// `POST /api/v1/dlq/:id/replay`.
pub(crate) async fn replay(mut call: Call) -> Result<Answer, Refusal> {
    let text = call.param(0).to_owned();
    let target = target(&mut call).await?;
    let gone = json!({
        "success": false,
        "result": "gone",
        "dlqId": text,
        "error": "Dead letter not found",
        "message": "it was replayed or deleted, or has never been there",
    });
    match MessageId::parse(&text.to_ascii_lowercase()) {
        Some(id) => replay_letter(&call, DeadLetterRef::Id(id.0), &target, gone).await,
        None => Ok(json(StatusCode::NOT_FOUND, &gone)),
    }
}

/// `POST /api/v1/messages/:partitionId/:transactionId/retry`.
pub(crate) async fn retry_message(mut call: Call) -> Result<Answer, Refusal> {
    let target = target(&mut call).await?;
    let (partition, transaction_id) = (call.param(0), call.param(1));
    let gone = json!({
        "success": false,
        "result": "gone",
        "dlqId": null,
        "partitionId": partition,
        "transactionId": transaction_id,
        "error": "Dead letter not found",
        "message": "the message is no dead letter",
    });
    match partition.parse() {
        Ok(id) => {
            let letter = DeadLetterRef::Message { partition: PartitionId(id), transaction_id };
            replay_letter(&call, letter, &target, gone).await
        }
        Err(_) => Ok(json(StatusCode::NOT_FOUND, &gone)),
    }
}

/// Where a replay goes, when not back.
struct Target {
    queue: Option<String>,
    partition: Option<String>,
}

async fn target(call: &mut Call) -> Result<Target, Refusal> {
    let body = call.object().await?;
    let text = |name| {
        let text = object::text(&body, name).map_err(Refusal::bad_request)?;
        Ok::<_, Refusal>(text.map(str::to_owned))
    };
    Ok(Target { queue: text("queue")?, partition: text("partition")? })
}

async fn replay_letter(
    call: &Call,
    letter: DeadLetterRef<'_>,
    target: &Target,
    gone: Value,
) -> Result<Answer, Refusal> {
    let command = ReplayDeadLetter {
        tenant: call.tenant(),
        letter,
        queue: target.queue.as_deref(),
        partition: target.partition.as_deref(),
    };
    Ok(match call.broker().replay(command).await? {
        None => json(StatusCode::NOT_FOUND, &gone),
        Some(replayed) => json(StatusCode::OK, &replayed_body(&replayed)),
    })
}

fn replayed_body(replayed: &Replayed) -> Value {
    let id = uuid(replayed.letter);
    let (status, result, offset, stamp) = match replayed.item {
        PushedItem::Queued(offset) => ("queued", "moved", offset, replayed.stamp),
        PushedItem::Duplicate { offset, stamp } => ("duplicate", "duplicate", offset, stamp),
    };
    let message = MessageId::mint(stamp, replayed.partition_id, offset).to_string();
    json!({
        "success": true,
        "result": result,
        "queue": replayed.queue,
        "partition": replayed.partition,
        "consumerGroup": replayed.group,
        "dlqId": id,
        "originalTransactionId": replayed.original_transaction_id,
        "replayedAs": {
            "index": 0,
            "message_id": message,
            "transaction_id": format!("dlq:{id}"),
            "queueName": replayed.queue,
            "status": status,
            "offset": offset.0,
        },
        "dlqRowRemoved": true,
    })
}

/// `DELETE /api/v1/messages/:partitionId/:transactionId`: deletes a dead letter.
pub(crate) async fn delete_message(call: Call) -> Result<Answer, Refusal> {
    let (partition, transaction_id) = (call.param(0), call.param(1));
    let deleted = match partition.parse() {
        Ok(id) => {
            let letter = DeadLetterRef::Message { partition: PartitionId(id), transaction_id };
            call.broker().delete_dead_letter(call.tenant(), letter).await?
        }
        Err(_) => false,
    };
    let mut body = json!({
        "success": deleted,
        "partitionId": partition,
        "transactionId": transaction_id,
    });
    if deleted {
        body["message"] = json!("Dead letter deleted");
        return Ok(json(StatusCode::OK, &body));
    }
    body["error"] = json!("Message not found");
    Ok(json(StatusCode::NOT_FOUND, &body))
}
