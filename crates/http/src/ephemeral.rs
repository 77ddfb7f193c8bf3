//! `/api/v1/ephemeral/*`: queues in memory only.
//!
//! Owns: their JSON, what a request must hold, the list of options. Leaves to others: the contents and
//! who has them (`queen_broker::ephemeral`), what is declared (`queen_state::ephemeral`).
//!
//! Payloads are cut out of the body as they stand there and go out again byte for byte.

use crate::answer::{Answer, Refusal, json, json_text};
use crate::call::Call;
use crate::push::{name_too_long, present};
use crate::query::on;
use crate::text::{Text, put_json_str, put_number};
use hyper::StatusCode;
use queen_core::ephemeral::{
    Depth, EphemeralAnswer, EphemeralAsk, EphemeralCall, EphemeralMessage, EphemeralOptions,
    EphemeralPop, FullPolicy, Gauges, POP_BATCH_MAX, Payload, WAIT_MS_DEFAULT, WAIT_MS_MAX, Window,
    message_id,
};
use queen_core::limits::{DEFAULT_PARTITION, NAME_BYTES_MAX};
use queen_core::{Code, Error};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

/// The options that may be declared.
const OPTIONS: &str =
    "maxBytes, maxLength, policy, ttlSeconds, leaseSeconds, retryLimit, windowBuffer";

#[derive(Deserialize)]
struct Push<'a> {
    #[serde(borrow, default)]
    queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    partition: Option<Text<'a>>,
    #[serde(borrow, default)]
    messages: Option<Vec<Message<'a>>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Ack<'a> {
    #[serde(borrow, default)]
    queue: Option<Text<'a>>,
    #[serde(borrow, default)]
    group: Option<Text<'a>>,
    #[serde(borrow, default)]
    acks: Option<Vec<AckItem<'a>>>,
}

#[derive(Deserialize)]
struct AckItem<'a> {
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
    #[serde(borrow, default)]
    status: Option<Text<'a>>,
}

/// Has a call of this request carried out.
async fn ask(call: &Call, ask: EphemeralAsk<'_>) -> Result<EphemeralAnswer, Refusal> {
    let asked = EphemeralCall { tenant: call.tenant(), ask };
    Ok(call.broker().ephemeral(&asked).await?)
}

/// The owner answered another question.
fn strange() -> Refusal {
    let text = "the queue's owner answered something else: is another release running there?";
    Error::new(Code::Internal, text).into()
}

/// A text that must be there, and not be empty.
fn needed<'a>(text: Option<&'a str>, name: &str) -> Result<&'a str, Refusal> {
    let there = text.filter(|text| !text.is_empty());
    there.ok_or_else(|| Refusal::bad_request(format!("{name} is required")))
}

/// Refuses names that are too long together.
fn fits(what: &str, queue: &str, partition: &str, group: Option<&str>) -> Result<(), Refusal> {
    let bytes = queue.len() + partition.len().max(group.map_or(0, str::len));
    if bytes > NAME_BYTES_MAX { Err(name_too_long(what, bytes)) } else { Ok(()) }
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8], what: &str) -> Result<T, Refusal> {
    let text = std::str::from_utf8(body).map_err(|e| {
        Refusal::bad_body(format!("the body is not UTF-8 at byte {}", e.valid_up_to()))
    })?;
    serde_json::from_str(text)
        .map_err(|e| Refusal::bad_body(format!("the body is not {what}: {e}")))
}

/// `POST /api/v1/ephemeral/push`.
pub(crate) async fn push(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let push: Push<'_> = read(&body, "a push")?;
    let queue = needed(push.queue.as_deref(), "queue")?;
    let named = push.partition.as_deref().filter(|name| !name.is_empty());
    let partition = named.unwrap_or(DEFAULT_PARTITION);
    fits("the push", queue, partition, None)?;
    let Some(messages) = &push.messages else {
        let text = "messages is required: {\"queue\",\"messages\":[{\"payload\":...}]}";
        return Err(Refusal::bad_request(text));
    };
    let mut payloads = Vec::with_capacity(messages.len());
    for (at, message) in messages.iter().enumerate() {
        let Some(payload) = message.payload else {
            return Err(Refusal::bad_request(format!("messages[{at}]: payload is required")));
        };
        payloads.push(Payload(payload.get().as_bytes()));
    }
    call.broker().ephemeral_is_on()?;
    if payloads.is_empty() {
        return Ok(json(StatusCode::CREATED, &json!({"pushed": 0})));
    }
    match ask(&call, EphemeralAsk::Push { queue, partition, payloads }).await? {
        EphemeralAnswer::Pushed(count) => {
            Ok(json(StatusCode::CREATED, &json!({ "pushed": count })))
        }
        _ => Err(strange()),
    }
}

