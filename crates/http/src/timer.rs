//! `/api/v1/timers`: messages for later.
//!
//! Owns: their JSON, reading payloads out of base64 and zstd. Leaves to others: limits
//! (`queen_broker::timer`), every rule (`queen_state::timer`).
//!
//! Whether a timer was there is a member of the result, never a status.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::kv::{Members, value};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::StatusCode;
use queen_broker::timer::Timer;
use queen_broker::{Fault, KvRefusal};
use queen_core::limits::DEFAULT_PARTITION;
use queen_core::timer::{
    PAYLOAD_BYTES_MAX, Promised, TimerMessage, TimerOp, TimerOpKind, TimerResult, Timers,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::io::Read;
use tokio::sync::OwnedSemaphorePermit;

/// Bytes of the payloads of one call, unpacked.
const PAYLOADS_BYTES_MAX: usize = 64 << 20;
/// Rows of a page at most, and when the request does not say.
const PAGE_MAX: i64 = 1000;
const PAGE: i64 = 100;

/// Members that a call never brings along: the broker's own, or another spelling of the time.
const SERVER_OWNED: &[&str] = &[
    "producersub",
    "messageid",
    "deliverat",
    "delayseconds",
    "attempts",
    "claimtoken",
    "claimeduntil",
];

/// An operation as it was read.
#[derive(Debug)]
pub(crate) struct AskedTimer {
    word: &'static str,
    queue: String,
    key: String,
    partition: Option<String>,
    delay_ms: u64,
    txn: Option<String>,
    payload: Vec<u8>,
}

/// Takes memory for so many unpacked bytes, or refuses.
pub(crate) type Room<'r> = &'r mut dyn FnMut(usize) -> Result<(), Refusal>;

/// `POST /api/v1/timers`.
pub(crate) async fn timers(mut call: Call) -> Result<Answer, Refusal> {
    #[derive(Deserialize)]
    struct Body<'a> {
        #[serde(borrow)]
        operations: Vec<Members<'a>>,
    }
    let body = call.body().await?;
    let bare = body.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'[');
    let members: Result<Vec<Members<'_>>, _> = match bare {
        true => serde_json::from_slice(&body),
        false => serde_json::from_slice(&body).map(|body: Body<'_>| body.operations),
    };
    let members = members.map_err(|e| bad("timers_bad_body", format!("the body: {e}")))?;
    let mut rooms: Vec<OwnedSemaphorePermit> = Vec::new();
    let mut room =
        |bytes| call.face.room_for(bytes).map(|room| rooms.push(room)).map_err(Into::into);
    let asked = read_timers(&members, &mut room)?;
    refuse_when_off(&call, &asked)?;
    let ops = asked.iter().map(AskedTimer::op).collect();
    let results = call.broker().timers(&Timers { tenant: call.tenant(), ops }).await?;
    let shown = asked.iter().zip(&results).enumerate();
    let shown: Vec<Shown<'_>> = shown.map(|(index, (op, done))| show(index, op, done)).collect();
    Ok(json(StatusCode::OK, &json!({ "results": shown })))
}

/// `DELETE /api/v1/timers/:queue/*timerKey`.
pub(crate) async fn cancel(call: Call) -> Result<Answer, Refusal> {
    let op = AskedTimer {
        word: "cancel",
        queue: call.param(0).to_owned(),
        key: call.param(1).to_owned(),
        partition: None,
        delay_ms: 0,
        txn: call.query().get("txn").map(|txn| txn.into_owned()),
        payload: Vec::new(),
    };
    let timers = Timers { tenant: call.tenant(), ops: vec![op.op()] };
    let results = call.broker().timers(&timers).await?;
    let result = results.first().unwrap_or(&TimerResult::Absent);
    Ok(json(StatusCode::OK, &show(0, &op, result)))
}

/// `GET /api/v1/timers/:queue/*timerKey`.
pub(crate) async fn peek(call: Call) -> Result<Answer, Refusal> {
    let (queue, key) = (call.param(0), call.param(1));
    let Some((timer, payload)) = call.broker().timer(call.tenant(), queue, key)? else {
        return Ok(json(StatusCode::OK, &json!({"found": false, "queue": queue, "timerKey": key})));
    };
    let mut shown = row(queue, &timer);
    shown["found"] = json!(true);
    shown["payload"] = json!(STANDARD.encode(&payload));
    Ok(json(StatusCode::OK, &shown))
}

