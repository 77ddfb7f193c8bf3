//! Over real HTTP, with the client that the sink uses.

use super::*;
use futures::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::multipart::MultipartStore;
use object_store::path::Path as Key;
use object_store::{
    Attribute, Attributes, Error, GetOptions, ObjectStore, ObjectStoreExt, PutOptions, RetryConfig,
};

const LAKE: Bucket = Bucket { name: "lake", access_key: "queen", secret_key: "secret" };

struct Server {
    dir: tempfile::TempDir,
    endpoint: String,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    async fn start() -> Server {
        let dir = tempfile::tempdir().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = S3Server::bind(any, dir.path(), LAKE).await.unwrap();
        let endpoint = format!("http://{}", server.addr().unwrap());
        let task = tokio::spawn(server.run(std::future::pending()));
        Server { dir, endpoint, task }
    }

    fn client(&self, bucket: &str, secret: &str) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_region("us-east-1")
            .with_bucket_name(bucket)
            .with_access_key_id(LAKE.access_key)
            .with_secret_access_key(secret)
            .with_retry(RetryConfig { max_retries: 0, ..Default::default() })
            .build()
            .unwrap()
    }

    fn lake(&self) -> AmazonS3 {
        self.client("lake", LAKE.secret_key)
    }

    /// Every file of the bucket's folder, below it.
    fn files(&self) -> Vec<String> {
        let root = self.dir.path().join("lake");
        let (mut files, mut folders) = (Vec::new(), vec![root.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        files.push(path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned())
                    }
                }
            }
        }
        files.sort();
        files
    }
}

fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

fn chain(error: &dyn std::error::Error) -> String {
    let more = error.source().map(chain).unwrap_or_default();
    format!("{error}: {more}")
}

async fn refusal(client: &AmazonS3, at: &str) -> String {
    chain(&client.put(&key(at), "x".into()).await.unwrap_err())
}

fn attributes() -> Attributes {
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, "application/x-ndjson".into());
    attributes.insert(Attribute::Metadata("queen-sha256".into()), "abc1".into());
    attributes
}

#[tokio::test]
async fn an_object_is_a_file_of_its_key_and_keeps_what_was_said_of_it() {
    let server = Server::start().await;
    let lake = server.lake();
    let name = "queen/tenant=1/queue=a%2Fb%20%C3%A9/dt=2026-10-24/w-1.jsonl.zst";
    let options = PutOptions { attributes: attributes(), ..Default::default() };
    let put = lake.put_opts(&key(name), "0123456789".into(), options).await.unwrap();
    assert_eq!(server.files(), [name]);
    assert_eq!(std::fs::read(server.dir.path().join("lake").join(name)).unwrap(), b"0123456789");
    let head = GetOptions { head: true, ..Default::default() };
    let head = lake.get_opts(&key(name), head).await.unwrap();
    assert_eq!(head.attributes, attributes());
    assert_eq!(head.meta.size, 10);
    assert_eq!(head.meta.e_tag, put.e_tag);
    assert_eq!(put.e_tag.as_deref(), Some("\"781e5e245d69b566979b86e28d23f2c7\""));
    assert_eq!(lake.get(&key(name)).await.unwrap().bytes().await.unwrap(), "0123456789");
    assert_eq!(lake.get_range(&key(name), 3..6).await.unwrap(), "345");
    lake.put(&key(name), "new".into()).await.unwrap();
    assert_eq!(lake.get(&key(name)).await.unwrap().bytes().await.unwrap(), "new");
    lake.delete(&key(name)).await.unwrap();
    assert!(matches!(lake.head(&key(name)).await, Err(Error::NotFound { .. })));
    lake.delete(&key(name)).await.unwrap();
    assert!(std::fs::read_dir(server.dir.path().join("lake")).unwrap().next().is_none());
}

#[tokio::test]
async fn a_file_put_into_the_folder_by_hand_is_an_object() {
    let server = Server::start().await;
    let lake = server.lake();
    lake.put_opts(
        &key("a/b"),
        "1".into(),
        PutOptions { attributes: attributes(), ..Default::default() },
    )
    .await
    .unwrap();
    std::fs::write(server.dir.path().join("lake/a/b"), "0123456789").unwrap();
    let found = lake.get(&key("a/b")).await.unwrap();
    assert_eq!(found.meta.e_tag.as_deref(), Some("\"781e5e245d69b566979b86e28d23f2c7\""));
    assert_eq!(found.attributes.get(&Attribute::Metadata("queen-sha256".into())), None);
    assert_eq!(found.bytes().await.unwrap(), "0123456789");
}

