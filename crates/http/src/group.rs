//! Consumer group routes: list, detail, lagging, seek, subscription, delete.
//!
//! Owns: their JSON. Leaves to others: sums (`queen_broker::groups`), rules (`queen-state`).

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::push::name_too_long;
use hyper::StatusCode;
use queen_broker::groups::GroupOnQueue;
use queen_core::command::{DeleteGroup, GroupStart, MoveSubscription, Seek, SeekTo};
use queen_core::limits::NAME_BYTES_MAX;
use queen_core::{LeaseId, Offset, Stamp};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Seconds of lag from which a group is called lagging.
const LAGGING_SECONDS: u64 = 300;
/// Lag asked for when the request does not say.
const LAG_DEFAULT: i64 = 3600;

fn seconds_since(now: Stamp, then: Option<Stamp>) -> u64 {
    then.map_or(0, |then| now.0.saturating_sub(then.0) / 1_000_000)
}

/// `GET /api/v1/consumer-groups`.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let (broker, now) = (call.broker(), call.broker().now());
    let mut rows = Vec::new();
    for group in broker.groups(call.tenant(), None).await? {
        let (mut cursors, mut lagging, mut messages) = (0u64, 0u64, 0u64);
        let (mut oldest, mut leases) = (None::<Stamp>, BTreeSet::<LeaseId>::new());
        broker
            .lags(&group, |_, lag| {
                cursors += u64::from(lag.cursor.is_some());
                lagging += u64::from(lag.messages > 0);
                messages += lag.messages;
                oldest = match (oldest, lag.oldest) {
                    (Some(a), Some(b)) => Some(a.min(b)),
                    (a, b) => a.or(b),
                };
                let held = lag.cursor.and_then(|cursor| cursor.lease);
                leases.extend(held.filter(|held| held.expires > now).map(|held| held.id));
            })
            .await?;
        let time_lag = seconds_since(now, oldest);
        let state = if time_lag > LAGGING_SECONDS { "Lagging" } else { "Stable" };
        rows.push(json!({
            "name": group.name,
            "topics": [group.queue.row.name],
            "queueName": group.queue.row.name,
            "members": leases.len(),
            "partitionCursors": cursors,
            "partitionsWithLag": lagging,
            "totalLag": messages,
            "maxTimeLag": time_lag,
            "state": state,
            "storage": "segments",
            "subscriptionMode": mode(&group),
            "subscriptionTimestamp": group.row.start.to_iso(),
            "subscriptionCreatedAt": group.row.registered.to_iso(),
            "conflation": group.row.conflation,
        }));
    }
    Ok(json(StatusCode::OK, &rows))
}

fn mode(group: &GroupOnQueue) -> &'static str {
    match group.row.mode {
        GroupStart::New => "new",
        GroupStart::All => "all",
        GroupStart::From(_) => "from",
    }
}

/// `GET /api/v1/consumer-groups/:group`.
pub(crate) async fn detail(call: Call) -> Result<Answer, Refusal> {
    let (broker, now) = (call.broker(), call.broker().now());
    let mut body = Map::new();
    for group in broker.groups(call.tenant(), Some(call.param(0))).await? {
        let mut partitions = Vec::new();
        broker
            .lags(&group, |partition, lag| {
                if lag.cursor.is_none() && lag.messages == 0 {
                    return;
                }
                let cursor = lag.cursor.unwrap_or_default();
                let held = cursor.lease.filter(|held| held.expires > now);
                partitions.push(json!({
                    "partition": partition.name,
                    "workerId": held.map(|held| held.id.to_string()),
                    "lastConsumedAt": consumed_at(cursor.moved),
                    "totalConsumed": cursor.next.0,
                    "offsetLag": lag.messages,
                    "timeLagSeconds": seconds_since(now, lag.oldest),
                    "leaseActive": held.is_some(),
                }));
            })
            .await?;
        let on_queue = json!({"conflation": group.row.conflation, "partitions": partitions});
        body.insert(group.queue.row.name, on_queue);
    }
    Ok(json(StatusCode::OK, &body))
}

fn consumed_at(moved: Stamp) -> Option<String> {
    (moved != Stamp::ZERO).then(|| moved.to_iso())
}

/// `GET /api/v1/consumer-groups/lagging`.
pub(crate) async fn lagging(call: Call) -> Result<Answer, Refusal> {
    let (broker, now) = (call.broker(), call.broker().now());
    let least = call.query().number("minLagSeconds").map_err(Refusal::bad_request)?;
    let least = least.unwrap_or(LAG_DEFAULT).max(0) as u64;
    let mut rows = Vec::new();
    for group in broker.groups(call.tenant(), None).await? {
        broker
            .lags(&group, |partition, lag| {
                let seconds = seconds_since(now, lag.oldest);
                if lag.messages == 0 || seconds < least {
                    return;
                }
                let cursor = lag.cursor.unwrap_or_default();
                let held = cursor.lease.filter(|held| held.expires > now);
                rows.push(json!({
                    "consumer_group": group.name,
                    "queue_name": group.queue.row.name,
                    "partition_name": partition.name,
                    "partition_id": partition.row.id.to_string(),
                    "worker_id": held.map(|held| held.id.to_string()),
                    "offset_lag": lag.messages,
                    "time_lag_seconds": seconds,
                    "lag_hours": (seconds as f64 / 36.0).round() / 100.0,
                    "oldest_unconsumed_at": lag.oldest.map(Stamp::to_iso),
                    "last_consumed_at": consumed_at(cursor.moved),
                }));
            })
            .await?;
    }
    Ok(json(StatusCode::OK, &rows))
}

