//! Queue routes: configure, delete, list, detail, depth, and the totals of the console.
//!
//! Owns: their JSON. Leaves to others: options (`queen_core::options`), counting
//! (`queen_broker::queues`), rules (`queen-state`).

use crate::analytics;
use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::push::name_too_long;
use hyper::StatusCode;
use queen_broker::queues::{Counted, Progress, Queue, Totals, queue_uuid};
use queen_core::Stamp;
use queen_core::command::Configure;
use queen_core::limits::{NAME_BYTES_MAX, QUEUE_MODE_GROUP};
use queen_core::options::{OptionsPatch, Patch};
use serde_json::{Map, Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Partitions shown when the request does not say.
const PARTITIONS_SHOWN: i64 = 610;

/// `POST /api/v1/configure`.
pub(crate) async fn configure(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let Some(name) = body.get("queue").and_then(Value::as_str) else {
        return Err(Refusal::bad_body("queue: the name of the queue is missing"));
    };
    if name.len() > NAME_BYTES_MAX {
        return Err(name_too_long("configure", name.len()));
    }
    let replace = match body.get("mode") {
        None | Some(Value::Null) => false,
        Some(Value::String(mode)) if mode == "merge" => false,
        Some(Value::String(mode)) if mode == "replace" => true,
        Some(mode) => {
            let text = format!("mode: {mode} is neither \"merge\" nor \"replace\"");
            return Err(Refusal::bad_request(text));
        }
    };
    let options = wanted(&body)?;
    let patch = match OptionsPatch::read(&options) {
        Ok(patch) => patch,
        Err(bad) => {
            let body = json!({"error": bad.to_string(), "invalid": [bad.name]});
            return Ok(json(StatusCode::BAD_REQUEST, &body));
        }
    };
    if let Some(refusal) = strange_hold(&call, &body, &patch)? {
        return Ok(refusal);
    }
    let command = Configure { tenant: call.tenant(), queue: name, patch, replace };
    let configured = call.broker().configure(command).await?;
    let body = json!({
        "configured": true,
        "queueId": queue_uuid(configured.queue),
        "partitionId": null,
        "queue": name,
        "namespace": configured.options.namespace,
        "task": configured.options.task,
        "storage": "segments",
        "options": configured.options.to_json(),
    });
    Ok(json(StatusCode::OK, &body))
}

/// Lets a hold be set for a sink that nobody knows.
const HOLD_FORCE: &str = "retentionSinkHoldForce";

/// Refuses a hold for a sink that does not exist: a typing error would keep everything until the
/// hold's cap, and copy nothing.
fn strange_hold(
    call: &Call,
    body: &Map<String, Value>,
    patch: &OptionsPatch,
) -> Result<Option<Answer>, Refusal> {
    let nested = body.get("options").and_then(|options| options.get(HOLD_FORCE));
    let force = match nested.or(body.get(HOLD_FORCE)) {
        None | Some(Value::Null) => false,
        Some(Value::Bool(force)) => *force,
        Some(other) => {
            let text = format!("{HOLD_FORCE}: {other} is neither true nor false");
            return Err(Refusal::bad_request(text));
        }
    };
    let Patch::Set(sink) = &patch.retention_sink_hold else { return Ok(None) };
    if force || sink.is_empty() {
        return Ok(None);
    }
    let mut known = call.broker().sinks(call.tenant())?;
    known.extend(call.face.extras.iter().flat_map(|extra| extra.sinks()));
    if known.contains(sink) {
        return Ok(None);
    }
    known.sort();
    known.dedup();
    let known = match known.is_empty() {
        true => "no sink was ever turned on here".to_owned(),
        false => format!("the sinks here are {}", known.join(", ")),
    };
    let text = format!(
        "option retentionSinkHold: {sink:?} names no sink: {known}. Name one of them, or add \
         \"{HOLD_FORCE}\": true to set it before the sink is turned on"
    );
    let body = json!({"error": text, "invalid": ["retentionSinkHold"]});
    Ok(Some(json(StatusCode::BAD_REQUEST, &body)))
}

/// The options of a request: flat or under `options`; a label's value wins over a null elsewhere.
fn wanted(body: &Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
    let known = |name: &str| OptionsPatch::NAMES.contains(&name);
    let flat = body.iter().filter(|(name, _)| known(name));
    let mut options: Map<String, Value> = flat.map(|(k, v)| (k.clone(), v.clone())).collect();
    match body.get("options") {
        None | Some(Value::Null) => {}
        Some(Value::Object(nested)) => {
            for (name, value) in nested {
                if name == HOLD_FORCE {
                    continue;
                }
                if !known(name) {
                    let all = OptionsPatch::NAMES.join(", ");
                    let text = format!("options: no option is called {name:?}; there are {all}");
                    return Err(Refusal::bad_request(text));
                }
                let outer = options.get(name).is_some_and(|outer| !outer.is_null());
                if !value.is_null() || !outer {
                    options.insert(name.clone(), value.clone());
                }
            }
        }
        Some(_) => return Err(Refusal::bad_request("options: not an object")),
    }
    Ok(options)
}

/// `DELETE /api/v1/resources/queues/:queue`.
pub(crate) async fn delete(call: Call) -> Result<Answer, Refusal> {
    let name = call.param(0);
    let existed = call.broker().delete_queue(call.tenant(), name).await?;
    let mut body = json!({"deleted": existed, "queue": name, "existed": existed});
    if !existed {
        body["message"] = json!(format!("queue {name:?} does not exist"));
    }
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/resources/queues`.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let broker = call.broker();
    let mut queues = Vec::new();
    for queue in broker.queues(call.tenant()).await? {
        let totals = broker.count_queue(&queue, Progress::FurthestBehind, |_| {}).await?;
        queues.push(Value::Object(row(&queue, &totals)));
    }
    Ok(json(StatusCode::OK, &json!({"queues": queues})))
}

/// What a list and the detail say of a queue.
pub(crate) fn row(queue: &Queue, totals: &Totals) -> Map<String, Value> {
    let messages = &totals.messages;
    let row = json!({
        "id": queue_uuid(queue.id),
        "name": queue.row.name,
        "namespace": queue.row.options.namespace,
        "task": queue.row.options.task,
        "createdAt": queue.row.created.to_iso(),
        "partitions": totals.partitions,
        "retainedBytes": totals.log.bytes,
        "segments": {"segments": totals.log.segments, "messages": messages.total},
        "messages": {
            "total": messages.total,
            "pending": messages.pending,
            "processing": messages.processing,
        },
    });
    match row {
        Value::Object(row) => row,
        _ => Map::new(),
    }
}

/// `GET /api/v1/resources/queues/:queue`.
pub(crate) async fn detail(call: Call) -> Result<Answer, Refusal> {
    let (queue, totals, partitions) = counted(&call).await?;
    let mut body = row(&queue, &totals);
    body.insert("options".to_owned(), Value::Object(queue.row.options.to_json()));
    body.insert("partitions".to_owned(), Value::Array(partitions));
    body.insert("totals".to_owned(), stats(&totals.messages, totals.dead_letters));
    Ok(json(StatusCode::OK, &body))
}

/// The queue that the path names, what it holds, and a row for each of its partitions.
pub(crate) async fn counted(call: &Call) -> Result<(Queue, Totals, Vec<Value>), Refusal> {
    let broker = call.broker();
    let Some(queue) = broker.queue_named(call.tenant(), call.param(0))? else {
        return Err(Refusal::Bare(StatusCode::NOT_FOUND, "Queue not found".to_owned()));
    };
    let dead = broker.dead_letters_by_partition(queue.id).await?;
    let mut partitions = Vec::new();
    let totals = broker
        .count_queue(&queue, Progress::FurthestBehind, |counted| {
            let letters = dead.get(&*counted.partition.name).copied().unwrap_or(0);
            partitions.push(partition(&counted, letters));
        })
        .await?;
    Ok((queue, totals, partitions))
}

pub(crate) fn stats(messages: &queen_broker::queues::Backlog, dead_letters: u64) -> Value {
    json!({
        "total": messages.total,
        "pending": messages.pending,
        "processing": messages.processing,
        "completed": messages.completed,
        "failed": null,
        "deadLetter": dead_letters,
    })
}

fn partition(counted: &Counted, dead_letters: u64) -> Value {
    let row = &counted.partition.row;
    json!({
        "id": row.id.to_string(),
        "name": counted.partition.name,
        "createdAt": row.created.to_iso(),
        "stats": stats(&counted.messages, dead_letters),
        "oldestMessage": counted.oldest.map(Stamp::to_iso),
        "newestMessage": counted.oldest.map(|_| row.last.to_iso()),
    })
}

/// `GET /api/v1/resources/queues/:queue/depth`.
pub(crate) async fn depth(call: Call) -> Result<Answer, Refusal> {
    let broker = call.broker();
    let name = call.param(0);
    let Some(queue) = broker.queue_named(call.tenant(), name)? else {
        return Err(Refusal::Bare(StatusCode::NOT_FOUND, "Queue not found".to_owned()));
    };
    let query = call.query();
    let group = query.get("group").or_else(|| query.get("consumerGroup"));
    let group = group.as_deref().unwrap_or(QUEUE_MODE_GROUP);
    let mut partitions = Vec::new();
    let totals = broker
        .count_queue(&queue, Progress::Group(group), |counted| {
            let messages = &counted.messages;
            if messages.pending + messages.processing > 0 {
                partitions.push(json!({
                    "partition": counted.partition.name,
                    "pending": messages.pending,
                    "processing": messages.processing,
                    "ready": messages.ready,
                }));
            }
        })
        .await?;
    let messages = &totals.messages;
    let conflation = broker.conflates(call.tenant(), name, group)?;
    // Of each partition there is one message to come.
    let effective = match conflation {
        true => (totals.partitions_pending, totals.partitions_ready),
        false => (messages.pending, messages.ready),
    };
    let body = json!({
        "queue": name,
        "group": group,
        "pending": messages.pending,
        "processing": messages.processing,
        "ready": messages.ready,
        "partitionsPending": totals.partitions_pending,
        "partitionsReady": totals.partitions_ready,
        "conflation": conflation,
        "effectivePending": effective.0,
        "effectiveReady": effective.1,
        "partitions": partitions,
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/resources/partitions`: most pending first.
pub(crate) async fn partitions(call: Call) -> Result<Answer, Refusal> {
    let (broker, query) = (call.broker(), call.query());
    let limit = query.number("limit").map_err(Refusal::bad_request)?.unwrap_or(PARTITIONS_SHOWN);
    let limit = limit.clamp(1, 10_000) as usize;
    let queues = match query.get("queue") {
        Some(name) => broker.queue_named(call.tenant(), &name)?.into_iter().collect(),
        None => broker.queues(call.tenant()).await?,
    };
    let now = broker.now();
    let mut busiest: Vec<(Reverse<u64>, String, Counted)> = Vec::new();
    for queue in &queues {
        let keep = |counted: Counted| {
            busiest.push((Reverse(counted.messages.pending), queue.row.name.clone(), counted));
            // Cut now and then, so that what is kept stays bounded.
            if busiest.len() >= 4 * limit {
                cut(&mut busiest, limit);
            }
        };
        broker.count_queue(queue, Progress::FurthestBehind, keep).await?;
    }
    cut(&mut busiest, limit);
    let rows: Vec<Value> = busiest.iter().map(|(_, q, counted)| busy(q, counted, now)).collect();
    Ok(json(StatusCode::OK, &json!({"partitions": rows})))
}

fn cut(busiest: &mut Vec<(Reverse<u64>, String, Counted)>, limit: usize) {
    busiest.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));
    busiest.truncate(limit);
}