#[tokio::test]
async fn long_names_are_kept_up_to_what_a_file_is_called() {
    let server = Server::start().await;
    let lake = server.lake();
    let long = format!("queen/{}/{}", "d".repeat(255), "f".repeat(255));
    lake.put(&key(&long), "x".into()).await.unwrap();
    assert_eq!(server.files(), [long.as_str()]);
    let said = refusal(&lake, &format!("queen/{}", "f".repeat(256))).await;
    assert!(said.contains("KeyTooLongError") && said.contains("at most 255 bytes"), "{said}");
    let parts = vec!["x".repeat(250); 5].join("/");
    assert!(refusal(&lake, &parts).await.contains("KeyTooLongError"));
}

#[tokio::test]
async fn odd_keys_stay_inside_the_bucket_or_are_refused() {
    let server = Server::start().await;
    let lake = server.lake();
    let odd = ["a b/c+d", "a=b&c?d", "é/ü.json", "..a/b..", "-", "w%2F..%2F", "a\\b", "a;b,c:d@e"];
    for name in odd {
        let at = Key::parse(name).unwrap();
        lake.put(&at, name.to_owned().into()).await.unwrap();
        assert_eq!(lake.get(&at).await.unwrap().bytes().await.unwrap(), name, "{name}");
    }
    let mut sorted = odd.map(str::to_owned);
    sorted.sort();
    assert_eq!(server.files(), sorted);
    let folder = Folder::open(server.dir.path(), "lake").unwrap();
    for bad in ["", "/a", "a/", "a//b", "..", "../broker/x", "a/../../x", "./a", "a/.", "a\0b"] {
        assert!(folder.place(bad).is_err(), "{bad:?}");
    }
    let said = refusal(&lake, "-/below").await;
    assert!(said.contains("files cannot be folders"), "{said}");
    assert!(matches!(lake.head(&key("-/below")).await, Err(Error::NotFound { .. })));
    assert!(matches!(lake.head(&key("a b")).await, Err(Error::NotFound { .. })));
}

