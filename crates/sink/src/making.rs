//! A window being encoded on a thread.
//!
//! Owns: the way from a job to a running encoder, and what a window is that is encoded already.
//! Leaves to others: what the encoder does (`produce`), when it may (`turns`), who sends (`upload`).
//! Upholds: `memory-bounded` (the encoder holds its memory, not the task that waits for it).

use crate::host::blocking;
use crate::produce::{Job, Produced, Summary, produce};
use crate::read::ReadError;
use crate::turns::Turn;
use tokio::sync::{Semaphore, mpsc};

/// A window that is encoded, all of it in memory.
pub struct Made {
    /// Its objects, each of them [`Produced::Whole`].
    pub produced: mpsc::Receiver<Produced>,
    /// What the manifest says of them.
    pub summary: Summary,
}

/// A running encoder: its objects, and how it ends. Dropped, it ends at its next piece.
pub fn make(
    job: Job,
    turn: Turn,
) -> (mpsc::Receiver<Produced>, impl Future<Output = Result<Summary, ReadError>> + Send + 'static) {
    let host = job.source.host.clone();
    // On one thread nothing is taken before everything is made.
    let room = if host.threaded() { 1 } else { Semaphore::MAX_PERMITS };
    start(job, turn, room)
}

/// Encodes a window ahead of its turn: to the end, without anybody who takes its objects.
pub async fn make_whole(job: Job, turn: Turn) -> Result<Made, ReadError> {
    let (produced, encoding) = start(job, turn, Semaphore::MAX_PERMITS);
    Ok(Made { summary: encoding.await?, produced })
}

fn start(
    job: Job,
    turn: Turn,
    room: usize,
) -> (mpsc::Receiver<Produced>, impl Future<Output = Result<Summary, ReadError>> + Send + 'static) {
    let host = job.source.host.clone();
    let (to, produced) = mpsc::channel(room);
    let encoding = async move {
        blocking(&*host, move || {
            let mut turn = turn;
            let mut summary = produce(&job, &to)?;
            summary.memory = Some(turn.memory.split(job.manifest_bytes));
            Ok(summary)
        })
        .await
    };
    (produced, encoding)
}
