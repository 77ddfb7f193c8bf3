//! The operations of S3 that the demo's bucket knows, over files.
//!
//! Owns: reading requests and writing answers. Leaves to others: HTTP, XML and signatures (the s3s
//! library), everything about files (`folder`, `incoming`, `listing`, `uploads`). An operation that
//! is not here is answered `NotImplemented`.

use super::folder::{Attributes, Checksums, Folder, Found, failed};
use super::incoming::{Promised, Received, receive};
use super::listing::{Ask, Page};
use bytes::BytesMut;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::*;
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use std::io::{Seek, SeekFrom};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, Take};

/// Most entries of a page.
const PAGE_MAX: usize = 1000;
/// Bytes of an object read at a time.
const PIECE: usize = 128 * 1024;
/// What `encoding-type=url` spells as `%XX`.
const SPELLED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The folder, as s3s calls it.
#[derive(Clone)]
pub struct Objects(pub Arc<Folder>);

impl Objects {
    /// Work that may block on a disk.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> S3Result<T> + Send + 'static,
    ) -> S3Result<T> {
        let folder = self.0.clone();
        let done = tokio::task::spawn_blocking(move || work(&folder)).await;
        done.map_err(S3Error::internal_error)?
    }

    async fn receive(&self, body: Option<StreamingBlob>, promised: Promised) -> S3Result<Received> {
        receive(self.0.temp(), body, promised).await
    }
}

