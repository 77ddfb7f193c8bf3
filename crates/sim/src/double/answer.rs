//! An answer: status, headers, and a body that may come in pieces with pauses between.
//!
//! Owns: the type and its shapes. Leaves to others: when it is given (`rule`), sending (`serve`).

use super::xml;
use bytes::Bytes;
use std::time::Duration;

/// What a request is answered with.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers beside those of HTTP itself.
    pub headers: Vec<(String, String)>,
    /// Pieces of the body, each sent after its pause.
    pub body: Vec<(Duration, Bytes)>,
    /// Length that a HEAD tells.
    pub told_length: Option<u64>,
}

impl Answer {
    /// An answer without a body.
    pub fn status(status: u16) -> Answer {
        Answer { status, ..Answer::default() }
    }

    /// The XML error of S3 under this status; 200 makes an error inside a success.
    pub fn error(status: u16, code: &str, message: &str) -> Answer {
        Answer::status(status)
            .header("content-type", "application/xml")
            .body(xml::error(code, message))
    }

    /// With this header too, or with this value in its place.
    pub fn header(mut self, name: &str, value: &str) -> Answer {
        self = self.without(name);
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Without this header.
    pub fn without(mut self, name: &str) -> Answer {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// With this body.
    pub fn body(mut self, body: impl Into<Bytes>) -> Answer {
        self.body = vec![(Duration::ZERO, body.into())];
        self
    }

    /// With `count` blanks before the body, one after each pause: how S3 keeps a connection alive
    /// while it joins parts. The status has gone out long before the outcome is known.
    pub fn after_blanks(mut self, count: usize, pause: Duration) -> Answer {
        let blank = (pause, Bytes::from_static(b" "));
        self.body.splice(0..0, std::iter::repeat_n(blank, count));
        self
    }
}
