//! The listening end of the connections between nodes.
//!
//! Owns: accepting, the bounds on strangers (few at a time, little memory, little time), reading requests
//! and writing answers of greeted peers. Leaves to others: who is welcome and what is answered
//! ([`Answers`]).

use super::frame::{self, Frame, Kind};
use super::greeting::{self, Caller, Listener, Verdict};
use crate::host::{Handshake, Incoming, Stream};
use aws_lc_rs::hmac;
use bytes::Bytes;
use futures::future::BoxFuture;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter, WriteHalf};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

/// A caller that has not proved itself after this long is closed.
const GREET: Duration = Duration::from_secs(3);
/// Callers that are being greeted, at most; further ones wait to be accepted.
const GREETED_AT_ONCE: usize = 32;
/// Connections of greeted peers, at most.
const CONNECTIONS: usize = 256;
/// A peer that says nothing for this long is closed: the calling end uses an idle connection more often.
const QUIET: Duration = Duration::from_secs(45);
/// Requests of one connection that are worked on, at most; then its next ones wait in its socket.
const AT_ONCE: usize = 1024;

/// What an answer is: bytes, or words why the request was not taken.
pub(crate) type Answered = Result<Bytes, String>;

/// What the node behind the listener does.
pub(crate) trait Answers: Send + Sync + 'static {
    /// What this node says of itself to `caller`, which has proved nothing yet.
    fn about(&self, caller: &Caller) -> Listener;
    /// Whether a caller that has the token is welcome.
    fn judge(&self, caller: &Caller) -> Verdict;
    /// The runtime on which a caller's requests are read and answered.
    fn home(&self, caller: &Caller) -> Handle;
    /// Answers one request. `held` lives as long as the connection.
    fn answer(
        self: Arc<Self>,
        caller: Caller,
        held: Held,
        kind: Kind,
        body: Bytes,
    ) -> BoxFuture<'static, Answered>;
    /// A connection of `caller` has ended.
    fn gone(&self, caller: &Caller);
}

/// What a connection keeps between its requests: a snapshot that is arriving.
pub(crate) type Held = Arc<tokio::sync::Mutex<Option<crate::snapshots::Arriving>>>;

/// Serves what comes until the task is dropped.
pub(crate) async fn serve(
    mut incoming: Box<dyn Incoming>,
    token: hmac::Key,
    answers: Arc<dyn Answers>,
) {
    let greeting = Arc::new(Semaphore::new(GREETED_AT_ONCE));
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = greeting.clone().acquire_owned().await else { return };
        let (stream, from) = match incoming.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: the next try must not spin.
                tracing::warn!(%error, "cannot accept a raft connection");
                tokio::time::sleep(Duration::from_millis(200)).await;
                continue;
            }
        };
        let (token, answers) = (token.clone(), answers.clone());
        let connections = connections.clone();
        tokio::spawn(async move {
            let greeted = timeout(GREET, greet(stream, &token, &*answers)).await;
            drop(place);
            let (stream, caller) = match greeted {
                Ok(Ok(Some(greeted))) => greeted,
                Ok(Ok(None)) => return,
                Ok(Err(error)) => return stranger(&from, &error),
                Err(_) => return stranger(&from, &io::ErrorKind::TimedOut.into()),
            };
            let Ok(connection) = connections.try_acquire_owned() else {
                tracing::warn!(%from, "too many raft connections");
                return;
            };
            let home = answers.home(&caller);
            home.spawn(async move {
                let _connection = connection;
                match stream.moved_here() {
                    Ok(stream) => talk(stream, caller, &answers).await,
                    Err(error) => tracing::warn!(%from, %error, "a raft connection is lost"),
                }
                answers.gone(&caller);
            });
        });
    }
}

fn stranger(from: &str, error: &io::Error) {
    tracing::warn!(%from, %error, "closed a connection to the raft listener");
}

async fn greet(
    stream: Handshake,
    token: &hmac::Key,
    answers: &dyn Answers,
) -> io::Result<Option<(Box<dyn Stream>, Caller)>> {
    let mut stream = stream.await?;
    let (caller, _) = greeting::hear(&mut stream, token, |caller| answers.about(caller)).await?;
    let verdict = answers.judge(&caller);
    greeting::judge(&mut stream, &verdict).await?;
    match verdict {
        Verdict::Welcome => Ok(Some((stream, caller))),
        Verdict::Refused(why) | Verdict::WrongDisk(why) => {
            tracing::debug!(node = caller.from, %why, "refused a node");
            Ok(None)
        }
    }
}

async fn talk(stream: Box<dyn Stream>, caller: Caller, answers: &Arc<dyn Answers>) {
    let (input, output) = tokio::io::split(stream);
    let mut input = BufReader::with_capacity(frame::READ_AHEAD, input);
    let (done, ready) = mpsc::channel(AT_ONCE);
    let writer = tokio::spawn(write_answers(output, ready));
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let held = Held::default();
    let most = caller.purpose.body_max();
    while let Ok(Ok(frame)) = timeout(QUIET, frame::read(&mut input, most)).await {
        let Frame { request, kind, body } = frame;
        if kind == Kind::Ping {
            let pong = Frame { request, kind: Kind::Answer, body: Bytes::new() };
            if done.send(pong).await.is_err() {
                break;
            }
            continue;
        }
        let Ok(place) = places.clone().acquire_owned().await else { break };
        let answering = answers.clone().answer(caller, held.clone(), kind, body);
        let done = done.clone();
        let work = async move {
            let (kind, body) = match answering.await {
                Ok(body) => (Kind::Answer, body),
                Err(why) => (Kind::Refused, why.into()),
            };
            // An error says that the connection has ended.
            let _ = done.send(Frame { request, kind, body }).await;
            drop(place);
        };
        tokio::spawn(work);
    }
    writer.abort();
}

async fn write_answers(output: WriteHalf<Box<dyn Stream>>, mut ready: mpsc::Receiver<Frame>) {
    let mut output = BufWriter::with_capacity(64 << 10, output);
    while let Some(frame) = ready.recv().await {
        let mut next = Some(frame);
        while let Some(frame) = next.take() {
            let Frame { request, kind, body } = frame;
            if frame::write(&mut output, request, kind, &[body, Bytes::new()]).await.is_err() {
                return;
            }
            next = ready.try_recv().ok();
        }
        if output.flush().await.is_err() {
            return;
        }
    }
}
