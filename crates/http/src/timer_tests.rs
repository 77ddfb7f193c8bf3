//! Tests of the timers' JSON.

use super::*;

fn read(operation: Value) -> Result<AskedTimer, &'static str> {
    let text = json!([operation]).to_string();
    let members: Vec<Members<'_>> = serde_json::from_str(&text).unwrap();
    let mut free = |_| Ok(());
    read_timers(&members, &mut free).map(|mut asked| asked.remove(0)).map_err(|refusal| {
        match refusal {
            Refusal::Identified(StatusCode::BAD_REQUEST, "timers_bad_request", reason, _) => reason,
            Refusal::Identified(StatusCode::PAYLOAD_TOO_LARGE, name, ..) => name,
            other => panic!("{other:?}"),
        }
    })
}

fn with(more: Value) -> Value {
    let mut operation = json!({"op": "schedule", "queue": "q", "timerKey": "k", "delayMs": 250,
        "payload": STANDARD.encode("{\"n\": 1.0}")});
    for (name, value) in more.as_object().unwrap() {
        operation[name] = value.clone();
    }
    operation
}

#[test]
fn an_operation_has_defaults_and_keeps_the_payloads_own_text() {
    let asked = read(with(json!({"partition": null, "txn": ""}))).unwrap();
    let TimerOpKind::Schedule(message) = asked.op().kind else { panic!() };
    let want = TimerMessage {
        partition: "Default",
        delay_ms: 250,
        transaction_id: None,
        producer: None,
        encrypted: false,
        payload: b"{\"n\": 1.0}",
    };
    assert_eq!(message, want);
    let asked = read(with(json!({"delayMs": -9, "partition": "p", "txn": "t"}))).unwrap();
    let TimerOpKind::Schedule(message) = asked.op().kind else { panic!() };
    assert_eq!((message.delay_ms, message.partition, message.transaction_id), (0, "p", Some("t")));
    let cancel = read(json!({"op": "cancel", "queue": "q", "timerKey": "a/b"})).unwrap();
    assert_eq!(cancel.op(), TimerOp { queue: "q", key: "a/b", kind: TimerOpKind::Cancel });
}

#[test]
fn a_packed_payload_is_unpacked_and_no_further_than_it_may_be_long() {
    let packed = |text: &[u8]| {
        let bytes = zstd::encode_all(text, 3).unwrap();
        with(json!({"payloadZstd": true, "payload": STANDARD.encode(bytes)}))
    };
    assert_eq!(read(packed(b"[1]")).unwrap().payload, b"[1]");
    let bomb = packed(&[b"[", &b" ".repeat(64 << 20)[..], b"]"].concat());
    assert_eq!(read(bomb).unwrap_err(), "timers_bad_payload");
    let spaces = packed(&[b"[]", &b" ".repeat(PAYLOAD_BYTES_MAX)[..]].concat());
    assert_eq!(read(spaces).unwrap().payload.len(), PAYLOAD_BYTES_MAX + 1);
    let plain = with(json!({"payloadZstd": true}));
    assert_eq!(read(plain).unwrap_err(), "timers_bad_payload");
}

#[test]
fn what_a_timer_cannot_be_made_of_is_refused_by_reason() {
    for (name, value) in [
        ("producerSub", json!("x")),
        ("message_id", json!("x")),
        ("tenantId", json!("x")),
        ("tenant", json!("x")),
        ("deliverAt", json!("2030-01-01T00:00:00Z")),
        ("delay_seconds", json!(1)),
        ("attempts", json!(0)),
        ("claimToken", json!("x")),
        ("claimed_until", json!("x")),
        ("_anything", json!(null)),
    ] {
        let refused = read(with(json!({ name: value }))).unwrap_err();
        assert_eq!(refused, "timers_server_owned_member", "{name}");
    }
    for (name, value, reason) in [
        ("op", json!("set"), "timers_unknown_operation"),
        ("op", json!(null), "timers_missing_member"),
        ("queue", json!(null), "timers_missing_member"),
        ("timerKey", json!(7), "timers_bad_member"),
        ("delayMs", json!("soon"), "timers_bad_member"),
        ("delayMs", json!(null), "timers_missing_member"),
        ("payload", json!(null), "timers_missing_member"),
        ("payload", json!("***"), "timers_bad_payload"),
        ("payload", json!(STANDARD.encode("not json")), "timers_bad_payload"),
        ("encrypted", json!(true), "timers_encrypted_payload"),
    ] {
        let refused = read(with(json!({ name: value }))).unwrap_err();
        assert_eq!(refused, reason, "{name}: {value}");
    }
}

#[test]
fn payloads_of_a_call_have_a_bound_together_and_take_room() {
    let long = STANDARD.encode("1".repeat(1 << 20));
    let text = json!(vec![with(json!({"payload": long})); 65]).to_string();
    let members: Vec<Members<'_>> = serde_json::from_str(&text).unwrap();
    let mut taken = 0;
    let mut room = |bytes: usize| {
        taken += bytes;
        Ok(())
    };
    let refused = read_timers(&members, &mut room).unwrap_err();
    let Refusal::Identified(StatusCode::PAYLOAD_TOO_LARGE, _, reason, _) = refused else {
        panic!()
    };
    assert_eq!((reason, taken), ("timer_payloads_too_large", 64 << 20));
}
