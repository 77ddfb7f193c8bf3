//! `GET /status`: a short account of the node and of the parts that run in it.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::health;
use hyper::StatusCode;
use queen_broker::{HeldQueue, Phase};
use serde_json::{Map, Value, json};

/// `GET /status`.
pub(crate) async fn status(call: Call) -> Result<Answer, Refusal> {
    let standing = call.broker().standing();
    let mut body = Map::new();
    body.insert("version".into(), json!(call.face.options.version));
    body.insert("uptimeSeconds".into(), json!(call.face.started.elapsed().as_secs()));
    body.insert("raft".into(), health::raft(&call));
    body.insert("parkedLongPolls".into(), json!(standing.parked));
    body.insert("storageFull".into(), json!(standing.storage_full));
    body.insert("damage".into(), damage(&call));
    body.insert("retentionHolds".into(), holds(&call));
    for extra in &call.face.extras {
        body.insert(extra.name().to_owned(), extra.status());
    }
    Ok(json(StatusCode::OK, &Value::Object(body)))
}

/// Where queue logs are damaged.
fn damage(call: &Call) -> Value {
    let line = |found: queen_broker::Finding| json!({"file": found.file, "position": found.position, "what": found.what});
    call.broker().damage().into_iter().map(line).collect()
}

/// What queues keep for a sink beyond their retention.
fn holds(call: &Call) -> Value {
    let now = call.broker().now();
    let line = |held: HeldQueue| {
        json!({
            "queue": held.queue,
            "sink": held.sink,
            "phase": match held.phase {
                Phase::Holding => "holding",
                Phase::Ending => "ending",
                Phase::Ended => "ended",
            },
            "oldest": held.oldest.to_iso(),
            "ageSeconds": now.0.saturating_sub(held.oldest.0) / 1_000_000,
            "ends": held.ends.to_iso(),
        })
    };
    call.broker().holds().into_iter().map(line).collect()
}
