//! What happened in a run, one JSON object a line, as it happens.
//!
//! Owns: the file and the clock of the run. Leaves to others: judging it.

use anyhow::Context;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The file of a run; every line is written at once, so that a killed run leaves what it knew.
pub struct History {
    path: PathBuf,
    file: Mutex<File>,
    begin: Instant,
}

impl History {
    /// A new file in `folder`.
    pub fn new(folder: &Path, seed: u64) -> anyhow::Result<History> {
        std::fs::create_dir_all(folder)?;
        let path = folder.join(format!("seed-{seed}-{}.jsonl", std::process::id()));
        let file = File::create(&path).with_context(|| format!("make {}", path.display()))?;
        Ok(History { path, file: Mutex::new(file), begin: Instant::now() })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Microseconds since the run began.
    pub fn now(&self) -> u64 {
        self.begin.elapsed().as_micros() as u64
    }

    /// Notes an event.
    pub fn note(&self, what: &str, more: Value) {
        let line = json!({"at": self.now(), "what": what, "more": more});
        // A disk that is full shows in the lines that are missing; the run itself goes on.
        let _ = self.file.lock().write_all(format!("{line}\n").as_bytes());
    }
}
