//! Sources of credentials, each against a small server of its own on the loopback; time is set by
//! the test.

use super::*;
use crate::bucket::{Bucket, ErrorKind, ObjectMeta};
use crate::bucket_s3::S3Bucket;
use crate::settings::{Container, Secret};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

/// 2026-10-24T10:00:00Z.
const START: u64 = 1_792_836_000;

/// Answers requests over HTTP as a function says, and keeps them.
struct Service {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Service {
    async fn start(answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let keep = asked.clone();
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let request = read(&mut socket).await;
                let (status, body) = answer(&request);
                keep.lock().push(request);
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                    body.len()
                );
                let _ = socket.write_all((head + &body).as_bytes()).await;
            }
        });
        Service { url, asked }
    }

    fn count(&self) -> usize {
        self.asked.lock().len()
    }
}

async fn read(socket: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let length = text.split("content-length: ").nth(1);
            let length = length.and_then(|rest| rest.lines().next()?.parse().ok()).unwrap_or(0);
            if request.len() >= end + 4 + length {
                return String::from_utf8(request).unwrap();
            }
        }
        match socket.read(&mut buffer).await {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&request).into_owned(),
            Ok(n) => request.extend_from_slice(&buffer[..n]),
        }
    }
}

/// A clock that a test sets.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Hand {
    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::SeqCst);
    }

    fn clock(&self) -> Clock {
        let hand = self.clone();
        Arc::new(move || {
            let seconds = START + hand.0.load(Ordering::SeqCst);
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
        })
    }

    fn iso(&self, in_seconds: u64) -> String {
        let seconds = START + self.0.load(Ordering::SeqCst) + in_seconds;
        queen_core::Stamp(seconds * 1_000_000).to_iso()
    }
}

fn settings(machine: Machine) -> BucketSettings {
    BucketSettings {
        region: "eu-west-1".to_owned(),
        keys: None,
        machine: Machine { session: "queen".to_owned(), ..machine },
        ..crate::bucket_s3::tests::settings("http://127.0.0.1:1", "lake", "", "")
    }
}

fn credentials(machine: Machine, hand: &Hand) -> Credentials {
    Credentials::with_clock(&settings(machine), None, hand.clock()).unwrap()
}

fn container(url: String) -> Machine {
    let container = Container { url, token: Some(Secret::new("show-me")), token_file: None };
    Machine { container: Some(container), ..Machine::default() }
}

fn keys_json(key: &str, expiration: &str) -> String {
    serde_json::json!({"AccessKeyId": key, "SecretAccessKey": "hush", "Token": "tok",
        "Expiration": expiration})
    .to_string()
}

fn role_xml(action: &str, key: &str, expiration: &str) -> String {
    format!(
        "<{action}Response xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><{action}Result>\
         <AssumedRoleUser><Arn>a</Arn></AssumedRoleUser><Credentials><AccessKeyId>{key}</AccessKeyId>\
         <SecretAccessKey>hush</SecretAccessKey><SessionToken>tok</SessionToken>\
         <Expiration>{expiration}</Expiration></Credentials></{action}Result></{action}Response>"
    )
}

async fn key(credentials: &Credentials) -> String {
    credentials.current().await.unwrap().key_id.clone()
}

#[tokio::test]
async fn what_ends_is_renewed_after_four_fifths_of_its_life() {
    let hand = Hand::default();
    let (now, given) = (hand.clone(), AtomicU64::new(0));
    let down = Arc::new(AtomicU64::new(0));
    let is_down = down.clone();
    let service = Service::start(move |_| match is_down.load(Ordering::SeqCst) {
        0 => {
            let number = given.fetch_add(1, Ordering::SeqCst) + 1;
            (200, keys_json(&format!("key-{number}"), &now.iso(60)))
        }
        _ => (503, String::new()),
    })
    .await;
    let credentials = credentials(container(service.url.clone()), &hand);
    for (at, want) in [(0, "key-1"), (47, "key-1"), (48, "key-2"), (95, "key-2"), (96, "key-3")] {
        hand.set(at);
        assert_eq!(key(&credentials).await, want, "after {at} s");
    }
    assert!(service.asked.lock()[0].to_ascii_lowercase().contains("authorization: show-me"));
    // Its end is at 156. A renewal that fails does not end what is still good.
    down.store(1, Ordering::SeqCst);
    hand.set(150);
    assert_eq!((key(&credentials).await.as_str(), service.count()), ("key-3", 4));
    hand.set(152);
    assert_eq!((key(&credentials).await.as_str(), service.count()), ("key-3", 4), "it pauses");
    hand.set(157);
    let error = credentials.current().await.unwrap_err();
    assert!(error.transient && error.text.contains("status 503"), "{error}");
    down.store(0, Ordering::SeqCst);
    hand.set(163);
    assert_eq!(key(&credentials).await, "key-4");
}

