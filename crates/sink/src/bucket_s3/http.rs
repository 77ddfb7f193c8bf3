//! The HTTP client under the library, as far as it is ours.
//!
//! Owns: hearing `Retry-After`. Leaves to others: connections, TLS and proxies (reqwest).

use async_trait::async_trait;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;

/// Hears `Retry-After`, which the library does not pass on.
#[derive(Clone, Debug)]
pub(super) struct Listening(pub Arc<Mutex<Option<Duration>>>);

#[derive(Debug)]
struct ListeningService {
    inner: HttpClient,
    heard: Arc<Mutex<Option<Duration>>>,
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
        let status = response.status().as_u16();
        if status == 429 || status >= 500 {
            let seconds = response.headers().get("retry-after");
            let seconds = seconds.and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
            *self.heard.lock() = seconds.map(Duration::from_secs);
        }
        Ok(response)
    }
}
