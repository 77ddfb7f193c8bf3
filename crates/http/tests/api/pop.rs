//! Pop over HTTP: parameters, leases, long polls, groups.

use crate::node::{Node, ack, data, messages, receive, send};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_to_deliver_is_204_without_a_body() {
    let node = Node::start().await;
    for path in ["none", "none/partition/p", "none?consumerGroup=g", "none?wait=true&timeout=30"] {
        let reply = node.get(&format!("/api/v1/pop/queue/{path}")).await;
        assert_eq!(reply.status, 204);
        assert!(reply.body.is_empty() && !reply.head.contains("content-type"), "{}", reply.head);
        assert!(!reply.head.contains("content-length"), "{}", reply.head);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_every_key_that_clients_read() {
    let node = Node::start().await;
    let pushed = node
        .push(
            json!([{"queue": "q", "partition": "p", "payload": {"n": 1}, "transactionId": "t-1"}]),
        )
        .await;
    let popped = node.pop("q?consumerGroup=g&subscriptionMode=all").await;
    let message = &messages(&popped)[0];
    assert_eq!((&popped["success"], &popped["queue"]), (&json!(true), &json!("q")));
    assert_eq!((&popped["partition"], &popped["partitionsClaimed"]), (&json!("p"), &json!(1)));
    assert_eq!(popped["consumerGroup"], "g");
    for key in ["partitionId", "partition", "leaseId", "consumerGroup"] {
        assert!(popped[key].is_string() && popped[key] == message[key], "{key}: {popped}");
    }
    assert_eq!(
        (&message["id"], &message["transactionId"]),
        (&pushed[0]["message_id"], &json!("t-1"))
    );
    assert_eq!((&message["data"], &message["offset"]), (&json!({"n": 1}), &json!(0)));
    assert_eq!(message["deliveryAttempt"], 1);
    assert_eq!((&message["traceId"], &message["producerSub"]), (&Value::Null, &Value::Null));
    let created = message["createdAt"].as_str().unwrap();
    assert!(created.len() == 27 && created.ends_with('Z'), "{created}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_exact_and_a_leased_partition_is_nobody_elses() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 10).await;
    let first = node.pop("q?batch=4").await;
    assert_eq!(data(&first), [json!(0), json!(1), json!(2), json!(3)]);
    assert_eq!(first["consumerGroup"], "__QUEUE_MODE__");
    assert_eq!(node.pop("q?batch=4").await, Value::Null);
    let other = node.pop("q?batch=400&consumerGroup=g&subscriptionMode=all").await;
    assert_eq!(messages(&other).len(), 10);
    node.settle(&first, "completed").await;
    assert_eq!(data(&node.pop("q?batch=3").await), [json!(4), json!(5), json!(6)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_partitions_share_one_lease_and_one_budget() {
    let node = Node::start().await;
    for partition in ["a", "b", "c"] {
        node.push_numbers("q", partition, 5).await;
    }
    assert_eq!(node.pop("q?batch=100").await["partitionsClaimed"], 1);
    let wide = node.pop("q?batch=7&partitions=64").await;
    assert_eq!((messages(&wide).len(), &wide["partitionsClaimed"]), (7, &json!(2)));
    assert!(messages(&wide).iter().all(|m| m["leaseId"] == wide["leaseId"]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_at_delivery_needs_no_ack_and_has_no_lease() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 3).await;
    let first = node.pop("q?batch=2&autoAck=true").await;
    assert_eq!((&first["leaseId"], data(&first)), (&json!(""), vec![json!(0), json!(1)]));
    let second = node.pop("q?batch=2&commitOnDelivery=1").await;
    assert_eq!(data(&second), [json!(2)]);
    assert_eq!(node.pop("q?autoAck=true").await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_starts_where_its_first_pop_said() {
    let node = Node::start().await;
    node.push_numbers("q", "old", 2).await;
    assert_eq!(node.pop("q?consumerGroup=new").await, Value::Null);
    assert_eq!(node.pop("late?consumerGroup=early-bird").await, Value::Null);
    node.push(json!([{"queue": "q", "partition": "young", "payload": "x"}])).await;
    node.push(json!([{"queue": "late", "payload": "y"}])).await;
    assert_eq!(data(&node.pop("q?consumerGroup=new&partitions=9").await), [json!("x")]);
    assert_eq!(data(&node.pop("late?consumerGroup=early-bird").await), [json!("y")]);
    let all = node.pop("q?consumerGroup=all&subscriptionMode=from_beginning&partitions=9").await;
    assert_eq!(messages(&all).len(), 3);
    let created = messages(&all).iter().find(|m| m["data"] == "x").unwrap()["createdAt"].clone();
    let path =
        format!("q?consumerGroup=from&partitions=9&subscriptionFrom={}", created.as_str().unwrap());
    assert_eq!(data(&node.pop(&path).await), [json!("x")]);
    assert_eq!(messages(&node.pop("q?partitions=9").await).len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_pop_is_woken_by_a_push_even_to_a_queue_that_did_not_exist() {
    let node = Node::start().await;
    for path in ["fresh", "fresh2?consumerGroup=g&", "fresh3/partition/Default"] {
        let (queue, rest) = path.split_at(path.find(['?', '/']).unwrap_or(path.len()));
        let join = if rest.ends_with('&') { "" } else { "?" };
        let mut waiting = node.connect().await;
        let path = format!("/api/v1/pop/queue/{queue}{rest}{join}wait=true&timeout=20000");
        send(&mut waiting, "GET", &path, b"").await;
        until(|| node.broker.standing().parked == 1).await;
        let pushed = Instant::now();
        node.push(json!([{"queue": queue, "payload": 7}])).await;
        let reply = receive(&mut waiting).await;
        assert_eq!((reply.status, data(&reply.json())), (200, vec![json!(7)]));
        assert!(pushed.elapsed() < Duration::from_secs(10), "woken by its timeout");
        assert_eq!(node.broker.standing().parked, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_pop_is_woken_by_a_release_and_by_the_end_of_a_lease() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let held = node.pop("q").await;
    let mut waiting = node.connect().await;
    send(&mut waiting, "GET", "/api/v1/pop/queue/q?wait=true&leaseSeconds=1", b"").await;
    until(|| node.broker.standing().parked == 1).await;
    node.settle(&held, "retry").await;
    let reply = receive(&mut waiting).await.json();
    assert_eq!(messages(&reply)[0]["deliveryAttempt"], 2);
    let asked = Instant::now();
    let again = node.pop("q?wait=true&timeout=15000").await;
    assert_eq!(messages(&again)[0]["deliveryAttempt"], 3);
    assert!(asked.elapsed() < Duration::from_secs(10), "woken by its timeout");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_message_wakes_one_of_many_waiters_and_the_others_end_in_204() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let held = node.pop("q").await;
    node.settle(&held, "completed").await;
    let mut waiting = Vec::new();
    for _ in 0..8 {
        let mut stream = node.connect().await;
        send(&mut stream, "GET", "/api/v1/pop/queue/q?wait=true&timeout=1500", b"").await;
        waiting.push(stream);
    }
    until(|| node.broker.standing().parked == 8).await;
    let woken = node.broker.counters().woken.get();
    node.push_numbers("q", "p", 1).await;
    let mut statuses = Vec::new();
    for stream in &mut waiting {
        statuses.push(receive(stream).await.status);
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 204, 204, 204, 204, 204, 204, 204]);
    assert!(node.broker.counters().woken.get() - woken <= 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_gone_gives_its_batch_back() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let held = node.pop("q?consumerGroup=g&subscriptionMode=all").await;
    let mut gone = node.connect().await;
    let path = "/api/v1/pop/queue/q?consumerGroup=g&wait=true&timeout=20000";
    send(&mut gone, "GET", path, b"").await;
    until(|| node.broker.standing().parked == 1).await;
    drop(gone);
    until(|| node.broker.standing().parked == 0).await;
    node.settle(&held, "retry").await;
    let popped = node.pop("q?consumerGroup=g").await;
    assert_eq!(data(&popped), [json!(0)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_future_is_dropped_goes_back_without_counting_an_attempt() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let pop = queen_core::command::Pop {
        tenant: queen_core::TenantId::DEFAULT,
        queue: "q",
        partition: None,
        group: None,
        batch: 10,
        partitions: 1,
        lease_seconds: None,
        auto_ack: false,
        start: queen_core::command::GroupStart::New,
    };
    drop(node.broker.pop(&pop, None).await.unwrap().unwrap());
    until(|| node.broker.counters().returned_leases.get() == 1).await;
    let popped = node.pop("q?wait=true&timeout=5000").await;
    assert_eq!(messages(&popped)[0]["deliveryAttempt"], 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_answers_waiting_pops_with_nothing() {
    let node = Node::start().await;
    let mut waiting = node.connect().await;
    send(&mut waiting, "GET", "/api/v1/pop/queue/q?wait=true&timeout=60000", b"").await;
    until(|| node.broker.standing().parked == 1).await;
    let node = node.restart().await;
    assert_eq!(receive(&mut waiting).await.status, 204);
    assert_eq!(node.get("/health").await.json()["status"], "healthy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parameters_are_refused_in_the_shape_of_a_pop() {
    let node = Node::start().await;
    for query in [
        "q?batch=x",
        "q?batch=0",
        "q?conflation=true",
        "q?conflation=true&consumerGroup=g&autoAck=true",
        "q?subscriptionFrom=soon",
    ] {
        let reply = node.get(&format!("/api/v1/pop/queue/{query}")).await;
        assert_eq!(reply.status, 400, "{query}");
        let body = reply.json();
        assert_eq!((&body["success"], &body["messages"]), (&json!(false), &json!([])));
        assert!(body["error"].is_string());
    }
    let reply = node.get("/api/v1/pop").await;
    assert_eq!(
        (reply.status, &reply.json()["error"]),
        (400, &json!("namespace or task is required"))
    );
    let popped = node.pop("q?autopilot=true&frames=true&unknown=1&leaseSeconds=-1").await;
    assert_eq!(popped, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflating_group_gets_the_newest_and_every_answer_of_it_says_so() {
    let node = Node::start().await;
    let path = "q?conflation=true&consumerGroup=g&subscriptionMode=all&partitions=9";
    let empty = node.pop(path).await;
    assert_eq!((&empty["conflation"], &empty["messages"]), (&json!(true), &json!([])));
    assert_eq!((&empty["queue"], &empty["leaseId"]), (&json!(""), &json!("")));
    node.push_numbers("q", "p", 4).await;
    node.push(json!([{"queue": "q", "partition": "r", "payload": "one"}])).await;
    let depth = node.get("/api/v1/resources/queues/q/depth?group=g").await.json();
    assert_eq!((&depth["pending"], &depth["effectivePending"]), (&json!(5), &json!(2)));
    assert_eq!((&depth["conflation"], &depth["effectiveReady"]), (&json!(true), &json!(2)));
    let newest = node.pop(path).await;
    assert_eq!(
        (data(&newest), &newest["conflation"]),
        (vec![json!(3), json!("one")], &json!(true))
    );
    let settled = node.settle(&newest, "completed").await;
    assert_eq!((&settled[0]["conflated"], &settled[1].get("conflated")), (&json!(3), &None));
    // It is the group's policy: whoever pops for it, and however.
    node.push_numbers("q", "p", 2).await;
    assert_eq!(data(&node.pop("q?consumerGroup=g").await), [json!(1)]);
    let groups = node.get("/api/v1/consumer-groups").await.json();
    assert_eq!(groups[0]["conflation"], true, "{groups}");

    node.pop("q?consumerGroup=plain&subscriptionMode=all&batch=1").await;
    let other = node.pop("q?consumerGroup=plain&conflation=true").await;
    assert_eq!((&other["conflationConflict"], other.get("conflation")), (&json!(true), None));
    assert_eq!(messages(&other).len(), 6, "all of the other partition: {other}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_pop_of_a_conflating_group_is_woken_and_ends_in_an_answer() {
    let node = Node::start().await;
    let path = "q?conflation=true&consumerGroup=g&wait=true&timeout=30";
    assert_eq!(node.pop(path).await["conflation"], true);
    let mut waiting = node.connect().await;
    let path = "/api/v1/pop/queue/q?conflation=true&consumerGroup=g&wait=true&timeout=20000";
    send(&mut waiting, "GET", path, b"").await;
    until(|| node.broker.standing().parked == 1).await;
    node.push_numbers("q", "p", 3).await;
    assert_eq!(data(&receive(&mut waiting).await.json()), [json!(2)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autopilot_fills_what_the_request_leaves_out_and_says_what_it_chose() {
    let node = Node::start().await;
    for partition in ["a", "b", "c"] {
        node.push_numbers("q", partition, 50).await;
    }
    let plain = node.pop("q?consumerGroup=plain&subscriptionMode=all").await;
    assert_eq!((plain.get("autopilot"), &plain["partitionsClaimed"]), (None, &json!(1)));
    let first = node.pop("q?consumerGroup=g&subscriptionMode=all&autopilot=true&batch=7").await;
    assert_eq!(first["autopilot"], json!({"partitions": 1, "batch": 7}), "nobody knows it yet");
    node.settle(&first, "completed").await;
    let second = node.pop("q?consumerGroup=g&autopilot=true").await;
    assert_eq!(second["autopilot"], json!({"partitions": 3, "batch": 100}));
    assert_eq!((messages(&second).len(), &second["partitionsClaimed"]), (100, &json!(2)));
    node.settle(&second, "completed").await;
    node.push_numbers("q", "c", 5).await;
    let fixed = node.pop("q/partition/c?consumerGroup=g&autopilot=true&partitions=5").await;
    assert_eq!(fixed["autopilot"], json!({"partitions": 1, "batch": 100}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_poll_of_a_known_group_writes_nothing() {
    let node = Node::start().await;
    node.push_numbers("q", "p", 1).await;
    let popped = node.pop("q").await;
    node.post("/api/v1/ack", ack(&messages(&popped)[0], "completed")).await;
    assert_eq!(node.pop("q").await, Value::Null);
    let proposed = node.broker.counters().proposed.get();
    for _ in 0..20 {
        assert_eq!(node.pop("q").await, Value::Null);
    }
    assert_eq!(node.pop("q?wait=true&timeout=100").await, Value::Null);
    assert_eq!(node.broker.counters().proposed.get(), proposed);
}

/// Waits for a condition that an event on another task brings about.
async fn until(condition: impl Fn() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), wait).await.unwrap();
}
