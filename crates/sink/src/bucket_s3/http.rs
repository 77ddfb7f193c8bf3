//! The HTTP client under the library, as far as it is ours.
//!
//! Owns: what the library neither sends nor passes on: `Content-MD5`, `Retry-After`, the bucket's clock,
//! errors inside a success, answers without ETag. Leaves to others: connections, TLS and proxies (reqwest).

use async_trait::async_trait;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http_body_util::BodyExt;
use md5::{Digest, Md5};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpRequestBody, HttpResponse, HttpService,
    ReqwestConnector,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// The ETag given to a PUT that was answered without one.
pub(super) const UNSAID: &str = "\"unsaid\"";
/// The code given to the end of an upload whose answer does not say what was made.
pub(super) const UNPROVEN: &str = "QueenUnproven";
/// No bucket makes the sink wait longer at one word.
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);

/// What the answers said that the library does not pass on.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The bucket asked for no request before this.
    not_before: Option<Instant>,
    /// How far this machine's clock is ahead of the bucket's, seconds, at the last answer.
    pub clock_ahead: Option<i64>,
}

impl Heard {
    fn hear(&mut self, response: &HttpResponse) {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let date = header("date").and_then(seconds_of);
        if let Some(there) = date {
            self.clock_ahead = Some(seconds_now() - there);
        }
        let status = response.status().as_u16();
        if status != 429 && status < 500 {
            return;
        }
        if let Some(pause) = header("retry-after").and_then(|value| asked_pause(value, date)) {
            let until = Instant::now() + pause;
            self.not_before = Some(self.not_before.map_or(until, |before| before.max(until)));
        }
    }

    /// What is left of the pause that the bucket asked for.
    pub fn pause(&self) -> Option<Duration> {
        self.not_before?.checked_duration_since(Instant::now())
    }
}

/// Seconds since 1970 of a date in a header.
fn seconds_of(date: &str) -> Option<i64> {
    jiff::fmt::rfc2822::parse(date.trim()).ok().map(|date| date.timestamp().as_second())
}

fn seconds_now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_secs() as i64
}

/// `Retry-After` in seconds or as a date, which is held against the date of the answer, so that a
/// wrong clock here does not count.
fn asked_pause(value: &str, date: Option<i64>) -> Option<Duration> {
    let seconds = match value.trim().parse() {
        Ok(seconds) => seconds,
        Err(_) => seconds_of(value)? - date.unwrap_or_else(seconds_now),
    };
    u64::try_from(seconds).ok().map(|seconds| Duration::from_secs(seconds).min(PAUSE_MAX))
}

/// Makes clients that hear and say what the library does not.
#[derive(Clone, Debug)]
pub(super) struct Listening {
    /// Where what is heard is noted.
    pub heard: Arc<Mutex<Heard>>,
    /// PUTs carry `Content-MD5`. The signature need not cover it.
    pub md5: bool,
}

#[derive(Debug)]
struct ListeningService {
    inner: HttpClient,
    listening: Listening,
}

impl HttpConnector for Listening {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(ListeningService { inner, listening: self.clone() }))
    }
}

#[async_trait]
impl HttpService for ListeningService {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let query = request.uri().query().unwrap_or_default();
        let (is_put, is_post) = (request.method() == "PUT", request.method() == "POST");
        let puts_object = is_put && !query.contains("partNumber=");
        let ends_upload = is_post && query.contains("uploadId=");
        if is_put && self.listening.md5 {
            let digest = content_md5(request.body().clone()).await?;
            if let Ok(value) = digest.parse() {
                request.headers_mut().insert("content-md5", value);
            }
        }
        let mut response = self.inner.execute(request).await?;
        self.listening.heard.lock().hear(&response);
        if !response.status().is_success() {
            return Ok(response);
        }
        if ends_upload {
            return proven(response).await;
        }
        if puts_object && !response.headers().contains_key("etag") {
            response.headers_mut().insert("etag", http::HeaderValue::from_static(UNSAID));
        }
        Ok(response)
    }
}

/// Base64 of the MD5 of a body; reckoned where it holds up nothing.
async fn content_md5(mut body: HttpRequestBody) -> Result<String, HttpError> {
    let mut pieces = Vec::new();
    while let Some(frame) = body.frame().await.transpose()? {
        pieces.extend(frame.into_data());
    }
    let hash = move || {
        let mut md5 = Md5::new();
        pieces.iter().for_each(|piece| md5.update(piece));
        BASE64_STANDARD.encode(md5.finalize())
    };
    Ok(match tokio::task::spawn_blocking(hash).await {
        Ok(hash) => hash,
        Err(err) => std::panic::resume_unwind(err.into_panic()),
    })
}

/// The end of an upload is answered 200 before its outcome is known: only an ETag in the body says
/// that an object was made.
async fn proven(response: HttpResponse) -> Result<HttpResponse, HttpError> {
    let (mut parts, body) = response.into_parts();
    let body = body.bytes().await?;
    // Blanks that kept the connection alive.
    let body = body.slice(body.len() - body.trim_ascii_start().len()..);
    let text = String::from_utf8_lossy(&body);
    if text.contains("<ETag>") {
        return Ok(HttpResponse::from_parts(parts, body.into()));
    }
    parts.status = http::StatusCode::INTERNAL_SERVER_ERROR;
    let told = match text.contains("<Error>") {
        true => text.into_owned(),
        false => format!("<Error><Code>{UNPROVEN}</Code></Error>"),
    };
    Ok(HttpResponse::from_parts(parts, told.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_read_as_seconds_and_as_a_date() {
        let seconds = |n| Some(Duration::from_secs(n));
        assert_eq!(asked_pause("7", None), seconds(7));
        let (date, later) = ("Sat, 24 Oct 2026 10:00:00 GMT", "Sat, 24 Oct 2026 10:01:30 GMT");
        assert_eq!(asked_pause(later, seconds_of(date)), seconds(90));
        assert_eq!(asked_pause(date, seconds_of(later)), None, "a date that is over");
        assert_eq!(asked_pause("soon", None), None);
        assert_eq!(asked_pause("999999", None), Some(PAUSE_MAX));
    }
}
