//! Three real nodes: any of them answers, and the death of one loses nothing that was answered.

use crate::cluster_load::{Load, Made, check, read};
use queen_sim::process::{Cluster, Item};
use queen_store::{Store, StoreOptions};
use serde_json::json;
use std::time::{Duration, Instant};

const NONE: [(&str, &str); 0] = [];
const LONG: Duration = Duration::from_secs(60);

fn item(partition: &str, n: u64) -> Item {
    Item {
        queue: "orders".to_owned(),
        partition: partition.to_owned(),
        transaction_id: Some(format!("{partition}-{n}")),
        payload: n.to_string(),
    }
}

fn told(made: &[Made]) -> (usize, Duration, Vec<(&String, &u64)>) {
    let answered = made.iter().map(|one| one.answered.len()).sum();
    let slowest = made.iter().map(|one| one.slowest).max().unwrap_or_default();
    (answered, slowest, made.iter().flat_map(|one| &one.refusals).collect())
}

#[tokio::test]
async fn what_one_node_takes_every_other_hands_out() {
    let cluster = Cluster::of_three(NONE).await.unwrap();
    let (leader, _) = cluster.leader(0).await.unwrap();
    for (n, id) in (0..).zip(cluster.ids()) {
        let partition = format!("by-{id}");
        let pushed = cluster.client(id).unwrap().push(&[item(&partition, n)]).await.unwrap();
        assert_eq!(pushed[0].offset, Some(0), "through node {id}, node {leader} leads");
        // At once, on every other node: what was answered is there.
        for other in cluster.ids() {
            let client = cluster.client(other).unwrap();
            let group = format!("g-{other}");
            let found = read(&client, "orders", &partition, &group).await;
            assert_eq!(
                found,
                [(format!("{partition}-{n}"), 0)],
                "pushed to {id}, read from {other}"
            );
            let path = format!("/api/v1/kv/shop/{id}-{other}");
            let put = json!({"operations": [
                {"op": "put", "ns": "shop", "key": format!("{id}-{other}"), "value": n,
                 "forever": true}]});
            let writer = cluster.client(id).unwrap();
            let answer = writer.post("/api/v1/kv", put.to_string()).await.unwrap();
            assert_eq!(answer.status, 200, "{put}: {}", answer.text);
            let got = client.get(&path).await.unwrap();
            assert_eq!(got.status, 200, "{path} from {other}: {}", got.text);
        }
    }
}

#[tokio::test]
async fn a_pop_that_waits_on_one_node_is_woken_by_a_push_to_another() {
    let cluster = Cluster::of_three(NONE).await.unwrap();
    let (leader, _) = cluster.leader(0).await.unwrap();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let (waiting, pushing) =
        (cluster.client(others[0]).unwrap(), cluster.client(others[1]).unwrap());
    // Registers the group.
    let pop = "/api/v1/pop/queue/orders?consumerGroup=g&subscriptionMode=all&batch=5";
    assert_eq!(waiting.get(pop).await.unwrap().status, 204);
    let sleeper = tokio::spawn({
        let (waiting, pop) = (waiting.clone(), format!("{pop}&wait=true&timeout=20000"));
        async move { (waiting.get(&pop).await.unwrap(), Instant::now()) }
    });
    while waiting.get("/status").await.unwrap().json()["parkedLongPolls"] != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let begin = Instant::now();
    pushing.push(&[item("p", 7)]).await.unwrap();
    let (answer, at) = sleeper.await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json()["messages"][0]["transactionId"], "p-7");
    println!("woken {:?} after the push began", at.duration_since(begin));
    // Acked through the third node.
    let message = &answer.json()["messages"][0];
    let ack = json!({"transactionId": message["transactionId"], "partitionId": message["partitionId"],
        "leaseId": message["leaseId"], "status": "completed", "consumerGroup": "g"});
    let acked = cluster.client(leader).unwrap().post("/api/v1/ack", ack.to_string()).await.unwrap();
    assert_eq!(acked.status, 200, "{}", acked.text);
    assert_eq!(acked.json()[0]["success"], true, "{}", acked.text);
}

