//! The objects, their versions, and uploads on their way.
//!
//! Owns: what each operation does. Leaves to others: whether it may (`strict`).

use super::strict::{Conditions, Strict};
use super::{Answer, Op, Request, xml};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use md5::{Digest, Md5};
use queen_core::Stamp;
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

/// S3's smallest part, except the last of an upload.
const PART_BYTES_MIN: usize = 5 << 20;
/// S3's largest part number.
const PARTS_MAX: u32 = 10_000;
/// Keys on one page of a listing.
const PAGE: usize = 1000;

/// One version of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Its bytes.
    pub bytes: Bytes,
    /// The headers of its PUT or of the start of its upload, as far as they belong to it.
    pub headers: Vec<(String, String)>,
    /// Its ETag, with quotes.
    pub etag: String,
    /// When it was written, ISO 8601.
    pub modified: String,
}

impl Version {
    /// The value of one of its headers.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// An upload in parts on its way.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Its id.
    pub id: String,
    /// Key of the object that it will make.
    pub key: String,
    /// The headers of its start.
    pub headers: Vec<(String, String)>,
    /// Number (from 1) to bytes and ETag.
    pub parts: BTreeMap<u32, (Bytes, String)>,
}

/// A bucket's content.
#[derive(Default)]
pub(crate) struct Store {
    pub objects: BTreeMap<String, Vec<Version>>,
    pub uploads: BTreeMap<String, Upload>,
    begun: u64,
    listings: u64,
    /// Keys that were deleted, with their last version: what a stale listing still shows.
    deleted: BTreeMap<String, Version>,
}

