//! A link: the calling end of one connection, kept up for as long as somebody uses it.
//!
//! Owns: connecting when there is something to say, numbering requests and matching answers (many at a
//! time), noticing a dead peer, saying truthfully whether a request was sent. Leaves to others: what is
//! asked (`transport`, `group`).
//! Upholds: `not-sent-is-true`: a request that fails with [`LinkError::NotSent`] has had no byte written.

use super::frame::{self, Kind, Parts};
use super::greeting::Purpose;
use crate::host::Stream;
use bytes::Bytes;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter, ReadHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

/// A connection that is not greeted after this long is given up.
pub(crate) const CONNECT: Duration = Duration::from_secs(2);
/// After a failed connection nothing is tried for this long, doubling up to the second.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// How often a peer that owes an answer is asked whether it is there.
const PING: Duration = Duration::from_secs(1);
/// A peer that owes an answer and says nothing for this long is gone.
const SILENCE: Duration = Duration::from_secs(4);
/// An idle connection is used this often, so that the listener keeps it.
const IDLE: Duration = Duration::from_secs(10);
/// A frame that cannot be written in this long means that the peer is gone.
const WRITE: Duration = Duration::from_secs(10);
const QUEUED: usize = 1024;

/// Why a request has no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum LinkError {
    /// It never left this node.
    #[error("{0}")]
    NotSent(String),
    /// The peer did not take it.
    #[error("{0}")]
    Refused(String),
    /// It was sent, whole or in part.
    #[error("{0}")]
    Lost(String),
}

type Answer = oneshot::Sender<Result<Bytes, LinkError>>;

struct Request {
    kind: Kind,
    body: Parts,
    answer: Answer,
}

/// Makes a greeted stream to the peer.
pub(crate) type Connect =
    Box<dyn Fn() -> BoxFuture<'static, io::Result<Box<dyn Stream>>> + Send + Sync>;

/// Handle to a link; clones share it. The connection ends with the last of them.
#[derive(Clone)]
pub(crate) struct Link {
    requests: mpsc::Sender<Request>,
}

impl Link {
    /// Starts the link's task on the current runtime; connects with the first request.
    pub(crate) fn new(purpose: Purpose, connect: Connect) -> Self {
        let (requests, queued) = mpsc::channel(QUEUED);
        tokio::spawn(run(purpose, connect, queued));
        Self { requests }
    }

    /// Sends one request and waits for its answer, `limit` at most.
    pub(crate) async fn ask(
        &self,
        kind: Kind,
        body: Bytes,
        limit: Duration,
    ) -> Result<Bytes, LinkError> {
        self.ask_parts(kind, [body, Bytes::new()], limit).await
    }

    /// The same, of a body in two parts.
    pub(crate) async fn ask_parts(
        &self,
        kind: Kind,
        body: Parts,
        limit: Duration,
    ) -> Result<Bytes, LinkError> {
        let ended = || LinkError::NotSent("this node is stopping".into());
        let (answer, answered) = oneshot::channel();
        let request = Request { kind, body, answer };
        let deadline = Instant::now() + limit;
        match tokio::time::timeout_at(deadline, self.requests.send(request)).await {
            Ok(queued) => queued.map_err(|_| ended())?,
            Err(_) => return Err(LinkError::NotSent("too many requests wait".into())),
        }
        match tokio::time::timeout_at(deadline, answered).await {
            Ok(answered) => answered.unwrap_or_else(|_| Err(LinkError::Lost("cut off".into()))),
            Err(_) => Err(LinkError::Lost(format!("no answer in {} ms", limit.as_millis()))),
        }
    }
}

async fn run(purpose: Purpose, connect: Connect, mut queued: mpsc::Receiver<Request>) {
    let mut backoff = BACKOFF.0;
    let mut down: Option<(Instant, String)> = None;
    while let Some(first) = queued.recv().await {
        if let Some((until, why)) = &down
            && Instant::now() < *until
        {
            let _ = first.answer.send(Err(LinkError::NotSent(why.clone())));
            continue;
        }
        match timeout(CONNECT, connect()).await {
            Ok(Ok(stream)) => {
                (backoff, down) = (BACKOFF.0, None);
                talk(purpose, stream, first, &mut queued).await;
            }
            failed => {
                let why = match failed {
                    Ok(Err(error)) => error.to_string(),
                    _ => "no connection in time".to_owned(),
                };
                let _ = first.answer.send(Err(LinkError::NotSent(why.clone())));
                down = Some((Instant::now() + backoff, why));
                backoff = (backoff * 2).min(BACKOFF.1);
            }
        }
    }
}

