//! Popping by label over HTTP.

use crate::node::{Node, data, messages};
use serde_json::{Value, json};

async fn discover(node: &Node, query: &str) -> Value {
    let reply = node.get(&format!("/api/v1/pop?{query}")).await;
    match reply.status {
        200 => reply.json(),
        204 => Value::Null,
        other => panic!("{other}: {}", reply.text()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queues_are_found_by_namespace_and_task() {
    let node = Node::start().await;
    assert_eq!(discover(&node, "namespace=ns").await, Value::Null);
    for (queue, payload) in [("ns.a", 1), ("other.a", 2), ("ns.b", 3)] {
        node.push(json!([{"queue": queue, "payload": payload}])).await;
    }
    let all = discover(&node, "namespace=ns&partitions=9").await;
    assert_eq!((data(&all), &all["queue"]), (vec![json!(1), json!(3)], &json!("")));
    let lease = &all["leaseId"];
    assert!(messages(&all).iter().all(|message| message["leaseId"] == *lease), "{all}");
    assert_eq!((&all["partition"], &all["partitionsClaimed"]), (&json!("Default"), &json!(2)));
    assert_eq!(discover(&node, "namespace=ns&partitions=9").await, Value::Null, "it is leased");
    let settled = node.settle(&all, "completed").await;
    assert!(settled[0]["success"] == true && settled[1]["success"] == true, "{settled}");
    assert_eq!(data(&discover(&node, "task=a&partitions=9").await), [json!(2)]);
    node.push(json!([{"queue": "ns.a", "payload": 4}, {"queue": "ns.b", "payload": 5}])).await;
    let query = "namespace=ns&task=b&partitions=9&consumerGroup=g&subscriptionMode=all";
    assert_eq!(data(&discover(&node, query).await), [json!(3), json!(5)]);
    let one = discover(&node, "namespace=ns").await;
    assert_eq!(data(&one), [json!(4)], "one partition, of the queue that waits longest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_bounds_the_sum_over_queues_and_an_unread_answer_gives_all_of_it_back() {
    let node = Node::start().await;
    for queue in ["ns.a", "ns.b", "ns.c"] {
        node.push_numbers(queue, "p", 4).await;
    }
    let some = discover(&node, "namespace=ns&batch=6&partitions=9&autoAck=true").await;
    assert_eq!((messages(&some).len(), &some["leaseId"]), (6, &json!("")));
    let rest = discover(&node, "namespace=ns&batch=100&partitions=9").await;
    assert_eq!(messages(&rest).len(), 6);
    node.settle(&rest, "retry").await;
    assert_eq!(messages(&discover(&node, "namespace=ns&partitions=9").await).len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_group_gets_all_that_came_after_its_first_pop_of_whichever_queue() {
    let node = Node::start().await;
    node.push(json!([{"queue": "ns.old", "payload": "before"}])).await;
    let query = "namespace=ns&consumerGroup=g&partitions=9";
    assert_eq!(discover(&node, query).await, Value::Null);
    node.push(json!([{"queue": "ns.old", "payload": "a"}, {"queue": "ns.young", "payload": "b"}]))
        .await;
    let mut found = data(&discover(&node, query).await);
    found.sort_by_key(|payload| payload.to_string());
    assert_eq!(found, [json!("a"), json!("b")]);
    let idle = node.broker.counters().proposed.get();
    assert_eq!(discover(&node, query).await, Value::Null);
    assert_eq!(node.broker.counters().proposed.get(), idle, "an empty poll writes nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_discovery_can_conflate() {
    let node = Node::start().await;
    for queue in ["ns.a", "ns.b"] {
        node.push_numbers(queue, "p", 3).await;
    }
    let query = "namespace=ns&consumerGroup=g&conflation=true&partitions=9&subscriptionMode=all";
    let newest = discover(&node, query).await;
    assert_eq!((data(&newest), &newest["conflation"]), (vec![json!(2), json!(2)], &json!(true)));
    node.settle(&newest, "completed").await;
    let empty = discover(&node, query).await;
    assert_eq!((&empty["conflation"], &empty["messages"]), (&json!(true), &json!([])));
}