fn done<T>(output: T) -> S3Result<S3Response<T>> {
    Ok(S3Response::new(output))
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let made = |folder: &Folder| match std::fs::create_dir(&folder.root) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(s3_error!(BucketAlreadyOwnedByYou, "the bucket {} exists", folder.bucket))
            }
            made => made.map_err(|error| failed("make the bucket", &folder.bucket, &error)),
        };
        self.on_disk(made).await?;
        let location = Some(format!("/{}", request.input.bucket));
        done(CreateBucketOutput { location })
    }

    async fn head_bucket(
        &self,
        _: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.on_disk(Folder::there).await?;
        done(HeadBucketOutput::default())
    }

    async fn get_bucket_location(
        &self,
        _: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.on_disk(Folder::there).await?;
        done(GetBucketLocationOutput::default())
    }

    async fn list_buckets(
        &self,
        _: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let there = self.on_disk(|folder| Ok(folder.there().is_ok())).await?;
        let bucket = Bucket { name: Some(self.0.bucket.clone()), ..Default::default() };
        let buckets = Some(Vec::from_iter(there.then_some(bucket)));
        done(ListBucketsOutput { buckets, ..Default::default() })
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let trailers = request.trailing_headers;
        let input = request.input;
        if input.if_match.is_some() || input.if_none_match.is_some() {
            return Err(s3_error!(NotImplemented, "this server knows no conditional writes"));
        }
        let key = input.key.clone();
        self.on_disk(move |folder| folder.place(&key).and_then(|_| folder.there())).await?;
        let promised = Promised {
            md5: input.content_md5,
            algorithm: input.checksum_algorithm,
            checksums: Checksums {
                crc32: input.checksum_crc32,
                crc32c: input.checksum_crc32c,
                crc64nvme: input.checksum_crc64nvme,
                sha1: input.checksum_sha1,
                sha256: input.checksum_sha256,
            },
            trailers,
        };
        let attributes = Attributes {
            metadata: input.metadata.unwrap_or_default().into_iter().collect(),
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            content_disposition: input.content_disposition,
            content_language: input.content_language,
            cache_control: input.cache_control,
        };
        let received = self.receive(input.body, promised).await?;
        let (etag, sums) = (received.md5.clone(), received.checksums.clone());
        let publish = move |folder: &Folder| {
            let Received { temp, md5, checksums } = received;
            folder.publish(&temp, &input.key, md5, attributes, checksums)
        };
        self.on_disk(publish).await?;
        done(PutObjectOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32: sums.crc32,
            checksum_crc32c: sums.crc32c,
            checksum_crc64nvme: sums.crc64nvme,
            checksum_sha1: sums.sha1,
            checksum_sha256: sums.sha256,
            ..Default::default()
        })
    }

    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let GetObjectInput { key, range, .. } = request.input;
        let open = move |folder: &Folder| {
            let mut found = folder.look(&key)?;
            let all = 0..found.about.bytes;
            let asked = range.map_or(Ok(all.clone()), |range| range.check(all.end))?;
            let sought = found.file.seek(SeekFrom::Start(asked.start));
            sought.map_err(|error| failed("read", &key, &error))?;
            Ok((found, asked, all.end))
        };
        let (found, asked, all) = self.on_disk(open).await?;
        let length = asked.end - asked.start;
        let content_range =
            range.map(|_| format!("bytes {}-{}/{all}", asked.start, asked.end.saturating_sub(1)));
        let head = head(&found, length)?;
        let whole = length == all;
        let body = tokio::fs::File::from_std(found.file).take(length);
        done(GetObjectOutput {
            body: Some(StreamingBlob::wrap(futures::stream::try_unfold(body, piece))),
            accept_ranges: head.accept_ranges,
            content_length: head.content_length,
            content_range,
            last_modified: head.last_modified,
            e_tag: head.e_tag,
            metadata: head.metadata,
            content_type: head.content_type,
            content_encoding: head.content_encoding,
            content_disposition: head.content_disposition,
            content_language: head.content_language,
            cache_control: head.cache_control,
            checksum_crc32: head.checksum_crc32.filter(|_| whole),
            checksum_crc32c: head.checksum_crc32c.filter(|_| whole),
            checksum_crc64nvme: head.checksum_crc64nvme.filter(|_| whole),
            checksum_sha1: head.checksum_sha1.filter(|_| whole),
            checksum_sha256: head.checksum_sha256.filter(|_| whole),
            ..Default::default()
        })
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let key = request.input.key;
        let found = self.on_disk(move |folder| folder.look(&key)).await?;
        done(head(&found, found.about.bytes)?)
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let key = request.input.key;
        self.on_disk(move |folder| folder.remove(&key)).await?;
        done(DeleteObjectOutput::default())
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let Delete { objects, quiet } = request.input.delete;
        let remove = move |folder: &Folder| {
            folder.there()?;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for object in objects {
                let key = Some(object.key.clone());
                match folder.remove(&object.key) {
                    Ok(()) => deleted.push(DeletedObject { key, ..Default::default() }),
                    Err(error) => errors.push(s3s::dto::Error {
                        key,
                        code: Some(error.code().as_str().to_owned()),
                        message: error.message().map(str::to_owned),
                        ..Default::default()
                    }),
                }
            }
            Ok((deleted, errors))
        };
        let (deleted, errors) = self.on_disk(remove).await?;
        done(DeleteObjectsOutput {
            deleted: (quiet != Some(true)).then_some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..Default::default()
        })
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let entries_max = input.max_keys.map_or(Ok(PAGE_MAX), |most| {
            usize::try_from(most)
                .map_err(|_| s3_error!(InvalidArgument, "max-keys={most} is below 0"))
        })?;
        let ask = Ask {
            prefix: input.prefix.clone().unwrap_or_default(),
            delimiter: input.delimiter.clone().filter(|delimiter| !delimiter.is_empty()),
            start_after: input.start_after.clone(),
            token: input.continuation_token.clone(),
            entries_max: entries_max.min(PAGE_MAX),
        };
        let page = self.on_disk(move |folder| folder.page(&ask)).await?;
        done(listed(input, page))
    }

    async fn create_multipart_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = request.input;
        let attributes = Attributes {
            metadata: input.metadata.unwrap_or_default().into_iter().collect(),
            content_type: input.content_type,
            content_encoding: input.content_encoding,
            content_disposition: input.content_disposition,
            content_language: input.content_language,
            cache_control: input.cache_control,
        };
        let key = input.key.clone();
        let id = self.on_disk(move |folder| folder.begin(&key, attributes)).await?;
        done(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            upload_id: Some(id),
            ..Default::default()
        })
    }

    async fn upload_part(
        &self,
        request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let trailers = request.trailing_headers;
        let input = request.input;
        let (key, id, number) = (input.key, input.upload_id, input.part_number);
        let (of, upload) = (key.clone(), id.clone());
        self.on_disk(move |folder| folder.takes_part(&of, &upload, number)).await?;
        let promised = Promised {
            md5: input.content_md5,
            algorithm: input.checksum_algorithm,
            checksums: Checksums {
                crc32: input.checksum_crc32,
                crc32c: input.checksum_crc32c,
                crc64nvme: input.checksum_crc64nvme,
                sha1: input.checksum_sha1,
                sha256: input.checksum_sha256,
            },
            trailers,
        };
        let part = self.receive(input.body, promised).await?;
        let (etag, sums) = (part.md5.clone(), part.checksums.clone());
        self.on_disk(move |folder| folder.keep_part(&key, &id, number, &part)).await?;
        done(UploadPartOutput {
            e_tag: Some(ETag::Strong(etag)),
            checksum_crc32: sums.crc32,
            checksum_crc32c: sums.crc32c,
            checksum_crc64nvme: sums.crc64nvme,
            checksum_sha1: sums.sha1,
            checksum_sha256: sums.sha256,
            ..Default::default()
        })
    }

    async fn list_parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let ListPartsInput { bucket, key, upload_id, .. } = request.input;
        let (of, id) = (key.clone(), upload_id.clone());
        let parts = self.on_disk(move |folder| folder.parts(&of, &id)).await?;
        let part = |part: super::uploads::Part| Part {
            part_number: Some(part.number),
            e_tag: Some(ETag::Strong(part.etag)),
            size: i64::try_from(part.bytes).ok(),
            last_modified: Some(part.modified.into()),
            ..Default::default()
        };
        done(ListPartsOutput {
            bucket: Some(bucket),
            key: Some(key),
            upload_id: Some(upload_id),
            is_truncated: Some(false),
            parts: Some(parts.into_iter().map(part).collect()),
            ..Default::default()
        })
    }

    async fn complete_multipart_upload(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = request.input;
        if input.if_match.is_some() || input.if_none_match.is_some() {
            return Err(s3_error!(NotImplemented, "this server knows no conditional writes"));
        }
        let parts = input.multipart_upload.and_then(|upload| upload.parts).unwrap_or_default();
        let wanted: Vec<(i32, Option<String>)> = parts
            .into_iter()
            .map(|part| (part.part_number.unwrap_or_default(), part.e_tag.map(ETag::into_value)))
            .collect();
        let (key, id) = (input.key.clone(), input.upload_id);
        let etag = self.on_disk(move |folder| folder.complete(&key, &id, &wanted)).await?;
        done(CompleteMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(input.key),
            e_tag: Some(ETag::Strong(etag)),
            ..Default::default()
        })
    }

    async fn abort_multipart_upload(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let AbortMultipartUploadInput { key, upload_id, .. } = request.input;
        self.on_disk(move |folder| folder.abort(&key, &upload_id)).await?;
        done(AbortMultipartUploadOutput::default())
    }
}

