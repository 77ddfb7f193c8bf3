//! The XML that S3 speaks.
//!
//! Owns: bodies of answers, and the few elements read out of requests.

use super::store::{Store, Version};

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn document(name: &str, inner: &str) -> String {
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<{name}>{inner}</{name}>")
}

pub(super) fn error(code: &str, message: &str) -> String {
    let (code, message) = (escape(code), escape(message));
    document(
        "Error",
        &format!("<Code>{code}</Code><Message>{message}</Message><RequestId>1</RequestId>"),
    )
}

pub(super) fn created(bucket: &str, key: &str, id: &str) -> String {
    let key = escape(key);
    let inner = format!("<Bucket>{bucket}</Bucket><Key>{key}</Key><UploadId>{id}</UploadId>");
    document("InitiateMultipartUploadResult", &inner)
}

pub(super) fn completed(bucket: &str, key: &str, etag: &str) -> String {
    let (key, etag) = (escape(key), escape(etag));
    let inner = format!("<Bucket>{bucket}</Bucket><Key>{key}</Key><ETag>{etag}</ETag>");
    document("CompleteMultipartUploadResult", &inner)
}

/// One page of a listing.
pub(super) fn listed(found: &[(&String, &Version)], next: Option<&str>) -> String {
    let mut inner = format!("<KeyCount>{}</KeyCount>", found.len());
    for (key, version) in found {
        inner.push_str(&format!(
            "<Contents><Key>{}</Key><LastModified>{}</LastModified><ETag>{}</ETag>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            escape(key),
            version.modified,
            escape(&version.etag),
            version.bytes.len()
        ));
    }
    inner.push_str(&format!("<IsTruncated>{}</IsTruncated>", next.is_some()));
    if let Some(next) = next {
        inner.push_str(&format!("<NextContinuationToken>{}</NextContinuationToken>", escape(next)));
    }
    document("ListBucketResult", &inner)
}

pub(super) fn uploads(store: &Store, prefix: &str) -> String {
    let mut inner = String::new();
    for upload in store.uploads.values().filter(|upload| upload.key.starts_with(prefix)) {
        let (key, id) = (escape(&upload.key), &upload.id);
        inner.push_str(&format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>"));
    }
    inner.push_str("<IsTruncated>false</IsTruncated>");
    document("ListMultipartUploadsResult", &inner)
}

/// (part number, ETag) of the body of a CompleteMultipartUpload.
pub(super) fn parts(body: &str) -> Option<Vec<(u32, String)>> {
    let element = |text: &str, name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        let (value, _) = rest.split_once(&format!("</{name}>"))?;
        Some(value.replace("&quot;", "\"").replace("&#34;", "\""))
    };
    let parts = body.split("<Part>").skip(1);
    let part = |text: &str| {
        let number = element(text, "PartNumber")?.parse().ok()?;
        Some((number, element(text, "ETag")?))
    };
    parts.map(part).collect()
}
