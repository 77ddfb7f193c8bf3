//! The double does as S3 does unless it is told otherwise; asked over HTTP by a real client.

use super::*;
use crate::lake::Files;
use crate::process;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    RetryConfig,
};
use std::time::Duration;

fn builder(endpoint: &str) -> AmazonS3Builder {
    AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_allow_http(true)
        .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
}

async fn double() -> (Double, AmazonS3) {
    let double = Double::start().await.unwrap();
    let client = builder(double.endpoint()).build().unwrap();
    (double, client)
}

async fn put(client: &AmazonS3, key: &str, body: &str) -> object_store::Result<()> {
    let key = Path::parse(key).unwrap();
    client.put(&key, PutPayload::from(body.as_bytes().to_vec())).await.map(drop)
}

fn said(result: object_store::Result<()>) -> String {
    format!("{:?}", result.unwrap_err())
}

#[tokio::test]
async fn objects_are_kept_with_versions_and_metadata() {
    let (double, client) = double().await;
    let key = Path::parse("q/tenant=1/queue=a%2Fb c+d=é/w-1.json").unwrap();
    let mut attributes = Attributes::new();
    attributes.insert(Attribute::ContentType, "application/json".into());
    attributes.insert(Attribute::Metadata("queen-sha256".into()), "abc".into());
    for body in ["one", "two"] {
        let options = PutOptions { attributes: attributes.clone(), ..PutOptions::default() };
        client.put_opts(&key, body.into(), options).await.unwrap();
    }
    let got = client.get(&key).await.unwrap();
    assert_eq!(got.attributes, attributes);
    assert_eq!(got.bytes().await.unwrap(), "two");
    let versions = &double.objects()[key.as_ref()];
    assert_eq!(versions.iter().map(|v| v.bytes.as_ref()).collect::<Vec<_>>(), [b"one", b"two"]);
    assert_eq!(versions[0].header("x-amz-meta-queen-sha256"), Some("abc"));
    assert!(matches!(client.get(&Path::from("no")).await, Err(Error::NotFound { .. })));
    let event = &double.events()[0];
    assert_eq!((event.request.op, event.status, event.body_bytes), (Op::Put, Some(200), 3));
}

#[tokio::test]
async fn parts_make_an_object_and_what_is_left_is_seen() {
    let (double, client) = double().await;
    let key = Path::from("large");
    let id = client.create_multipart(&key).await.unwrap();
    assert_eq!(double.uploads()[0].key, "large");
    let first = client.put_part(&key, &id, 0, vec![b'x'; 5 << 20].into()).await.unwrap();
    let last = client.put_part(&key, &id, 1, "end".into()).await.unwrap();
    client.complete_multipart(&key, &id, vec![first, last]).await.unwrap();
    assert_eq!(double.object("large").unwrap().bytes.len(), (5 << 20) + 3);
    assert!(double.object("large").unwrap().etag.ends_with("-2\""));
    let left = client.create_multipart(&key).await.unwrap();
    assert_eq!(double.uploads().len(), 1);
    client.abort_multipart(&key, &left).await.unwrap();
    assert!(double.uploads().is_empty());
    let gone = client.put_part(&key, &left, 0, "x".into()).await;
    assert!(format!("{gone:?}").contains("NoSuchUpload"));
}

#[tokio::test]
async fn signatures_regions_clocks_and_tokens_are_checked() {
    let (double, client) = double().await;
    let with = |change: fn(AmazonS3Builder) -> AmazonS3Builder| {
        let client = change(builder(double.endpoint())).build().unwrap();
        async move { said(put(&client, "k", "v").await) }
    };
    assert!(with(|b| b.with_secret_access_key("x")).await.contains("SignatureDoesNotMatch"));
    assert!(with(|b| b.with_access_key_id("x")).await.contains("InvalidAccessKeyId"));
    assert!(with(|b| b.with_region("eu-west-1")).await.contains("expecting 'us-east-1'"));
    assert!(with(|b| b.with_token("x")).await.contains("InvalidToken"));
    assert!(with(|b| b.with_bucket_name("x")).await.contains("NoSuchBucket"));
    assert!(with(|b| b.with_skip_signature(true)).await.contains("not signed"));
    double.clock_ahead(1000);
    assert!(said(put(&client, "k", "v").await).contains("RequestTimeTooSkewed"));
    double.clock_ahead(0);
    double.accept_key(ACCESS_KEY, SECRET_KEY, Some("token"));
    let tokened = builder(double.endpoint()).with_token("token").build().unwrap();
    put(&tokened, "k", "v").await.unwrap();
    double.expire_key(ACCESS_KEY);
    assert!(said(put(&tokened, "k", "v").await).contains("ExpiredToken"));
    assert_eq!(double.objects().len(), 1);
}

