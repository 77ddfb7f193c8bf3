//! What a cluster does where something ends: names, handles, disks, a majority.
//!
//! Owns: these ends. Leaves to others: a full disk (`full_disk`), damaged files (`repair`), nodes that
//! die and come back (`cluster`).

use queen_sim::process::{Client, Cluster, Item, Setup, copy_directory};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NONE: [(&str, &str); 0] = [];
const LONG: Duration = Duration::from_secs(60);

fn item(queue: &str, n: u64) -> Item {
    Item {
        queue: queue.to_owned(),
        partition: "p".to_owned(),
        transaction_id: Some(format!("t-{n}")),
        payload: n.to_string(),
    }
}

/// Each route that takes a name from a client, with this name.
fn with_name(name: &str) -> Vec<(&'static str, Value)> {
    let push = |mut item: Value| {
        item["payload"] = json!(1);
        json!({"items": [item]})
    };
    let kv = |ns: &str, key: &str| json!({"operations": [{"op": "put", "ns": ns, "key": key, "value": 1, "forever": true}]});
    vec![
        ("/api/v1/push", push(json!({"queue": name}))),
        ("/api/v1/push", push(json!({"queue": "q", "partition": name}))),
        ("/api/v1/push", push(json!({"queue": "q", "transactionId": name}))),
        ("/api/v1/configure", json!({"queue": name, "options": {}})),
        ("/api/v1/kv", kv("shop", name)),
        ("/api/v1/kv", kv(name, "key")),
    ]
}

#[tokio::test]
async fn names_too_long_are_refused_before_they_reach_the_log_of_any_node() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    cluster.client(1).unwrap().push(&[item("q", 0)]).await.unwrap();
    let before = cluster.level().await.unwrap();
    let mut refused = 0;
    for id in cluster.ids() {
        let client = cluster.client(id).unwrap();
        for length in [70_000, 1_000_000] {
            let name = "n".repeat(length);
            for (path, body) in with_name(&name) {
                let answer = client.post(path, body.to_string()).await.unwrap();
                assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
                refused += 1;
            }
            for path in [
                format!("/api/v1/pop/queue/{name}"),
                format!("/api/v1/pop/queue/q?consumerGroup={name}"),
                format!("/api/v1/pop/queue/q/partition/{name}?consumerGroup=g"),
            ] {
                // A head that long is closed on, or refused.
                if let Ok(answer) = client.get(&path).await {
                    assert!((400..500).contains(&answer.status), "{}", answer.text);
                }
                refused += 1;
            }
        }
        // Names that fit a head, and no row.
        let name = "n".repeat(5_000);
        for path in [
            format!("/api/v1/pop/queue/{name}"),
            format!("/api/v1/pop/queue/q?consumerGroup={name}"),
            format!("/api/v1/pop/queue/q/partition/{name}?consumerGroup=g"),
        ] {
            let answer = client.get(&path).await.unwrap();
            assert!((400..500).contains(&answer.status), "{path}: {}", answer.text);
        }
    }
    println!("{refused} refused");
    assert_eq!(cluster.level().await.unwrap(), before, "something of it was logged");
    for id in cluster.ids() {
        cluster.client(id).unwrap().push(&[item("q", id)]).await.unwrap();
        assert!(cluster.node(id).unwrap().ended().unwrap().is_none());
    }
}

/// Processor time that a process has taken, in seconds.
fn processor_seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after = stat.rsplit(") ").next().unwrap();
    let ticks: Vec<f64> = after.split(' ').skip(11).take(2).map(|n| n.parse().unwrap()).collect();
    // SAFETY: takes a number, gives a number.
    ticks.iter().sum::<f64>() / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
}

