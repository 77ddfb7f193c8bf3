//! The route table: every method and path, who may call it, and the handler it goes to.
//!
//! Owns: matching. A path is split on literal `/` before it is percent-decoded, so that an encoded
//! `/` stays within a name. `:name` is one piece, `*name` is the rest of the path, `/` included. A level
//! belongs to one line and never to a prefix, so that no new route is open by where it lies.

use crate::answer::{Answer, Refusal};
use crate::auth::Level;
use crate::call::{Call, decode_piece};
use crate::{
    ack, analytics, cluster, dead_letter, ephemeral, fetch, group, health, kv, lease, lock,
    message, metrics, pop, push, queue, queue_status, status, stream, switch, timer, trace,
    transaction,
};
use hyper::Method;
use std::future::Future;
use std::pin::Pin;

/// Brings this node up to all that was committed when the request came: the marked reads see every
/// write that was answered before, on whichever node.
async fn newest(call: &Call) -> Result<(), Refusal> {
    Ok(call.broker().barrier().await?)
}

type Handled = Pin<Box<dyn Future<Output = Result<Answer, Refusal>> + Send>>;
type Handler = fn(Call) -> Handled;

/// A line of the table.
pub(crate) struct Route {
    method: Method,
    path: &'static str,
    /// What the caller's token must allow, where tokens are asked for.
    pub(crate) level: Level,
    pub(crate) handler: Handler,
}

macro_rules! routes {
    ($($method:ident $path:literal => $level:ident $([$newest:ident])? $handler:path,)*) => {
        /// All routes; the busiest first.
        static ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            level: Level::$level,
            handler: |call| Box::pin(async move {
                $($newest(&call).await?;)?
                $handler(call).await
            }),
        },)*];
    };
}

