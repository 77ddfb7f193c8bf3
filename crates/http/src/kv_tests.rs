//! Tests of the JSON of KV: what is read of a request, what is written of an outcome.

use super::*;
use bytes::Bytes;
use queen_core::Stamp;
use queen_core::kv::{KvLoss, KvResult, KvRow};
use serde_json::{Value, json};

fn read(body: &str) -> Vec<Asked> {
    read_batch(body.as_bytes()).unwrap()
}

fn reason(operation: &str) -> &'static str {
    match read_batch(format!("[{operation}]").as_bytes()) {
        Err(Refusal::Identified(StatusCode::BAD_REQUEST, "kv_bad_request", reason, detail)) => {
            assert!(!detail.is_empty());
            reason
        }
        other => panic!("{other:?}"),
    }
}

fn row(value: &'static str, version: u64) -> KvRow {
    KvRow {
        key: "k".into(),
        value: Bytes::from_static(value.as_bytes()),
        version,
        expires_at: None,
        updated_at: Stamp(1_792_837_434_910_988),
    }
}

fn shown(operation: &str, result: &KvResult) -> Value {
    let asked = read(&format!("[{operation}]"));
    serde_json::to_value(show(3, &asked[0], result)).unwrap()
}

#[test]
fn a_batch_is_an_object_or_a_bare_list() {
    let operation = r#"{"op":"get","ns":"n","key":"k","unknown":1}"#;
    assert_eq!(read(&format!(" [{operation}]")).len(), 1);
    assert_eq!(read(&format!(r#"{{"operations":[{operation},{operation}]}}"#)).len(), 2);
    for body in ["", "{}", "{\"operations\":{}}", "[1]", "[", "\"x\""] {
        assert!(read_batch(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn every_operation_is_read() {
    let body = r#"[
        {"op":"get","ns":"n","key":"k"},
        {"op":"getMany","ns":"n","keys":["a","b"]},
        {"op":"getPrefix","ns":"n","prefix":"p","after":"q","limit":5000,"keysOnly":true},
        {"op":"put","ns":"n","key":"k","value":{"b": 1, "a":[ 2.50, "x y" ]},"ttlSeconds":5,"expect":7,"required":true},
        {"op":"putIfAbsent","ns":"n","key":"k","value":null,"forever":true},
        {"op":"delete","ns":"n","key":"k","expect":0},
        {"op":"incr","ns":"n","key":"k","min":-1,"max":2.5,"forever":true,"ttlSeconds":null},
        {"op":"check","ns":"n","key":"k","expect":3}
    ]"#;
    let asked = read(body);
    let kinds: Vec<KvOpKind<'_>> = asked.iter().map(|asked| asked.op().kind).collect();
    assert_eq!(
        kinds,
        [
            KvOpKind::Get { key: "k" },
            KvOpKind::GetMany { keys: vec!["a", "b"] },
            KvOpKind::GetPrefix { prefix: "p", after: Some("q"), limit: 1000, keys_only: true },
            KvOpKind::Put {
                key: "k",
                value: r#"{"b":1,"a":[2.50,"x y"]}"#,
                ttl_seconds: Some(5),
                expect: Some(7)
            },
            KvOpKind::Put { key: "k", value: "null", ttl_seconds: None, expect: Some(0) },
            KvOpKind::Delete { key: "k", expect: Some(0) },
            KvOpKind::Incr {
                key: "k",
                delta: "1",
                min: Some("-1"),
                max: Some("2.5"),
                ttl_seconds: None
            },
            KvOpKind::Check { key: "k", expect: 3 },
        ]
    );
    assert_eq!(asked.iter().filter(|asked| asked.required).count(), 1);
}

#[test]
fn a_write_says_exactly_once_how_long_it_lives() {
    let put = |rest: &str| format!(r#"{{"op":"put","ns":"n","key":"k","value":1{rest}}}"#);
    for rest in
        ["", ",\"forever\":false", ",\"forever\":true,\"ttlSeconds\":1", ",\"ttlSeconds\":null"]
    {
        assert_eq!(reason(&put(rest)), "kv_expiry_not_specified", "{rest}");
    }
    for ttl in ["0", "-1", "1.5", "\"1\"", "true"] {
        assert_eq!(reason(&put(&format!(",\"ttlSeconds\":{ttl}"))), "kv_bad_ttl", "{ttl}");
    }
}

#[test]
fn what_cannot_be_read_is_refused_by_reason() {
    assert_eq!(reason(r#"{"ns":"n","key":"k"}"#), "kv_missing_member");
    assert_eq!(reason(r#"{"op":"steal","ns":"n","key":"k"}"#), "kv_unknown_operation");
    assert_eq!(reason(r#"{"op":"get","ns":"n"}"#), "kv_missing_member");
    assert_eq!(reason(r#"{"op":"get","ns":7,"key":"k"}"#), "kv_bad_member");
    assert_eq!(reason(r#"{"op":"put","ns":"n","key":"k","forever":true}"#), "kv_missing_member");
    assert_eq!(reason(r#"{"op":"check","ns":"n","key":"k"}"#), "kv_missing_member");
    for expect in ["null", "-1", "1.5", "\"1\""] {
        let delete = format!(r#"{{"op":"delete","ns":"n","key":"k","expect":{expect}}}"#);
        assert_eq!(reason(&delete), "kv_bad_expect", "{expect}");
    }
    let incr = r#"{"op":"incr","ns":"n","key":"k","delta":"1","forever":true}"#;
    assert_eq!(reason(incr), "kv_bad_number");
}

#[test]
fn blanks_between_tokens_go_and_nothing_else() {
    assert_eq!(compact("{ \"a b\" : [ 1 ,\n2.0 ] }"), "{\"a b\":[1,2.0]}");
    assert_eq!(compact(r#""x \" y" "#), r#""x \" y""#);
    assert_eq!(compact(r#""\\" "#), r#""\\""#);
}

#[test]
fn a_found_row_has_all_its_members() {
    let get = r#"{"op":"get","ns":"n","key":"k"}"#;
    assert_eq!(
        shown(get, &KvResult::Row(Some(row("null", 9)))),
        json!({"index": 3, "op": "get", "found": true, "key": "k", "value": null, "version": 9,
            "expiresAt": null, "updatedAt": "2026-10-24T10:23:54.910988Z"})
    );
    assert_eq!(
        shown(get, &KvResult::Row(None)),
        json!({"index": 3, "op": "get", "found": false, "key": "k"})
    );
}

#[test]
fn a_lost_write_shows_what_is_there() {
    let put = r#"{"op":"put","ns":"n","key":"k","value":1,"forever":true}"#;
    let lost = |row| KvResult::Lost { reason: KvLoss::Version, row };
    assert_eq!(
        shown(put, &lost(Some(row("{\"x\":1}", 9)))),
        json!({"index": 3, "op": "put", "applied": false, "reason": "version", "key": "k",
            "value": {"x": 1}, "version": 9})
    );
    let absent = shown(put, &lost(None));
    assert_eq!((&absent["value"], &absent["version"]), (&Value::Null, &json!(0)));
}

#[test]
fn a_check_shows_no_value() {
    let check = r#"{"op":"check","ns":"n","key":"k","expect":9}"#;
    assert_eq!(
        shown(check, &KvResult::Applied(Some(row("1", 9)))),
        json!({"index": 3, "op": "check", "applied": true, "key": "k", "version": 9})
    );
}

#[test]
fn a_listing_says_where_to_go_on() {
    let rows = KvResult::Rows { rows: vec![row("1", 2)], missing: vec![], truncated: true };
    let prefix = r#"{"op":"getPrefix","ns":"n","prefix":"k","keysOnly":true}"#;
    let listed = shown(prefix, &rows);
    assert_eq!((&listed["truncated"], &listed["nextAfter"]), (&json!(true), &json!("k")));
    assert_eq!(listed["rows"][0].get("value"), None);
    assert_eq!(listed.get("missing"), None);
    let many = shown(r#"{"op":"getMany","ns":"n","keys":["k"]}"#, &rows);
    assert_eq!((&many["missing"], &many["rows"][0]["value"]), (&json!([]), &json!(1)));
}

#[test]
fn a_value_keeps_its_own_text() {
    let asked = read(r#"[{"op":"get","ns":"n","key":"k"}]"#);
    let result = KvResult::Row(Some(row("42.00", 1)));
    let text = serde_json::to_string(&show(0, &asked[0], &result)).unwrap();
    assert!(text.contains("\"value\":42.00"), "{text}");
}
