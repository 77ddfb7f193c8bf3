//! What the double insists on: header rules of one provider or another, locks, policies.
//!
//! Owns: the refusals. Leaves to others: signatures (`signature`), what is done when nothing is
//! refused (`store`).

use super::store::{Store, content_md5};
use super::{Answer, Op, Request};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// What the key may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Everything.
    #[default]
    All,
    /// PutObject only (and the parts that belong to it); reading and giving up are denied.
    PutOnly,
    /// Reading only.
    ReadOnly,
}

/// What becomes of `If-None-Match` on a PUT to a key that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conditions {
    /// 412.
    #[default]
    Honoured,
    /// It is written over.
    Ignored,
    /// 304 without a body.
    NotModified,
    /// 501, whether the key is there or not.
    NotImplemented,
}

/// What the double insists on. The default is what Amazon S3 does with a plain bucket; hashes of
/// bodies and signatures are always checked.
#[derive(Clone, Debug)]
pub struct Strict {
    /// 501 to `aws-chunked` bodies and trailers. Default true.
    pub no_trailers: bool,
    /// 400 to `x-amz-checksum-*` and `x-amz-sdk-checksum-algorithm`, as Backblaze B2.
    pub no_checksums: bool,
    /// 417 to `Expect`.
    pub no_expect: bool,
    /// 400 to `x-amz-*` and `amz-sdk-*` headers that S3 did not know in 2010.
    pub no_new_headers: bool,
    /// 403 to a `UNSIGNED-PAYLOAD`.
    pub no_unsigned_payload: bool,
    /// 400 to a PUT or a part with neither Content-MD5 nor checksum, as Object Lock.
    pub integrity: bool,
    /// As `integrity`, and only Content-MD5 counts.
    pub content_md5: bool,
    /// 403 to a PUT or start of an upload without this server-side encryption, 400 to anything else
    /// with it.
    pub sse: Option<String>,
    /// 403 to a request without this `x-amz-expected-bucket-owner`.
    pub owner: Option<String>,
    /// 403 to a PUT or start of an upload without this `x-amz-acl`, 400 to anything else with it.
    pub acl: Option<String>,
    /// 403 to a PUT over an object, and to deleting one.
    pub locked: bool,
    /// Parts but the last must be of one size, as Cloudflare R2.
    pub equal_parts: bool,
    /// What becomes of conditional PUTs.
    pub conditions: Conditions,
    /// What the key may do.
    pub policy: Policy,
    /// Longest key, bytes. Default 1024.
    pub key_bytes_max: usize,
    /// Longest name between two slashes of a key, as of servers that keep files.
    pub name_bytes_max: Option<usize>,
    /// Listings come in another order each time.
    pub shuffled_listings: bool,
    /// Listings still show what was deleted.
    pub stale_listings: bool,
    /// Keys on a page of a listing. Default 1000.
    pub listing_page: Option<usize>,
}

impl Default for Strict {
    fn default() -> Strict {
        Strict {
            no_trailers: true,
            no_checksums: false,
            no_expect: false,
            no_new_headers: false,
            no_unsigned_payload: false,
            integrity: false,
            content_md5: false,
            sse: None,
            owner: None,
            acl: None,
            locked: false,
            equal_parts: false,
            conditions: Conditions::default(),
            policy: Policy::default(),
            key_bytes_max: 1024,
            name_bytes_max: None,
            shuffled_listings: false,
            stale_listings: false,
            listing_page: None,
        }
    }
}

/// Headers of S3 that old servers know.
const OLD: [&str; 8] = [
    "x-amz-date",
    "x-amz-content-sha256",
    "x-amz-security-token",
    "x-amz-acl",
    "x-amz-meta-",
    "x-amz-server-side-encryption",
    "x-amz-expected-bucket-owner",
    "x-amz-storage-class",
];

type Verdict = Result<(), Answer>;

fn refuse(status: u16, code: &str, message: &str) -> Verdict {
    Err(Answer::error(status, code, message))
}

impl Strict {
    /// Whether a request may be done.
    pub(super) fn check(&self, request: &Request, store: &Store) -> Verdict {
        self.names(request)?;
        self.headers(request)?;
        self.integrity(request)?;
        self.belongings(request)?;
        self.policy(request)?;
        let overwrites = request.op == Op::Put || request.op == Op::Delete;
        if self.locked && overwrites && store.newest(&request.key).is_some() {
            let message = "Access Denied because object protected by object lock.";
            return refuse(403, "AccessDenied", message);
        }
        Ok(())
    }