#[tokio::test]
async fn ten_minutes_of_sixty_second_keys_need_a_renewal_every_forty_eight_seconds() {
    let hand = Hand::default();
    let now = hand.clone();
    let service = Service::start(move |_| (200, keys_json("key", &now.iso(60)))).await;
    let credentials = credentials(container(service.url.clone()), &hand);
    for second in 0..600 {
        hand.set(second);
        key(&credentials).await;
    }
    assert_eq!(service.count(), 600_usize.div_ceil(48));
}

#[tokio::test]
async fn an_expired_token_is_replaced_at_once_and_the_request_made_again() {
    let given = AtomicU64::new(0);
    let service = Service::start(move |_| {
        let number = given.fetch_add(1, Ordering::SeqCst) + 1;
        (200, keys_json(&format!("key-{number}"), "2099-01-01T00:00:00Z"))
    })
    .await;
    let expired = "<Error><Code>ExpiredToken</Code><Message>no</Message></Error>";
    let bucket = Service::start(move |request| match request {
        head if head.starts_with("HEAD") && head.contains("key-2/") => (400, String::new()),
        other if other.contains("key-1/") => (400, expired.to_owned()),
        _ => (200, String::new()),
    })
    .await;
    let settings =
        BucketSettings { endpoint: bucket.url.clone(), ..settings(container(service.url.clone())) };
    let store = S3Bucket::new(&settings).unwrap();
    assert_eq!(store.get("a", 9).await, Ok(Some(bytes::Bytes::new())));
    assert_eq!((service.count(), bucket.count()), (2, 2));
    // The answer to a HEAD has no body to say so.
    store.head("a").await.unwrap().unwrap();
    assert_eq!((service.count(), bucket.count()), (3, 4));
}

#[tokio::test]
async fn keys_that_nobody_renews_are_not_tried_twice() {
    let expired = "<Error><Code>ExpiredToken</Code></Error>";
    let bucket = Service::start(move |_| (400, expired.to_owned())).await;
    let keys = Some(StaticKeys {
        access_key: "a".into(),
        secret_key: Secret::new("hush"),
        session_token: Some(Secret::new("tok")),
    });
    let settings =
        BucketSettings { endpoint: bucket.url.clone(), keys, ..settings(Machine::default()) };
    let store = S3Bucket::new(&settings).unwrap();
    let meta = ObjectMeta { content_type: "text/plain", sha256: "" };
    let error = store.put("a", vec![bytes::Bytes::from_static(b"x")], meta).await.unwrap_err();
    assert_eq!((error.kind, bucket.count()), (ErrorKind::ExpiredCredentials, 1));
    assert!(error.text.contains("renew the session token"), "{error}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_token_file_that_is_swapped_is_read_anew() {
    let dir = tempfile::tempdir().unwrap();
    let hand = Hand::default();
    let now = hand.clone();
    let sts = Service::start(move |_| {
        (200, role_xml("AssumeRoleWithWebIdentity", "key", &now.iso(3600)))
    })
    .await;
    // As Kubernetes does: the file is a link through a link that is replaced.
    let link = |version: &str| {
        std::fs::create_dir(dir.path().join(version)).unwrap();
        std::fs::write(dir.path().join(version).join("token"), format!("token+{version}\n"))
            .unwrap();
        let new = dir.path().join("..new");
        std::os::unix::fs::symlink(version, &new).unwrap();
        std::fs::rename(new, dir.path().join("..data")).unwrap();
    };
    link("1");
    std::os::unix::fs::symlink("..data/token", dir.path().join("token")).unwrap();
    let identity = WebIdentity { token_file: dir.path().join("token"), role: "arn:r".into() };
    let machine =
        Machine { web_identity: Some(identity), sts: Some(sts.url.clone()), ..Machine::default() };
    let credentials = credentials(machine, &hand);
    assert_eq!(credentials.describe().await.unwrap(), "the web identity's role arn:r (key id key)");
    link("2");
    hand.set(2880);
    key(&credentials).await;
    let asked = sts.asked.lock();
    assert!(asked[0].starts_with("POST / "), "the token is in no URL: {}", asked[0]);
    assert!(asked[0].contains("RoleArn=arn%3Ar") && asked[0].contains("RoleSessionName=queen"));
    assert!(asked[0].ends_with("WebIdentityToken=token%2B1"), "{}", asked[0]);
    assert!(asked[1].ends_with("WebIdentityToken=token%2B2"), "{}", asked[1]);
}

#[tokio::test]
async fn a_metadata_service_that_never_answers_is_given_up_with_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let metadata = Some(format!("http://{}", listener.local_addr().unwrap()));
    let credentials = credentials(Machine { metadata, ..Machine::default() }, &Hand::default());
    let begun = Instant::now();
    let error = credentials.current().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(error.transient && error.text.contains("hop limit must be 2"), "{error}");
    assert!(error.text.contains("set QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"), "{error}");
    let begun = Instant::now();
    credentials.current().await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_millis(500), "the next request does not wait again");
}

