//! One node becomes three while clients work, and no request is answered with an error.
//!
//! Owns: the setups of a cluster that grows, clients that ask once and take no error. Leaves to
//! others: clients that go on when a node dies (`cluster_load`).

use crate::cluster::{alike, restart_each};
use crate::cluster_load::check;
use queen_sim::process::{Client, Cluster, Item, binary};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

const NONE: [(&str, &str); 0] = [];
const LONG: Duration = Duration::from_secs(60);

/// A node that is the whole cluster, and others that wait to be added; none runs yet.
pub fn one_of(size: usize) -> Cluster {
    let mut cluster = Cluster::new(size, NONE).unwrap();
    for id in cluster.ids() {
        let variables = &mut cluster.setup(id).unwrap().variables;
        if id == 1 {
            let peers = variables["QUEEN_RAFT_PEERS"].clone();
            let own = peers.split(',').next().unwrap();
            variables.insert("QUEEN_RAFT_PEERS".to_owned(), own.to_owned());
        } else {
            variables.remove("QUEEN_RAFT_PEERS");
            variables.insert("QUEEN_RAFT_JOIN".to_owned(), "true".to_owned());
        }
    }
    cluster
}

/// What the route that adds a learner is told of a node.
pub fn learner(cluster: &mut Cluster, id: u64) -> Value {
    let setup = cluster.setup(id).unwrap();
    let http = format!("{}:{}", setup.host, setup.port);
    json!({"id": id, "raft": setup.variables["QUEEN_RAFT_LISTEN"], "http": http})
}

/// Starts a node and has it added without a vote, through `through`.
pub async fn add(cluster: &mut Cluster, id: u64, through: &Client) {
    cluster.spawn(id).unwrap();
    let body = learner(cluster, id);
    let begin = Instant::now();
    loop {
        let path = "/api/v1/system/raft/learners";
        let answer = through.post(path, body.to_string()).await.unwrap();
        if answer.status == 200 {
            break;
        }
        // Its listener may not be there yet; anything else is no reason to wait.
        assert_eq!(answer.json()["code"], "bad_request", "{}", answer.text);
        assert!(begin.elapsed() < LONG, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.ready(id).await.unwrap();
}

/// A producer and a consumer of one partition through one node, who ask once and take no error.
struct Pair {
    produces: Arc<AtomicBool>,
    consumes: Arc<AtomicBool>,
    pushed: Arc<AtomicU64>,
    producing: JoinHandle<u64>,
    consuming: JoinHandle<Vec<u64>>,
}

impl Pair {
    fn start(client: Client, partition: &str) -> Pair {
        let [produces, consumes] = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let pushed = Arc::<AtomicU64>::default();
        let producing = {
            let (client, goes_on, pushed) = (client.clone(), produces.clone(), pushed.clone());
            let partition = partition.to_owned();
            tokio::spawn(async move {
                let mut next = 0;
                while goes_on.load(Ordering::Relaxed) {
                    let item = Item {
                        queue: "grown".to_owned(),
                        partition: partition.clone(),
                        transaction_id: Some(format!("{partition}-{next}")),
                        payload: next.to_string(),
                    };
                    let answer = client.push(&[item]).await.unwrap();
                    assert_eq!(answer[0].status, "queued", "{answer:?}");
                    assert_eq!(answer[0].offset, Some(next));
                    next += 1;
                    pushed.store(next, Ordering::Relaxed);
                }
                next
            })
        };
        let path = format!(
            "/api/v1/pop/queue/grown/partition/{partition}?consumerGroup=g&subscriptionMode=all\
             &autoAck=true&batch=50&wait=true&timeout=500"
        );
        let consuming = tokio::spawn({
            let goes_on = consumes.clone();
            async move {
                let mut seen = Vec::new();
                loop {
                    let last = !goes_on.load(Ordering::Relaxed);
                    let answer = client.get(&path).await.unwrap();
                    match answer.status {
                        200 => {
                            let json = answer.json();
                            let messages = json["messages"].as_array().unwrap();
                            seen.extend(messages.iter().map(|m| m["offset"].as_u64().unwrap()));
                        }
                        204 if last => return seen,
                        204 => {}
                        other => panic!("a pop was answered {other}: {}", answer.text),
                    }
                }
            }
        });
        Pair { produces, consumes, pushed, producing, consuming }
    }

    /// Waits until so many more are answered.
    async fn more(&self, count: u64) {
        let want = self.pushed.load(Ordering::Relaxed) + count;
        let begin = Instant::now();
        while self.pushed.load(Ordering::Relaxed) < want && !self.producing.is_finished() {
            assert!(begin.elapsed() < LONG, "{count} records were not pushed in {LONG:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends; each record that was answered was handed out once, in order.
    async fn end(self) -> u64 {
        self.produces.store(false, Ordering::Relaxed);
        let pushed = self.producing.await.unwrap();
        self.consumes.store(false, Ordering::Relaxed);
        let seen = self.consuming.await.unwrap();
        assert!(seen.iter().copied().eq(0..pushed), "{pushed} pushed, {} popped", seen.len());
        pushed
    }
}

#[tokio::test]
async fn one_node_grows_to_three_under_load_without_an_error_answer() {
    let mut cluster = one_of(3);
    cluster.spawn(1).unwrap();
    cluster.ready(1).await.unwrap();
    let first = cluster.client(1).unwrap();
    let mut pairs = vec![Pair::start(first.clone(), "by-1")];
    pairs[0].more(100).await;
    for id in [2, 3] {
        add(&mut cluster, id, &first).await;
        // A learner answers too.
        pairs.push(Pair::start(cluster.client(id).unwrap(), &format!("by-{id}")));
        for pair in &pairs {
            pair.more(50).await;
        }
    }
    let promote = json!({"ids": [2, 3]}).to_string();
    let second = cluster.client(2).unwrap();
    let answer = second.post("/api/v1/system/raft/promote", promote).await.unwrap();
    assert_eq!((answer.status, &answer.json()["voters"]), (200, &json!([1, 2, 3])));
    for pair in &pairs {
        pair.more(100).await;
    }
    let mut pushed = Vec::new();
    for pair in pairs {
        pushed.push(pair.end().await);
    }
    println!("records pushed through each node: {pushed:?}");
    let (status, table) = table(&mut cluster, 3);
    assert!(status && table.lines().count() == 4, "{table}");
    assert_eq!(table.matches(" up").count(), 3, "{table}");

    let made = restart_each(&mut cluster).await;
    cluster.level().await.unwrap();
    for id in cluster.ids() {
        check(&cluster.client(id).unwrap(), "orders", &made, &format!("check-{id}")).await;
    }
    alike(cluster).await;
}

/// What `queen cluster status` says when it asks this node, and whether it ended well.
fn table(cluster: &mut Cluster, id: u64) -> (bool, String) {
    let setup = cluster.setup(id).unwrap();
    let addr = format!("{}:{}", setup.host, setup.port);
    let mut command = std::process::Command::new(binary().unwrap());
    let done = command.args(["cluster", "status", "--addr", &addr]).output().unwrap();
    (done.status.success(), String::from_utf8_lossy(&done.stdout).into_owned())
}
