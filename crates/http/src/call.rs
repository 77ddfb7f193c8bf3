//! What a handler gets: the broker, the decoded path pieces, the query, the body.
//!
//! Owns: path decoding, the body limit. Leaves to others: which handler (`routes`).

use crate::answer::Refusal;
use crate::auth::Identity;
use crate::query::Query;
use crate::server::Face;
use crate::unread::Unread;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use percent_encoding::percent_decode;
use queen_broker::Broker;
use queen_core::TenantId;
use serde_json::{Map, Value};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// One request on its way to its handler.
pub(crate) struct Call {
    pub(crate) face: Arc<Face>,
    pub(crate) parts: Parts,
    /// Decoded path pieces at the `:name` and `*name` places of the route, in order.
    pub(crate) params: Vec<String>,
    /// Who sends it; `None` where no token is asked for.
    pub(crate) identity: Option<Identity>,
    pub(crate) unread: Unread,
    /// What a large body takes of the memory for such, until the request ends.
    pub(crate) room: Option<OwnedSemaphorePermit>,
}

/// Longest body that is read without asking for room.
const SMALL_BODY_BYTES: usize = 1 << 20;

impl Call {
    /// The broker.
    pub(crate) fn broker(&self) -> &Broker {
        &self.face.broker
    }

    /// Whose call it is.
    pub(crate) fn tenant(&self) -> TenantId {
        TenantId::DEFAULT
    }

    /// Who is stored as the producer of what it pushes: the subject of its token, and nothing that
    /// the request says itself.
    pub(crate) fn producer(&self) -> Option<&str> {
        self.identity.as_ref()?.subject.as_deref()
    }

    /// The decoded path piece at the route's `index`-th parameter.
    pub(crate) fn param(&self, index: usize) -> &str {
        self.params.get(index).map_or("", String::as_str)
    }

    /// The query.
    pub(crate) fn query(&self) -> Query<'_> {
        Query::new(self.parts.uri.query())
    }

    /// The whole body; empty when there is none. Over the limit is refused with 413.
    pub(crate) async fn body(&mut self) -> Result<Bytes, Refusal> {
        let Some(mut body) = self.unread.take() else { return Ok(Bytes::new()) };
        let read = self.read(&mut body).await;
        if read.is_err() {
            self.unread.put_back(body);
        }
        read
    }

    async fn read(&mut self, body: &mut Incoming) -> Result<Bytes, Refusal> {
        let limit = self.face.options.body_bytes_max;
        let announced = self
            .parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.parse::<usize>().ok());
        if announced.is_some_and(|len| len > limit) {
            return Err(Refusal::BodyTooLarge(limit));
        }
        if let Some(bytes) = announced.filter(|bytes| *bytes > SMALL_BODY_BYTES) {
            self.room = Some(self.face.room_for(bytes)?);
        }
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame =
                frame.map_err(|e| Refusal::bad_body(format!("cannot read the body: {e}")))?;
            let Ok(data) = frame.into_data() else { continue };
            if first.is_empty() && all.is_empty() {
                first = data;
                continue;
            }
            if all.is_empty() {
                all.reserve(announced.unwrap_or(first.len() + data.len()));
                all.extend_from_slice(&first);
            }
            let bytes = all.len() + data.len();
            if bytes > limit {
                return Err(Refusal::BodyTooLarge(limit));
            }
            if bytes > SMALL_BODY_BYTES && self.room.is_none() {
                // Nobody said how much is to come.
                self.room = Some(self.face.room_for(limit)?);
            }
            all.extend_from_slice(&data);
        }
        if all.is_empty() && first.len() > limit {
            return Err(Refusal::BodyTooLarge(limit));
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// The body as a JSON object; an absent or empty one is an empty object.
    pub(crate) async fn object(&mut self) -> Result<Map<String, Value>, Refusal> {
        let body = self.body().await?;
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Map::new());
        }
        match serde_json::from_slice(&body) {
            Ok(Value::Object(map)) => Ok(map),
            Ok(Value::Null) => Ok(Map::new()),
            Ok(_) => Err(Refusal::bad_body("the body is not a JSON object")),
            Err(e) => Err(Refusal::bad_body(format!("the body is not JSON: {e}"))),
        }
    }
}

/// Decodes one piece of a path.
pub(crate) fn decode_piece(piece: &str) -> Result<String, Refusal> {
    if !piece.contains('%') {
        return Ok(piece.to_owned());
    }
    let decoded = percent_decode(piece.as_bytes()).decode_utf8();
    decoded
        .map(|text| text.into_owned())
        .map_err(|e| Refusal::bad_request(format!("path piece {piece:?} is not UTF-8: {e}")))
}
