//! Credentials of a container and of an instance.
//!
//! Owns: the questions to the two services, and the words when they do not answer.
//! Leaves to others: which is asked (`credentials`), time limits (`http`).

use super::http::{Http, LOCAL_LIMIT};
use super::{CredentialsError, Fetched, Found};
use crate::settings::Container;
use ::http::{Method, Request, Response};
use bytes::Bytes;
use object_store::aws::AwsCredential;
use object_store::client::{HttpRequest, HttpRequestBody};
use queen_core::Stamp;
use serde::Deserialize;
use std::time::{Duration, SystemTime};

/// What both services answer.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    access_key_id: String,
    secret_access_key: String,
    token: String,
    expiration: String,
}

/// When a time of an answer is.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    let stamp = Stamp::parse_iso(text)?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_micros(stamp.0))
}

/// A GET or PUT with headers.
fn request(
    method: Method,
    url: &str,
    headers: &[(&str, &str)],
) -> Result<HttpRequest, CredentialsError> {
    let mut request = Request::builder().method(method).uri(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request
        .body(HttpRequestBody::empty())
        .map_err(|err| CredentialsError::lasting(format!("{url} cannot be asked: {err}")))
}

fn read(answer: &Response<Bytes>, source: String, place: &str) -> Fetched {
    let bad = || {
        let status = answer.status().as_u16();
        CredentialsError {
            transient: status >= 500 || status == 429,
            text: format!("{place} gave no credentials (status {status})"),
        }
    };
    if !answer.status().is_success() {
        return Err(bad());
    }
    let found: Answer = serde_json::from_slice(answer.body()).map_err(|_| bad())?;
    Ok(Found {
        credential: AwsCredential {
            key_id: found.access_key_id,
            secret_key: found.secret_access_key,
            token: Some(found.token),
        },
        expires: Some(time(&found.expiration).ok_or_else(bad)?),
        source,
    })
}

/// Asks a container's service.
pub(super) async fn container(http: &Http, container: &Container) -> Fetched {
    let token = match (&container.token_file, &container.token) {
        (Some(file), _) => Some(tokio::fs::read_to_string(file).await.map_err(|err| {
            CredentialsError::lasting(format!(
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={}: cannot be read ({err})",
                file.display()
            ))
        })?),
        (None, Some(token)) => Some(token.expose().to_owned()),
        (None, None) => None,
    };
    let token = token.as_deref().map(str::trim);
    let headers: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", *token)).collect();
    let answer = http.local(request(Method::GET, &container.url, &headers)?).await?;
    read(&answer, "the container's role".to_owned(), &container.url)
}

/// Asks the instance's metadata service (version 2 only).
pub(super) async fn instance(http: &Http, endpoint: &str) -> Fetched {
    let seconds = [("x-aws-ec2-metadata-token-ttl-seconds", "600")];
    let token = request(Method::PUT, &format!("{endpoint}/latest/api/token"), &seconds)?;
    let token = http.local(token).await.map_err(|error| unreachable(endpoint, &error))?;
    if !token.status().is_success() {
        let status = token.status().as_u16();
        return Err(CredentialsError::lasting(format!(
            "the instance metadata service at {endpoint} refused a session ({status}): turn its \
             version 2 on, or set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"
        )));
    }
    let token = String::from_utf8_lossy(token.body()).trim().to_owned();
    let token = [("x-aws-ec2-metadata-token", token.as_str())];
    let roles = format!("{endpoint}/latest/meta-data/iam/security-credentials/");
    let listed = http.local(request(Method::GET, &roles, &token)?).await?;
    let role = String::from_utf8_lossy(listed.body());
    let role = role.lines().next().unwrap_or_default().trim();
    if !listed.status().is_success() || role.is_empty() {
        return Err(CredentialsError::lasting(
            "the instance has no role: give it one that may write the bucket, or set \
             QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY",
        ));
    }
    let url = format!("{roles}{role}");
    let answer = http.local(request(Method::GET, &url, &token)?).await?;
    read(&answer, format!("the instance's role {role}"), endpoint)
}

fn unreachable(endpoint: &str, error: &CredentialsError) -> CredentialsError {
    CredentialsError {
        transient: true,
        text: format!(
            "no credentials are set, and the instance metadata service gave no answer within \
             {LOCAL_LIMIT:?} ({error}): on an instance of EC2 in a container its hop limit must be 2 \
             or more (aws ec2 modify-instance-metadata-options --http-put-response-hop-limit 2); \
             elsewhere set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY. It was asked at {endpoint}"
        ),
    }
}