#[tokio::test]
async fn the_last_node_stops_although_its_last_entry_can_never_be_committed() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let (leader, _) = cluster.leader(0).await.unwrap();
    let client = cluster.client(leader).unwrap();
    client.push(&[item("q", 0)]).await.unwrap();
    for id in cluster.ids().into_iter().filter(|id| *id != leader) {
        cluster.kill(id).unwrap();
    }
    let hanging = tokio::spawn({
        let client = client.clone();
        async move { client.push(&[item("q", 1)]).await }
    });
    let begin = Instant::now();
    loop {
        let view = client.get("/api/v1/raft/status").await.unwrap().json();
        if view["log"].as_u64() > view["commit"].as_u64() {
            break;
        }
        assert!(begin.elapsed() < LONG, "it was never logged: {view}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let node = cluster.node(leader).unwrap();
    let (pid, begin) = (node.pid(), Instant::now());
    let before = processor_seconds(pid);
    node.signal(libc::SIGTERM).unwrap();
    let mut spent = before;
    while node.ended().unwrap().is_none() {
        spent = processor_seconds(pid);
        assert!(begin.elapsed() < LONG, "it does not stop:\n{}", node.tail());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    println!("stopped after {:?}, {:.2} s of processor", begin.elapsed(), spent - before);
    assert!(spent - before < 3.0, "it span");
    assert!(hanging.await.unwrap().is_err(), "answered without a majority");
}

async fn status(client: &Client) -> u16 {
    client.get("/health").await.map_or(0, |answer| answer.status)
}

#[tokio::test]
async fn two_disks_lost_at_once_are_told_and_nobody_says_that_it_can_commit() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let client = cluster.client(1).unwrap();
    client.push(&[item("q", 0)]).await.unwrap();
    cluster.level().await.unwrap();
    for id in [2, 3] {
        cluster.kill(id).unwrap();
        std::fs::remove_dir_all(cluster.dir(id)).unwrap();
        cluster.spawn(id).unwrap();
    }
    let begin = Instant::now();
    for id in [2, 3] {
        let client = cluster.client(id).unwrap();
        let said = loop {
            let view = client.get("/api/v1/raft/status").await.map(|answer| answer.json());
            if let Some(why) =
                view.ok().and_then(|view| view["refused"].as_str().map(str::to_owned))
            {
                break why;
            }
            assert!(begin.elapsed() < LONG, "node {id} says nothing:\n{}", cluster.tails());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        assert!(said.contains("wiped") && said.contains("add it again"), "{said}");
    }
    while status(&client).await == 200 {
        assert!(begin.elapsed() < LONG, "node 1 says that it can commit");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    for id in cluster.ids() {
        assert_eq!(status(&cluster.client(id).unwrap()).await, 503, "node {id}");
    }
    let empty = cluster.place(2).await.unwrap();
    assert!(!empty.leads, "an empty node leads");
}

/// All files below a directory, with their paths from there.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => all.extend(files(&entry.path())),
            false => all.push(entry.path()),
        }
    }
    all.sort();
    all
}

#[tokio::test]
async fn a_start_without_one_of_its_files_loses_nothing_or_says_what_is_missing() {
    let root = tempfile::tempdir().unwrap();
    let good = root.path().join("good");
    let setup = Setup::new(&good);
    let mut broker = setup.start().await.unwrap();
    for n in 0..20 {
        broker.client().push(&[item("q", n)]).await.unwrap();
    }
    broker.stop().await.unwrap();
    let mut told = Vec::new();
    for file in files(&good) {
        let dir = root.path().join("broken");
        let _ = std::fs::remove_dir_all(&dir);
        copy_directory(&good, &dir).unwrap();
        let name = file.strip_prefix(&good).unwrap().to_owned();
        std::fs::remove_file(dir.join(&name)).unwrap();
        let mut broker = Setup::new(&dir).spawn().unwrap();
        if broker.ready().await.is_err() {
            let output = broker.output();
            assert!(!output.contains("panicked"), "{}: {output}", name.display());
            let last = output.lines().last().unwrap_or_default().to_owned();
            let named = last.contains(&dir.display().to_string());
            let way =
                ["restore", "put the file back", "copy"].iter().any(|word| last.contains(word));
            assert!(named && way, "{}: {last}", name.display());
            told.push(name.display().to_string());
            continue;
        }
        let body = json!({"entries": [{"queue": "q", "partition": "p", "offset": 0}]}).to_string();
        let answer = broker.client().post("/api/v1/fetch", body).await.unwrap();
        let mark = &answer.json()["entries"][0]["highWatermark"];
        assert_eq!(mark, 20, "without {}: {}", name.display(), answer.text);
        broker.stop().await.unwrap();
    }
    println!("refused without {told:?}");
    for needed in ["vote", "wal", "tables", "queues"] {
        assert!(told.iter().any(|name| name.contains(needed)), "{needed} is not missed: {told:?}");
    }
}

/// Sets how many files a process may have open.
fn handles(pid: u32, most: u64) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let (pid, nothing) = (pid as i32, std::ptr::null_mut());
    // SAFETY: writes one struct, then reads it.
    let set = unsafe {
        libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &mut limit);
        limit.rlim_cur = most.min(limit.rlim_max);
        libc::prlimit(pid, libc::RLIMIT_NOFILE, &limit, nothing)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

