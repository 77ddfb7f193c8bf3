//! The listener and its connections.
//!
//! Owns: HTTP/1.1 and HTTP/2 on one port, keep-alive, the graceful end. Leaves to others: TLS (`tls`),
//! what a request means (`routes`).

use crate::answer::{Answer, Whole};
use crate::auth::{Auth, Denied, Identity};
use crate::call::Call;
use crate::routes::{self, Route};
use crate::tls::Tls;
use crate::unread::Unread;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use queen_broker::Broker;
use queen_core::{Code, Error};
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tracing::{debug, warn};

/// Settings of the listener.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Longest request body in bytes; 64 MiB.
    pub body_bytes_max: usize,
    /// Longest time for open requests to end at a stop.
    pub drain: Duration,
    /// What `/health` and `/status` say the release is.
    pub version: &'static str,
    /// Who may call; `None` lets everybody call everything, whatever token is sent.
    pub auth: Option<Arc<Auth>>,
    /// The certificate that it shows; `None` serves in the clear.
    pub tls: Option<Arc<Tls>>,
}

impl Default for ServerOptions {
    fn default() -> ServerOptions {
        ServerOptions {
            body_bytes_max: 64 << 20,
            drain: Duration::from_secs(10),
            version: env!("CARGO_PKG_VERSION"),
            auth: None,
            tls: None,
        }
    }
}

/// What another part of the process adds to the pages, such as the sink.
pub trait Extra: Send + Sync {
    /// Name of its section in `/status`, such as `s3`.
    fn name(&self) -> &'static str;
    /// Its section of `/status`.
    fn status(&self) -> serde_json::Value;
    /// Its families of `/metrics/prometheus`, in exposition text, each line ended.
    fn prometheus(&self, out: &mut String);
    /// Why it is not well, in words; asked by `/health?sink=true`.
    fn healthy(&self) -> Result<(), String>;
    /// Names of the sinks that it runs: a queue may hold its retention for them.
    fn sinks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// What every handler sees.
pub(crate) struct Face {
    pub(crate) broker: Broker,
    pub(crate) options: ServerOptions,
    pub(crate) extras: Vec<Arc<dyn Extra>>,
    pub(crate) started: std::time::Instant,
    /// KiB that large bodies may still take.
    large_bodies: Arc<Semaphore>,
}

/// KiB of large bodies that are read at the same time.
const LARGE_BODIES_KIB: usize = 256 << 10;

impl Face {
    /// Room for a body of so many bytes, or 429: memory stays bounded however many come at once.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Error> {
        let kib = u32::try_from((bytes >> 10).min(LARGE_BODIES_KIB)).unwrap_or(u32::MAX);
        Arc::clone(&self.large_bodies).try_acquire_many_owned(kib).map_err(|_| {
            Error::new(Code::Overloaded, "too many large requests at once, try again in a second")
        })
    }
}

/// A bound listener.
pub struct Server {
    listener: TcpListener,
    face: Arc<Face>,
}

impl Server {
    /// Binds `addr`. The error is the operating system's: a port in use, an address that is not ours.
    pub async fn bind(
        addr: SocketAddr,
        broker: Broker,
        options: ServerOptions,
        extras: Vec<Arc<dyn Extra>>,
    ) -> io::Result<Server> {
        let listener = TcpListener::bind(addr).await?;
        let started = std::time::Instant::now();
        let large_bodies = Arc::new(Semaphore::new(LARGE_BODIES_KIB));
        let face = Face { broker, options, extras, started, large_bodies };
        Ok(Server { listener, face: Arc::new(face) })
    }

    /// Where it listens.
    pub fn addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` is done, then lets open requests end within the drain time.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { listener, face } = self;
        let drain = face.options.drain;
        let graceful = GracefulShutdown::new();
        let (open, closed) = watch::channel(());
        let mut stop = std::pin::pin!(stop);
        let auth = face.options.auth.clone();
        let mut keys = std::pin::pin!(async move {
            match &auth {
                Some(auth) => auth.keep_fresh().await,
                None => std::future::pending().await,
            }
        });
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let watcher = graceful.watcher();
                        tokio::spawn(connection(stream, face.clone(), watcher, closed.clone()));
                    }
                    Err(e) => {
                        // Out of files or the like: wait for a connection to end rather than spin.
                        warn!(error = %e, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
                () = &mut stop => break,
                () = &mut keys => {}
            }
        }
        drop((listener, open));
        if tokio::time::timeout(drain, graceful.shutdown()).await.is_err() {
            warn!(after = ?drain, "connections were cut at the stop");
        }
    }
}

/// Serves one; a handshake ends when `open` closes.
async fn connection(
    stream: TcpStream,
    face: Arc<Face>,
    watcher: Watcher,
    mut open: watch::Receiver<()>,
) {
    if let Err(e) = stream.set_nodelay(true) {
        debug!(error = %e, "cannot set TCP_NODELAY");
    }
    let Some(tls) = face.options.tls.clone() else {
        return converse(stream, face, watcher).await;
    };
    let shaken = tokio::select! {
        shaken = tls.accept(stream) => shaken,
        _ = open.changed() => return,
    };
    match shaken {
        Ok(stream) => converse(stream, face, watcher).await,
        Err(e) => debug!(error = %e, "no TLS came about"),
    }
}

/// Answers the requests of a connection until it ends.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    face: Arc<Face>,
    watcher: Watcher,
) {
    let service = hyper::service::service_fn(move |request| {
        let face = Arc::clone(&face);
        async move { Ok::<_, Infallible>(serve(face, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).keep_alive(true);
    builder.http2().timer(TokioTimer::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    if let Err(e) = watcher.watch(connection).await {
        debug!(error = %e, "connection ended");
    }
}

async fn serve(face: Arc<Face>, request: Request<Incoming>) -> Response<Whole> {
    let (parts, body) = request.into_parts();
    let (head, version) = (parts.method == Method::HEAD, parts.version);
    let broker = face.broker.clone();
    let (unread, expects) = (Unread::new(body), parts.headers.contains_key(EXPECT));
    let result = match routes::find(&parts.method, parts.uri.path()) {
        Ok((route, params)) => match admit(&face, route, &parts).await {
            Ok(identity) => {
                let unread = unread.clone();
                (route.handler)(Call { face, parts, params, identity, unread, room: None }).await
            }
            Err(denied) => Ok(denied.into_answer()),
        },
        Err(refusal) => Err(refusal),
    };
    let mut answer: Answer =
        result.unwrap_or_else(|refusal| refusal.into_answer(|| leader(&broker)));
    if !unread.discard(expects).await && version < Version::HTTP_2 {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if head {
        *answer.body_mut() = Whole::default();
    }
    answer
}

/// Who sends the request, if such a one may.
async fn admit(face: &Face, route: &Route, parts: &Parts) -> Result<Option<Identity>, Denied> {
    match &face.options.auth {
        Some(auth) => auth.admit(route.level, parts.uri.path(), &parts.headers).await,
        None => Ok(None),
    }
}

/// Where the leader answers, if another node may lead and this one knows who does.
fn leader(broker: &Broker) -> Option<String> {
    broker.leader().map(|leader| leader.http).filter(|http| !http.is_empty())
}
