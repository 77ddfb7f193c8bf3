//! Measures propose → applied against a bare write + fdatasync loop, in a directory given as argument.
//!
//! Not part of any test: `cargo run --release -p queen-raft --example round_trip -- DIR`. The directory is
//! created and must be empty; the disk under it is the one measured.

use bytes::Bytes;
use queen_raft::{Committed, Machine, MachineFailed, RaftNode, RaftOptions};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

const PROPOSAL_BYTES: usize = 400;
const SECONDS: u64 = 4;

/// Tells each applied proposal's first byte.
struct Tell(mpsc::Sender<u8>);

impl Machine for Tell {
    fn applied(&self) -> Option<Vec<u8>> {
        None
    }

    fn apply(&self, entries: Vec<Committed>) -> Result<(), MachineFailed> {
        for proposal in entries.iter().flat_map(|entry| entry.proposals.iter()) {
            self.0.send(proposal[0]).map_err(|error| MachineFailed(error.to_string()))?;
        }
        Ok(())
    }

    fn leadership(&self, _: Option<u64>) {}
}

fn report(what: &str, mut took: Vec<Duration>, elapsed: Duration) {
    took.sort();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize].as_micros();
    let rate = took.len() as f64 / elapsed.as_secs_f64();
    println!(
        "{what:<22} {:>7} times, {rate:>8.0}/s, p50 {:>6} us, p99 {:>6} us",
        took.len(),
        at(0.5),
        at(0.99)
    );
}

fn bare(dir: &Path) -> std::io::Result<()> {
    let file = File::create(dir.join("bare"))?;
    file.write_all_at(&vec![0; 64 << 20], 0)?;
    file.sync_all()?;
    let (mut took, began, record) = (Vec::new(), Instant::now(), [7; PROPOSAL_BYTES + 48]);
    while began.elapsed() < Duration::from_secs(SECONDS) {
        let start = Instant::now();
        file.write_all_at(&record, 4096 + (took.len() * record.len()) as u64)?;
        file.sync_data()?;
        took.push(start.elapsed());
    }
    report("bare write + fdatasync", took, began.elapsed());
    std::fs::remove_file(dir.join("bare"))
}

fn closed_loop(node: &RaftNode, applied: &mpsc::Receiver<u8>, in_flight: u8) {
    let before = node.wal_written();
    let proposal = |slot: u8| Bytes::from(vec![slot; PROPOSAL_BYTES]);
    let (mut took, began) = (Vec::new(), Instant::now());
    let mut sent = vec![Instant::now(); usize::from(in_flight)];
    for slot in 0..in_flight {
        node.propose(proposal(slot)).expect("the only voter leads");
    }
    let mut open = in_flight;
    while open > 0 {
        let slot = applied.recv().expect("the machine lives");
        took.push(sent[usize::from(slot)].elapsed());
        if began.elapsed() < Duration::from_secs(SECONDS) {
            sent[usize::from(slot)] = Instant::now();
            node.propose(proposal(slot)).expect("the only voter leads");
        } else {
            open -= 1;
        }
    }
    let count = took.len() as u64;
    report(&format!("raft, {in_flight} in flight"), took, began.elapsed());
    let after = node.wal_written();
    let (bytes, syncs) = (after.0 - before.0, after.1 - before.1);
    println!(
        "{:<22} {} bytes and {:.3} syncs each",
        "",
        bytes / count,
        syncs as f64 / count as f64
    );
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("which directory? give it as the argument")?;
    let dir = Path::new(&dir);
    std::fs::create_dir_all(dir)?;
    bare(dir)?;
    let (tell, applied) = mpsc::channel();
    let node = RaftNode::start(RaftOptions::new(dir.join("raft")), Arc::new(Tell(tell))).await?;
    for in_flight in [1, 32, 128] {
        closed_loop(&node, &applied, in_flight);
    }
    bare(dir)?;
    node.shutdown().await;
    Ok(())
}