#[tokio::test]
async fn a_node_that_may_open_no_more_files_loses_nothing_and_goes_on_when_it_may() {
    let mut cluster = Cluster::of_three(NONE).await.unwrap();
    let queue = |n: u64| format!("q-{n}");
    let (leader, _) = cluster.leader(0).await.unwrap();
    let client = cluster.client(leader).unwrap();
    client.push(&[item("q", 0)]).await.unwrap();
    let pid = cluster.node(leader).unwrap().pid();
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    // None is left: each new queue needs one.
    handles(pid, open);
    let pushes: Vec<_> = (0..50)
        .map(|n| {
            let (client, item) = (client.clone(), item(&queue(n), n));
            // A connection of its own needs a handle, too: one after the other over this one.
            async move { client.push(&[item]).await.is_ok() }
        })
        .collect();
    let pushing = tokio::spawn(async move {
        let mut answered = Vec::new();
        for push in pushes {
            answered.push(push.await);
        }
        answered
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    if cluster.node(leader).unwrap().ended().unwrap().is_some() {
        panic!("it ended for want of a handle:\n{}", cluster.tails());
    }
    handles(pid, 65_536);
    let answered = pushing.await.unwrap();
    println!("{} of {} answered", answered.iter().filter(|ok| **ok).count(), answered.len());
    cluster.ready(leader).await.unwrap();
    cluster.level().await.unwrap();
    for id in cluster.ids() {
        let client = cluster.client(id).unwrap();
        for (n, _) in (0..).zip(&answered).filter(|(_, ok)| **ok) {
            let entry = json!({"queue": queue(n), "partition": "p", "offset": 0});
            let body = json!({"entries": [entry]}).to_string();
            let answer = client.post("/api/v1/fetch", body).await.unwrap();
            assert_eq!(answer.json()["entries"][0]["highWatermark"], 1, "{}", answer.text);
        }
    }
    crate::cluster::alike(cluster).await;
}

#[tokio::test]
async fn many_idle_queues_take_little_of_the_disk() {
    let root = tempfile::tempdir().unwrap();
    let setup = Setup::new(root.path());
    let mut broker = setup.start().await.unwrap();
    let queues = 500;
    for n in 0..queues {
        broker.client().push(&[item(&format!("q-{n}"), n)]).await.unwrap();
    }
    broker.stop().await.unwrap();
    let taken = |dir: &str| -> u64 {
        use std::os::unix::fs::MetadataExt;
        let all = files(&root.path().join(dir));
        all.iter().map(|file| file.metadata().unwrap().blocks() * 512).sum()
    };
    let (logs, rest) = (taken("store/queues"), taken("store") + taken("log"));
    println!("{queues} queues: {logs} bytes of queue logs, {rest} in all");
    // A block each.
    assert!(logs <= queues * 8192, "{logs}");
    assert!(rest - logs < 80 << 20, "{rest}");
}

#[tokio::test]
async fn a_flipped_bit_in_a_file_of_the_tables_is_told_and_kills_nothing_without_a_word() {
    let root = tempfile::tempdir().unwrap();
    let good = root.path().join("good");
    let mut broker = Setup::new(&good).start().await.unwrap();
    for n in 0..200 {
        broker.client().push(&[item(&format!("q-{}", n % 10), n)]).await.unwrap();
    }
    broker.stop().await.unwrap();
    let (mut told, mut sound) = (0, 0);
    for file in files(&good.join("store/tables")) {
        let dir = root.path().join("broken");
        let _ = std::fs::remove_dir_all(&dir);
        copy_directory(&good, &dir).unwrap();
        let name = file.strip_prefix(&good).unwrap().to_owned();
        let mut bytes = std::fs::read(&file).unwrap();
        let Some(middle) = bytes.len().checked_sub(1).map(|last| last / 2) else { continue };
        bytes[middle] ^= 1;
        std::fs::write(dir.join(&name), bytes).unwrap();
        let mut broker = Setup::new(&dir).spawn().unwrap();
        if broker.ready().await.is_ok() {
            let client = broker.client().clone();
            for n in 0..10 {
                let entry = json!({"queue": format!("q-{n}"), "partition": "p", "offset": 0});
                let body = json!({"entries": [entry]}).to_string();
                let Ok(answer) = client.post("/api/v1/fetch", body).await else { break };
                let mark = &answer.json()["entries"][0]["highWatermark"];
                let wrong = answer.status == 200 && *mark != 20 && !answer.text.contains("rror");
                assert!(!wrong, "{}: {}", name.display(), answer.text);
            }
            sound += 1;
        } else {
            told += 1;
        }
        let status = broker.stop().await.unwrap();
        let output = broker.output();
        assert!(status.code().is_some(), "{}: {status}\n{output}", name.display());
        assert!(!output.contains("panicked"), "{}: {output}", name.display());
    }
    println!("{told} starts refused, {sound} went on");
    assert!(told > 0, "no flipped bit was told");
}