/// `GET /api/v1/ephemeral/pop`.
pub(crate) async fn pop(call: Call) -> Result<Answer, Refusal> {
    let query = call.query();
    let number = |name, default: i64, low: i64, high: i64| match query.number(name) {
        Ok(given) => match given.unwrap_or(default) {
            below if below < low => {
                Err(Refusal::bad_request(format!("parameter {name}: {below} is below {low}")))
            }
            given => Ok(given.min(high).unsigned_abs()),
        },
        Err(text) => Err(Refusal::bad_request(text)),
    };
    let switched = |name| query.get(name).is_some_and(|text| on(&text));
    let (queue, partition, group) =
        (query.get("queue"), query.get("partition"), query.get("group"));
    let queue = needed(queue.as_deref(), "queue")?;
    let partition = partition.as_deref().unwrap_or(DEFAULT_PARTITION);
    fits("the pop", queue, partition, group.as_deref())?;
    let batch = number("batch", 1, 1, i64::from(POP_BATCH_MAX))?;
    let timeout = number("timeout", WAIT_MS_DEFAULT as i64, 0, WAIT_MS_MAX as i64)?;
    let asked = EphemeralPop {
        queue,
        partition,
        group: group.as_deref(),
        batch: u32::try_from(batch).unwrap_or(POP_BATCH_MAX),
        wait_ms: if switched("wait") { timeout } else { 0 },
        auto_ack: switched("autoAck") || switched("commitOnDelivery"),
    };
    match ask(&call, EphemeralAsk::Pop(asked)).await? {
        EphemeralAnswer::Popped(messages) => {
            Ok(json_text(StatusCode::OK, delivered(queue, partition, &messages)))
        }
        _ => Err(strange()),
    }
}

/// The answer of a pop.
fn delivered(queue: &str, partition: &str, messages: &[EphemeralMessage]) -> String {
    let bytes: usize = messages.iter().map(|message| message.payload.len() + 128).sum();
    let mut out = String::with_capacity(bytes + 64);
    out.push_str("{\"queue\":");
    put_json_str(&mut out, queue);
    out.push_str(",\"messages\":[");
    for (at, message) in messages.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        out.push_str("{\"id\":");
        put_json_str(&mut out, &message_id(message.epoch, partition, message.number));
        out.push_str(",\"partition\":");
        put_json_str(&mut out, partition);
        out.push_str(",\"attempts\":");
        put_number(&mut out, u64::from(message.attempts));
        out.push_str(",\"payload\":");
        // It was cut out of a text.
        out.push_str(std::str::from_utf8(&message.payload).unwrap_or("null"));
        out.push('}');
    }
    out.push_str("]}");
    out
}

/// `POST /api/v1/ephemeral/ack`.
pub(crate) async fn ack(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.body().await?;
    let ack: Ack<'_> = read(&body, "an ack")?;
    let queue = needed(ack.queue.as_deref(), "queue")?;
    let group = ack.group.as_deref().filter(|group| !group.is_empty());
    fits("the ack", queue, "", group)?;
    let Some(acks) = &ack.acks else {
        let text = "acks is required: {\"queue\",\"acks\":[{\"id\",\"status\"}]}";
        return Err(Refusal::bad_request(text));
    };
    let mut items = Vec::with_capacity(acks.len());
    for (at, item) in acks.iter().enumerate() {
        let id = needed(item.id.as_deref(), &format!("acks[{at}]: id"))?;
        items.push((id, is_done(item.status.as_deref())));
    }
    let ids: Vec<&str> = items.iter().map(|(id, _)| *id).collect();
    match ask(&call, EphemeralAsk::Ack { queue, group, items }).await? {
        EphemeralAnswer::Acked(outcomes) => {
            let result = |(id, outcome): (&&str, &queen_core::ephemeral::Outcome)| json!({"id": id, "outcome": outcome.word()});
            let results: Value = ids.iter().zip(&outcomes).map(result).collect();
            Ok(json(StatusCode::OK, &json!({ "results": results })))
        }
        _ => Err(strange()),
    }
}

/// Whether a status says that the message is done. One that is not known does not: a misspelt one must
/// not lose a message.
fn is_done(status: Option<&str>) -> bool {
    status.is_none_or(|status| matches!(status, "completed" | "success" | "acked" | "ok"))
}

