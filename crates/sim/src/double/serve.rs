//! HTTP: requests in, answers out, connections that end when a rule says so.
//!
//! Owns: reading a request whole, the order in which rules, signatures and policies have their say,
//! the log of events. Leaves to others: each of these.

use super::{Answer, Event, Op, Request, Shared, Then, signature};
use bytes::Bytes;
use futures::StreamExt;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;

/// The connection ends without an answer.
#[derive(Debug, thiserror::Error)]
#[error("dropped as the test wants it")]
struct Dropped;

type Sent = Response<BoxBody<Bytes, Infallible>>;

/// Serves one connection to its end.
pub(super) async fn connection<S>(shared: Shared, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = service_fn(move |request| answer(shared.clone(), request));
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(TokioIo::new(stream), service);
    // A client that goes away in the middle, or a rule that drops it, is no concern of the server.
    let _ = connection.await;
}

async fn answer(shared: Shared, request: hyper::Request<Incoming>) -> Result<Sent, Dropped> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Dropped)?.to_bytes();
    let (request, event, then) = arrived(&shared, &head, body);
    let outcome = outcome(&shared, &request, then).await;
    let mut inner = shared.inner.lock();
    let status = outcome.as_ref().ok().map(|answer| answer.status);
    if let Some(event) = inner.events.get_mut(event) {
        event.status = status;
    }
    drop(inner);
    shared.news.send_modify(|news| *news += 1);
    outcome.and_then(|answer| sent(&request, answer))
}

/// Logs the request and finds the rule for it.
fn arrived(
    shared: &Shared,
    head: &hyper::http::request::Parts,
    body: Bytes,
) -> (Request, usize, Option<Then>) {
    let mut inner = shared.inner.lock();
    let request = Request::parse(head, body, &inner.bucket);
    let logged = Request { body: Bytes::new(), ..request.clone() };
    let body_bytes = request.body.len() as u64;
    inner.events.push(Event { at: Instant::now(), request: logged, body_bytes, status: None });
    let event = inner.events.len() - 1;
    let then = inner.rules.iter_mut().find_map(|rule| rule.take(&request));
    drop(inner);
    shared.news.send_modify(|news| *news += 1);
    (request, event, then)
}

async fn outcome(
    shared: &Shared,
    request: &Request,
    then: Option<Then>,
) -> Result<Answer, Dropped> {
    Ok(match then {
        None => done(shared, request),
        Some(Then::Answer(answer)) => answer,
        Some(Then::DoneAnswer(answer)) => {
            done(shared, request);
            answer
        }
        Some(Then::Wait(time)) => {
            tokio::time::sleep(time).await;
            done(shared, request)
        }
        Some(Then::Hang) => std::future::pending().await,
        Some(Then::DropBefore) => return Err(Dropped),
        Some(Then::DropAfter) => {
            done(shared, request);
            return Err(Dropped);
        }
        Some(Then::Change(change)) => change(done(shared, request)),
        Some(Then::ForgetUpload) => {
            let id = request.parameter("uploadId").unwrap_or_default();
            shared.inner.lock().store.uploads.remove(id);
            done(shared, request)
        }
    })
}

/// Does what is asked, if the request may.
fn done(shared: &Shared, request: &Request) -> Answer {
    let mut inner = shared.inner.lock();
    let inner = &mut *inner;
    if let Err(refused) = signature::check(inner, request) {
        return refused;
    }
    if request.bucket != inner.bucket {
        return Answer::error(404, "NoSuchBucket", "The specified bucket does not exist");
    }
    if let Err(refused) = inner.strict.check(request, &inner.store) {
        return refused;
    }
    inner.store.apply(request, &inner.strict, &inner.bucket)
}

fn sent(request: &Request, answer: Answer) -> Result<Sent, Dropped> {
    let mut response = Response::new(body(request, &answer));
    *response.status_mut() = StatusCode::from_u16(answer.status).map_err(|_| Dropped)?;
    let headers = response.headers_mut();
    for (name, value) in &answer.headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| Dropped)?;
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| Dropped)?);
    }
    let paused = answer.body.iter().any(|(pause, _)| *pause > Duration::ZERO);
    let length: u64 = answer.body.iter().map(|(_, piece)| piece.len() as u64).sum();
    let length = match request.op {
        Op::Head => answer.told_length.unwrap_or(0),
        _ => length,
    };
    // A body with pauses is of unknown length, so that what comes after the blanks is free.
    if !paused && answer.status != 204 && answer.status != 304 {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(response)
}

fn body(request: &Request, answer: &Answer) -> BoxBody<Bytes, Infallible> {
    let pieces = match request.op {
        Op::Head => Vec::new(),
        _ => answer.body.clone(),
    };
    let pieces = futures::stream::iter(pieces).then(|(pause, piece)| async move {
        if pause > Duration::ZERO {
            tokio::time::sleep(pause).await;
        }
        Ok(Frame::data(piece))
    });
    BodyExt::boxed(StreamBody::new(pieces))
}
