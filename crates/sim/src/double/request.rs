//! What a request asks for.
//!
//! Owns: the parse of method, host, path and query into an operation and a key. Leaves to others:
//! whether it is allowed (`signature`, `strict`), doing it (`store`).

use bytes::Bytes;
use hyper::Method;
use hyper::http::request::Parts;

/// An operation of S3, as far as the double knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// PutObject.
    Put,
    /// GetObject.
    Get,
    /// HeadObject.
    Head,
    /// DeleteObject.
    Delete,
    /// CreateMultipartUpload.
    Create,
    /// UploadPart.
    Part,
    /// CompleteMultipartUpload.
    Complete,
    /// AbortMultipartUpload.
    Abort,
    /// ListObjectsV2.
    List,
    /// ListMultipartUploads.
    Uploads,
    /// HeadBucket.
    HeadBucket,
    /// Anything else.
    Other,
}

/// A request, read whole.
#[derive(Clone, Debug)]
pub struct Request {
    /// What it asks for.
    pub op: Op,
    /// Name of the bucket.
    pub bucket: String,
    /// Key of the object, decoded; empty for operations on the bucket.
    pub key: String,
    /// HTTP method.
    pub method: String,
    /// Path as it was sent, with its escapes.
    pub path: String,
    /// Parameters, decoded, in the order sent.
    pub query: Vec<(String, String)>,
    /// Headers as sent; names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body; empty in the log of events.
    pub body: Bytes,
}

impl Request {
    /// The value of a header, by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The value of a parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Number of the part, from 1.
    pub fn part_number(&self) -> Option<u32> {
        self.parameter("partNumber")?.parse().ok()
    }

    /// Headers whose name begins so.
    pub fn headers_of<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a (String, String)> {
        self.headers.iter().filter(move |(name, _)| name.starts_with(prefix))
    }

    pub(crate) fn parse(head: &Parts, body: Bytes, bucket: &str) -> Request {
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let headers: Vec<(String, String)> = head
            .headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value.as_bytes())))
            .collect();
        let host = headers.iter().find(|(name, _)| name == "host");
        let host = host.map_or("", |(_, value)| value.as_str());
        let path = head.uri.path().to_owned();
        let (bucket, key) = match host.strip_prefix(bucket).is_some_and(|h| h.starts_with('.')) {
            true => (bucket, path.strip_prefix('/').unwrap_or(&path)),
            false => {
                let inside = path.strip_prefix('/').unwrap_or(&path);
                inside.split_once('/').unwrap_or((inside, ""))
            }
        };
        let query = pairs(head.uri.query().unwrap_or_default());
        let (bucket, key) = (decode(bucket), decode(key));
        let has = |name: &str| query.iter().any(|(known, _)| known == name);
        let op = operation(&head.method, key.is_empty(), &has);
        let method = head.method.as_str().to_owned();
        Request { op, bucket, key, method, path, query, headers, body }
    }
}

fn operation(method: &Method, of_bucket: bool, has: &dyn Fn(&str) -> bool) -> Op {
    match (method.as_str(), of_bucket) {
        ("PUT", false) if has("partNumber") => Op::Part,
        ("PUT", false) => Op::Put,
        ("POST", false) if has("uploads") => Op::Create,
        ("POST", false) if has("uploadId") => Op::Complete,
        ("DELETE", false) if has("uploadId") => Op::Abort,
        ("DELETE", false) => Op::Delete,
        ("GET", false) => Op::Get,
        ("HEAD", false) => Op::Head,
        ("GET", true) if has("uploads") => Op::Uploads,
        ("GET", true) if has("list-type") => Op::List,
        ("HEAD", true) => Op::HeadBucket,
        _ => Op::Other,
    }
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(&name.replace('+', " ")), decode(&value.replace('+', " ")))
    };
    parts.map(pair).collect()
}

/// Undoes percent encoding; an escape that is none stays as it is.
pub(crate) fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut i = 0;
    while i < bytes.len() {
        let escape = text.get(i + 1..i + 3).filter(|_| bytes[i] == b'%');
        match escape.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                i += 3;
            }
            None => {
                out.push(bytes[i]);
                i += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent encoding as signatures want it: all but letters, digits, `-`, `.`, `_`, `~` and `keep`.
pub(crate) fn encode(text: &str, keep: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        let c = char::from(byte);
        if c.is_ascii_alphanumeric() || "-._~".contains(c) || keep.contains(c) {
            out.push(c);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