#[tokio::test]
async fn rules_act_on_the_requests_they_name_and_as_often_as_they_say() {
    let (double, client) = double().await;
    double.rule(Rule::on(Op::Put).key("slow").skip(1).times(2).error(503, "SlowDown"));
    for (key, fails) in
        [("slow", false), ("slow", true), ("other", false), ("slow", true), ("slow", false)]
    {
        assert_eq!(put(&client, key, "v").await.is_err(), fails);
    }
    double.rule(Rule::on(Op::Put).key("lost").times(1).drop_after());
    double.rule(Rule::on(Op::Put).key("lost").times(1).drop_before());
    assert!(put(&client, "lost", "1").await.is_err());
    assert!(put(&client, "lost", "2").await.is_err());
    assert_eq!(double.objects()["lost"].len(), 1, "only the first was written");
    double.rule(Rule::on(Op::Put).ask(|request| {
        (request.key == "asked").then(|| Answer::error(409, "OperationAborted", "hook"))
    }));
    assert!(said(put(&client, "asked", "v").await).contains("hook"));
    double.rule(Rule::on(Op::Put).key("bare").change(|answer| answer.without("etag")));
    assert!(said(put(&client, "bare", "v").await).contains("Etag"));
    double.rule(Rule::on(Op::Get).key("slow").hang());
    let key = Path::from("slow");
    let never = tokio::time::timeout(Duration::from_millis(100), client.get(&key)).await;
    assert!(never.is_err());
    double.until(|events| events.len() == 10).await;
}

#[tokio::test]
async fn blanks_keep_a_connection_alive_before_an_error_inside_a_200() {
    let (double, client) = double().await;
    let late = Answer::error(200, "InternalError", "We encountered an internal error.");
    let late = late.after_blanks(3, Duration::from_millis(5));
    double.rule(Rule::on(Op::Complete).times(1).answer(late));
    let key = Path::from("large");
    let id = client.create_multipart(&key).await.unwrap();
    let part = client.put_part(&key, &id, 0, "x".into()).await.unwrap();
    let failed = client.complete_multipart(&key, &id, vec![part]).await;
    assert!(format!("{failed:?}").contains("   <?xml"), "{failed:?}");
    assert!(double.object("large").is_none());
}

#[tokio::test]
async fn strictness_refuses_what_the_providers_refuse() {
    let (double, client) = double().await;
    let checked =
        |checksum| builder(double.endpoint()).with_checksum_algorithm(checksum).build().unwrap();
    double.strict(|strict| strict.integrity = true);
    assert!(said(put(&client, "k", "v").await).contains("Content-MD5 OR"));
    put(&checked(Checksum::SHA256), "k", "v").await.unwrap();
    put(&checked(Checksum::CRC64NVME), "k", "v").await.unwrap();
    double.strict(|strict| strict.no_checksums = true);
    assert!(said(put(&checked(Checksum::SHA256), "k", "v").await).contains("x-amz-checksum"));
    double.strict(|strict| *strict = Strict { content_md5: true, ..Strict::default() });
    assert!(said(put(&checked(Checksum::SHA256), "k", "v").await).contains("Content-MD5"));
    double.strict(|strict| *strict = Strict { sse: Some("AES256".into()), ..Strict::default() });
    assert!(said(put(&client, "k", "v").await).contains("explicit deny"));
    double.strict(|strict| *strict = Strict { owner: Some("1".into()), ..Strict::default() });
    assert!(said(put(&client, "k", "v").await).contains("another owner"));
    double.strict(|strict| *strict = Strict { locked: true, ..Strict::default() });
    assert!(said(put(&client, "k", "v").await).contains("object lock"));
    assert!(put(&client, "new", "v").await.is_ok());
    let only = |policy| Strict { policy, ..Strict::default() };
    double.strict(|strict| *strict = only(Policy::PutOnly));
    assert!(put(&client, "k", "v").await.is_ok() && client.get(&Path::from("k")).await.is_err());
    double.strict(|strict| *strict = only(Policy::ReadOnly));
    assert!(put(&client, "k", "v").await.is_err() && client.get(&Path::from("k")).await.is_ok());
    double.strict(|strict| *strict = Strict::default());
    assert!(said(put(&client, &"k".repeat(1025), "v").await).contains("KeyTooLong"));
    let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
    for (conditions, word) in [
        (Conditions::Honoured, "AlreadyExists"),
        (Conditions::NotModified, "304"),
        (Conditions::NotImplemented, "501"),
    ] {
        double.strict(|strict| strict.conditions = conditions);
        let put = client.put_opts(&Path::from("k"), "v".into(), create.clone()).await;
        assert!(said(put.map(drop)).contains(word), "{conditions:?}");
    }
    double.strict(|strict| strict.conditions = Conditions::Ignored);
    client.put_opts(&Path::from("k"), "v".into(), create).await.unwrap();
}

#[tokio::test]
async fn listings_come_in_pages_shuffled_and_stale_as_told() {
    let (double, client) = double().await;
    for n in 0..25 {
        put(&client, &format!("k{n:02}"), "v").await.unwrap();
    }
    double.delete("k03");
    let all = || async { Files::of_bucket(&client).await };
    double.strict(|strict| strict.listing_page = Some(10));
    assert_eq!(all().await.unwrap().0.len(), 24);
    assert_eq!(double.count(Op::List), 3);
    double.strict(|strict| strict.stale_listings = true);
    assert!(all().await.is_err(), "what is listed is not there");
    double.strict(|strict| {
        (strict.stale_listings, strict.listing_page, strict.shuffled_listings) =
            (false, None, true);
    });
    let list = || async {
        let text = listed(&process::bucket(double.endpoint()).unwrap()).await;
        text.iter().map(|key| key.to_string()).collect::<Vec<_>>()
    };
    let (one, two) = (list().await, list().await);
    assert_ne!(one, two);
    assert_eq!((one.len(), two.len()), (24, 24));
}

async fn listed(client: &AmazonS3) -> Vec<Path> {
    use futures::TryStreamExt;
    client.list(None).map_ok(|found| found.location).try_collect().await.unwrap()
}