#[tokio::test]
async fn a_leader_killed_under_load_loses_nothing_that_was_answered() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let load = Load::start(&cluster, "orders", 6);
    let mut times = Vec::new();
    for _ in 0..4 {
        load.more(500, LONG).await;
        let (leader, term) = cluster.leader(0).await.unwrap();
        cluster.kill(leader).unwrap();
        let begin = Instant::now();
        load.more(1, LONG).await;
        cluster.leader(term).await.unwrap();
        // The first answer through the new leader: all nodes that live answer again.
        load.more(200, LONG).await;
        times.push(begin.elapsed());
        cluster.spawn(leader).unwrap();
        cluster.ready(leader).await.unwrap();
    }
    let made = load.stop().await;
    println!("200 records after a kill: {times:?}; {:?}", told(&made));
    cluster.level().await.unwrap();
    for id in cluster.ids() {
        check(&cluster.client(id).unwrap(), "orders", &made, &format!("check-{id}")).await;
    }
    alike(cluster).await;
}

/// Stops and starts one node after the other while producers push into the queue `orders`; gives what
/// they were answered.
pub async fn restart_each(cluster: &mut Cluster) -> Vec<Made> {
    let load = Load::start(cluster, "orders", 6);
    for id in cluster.ids() {
        load.more(300, LONG).await;
        cluster.stop(id).await.unwrap();
        load.more(300, LONG).await;
        cluster.spawn(id).unwrap();
        cluster.ready(id).await.unwrap();
    }
    load.more(300, LONG).await;
    load.stop().await
}

#[tokio::test]
async fn a_rolling_restart_under_load_loses_nothing_and_is_hardly_noticed() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let made = restart_each(&mut cluster).await;
    println!("rolling restart: {:?}", told(&made));
    cluster.level().await.unwrap();
    check(&cluster.client(2).unwrap(), "orders", &made, "check").await;
    alike(cluster).await;
}

#[tokio::test]
async fn a_minority_says_that_it_cannot_commit() {
    let mut cluster = Cluster::of_three([("QUEEN_STMT_TIMEOUT_MS", "7000")]).await.unwrap();
    let (leader, _) = cluster.leader(0).await.unwrap();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    for id in &others {
        cluster.kill(*id).unwrap();
    }
    let client = cluster.client(leader).unwrap();
    let begin = Instant::now();
    while client.get("/health").await.unwrap().status == 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "still healthy");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("unhealthy {:?} after the majority died", begin.elapsed());
    let health = client.get("/health").await.unwrap().json();
    assert_eq!(health["status"], "settling", "{health}");
    assert!(health["reason"].as_str().is_some(), "{health}");
    let refused = client
        .post(
            "/api/v1/push",
            json!({"items": [
        {"queue": "orders", "partition": "p", "payload": 1}]})
            .to_string(),
        )
        .await
        .unwrap();
    assert_eq!(refused.status, 503, "{}", refused.text);
    let code = refused.json()["code"].clone();
    // Not known yet that nobody leads: it was logged here, and may be committed later.
    assert!(code == "no_leader" || code == "timeout", "{}", refused.text);
    let read = client.get("/api/v1/resources/queues").await.unwrap();
    assert_eq!(read.status, 503, "a read that may be old: {}", read.text);
    assert_eq!(client.get("/status").await.unwrap().status, 200);
    for id in &others {
        cluster.spawn(*id).unwrap();
    }
    for id in cluster.ids() {
        cluster.ready(id).await.unwrap();
    }
    client.push(&[item("p", 2)]).await.unwrap();
}

/// Stops all nodes and compares what lies in their tables and queues.
pub async fn alike(mut cluster: Cluster) {
    cluster.level().await.unwrap();
    for id in cluster.ids() {
        cluster.stop(id).await.unwrap();
    }
    let digest = |id: u64| {
        let dir = cluster.dir(id).join("store");
        let (store, _) = Store::open(&dir, StoreOptions::default()).unwrap();
        store.digest().unwrap().parts
    };
    let first = digest(1);
    for id in [2, 3] {
        let other = digest(id);
        let differ = first.iter().filter(|(part, digest)| other.get(part) != Some(digest));
        let differ: Vec<String> = differ.map(|(part, _)| part.to_string()).collect();
        assert!(first == other, "node 1 and node {id} differ: {differ:?}");
    }
    println!("{} parts are alike on all nodes", first.len());
}
