//! Headers: what some buckets demand, what some refuse, and what must never be sent.
//!
//! Row 64 (conditional PUTs) needs no test of the double's answers: `nothing_new_is_sent` shows that
//! no condition is ever sent.

use crate::place::{IN_PARTS, Place, of};
use queen_sim::double::{Double, Op, Policy, Rule, Strict};
use std::time::{Duration, Instant};

async fn with(strict: Strict, settings: &[(&str, &str)]) -> Place {
    let double = Double::start().await.unwrap();
    double.strict(|now| *now = strict);
    Place::on(double, settings).await
}

/// A small window, a large one, a restart with a window on its way, the hour's file left out.
async fn works(place: &mut Place) {
    place.push(&[("p", "1")]).await;
    place.whole().await;
    place.push_large(9).await;
    place.whole().await;
    place.double.rule(Rule::on(Op::Put).key("/windows/").times(1).hang());
    place.push(&[("p", "2")]).await;
    let manifests = of(&place.double.events(), Op::Put, "/windows/").count();
    place
        .until("a third manifest", || {
            of(&place.double.events(), Op::Put, "/windows/").count() > manifests.min(2)
        })
        .await;
    place.broker.kill().unwrap();
    place.double.obey_no_rule();
    place.restart().await;
    place.whole().await;
}

const SSE: &str = "QUEEN_S3_SSE";

/// Row 32: on PUT and on the start of an upload, and on nothing else; on manifests too.
#[tokio::test]
async fn encryption_is_asked_for_where_it_belongs_and_nowhere_else() {
    let strict = Strict { sse: Some("AES256".to_owned()), ..Strict::default() };
    let mut place = with(strict, &[&[(SSE, "AES256")], IN_PARTS].concat()).await;
    works(&mut place).await;
    // An upload that is given up.
    place.double.rule(Rule::on(Op::Part).hang());
    place.push_large(9).await;
    place.until("a part", || place.double.count(Op::Part) > 2).await;
    place.broker.kill().unwrap();
    place.double.obey_no_rule();
    place.restart().await;
    place.whole().await;
    assert!(place.double.count(Op::Abort) > 0, "{}", place.log());
    for event in place.double.events() {
        let asks = event.request.header("x-amz-server-side-encryption").is_some();
        assert_eq!(asks, matches!(event.request.op, Op::Put | Op::Create), "{event:?}");
    }
    for (key, versions) in place.double.objects() {
        let sse = versions[0].header("x-amz-server-side-encryption");
        assert_eq!(sse, Some("AES256"), "{key}");
    }
    place.stop().await;
}

/// Row 33: a bucket with Object Lock wants one proof or the other.
#[tokio::test]
async fn a_bucket_that_wants_a_proof_of_the_body_gets_one() {
    let strict = Strict { integrity: true, ..Strict::default() };
    let mut place = with(strict, IN_PARTS).await;
    works(&mut place).await;
    let refused = place.double.events().iter().filter(|e| e.status == Some(400)).count();
    // Once for each start of the process.
    assert!(refused <= 2, "{refused} refusals\n{}", place.log());
    place.stop().await;
}

/// Row 33 on Backblaze: Content-MD5 is wanted, every checksum refused (row 61).
#[tokio::test]
async fn a_bucket_that_takes_content_md5_only_gets_it() {
    let strict = Strict { no_checksums: true, content_md5: true, ..Strict::default() };
    let mut place = with(strict, IN_PARTS).await;
    works(&mut place).await;
    place.stop().await;
}

/// Row 33: the setting says which, and nothing is tried.
#[tokio::test]
async fn the_proof_of_the_settings_is_sent_at_once() {
    for (word, header) in [("md5", "content-md5"), ("sha256", "x-amz-checksum-sha256")] {
        let strict = Strict { integrity: true, ..Strict::default() };
        let settings = [&[("QUEEN_S3_CHECKSUM", word)], IN_PARTS].concat();
        let mut place = with(strict, &settings).await;
        place.push_large(9).await;
        place.whole().await;
        for event in place.double.events() {
            let body = matches!(event.request.op, Op::Put | Op::Part);
            assert_eq!(event.request.header(header).is_some(), body, "{event:?}");
            assert_ne!(event.status, Some(400), "{event:?}");
        }
        place.stop().await;
    }
}

