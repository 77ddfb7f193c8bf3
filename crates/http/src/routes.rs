//! The route table: every method and path, and the handler it goes to.
//!
//! Owns: matching. A path is split on literal `/` before it is percent-decoded, so that an encoded
//! `/` stays within a name. `:name` is one piece, `*name` is the rest of the path, `/` included.

use crate::answer::{Answer, Refusal};
use crate::call::{Call, decode_piece};
use crate::{
    ack, analytics, cluster, dead_letter, fetch, group, health, kv, lease, lock, message, metrics,
    pop, push, queue, queue_status, status, switch, timer, trace, transaction,
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
struct Route {
    method: Method,
    path: &'static str,
    handler: Handler,
}

macro_rules! routes {
    ($($method:ident $path:literal => $([$newest:ident])? $handler:path,)*) => {
        /// All routes; the busiest first.
        static ROUTES: &[Route] = &[$(Route {
            method: Method::$method,
            path: $path,
            handler: |call| Box::pin(async move {
                $($newest(&call).await?;)?
                $handler(call).await
            }),
        },)*];
    };
}

routes! {
    POST "/api/v1/push" => push::push,
    GET "/api/v1/pop/queue/:queue" => pop::queue,
    POST "/api/v1/ack/batch" => ack::batch,
    POST "/api/v1/ack" => ack::one,
    GET "/api/v1/pop/queue/:queue/partition/:partition" => pop::partition,
    GET "/api/v1/pop" => pop::discovery,
    POST "/api/v1/transaction" => transaction::transaction,
    POST "/api/v1/locks" => lock::locks,
    POST "/api/v1/lease/:leaseId/extend" => lease::extend,
    GET "/health" => health::health,
    POST "/api/v1/kv" => kv::batch,
    GET "/api/v1/kv/:ns/*key" => kv::get,
    PUT "/api/v1/kv/:ns/*key" => kv::put,
    DELETE "/api/v1/kv/:ns/*key" => kv::delete,
    POST "/api/v1/resources/kv/list" => [newest] kv::list,
    GET "/api/v1/resources/kv/namespaces" => [newest] kv::namespaces,
    POST "/api/v1/timers" => timer::timers,
    GET "/api/v1/timers/:queue" => [newest] timer::list,
    GET "/api/v1/timers/:queue/*timerKey" => [newest] timer::peek,
    DELETE "/api/v1/timers/:queue/*timerKey" => timer::cancel,
    POST "/api/v1/fetch" => fetch::fetch,
    POST "/api/v1/partitions/changed" => fetch::changed,
    POST "/api/v1/configure" => queue::configure,
    GET "/api/v1/resources/queues" => [newest] queue::list,
    GET "/api/v1/resources/queues/:queue" => [newest] queue::detail,
    DELETE "/api/v1/resources/queues/:queue" => queue::delete,
    GET "/api/v1/resources/queues/:queue/depth" => [newest] queue::depth,
    GET "/api/v1/resources/partitions" => [newest] queue::partitions,
    GET "/api/v1/resources/overview" => [newest] queue::overview,
    GET "/api/v1/resources/namespaces" => [newest] queue::namespaces,
    GET "/api/v1/resources/tasks" => [newest] queue::tasks,
    GET "/api/v1/dlq" => [newest] dead_letter::list,
    DELETE "/api/v1/dlq" => dead_letter::purge,
    POST "/api/v1/dlq/:id/replay" => [newest] dead_letter::replay,
    GET "/api/v1/messages" => [newest] message::browse,
    GET "/api/v1/messages/:partitionId/:transactionId" => [newest] message::detail,
    POST "/api/v1/messages/:partitionId/:transactionId/retry" => [newest] dead_letter::retry_message,
    DELETE "/api/v1/messages/:partitionId/:transactionId" => dead_letter::delete_message,
    POST "/api/v1/traces" => trace::record,
    GET "/api/v1/traces/names" => [newest] trace::all_names,
    GET "/api/v1/traces/by-name/:name" => [newest] trace::by_name,
    GET "/api/v1/traces/:partitionId/:transactionId" => [newest] trace::of_message,
    GET "/api/v1/consumer-groups" => [newest] group::list,
    GET "/api/v1/consumer-groups/lagging" => [newest] group::lagging,
    GET "/api/v1/consumer-groups/:group" => [newest] group::detail,
    DELETE "/api/v1/consumer-groups/:group" => group::delete,
    POST "/api/v1/consumer-groups/:group/subscription" => group::subscription,
    POST "/api/v1/consumer-groups/:group/queues/:queue/seek" => group::seek_queue,
    POST "/api/v1/consumer-groups/:group/queues/:queue/partitions/:partition/seek" => group::seek_partition,
    DELETE "/api/v1/consumer-groups/:group/queues/:queue" => group::delete_on_queue,
    GET "/api/v1/system/kv-timers" => [newest] switch::kv_timers,
    POST "/api/v1/system/kv-timers" => switch::set_kv_timers,
    GET "/api/v1/raft/status" => cluster::status,
    GET "/api/v1/raft/members" => cluster::members,
    GET "/api/v1/system/raft/membership" => cluster::membership,
    POST "/api/v1/system/raft/learners" => cluster::add_learner,
    POST "/api/v1/system/raft/promote" => cluster::promote,
    PUT "/api/v1/system/raft/voters" => cluster::set_voters,
    DELETE "/api/v1/system/raft/members/:id" => cluster::remove,
    GET "/api/v1/status" => [newest] analytics::status,
    GET "/api/v1/status/queues" => [newest] queue_status::list,
    GET "/api/v1/status/queues/:queue" => [newest] queue_status::detail,
    GET "/api/v1/status/analytics" => analytics::analytics,
    GET "/api/v1/analytics/system-metrics" => analytics::system_metrics,
    GET "/api/v1/analytics/worker-metrics" => analytics::worker_metrics,
    POST "/api/v1/stats/refresh" => analytics::refresh,
    GET "/status" => status::status,
    GET "/metrics" => metrics::json_page,
    GET "/metrics/prometheus" => metrics::prometheus,
}

/// The handler of a path, and its decoded pieces.
pub(crate) fn find(method: &Method, path: &str) -> Result<(Handler, Vec<String>), Refusal> {
    for route in ROUTES {
        if route.method != *method && !(route.method == Method::GET && *method == Method::HEAD) {
            continue;
        }
        if let Some(pieces) = matches(route.path, path) {
            let params = pieces.into_iter().map(decode_piece).collect::<Result<_, _>>()?;
            return Ok((route.handler, params));
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
    fn no_two_routes_are_the_same() {
        for (i, a) in ROUTES.iter().enumerate() {
            assert!(a.path.starts_with('/'));
            assert!(ROUTES[..i].iter().all(|b| (&b.method, b.path) != (&a.method, a.path)));
        }
    }
}
