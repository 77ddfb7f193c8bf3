//! From text to [`BucketSettings`].
//!
//! Owns: the checks of endpoint, region, bucket name, credentials, encryption and certificates.
//! Leaves to others: everything else (`parse`).

use super::parse::Reader;
use super::{BucketSettings, Secret, Sse, StaticKeys};
use std::time::Duration;

/// What follows the host and a colon; colons inside `[…]` belong to the host.
fn port(authority: &str) -> Option<&str> {
    let host_end = authority.rfind(']').map_or(0, |at| at + 1);
    authority[host_end..].split_once(':').map(|(_, port)| port)
}

fn endpoint(r: &mut Reader) -> String {
    let text = r.required("ENDPOINT", "where the bucket is, for example http://127.0.0.1:7070");
    if text.is_empty() {
        return text;
    }
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        r.error("ENDPOINT", "must begin with http:// or https://, for example https://s3.eu-central-1.amazonaws.com");
        return text;
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@', ' ']) {
        r.error("ENDPOINT", "must be a scheme, a host and a port only (put folders in QUEEN_S3_PREFIX), for example http://127.0.0.1:7070");
    } else if rest.is_empty() || rest.starts_with(':') {
        r.error("ENDPOINT", "names no host, for example http://127.0.0.1:7070");
    } else if port(rest).is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        r.error("ENDPOINT", "the port must be 1 to 65535, for example http://127.0.0.1:7070");
    }
    text.strip_suffix('/').unwrap_or(&text).to_owned()
}

/// Where the bucket is, and how to talk to it.
pub(super) fn bucket(r: &mut Reader, ambient_credentials: bool) -> BucketSettings {
    let endpoint = endpoint(r);
    let region = r.required("REGION", "the region of the signature, for example us-east-1");
    let bucket = r.required("BUCKET", "the bucket's name, for example lake");
    if bucket.contains(['/', ' ']) {
        r.error("BUCKET", "must be a bucket's name without slash or space (put folders in QUEEN_S3_PREFIX), for example lake");
    }
    let keys = keys(r, &endpoint, ambient_credentials);
    let sse = sse(r);
    BucketSettings {
        endpoint,
        region,
        bucket,
        keys,
        path_style: r.boolean("PATH_STYLE", false),
        sse,
        ca_file: ca_file(r),
        multipart_threshold: r.number(
            "MULTIPART_THRESHOLD_MB",
            64,
            5..=5120,
            "longest object sent in one request, MiB",
        ) << 20,
        request_timeout: Duration::from_secs(20),
    }
}

fn keys(r: &mut Reader, endpoint: &str, ambient: bool) -> Option<StaticKeys> {
    let access = r.get("ACCESS_KEY").map(str::to_owned);
    let secret = r.get("SECRET_KEY").map(str::to_owned);
    let session_token = r.get("SESSION_TOKEN").map(Secret::new);
    match (access, secret) {
        (Some(access_key), Some(secret)) => {
            return Some(StaticKeys { access_key, secret_key: Secret::new(secret), session_token });
        }
        (Some(_), None) => r.error("SECRET_KEY", "not set, and needed beside QUEEN_S3_ACCESS_KEY"),
        (None, Some(_)) => r.error("ACCESS_KEY", "not set, and needed beside QUEEN_S3_SECRET_KEY"),
        (None, None) if ambient || endpoint.contains(".amazonaws.com") => {
            if session_token.is_some() {
                r.error(
                    "SESSION_TOKEN",
                    "goes with QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY only",
                );
            }
        }
        (None, None) => {
            r.error(
                "ACCESS_KEY",
                "not set, and needed: the credentials' key id, for example queen",
            );
            r.error("SECRET_KEY", "not set, and needed: the credentials' secret");
        }
    }
    None
}

fn sse(r: &mut Reader) -> Option<Sse> {
    let kind = r.word(
        "SSE",
        "",
        &[("aes256", "aes256"), ("aws:kms", "kms"), ("kms", "kms")],
        "the encryption by the bucket",
    );
    let key_id = r.get("SSE_KMS_KEY_ID").map(str::to_owned);
    if key_id.is_some() && kind != "kms" {
        r.error("SSE_KMS_KEY_ID", "goes with QUEEN_S3_SSE=aws:kms only; set that or unset this");
    }
    match kind {
        "aes256" => Some(Sse::Aes256),
        "kms" => Some(Sse::Kms { key_id }),
        _ => None,
    }
}

fn ca_file(r: &mut Reader) -> Option<String> {
    let path = r.get("CA_FILE")?.to_owned();
    match std::fs::read(&path) {
        Ok(bytes) if bytes.windows(10).any(|w| w == b"-----BEGIN") => {}
        Ok(_) => {
            r.error("CA_FILE", "holds no PEM certificate, for example /etc/ssl/certs/my-ca.pem")
        }
        Err(err) => r.error(
            "CA_FILE",
            format!("cannot be read ({err}), for example /etc/ssl/certs/my-ca.pem"),
        ),
    }
    Some(path)
}
