//! Payloads: what producers send, byte for byte in the lake.
//!
//! The checker behind [`Place::whole`] holds every payload's bytes against those pushed, and undoes
//! the wrapping of those that no reader would survive. Engines read the same corpus in `readers`.

use crate::place::{Place, item, noise};
use queen_sim::corpus::{LIKE_NOTHING, NUMBERS, arrays, objects};
use queen_sim::lake::Files;
use serde_json::Value;
use std::collections::BTreeSet;

/// The lines of all data objects.
fn lines(files: &Files) -> Vec<String> {
    let data = files.0.iter().filter(|(key, _)| !key.contains("/_queen/"));
    let text = data.map(|(_, bytes)| zstd::decode_all(&bytes[..]).unwrap());
    let mut lines = Vec::new();
    for text in text {
        let text = String::from_utf8(text).unwrap();
        assert!(text.ends_with('\n'), "a file ends with a line's end");
        lines.extend(text.strip_suffix('\n').unwrap().split('\n').map(str::to_owned));
    }
    lines
}

/// The manifests, in order of windows.
fn manifests(files: &Files) -> Vec<Value> {
    let manifests = files.0.iter().filter(|(key, _)| key.contains("/windows/"));
    manifests.map(|(_, bytes)| serde_json::from_slice(bytes).unwrap()).collect()
}

async fn round(payloads: &[&str]) -> (Place, Vec<String>, Vec<Value>) {
    let mut place = Place::new(&[]).await;
    let items: Vec<(&str, &str)> = payloads.iter().map(|payload| ("p", *payload)).collect();
    place.push(&items).await;
    place.whole().await;
    let files = place.files();
    let (lines, manifests) = (lines(&files), manifests(&files));
    assert_eq!(lines.len(), payloads.len());
    (place, lines, manifests)
}

fn wrapped(manifests: &[Value]) -> u64 {
    manifests.iter().map(|manifest| manifest["wrapped"].as_u64().unwrap()).sum()
}

/// Row 44: nothing and things like it. An absent payload is refused at the push, where the producer
/// can still act.
#[tokio::test]
async fn payloads_like_nothing_are_rows_that_differ() {
    let (place, lines, manifests) = round(&LIKE_NOTHING).await;
    let of = |line: &String| line.split_once(",\"payload\":").unwrap().1.to_owned();
    let rows: BTreeSet<String> = lines.iter().map(of).collect();
    let want = LIKE_NOTHING.iter().map(|payload| format!("{payload}}}")).collect();
    assert_eq!(rows, want);
    assert_eq!(wrapped(&manifests), 0);
    let absent = r#"{"items":[{"queue":"orders","partition":"p"}]}"#;
    let answer = place.broker.client().post("/api/v1/push", absent).await.unwrap();
    assert_eq!(answer.status, 400, "{}", answer.text);
    place.stop().await;
}

