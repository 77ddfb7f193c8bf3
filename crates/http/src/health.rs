//! `GET /health`: whether this node can commit.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::query::on;
use hyper::StatusCode;
use serde_json::{Value, json};

/// `GET /health`: 200 while this node leads and takes work, 503 otherwise.
///
/// With `?sink=true` the sink must keep up as well.
pub(crate) async fn health(call: Call) -> Result<Answer, Refusal> {
    let standing = call.broker().standing();
    let (status, word) = match (standing.term, standing.stopping) {
        (Some(_), false) => (StatusCode::OK, "healthy"),
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (None, false) => (StatusCode::SERVICE_UNAVAILABLE, "settling"),
    };
    let ask_sink = call.query().get("sink").is_some_and(|text| on(&text));
    let trouble = match ask_sink {
        true => call.face.extras.iter().find_map(|extra| extra.healthy().err()),
        false => None,
    };
    let (status, word) = match (status, &trouble) {
        (StatusCode::OK, Some(_)) => (StatusCode::SERVICE_UNAVAILABLE, "sink"),
        other => (other.0, word),
    };
    let body = json!({
        "status": word,
        "sink": trouble,
        "engine": "raft",
        "version": call.face.options.version,
        "raft": raft(&call),
    });
    Ok(json(status, &body))
}

/// The log's part of `/health`, `/metrics` and `/status`.
pub(crate) fn raft(call: &Call) -> Value {
    let standing = call.broker().standing();
    json!({
        "role": if standing.term.is_some() { "leader" } else { "follower" },
        "leader": standing.term.is_some(),
        "term": standing.term,
        "applied": standing.applied,
        "durable": standing.durable,
        "lag": standing.waiting,
        "storageReady": !standing.storage_full,
    })
}