/// `GET /api/v1/timers/:queue`.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let (query, queue) = (call.query(), call.param(0));
    let prefix = query.get("prefix").unwrap_or_default();
    match query.get("mode").as_deref() {
        None | Some("list") => {}
        Some("count") => {
            let count = call.broker().count_timers(call.tenant(), queue, &prefix).await?;
            return Ok(json(StatusCode::OK, &json!({"queue": queue, "count": count})));
        }
        Some(other) => {
            let detail = format!("mode {other:?} is not known: list or count");
            return Err(bad("timers_bad_mode", detail));
        }
    }
    let limit = query.number("limit").map_err(|text| bad("timers_bad_limit", text))?;
    let limit = limit.unwrap_or(PAGE).clamp(1, PAGE_MAX) as usize;
    let after = query.get("after");
    let mut timers =
        call.broker().list_timers(call.tenant(), queue, &prefix, after.as_deref(), limit + 1)?;
    let truncated = timers.len() > limit;
    timers.truncate(limit);
    let next = timers.last().map(|last| last.key().to_owned()).filter(|_| truncated);
    let rows: Vec<Value> = timers.iter().map(|timer| row(queue, timer)).collect();
    let body = json!({"rows": rows, "truncated": truncated, "nextAfter": next});
    Ok(json(StatusCode::OK, &body))
}

fn bad(reason: &'static str, detail: impl Into<String>) -> Refusal {
    malformed(reason, detail).into()
}

fn malformed(reason: &'static str, detail: impl Into<String>) -> KvRefusal {
    let (fault, identifier) = (Fault::Malformed, "timers_bad_request");
    KvRefusal { fault, identifier, reason, detail: detail.into() }
}

/// Timers are not set while that is switched off; they are taken away always.
pub(crate) fn refuse_when_off(call: &Call, asked: &[AskedTimer]) -> Result<(), Refusal> {
    if asked.iter().all(|op| op.word == "cancel") || call.broker().switches().timers_schedule {
        return Ok(());
    }
    let detail =
        "setting timers is switched off: POST /api/v1/system/kv-timers switches it on".into();
    let (fault, name) = (Fault::SwitchedOff, "timers_disabled");
    Err(KvRefusal { fault, identifier: name, reason: name, detail }.into())
}

/// Reads operations; a refusal names the one it is about.
pub(crate) fn read_timers(
    operations: &[Members<'_>],
    room: Room<'_>,
) -> Result<Vec<AskedTimer>, Refusal> {
    let mut left = PAYLOADS_BYTES_MAX;
    let mut asked = Vec::with_capacity(operations.len().min(256));
    for (index, members) in operations.iter().enumerate() {
        let read = AskedTimer::read(members).map_err(|refusal| KvRefusal {
            detail: format!("operation {index}: {}", refusal.detail),
            ..refusal
        })?;
        left = left.checked_sub(read.payload.len()).ok_or_else(|| KvRefusal {
            fault: Fault::TooLarge,
            identifier: "timer_payload_too_large",
            reason: "timer_payloads_too_large",
            detail: format!(
                "the payloads of a call have at most {PAYLOADS_BYTES_MAX} bytes together"
            ),
        })?;
        room(read.payload.len())?;
        asked.push(read);
    }
    Ok(asked)
}

impl AskedTimer {
    fn read(members: &Members<'_>) -> Result<AskedTimer, KvRefusal> {
        if let Some(name) = members.keys().find(|name| is_server_owned(name)) {
            let detail = format!(
                "member {name:?} is the broker's own: a timer is set by delayMs, and whose it is follows \
                 from the request"
            );
            return Err(malformed("timers_server_owned_member", detail));
        }
        let word = match &*needed::<String>(members, "op", "a text")? {
            "schedule" => "schedule",
            "reschedule" => "reschedule",
            "cancel" => "cancel",
            other => {
                let detail = format!("{other:?} is not an operation: schedule, reschedule, cancel");
                return Err(malformed("timers_unknown_operation", detail));
            }
        };
        let mut asked = AskedTimer {
            word,
            queue: needed(members, "queue", "a text")?,
            key: needed(members, "timerKey", "a text")?,
            partition: member(members, "partition", "a text")?,
            delay_ms: 0,
            txn: member(members, "txn", "a text")?.filter(|txn: &String| !txn.is_empty()),
            payload: Vec::new(),
        };
        if word != "cancel" {
            let delay: i64 = needed(members, "delayMs", "a whole number of milliseconds")?;
            asked.delay_ms = u64::try_from(delay).unwrap_or(0);
            asked.payload = payload(members)?;
        }
        Ok(asked)
    }

    /// The operation as a command has it.
    pub(crate) fn op(&self) -> TimerOp<'_> {
        let kind = match self.word {
            "cancel" => TimerOpKind::Cancel,
            _ => TimerOpKind::Schedule(TimerMessage {
                partition: self.partition.as_deref().unwrap_or(DEFAULT_PARTITION),
                delay_ms: self.delay_ms,
                transaction_id: self.txn.as_deref(),
                producer: None,
                encrypted: false,
                payload: &self.payload,
            }),
        };
        TimerOp { queue: &self.queue, key: &self.key, kind }
    }
}

