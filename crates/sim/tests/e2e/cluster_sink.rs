//! The sink on three nodes: its owner dies in the middle, stops, or cannot reach the bucket; the lake
//! stays whole.

use crate::cluster_load::{Load, Made};
use queen_sim::lake::{Accepted, Expected, Files, whole_lake};
use queen_sim::process::{Cluster, Seaweed, sink_settings};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const LONG: Duration = Duration::from_secs(60);

/// The node on which the sink owns the queue, as the nodes say.
async fn owner(cluster: &Cluster) -> Option<u64> {
    for id in cluster.ids() {
        let Ok(client) = cluster.client(id) else { continue };
        let Ok(status) = client.sink_status().await else { continue };
        let queues = status["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        if queues.iter().any(|queue| queue["ownedHere"] == true) {
            return Some(id);
        }
    }
    None
}

/// What the lake must hold of what was answered.
fn expected(made: Vec<Made>) -> Expected {
    let mut expected = Expected::new();
    expect(&mut expected, "orders", made);
    expected
}

/// Adds what was answered to pushes to a queue.
fn expect(expected: &mut Expected, queue: &str, made: Vec<Made>) {
    for one in made {
        let number = one.partition.trim_start_matches("p-").to_owned();
        expected.accepted.extend(one.answered.into_iter().map(|(transaction_id, offset)| {
            Accepted {
                queue: queue.to_owned(),
                partition: one.partition.clone(),
                offset,
                payload: {
                    let n = transaction_id.trim_start_matches(&format!("{number}-"));
                    format!("{{\"n\":{n}}}").into_bytes()
                },
                transaction_id,
            }
        }));
    }
}

#[tokio::test]
async fn the_owner_of_the_sink_dies_and_each_record_is_in_the_lake_once() {
    let s3 = Seaweed::start().await.unwrap();
    let pairs = small_windows(&s3.endpoint(), "3000");
    let mut cluster = Cluster::of_three(pairs).await.unwrap();
    let load = Load::start(&cluster, "orders", 6);
    for kill in 0..4 {
        load.more(500, LONG).await;
        let victim = match kill % 2 {
            // The leader, which may own the queue too.
            0 => cluster.leader(0).await.unwrap().0,
            _ => owner(&cluster).await.unwrap_or(1),
        };
        println!("kill {kill}: node {victim}");
        cluster.kill(victim).unwrap();
        load.more(200, LONG).await;
        cluster.spawn(victim).unwrap();
        cluster.ready(victim).await.unwrap();
    }
    let expected = expected(load.stop().await);
    let records = expected.accepted.len();
    let (_, report) = whole_lake(&s3.endpoint(), &expected, Duration::from_secs(90)).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), cluster.tails());
    println!("{} windows, {} of {records} records", report.windows, report.records);
    for id in cluster.ids() {
        cluster.stop(id).await.unwrap();
    }
}

/// The settings of a sink with small windows.
fn small_windows(endpoint: &str, lease_ms: &str) -> Vec<(String, String)> {
    let mut pairs = sink_settings(endpoint, "orders");
    for (name, value) in [
        ("QUEEN_S3_MAX_WINDOW_MS", "400"),
        ("QUEEN_S3_TARGET_MB", "1"),
        ("QUEEN_S3_LEASE_TTL_MS", lease_ms),
    ] {
        pairs.push((name.to_owned(), value.to_owned()));
    }
    pairs
}