/// Row 45: bytes that are no UTF-8 are refused at the push, where the producer can still act; lone
/// surrogates are JSON, and go wrapped; a NUL is plain.
#[tokio::test]
async fn broken_text_is_refused_or_wrapped_and_never_in_the_way() {
    let lone = [r#""\ud800""#, r#""\udc00\ud800""#, r#"{"k\udfff":1}"#, r#"["\ud83d","\ude00"]"#];
    let fine = [r#""a\u0000b""#, r#""\ud83d\ude00""#, r#""\\ud800""#, "\"\u{fffd}\u{1f41d}\""];
    let (place, lines, manifests) = round(&[&lone[..], &fine[..]].concat()).await;
    assert_eq!(wrapped(&manifests), lone.len() as u64);
    let wrapped =
        lines.iter().filter(|l| l.contains(",\"payload\":null,\"payloadBase64\":\"")).count();
    assert_eq!(wrapped, lone.len());
    assert!(lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    for bytes in [&b"\xff\xfe"[..], b"\xc0\xaf", b"\xed\xa0\x80"] {
        let mut body = br#"{"items":[{"queue":"orders","partition":"p","payload":""#.to_vec();
        body.extend_from_slice(bytes);
        body.extend_from_slice(br#""}]}"#);
        let answer = place.broker.client().post("/api/v1/push", body).await.unwrap();
        assert_eq!(answer.status, 400, "{}", answer.text);
    }
    place.stop().await;
}

/// Row 46: numbers keep every digit.
#[tokio::test]
async fn numbers_keep_their_text() {
    let numbers = [&NUMBERS[..], &["1E+2"]].concat();
    let (place, lines, _) = round(&numbers).await;
    for number in numbers {
        assert!(lines.iter().any(|line| line.ends_with(&format!(",\"payload\":{number}}}"))));
    }
    place.stop().await;
}

/// Row 47: keys that are there twice, or differ by case, stay as they are.
#[tokio::test]
async fn odd_keys_stay_as_they_are() {
    let mut many = String::from("{");
    for n in 0..300 {
        many.push_str(&format!("\"k{n}\":{},", if n == 7 { "1.5" } else { "9007199254740995" }));
    }
    many.push_str("\"last\":1}");
    let payloads = [
        r#"{"a":1,"a":2}"#,
        r#"{"Image":1,"image":2}"#,
        r#"{"a.b":1,"a":{"b":2}}"#,
        r#"{"":1}"#,
        r#"{"partition":"x","offset":9,"payload":1,"payloadBase64":"x"}"#,
        &many,
    ];
    let (place, _, manifests) = round(&payloads).await;
    assert_eq!(wrapped(&manifests), 0);
    place.stop().await;
}

/// The hazard of readers that recurse: nesting over 127 is wrapped, up to it plain.
#[tokio::test]
async fn deep_payloads_are_wrapped() {
    let payloads = [arrays(127), objects(127), arrays(128), objects(128), arrays(5000)];
    let payloads: Vec<&str> = payloads.iter().map(String::as_str).collect();
    let (place, _, manifests) = round(&payloads).await;
    assert_eq!(wrapped(&manifests), 3);
    place.stop().await;
}

/// Row 50: one record, one line, whatever the producer's layout.
#[tokio::test]
async fn a_record_is_one_line() {
    let payloads = [
        "{\n  \"a\": [\n    1,\n    2\n  ]\n}",
        "{\r\n\t\"a\":\r\n1}",
        "\"\u{2028}\u{2029}\u{85}\"",
        "\"a\\nb\\r\\nc\"",
    ];
    let (place, lines, _) = round(&payloads).await;
    assert!(lines.iter().all(|line| !line.contains('\r')));
    let pretty = ",\"payload\":{   \"a\": [     1,     2   ] }}";
    assert!(lines.iter().any(|line| line.ends_with(pretty)), "{lines:?}");
    place.stop().await;
}

/// Row 48: a huge record lies in a window of its own, so that readers with a limit read the others.
#[tokio::test]
async fn a_huge_record_has_a_window_to_itself() {
    let mut place = Place::new(&[("QUEEN_S3_MAX_WINDOW_MS", "3000")]).await;
    for huge in [17 << 20, 40 << 20] {
        place.push(&[("p", "1"), ("q", "2")]).await;
        place.push_items(vec![item("orders", "p", &noise(huge, huge))]).await;
        place.push(&[("p", "3"), ("q", "4")]).await;
    }
    place.whole().await;
    let manifests = manifests(&place.files());
    let (huge, small): (Vec<&Value>, Vec<&Value>) =
        manifests.iter().partition(|m| m["maxRecordBytes"].as_u64().unwrap() > 8 << 20);
    assert_eq!(huge.len(), 2);
    for manifest in huge {
        assert_eq!(
            (manifest["records"].as_u64(), manifest["wrapped"].as_u64()),
            (Some(1), Some(1))
        );
    }
    assert!(small.iter().all(|m| m["maxRecordBytes"].as_u64().unwrap() < 1000));
    place.stop().await;
}