/// What a HEAD tells of an object; `length` is that of the bytes answered.
fn head(found: &Found, length: u64) -> S3Result<HeadObjectOutput> {
    let (attributes, sums) = (found.about.attributes.clone(), found.about.checksums.clone());
    Ok(HeadObjectOutput {
        accept_ranges: Some("bytes".to_owned()),
        content_length: Some(i64::try_from(length).map_err(S3Error::internal_error)?),
        last_modified: Some(found.modified.into()),
        e_tag: Some(ETag::Strong(found.about.etag.clone())),
        metadata: Some(attributes.metadata.into_iter().collect()),
        content_type: attributes.content_type,
        content_encoding: attributes.content_encoding,
        content_disposition: attributes.content_disposition,
        content_language: attributes.content_language,
        cache_control: attributes.cache_control,
        checksum_crc32: sums.crc32,
        checksum_crc32c: sums.crc32c,
        checksum_crc64nvme: sums.crc64nvme,
        checksum_sha1: sums.sha1,
        checksum_sha256: sums.sha256,
        ..Default::default()
    })
}

/// The next bytes of an object's body.
async fn piece(
    mut body: Take<tokio::fs::File>,
) -> std::io::Result<Option<(bytes::Bytes, Take<tokio::fs::File>)>> {
    let mut bytes = BytesMut::with_capacity(PIECE.min(body.limit().try_into().unwrap_or(PIECE)));
    let read = if body.limit() == 0 { 0 } else { body.read_buf(&mut bytes).await? };
    Ok((read > 0).then(|| (bytes.freeze(), body)))
}

fn listed(input: ListObjectsV2Input, page: Page) -> ListObjectsV2Output {
    let url = input.encoding_type.as_ref().is_some_and(|kind| kind.as_str() == EncodingType::URL);
    let spell = |text: String| match url {
        true => utf8_percent_encode(&text, SPELLED).to_string(),
        false => text,
    };
    let object = |object: super::listing::Listed| Object {
        key: Some(spell(object.key)),
        size: i64::try_from(object.bytes).ok(),
        last_modified: Some(object.modified.into()),
        e_tag: object.etag.map(ETag::Strong),
        ..Default::default()
    };
    let prefix = |prefix| CommonPrefix { prefix: Some(spell(prefix)) };
    let count = page.objects.len() + page.prefixes.len();
    ListObjectsV2Output {
        name: Some(input.bucket),
        prefix: input.prefix.map(spell),
        delimiter: input.delimiter.map(spell),
        start_after: input.start_after.map(spell),
        max_keys: Some(input.max_keys.unwrap_or(PAGE_MAX as i32)),
        key_count: i32::try_from(count).ok(),
        continuation_token: input.continuation_token,
        is_truncated: Some(page.next.is_some()),
        next_continuation_token: page.next,
        contents: Some(page.objects.into_iter().map(object).collect()),
        common_prefixes: Some(page.prefixes.into_iter().map(prefix).collect()),
        encoding_type: input.encoding_type,
        ..Default::default()
    }
}
