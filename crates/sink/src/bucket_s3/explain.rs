//! What the library's failures mean, in words.
//!
//! Owns: the kind of each failure, and the sentence with the way out.
//! Leaves to others: when a call is made again (`retry`), the words of missing credentials
//! (`credentials`).

use super::credentials::CredentialsError;
use super::http::UNPROVEN;
use crate::bucket::ErrorKind;

/// Where it failed.
pub(super) struct Place<'a> {
    pub bucket: &'a str,
    pub endpoint: &'a str,
    pub path_style: bool,
    /// The credentials are the sink's own, or the environment's: nobody renews them.
    pub lasting_keys: bool,
}

/// 404, unless it is the bucket that is missing.
pub(super) fn is_missing_key(err: &object_store::Error) -> bool {
    matches!(err, object_store::Error::NotFound { .. }) && !chain(err).contains("NoSuchBucket")
}

fn chain(err: &dyn std::error::Error) -> String {
    let mut text = err.to_string();
    let mut source = err.source();
    while let Some(err) = source {
        let more = err.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        source = err.source();
    }
    text
}

/// What S3 calls it, in its XML.
fn s3_code(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Code>")?;
    rest.split_once("</Code>").map(|(code, _)| code)
}

/// What S3 says of it, in its XML.
fn s3_message(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("<Message>")?;
    rest.split_once("</Message>").map(|(message, _)| message)
}

/// Whether a refusal speaks of the headers that prove a body.
fn about_proof(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    // Those of the request are not in the text; its address is, and may hold any word.
    let said = text.split_once("non-2xx status code: ").map_or("", |(_, said)| said);
    ["content-md5", "contentmd5", "checksum", "notimplemented"].iter().any(|w| said.contains(w))
}

/// HTTP status in the library's text.
fn status_in(text: &str) -> Option<u16> {
    let (_, rest) = text.split_once("non-2xx status code: ")?;
    rest.get(..3)?.parse().ok()
}

/// The kind of a failure and its sentence.
pub(super) fn explain(err: &object_store::Error, place: &Place<'_>) -> (ErrorKind, String) {
    let Place { bucket, endpoint, .. } = place;
    if let Some(error) = no_credentials(err) {
        let kind = match error.transient {
            true => ErrorKind::Unreachable,
            false => ErrorKind::NoCredentials,
        };
        return (kind, error.text.clone());
    }
    let text = chain(err);
    let code = s3_code(&text);
    let status = status_in(&text);
    let known: Option<(ErrorKind, String)> = match (code, status) {
        (Some("NoSuchBucket"), _) => Some((
            ErrorKind::MissingBucket,
            format!("bucket {bucket} does not exist at {endpoint}; make it, or correct QUEEN_S3_BUCKET"),
        )),
        (Some("InvalidAccessKeyId"), _) => Some((
            ErrorKind::WrongKey,
            format!("{endpoint} does not know this access key; correct QUEEN_S3_ACCESS_KEY"),
        )),
        (Some("SignatureDoesNotMatch"), _) => Some((
            ErrorKind::WrongSecret,
            "the signature does not match: the secret does not belong to the access key; correct QUEEN_S3_SECRET_KEY".to_owned(),
        )),
        (Some("RequestTimeTooSkewed"), _) => Some((
            ErrorKind::ClockSkew,
            "the clocks of this machine and of the bucket differ by more than 15 minutes; set this machine's clock".to_owned(),
        )),
        (Some("ExpiredToken" | "ExpiredTokenException" | "TokenRefreshRequired"), _) => {
            Some((ErrorKind::ExpiredCredentials, expired(place)))
        }
        (Some("AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException"), _) => Some((
            ErrorKind::WrongRegion,
            format!("bucket {bucket} lies in another region; correct QUEEN_S3_REGION"),
        )),
        (Some("SlowDown" | "RequestLimitExceeded"), _) | (_, Some(429)) => Some((
            ErrorKind::Throttled,
            format!("{endpoint} asks for fewer requests"),
        )),
        (Some("AccessDenied"), _) | (_, Some(403)) => Some((
            ErrorKind::Forbidden,
            format!("access to bucket {bucket} is denied: the key needs PutObject and GetObject under the prefix"),
        )),
        (Some("KeyTooLongError"), _) => Some((
            ErrorKind::Refused,
            format!(
                "the object's name is too long for {endpoint} ({}): the queue needs a shorter name, or the sink a shorter QUEEN_S3_PREFIX",
                s3_message(&text).unwrap_or("KeyTooLongError")
            ),
        )),
        (_, Some(407)) => Some((ErrorKind::Refused, format!("{endpoint} was not reached{PROXY}"))),
        (Some("NoSuchUpload" | "InvalidPart"), _) => Some((
            ErrorKind::UploadGone,
            format!(
                "{endpoint} has forgotten the upload or parts of it; it is begun anew (a rule that \
                 ends uploads earlier than a day is too strict)"
            ),
        )),
        (Some(UNPROVEN), _) => Some((
            ErrorKind::Unproven,
            format!("{endpoint} answered the end of an upload without saying what was made"),
        )),
        (Some("BadDigest" | "XAmzContentSHA256Mismatch" | "IncompleteBody"), _) => Some((
            ErrorKind::Unreachable,
            format!("{endpoint} got other bytes than were sent ({})", code.unwrap_or_default()),
        )),
        (_, Some(400 | 411 | 501)) if about_proof(&text) => Some((
            ErrorKind::Integrity,
            format!(
                "{endpoint} wants another proof of the body: {}; set QUEEN_S3_CHECKSUM to auto, or to \
                 sha256, md5 or off as its documentation says",
                s3_message(&text).or(code).unwrap_or("without a word")
            ),
        )),
        (Some("InternalError" | "ServiceUnavailable" | "RequestTimeout" | "OperationAborted"), _) => Some((
            ErrorKind::Unreachable,
            format!("{endpoint} cannot answer now ({})", code.unwrap_or_default()),
        )),
        _ => None,
    };
    if let Some(known) = known {
        return known;
    }
    match status {
        Some(404) => (
            ErrorKind::MissingBucket,
            format!(
                "bucket {bucket} was not found at {endpoint} (404); make it, or correct QUEEN_S3_BUCKET"
            ),
        ),
        Some(status) if (400..500).contains(&status) && status != 408 || status == 501 => (
            ErrorKind::Refused,
            format!("{endpoint} refused: {status} {}", code.unwrap_or("without a code")),
        ),
        Some(status) => (ErrorKind::Unreachable, format!("{endpoint} answered {status}")),
        None if text.contains("ETag Header missing") => {
            (ErrorKind::Unreachable, format!("{endpoint} answered a part without its ETag"))
        }
        None if text.contains("Server returned error response") => {
            (ErrorKind::Unreachable, format!("{endpoint} answered 200 with an error inside"))
        }
        None => (
            ErrorKind::Unreachable,
            format!("{endpoint} is unreachable: {}{}", short(&text), way_out(&text, place)),
        ),
    }
}

