//! `GET /health`: whether this node can commit.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use hyper::StatusCode;
use serde_json::json;

/// `GET /health`.
pub(crate) async fn health(call: Call) -> Result<Answer, Refusal> {
    let body = json!({"status": "healthy", "version": call.face.options.version});
    Ok(json(StatusCode::OK, &body))
}