/// Rows 34, 64: what is there is locked, and an answer was lost.
#[tokio::test]
async fn windows_commit_where_nothing_may_be_written_over() {
    let strict = Strict { locked: true, integrity: true, ..Strict::default() };
    let mut place = with(strict, IN_PARTS).await;
    place.double.rule(Rule::on(Op::Put).times(1).error(400, "InvalidRequest Content-MD5"));
    for part in ["queue=orders/dt", "/windows/"] {
        let begun = Instant::now();
        place.double.rule(Rule::on(Op::Put).key(part).times(1).drop_after());
        place.push(&[("p", "1")]).await;
        place.whole().await;
        // The refusal is looked into at once, and not when the queue is tried again in a minute.
        assert!(begun.elapsed() < Duration::from_secs(50), "{}", place.log());
    }
    works(&mut place).await;
    place.one_version_each();
    assert_eq!(place.double.count(Op::Delete), 0);
    place.stop().await;
}

/// Row 37: a key that may only put.
#[tokio::test]
async fn a_key_that_may_only_put_is_enough() {
    let strict = Strict { policy: Policy::PutOnly, ..Strict::default() };
    let mut place = with(strict, IN_PARTS).await;
    works(&mut place).await;
    place.double.rule(Rule::on(Op::Put).times(1).drop_after());
    place.double.rule(Rule::on(Op::Complete).times(1).drop_after());
    place.push_large(9).await;
    place.whole().await;
    place.stop().await;
}

/// Row 37: a key that may not put says so.
#[tokio::test]
async fn a_key_that_may_only_read_is_said_in_words() {
    let strict = Strict { policy: Policy::ReadOnly, ..Strict::default() };
    let mut place = with(strict, &[]).await;
    place.push(&[("p", "1")]).await;
    let line = place.said("orders", "needs PutObject").await;
    assert_eq!(line["state"], "failed", "{line}");
    assert!(place.data().is_empty());
    place.stop().await;
}

/// Row 38: a bucket of another account.
#[tokio::test]
async fn the_buckets_owner_is_named_and_gets_the_objects() {
    let strict = Strict {
        owner: Some("111122223333".to_owned()),
        acl: Some("bucket-owner-full-control".to_owned()),
        ..Strict::default()
    };
    let settings = [
        &[
            ("QUEEN_S3_EXPECTED_BUCKET_OWNER", "111122223333"),
            ("QUEEN_S3_ACL", "bucket-owner-full-control"),
        ],
        IN_PARTS,
    ]
    .concat();
    let mut place = with(strict, &settings).await;
    works(&mut place).await;
    place.stop().await;
}

/// Rows 55, 61: no trailer, no checksum, no Expect, no header of a newer kit, no condition, no content
/// encoding; the name says how the bytes are packed.
#[tokio::test]
async fn nothing_new_is_sent() {
    let strict = Strict {
        no_trailers: true,
        no_checksums: true,
        no_expect: true,
        no_new_headers: true,
        no_unsigned_payload: true,
        equal_parts: true,
        ..Strict::default()
    };
    for codec in ["zstd", "gzip", "none"] {
        let settings = [("QUEEN_S3_MULTIPART_THRESHOLD_MB", "5"), ("QUEEN_S3_COMPRESSION", codec)];
        let mut place = with(strict.clone(), &settings).await;
        place.push_large(25).await;
        place.push(&[("p", "1")]).await;
        place.whole().await;
        for event in place.double.events() {
            for header in ["content-encoding", "transfer-encoding", "if-none-match", "if-match"] {
                assert_eq!(event.request.header(header), None, "{event:?}");
            }
            assert!(event.status.is_some_and(|s| s < 300 || s == 404), "{event:?}");
        }
        for key in place.data() {
            let object = place.double.object(&key).unwrap();
            let kind = object.header("content-type").unwrap();
            assert!(!kind.is_empty() && !kind.contains("octet-stream"), "{key}: {kind}");
        }
        place.stop().await;
    }
}

/// Row 63: parts of one size, as R2 wants them.
#[tokio::test]
async fn all_parts_but_the_last_are_of_one_size() {
    let strict = Strict { equal_parts: true, ..Strict::default() };
    let mut place = with(strict, IN_PARTS).await;
    place.push_large(30).await;
    place.whole().await;
    let events = place.double.events();
    let mut sizes: Vec<u64> = of(&events, Op::Part, "").map(|event| event.body_bytes).collect();
    sizes.sort_unstable();
    assert!(sizes.len() >= 4 && sizes[1..].iter().all(|size| *size == 8 << 20), "{sizes:?}");
    place.stop().await;
}

/// Row 61, DigitalOcean: answers without the ETag that proves them.
#[tokio::test]
async fn a_put_without_an_etag_is_looked_at() {
    let mut place = Place::new(&[]).await;
    place.double.rule(Rule::on(Op::Put).change(|answer| answer.without("etag")));
    place.push(&[("p", "1")]).await;
    place.whole().await;
    assert_eq!(place.double.count(Op::Put), 2);
    assert_eq!(place.double.count(Op::Head), 2);
    place.stop().await;
}
