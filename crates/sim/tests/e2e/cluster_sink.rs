//! The sink on three nodes: its owner dies in the middle, the lake stays whole.

use crate::cluster_load::Load;
use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected};
use queen_sim::process::{Cluster, Seaweed, sink_settings};
use std::time::Duration;

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

#[tokio::test]
async fn the_owner_of_the_sink_dies_and_each_record_is_in_the_lake_once() {
    let s3 = Seaweed::start().await.unwrap();
    let mut pairs = sink_settings(&s3.endpoint(), "orders");
    for (name, value) in [
        ("QUEEN_S3_MAX_WINDOW_MS", "400"),
        ("QUEEN_S3_TARGET_MB", "1"),
        ("QUEEN_S3_LEASE_TTL_MS", "3000"),
    ] {
        pairs.push((name.to_owned(), value.to_owned()));
    }
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
    let made = load.stop().await;
    let mut expected = Expected::new();
    for one in made {
        let number = one.partition.trim_start_matches("p-").to_owned();
        expected.accepted.extend(one.answered.into_iter().map(|(transaction_id, offset)| {
            Accepted {
                queue: "orders".to_owned(),
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
    let records = expected.accepted.len();
    let (_, report) = whole_lake(&s3.endpoint(), &expected, Duration::from_secs(90)).await.unwrap();
    assert!(report.faults.is_empty(), "{}\n{}", report.text(), cluster.tails());
    println!("{} windows, {} of {records} records", report.windows, report.records);
    for id in cluster.ids() {
        cluster.stop(id).await.unwrap();
    }
}
