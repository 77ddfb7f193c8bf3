//! The HTTP clients that ask for credentials.
//!
//! Owns: their time limits, and which of them goes through a proxy.
//! Leaves to others: what is asked.

use super::CredentialsError;
use ::http::Response;
use bytes::Bytes;
use object_store::client::{HttpClient, HttpRequest};
use std::time::Duration;

/// Services of the machine answer at once or not at all.
pub(super) const LOCAL_LIMIT: Duration = Duration::from_secs(1);
/// The service that gives roles may be far.
const REMOTE_LIMIT: Duration = Duration::from_secs(4);

/// A client for what lies on the machine, one for what lies beyond.
pub(super) struct Http {
    local: HttpClient,
    remote: HttpClient,
}

impl Http {
    /// Makes both. Sends nothing.
    pub fn new(authorities: Option<&[u8]>) -> Result<Http, String> {
        let bad = |err: reqwest::Error| err.to_string();
        let base = || reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        // What is asked there is nobody else's business: not the proxy's either.
        let local = base().no_proxy().connect_timeout(LOCAL_LIMIT).timeout(LOCAL_LIMIT);
        let mut remote = base().connect_timeout(REMOTE_LIMIT).timeout(REMOTE_LIMIT);
        if let Some(pem) = authorities {
            let certificates = reqwest::Certificate::from_pem_bundle(pem).map_err(bad)?;
            remote = remote.tls_certs_merge(certificates);
        }
        Ok(Http {
            local: HttpClient::new(local.build().map_err(bad)?),
            remote: HttpClient::new(remote.build().map_err(bad)?),
        })
    }

    /// Asks a service of this machine.
    pub async fn local(&self, request: HttpRequest) -> Result<Response<Bytes>, CredentialsError> {
        ask(&self.local, request).await
    }

    /// Asks any service.
    pub async fn remote(&self, request: HttpRequest) -> Result<Response<Bytes>, CredentialsError> {
        ask(&self.remote, request).await
    }
}

async fn ask(
    client: &HttpClient,
    request: HttpRequest,
) -> Result<Response<Bytes>, CredentialsError> {
    let (scheme, authority) = (request.uri().scheme_str(), request.uri().authority());
    let place = format!(
        "{}://{}",
        scheme.unwrap_or_default(),
        authority.map(|authority| authority.as_str()).unwrap_or_default()
    );
    let failed = |err: &dyn std::error::Error| CredentialsError {
        transient: true,
        text: format!("{place} does not answer: {}", last_cause(err)),
    };
    let answer = client.execute(request).await.map_err(|err| failed(&err))?;
    let (head, body) = answer.into_parts();
    let body = body.bytes().await.map_err(|err| failed(&err))?;
    Ok(Response::from_parts(head, body))
}

/// The end of a chain of errors says the cause.
fn last_cause(mut err: &dyn std::error::Error) -> String {
    while let Some(source) = err.source() {
        err = source;
    }
    err.to_string()
}