#[tokio::test]
async fn lists_come_in_order_and_in_pages() {
    let server = Server::start().await;
    let lake = server.lake();
    let names = ["a/1", "a/2", "a.txt", "b/c/3", "b/d", "e"];
    futures::stream::iter(names)
        .for_each_concurrent(4, |name| {
            let lake = &lake;
            async move { drop(lake.put(&key(name), name.into()).await.unwrap()) }
        })
        .await;
    let list = |prefix: Option<&str>| {
        let prefix = prefix.map(key);
        let lake = &lake;
        async move {
            let found: Vec<_> = lake.list(prefix.as_ref()).try_collect().await.unwrap();
            assert!(found.iter().all(|o| o.size == o.location.as_ref().len() as u64));
            found.into_iter().map(|o| o.location.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(list(None).await, ["a.txt", "a/1", "a/2", "b/c/3", "b/d", "e"]);
    assert_eq!(list(Some("b")).await, ["b/c/3", "b/d"]);
    let after: Vec<_> = lake.list_with_offset(None, &key("a/2")).try_collect().await.unwrap();
    assert_eq!(after.len(), 3);
    let top = lake.list_with_delimiter(None).await.unwrap();
    assert_eq!(top.common_prefixes, [key("a"), key("b")]);
    let objects: Vec<_> = top.objects.iter().map(|o| o.location.as_ref()).collect();
    assert_eq!(objects, ["a.txt", "e"]);
    assert!(top.objects.iter().all(|o| o.e_tag.is_some()));

    let folder = Folder::open(server.dir.path(), "lake").unwrap();
    let mut ask =
        listing::Ask { entries_max: 1, delimiter: Some("/".into()), ..Default::default() };
    let mut seen = Vec::new();
    for _ in 0..10 {
        let page = folder.page(&ask).unwrap();
        seen.extend(page.objects.into_iter().map(|o| o.key).chain(page.prefixes));
        ask.token = page.next;
        if ask.token.is_none() {
            break;
        }
    }
    assert_eq!(seen, ["a.txt", "a/", "b/", "e"]);
}

#[tokio::test]
async fn many_objects_are_listed_over_pages_and_removed_together() {
    let server = Server::start().await;
    let lake = server.lake();
    let folder = server.dir.path().join("lake/many");
    std::fs::create_dir(&folder).unwrap();
    for n in 0..2_300 {
        std::fs::write(folder.join(format!("{n:05}")), "x").unwrap();
    }
    let found: Vec<_> = lake.list(None).map_ok(|o| o.location).try_collect().await.unwrap();
    assert_eq!(found.len(), 2_300);
    assert!(found.is_sorted());
    let all = futures::stream::iter(found.into_iter().map(Ok)).boxed();
    let removed: Vec<_> = lake.delete_stream(all).try_collect().await.unwrap();
    assert_eq!(removed.len(), 2_300);
    assert_eq!(server.files(), [""; 0]);
}

#[tokio::test]
async fn an_upload_in_parts_is_seen_when_it_is_complete() {
    let server = Server::start().await;
    let lake = server.lake();
    let at = key("queen/big");
    let options =
        object_store::PutMultipartOptions { attributes: attributes(), ..Default::default() };
    let id = lake.create_multipart_opts(&at, options).await.unwrap();
    let first = vec![b'a'; 5 << 20];
    let (one, old) = (first.clone().into(), "tail?".into());
    let one = lake.put_part(&at, &id, 0, one).await.unwrap();
    lake.put_part(&at, &id, 1, old).await.unwrap();
    let two = lake.put_part(&at, &id, 1, "tail".into()).await.unwrap();
    assert!(matches!(lake.head(&at).await, Err(Error::NotFound { .. })));
    let bad = object_store::multipart::PartId { content_id: two.content_id.clone() };
    let wrong = lake.complete_multipart(&at, &id, vec![bad]).await.unwrap_err();
    assert!(chain(&wrong).contains("InvalidPart"), "{}", chain(&wrong));
    let done = lake.complete_multipart(&at, &id, vec![one, two]).await.unwrap();
    assert!(done.e_tag.unwrap().ends_with("-2\""));
    let found = lake.get(&at).await.unwrap();
    assert_eq!(found.attributes, attributes());
    let bytes = found.bytes().await.unwrap();
    assert_eq!((&bytes[..5 << 20], &bytes[5 << 20..]), (&first[..], &b"tail"[..]));

    let id = lake.create_multipart(&at).await.unwrap();
    lake.put_part(&at, &id, 0, "x".into()).await.unwrap();
    lake.abort_multipart(&at, &id).await.unwrap();
    let gone = lake.put_part(&at, &id, 0, "x".into()).await.unwrap_err();
    assert!(chain(&gone).contains("NoSuchUpload"), "{}", chain(&gone));
    assert!(lake.put_part(&at, &"../lake".to_owned(), 0, "x".into()).await.is_err());
    assert_eq!(server.files(), ["queen/big"]);
}

#[tokio::test]
async fn other_buckets_other_secrets_and_a_lost_folder_are_refused_by_name() {
    let server = Server::start().await;
    let other = server.client("broker", LAKE.secret_key);
    assert!(refusal(&other, "a").await.contains("NoSuchBucket"));
    let found = chain(&other.get(&key("a")).await.unwrap_err());
    assert!(found.contains("NoSuchBucket"), "{found}");
    let wrong = server.client("lake", "not-it");
    assert!(refusal(&wrong, "a").await.contains("SignatureDoesNotMatch"));
    std::fs::remove_dir(server.dir.path().join("lake")).unwrap();
    assert!(refusal(&server.lake(), "a").await.contains("NoSuchBucket"));
    assert!(chain(&server.lake().get(&key("a")).await.unwrap_err()).contains("NoSuchBucket"));
    assert!(!server.dir.path().join("lake").exists());
}

#[tokio::test]
async fn a_body_that_is_not_as_promised_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::open(dir.path(), "lake").unwrap();
    let body = || {
        let pieces =
            [Ok::<_, std::io::Error>(bytes::Bytes::from_static(b"12345")), Ok("6789".into())];
        Some(s3s::dto::StreamingBlob::wrap(futures::stream::iter(pieces)))
    };
    let receive = |promised| incoming::receive(folder.temp(), body(), promised);
    let crc32 = |value: &str| folder::Checksums { crc32: Some(value.into()), ..Default::default() };
    let right = incoming::Promised {
        md5: Some("JfnnlDI7RTiF9RgfG2JNCw==".into()),
        checksums: crc32("y/Q5Jg=="),
        algorithm: Some(s3s::dto::ChecksumAlgorithm::from_static("CRC64NVME")),
        ..Default::default()
    };
    let received = receive(right).await.unwrap();
    assert_eq!(received.checksums.crc64nvme.as_deref(), Some("rosUhgp5mIg="));
    assert!(received.temp.path().exists());
    drop(received);
    let wrong = [
        incoming::Promised { md5: Some("AAAAAAAAAAAAAAAAAAAAAA==".into()), ..Default::default() },
        incoming::Promised { checksums: crc32("AAAAAA=="), ..Default::default() },
    ];
    for promised in wrong {
        let refused = receive(promised).await.err().unwrap();
        assert_eq!(refused.code(), &s3s::S3ErrorCode::BadDigest);
    }
    assert!(std::fs::read_dir(dir.path().join(".objects/tmp")).unwrap().next().is_none());
}
