//! What a cluster was told is shown by every node, and outlives the node that was told.

use crate::cluster::alike;
use queen_sim::process::{Client, Cluster, Item};
use serde_json::{Value, json};

const NONE: [(&str, &str); 0] = [];

fn item(partition: &str, n: u64) -> Item {
    Item {
        queue: "shop.orders".to_owned(),
        partition: partition.to_owned(),
        transaction_id: Some(format!("{partition}-{n}")),
        payload: n.to_string(),
    }
}

async fn get(client: &Client, path: &str) -> Value {
    let answer = client.get(path).await.unwrap();
    assert_eq!(answer.status, 200, "{path}: {}", answer.text);
    answer.json()
}

/// What a node shows of it all.
async fn shown(client: &Client, message: &Value) -> Vec<Value> {
    let (partition, id) = (&message["partitionId"], &message["transactionId"]);
    let of = format!("{}/{}", partition.as_str().unwrap(), id.as_str().unwrap());
    vec![
        get(client, "/api/v1/messages?queue=shop.orders").await["messages"].clone(),
        get(client, &format!("/api/v1/messages/{of}")).await,
        get(client, &format!("/api/v1/traces/{of}")).await,
        get(client, "/api/v1/traces/by-name/import").await,
        get(client, "/api/v1/traces/names").await,
        get(client, "/api/v1/resources/queues/shop.orders/depth?group=newest").await,
    ]
}

#[tokio::test]
async fn what_one_node_was_told_every_node_shows_also_after_its_death() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let (leader, term) = cluster.leader(0).await.unwrap();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let (told, other) = (cluster.client(leader).unwrap(), cluster.client(others[0]).unwrap());
    let items: Vec<Item> = (0..3).map(|n| item("p", n)).collect();
    told.push(&items).await.unwrap();

    // Taken by label through a follower: the newest only, which settles the others with it.
    let path =
        "/api/v1/pop?namespace=shop&consumerGroup=newest&conflation=true&subscriptionMode=all";
    let popped = get(&other, path).await;
    assert_eq!((&popped["conflation"], &popped["messages"][0]["data"]), (&json!(true), &json!(2)));
    let message = popped["messages"][0].clone();
    for step in 1..=3 {
        let event = json!({"transactionId": message["transactionId"], "data": {"step": step},
            "partitionId": message["partitionId"], "traceNames": ["import"]});
        let client = cluster.client(step).unwrap();
        let recorded = client.post("/api/v1/traces", event.to_string()).await.unwrap();
        assert_eq!(recorded.status, 201, "{}", recorded.text);
    }
    let ack = json!({"transactionId": message["transactionId"], "status": "completed",
        "partitionId": message["partitionId"], "leaseId": message["leaseId"],
        "consumerGroup": "newest"});
    let acked = told.post("/api/v1/ack", ack.to_string()).await.unwrap();
    assert_eq!(acked.json()[0]["conflated"], 2, "{}", acked.text);

    let before = shown(&told, &message).await;
    assert_eq!(before[0].as_array().unwrap().len(), 3);
    assert_eq!((&before[1]["status"], &before[3]["total"]), (&json!("completed"), &json!(3)));
    assert_eq!((&before[5]["pending"], &before[5]["conflation"]), (&json!(0), &json!(true)));
    for id in &others {
        let there = shown(&cluster.client(*id).unwrap(), &message).await;
        assert_eq!(there, before, "node {id}");
    }
    cluster.kill(leader).unwrap();
    cluster.leader(term).await.unwrap();
    for id in &others {
        cluster.ready(*id).await.unwrap();
        let there = shown(&cluster.client(*id).unwrap(), &message).await;
        assert_eq!(there, before, "node {id}, without node {leader}");
    }
    cluster.spawn(leader).unwrap();
    cluster.ready(leader).await.unwrap();
    assert_eq!(shown(&cluster.client(leader).unwrap(), &message).await, before);
    alike(cluster).await;
}
