//! Roles, as the security token service gives them.
//!
//! Owns: its two questions, and the words of its refusals.
//! Leaves to others: whose role (`credentials`, `profile`), signing (the library).

use super::http::Http;
use super::metadata::time;
use super::{CredentialsError, Fetched, Found};
use crate::settings::{Role, WebIdentity};
use ::http::{Method, Request, Response};
use bytes::Bytes;
use object_store::aws::{AwsAuthorizer, AwsCredential};
use object_store::client::{HttpRequest, HttpRequestBody};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

/// Seconds that a role is asked for: the longest that every chain of roles allows.
const LIFE_SECONDS: &str = "3600";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Given {
    #[serde(alias = "AssumeRoleWithWebIdentityResult")]
    assume_role_result: Outcome,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Outcome {
    credentials: Keys,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Keys {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refused {
    error: Refusal,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Refusal {
    code: String,
    #[serde(default)]
    message: String,
}

fn request(endpoint: &str, fields: &[(&str, &str)]) -> Result<HttpRequest, CredentialsError> {
    let encoded = |text| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    // In the body, not in the URL: a token has no place in the logs of proxies.
    Request::builder()
        .method(Method::POST)
        .uri(format!("{}/", endpoint.trim_end_matches('/')))
        .header("content-type", "application/x-www-form-urlencoded")
        .body(HttpRequestBody::from(fields.join("&")))
        .map_err(|err| {
            CredentialsError::lasting(format!("AWS_ENDPOINT_URL_STS={endpoint}: is no URL ({err})"))
        })
}

fn read(answer: &Response<Bytes>, endpoint: &str, role: &str, source: String) -> Fetched {
    let text = String::from_utf8_lossy(answer.body());
    let status = answer.status().as_u16();
    if !answer.status().is_success() {
        let why = match quick_xml::de::from_str::<Refused>(&text) {
            Ok(Refused { error }) => format!("{} {}", error.code, error.message),
            Err(_) => format!("status {status}"),
        };
        return Err(CredentialsError {
            transient: status >= 500 || status == 429,
            text: format!("{endpoint} does not give the role {role}: {}", why.trim()),
        });
    }
    let odd = || CredentialsError {
        transient: true,
        text: format!("{endpoint} answered something else than a role for {role}"),
    };
    let Given { assume_role_result } = quick_xml::de::from_str(&text).map_err(|_| odd())?;
    let keys = assume_role_result.credentials;
    Ok(Found {
        credential: AwsCredential {
            key_id: keys.access_key_id,
            secret_key: keys.secret_access_key,
            token: Some(keys.session_token),
        },
        expires: Some(time(&keys.expiration).ok_or_else(odd)?),
        source,
    })
}

/// Takes on the role of a token in a file.
pub(super) async fn web_identity(
    http: &Http,
    endpoint: &str,
    identity: &WebIdentity,
    session: &str,
) -> Fetched {
    let file = &identity.token_file;
    let token = tokio::fs::read_to_string(file).await.map_err(|err| {
        CredentialsError::lasting(format!(
            "AWS_WEB_IDENTITY_TOKEN_FILE={}: cannot be read ({err})",
            file.display()
        ))
    })?;
    let request = request(
        endpoint,
        &[
            ("Action", "AssumeRoleWithWebIdentity"),
            ("Version", "2011-06-15"),
            ("DurationSeconds", LIFE_SECONDS),
            ("RoleArn", &identity.role),
            ("RoleSessionName", session),
            ("WebIdentityToken", token.trim()),
        ],
    )?;
    let answer = http.remote(request).await?;
    let source = format!("the web identity's role {}", identity.role);
    read(&answer, endpoint, &identity.role, source)
}

/// Takes on a role with other credentials.
pub(super) async fn assume(
    http: &Http,
    endpoint: &str,
    region: &str,
    base: &Found,
    role: &Role,
    session: &str,
) -> Fetched {
    let mut fields = vec![
        ("Action", "AssumeRole"),
        ("Version", "2011-06-15"),
        ("DurationSeconds", LIFE_SECONDS),
        ("RoleArn", &role.arn),
        ("RoleSessionName", session),
    ];
    if let Some(id) = &role.external_id {
        fields.push(("ExternalId", id));
    }
    let mut request = request(endpoint, &fields)?;
    AwsAuthorizer::new(&base.credential, "sts", region)
        .try_authorize(&mut request, None)
        .map_err(|err| CredentialsError::lasting(format!("the request cannot be signed: {err}")))?;
    let answer = http.remote(request).await?;
    let source = match base.source.as_str() {
        "" => format!("role {}", role.arn),
        base => format!("role {} taken on with {base}", role.arn),
    };
    read(&answer, endpoint, &role.arn, source)
}
