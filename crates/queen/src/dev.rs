//! `queen dev`: broker, S3 server and sink in one process, to try everything in one folder.
//!
//! Owns: the demo's settings and what it prints. Leaves to others: running the broker (`node`) and
//! the bucket (`s3_server`).

use crate::environment::Environment;
use crate::node::{Node, NodeSettings};
use crate::s3_server::{Bucket, S3Server};
use crate::signals::Signals;
use anyhow::Context;
use clap::Args;
use queen_core::setting::access;
use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::sync::watch;

/// Arguments of the demo.
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Folder of everything: DIR/lake is the bucket, DIR/broker the broker's data
    #[arg(long, value_name = "DIR", default_value = "queen-dev")]
    dir: PathBuf,
    /// Port of the broker; 0 takes any free one
    #[arg(long, default_value_t = 6632)]
    port: u16,
    /// Port of the S3 server; 0 takes any free one
    #[arg(long, default_value_t = 7070)]
    s3_port: u16,
    /// Longest time until a file closes, milliseconds
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(100..=86_400_000))]
    window_ms: u64,
}

const BUCKET: Bucket = Bucket { name: "lake", access_key: "queen", secret_key: "queen-secret-key" };

/// Runs until a signal asks for the end.
pub async fn run(args: DevArgs) -> anyhow::Result<()> {
    let signals = Signals::listen()?;
    std::fs::create_dir_all(&args.dir)
        .with_context(|| format!("cannot create the folder {}", args.dir.display()))?;
    let s3_addr = SocketAddr::from((Ipv4Addr::LOCALHOST, args.s3_port));
    let s3 = S3Server::bind(s3_addr, &args.dir, BUCKET).await?;
    let s3_addr = s3.addr()?;
    let environment = environment(&args, s3_addr, Environment::of_process());
    let settings = NodeSettings::read(&environment, "warn")?;
    settings.start_logging();
    let (s3_stop, mut s3_stopped) = watch::channel(());
    let bucket = tokio::spawn(async move {
        s3.run(async move {
            // The sender is dropped when the node has stopped: the sink may need the bucket until then.
            while s3_stopped.changed().await.is_ok() {}
        })
        .await;
    });
    let extension = settings.encoding().map_or("jsonl.zst", |encoding| encoding.extension());
    let node = Node::start(settings).await?;
    print!("{}", greeting(&args, node.addr(), s3_addr, extension));
    node.run_until(signals.stop_asked()).await?;
    drop(s3_stop);
    bucket.await?;
    println!("queen: stopped; {} keeps everything for the next start", args.dir.display());
    Ok(())
}

/// The settings of the demo: the place of things is fixed, the rest may be set from outside.
fn environment(args: &DevArgs, s3: SocketAddr, mut environment: Environment) -> Environment {
    environment.set("PORT", args.port.to_string());
    environment.set("QUEEN_RAFT_DIR", args.dir.join("broker").to_string_lossy());
    environment.set_default("QUEEN_BIND_ADDR", "127.0.0.1");
    // The commands that are shown call it in the clear.
    environment.unset(access::TLS_CERT.name);
    environment.unset(access::TLS_KEY.name);
    environment.set("QUEEN_S3_EMBEDDED", "true");
    environment.set("QUEEN_S3_ENDPOINT", format!("http://{s3}"));
    environment.set("QUEEN_S3_REGION", "us-east-1");
    environment.set("QUEEN_S3_PATH_STYLE", "true");
    environment.set("QUEEN_S3_BUCKET", BUCKET.name);
    environment.set("QUEEN_S3_ACCESS_KEY", BUCKET.access_key);
    environment.set("QUEEN_S3_SECRET_KEY", BUCKET.secret_key);
    environment.set("QUEEN_S3_MAX_WINDOW_MS", args.window_ms.to_string());
    // A person's own disk is often rather full; the demo needs little of it.
    environment.set_default("QUEEN_RAFT_DISK_HIGH_PCT", "98");
    environment.set_default("QUEEN_RAFT_DISK_LOW_PCT", "97");
    environment.set_default("QUEEN_S3_QUEUES", "*");
    environment.set_default("QUEEN_S3_START", "earliest");
    environment
}

