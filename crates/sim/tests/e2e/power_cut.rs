//! Power cuts: all that was not synced may be gone or torn, every answered message is still there.
//!
//! A process that is killed leaves its writes in the system's cache, so the cut is made by hand:
//! files are taken back to what was surely synced, and what lay behind is cut, zeroed or noise.

use queen_sim::chance::Chance;
use queen_sim::process::{Broker, Item, Pushed, Setup, copy_directory};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// All files below a directory by relative path.
fn files(root: &Path) -> BTreeMap<PathBuf, u64> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let len = fs::metadata(&path).unwrap().len();
                found.insert(path.strip_prefix(root).unwrap().to_owned(), len);
            }
        }
    }
    found
}

fn is_raft_log(path: &Path) -> bool {
    // Of the raft log each write is synced before it counts.
    path.starts_with("log")
}

fn is_queue_log(path: &Path) -> bool {
    !is_raft_log(path) && path.extension().is_some_and(|extension| extension == "log")
}

/// Position after the last record of a write-ahead log file, and that record; read from the drawing
/// of the format, not with its code.
fn wal_end(file: &[u8]) -> Option<(usize, Vec<u8>)> {
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    if file.len() < 4096 || &file[..4] != b"QWAL" {
        return None;
    }
    let id = u32_at(8);
    let mut at = 4096;
    let mut last = None;
    while at + 40 <= file.len() && &file[at..at + 2] == b"QR" && u32_at(at + 12) == id {
        let end = at + (40 + u32_at(at + 4) as usize).next_multiple_of(8);
        last = Some((end, file[at..end].to_vec()));
        at = end;
    }
    last
}

/// What a power cut may have left of the files.
#[derive(Clone, Copy, Debug)]
enum Cut {
    /// Everything that was written is there.
    Nothing,
    /// Tables and queue logs as they were at the last checkpoint.
    SinceCheckpoint,
    /// Queue logs end somewhere after the checkpoint.
    LogTails,
    /// Queue logs are as long as they were, and zeros after the checkpoint.
    LogZeros,
    /// As before, with noise.
    LogNoise,
    /// A record of the write-ahead log that nobody was answered for is half there.
    TornRecord,
    /// All at once.
    Everything,
}

const CUTS: [Cut; 7] = [
    Cut::Nothing,
    Cut::SinceCheckpoint,
    Cut::LogTails,
    Cut::LogZeros,
    Cut::LogNoise,
    Cut::TornRecord,
    Cut::Everything,
];

fn damage(cut: Cut, synced: &Path, dir: &Path, chance: &mut Chance) {
    if matches!(cut, Cut::SinceCheckpoint | Cut::Everything) {
        for path in files(dir).keys().filter(|path| !is_raft_log(path)) {
            fs::remove_file(dir.join(path)).unwrap();
        }
        for path in files(synced).keys().filter(|path| !is_raft_log(path)) {
            fs::create_dir_all(dir.join(path).parent().unwrap()).unwrap();
            fs::copy(synced.join(path), dir.join(path)).unwrap();
        }
    }
    if matches!(cut, Cut::LogTails | Cut::LogZeros | Cut::LogNoise) {
        let before = files(synced);
        for (path, len) in files(dir).into_iter().filter(|(path, _)| is_queue_log(path)) {
            let safe = before.get(&path).copied().unwrap_or(0);
            let mut bytes = fs::read(dir.join(&path)).unwrap();
            let from = safe + chance.below(len.saturating_sub(safe) + 1);
            match cut {
                Cut::LogTails => bytes.truncate(from as usize),
                Cut::LogZeros => bytes[from as usize..].fill(0),
                _ => {
                    let noise = chance.bytes((len - from) as usize);
                    bytes[from as usize..].copy_from_slice(&noise);
                }
            }
            fs::write(dir.join(&path), bytes).unwrap();
        }
    }
    if matches!(cut, Cut::TornRecord | Cut::Everything) {
        let all = files(dir);
        let logs = all.keys().filter(|path| is_raft_log(path)).map(|path| dir.join(path));
        let ends = logs.filter_map(|path| {
            let bytes = fs::read(&path).unwrap();
            let (end, record) = wal_end(&bytes)?;
            let index = u64::from_le_bytes(record[16..24].try_into().unwrap());
            Some((index, path, bytes, end, record))
        });
        let newest = ends.max_by_key(|(index, ..)| *index);
        let (index, path, mut bytes, end, mut record) = newest.expect("no record in the log");
        record[16..24].copy_from_slice(&(index + 1).to_le_bytes());
        let there = 8 + chance.below(record.len() as u64 - 8) as usize;
        let there = there.min(bytes.len().saturating_sub(end));
        bytes[end..end + there].copy_from_slice(&record[..there]);
        fs::write(path, bytes).unwrap();
    }
}

fn items(round: u64, count: u64) -> Vec<Item> {
    (0..count)
        .map(|n| Item {
            queue: format!("q-{}", n % 3),
            partition: format!("p-{}", n % 10),
            transaction_id: (n % 2 == 0).then(|| format!("t-{round}-{n}")),
            payload: format!("{{\"round\":{round},\"n\":{n}.00}}"),
        })
        .collect()
}

