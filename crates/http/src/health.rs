//! `GET /health`: whether this node can commit.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::query::on;
use hyper::StatusCode;
use serde_json::{Value, json};

/// Version of what the nodes of a cluster say to each other.
const CLUSTER_VERSION: u8 = queen_core::relay::VERSION;

/// `GET /health`: 200 while this node can commit and is not far behind, 503 otherwise.
///
/// With `?sink=true` the sink must keep up as well.
pub(crate) async fn health(call: Call) -> Result<Answer, Refusal> {
    let unfit = match call.broker().standing().stopping {
        true => None,
        false => call.broker().unfit().await,
    };
    let (status, word) = match (&unfit, call.broker().standing().stopping) {
        (_, true) => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        (None, false) => (StatusCode::OK, "healthy"),
        (Some(_), false) => (StatusCode::SERVICE_UNAVAILABLE, "settling"),
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
        "reason": unfit,
        "sink": trouble,
        "damagedFiles": damaged_files(&call.broker().damage()),
        "engine": "raft",
        "version": call.face.options.version,
        "raft": raft(&call),
    });
    Ok(json(status, &body))
}

/// Files among the places that are known to be damaged. They come in order.
pub(crate) fn damaged_files(damage: &[queen_broker::Finding]) -> usize {
    damage.chunk_by(|one, next| one.file == next.file).count()
}

/// The log's part of `/health`, `/metrics` and `/status`.
pub(crate) fn raft(call: &Call) -> Value {
    let standing = call.broker().standing();
    json!({
        "node": standing.node,
        "role": standing.role.name(),
        "leader": standing.leads,
        "leaderId": standing.leader.as_ref().map(|leader| leader.id),
        "term": standing.term,
        "applied": standing.applied,
        "commit": standing.committed,
        "durable": standing.durable,
        "lag": standing.committed.saturating_sub(standing.applied),
        "waiting": standing.waiting,
        "storageReady": !standing.storage_full,
        "clusterVersion": CLUSTER_VERSION,
        "kinds": queen_core::command::KINDS,
        // An entry that cannot be applied stops the node, and none is ever passed over.
        "apply": {"failure": null, "skipped": 0},
    })
}
