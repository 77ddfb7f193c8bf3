//! A window being encoded on a thread.
//!
//! Owns: the way from a job to a running encoder, and what a window is that is encoded already.
//! Leaves to others: what the encoder does (`produce`), when it may (`turns`), who sends (`upload`).
//! Upholds: `memory-bounded` (the encoder holds its memory, not the task that waits for it).

use crate::host::{Host, blocking};
use crate::produce::{Job, Object, Produced, Summary, Walk, given_up};
use crate::read::ReadError;
use crate::turns::Turn;
use tokio::sync::{Semaphore, mpsc, oneshot};

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
    let (to, produced) = mpsc::channel(room);
    (produced, encode(job, turn, to))
}

/// A walk over a window and the memory that it takes: both with whoever works, so that they outlive a
/// task that waits and is cancelled.
struct Work {
    walk: Walk,
    turn: Turn,
}

impl Work {
    async fn step<T: Send + 'static>(
        self,
        host: &dyn Host,
        step: fn(&mut Work) -> Result<T, ReadError>,
    ) -> Result<(Work, T), ReadError> {
        let mut work = self;
        blocking(host, move || {
            let done = step(&mut work)?;
            Ok((work, done))
        })
        .await
    }
}

/// Encodes all objects. While what is made waits to be sent, or the sender makes up its mind about an
/// object that does not fit the memory, others have the place; but for the pieces of such an object, no
/// thread waits either.
async fn encode(job: Job, turn: Turn, to: mpsc::Sender<Produced>) -> Result<Summary, ReadError> {
    let (host, manifest_bytes) = (job.source.host.clone(), job.manifest_bytes);
    let tells = to.clone();
    let begin = move || Ok::<_, ReadError>(Work { walk: Walk::new(job, to)?, turn });
    let mut work = blocking(&*host, begin).await?;
    loop {
        let (back, object) = work.step(&*host, |work| work.walk.object()).await?;
        work = back;
        let Some(Object { holds, entry, kept }) = object else { break };
        if let Some(kept) = kept {
            tell(&tells, &mut work.turn, Produced::Whole { holds, entry, kept }).await?;
            continue;
        }
        let (wanted, answer) = oneshot::channel();
        tell(&tells, &mut work.turn, Produced::Large { holds, entry, wanted }).await?;
        if work.turn.aside(answer).await.map_err(|_| given_up())? {
            let pieces = |work: &mut Work| work.walk.pieces(&mut work.turn);
            (work, ()) = work.step(&*host, pieces).await?;
            tell(&tells, &mut work.turn, Produced::Same).await?;
        } else {
            (work, ()) = work.step(&*host, |work| work.walk.skip()).await?;
        }
    }
    let Work { walk, mut turn } = work;
    let mut summary = walk.summary;
    summary.memory = Some(turn.memory.split(manifest_bytes));
    Ok(summary)
}

async fn tell(
    to: &mpsc::Sender<Produced>,
    turn: &mut Turn,
    next: Produced,
) -> Result<(), ReadError> {
    turn.aside(to.send(next)).await.map_err(|_| given_up().into())
}