    fn names(&self, request: &Request) -> Verdict {
        let key = &request.key;
        let longest = key.split('/').map(str::len).max().unwrap_or(0);
        if key.len() > self.key_bytes_max || self.name_bytes_max.is_some_and(|max| longest > max) {
            return refuse(400, "KeyTooLongError", "Your key is too long");
        }
        Ok(())
    }

    fn headers(&self, request: &Request) -> Verdict {
        let chunked = request.header("content-encoding").is_some_and(|v| v.contains("aws-chunked"))
            || request.header("x-amz-trailer").is_some()
            || request.header("x-amz-content-sha256").is_some_and(|v| v.starts_with("STREAMING"));
        let not_implemented = "A header you provided implies functionality that is not implemented";
        if self.no_trailers && chunked {
            return refuse(501, "NotImplemented", not_implemented);
        }
        let mut checksums = request.headers_of("x-amz-checksum-");
        let checksum = checksums.next().or(request.headers_of("x-amz-sdk-checksum").next());
        if let Some((name, _)) = checksum.filter(|_| self.no_checksums) {
            let message = format!("Unsupported header '{name}' received for this API call.");
            return refuse(400, "InvalidArgument", &message);
        }
        if self.no_expect && request.header("expect").is_some() {
            return refuse(417, "ExpectationFailed", "no Expect");
        }
        let new = |name: &str| {
            name.starts_with("amz-sdk")
                || name.starts_with("x-amz-") && !OLD.iter().any(|old| name.starts_with(old))
        };
        if self.no_new_headers && request.headers.iter().any(|(name, _)| new(name)) {
            return refuse(501, "NotImplemented", not_implemented);
        }
        let conditional = request.header("if-none-match").is_some();
        if conditional && self.conditions == Conditions::NotImplemented {
            return refuse(501, "NotImplemented", not_implemented);
        }
        let unsigned = request.header("x-amz-content-sha256") == Some("UNSIGNED-PAYLOAD");
        if self.no_unsigned_payload && unsigned {
            return refuse(403, "AccessDenied", "the payload is not signed");
        }
        Ok(())
    }

    fn integrity(&self, request: &Request) -> Verdict {
        let md5 = request.header("content-md5");
        if md5.is_some_and(|md5| md5 != content_md5(&request.body)) {
            return refuse(400, "BadDigest", "The Content-MD5 you specified did not match");
        }
        let sha256 = request.header("x-amz-checksum-sha256");
        let of_body = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &request.body);
        if sha256.is_some_and(|sha256| sha256 != BASE64_STANDARD.encode(of_body.as_ref())) {
            return refuse(400, "BadDigest", "The SHA256 you specified did not match");
        }
        if !matches!(request.op, Op::Put | Op::Part) {
            return Ok(());
        }
        let checksum = request.headers_of("x-amz-checksum-").next().is_some();
        if self.content_md5 && md5.is_none() {
            let message = "Missing required header for this request: Content-MD5";
            return refuse(400, "InvalidRequest", message);
        }
        if self.integrity && md5.is_none() && !checksum {
            let message = "Content-MD5 OR x-amz-checksum- HTTP header is required for Put Object \
                           requests with Object Lock parameters";
            return refuse(400, "InvalidRequest", message);
        }
        Ok(())
    }

    /// Encryption, owner, access list: on the requests they belong to, and no other.
    fn belongings(&self, request: &Request) -> Verdict {
        let begins = matches!(request.op, Op::Put | Op::Create);
        let pairs = [("x-amz-server-side-encryption", &self.sse), ("x-amz-acl", &self.acl)];
        for (name, wanted) in pairs {
            let Some(wanted) = wanted else { continue };
            let given = request.header(name);
            if begins && given != Some(wanted) {
                return refuse(403, "AccessDenied", "an explicit deny in the bucket's policy");
            }
            if !begins && given.is_some() {
                let message = format!("Header '{name}' is not supported for this API call");
                return refuse(400, "InvalidArgument", &message);
            }
        }
        let owner = request.header("x-amz-expected-bucket-owner");
        if self.owner.is_some() && owner != self.owner.as_deref() {
            return refuse(403, "AccessDenied", "the bucket has another owner");
        }
        Ok(())
    }

    fn policy(&self, request: &Request) -> Verdict {
        let writes = matches!(
            request.op,
            Op::Put | Op::Create | Op::Part | Op::Complete | Op::Delete | Op::Abort
        );
        let puts = matches!(request.op, Op::Put | Op::Create | Op::Part | Op::Complete);
        let allowed = match self.policy {
            Policy::All => true,
            Policy::PutOnly => puts,
            Policy::ReadOnly => !writes,
        };
        if allowed {
            return Ok(());
        }
        refuse(403, "AccessDenied", "Access Denied")
    }
}
