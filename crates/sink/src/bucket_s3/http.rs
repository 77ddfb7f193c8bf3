//! The HTTP client under the library, as far as it is ours.
//!
//! Owns: hearing what answers say that the library does not pass on. Leaves to others: connections,
//! TLS and proxies (reqwest).

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// What the answers said that the library does not pass on.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// The last `Retry-After`, until the next failure takes it.
    pub retry_after: Option<Duration>,
    /// How far this machine's clock is ahead of the bucket's, seconds, at the last answer.
    pub clock_ahead: Option<i64>,
}

#[derive(Clone, Debug)]
pub(super) struct Listening(pub Arc<Mutex<Heard>>);

#[derive(Debug)]
struct ListeningService {
    inner: HttpClient,
    heard: Arc<Mutex<Heard>>,
}

impl HttpConnector for Listening {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(ListeningService { inner, heard: self.0.clone() }))
    }
}

#[async_trait]
impl HttpService for ListeningService {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let response = self.inner.execute(request).await?;
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        let mut heard = self.heard.lock();
        if status == 429 || status >= 500 {
            let seconds = header("retry-after").and_then(|value| value.parse().ok());
            heard.retry_after = seconds.map(Duration::from_secs);
        }
        let date = header("date").and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
        if let Some(there) = date {
            let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let here = here.unwrap_or_default().as_secs() as i64;
            heard.clock_ahead = Some(here - there.timestamp().as_second());
        }
        drop(heard);
        Ok(response)
    }
}