pub(super) fn md5(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

fn etag(bytes: &[u8]) -> String {
    let hex: String = md5(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("\"{hex}\"")
}

pub(super) fn now_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map(|d| d.as_micros() as u64).unwrap_or_default()
}

/// Headers that stay with an object.
fn kept_headers(request: &Request) -> Vec<(String, String)> {
    let kept = |name: &str| {
        name.starts_with("x-amz-meta-")
            || name.starts_with("x-amz-server-side-encryption")
            || matches!(name, "content-type" | "content-encoding" | "x-amz-acl")
    };
    request.headers.iter().filter(|(name, _)| kept(name)).cloned().collect()
}

fn no_such_upload() -> Answer {
    let message = "The specified multipart upload does not exist. The upload ID may be invalid, \
                   or the upload may have been aborted or completed.";
    Answer::error(404, "NoSuchUpload", message)
}

impl Store {
    pub fn newest(&self, key: &str) -> Option<&Version> {
        self.objects.get(key).and_then(|versions| versions.last())
    }

    pub fn put(&mut self, key: &str, bytes: Bytes, headers: Vec<(String, String)>) -> String {
        let etag = etag(&bytes);
        let modified = Stamp(now_micros()).to_iso();
        let version = Version { bytes, headers, etag: etag.clone(), modified };
        self.objects.entry(key.to_owned()).or_default().push(version);
        etag
    }

    pub fn delete(&mut self, key: &str) {
        let versions = self.objects.remove(key);
        if let Some(last) = versions.and_then(|mut versions| versions.pop()) {
            self.deleted.insert(key.to_owned(), last);
        }
    }

    /// Does what is asked.
    pub fn apply(&mut self, request: &Request, strict: &Strict, bucket: &str) -> Answer {
        match request.op {
            Op::Put => self.put_object(request, strict),
            Op::Get | Op::Head => self.get(request),
            Op::Delete => {
                self.delete(&request.key);
                Answer::status(204)
            }
            Op::Create => self.create(request, bucket),
            Op::Part => self.part(request),
            Op::Complete => self.complete(request, strict, bucket),
            Op::Abort => {
                let id = request.parameter("uploadId").unwrap_or_default();
                self.uploads.remove(id).map_or_else(no_such_upload, |_| Answer::status(204))
            }
            Op::List => self.list(request, strict),
            Op::Uploads => {
                let prefix = request.parameter("prefix").unwrap_or_default();
                xml_answer(xml::uploads(self, prefix))
            }
            Op::HeadBucket => Answer::status(200),
            Op::Other => Answer::error(405, "MethodNotAllowed", "the double does not know this"),
        }
    }

    fn put_object(&mut self, request: &Request, strict: &Strict) -> Answer {
        if let (Some(_), true) = (request.header("if-none-match"), self.there(&request.key)) {
            match strict.conditions {
                Conditions::Honoured => {
                    return Answer::error(412, "PreconditionFailed", "the key is there");
                }
                Conditions::NotModified => return Answer::status(304),
                Conditions::Ignored | Conditions::NotImplemented => {}
            }
        }
        let etag = self.put(&request.key, request.body.clone(), kept_headers(request));
        Answer::status(200).header("etag", &etag)
    }

    fn there(&self, key: &str) -> bool {
        self.objects.contains_key(key)
    }

    fn get(&self, request: &Request) -> Answer {
        let Some(version) = self.newest(&request.key) else {
            return Answer::error(404, "NoSuchKey", "The specified key does not exist.");
        };
        let mut answer = Answer::status(200)
            .header("etag", &version.etag)
            .header("last-modified", "Sat, 24 Oct 2026 10:00:00 GMT");
        for (name, value) in &version.headers {
            answer = answer.header(name, value);
        }
        answer.told_length = Some(version.bytes.len() as u64);
        answer.body(version.bytes.clone())
    }

    fn create(&mut self, request: &Request, bucket: &str) -> Answer {
        self.begun += 1;
        let id = format!("upload-{}", self.begun);
        let upload = Upload {
            id: id.clone(),
            key: request.key.clone(),
            headers: kept_headers(request),
            parts: BTreeMap::new(),
        };
        self.uploads.insert(id.clone(), upload);
        xml_answer(xml::created(bucket, &request.key, &id))
    }

    fn part(&mut self, request: &Request) -> Answer {
        let id = request.parameter("uploadId").unwrap_or_default();
        let number = request.part_number().filter(|number| (1..=PARTS_MAX).contains(number));
        let Some(number) = number else {
            let message = "Part number must be an integer between 1 and 10000, inclusive";
            return Answer::error(400, "InvalidArgument", message);
        };
        let Some(upload) = self.uploads.get_mut(id) else { return no_such_upload() };
        let etag = etag(&request.body);
        upload.parts.insert(number, (request.body.clone(), etag.clone()));
        let answer = Answer::status(200).header("etag", &etag);
        // As S3 does: the checksum that was checked comes back.
        request
            .headers_of("x-amz-checksum-")
            .fold(answer, |answer, (name, value)| answer.header(name, value))
    }

    fn complete(&mut self, request: &Request, strict: &Strict, bucket: &str) -> Answer {
        let id = request.parameter("uploadId").unwrap_or_default();
        let Some(upload) = self.uploads.get(id) else { return no_such_upload() };
        let body = String::from_utf8_lossy(&request.body);
        let Some(listed) = xml::parts(&body).filter(|parts| !parts.is_empty()) else {
            return Answer::error(400, "MalformedXML", "no parts");
        };
        let mut bytes = Vec::new();
        let mut hashes = Vec::new();
        let first = upload.parts.get(&listed[0].0).map_or(0, |(part, _)| part.len());
        for (place, (number, named)) in listed.iter().enumerate() {
            let known = upload.parts.get(number).filter(|(_, etag)| etag == named);
            let Some((part, _)) = known else {
                return Answer::error(400, "InvalidPart", "a part could not be found");
            };
            let last = place + 1 == listed.len();
            if !last && part.len() < PART_BYTES_MIN {
                return Answer::error(400, "EntityTooSmall", "a part is smaller than 5 MiB");
            }
            if strict.equal_parts && (part.len() > first || !last && part.len() != first) {
                let message = "All non-trailing parts must have the same length.";
                return Answer::error(400, "InvalidPart", message);
            }
            bytes.extend_from_slice(part);
            hashes.extend_from_slice(&md5(part));
        }
        let (key, headers) = (upload.key.clone(), upload.headers.clone());
        self.uploads.remove(id);
        self.put(&key, bytes.into(), headers);
        let joined = etag(&hashes);
        let joined = format!("{}-{}\"", joined.trim_end_matches('"'), listed.len());
        if let Some(version) = self.objects.get_mut(&key).and_then(|versions| versions.last_mut()) {
            version.etag.clone_from(&joined);
        }
        xml_answer(xml::completed(bucket, &key, &joined))
    }

    fn list(&mut self, request: &Request, strict: &Strict) -> Answer {
        let prefix = request.parameter("prefix").unwrap_or_default();
        let stale = self.deleted.iter().filter(|_| strict.stale_listings);
        let newest = self.objects.iter().filter_map(|(key, v)| v.last().map(|v| (key, v)));
        let mut found: Vec<_> =
            newest.chain(stale).filter(|(key, _)| key.starts_with(prefix)).collect();
        found.sort_by_key(|(key, _)| *key);
        if strict.shuffled_listings {
            // Another order each time, the same for each run of a test.
            self.listings += 1;
            let salt = self.listings.to_le_bytes();
            found.sort_by_key(|(key, _)| md5(&[key.as_bytes(), &salt].concat()));
        }
        let page = strict.listing_page.unwrap_or(PAGE);
        let token = request.parameter("continuation-token");
        let from: usize = token.and_then(|token| token.parse().ok()).unwrap_or(0);
        let to = (from + page).min(found.len());
        let next = (to < found.len()).then(|| to.to_string());
        xml_answer(xml::listed(&found[from.min(to)..to], next.as_deref()))
    }
}

fn xml_answer(body: String) -> Answer {
    Answer::status(200).header("content-type", "application/xml").body(body)
}

/// Content-MD5 of a body.
pub(super) fn content_md5(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(md5(bytes))
}