routes! {
    POST "/api/v1/push" => Write push::push,
    GET "/api/v1/pop/queue/:queue" => ReadWrite pop::queue,
    POST "/api/v1/ack/batch" => ReadWrite ack::batch,
    POST "/api/v1/ack" => ReadWrite ack::one,
    GET "/api/v1/pop/queue/:queue/partition/:partition" => ReadWrite pop::partition,
    GET "/api/v1/pop" => ReadWrite pop::discovery,
    POST "/api/v1/transaction" => ReadWrite transaction::transaction,
    POST "/api/v1/locks" => ReadWrite lock::locks,
    POST "/api/v1/lease/:leaseId/extend" => ReadWrite lease::extend,
    GET "/health" => Public health::health,
    POST "/api/v1/kv" => ReadWrite kv::batch,
    GET "/api/v1/kv/:ns/*key" => ReadWrite kv::get,
    PUT "/api/v1/kv/:ns/*key" => ReadWrite kv::put,
    DELETE "/api/v1/kv/:ns/*key" => ReadWrite kv::delete,
    POST "/api/v1/resources/kv/list" => Read [newest] kv::list,
    GET "/api/v1/resources/kv/namespaces" => Read [newest] kv::namespaces,
    POST "/api/v1/timers" => Write timer::timers,
    GET "/api/v1/timers/:queue" => ReadWrite [newest] timer::list,
    GET "/api/v1/timers/:queue/*timerKey" => ReadWrite [newest] timer::peek,
    DELETE "/api/v1/timers/:queue/*timerKey" => ReadWrite timer::cancel,
    POST "/streams/v1/cycle" => ReadWrite stream::cycle,
    POST "/streams/v1/state/get" => Read [newest] stream::state,
    POST "/streams/v1/state/partitions" => Read [newest] stream::partitions,
    POST "/streams/v1/claim" => ReadWrite stream::claim,
    POST "/streams/v1/queries" => ReadWrite stream::register,
    POST "/api/v1/ephemeral/push" => Write ephemeral::push,
    GET "/api/v1/ephemeral/pop" => ReadWrite ephemeral::pop,
    POST "/api/v1/ephemeral/ack" => ReadWrite ephemeral::ack,
    POST "/api/v1/ephemeral/configure" => ReadWrite ephemeral::configure,
    POST "/api/v1/ephemeral/reset" => ReadWrite ephemeral::reset,
    DELETE "/api/v1/ephemeral/queue/:queue" => ReadWrite ephemeral::delete,
    GET "/api/v1/ephemeral/queues" => Read ephemeral::queues,
    GET "/api/v1/ephemeral/queues/:queue/depth" => Read ephemeral::depth,
    POST "/api/v1/fetch" => Read fetch::fetch,
    POST "/api/v1/partitions/changed" => Read fetch::changed,
    POST "/api/v1/configure" => ReadWrite queue::configure,
    GET "/api/v1/resources/queues" => Read [newest] queue::list,
    GET "/api/v1/resources/queues/:queue" => Read [newest] queue::detail,
    DELETE "/api/v1/resources/queues/:queue" => Admin queue::delete,
    GET "/api/v1/resources/queues/:queue/depth" => Read [newest] queue::depth,
    GET "/api/v1/resources/partitions" => Read [newest] queue::partitions,
    GET "/api/v1/resources/overview" => Read [newest] queue::overview,
    GET "/api/v1/resources/namespaces" => Read [newest] queue::namespaces,
    GET "/api/v1/resources/tasks" => Read [newest] queue::tasks,
    GET "/api/v1/dlq" => Read [newest] dead_letter::list,
    DELETE "/api/v1/dlq" => Admin dead_letter::purge,
    POST "/api/v1/dlq/:id/replay" => ReadWrite [newest] dead_letter::replay,
    GET "/api/v1/messages" => Read [newest] message::browse,
    GET "/api/v1/messages/:partitionId/:transactionId" => Read [newest] message::detail,
    POST "/api/v1/messages/:partitionId/:transactionId/retry" => ReadWrite [newest] dead_letter::retry_message,
    DELETE "/api/v1/messages/:partitionId/:transactionId" => ReadWrite dead_letter::delete_message,
    POST "/api/v1/traces" => ReadWrite trace::record,
    GET "/api/v1/traces/names" => Read [newest] trace::all_names,
    GET "/api/v1/traces/by-name/:name" => Read [newest] trace::by_name,
    GET "/api/v1/traces/:partitionId/:transactionId" => Read [newest] trace::of_message,
    GET "/api/v1/consumer-groups" => Read [newest] group::list,
    GET "/api/v1/consumer-groups/lagging" => Read [newest] group::lagging,
    GET "/api/v1/consumer-groups/:group" => Read [newest] group::detail,
    DELETE "/api/v1/consumer-groups/:group" => Admin group::delete,
    POST "/api/v1/consumer-groups/:group/subscription" => ReadWrite group::subscription,
    POST "/api/v1/consumer-groups/:group/queues/:queue/seek" => ReadWrite group::seek_queue,
    POST "/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek" => ReadWrite group::seek_partition,
    DELETE "/api/v1/consumer-groups/:group/queues/:queue" => Admin group::delete_on_queue,
    GET "/api/v1/system/kv-timers" => Admin [newest] switch::kv_timers,
    POST "/api/v1/system/kv-timers" => Admin switch::set_kv_timers,
    GET "/api/v1/system/ephemeral" => Admin [newest] switch::ephemeral,
    POST "/api/v1/system/ephemeral" => Admin switch::set_ephemeral,
    GET "/api/v1/raft/status" => Admin cluster::status,
    GET "/api/v1/raft/members" => Admin cluster::members,
    GET "/api/v1/system/raft/membership" => Admin cluster::membership,
    POST "/api/v1/system/raft/learners" => Admin cluster::add_learner,
    POST "/api/v1/system/raft/promote" => Admin cluster::promote,
    PUT "/api/v1/system/raft/voters" => Admin cluster::set_voters,
    DELETE "/api/v1/system/raft/members/:id" => Admin cluster::remove,
    GET "/api/v1/status" => Read [newest] analytics::status,
    GET "/api/v1/status/queues" => Read [newest] queue_status::list,
    GET "/api/v1/status/queues/:queue" => Read [newest] queue_status::detail,
    GET "/api/v1/status/analytics" => Read analytics::analytics,
    GET "/api/v1/analytics/system-metrics" => Read analytics::system_metrics,
    GET "/api/v1/analytics/worker-metrics" => Read analytics::worker_metrics,
    POST "/api/v1/stats/refresh" => Admin analytics::refresh,
    GET "/status" => Read status::status,
    GET "/metrics" => Public metrics::json_page,
    GET "/metrics/prometheus" => Public metrics::prometheus,
}

