//! From text to [`BucketSettings`].
//!
//! Owns: the checks of endpoint, region, bucket name, credentials, encryption and certificates.
//! Leaves to others: everything else (`parse`).

use super::machine::machine;
use super::parse::Reader;
use super::{BucketSettings, Checksum, Secret, Sse, StaticKeys};
use queen_core::setting::sink as table;
use std::time::Duration;

/// What follows the host and a colon; colons inside `[…]` belong to the host.
fn port(authority: &str) -> Option<&str> {
    let host_end = authority.rfind(']').map_or(0, |at| at + 1);
    authority[host_end..].split_once(':').map(|(_, port)| port)
}

fn endpoint(r: &mut Reader) -> String {
    let text = r.required(&table::ENDPOINT);
    if text.is_empty() {
        return text;
    }
    let Some(rest) = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://")) else {
        r.error(&table::ENDPOINT, "must begin with http:// or https://, for example https://s3.eu-central-1.amazonaws.com");
        return text;
    };
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@', ' ']) {
        r.error(&table::ENDPOINT, "must be a scheme, a host and a port only (put folders in QUEEN_S3_PREFIX), for example http://127.0.0.1:7070");
    } else if rest.is_empty() || rest.starts_with(':') {
        r.error(&table::ENDPOINT, "names no host, for example http://127.0.0.1:7070");
    } else if port(rest).is_some_and(|port| port.parse::<u16>().map_or(true, |port| port == 0)) {
        r.error(&table::ENDPOINT, "the port must be 1 to 65535, for example http://127.0.0.1:7070");
    }
    text.strip_suffix('/').unwrap_or(&text).to_owned()
}

/// Where the bucket is, and how to talk to it.
pub(super) fn bucket(r: &mut Reader, request_timeout: Duration) -> BucketSettings {
    let endpoint = endpoint(r);
    let region = r.required(&table::REGION);
    let bucket = r.required(&table::BUCKET);
    if bucket.contains(['/', ' ']) {
        r.error(&table::BUCKET, "must be a bucket's name without slash or space (put folders in QUEEN_S3_PREFIX), for example lake");
    }
    let machine = machine(r);
    let offered = machine.offers(r) || endpoint.contains(".amazonaws.com");
    let keys = keys(r, offered);
    let path_style = path_style(r, &endpoint);
    let sse = sse(r);
    BucketSettings {
        endpoint,
        region,
        bucket,
        keys,
        machine,
        path_style,
        sse,
        checksum: checksum(r),
        expected_owner: expected_owner(r),
        acl: Some(r.word(&table::ACL)).filter(|acl| !acl.is_empty()),
        ca_file: ca_file(r),
        multipart_threshold: r.number(&table::MULTIPART_THRESHOLD_MB) << 20,
        request_timeout,
    }
}

fn path_style(r: &mut Reader, endpoint: &str) -> bool {
    let path_style = r.switch(&table::PATH_STYLE);
    let host = endpoint.split_once("://").map(|(_, host)| host).unwrap_or_default();
    let host = port(host).map_or(host, |port| &host[..host.len() - port.len() - 1]);
    let is_address = host.starts_with('[') || host.parse::<std::net::Ipv4Addr>().is_ok();
    if is_address && !path_style {
        r.error(
            &table::PATH_STYLE,
            format!(
                "must be true: the bucket cannot stand before the address {host} in the host; \
                 set QUEEN_S3_PATH_STYLE=true, or name a host in QUEEN_S3_ENDPOINT"
            ),
        );
    }
    path_style
}

fn keys(r: &mut Reader, offered: bool) -> Option<StaticKeys> {
    let access = r.get(&table::ACCESS_KEY).map(str::to_owned);
    let secret = r.get(&table::SECRET_KEY).map(str::to_owned);
    let session_token = r.get(&table::SESSION_TOKEN).map(Secret::new);
    match (access, secret) {
        (Some(access_key), Some(secret)) => {
            return Some(StaticKeys { access_key, secret_key: Secret::new(secret), session_token });
        }
        (Some(_), None) => {
            r.error(&table::SECRET_KEY, "not set, and needed beside QUEEN_S3_ACCESS_KEY")
        }
        (None, Some(_)) => {
            r.error(&table::ACCESS_KEY, "not set, and needed beside QUEEN_S3_SECRET_KEY")
        }
        (None, None) if offered => {
            if session_token.is_some() {
                r.error(
                    &table::SESSION_TOKEN,
                    "goes with QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY only",
                );
            }
        }
        (None, None) => {
            r.missing(&table::ACCESS_KEY);
            r.missing(&table::SECRET_KEY);
        }
    }
    None
}

fn sse(r: &mut Reader) -> Option<Sse> {
    let kind = r.word(&table::SSE);
    let key_id = r.get(&table::SSE_KMS_KEY_ID).map(str::to_owned);
    if key_id.is_some() && kind != "aws:kms" {
        r.error(
            &table::SSE_KMS_KEY_ID,
            "goes with QUEEN_S3_SSE=aws:kms only; set that or unset this",
        );
    }
    match kind {
        "AES256" => Some(Sse::Aes256),
        "aws:kms" => Some(Sse::Kms { key_id }),
        _ => None,
    }
}

fn checksum(r: &mut Reader) -> Checksum {
    match r.word(&table::CHECKSUM) {
        "off" => Checksum::Off,
        "sha256" => Checksum::Sha256,
        "md5" => Checksum::Md5,
        _ => Checksum::Auto,
    }
}

fn expected_owner(r: &mut Reader) -> Option<String> {
    let account = r.get(&table::EXPECTED_BUCKET_OWNER)?.to_owned();
    if account.len() != 12 || !account.bytes().all(|b| b.is_ascii_digit()) {
        r.error(&table::EXPECTED_BUCKET_OWNER, "must be 12 digits, for example 111122223333");
    }
    Some(account)
}

fn ca_file(r: &mut Reader) -> Option<String> {
    let path = r.get(&table::CA_FILE)?.to_owned();
    match std::fs::read(&path) {
        Ok(bytes) if bytes.windows(10).any(|w| w == b"-----BEGIN") => {}
        Ok(_) => r.error(
            &table::CA_FILE,
            "holds no PEM certificate, for example /etc/ssl/certs/my-ca.pem",
        ),
        Err(err) => r.error(
            &table::CA_FILE,
            format!("cannot be read ({err}), for example /etc/ssl/certs/my-ca.pem"),
        ),
    }
    Some(path)
}