/// What to do about an endpoint with which no connection comes about.
fn way_out(text: &str, place: &Place<'_>) -> &'static str {
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["dns error"]) {
        return match place.path_style {
            true => "; correct the host of QUEEN_S3_ENDPOINT",
            false => "; set QUEEN_S3_PATH_STYLE=true where a bucket has no host name of its own",
        };
    }
    if says(&["UnknownIssuer"]) {
        return "; give the authority of its certificate in QUEEN_S3_CA_FILE";
    }
    if says(&["certificate expired", "peer certificate: Expired"]) {
        return "; the certificate has ended: renew it there, or set this machine's clock";
    }
    if says(&["not valid for name", "NotValidForName"]) {
        return "; the certificate is made for another name: correct QUEEN_S3_ENDPOINT";
    }
    if says(&["InvalidContentType", "corrupt message"]) {
        return "; it speaks no TLS: write http:// in QUEEN_S3_ENDPOINT";
    }
    if says(&["proxy authorization required", "proxy authentication required", "407"]) {
        return PROXY;
    }
    ""
}

const PROXY: &str =
    "; the proxy wants a user and a password: HTTPS_PROXY=http://user:password@host:port";

fn expired(place: &Place<'_>) -> String {
    match place.lasting_keys {
        true => "the temporary credentials have expired; renew the session token and its keys",
        false => "the temporary credentials have expired, and renewed ones too; see their source",
    }
    .to_owned()
}

fn no_credentials(err: &object_store::Error) -> Option<&CredentialsError> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(err);
    while let Some(err) = source {
        if let Some(found) = err.downcast_ref::<CredentialsError>() {
            return Some(found);
        }
        source = err.source();
    }
    None
}

/// The end of a chain says the cause; addresses and ids before it help nobody.
fn short(text: &str) -> &str {
    let start = text.rfind("error sending request").unwrap_or(0);
    let end = text.char_indices().nth(start + 300).map_or(text.len(), |(at, _)| at.max(start));
    &text[start..end]
}