/// `POST /api/v1/consumer-groups/:group/queues/:queue/seek`.
pub(crate) async fn seek_queue(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let to = destination(&body)?.ok_or_else(|| {
        Refusal::bad_request("a seek says where to: \"toEnd\": true, or \"timestamp\"")
    })?;
    seek(&call, None, to, &body).await
}

/// `POST /api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek`.
pub(crate) async fn seek_partition(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let to = match destination(&body)? {
        Some(to) => to,
        None => match body.get("offset") {
            Some(offset) => SeekTo::Offset(Offset(offset.as_u64().ok_or_else(|| {
                Refusal::bad_request(format!("offset: {offset} is not a whole number from 0"))
            })?)),
            None if body.is_empty() => SeekTo::End,
            None => {
                let text = "a seek says where to: \"toEnd\": true, \"timestamp\" or \"offset\"";
                return Err(Refusal::bad_request(text));
            }
        },
    };
    let partition = call.param(2).to_owned();
    seek(&call, Some(&partition), to, &body).await
}

fn destination(body: &Map<String, Value>) -> Result<Option<SeekTo>, Refusal> {
    match body.get("toEnd") {
        Some(Value::Bool(true)) => return Ok(Some(SeekTo::End)),
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(other) => {
            return Err(Refusal::bad_request(format!("toEnd: {other} is neither true nor false")));
        }
    }
    match body.get("timestamp") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => Ok(Some(SeekTo::Time(time("timestamp", value)?))),
    }
}

/// A time of a body; one before 1970 is as 1970.
fn time(name: &str, value: &Value) -> Result<Stamp, Refusal> {
    let at = value.as_str().and_then(Stamp::parse_iso);
    at.ok_or_else(|| Refusal::bad_request(format!("{name}: {value} is not an ISO 8601 time")))
}

async fn seek(
    call: &Call,
    partition: Option<&str>,
    to: SeekTo,
    body: &Map<String, Value>,
) -> Result<Answer, Refusal> {
    let (group, queue) = (call.param(0), call.param(1));
    let longer = group.len().max(partition.map_or(0, str::len));
    if queue.len() + longer > NAME_BYTES_MAX {
        return Err(name_too_long("the seek", queue.len() + longer));
    }
    let command = Seek { tenant: call.tenant(), group, queue, partition, to };
    let moved = call.broker().seek(command).await?;
    let mut answer = json!({
        "success": moved.is_some(),
        "consumerGroup": group,
        "queueName": queue,
        "seekToEnd": to == SeekTo::End,
        "targetTimestamp": body.get("timestamp"),
        "partitionsUpdated": moved.unwrap_or(0),
    });
    if let Some(partition) = partition {
        answer["partitionName"] = json!(partition);
        answer["updated"] = json!(moved.is_some());
    }
    if moved.is_some() {
        return Ok(json(StatusCode::OK, &answer));
    }
    answer["error"] = json!("Queue not found or has no partitions");
    Ok(json(StatusCode::NOT_FOUND, &answer))
}

/// `POST /api/v1/consumer-groups/:group/subscription`.
pub(crate) async fn subscription(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let Some(wanted) = body.get("subscriptionTimestamp").filter(|value| !value.is_null()) else {
        return Err(Refusal::bad_request("subscriptionTimestamp is required"));
    };
    let to = time("subscriptionTimestamp", wanted)?;
    let group = call.param(0);
    let command = MoveSubscription { tenant: call.tenant(), group, to };
    let moved = call.broker().move_subscription(command).await?;
    let answer = json!({
        "success": true,
        "consumerGroup": group,
        "newTimestamp": wanted,
        "rowsUpdated": moved,
    });
    Ok(json(StatusCode::OK, &answer))
}

/// `DELETE /api/v1/consumer-groups/:group`.
pub(crate) async fn delete(call: Call) -> Result<Answer, Refusal> {
    forget(&call, None).await
}

/// `DELETE /api/v1/consumer-groups/:group/queues/:queue`.
pub(crate) async fn delete_on_queue(call: Call) -> Result<Answer, Refusal> {
    forget(&call, Some(call.param(1))).await
}

async fn forget(call: &Call, queue: Option<&str>) -> Result<Answer, Refusal> {
    let group = call.param(0);
    let command = DeleteGroup { tenant: call.tenant(), group, queue };
    let cursors = call.broker().delete_group(command).await?;
    let mut answer = json!({
        "success": true,
        "consumerGroup": group,
        "deletedPartitions": cursors,
        "metadataDeleted": true,
    });
    if let Some(queue) = queue {
        answer["queueName"] = json!(queue);
    }
    Ok(json(StatusCode::OK, &answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(body: Value) -> Result<Option<SeekTo>, Refusal> {
        destination(body.as_object().unwrap())
    }

    #[test]
    fn a_seek_names_the_end_or_a_time() {
        assert_eq!(to(json!({"toEnd": true})).unwrap(), Some(SeekTo::End));
        let epoch = json!({"toEnd": false, "timestamp": "1970-01-01T00:00:00Z"});
        assert_eq!(to(epoch).unwrap(), Some(SeekTo::Time(Stamp::ZERO)));
        assert_eq!(to(json!({"position": "earliest"})).unwrap(), None);
        assert!(to(json!({"timestamp": "yesterday"})).is_err());
        assert!(to(json!({"toEnd": "yes"})).is_err());
    }
}