/// `POST /api/v1/ephemeral/configure`.
pub(crate) async fn configure(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let queue = needed(body.get("queue").and_then(Value::as_str), "queue")?;
    fits("the queue", queue, "", None)?;
    let none = Map::new();
    let given = match body.get("options") {
        None | Some(Value::Null) => &none,
        Some(Value::Object(given)) => given,
        Some(other) => {
            return Err(Refusal::bad_request(format!("options: {other} is not an object")));
        }
    };
    let options = options(given)?;
    call.broker().ephemeral_is_on()?;
    call.broker().declare_ephemeral(call.tenant(), queue, options).await?;
    let body = json!({"queue": queue, "options": declared(&options)});
    Ok(json(StatusCode::CREATED, &body))
}

/// What is declared. The list is closed: a bound that is passed over would bound nothing.
fn options(given: &Map<String, Value>) -> Result<EphemeralOptions, Refusal> {
    let mut options = EphemeralOptions::default();
    let seconds_max = 366 * 86_400;
    for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "maxBytes" => options.max_bytes = Some(within(name, value, 1, 1 << 40)?),
            "maxLength" => options.max_length = Some(within(name, value, 1, 100_000_000)?),
            "policy" => options.policy = Some(policy(value)?),
            "ttlSeconds" => options.ttl_seconds = Some(within(name, value, 0, seconds_max)?),
            "leaseSeconds" => options.lease_seconds = Some(within(name, value, 1, 86_400)?),
            "retryLimit" => options.retry_limit = Some(within(name, value, 0, 1_000_000)?),
            "windowBuffer" => options.window = Some(window(value)?),
            _ => {
                let text = format!("options: {name} is none; there are {OPTIONS}");
                return Err(Refusal::bad_request(text));
            }
        }
    }
    Ok(options)
}

fn within(name: &str, value: &Value, low: u64, high: u64) -> Result<u64, Refusal> {
    let number = value.as_u64().filter(|number| (low..=high).contains(number));
    number.ok_or_else(|| {
        let text = format!("options: {name}: {value} is not a whole number of {low} to {high}");
        Refusal::bad_request(text)
    })
}

fn policy(value: &Value) -> Result<FullPolicy, Refusal> {
    let known = [FullPolicy::Reject, FullPolicy::DropOldest];
    let found = known.into_iter().find(|policy| value.as_str() == Some(policy.word()));
    found.ok_or_else(|| {
        Refusal::bad_request(format!("options: policy: {value} is neither reject nor dropOldest"))
    })
}

fn window(value: &Value) -> Result<Window, Refusal> {
    let Value::Object(given) = value else {
        let text = format!("options: windowBuffer: {value} is not an object of ms and count");
        return Err(Refusal::bad_request(text));
    };
    let mut window = Window::default();
    for (name, value) in given.iter().filter(|(_, value)| !value.is_null()) {
        match name.as_str() {
            "ms" => window.ms = within("windowBuffer.ms", value, 0, WAIT_MS_MAX)?,
            "count" => {
                window.count = within("windowBuffer.count", value, 0, u64::from(POP_BATCH_MAX))?;
            }
            _ => {
                let text = format!("options: windowBuffer.{name} is none; there are ms and count");
                return Err(Refusal::bad_request(text));
            }
        }
    }
    Ok(window)
}

/// The options that are declared, as a request gives them.
fn declared(options: &EphemeralOptions) -> Value {
    let mut shown = Map::new();
    let numbers = [
        ("maxBytes", options.max_bytes),
        ("maxLength", options.max_length),
        ("ttlSeconds", options.ttl_seconds),
        ("leaseSeconds", options.lease_seconds),
        ("retryLimit", options.retry_limit),
    ];
    for (name, number) in numbers {
        shown.extend(number.map(|number| (name.to_owned(), number.into())));
    }
    shown.extend(options.policy.map(|policy| ("policy".to_owned(), policy.word().into())));
    let window = options.window.map(|window| json!({"ms": window.ms, "count": window.count}));
    shown.extend(window.map(|window| ("windowBuffer".to_owned(), window)));
    Value::Object(shown)
}

/// `POST /api/v1/ephemeral/reset`.
pub(crate) async fn reset(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let queue = needed(body.get("queue").and_then(Value::as_str), "queue")?;
    match ask(&call, EphemeralAsk::Reset { queue }).await? {
        EphemeralAnswer::Reset(dropped) => {
            Ok(json(StatusCode::OK, &json!({"queue": queue, "dropped": dropped})))
        }
        _ => Err(strange()),
    }
}

/// `DELETE /api/v1/ephemeral/queue/:queue`.
pub(crate) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let queue = call.param(0);
    // The declaration first: a push that comes in between must not find it.
    let declared = call.broker().undeclare_ephemeral(call.tenant(), queue).await?;
    match ask(&call, EphemeralAsk::Delete { queue }).await? {
        EphemeralAnswer::Deleted(was) => {
            let body = json!({"queue": queue, "deleted": was || declared, "declared": declared});
            Ok(json(StatusCode::OK, &body))
        }
        _ => Err(strange()),
    }
}