fn busy(queue: &str, counted: &Counted, now: Stamp) -> Value {
    let waiting = counted.oldest.filter(|_| counted.messages.pending > 0);
    json!({
        "queue": queue,
        "partition": counted.partition.name,
        "id": counted.partition.row.id.to_string(),
        "pending": counted.messages.pending,
        "processing": counted.messages.processing,
        "lagSeconds": waiting.map_or(0, |oldest| now.0.saturating_sub(oldest.0) / 1_000_000),
    })
}

/// `GET /api/v1/resources/overview`.
pub(crate) async fn overview(call: Call) -> Result<Answer, Refusal> {
    let broker = call.broker();
    let queues = broker.queues(call.tenant()).await?;
    let now = broker.now();
    let (mut all, mut lags) = (Totals::default(), Vec::new());
    for queue in &queues {
        let mut oldest: Option<Stamp> = None;
        let each = |counted: Counted| {
            if let Some(at) = counted.oldest.filter(|_| counted.messages.pending > 0) {
                oldest = Some(oldest.map_or(at, |oldest| oldest.min(at)));
            }
        };
        let totals = broker.count_queue(queue, Progress::FurthestBehind, each).await?;
        lags.push(oldest.map_or(0, |at| now.0.saturating_sub(at.0) / 1_000_000));
        all.partitions += totals.partitions;
        all.dead_letters += totals.dead_letters;
        all.messages.total += totals.messages.total;
        all.messages.pending += totals.messages.pending;
        all.messages.processing += totals.messages.processing;
        all.messages.completed += totals.messages.completed;
    }
    lags.sort_unstable();
    let labels = |label: fn(&Queue) -> &str| {
        let mut names: Vec<&str> = queues.iter().map(label).filter(|n| !n.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        names.len()
    };
    let average = lags.iter().sum::<u64>() / lags.len().max(1) as u64;
    let (ingested, processed) = analytics::rates(&call);
    let mut messages = stats(&all.messages, all.dead_letters);
    messages["failed"] = json!(0);
    let body = json!({
        "queues": queues.len(),
        "partitions": all.partitions,
        "namespaces": labels(|queue| &queue.row.options.namespace),
        "tasks": labels(|queue| &queue.row.options.task),
        "messages": messages,
        "lag": {
            "time": {
                "avg": average,
                "median": lags.get(lags.len() / 2).copied().unwrap_or(0),
                "min": lags.first().copied().unwrap_or(0),
                "max": lags.last().copied().unwrap_or(0),
            },
            "offset": all.messages.pending,
        },
        "throughput": {
            "ingestedPerSecond": ingested,
            "processedPerSecond": processed,
        },
        "timestamp": now.to_iso(),
        "statsAge": 0,
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/resources/namespaces`.
pub(crate) async fn namespaces(call: Call) -> Result<Answer, Refusal> {
    labels(&call, "namespaces", "namespace", |queue| &queue.row.options.namespace).await
}

/// `GET /api/v1/resources/tasks`.
pub(crate) async fn tasks(call: Call) -> Result<Answer, Refusal> {
    labels(&call, "tasks", "task", |queue| &queue.row.options.task).await
}

async fn labels(
    call: &Call,
    list: &str,
    word: &str,
    label: fn(&Queue) -> &str,
) -> Result<Answer, Refusal> {
    let broker = call.broker();
    let queues = broker.queues(call.tenant()).await?;
    let mut found: BTreeMap<&str, (u64, Totals)> = BTreeMap::new();
    for queue in &queues {
        let totals = broker.count_queue(queue, Progress::FurthestBehind, |_| {}).await?;
        let (queues, all) = found.entry(label(queue)).or_default();
        *queues += 1;
        all.partitions += totals.partitions;
        all.messages.total += totals.messages.total;
        all.messages.pending += totals.messages.pending;
    }
    let rows: Vec<Value> = found
        .into_iter()
        .filter(|(name, _)| !name.is_empty())
        .map(|(name, (queues, all))| {
            let (total, pending) = (all.messages.total, all.messages.pending);
            json!({
                word: name,
                "queues": queues,
                "partitions": all.partitions,
                "messages": {"total": total, "pending": pending},
            })
        })
        .collect();
    Ok(json(StatusCode::OK, &json!({list: rows})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(body: Value) -> Result<Value, Refusal> {
        wanted(body.as_object().unwrap()).map(Value::Object)
    }

    #[test]
    fn options_stand_flat_or_apart_and_labels_anywhere() {
        let body = json!({"queue": "q", "leaseTime": 5, "extra": 1, "namespace": "n",
            "options": {"leaseTime": 6, "namespace": null, "task": "t"}});
        let want = json!({"leaseTime": 6, "namespace": "n", "task": "t"});
        assert_eq!(options(body).unwrap(), want);
        let body = json!({"queue": "q", "namespace": null, "options": {"namespace": "n"}});
        assert_eq!(options(body).unwrap(), json!({"namespace": "n"}));
        assert_eq!(options(json!({"options": null, "task": null})).unwrap(), json!({"task": null}));
    }

    #[test]
    fn an_unknown_option_is_named() {
        let Err(Refusal::Plain(error)) = options(json!({"options": {"leaseTmie": 5}})) else {
            panic!()
        };
        assert!(error.text.contains("\"leaseTmie\"") && error.text.contains("leaseTime"));
        assert!(options(json!({"options": [1]})).is_err());
    }
}
