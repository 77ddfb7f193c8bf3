//! Bodies of requests: written to a file on its way, measured against what the client promised.
//!
//! Owns: MD5 and checksums. Leaves to others: signatures and chunks (the s3s library), what becomes
//! of the file (`folder`, `uploads`).

use super::folder::{Checksums, Temp, failed, hex};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures::StreamExt;
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{ChecksumAlgorithm, StreamingBlob};
use s3s::{S3Result, TrailingHeaders, s3_error};
use tokio::io::AsyncWriteExt;

/// What the client said of the body, in headers before it or after it.
#[derive(Default)]
pub struct Promised {
    /// `content-md5`.
    pub md5: Option<String>,
    /// The checksum that is to be made.
    pub algorithm: Option<ChecksumAlgorithm>,
    /// Checksums sent before the body.
    pub checksums: Checksums,
    /// Checksums that come after it.
    pub trailers: Option<TrailingHeaders>,
}

/// A body that is as promised.
pub struct Received {
    /// The file that holds it.
    pub temp: Temp,
    /// Its MD5, lower-case hex.
    pub md5: String,
    /// Its checksums of the kinds that were promised.
    pub checksums: Checksums,
}

/// Writes a body to the file.
pub async fn receive(
    temp: Temp,
    body: Option<StreamingBlob>,
    promised: Promised,
) -> S3Result<Received> {
    let mut body = body.ok_or_else(|| s3_error!(IncompleteBody, "the request has no body"))?;
    let failed = |error: std::io::Error| failed("write", "a request's body", &error);
    let mut file = tokio::fs::File::create(temp.path()).await.map_err(failed)?;
    let mut md5 = Md5::new();
    let mut hasher = hasher(&promised)?;
    while let Some(bytes) = body.next().await {
        let bytes =
            bytes.map_err(|error| s3_error!(IncompleteBody, "the body broke off: {error}"))?;
        md5.update(&bytes);
        hasher.update(&bytes);
        file.write_all(&bytes).await.map_err(failed)?;
    }
    file.flush().await.map_err(failed)?;
    let md5 = md5.finalize();
    if promised.md5.is_some_and(|promised| promised != BASE64_STANDARD.encode(md5.as_ref())) {
        return Err(s3_error!(BadDigest, "the body's MD5 is not that of the header content-md5"));
    }
    let found = Checksums::from(hasher.finalize());
    let mut expected = promised.checksums;
    if let Some(trailers) = promised.trailers.and_then(|trailers| trailers.take()) {
        for (name, place) in expected.named() {
            if let Some(value) = trailers.get(format!("x-amz-checksum-{name}")) {
                *place = value.to_str().ok().map(str::to_owned);
            }
        }
    }
    for ((name, expected), (_, found)) in expected.named().into_iter().zip(found.clone().named()) {
        if expected.is_some() && expected != found {
            return Err(s3_error!(BadDigest, "the body's checksum {name} is not the one sent"));
        }
    }
    Ok(Received { temp, md5: hex(md5.as_ref()), checksums: found })
}

/// Computes what was sent, and what is said to follow the body.
fn hasher(promised: &Promised) -> S3Result<ChecksumHasher> {
    let mut sent = promised.checksums.clone();
    let algorithm = promised.algorithm.as_ref().map(|algorithm| algorithm.as_str().to_lowercase());
    let announced = |name: &str| algorithm.as_deref() == Some(name);
    let mut known = algorithm.is_none();
    for (name, place) in sent.named() {
        if announced(name) {
            known = true;
            place.get_or_insert_default();
        }
    }
    if !known {
        return Err(s3_error!(NotImplemented, "this server knows no such checksum algorithm"));
    }
    Ok(ChecksumHasher {
        crc32: sent.crc32.map(|_| Default::default()),
        crc32c: sent.crc32c.map(|_| Default::default()),
        crc64nvme: sent.crc64nvme.map(|_| Default::default()),
        sha1: sent.sha1.map(|_| Default::default()),
        sha256: sent.sha256.map(|_| Default::default()),
    })
}

impl Checksums {
    fn named(&mut self) -> [(&'static str, &mut Option<String>); 5] {
        [
            ("crc32", &mut self.crc32),
            ("crc32c", &mut self.crc32c),
            ("crc64nvme", &mut self.crc64nvme),
            ("sha1", &mut self.sha1),
            ("sha256", &mut self.sha256),
        ]
    }
}

impl From<s3s::dto::Checksum> for Checksums {
    fn from(made: s3s::dto::Checksum) -> Checksums {
        Checksums {
            crc32: made.checksum_crc32,
            crc32c: made.checksum_crc32c,
            crc64nvme: made.checksum_crc64nvme,
            sha1: made.checksum_sha1,
            sha256: made.checksum_sha256,
        }
    }
}
