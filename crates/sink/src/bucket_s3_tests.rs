//! Against a real S3 server inside the process, on the loopback.

use super::*;
use crate::settings::{Machine, Secret, Sse, StaticKeys};
use hyper_util::rt::{TokioExecutor, TokioIo};
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;

struct Server {
    endpoint: String,
    dir: tempfile::TempDir,
}

async fn server() -> Server {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("lake")).unwrap();
    let mut service = S3ServiceBuilder::new(s3s_fs::FileSystem::new(dir.path()).unwrap());
    service.set_auth(SimpleAuth::from_single("queen", "queen-secret-key"));
    let service = service.build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let http = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
        while let Ok((socket, _)) = listener.accept().await {
            let connection =
                http.serve_connection(TokioIo::new(socket), service.clone()).into_owned();
            tokio::spawn(connection);
        }
    });
    Server { endpoint, dir }
}

/// A bucket with keys of its own and nothing else set; the tests of `client` and `credentials` start
/// from it, too.
pub(super) fn settings(endpoint: &str, bucket: &str, key: &str, secret: &str) -> BucketSettings {
    BucketSettings {
        endpoint: endpoint.to_owned(),
        region: "us-east-1".to_owned(),
        bucket: bucket.to_owned(),
        keys: Some(StaticKeys {
            access_key: key.to_owned(),
            secret_key: Secret::new(secret),
            session_token: None,
        }),
        machine: Machine::default(),
        path_style: true,
        sse: None,
        checksum: crate::settings::Checksum::Auto,
        expected_owner: None,
        acl: None,
        ca_file: None,
        multipart_threshold: 64 << 20,
        request_timeout: Duration::from_secs(20),
    }
}

const META: ObjectMeta<'static> =
    ObjectMeta { content_type: "application/x-ndjson", sha256: "abc1" };
const KEY: &str = "queen/tenant=00000000-0000-0000-0000-000000000001/queue=a%2Fb%20%C3%A9/dt=2026-10-24/hour=10/w-1.jsonl.zst";

#[tokio::test]
async fn objects_are_written_read_and_looked_at() {
    let server = server().await;
    let bucket =
        S3Bucket::new(&settings(&server.endpoint, "lake", "queen", "queen-secret-key")).unwrap();
    assert_eq!(bucket.get(KEY, 100).await, Ok(None));
    assert_eq!(bucket.head(KEY).await, Ok(None));
    for body in ["first", "second"] {
        let pieces =
            body.split_inclusive('s').map(|p| Bytes::copy_from_slice(p.as_bytes())).collect();
        bucket.put(KEY, pieces, META).await.unwrap();
        assert_eq!(bucket.get(KEY, 100).await, Ok(Some(Bytes::copy_from_slice(body.as_bytes()))));
    }
    let head = bucket.head(KEY).await.unwrap().unwrap();
    assert_eq!(head, Head { bytes: 6, sha256: Some("abc1".to_owned()) });
    assert_eq!(bucket.get(KEY, 5).await.unwrap_err().kind, ErrorKind::Refused);
    let file = server.dir.path().join("lake").join(KEY);
    assert_eq!(std::fs::read(file).unwrap(), b"second", "the key is the one that was asked for");
}

#[tokio::test]
async fn a_key_too_long_is_refused_in_words() {
    let server = server().await;
    let bucket =
        S3Bucket::new(&settings(&server.endpoint, "lake", "queen", "queen-secret-key")).unwrap();
    let key = "k".repeat(1025);
    let refusals = [
        bucket.get(&key, 9).await.unwrap_err(),
        bucket.put(&key, vec![Bytes::from_static(b"x")], META).await.unwrap_err(),
        bucket.begin(&key, META).await.err().unwrap(),
    ];
    for refused in refusals {
        assert_eq!(refused.kind, ErrorKind::Refused);
        assert!(refused.text.contains("name is too long for http://"), "{refused}");
        assert!(refused.text.contains("QUEEN_S3_PREFIX"), "{refused}");
    }
}

#[tokio::test]
async fn parts_make_one_object() {
    let server = server().await;
    let bucket =
        S3Bucket::new(&settings(&server.endpoint, "lake", "queen", "queen-secret-key")).unwrap();
    let parts = bucket.begin(KEY, META).await.unwrap();
    let big = Bytes::from(vec![b'x'; 5 << 20]);
    let (second, first) =
        futures::join!(parts.put(1, Bytes::from_static(b"end")), parts.put(0, big));
    assert!(first.is_ok() && second.is_ok());
    assert_eq!(bucket.head(KEY).await, Ok(None));
    parts.complete(2).await.unwrap();
    let head = bucket.head(KEY).await.unwrap().unwrap();
    assert_eq!(head.bytes, (5 << 20) + 3);
    let left = bucket.begin(KEY, META).await.unwrap();
    left.put(0, Bytes::from_static(b"x")).await.unwrap();
    bucket.abort(KEY, &left.id()).await.unwrap();
}

