//! Tests of reading a bundle.

use super::*;
use queen_core::LeaseId;
use queen_core::command::LeaseClaim;
use queen_core::frame::Frames;
use queen_core::kv::KvOpKind;
use queen_core::timer::TimerOpKind;
use serde_json::{Value, json};

/// There is room for all.
fn free(_: usize) -> Result<(), Refusal> {
    Ok(())
}

fn refusal(body: &Value) -> String {
    match Bundle::read(body.to_string().as_bytes(), Vec::new(), &mut free) {
        Err(Refusal::Plain(e)) => format!("{} {}", e.code.word(), e.text),
        Err(Refusal::Identified(status, error, reason, _)) => format!("{status} {error} {reason}"),
        Err(other) => panic!("{other:?}"),
        Ok(_) => String::new(),
    }
}

fn early(body: &Value) -> (&'static str, Option<usize>) {
    let text = body.to_string();
    let bundle = Bundle::read(text.as_bytes(), Vec::new(), &mut free).unwrap();
    Parts::of(&bundle, text.len(), None).map_or_else(|why| (why.reason, why.index), |_| ("", None))
}

#[test]
fn pushes_are_grouped_and_acks_by_their_group() {
    let body = br#"{"operations":[
        {"type":"ack","transactionId":"a","partitionId":"17","status":"completed","consumerGroup":"g"},
        {"type":"push","items":[{"queue":"q","partition":"p","payload":{"a": 1.00}},
            {"queue":"q","data":null,"transactionId":"t","traceId":"6F1A3D0E-0000-7000-8000-000000000000"}]},
        {"type":"ack","transactionId":"b","partitionId":17,"status":"dlq","error":"why","consumerGroup":null},
        {"type":"push","queue":"q","partition":"p","traceId":"no uuid"},
        {"type":"ack","transactionId":"c","partitionId":"18","status":"odd","consumerGroup":"g"}],
        "requiredLeases":null,"kv":null,"timers":[],"positions":null}"#;
    let bundle = Bundle::read(body, Vec::new(), &mut free).unwrap();
    let parts = Parts::of(&bundle, body.len(), None).unwrap();
    let command = parts.command(TenantId::DEFAULT);
    let names: Vec<_> = command.acks.iter().map(|acks| (acks.group, acks.items.len())).collect();
    assert_eq!(names, [(Some("g"), 2), (None, 1)]);
    let (odd, dead) = (&command.acks[0].items[1], &command.acks[1].items[0]);
    assert_eq!((odd.verdict, odd.transaction_id), (Verdict::Completed, "c"));
    assert_eq!((dead.verdict, dead.error), (Verdict::DeadLetter, Some("why")));
    let of = |at: usize| -> Vec<_> {
        Frames::new(command.pushes[at].frames).map(|frame| frame.unwrap()).collect()
    };
    assert_eq!((command.pushes[0].partition, command.pushes[1].partition), ("p", "Default"));
    let payloads: Vec<_> = of(0).iter().map(|frame| frame.payload).collect();
    assert_eq!(payloads, [&br#"{"a": 1.00}"#[..], b"{}"]);
    assert!(of(0)[1].trace_id.is_none());
    let second = of(1)[0];
    assert_eq!((second.payload, second.transaction_id), (&b"null"[..], Some("t")));
    assert_eq!(second.trace_id.map(|id| id[0]), Some(0x6f));
    let flat: Vec<_> = (0..6).filter(|at| matches!(parts.places[*at], Place::Push(_))).collect();
    assert_eq!(flat, [1, 2, 4]);
    assert_eq!(parts.index_of(Place::Ack(Slot { group: 0, number: 1 })), Some(5));
}

#[test]
fn an_ack_without_a_lease_borrows_the_only_one_that_is_named() {
    let [one, two] = [LeaseId([1; 16]), LeaseId([2; 16])];
    let lent = |own: Option<LeaseId>, required: Value| {
        let own = own.map(|id| id.to_string());
        let body = json!({"requiredLeases": required, "operations": [
            {"type": "ack", "transactionId": "a", "partitionId": "1", "leaseId": own},
            {"type": "ack", "transactionId": "b", "partitionId": "1", "leaseId": ""},
        ]})
        .to_string();
        let bundle = Bundle::read(body.as_bytes(), Vec::new(), &mut free).unwrap();
        let lease = |at: usize| {
            let parts = Parts::of(&bundle, 0, None).unwrap();
            match parts.acks[0].items[at].lease {
                LeaseClaim::Id(id) => Some(id),
                _ => None,
            }
        };
        (lease(0), lease(1))
    };
    let texts = |ids: &[LeaseId]| json!(ids.iter().map(LeaseId::to_string).collect::<Vec<_>>());
    assert_eq!(lent(None, json!(null)), (None, None));
    assert_eq!(lent(None, texts(&[one])), (Some(one), Some(one)));
    assert_eq!(lent(Some(one), texts(&[one, one])), (Some(one), Some(one)));
    assert_eq!(lent(Some(one), json!([null, ""])), (Some(one), Some(one)));
    assert_eq!(lent(Some(one), texts(&[one, two])), (Some(one), None));
    assert_eq!(lent(None, texts(&[one, two])), (None, None));
}

#[test]
fn riders_keep_their_order_behind_the_operations() {
    let body = json!({
        "kv": [{"op": "check", "ns": "n", "key": "k", "expect": 3, "required": true},
            {"op": "put", "ns": "n", "key": "l", "value": {"x": 1}, "ttlSeconds": 9}],
        "timers": [{"op": "cancel", "queue": "q", "timerKey": "k"}],
        "positions": [{"queue": "q", "consumerGroup": "g", "offset": 7, "metadata": "m"},
            {"queue": "q", "consumerGroup": "g", "partition": "p", "subscriptionMode": "all"}],
    })
    .to_string();
    let bundle = Bundle::read(body.as_bytes(), Vec::new(), &mut free).unwrap();
    let parts = Parts::of(&bundle, body.len(), None).unwrap();
    let riders = parts.command(TenantId::DEFAULT).riders;
    let Rider::Kv(check) = &riders[0] else { panic!() };
    assert!(check.required && matches!(check.kind, KvOpKind::Check { key: "k", expect: 3 }));
    let Rider::Timer(cancel) = &riders[2] else { panic!() };
    assert_eq!((cancel.queue, cancel.key, &cancel.kind), ("q", "k", &TimerOpKind::Cancel));
    let Rider::Position(first) = &riders[3] else { panic!() };
    let offset = Some(Offset(7));
    assert_eq!((first.partition, first.offset, first.start), ("Default", offset, GroupStart::New));
    let Rider::Position(second) = &riders[4] else { panic!() };
    assert_eq!((second.partition, second.offset, second.start), ("p", None, GroupStart::All));
}

#[test]
fn a_malformed_bundle_is_refused_with_the_place() {
    let starts = |body: Value, text: &str| {
        let found = refusal(&body);
        assert!(found.starts_with(text), "{body}: {found}");
    };
    starts(json!([]), "bad_body the body is not a transaction");
    starts(json!({"operations": 3}), "bad_body the body is not a transaction");
    starts(json!({}), "bad_request the transaction is empty");
    starts(json!({"operations": [], "kv": [], "timers": null}), "bad_request the transaction is");
    let of = |operation: Value| json!({"operations": [operation]});
    starts(of(json!(1)), "bad_body operation 0: ");
    starts(of(json!({"type": "kv", "op": "put"})), "bad_request operation 0: \"kv\" is not a type");
    starts(of(json!({"queue": "q"})), "bad_request operation 0: \"\" is not a type");
    starts(of(json!({"type": "push"})), "bad_request operation 0: a pushed message names no queue");
    starts(of(json!({"type": "push", "items": {}})), "bad_body operation 0: ");
    starts(of(json!({"type": "ack", "partitionId": "1"})), "bad_request operation 0: an ack names");
    let id = "t".repeat(65_536);
    starts(of(json!({"type": "push", "queue": "q", "transactionId": id})), "bad_request item 0: ");
    starts(
        json!({"kv": [{"op": "put", "ns": "n", "key": "k", "value": 1}]}),
        "400 Bad Request kv_bad_request kv_expiry_not_specified",
    );
    starts(json!({"kv": {}}), "bad_body the body is not a transaction");
    starts(
        json!({"timers": [{"op": "cancel", "queue": "q"}]}),
        "400 Bad Request timers_bad_request timers_missing_member",
    );
    starts(json!({"timers": {}}), "bad_body the body is not a transaction");
    starts(json!({"positions": [{"queue": "q"}]}), "bad_request position 0: ");
    starts(json!({"positions": [{"queue": "q", "consumerGroup": "g", "offset": -1}]}), "bad_body ");
}

#[test]
fn a_bundle_that_cannot_be_a_command_is_rolled_back() {
    let long = "n".repeat(411);
    let of = |operation: Value| json!({"operations": [{"type": "push", "queue": "q"}, operation]});
    let ack =
        |partition: &str| json!({"type": "ack", "transactionId": "t", "partitionId": partition});
    assert_eq!(early(&of(ack("17"))), ("", None));
    assert_eq!(early(&of(ack("00000000-0000-7000-8000-000000000000"))), ("bad_request", Some(1)));
    assert_eq!(early(&of(json!({"type": "ack", "transactionId": "t"}))), ("bad_request", Some(1)));
    let push = json!({"type": "push", "queue": long, "partition": "p"});
    assert_eq!(early(&of(push)), ("name_too_long", Some(1)));
    let body = json!({"positions": [{"queue": "q", "consumerGroup": long}]});
    assert_eq!(early(&body), ("name_too_long", Some(0)));
}