/// `GET /api/v1/ephemeral/queues`.
pub(crate) async fn queues(call: Call) -> Result<Answer, Refusal> {
    match ask(&call, EphemeralAsk::Queues).await? {
        EphemeralAnswer::Queues(total, queues) => {
            let shown: Vec<Value> = queues.iter().map(gauges).collect();
            Ok(json(StatusCode::OK, &json!({"queues": shown, "total": total})))
        }
        _ => Err(strange()),
    }
}

fn gauges(of: &Gauges) -> Value {
    json!({"queue": of.queue, "declared": of.declared, "depth": of.length, "bytes": of.bytes,
        "partitions": of.partitions})
}

/// `GET /api/v1/ephemeral/queues/:queue/depth`.
pub(crate) async fn depth(call: Call) -> Result<Answer, Refusal> {
    let queue = call.param(0);
    match ask(&call, EphemeralAsk::Depth { queue }).await? {
        EphemeralAnswer::Depth(Some(depth)) => Ok(json(StatusCode::OK, &deep(&depth))),
        EphemeralAnswer::Depth(None) => {
            // Clients tell this from a broker that has no such routes by the code.
            let error = format!(
                "there is no ephemeral queue {queue:?}: nothing is declared of it, and it holds nothing \
                 and was not asked for lately"
            );
            let body = json!({"error": error, "code": "ephemeral_queue_not_found"});
            Ok(json(StatusCode::NOT_FOUND, &body))
        }
        _ => Err(strange()),
    }
}

fn deep(depth: &Depth) -> Value {
    let holds = depth.effective;
    let mut shown = gauges(&depth.gauges);
    shown["options"] = json!({"maxBytes": holds.max_bytes, "maxLength": holds.max_length,
        "policy": holds.policy.word(), "ttlSeconds": holds.ttl_seconds,
        "leaseSeconds": holds.lease_seconds, "retryLimit": holds.retry_limit,
        "windowBuffer": {"ms": holds.window.ms, "count": holds.window.count}});
    let groups = depth.groups.iter().map(
        |group| json!({"group": group.group, "pending": group.pending, "leased": group.leased}),
    );
    shown["groups"] = groups.collect();
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(given: Value) -> String {
        match options(given.as_object().unwrap()) {
            Err(Refusal::Plain(error)) => error.text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_declared_is_shown_as_it_was_given() {
        let all = json!({"maxBytes": 1_048_576, "maxLength": 500, "policy": "dropOldest",
            "ttlSeconds": 30, "leaseSeconds": 10, "retryLimit": 0,
            "windowBuffer": {"ms": 25, "count": 50}});
        for given in
            [all, json!({}), json!({"policy": "reject", "windowBuffer": {"ms": 1, "count": 0}})]
        {
            assert_eq!(declared(&options(given.as_object().unwrap()).unwrap()), given);
        }
        let null = json!({"maxBytes": null});
        assert_eq!(options(null.as_object().unwrap()).unwrap(), EphemeralOptions::default());
    }

    #[test]
    fn an_option_that_is_misspelt_or_out_of_range_is_refused_by_name() {
        assert!(refused(json!({"ttlSecond": 3})).contains("ttlSecond is none; there are maxBytes"));
        for (given, name) in [
            (json!({"maxBytes": 0}), "maxBytes: 0"),
            (json!({"maxLength": -1}), "maxLength: -1"),
            (json!({"leaseSeconds": 0}), "leaseSeconds: 0"),
            (json!({"retryLimit": 1.5}), "retryLimit: 1.5"),
            (json!({"ttlSeconds": "3"}), "ttlSeconds: \"3\""),
            (json!({"policy": "drop"}), "policy: \"drop\""),
            (json!({"windowBuffer": 3}), "windowBuffer: 3"),
            (json!({"windowBuffer": {"s": 1}}), "windowBuffer.s is none"),
            (json!({"windowBuffer": {"ms": 300_001}}), "windowBuffer.ms: 300001"),
        ] {
            let text = refused(given);
            assert!(text.contains(name), "{text}");
        }
    }

    #[test]
    fn only_a_known_word_settles_a_message() {
        assert!(["completed", "success", "acked", "ok"].map(Some).into_iter().all(is_done));
        assert!(is_done(None));
        assert!(!["failed", "retry", "Completed", "done", ""].map(Some).into_iter().any(is_done));
    }
}