#[tokio::test]
async fn refusals_say_what_is_wrong() {
    let server = server().await;
    let kind = |key: &'static str, secret: &'static str| {
        let settings = settings(&server.endpoint, "lake", key, secret);
        async move {
            let bucket = S3Bucket::new(&settings).unwrap();
            bucket.put(KEY, vec![Bytes::from_static(b"x")], META).await.unwrap_err()
        }
    };
    let secret = kind("queen", "wrong-secret").await;
    assert_eq!(secret.kind, ErrorKind::WrongSecret, "{secret}");
    assert!(!secret.text.contains("wrong-secret"), "{secret}");
    let key = kind("nobody", "queen-secret-key").await;
    assert!(matches!(key.kind, ErrorKind::WrongKey | ErrorKind::Forbidden), "{key:?}");
    let nowhere = settings("http://127.0.0.1:1", "lake", "queen", "x");
    let nowhere = S3Bucket::new(&nowhere).unwrap().head(KEY).await.unwrap_err();
    assert_eq!(nowhere.kind, ErrorKind::Unreachable, "{nowhere}");
    assert!(nowhere.text.contains("http://127.0.0.1:1 is unreachable"), "{nowhere}");
}

/// Answers every request with the same bytes, and keeps what it was asked.
async fn canned(answer: &'static str) -> (String, Arc<Mutex<String>>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(Mutex::new(String::new()));
    let keep = asked.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                let mut buffer = [0; 4096];
                match socket.read(&mut buffer).await {
                    Ok(0) | Err(_) => break,
                    Ok(n) => request.extend_from_slice(&buffer[..n]),
                }
            }
            keep.lock().push_str(&String::from_utf8_lossy(&request));
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    (endpoint, asked)
}

#[tokio::test]
async fn a_missing_bucket_is_told_from_a_missing_object() {
    let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 44\r\nconnection: close\r\n\r\n\
                  <Error><Code>NoSuchBucket</Code></Error>    ";
    let (endpoint, _) = canned(answer).await;
    let bucket = S3Bucket::new(&settings(&endpoint, "nolake", "queen", "x")).unwrap();
    let put = bucket.put(KEY, vec![Bytes::from_static(b"x")], META).await.unwrap_err();
    let get = bucket.get(KEY, 9).await.unwrap_err();
    for err in [put, get] {
        assert_eq!(err.kind, ErrorKind::MissingBucket, "{err}");
        assert!(err.text.contains("bucket nolake does not exist"), "{err}");
    }
}

#[tokio::test]
async fn a_pause_asked_for_is_passed_on() {
    let answer = "HTTP/1.1 503 Slow Down\r\nretry-after: 7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (endpoint, _) = canned(answer).await;
    let bucket = S3Bucket::new(&settings(&endpoint, "lake", "queen", "x")).unwrap();
    let err = bucket.put(KEY, vec![Bytes::from_static(b"x")], META).await.unwrap_err();
    assert!(err.kind.transient(), "{err}");
    let pause = err.retry_after.unwrap();
    assert!(pause > Duration::from_secs(6) && pause <= Duration::from_secs(7), "{pause:?}");
}

#[tokio::test]
async fn encryption_and_hash_are_in_the_headers_and_no_encoding() {
    let answer = "HTTP/1.1 200 OK\r\netag: \"x\"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (endpoint, asked) = canned(answer).await;
    let sse = Some(Sse::Kms { key_id: Some("key-1".to_owned()) });
    let settings = BucketSettings { sse, ..settings(&endpoint, "lake", "queen", "hush") };
    let bucket = S3Bucket::new(&settings).unwrap();
    bucket.put(KEY, vec![Bytes::from_static(b"x")], META).await.unwrap();
    let asked = asked.lock().to_ascii_lowercase();
    for header in [
        "x-amz-meta-queen-sha256: abc1",
        "x-amz-server-side-encryption: aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id: key-1",
        "content-type: application/x-ndjson",
    ] {
        assert!(asked.contains(header), "{header} in {asked}");
    }
    assert!(!asked.contains("content-encoding") && !asked.contains("if-none-match"), "{asked}");
    assert!(!asked.contains("hush"), "{asked}");
}

#[tokio::test]
async fn a_request_without_an_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let settings = BucketSettings {
        request_timeout: Duration::from_millis(50),
        ..settings(&endpoint, "lake", "queen", "x")
    };
    let bucket = S3Bucket::new(&settings).unwrap();
    let err = bucket.get(KEY, 9).await.unwrap_err();
    assert_eq!(err.kind, ErrorKind::Unreachable);
    assert!(err.text.contains("gave no answer within 50ms"), "{err}");
}