fn greeting(args: &DevArgs, broker: SocketAddr, s3: SocketAddr, extension: &str) -> String {
    let (port, dir) = (broker.port(), args.dir.display());
    let seconds = args.window_ms as f64 / 1000.0;
    let read = if extension == "parquet" { "read_parquet" } else { "read_json_auto" };
    let mut text = String::new();
    let lines = [
        format!("broker   http://localhost:{port}, data in {dir}/broker"),
        format!(
            "bucket   s3://{} at http://{s3} (key {}, secret {}), files in {dir}/{}",
            BUCKET.name, BUCKET.access_key, BUCKET.secret_key, BUCKET.name
        ),
        format!("sink     every queue from its first record, a file closes after {seconds} s"),
        String::new(),
        "Try next:".to_owned(),
        String::new(),
        "1. Push three messages".to_owned(),
        String::new(),
        format!(
            r#"curl -s -X POST localhost:{port}/api/v1/push -H 'content-type: application/json' -d '{{"items":[
  {{"queue":"orders","partition":"cust-1","payload":{{"order":1,"status":"new","total":42.00}}}},
  {{"queue":"orders","partition":"cust-2","payload":{{"order":2,"status":"new","total":17.50}}}},
  {{"queue":"orders","partition":"cust-1","payload":{{"order":1,"status":"paid","total":42.00}}}}
]}}'"#
        ),
        String::new(),
        "2. See how far the sink is".to_owned(),
        String::new(),
        format!(
            "curl -s localhost:{port}/status | jq -c '.s3.sinks[0].queues[] | {{name, state, k, \
             windowsCommitted, records}}'"
        ),
        String::new(),
        format!("3. About {seconds} s after the push, read the lake"),
        String::new(),
        format!(
            "duckdb -c \"select * from {read}('{dir}/{}/queen/tenant=*/queue=*/dt=*/hour=*/\
             *.{extension}', hive_partitioning=true)\"",
            BUCKET.name
        ),
        String::new(),
        "Ctrl-C ends it.".to_owned(),
    ];
    for line in lines {
        let _ = writeln!(text, "{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dir: &str) -> DevArgs {
        DevArgs { dir: dir.into(), port: 6632, s3_port: 7070, window_ms: 10_000 }
    }

    #[test]
    fn the_demo_fixes_where_things_are_and_leaves_the_rest_to_the_environment() {
        let outside = [("PORT", "1"), ("QUEEN_S3_BUCKET", "mine"), ("QUEEN_S3_QUEUES", "orders")];
        let outside = outside.map(|(n, v)| (n.to_owned(), v.to_owned()));
        let s3 = SocketAddr::from((Ipv4Addr::LOCALHOST, 7070));
        let environment = environment(&args("d"), s3, Environment::from_pairs(outside));
        assert_eq!(environment.get("PORT"), Some("6632"));
        assert_eq!(environment.get("QUEEN_S3_BUCKET"), Some("lake"));
        assert_eq!(environment.get("QUEEN_S3_QUEUES"), Some("orders"));
        assert_eq!(environment.get("QUEEN_RAFT_DIR"), Some("d/broker"));
        NodeSettings::read(&environment, "warn").unwrap();
    }

    #[test]
    fn the_greeting_reads_the_files_that_the_settings_make() {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let text = greeting(&args("d"), local(1), local(2), "parquet");
        assert!(text.contains("read_parquet('d/lake/queen/") && text.contains("/*.parquet'"));
    }

    #[test]
    fn the_greeting_names_the_ports_the_folders_and_three_commands() {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let text = greeting(&args("queen-dev"), local(6632), local(7070), "jsonl.zst");
        for part in [
            "http://localhost:6632",
            "http://127.0.0.1:7070",
            "queen-dev/lake",
            "\"total\":42.00",
            "curl -s localhost:6632/status | jq",
            "duckdb -c \"select * from read_json_auto('queen-dev/lake/queen/",
            "/*.jsonl.zst'",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}