/// Requests that were sent and have no answer; `heard` is when the peer last said anything.
struct Open {
    answers: HashMap<u64, Answer>,
    heard: Instant,
    over: Option<String>,
}

async fn talk(
    purpose: Purpose,
    stream: Box<dyn Stream>,
    first: Request,
    queued: &mut mpsc::Receiver<Request>,
) {
    let (input, output) = tokio::io::split(stream);
    let open = Open { answers: HashMap::new(), heard: Instant::now(), over: None };
    let open = Arc::new(Mutex::new(open));
    let (over, mut ended) = oneshot::channel();
    let reader = tokio::spawn(listen(purpose, input, open.clone(), over));
    let mut output = BufWriter::with_capacity(64 << 10, output);
    let (mut next, mut number) = (Some(first), 0u64);
    let mut used = Instant::now();
    let why = loop {
        if let Some(Request { kind, body, answer }) = next.take() {
            number += 1;
            open.lock().answers.insert(number, answer);
            used = Instant::now();
            if let Err(error) = write(&mut output, number, kind, &body).await {
                break error.to_string();
            }
            continue_or_flush(&mut next, queued);
            if next.is_none()
                && let Err(error) = flush(&mut output).await
            {
                break error.to_string();
            }
            continue;
        }
        tokio::select! {
            request = queued.recv() => match request {
                Some(request) => next = Some(request),
                None => break "this node is stopping".into(),
            },
            why = &mut ended => break why.unwrap_or_else(|_| "the connection ended".into()),
            () = tokio::time::sleep(PING) => {
                let (owed, silent) = {
                    let open = open.lock();
                    (!open.answers.is_empty(), open.heard.elapsed())
                };
                if owed && silent > SILENCE && used.elapsed() > SILENCE {
                    break "the peer has gone silent".into();
                }
                if (owed && silent > PING) || used.elapsed() > IDLE {
                    used = if owed { used } else { Instant::now() };
                    let written = write(&mut output, 0, Kind::Ping, &Parts::default()).await;
                    if let Err(error) = written.and(flush(&mut output).await) {
                        break error.to_string();
                    }
                }
            }
        }
    };
    reader.abort();
    let answers = {
        let mut open = open.lock();
        open.over = Some(why.clone());
        std::mem::take(&mut open.answers)
    };
    for (_, answer) in answers {
        let _ = answer.send(Err(LinkError::Lost(why.clone())));
    }
}

/// Takes the next request if one waits already, so that small frames share a write.
fn continue_or_flush(next: &mut Option<Request>, queued: &mut mpsc::Receiver<Request>) {
    *next = queued.try_recv().ok();
}

type Output = BufWriter<tokio::io::WriteHalf<Box<dyn Stream>>>;

async fn write(output: &mut Output, number: u64, kind: Kind, body: &Parts) -> io::Result<()> {
    // Large frames get more time: a slow network is no dead one.
    let bytes: usize = body.iter().map(Bytes::len).sum();
    let limit = WRITE + Duration::from_millis(bytes as u64 / 1000);
    timeout(limit, frame::write(output, number, kind, body)).await?
}

async fn flush(output: &mut Output) -> io::Result<()> {
    timeout(WRITE, output.flush()).await?
}

async fn listen(
    purpose: Purpose,
    input: ReadHalf<Box<dyn Stream>>,
    open: Arc<Mutex<Open>>,
    over: oneshot::Sender<String>,
) {
    let mut input = BufReader::with_capacity(frame::READ_AHEAD, input);
    loop {
        let frame = match frame::read(&mut input, purpose.body_max()).await {
            Ok(frame) => frame,
            Err(error) => {
                let _ = over.send(format!("the connection ended: {error}"));
                return;
            }
        };
        let mut open = open.lock();
        open.heard = Instant::now();
        let Some(answer) = open.answers.remove(&frame.request) else { continue };
        let _ = answer.send(match frame.kind {
            Kind::Refused => {
                Err(LinkError::Refused(String::from_utf8_lossy(&frame.body).into_owned()))
            }
            _ => Ok(frame.body),
        });
    }
}