/// The route of a path, and its decoded pieces.
pub(crate) fn find(method: &Method, path: &str) -> Result<(&'static Route, Vec<String>), Refusal> {
    for route in ROUTES {
        if route.method != *method && !(route.method == Method::GET && *method == Method::HEAD) {
            continue;
        }
        if let Some(pieces) = matches(route.path, path) {
            let params = pieces.into_iter().map(decode_piece).collect::<Result<_, _>>()?;
            return Ok((route, params));
        }
    }
    Err(Refusal::NoRoute)
}

/// The raw pieces at the pattern's parameters, when the path is one of the pattern's.
fn matches<'a>(pattern: &str, path: &'a str) -> Option<Vec<&'a str>> {
    let mut params = Vec::new();
    let (mut pattern, mut path) = (pattern.strip_prefix('/')?, path.strip_prefix('/')?);
    loop {
        if pattern.starts_with('*') {
            params.push(path);
            return (!path.is_empty()).then_some(params);
        }
        let (want, more_pattern) = split(pattern);
        let (have, more_path) = split(path);
        if want.starts_with(':') {
            params.push(have);
        } else if want != have {
            return None;
        }
        match (more_pattern, more_path) {
            (Some(a), Some(b)) => (pattern, path) = (a, b),
            (None, None) => return Some(params),
            _ => return None,
        }
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    match text.split_once('/') {
        Some((piece, rest)) => (piece, Some(rest)),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_split_before_they_are_decoded() {
        let at = |pattern, path| matches(pattern, path);
        assert_eq!(at("/a/:q/p/:p", "/a/x%2Fy/p/z"), Some(vec!["x%2Fy", "z"]));
        assert_eq!(at("/a/:q", "/a/x/y"), None);
        assert_eq!(at("/a/:q", "/a/"), Some(vec![""]));
        assert_eq!(at("/a/:q", "/a"), None);
        assert_eq!(at("/kv/:ns/*key", "/kv/n/a/b%20c"), Some(vec!["n", "a/b%20c"]));
        assert_eq!(at("/kv/:ns/*key", "/kv/n/"), None);
        assert_eq!(decode_piece("a%2Fb%20c+d").unwrap(), "a/b c+d");
        assert!(decode_piece("%ff").is_err());
    }

    #[test]
    fn only_these_routes_are_for_everybody() {
        let open = ROUTES.iter().filter(|route| route.level == Level::Public);
        let open: Vec<&str> = open.map(|route| route.path).collect();
        assert_eq!(open, ["/health", "/metrics", "/metrics/prometheus"]);
    }

    #[test]
    fn of_what_readers_may_call_only_these_are_no_get() {
        let other = |route: &&Route| route.level == Level::Read && route.method != Method::GET;
        let other: Vec<&str> = ROUTES.iter().filter(other).map(|route| route.path).collect();
        let questions = [
            "/api/v1/resources/kv/list",
            "/streams/v1/state/get",
            "/streams/v1/state/partitions",
            "/api/v1/fetch",
            "/api/v1/partitions/changed",
        ];
        assert_eq!(other, questions, "questions with a body; what changes something is none");
    }

    #[test]
    fn no_two_routes_are_the_same() {
        for (i, a) in ROUTES.iter().enumerate() {
            assert!(a.path.starts_with('/'));
            assert!(ROUTES[..i].iter().all(|b| (&b.method, b.path) != (&a.method, a.path)));
        }
    }
}