/// Waits until a node that `fits` owns the queue.
async fn owned_by(
    cluster: &Cluster,
    what: &str,
    patience: Duration,
    fits: impl Fn(u64) -> bool,
) -> u64 {
    let begin = Instant::now();
    loop {
        match owner(cluster).await {
            Some(id) if fits(id) => return id,
            other => assert!(begin.elapsed() < patience, "{what}: {other:?}\n{}", cluster.tails()),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn whole(endpoint: &str, cluster: &Cluster, expected: &Expected) {
    let (_, report) = whole_lake(endpoint, expected, Duration::from_secs(90)).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), cluster.tails());
    println!("{} windows, {} records", report.windows, report.records);
}

#[tokio::test]
async fn a_planned_stop_gives_the_queue_back_long_before_its_lease_ends() {
    let s3 = Seaweed::start().await.unwrap();
    let mut cluster = Cluster::of_three(small_windows(&s3.endpoint(), "90000")).await.unwrap();
    let load = Load::start(&cluster, "orders", 3);
    let first = owned_by(&cluster, "an owner", LONG, |_| true).await;
    load.more(300, LONG).await;
    cluster.stop(first).await.unwrap();
    // Whoever waited for the lease would wait longer than this.
    let next = owned_by(&cluster, "given back", LONG, |id| id != first).await;
    println!("from node {first} to node {next}");
    load.more(300, LONG).await;
    whole(&s3.endpoint(), &cluster, &expected(load.stop().await)).await;
}

#[tokio::test]
async fn the_next_owner_finishes_the_window_of_one_that_died_in_the_middle_byte_for_byte() {
    let s3 = Seaweed::start().await.unwrap();
    let mut cluster = Cluster::new(3, small_windows(&s3.endpoint(), "3000")).unwrap();
    for id in cluster.ids() {
        // Whoever owns the queue first dies once its objects are there and no manifest is.
        let crash = ("QUEEN_S3_CRASH_AT".to_owned(), "after_upload".to_owned());
        cluster.setup(id).unwrap().variables.extend([crash]);
        cluster.spawn(id).unwrap();
    }
    for id in cluster.ids() {
        cluster.ready(id).await.unwrap();
    }
    let load = Load::start(&cluster, "orders", 3);
    let begin = Instant::now();
    let dead = 'found: loop {
        for id in cluster.ids() {
            if cluster.node(id).unwrap().ended().unwrap().is_some() {
                break 'found id;
            }
        }
        assert!(begin.elapsed() < LONG, "nobody came to that step:\n{}", cluster.tails());
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    // The others must not die of it too: they are started anew, one after the other.
    let bucket = queen_sim::process::bucket(&s3.endpoint()).unwrap();
    let before = data(Files::of_bucket(&bucket).await.unwrap());
    assert!(!before.is_empty(), "it died before its objects were there");
    for id in cluster.ids() {
        if id != dead {
            cluster.kill(id).unwrap();
        }
        cluster.setup(id).unwrap().variables.remove("QUEEN_S3_CRASH_AT");
    }
    for id in cluster.ids().into_iter().filter(|id| *id != dead) {
        cluster.spawn(id).unwrap();
    }
    let next = owned_by(&cluster, "taken over", LONG, |id| id != dead).await;
    println!("node {dead} died, node {next} goes on");
    load.more(300, LONG).await;
    whole(&s3.endpoint(), &cluster, &expected(load.stop().await)).await;
    let after = data(Files::of_bucket(&bucket).await.unwrap());
    for (key, bytes) in &before {
        assert!(after.get(key) == Some(bytes), "{key} has other bytes now");
    }
}

/// Data objects only.
fn data(files: Files) -> BTreeMap<String, Vec<u8>> {
    files.0.into_iter().filter(|(key, _)| !key.contains("/_queen/")).collect()
}

/// A way to the bucket that can be shut.
struct Way {
    endpoint: String,
    open: watch::Sender<bool>,
}

impl Way {
    async fn to(target: &str) -> Way {
        let target = target.trim_start_matches("http://").to_owned();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let (target, mut is_open) = (target.clone(), is_open.clone());
                tokio::spawn(async move {
                    let Ok(mut to) = tokio::net::TcpStream::connect(&target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        // Closed is not said: nothing of it comes any more.
                        _ = is_open.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Way { endpoint, open }
    }
}

#[tokio::test]
async fn a_bucket_that_one_node_cannot_reach_moves_its_queue_to_another() {
    let s3 = Seaweed::start().await.unwrap();
    let mut cluster = Cluster::new(3, small_windows(&s3.endpoint(), "3000")).unwrap();
    let mut ways = BTreeMap::new();
    for id in cluster.ids() {
        let way = Way::to(&s3.endpoint()).await;
        let own = ("QUEEN_S3_ENDPOINT".to_owned(), way.endpoint.clone());
        cluster.setup(id).unwrap().variables.extend([own]);
        ways.insert(id, way);
        cluster.spawn(id).unwrap();
    }
    for id in cluster.ids() {
        cluster.ready(id).await.unwrap();
    }
    let load = Load::start(&cluster, "orders", 3);
    let first = owned_by(&cluster, "an owner", LONG, |_| true).await;
    load.more(300, LONG).await;
    ways[&first].open.send_replace(false);
    // Half a minute of silence, and the time of a lease.
    let next = owned_by(&cluster, "moved", 2 * LONG, |id| id != first).await;
    println!("from node {first} to node {next}");
    load.more(300, LONG).await;
    whole(&s3.endpoint(), &cluster, &expected(load.stop().await)).await;
    assert_eq!(owner(&cluster).await, Some(next), "it went back to a node without a bucket");
}

/// The nodes on which the sink owns a queue of its own each, once there is one on every node.
async fn spread(cluster: &Cluster) -> Vec<u64> {
    let begin = Instant::now();
    loop {
        let mut owners = Vec::new();
        for id in cluster.ids() {
            let status = cluster.client(id).unwrap().sink_status().await.unwrap_or_default();
            let queues = status["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
            owners.extend(queues.iter().filter(|queue| queue["ownedHere"] == true).map(|_| id));
        }
        if owners == cluster.ids() {
            return owners;
        }
        assert!(begin.elapsed() < LONG, "owners are {owners:?}\n{}", cluster.tails());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn nodes_that_do_not_lead_copy_their_queues_also_when_tokens_are_asked_for() {
    let s3 = Seaweed::start().await.unwrap();
    let queues = ["bills", "goods", "orders"];
    let mut pairs = small_windows(&s3.endpoint(), "3000");
    for (name, value) in [
        ("QUEEN_S3_QUEUES", queues.join(",")),
        ("JWT_ENABLED", "true".to_owned()),
        ("JWT_SECRET", "a secret that no process of this test signs with".to_owned()),
        // What the test itself asks; not what the sink writes its rows with.
        ("JWT_SKIP_PATHS", "/health,/metrics,/status,/api/v1/push".to_owned()),
    ] {
        pairs.push((name.to_owned(), value));
    }
    let cluster = Cluster::of_three(pairs).await.unwrap();
    let refused = cluster.client(1).unwrap().post("/api/v1/kv", "{}").await.unwrap();
    assert_eq!(refused.status, 401, "{}", refused.text);
    let loads = queues.map(|queue| (queue, Load::start(&cluster, queue, 2)));
    println!("each of {:?} owns a queue", spread(&cluster).await);
    let mut expected = Expected::new();
    for (queue, load) in loads {
        load.more(200, LONG).await;
        expect(&mut expected, queue, load.stop().await);
    }
    whole(&s3.endpoint(), &cluster, &expected).await;
}
