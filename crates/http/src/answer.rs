//! What a handler gives: an answer or a refusal, and the body that carries either.
//!
//! Owns: content types, the error bodies of every route family, `Retry-After`.

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use queen_core::ephemeral::EphemeralRefusal;
use queen_core::{Code, Error};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A complete answer.
pub(crate) type Answer = Response<Whole>;

/// A body that is sent in one piece.
///
/// It can hold something until it was handed to the connection: what is held is dropped, without
/// [`Held::sent`], when the client is gone before.
#[derive(Default)]
pub struct Whole {
    bytes: Option<Bytes>,
    held: Option<Box<dyn Held>>,
}

/// Something to be told that its answer went out; dropped untold when it did not.
pub(crate) trait Held: Send + Sync {
    /// The whole body was handed to the connection.
    fn sent(self: Box<Self>);
}

impl Whole {
    /// The body `bytes`, telling `held` when it goes out.
    pub(crate) fn holding(bytes: Bytes, held: Box<dyn Held>) -> Whole {
        Whole { bytes: Some(bytes), held: Some(held) }
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(held) = self.held.take() {
            held.sent();
        }
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |b| b.len() as u64))
    }
}

/// The type of JSON bodies.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// An answer of this status, type and body.
pub(crate) fn answer(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let bytes: Bytes = body.into();
    with_body(status, kind, Whole { bytes: Some(bytes).filter(|b| !b.is_empty()), held: None })
}

/// An answer of this status, type and body.
pub(crate) fn with_body(status: StatusCode, kind: HeaderValue, body: Whole) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// A JSON body that is a text already.
pub(crate) fn json_text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, JSON, body)
}

/// A JSON body of any serialisable value.
pub(crate) fn json(status: StatusCode, body: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(body) {
        Ok(bytes) => json_text(status, bytes),
        Err(e) => json_text(StatusCode::INTERNAL_SERVER_ERROR, format!("{{\"error\":\"{e}\"}}")),
    }
}

/// A plain text.
pub(crate) fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    answer(status, TEXT, body)
}

/// 204: nothing, and no header that speaks of a body.
pub(crate) fn no_content() -> Answer {
    let mut answer = Response::new(Whole::default());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

/// Why a request got no answer of its own.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// `{"error","code"}`, as most routes refuse.
    Plain(Error),
    /// `{"success":false,"error","messages":[]}`, as pops refuse their parameters.
    Pop(String),
    /// 400 `{"success":false,"error","code"}`, as the routes of streams refuse.
    Unsuccessful(String),
    /// `{"error","reason","detail"}`, as KV refuses: status, identifier, finer identifier, text.
    Identified(StatusCode, &'static str, &'static str, String),
    /// `{"error","code"}`, as calls on ephemeral queues refuse.
    Ephemeral(EphemeralRefusal),
    /// `{"ok":false,"code","error"}`, as changes of members are refused: status, code, text.
    Members(StatusCode, &'static str, String),
    /// `{"error"}` alone under this status.
    Bare(StatusCode, String),
    /// A body over the limit: 413 in plain text.
    BodyTooLarge(usize),
    /// No such route.
    NoRoute,
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal::Plain(error)
    }
}

impl From<EphemeralRefusal> for Refusal {
    fn from(refusal: EphemeralRefusal) -> Refusal {
        Refusal::Ephemeral(refusal)
    }
}

impl Refusal {
    /// 400 `bad_body`.
    pub(crate) fn bad_body(text: impl Into<String>) -> Refusal {
        Refusal::Plain(Error::new(Code::BadBody, text))
    }

    /// 400 `bad_request`.
    pub(crate) fn bad_request(text: impl Into<String>) -> Refusal {
        Refusal::Plain(Error::new(Code::BadRequest, text))
    }

    /// The answer that says it; one that asks to come again names the leader, if it is known.
    pub(crate) fn into_answer(self, leader: impl FnOnce() -> Option<String>) -> Answer {
        use serde_json::json;
        match self {
            Refusal::Plain(error) => plain(&error, leader),
            Refusal::Pop(error) => json(
                StatusCode::BAD_REQUEST,
                &json!({"success": false, "error": error, "messages": []}),
            ),
            Refusal::Unsuccessful(error) => json(
                StatusCode::BAD_REQUEST,
                &json!({"success": false, "error": error, "code": Code::BadRequest.word()}),
            ),
            Refusal::Identified(status, error, reason, detail) => {
                json(status, &json!({"error": error, "reason": reason, "detail": detail}))
            }
            Refusal::Ephemeral(refusal) => ephemeral(&refusal),
            Refusal::Members(status, code, error) => {
                json(status, &json!({"ok": false, "code": code, "error": error}))
            }
            Refusal::Bare(status, error) => json(status, &json!({"error": error})),
            Refusal::BodyTooLarge(limit) => text(
                StatusCode::PAYLOAD_TOO_LARGE,
                format!("the request body is over the limit of {limit} bytes"),
            ),
            Refusal::NoRoute => json_text(
                StatusCode::NOT_FOUND,
                &b"{\"error\":\"Not Found\",\"code\":\"no_such_route\"}"[..],
            ),
        }
    }
}

fn ephemeral(refusal: &EphemeralRefusal) -> Answer {
    let status = StatusCode::from_u16(refusal.kind.status()).unwrap_or_default();
    let body = serde_json::json!({"error": refusal.text, "code": refusal.kind.word()});
    let mut answer = json(status, &body);
    if refusal.kind.passes() {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

fn plain(error: &Error, leader: impl FnOnce() -> Option<String>) -> Answer {
    let status = StatusCode::from_u16(error.code.status()).unwrap_or_default();
    let mut body = serde_json::json!({"error": error.text, "code": error.code.word()});
    if status == StatusCode::SERVICE_UNAVAILABLE
        && let Some(leader) = leader()
    {
        body["leader"] = leader.into();
    }
    let mut answer = json(status, &body);
    if matches!(error.code, Code::Overloaded | Code::Retry | Code::NoLeader) {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn body(error: Error, leader: Option<&str>) -> serde_json::Value {
        let answer = Refusal::Plain(error).into_answer(|| leader.map(str::to_owned));
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn an_answer_that_asks_to_come_again_names_the_leader_if_it_is_known() {
        for code in [Code::NoLeader, Code::Retry, Code::Timeout, Code::OutcomeUnknown] {
            let named = body(Error::new(code, "x"), Some("queen-2:6632")).await;
            assert_eq!(named["leader"], "queen-2:6632");
            assert!(body(Error::new(code, "x"), None).await.get("leader").is_none());
        }
        let other = body(Error::new(Code::BadRequest, "x"), Some("queen-2:6632")).await;
        assert!(other.get("leader").is_none());
    }
}
