//! Tests of reading a push and of writing its answer.

use super::*;
use queen_core::frame::Frames;
use queen_core::{PartitionId, Stamp};

fn refusal(body: &[u8]) -> String {
    let items = match read(body) {
        Ok(items) => items,
        Err(Refusal::Plain(e)) => return format!("{} {}", e.code.status(), e.text),
        Err(_) => return String::new(),
    };
    match group(&items, body.len(), None) {
        Err(Refusal::Plain(e)) => format!("{} {}", e.code.status(), e.text),
        _ => String::new(),
    }
}

#[test]
fn items_are_grouped_by_partition_in_order_of_first_appearance() {
    let body = br#"{"x":1,"items":[
        {"queue":"q","payload":{"a": 1.00}},
        {"queue":"q","partition":"p","payload":null,"transactionId":"t","traceId":7},
        {"queue":"q","partition":"Default","payload":"x"}]}"#;
    let items = read(body).unwrap();
    let grouped = group(&items, body.len(), None).unwrap();
    let names: Vec<_> = grouped.groups.iter().map(|g| (g.partition, g.count)).collect();
    assert_eq!(names, [("Default", 2), ("p", 1)]);
    let groups = grouped.commands();
    assert!(!groups[0].has_transaction_ids && groups[1].has_transaction_ids);
    assert_eq!(groups[0].text_bytes, 36 + 11 + 36 + 3);
    let payloads: Vec<_> = Frames::new(groups[0].frames).map(|f| f.unwrap().payload).collect();
    assert_eq!(payloads, [&br#"{"a": 1.00}"#[..], b"\"x\""]);
}

#[test]
fn many_partitions_in_one_request_keep_their_items() {
    let items: Vec<_> = (0..300)
        .map(|i| format!("{{\"queue\":\"q\",\"partition\":\"p{}\",\"payload\":{i}}}", i % 100))
        .collect();
    let body = format!("{{\"items\":[{}]}}", items.join(","));
    let items = read(body.as_bytes()).unwrap();
    let grouped = group(&items, body.len(), None).unwrap();
    assert_eq!(grouped.groups.len(), 100);
    assert!(grouped.groups.iter().all(|g| g.count == 3));
    for (i, slot) in grouped.slots.iter().enumerate() {
        assert_eq!((slot.group as usize, slot.number as usize), (i % 100, i / 100));
    }
}

#[test]
fn the_answer_spells_every_key_as_the_clients_read_it() {
    let body = br#"{"items":[{"queue":"q\"","payload":1,"transactionId":"a\nb"},
        {"queue":"q\"","payload":2}]}"#;
    let items = read(body).unwrap();
    let grouped = group(&items, body.len(), None).unwrap();
    let result = PushedGroup {
        partition: PartitionId(1),
        stamp: Stamp(5_000),
        first_offset: Offset(9),
        items: vec![
            PushedItem::Duplicate { offset: Offset(3), stamp: Stamp(1_000) },
            PushedItem::Queued(Offset(9)),
        ],
    };
    let text = write(&items, &grouped, &[result]).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let old = MessageId::mint(Stamp(1_000), PartitionId(1), Offset(3)).to_string();
    let new = MessageId::mint(Stamp(5_000), PartitionId(1), Offset(9)).to_string();
    assert_eq!(
        value,
        serde_json::json!([
            {"index":0,"message_id":old,"transaction_id":"a\nb","queueName":"q\"","status":"duplicate","offset":3},
            {"index":1,"message_id":new,"transaction_id":new,"queueName":"q\"","status":"queued","offset":9},
        ])
    );
}

#[test]
fn a_bad_body_is_refused_with_the_place() {
    assert_eq!(
        refusal(b"{\"items\":[{\"queue\":\"q\",\"payload\":\"\xff\"}]}"),
        "400 the body is not UTF-8 at byte 34"
    );
    assert!(refusal(b"{\"items\":[{").starts_with("400 the body is not a push: EOF"));
    assert!(refusal(b"").starts_with("400 the body is not a push: EOF"));
    assert!(refusal(b"{}").starts_with("400 the body has no items"));
    assert!(refusal(b"{\"items\":3}").starts_with("400 the body is not a push: invalid type"));
    assert_eq!(refusal(br#"{"items":[{"payload":1}]}"#), "400 item 0 has no queue");
    let no_payload = br#"{"items":[{"queue":"q","payload":1},{"queue":"q"}]}"#;
    assert_eq!(refusal(no_payload), "400 item 1 has no payload");
    assert!(refusal(br#"{"items":[{"queue":"q","data":1}]}"#).contains("data instead of payload"));
    assert!(refusal(br#"{"items":[{"queue":7,"payload":1}]}"#).contains("invalid type"));
    let long = format!("{{\"items\":[{{\"queue\":\"{}\",\"payload\":1}}]}}", "q".repeat(411));
    assert!(refusal(long.as_bytes()).starts_with("413 item 0"));
    let id = "t".repeat(65_536);
    let long =
        format!("{{\"items\":[{{\"queue\":\"q\",\"payload\":1,\"transactionId\":\"{id}\"}}]}}");
    assert!(refusal(long.as_bytes()).starts_with("400 item 0: transactionId has 65536 bytes"));
}

#[test]
fn a_payload_nested_a_hundred_thousand_deep_is_kept_or_refused_but_never_overflows() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let body = format!("{{\"items\":[{{\"queue\":\"q\",\"payload\":{deep}}}]}}");
    let items = read(body.as_bytes()).unwrap();
    assert_eq!(items[0].payload.unwrap().get(), deep);
}
