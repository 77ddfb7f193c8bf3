//! Signatures, version 4, checked as strictly as Amazon does.
//!
//! Owns: the refusals for a wrong key, secret, token, region, clock or body hash, and for headers
//! that should have been signed. Leaves to others: everything that a signed request may ask.

use super::request::{decode, encode};
use super::store::now_micros;
use super::{Answer, Inner, Request};
use aws_lc_rs::{digest, hmac};
use queen_core::Stamp;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Clocks may differ by this much, seconds.
const SKEW_MAX: i64 = 15 * 60;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn denied(status: u16, code: &str, message: &str) -> Answer {
    Answer::error(status, code, message)
}

/// The parts of an `Authorization` header.
struct Authorization<'a> {
    access: &'a str,
    day: &'a str,
    region: &'a str,
    scope: &'a str,
    signed: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Authorization<'a> {
    fn parse(header: &'a str) -> Option<Authorization<'a>> {
        let rest = header.strip_prefix("AWS4-HMAC-SHA256 ")?;
        let field = |name: &str| rest.split(',').find_map(|part| part.trim().strip_prefix(name));
        let (access, scope) = field("Credential=")?.split_once('/')?;
        let mut scope_parts = scope.split('/');
        let (day, region) = (scope_parts.next()?, scope_parts.next()?);
        let signed = field("SignedHeaders=")?.split(';').collect();
        let signature = field("Signature=")?;
        Some(Authorization { access, day, region, scope, signed, signature })
    }
}

/// Whether the request is signed as it must be.
pub(super) fn check(inner: &Inner, request: &Request) -> Result<(), Answer> {
    let header = request.header("authorization").unwrap_or_default();
    let Some(found) = Authorization::parse(header) else {
        return Err(denied(403, "AccessDenied", "the request is not signed"));
    };
    let Some(key) = inner.keys.get(found.access) else {
        let message = "The AWS Access Key Id you provided does not exist in our records.";
        return Err(denied(403, "InvalidAccessKeyId", message));
    };
    if key.expired {
        return Err(denied(400, "ExpiredToken", "The provided token has expired."));
    }
    if found.region != inner.region {
        let message = format!(
            "The authorization header is malformed; the region '{}' is wrong; expecting '{}'",
            found.region, inner.region
        );
        return Err(denied(400, "AuthorizationHeaderMalformed", &message));
    }
    let date = request.header("x-amz-date").unwrap_or_default();
    clock(date, inner.clock_ahead)?;
    let open = request.headers.iter().map(|(name, _)| name.as_str());
    if let Some(name) = open.filter(|n| n.starts_with("x-amz-")).find(|n| !found.signed.contains(n))
    {
        let message = format!("There were headers present in the request not signed: {name}");
        return Err(denied(403, "AccessDenied", &message));
    }
    let claimed = request.header("x-amz-content-sha256").unwrap_or(EMPTY);
    let text = format!(
        "AWS4-HMAC-SHA256\n{date}\n{}\n{}",
        found.scope,
        sha256(canonical(request, &found.signed, claimed).as_bytes())
    );
    let mut secret = format!("AWS4{}", key.secret).into_bytes();
    for part in [found.day, found.region, "s3", "aws4_request"] {
        secret = mac(&secret, part);
    }
    if hex(&mac(&secret, &text)) != found.signature {
        let message = "The request signature we calculated does not match the signature you \
                       provided. Check your key and signing method.";
        return Err(denied(403, "SignatureDoesNotMatch", message));
    }
    if request.header("x-amz-security-token") != key.token.as_deref() {
        return Err(denied(400, "InvalidToken", "The provided token is malformed or invalid."));
    }
    let plain = claimed != "UNSIGNED-PAYLOAD" && !claimed.starts_with("STREAMING");
    if plain && claimed != sha256(&request.body) {
        let message = "The provided 'x-amz-content-sha256' header does not match what was computed";
        return Err(denied(400, "XAmzContentSHA256Mismatch", message));
    }
    Ok(())
}

/// `20261024T102354Z`, close enough to the double's clock.
fn clock(date: &str, ahead: i64) -> Result<(), Answer> {
    let part = |from: usize, to: usize| date.get(from..to).unwrap_or_default();
    let iso = format!(
        "{}-{}-{}T{}:{}:{}Z",
        part(0, 4),
        part(4, 6),
        part(6, 8),
        part(9, 11),
        part(11, 13),
        part(13, 15)
    );
    let Some(signed_at) = Stamp::parse_iso(&iso) else {
        return Err(denied(403, "AccessDenied", "the request has no x-amz-date"));
    };
    let now = (now_micros() / 1_000_000) as i64 + ahead;
    if ((signed_at.0 / 1_000_000) as i64 - now).abs() > SKEW_MAX {
        let message = "The difference between the request time and the current time is too large.";
        return Err(denied(403, "RequestTimeTooSkewed", message));
    }
    Ok(())
}

/// What the signature is of: each part encoded once, whatever the client sent.
fn canonical(request: &Request, signed: &[&str], hash: &str) -> String {
    let mut query: Vec<String> = request
        .query
        .iter()
        .map(|(name, value)| format!("{}={}", encode(name, ""), encode(value, "")))
        .collect();
    query.sort();
    let mut headers = String::new();
    for name in signed {
        let value = request.header(name).unwrap_or_default();
        headers.push_str(&format!("{name}:{}\n", value.trim()));
    }
    format!(
        "{}\n{}\n{}\n{headers}\n{}\n{hash}",
        request.method,
        encode(&decode(&request.path), "/"),
        query.join("&"),
        signed.join(";")
    )
}