/// Whether a member is the broker's, in whichever spelling.
fn is_server_owned(name: &str) -> bool {
    let plain: String = name.chars().filter(|c| *c != '_').collect::<String>().to_ascii_lowercase();
    name.starts_with('_') || plain.starts_with("tenant") || SERVER_OWNED.contains(&&*plain)
}

fn member<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    name: &str,
    what: &str,
) -> Result<Option<T>, KvRefusal> {
    value(members, name)
        .map_err(|_| malformed("timers_bad_member", format!("member {name:?} is not {what}")))
}

fn needed<'a, T: Deserialize<'a>>(
    members: &Members<'a>,
    name: &str,
    what: &str,
) -> Result<T, KvRefusal> {
    let missing = || malformed("timers_missing_member", format!("member {name:?} is missing"));
    member(members, name, what)?.ok_or_else(missing)
}

/// The message's JSON text.
fn payload(members: &Members<'_>) -> Result<Vec<u8>, KvRefusal> {
    if member(members, "encrypted", "true or false")?.unwrap_or(false) {
        let detail = "encrypted: the broker seals payloads itself, send it in the clear";
        return Err(malformed("timers_encrypted_payload", detail));
    }
    let text: String = needed(members, "payload", "a text: base64 of the message's JSON")?;
    let bytes = STANDARD
        .decode(text.as_bytes())
        .map_err(|e| malformed("timers_bad_payload", format!("the payload is no base64: {e}")))?;
    let bytes = match member(members, "payloadZstd", "true or false")?.unwrap_or(false) {
        true => unpack(&bytes)?,
        false => bytes,
    };
    if let Err(e) = serde_json::from_slice::<&RawValue>(&bytes) {
        let detail = format!("the payload is base64 of something that is not JSON: {e}");
        return Err(malformed("timers_bad_payload", detail));
    }
    Ok(bytes)
}

/// Unpacks a zstd frame, as far as a payload may be long and one byte more.
fn unpack(packed: &[u8]) -> Result<Vec<u8>, KvRefusal> {
    let no_zstd = |e: std::io::Error| {
        malformed("timers_bad_payload", format!("payloadZstd: the payload is no zstd frame: {e}"))
    };
    let mut bytes = Vec::new();
    let decoder = zstd::stream::read::Decoder::with_buffer(packed).map_err(no_zstd)?;
    decoder.take(PAYLOAD_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(no_zstd)?;
    Ok(bytes)
}

/// A result; in a transaction with its place there.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown<'a> {
    index: usize,
    /// Of a transaction only, as the next one.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    /// Its place among the operations on timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    op_index: Option<usize>,
    op: &'static str,
    ok: bool,
    status: &'static str,
    queue: &'a str,
    timer_key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    txn: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<String>,
}

impl Shown<'_> {
    /// As a transaction shows it.
    pub(crate) fn in_transaction(self, op_index: usize) -> Self {
        Shown { kind: Some("timer"), op_index: Some(op_index), ..self }
    }
}

pub(crate) fn show<'a>(index: usize, asked: &'a AskedTimer, result: &'a TimerResult) -> Shown<'a> {
    let (ok, status, timer): (_, _, Option<&Promised>) = match result {
        TimerResult::Scheduled { timer, replaced: false } => (true, "scheduled", Some(timer)),
        TimerResult::Scheduled { timer, replaced: true } => (true, "rescheduled", Some(timer)),
        TimerResult::Cancelled(timer) => (true, "cancelled", Some(timer)),
        TimerResult::Absent | TimerResult::Sealed => (false, "absent", None),
    };
    Shown {
        index,
        kind: None,
        op_index: None,
        op: asked.word,
        ok,
        status,
        queue: &asked.queue,
        timer_key: &asked.key,
        txn: timer.map(|timer| &*timer.transaction_id).or(asked.txn.as_deref()),
        message_id: timer.map(|timer| timer.message.to_string()),
        deliver_at: timer.map(|timer| timer.due.to_iso()),
    }
}

/// A timer without its payload.
fn row(queue: &str, timer: &Timer) -> Value {
    let (row, promised) = (&timer.row, timer.promised());
    json!({
        "queue": queue,
        "timerKey": timer.key(),
        "partition": row.partition,
        "deliverAt": promised.due.to_iso(),
        "txn": promised.transaction_id,
        "messageId": promised.message.to_string(),
        "payloadZstd": false,
        "encrypted": row.encrypted,
        "producerSub": row.producer,
        "attempts": row.attempts,
        "lastError": row.error,
        "claimed": false,
        "createdAt": row.created.to_iso(),
        "updatedAt": row.updated.to_iso(),
    })
}

#[cfg(test)]
#[path = "timer_tests.rs"]
mod tests;