async fn push(broker: &Broker, round: u64, answered: &mut Vec<(Item, Pushed)>) {
    let items = items(round, 60);
    let pushed = broker.client().push(&items).await.unwrap();
    answered.extend(items.into_iter().zip(pushed));
}

/// Every answered message is where the answer said, with its own bytes.
async fn all_there(broker: &Broker, answered: &[(Item, Pushed)], what: &str) {
    let mut found: BTreeMap<(String, String, u64), (String, String)> = BTreeMap::new();
    for queue in 0..3 {
        for partition in 0..10 {
            let (queue, partition) = (format!("q-{queue}"), format!("p-{partition}"));
            let body = serde_json::json!({"entries": [{"queue": queue, "partition": partition,
                "offset": 0, "maxBytes": 8 << 20}]});
            let answer = broker.client().post("/api/v1/fetch", body.to_string()).await.unwrap();
            let json = answer.json();
            for record in json["entries"][0]["records"].as_array().into_iter().flatten() {
                let offset = record["offset"].as_u64().unwrap();
                let id = record["transactionId"].as_str().unwrap().to_owned();
                let key = (queue.clone(), partition.clone(), offset);
                found.insert(key, (id, record["payload"]["n"].to_string()));
            }
        }
    }
    for (item, pushed) in answered {
        let offset = pushed.offset.unwrap();
        let key = (item.queue.clone(), item.partition.clone(), offset);
        let payload: serde_json::Value = serde_json::from_str(&item.payload).unwrap();
        let want = (pushed.transaction_id.clone(), payload["n"].to_string());
        assert_eq!(found.remove(&key), Some(want), "{what}: {key:?}");
    }
    assert!(found.is_empty(), "{what}: more than was pushed: {found:?}");
}

#[tokio::test]
async fn every_answered_message_survives_the_loss_of_what_was_not_synced() {
    let mut chance = Chance::of_the_day("power cut");
    let root = tempfile::tempdir().unwrap();
    let live = root.path().join("live");
    let setup = Setup::new(&live);
    let mut answered = Vec::new();
    let mut broker = setup.start().await.unwrap();
    for round in 0..10 {
        push(&broker, round, &mut answered).await;
    }
    // A clean stop ends with a checkpoint: all files are synced.
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
    let synced = root.path().join("synced");
    copy_directory(&live, &synced).unwrap();

    // The next checkpoint is further away than this takes, in time and in bytes.
    let mut broker = setup.start().await.unwrap();
    let begin = std::time::Instant::now();
    for round in 10..30 {
        push(&broker, round, &mut answered).await;
    }
    let body = r#"{"queue":"q-0","options":{"leaseTime":77}}"#;
    assert_eq!(broker.client().post("/api/v1/configure", body).await.unwrap().status, 200);
    broker.kill().unwrap();
    assert!(begin.elapsed().as_secs() < 25, "a checkpoint may have been made: the machine is slow");

    for cut in CUTS {
        let dir = root.path().join(format!("{cut:?}"));
        copy_directory(&live, &dir).unwrap();
        damage(cut, &synced, &dir, &mut chance);
        let setup = Setup::new(&dir);
        let mut answered = answered.clone();
        let mut broker = setup.start().await.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
        all_there(&broker, &answered, &format!("{cut:?}")).await;
        let answer = broker.client().get("/api/v1/resources/queues/q-0").await.unwrap();
        assert_eq!(answer.json()["options"]["leaseTime"], 77, "{cut:?}: {}", answer.text);
        // The dedup of what was pushed before still holds.
        let again = broker.client().push(&items(29, 60)).await.unwrap();
        for (item, result) in items(29, 60).into_iter().zip(again) {
            let known = item.transaction_id.is_some();
            assert_eq!(result.status, if known { "duplicate" } else { "queued" }, "{cut:?}");
            if !known {
                answered.push((item, result));
            }
        }
        broker.kill().unwrap();
        let broker = setup.start().await.unwrap_or_else(|error| panic!("{cut:?} again: {error}"));
        all_there(&broker, &answered, &format!("{cut:?} again")).await;
    }
}

#[tokio::test]
async fn damage_before_the_tail_of_the_log_stops_the_start_with_a_sentence() {
    let root = tempfile::tempdir().unwrap();
    let live = root.path().join("live");
    let setup = Setup::new(&live);
    let mut broker = setup.start().await.unwrap();
    let mut answered = Vec::new();
    for round in 0..10 {
        push(&broker, round, &mut answered).await;
    }
    broker.kill().unwrap();
    let all = files(&live);
    let mut logs = all.keys().filter(|path| is_raft_log(path)).map(|path| live.join(path));
    let (path, mut bytes) = logs
        .find_map(|path| {
            let bytes = fs::read(&path).unwrap();
            wal_end(&bytes).map(|_| (path, bytes))
        })
        .expect("no record in the log");
    // In the middle of all records, where a push's bytes lie.
    let (end, _) = wal_end(&bytes).unwrap();
    bytes[4096 + (end - 4096) / 2] ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let mut broker = setup.spawn().unwrap();
    let status = broker.end(std::time::Duration::from_secs(30)).await.unwrap();
    let output = broker.output();
    assert!(!status.success() && !output.contains("panicked"), "{output}");
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    assert!(output.contains(&name), "the file {name} is named: {output}");
    assert!(output.contains("position") || output.contains("byte"), "{output}");
}