#[tokio::test]
async fn an_instance_gives_the_credentials_of_its_role() {
    let hand = Hand::default();
    let now = hand.clone();
    let service = Service::start(move |request| {
        let authorized = request.contains("x-aws-ec2-metadata-token: session");
        match request.split(' ').nth(1).unwrap_or_default() {
            "/latest/api/token" if request.starts_with("PUT") => (200, "session".to_owned()),
            "/latest/meta-data/iam/security-credentials/" if authorized => (200, "lake\n".into()),
            "/latest/meta-data/iam/security-credentials/lake" if authorized => {
                (200, keys_json("ASIA", &now.iso(3600)))
            }
            _ => (404, String::new()),
        }
    })
    .await;
    let metadata = Some(service.url.clone());
    let credentials = credentials(Machine { metadata, ..Machine::default() }, &hand);
    assert_eq!(credentials.describe().await.unwrap(), "the instance's role lake (key id ASIA)");
}

#[tokio::test]
async fn a_role_is_taken_on_with_the_keys_of_a_profile() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let profiles = "[profile base]\naws_access_key_id=AKIABASE\naws_secret_access_key=hush\n\
                    [profile lake]\nrole_arn=arn:role\nsource_profile=base\nexternal_id=a b\n";
    std::fs::write(&file, profiles).unwrap();
    let hand = Hand::default();
    let now = hand.clone();
    let sts = Service::start(move |_| (200, role_xml("AssumeRole", "ASIA", &now.iso(3600)))).await;
    let machine = Machine {
        only_profile: Some("lake".into()),
        profile_files: vec![file],
        sts: Some(sts.url.clone()),
        ..Machine::default()
    };
    let credentials = credentials(machine, &hand);
    let from = credentials.describe().await.unwrap();
    assert_eq!(from, "profile lake: role arn:role taken on with profile base (key id ASIA)");
    let asked = sts.asked.lock()[0].clone();
    assert!(
        asked.contains("Credential=AKIABASE/") && asked.contains("/eu-west-1/sts/aws4_request")
    );
    assert!(asked.contains("ExternalId=a%20b") && !asked.contains("hush"), "{asked}");
}

#[tokio::test]
async fn a_role_that_is_not_given_is_said_in_the_words_of_its_service() {
    let refusal = "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>\
                   <Message>not authorized to perform sts:AssumeRole</Message></Error></ErrorResponse>";
    let sts = Service::start(move |_| (403, refusal.to_owned())).await;
    let keys =
        StaticKeys { access_key: "a".into(), secret_key: Secret::new("hush"), session_token: None };
    let machine = Machine {
        keys: Some(keys),
        role: Some(Role { arn: "arn:role".into(), external_id: None }),
        sts: Some(sts.url.clone()),
        ..Machine::default()
    };
    let settings = settings(machine);
    let error = S3Bucket::new(&settings).unwrap().head("a").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoCredentials, "{error}");
    let want = "does not give the role arn:role: AccessDenied not authorized to perform";
    assert!(error.text.contains(want), "{error}");
    assert!(!format!("{error:?}{settings:?}").contains("hush"));
}

#[tokio::test]
async fn a_source_that_is_set_and_fails_is_not_passed_over() {
    let hand = Hand::default();
    let now = hand.clone();
    let service = Service::start(move |_| (200, keys_json("other", &now.iso(60)))).await;
    let machine = Machine {
        web_identity: Some(WebIdentity { token_file: "/no/token".into(), role: "r".into() }),
        ..container(service.url.clone())
    };
    let error = credentials(machine, &hand).current().await.unwrap_err();
    assert!(!error.transient, "{error}");
    assert!(error.text.starts_with("AWS_WEB_IDENTITY_TOKEN_FILE=/no/token: cannot be read"));
    assert_eq!(service.count(), 0);
}

#[tokio::test]
async fn a_profile_is_read_anew_and_wins_over_the_container() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials");
    let write = |key: &str| {
        let text = format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n");
        std::fs::write(&file, text).unwrap();
    };
    write("first");
    let hand = Hand::default();
    let machine =
        Machine { profile_files: vec![file.clone()], ..container("http://127.0.0.1:1".into()) };
    let credentials = credentials(machine, &hand);
    assert_eq!(key(&credentials).await, "first");
    write("second");
    assert_eq!(key(&credentials).await, "first");
    hand.set(10);
    assert_eq!(key(&credentials).await, "second");
}
