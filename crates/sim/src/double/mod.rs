//! The bucket double: a small S3 server over real HTTP that does as a test tells it.
//!
//! Owns: the handle [`Double`], which starts the server on a free loopback port, scripts it, and
//! shows what happened. Leaves to others: HTTP (`serve`), what a request asks for (`request`),
//! signatures (`signature`), header rules and policies (`strict`), scripts (`rule`), the objects
//! (`store`), the bodies of answers (`xml`).
//!
//! For faults only: where a test wants a bucket that works it uses a real server. The double is
//! strict where real servers are lax: it checks every signature and the hash of every body, refuses
//! `x-amz-*` headers that are not signed, and knows missing buckets, wrong regions and wrong clocks.
//!
//! ```no_run
//! # use queen_sim::double::{Answer, Double, Op, Rule};
//! # async fn example() -> anyhow::Result<()> {
//! let double = Double::start().await?;
//! // The first two ends of uploads fail inside a 200, as Amazon's do.
//! double.rule(Rule::on(Op::Complete).times(2).answer(Answer::error(200, "InternalError", "again")));
//! // Every second manifest loses its answer after it was written.
//! double.rule(Rule::on(Op::Put).key("/windows/").skip(1).times(1).drop_after());
//! double.strict(|strict| strict.integrity = true);
//! // … run something against double.endpoint() …
//! assert_eq!(double.count(Op::Complete), 3);
//! # Ok(()) }
//! ```

mod answer;
mod request;
mod rule;
mod serve;
mod signature;
mod store;
mod strict;
#[cfg(test)]
#[path = "double_tests.rs"]
mod tests;
mod xml;

pub use answer::Answer;
pub use request::{Op, Request};
pub use rule::{Rule, Then};
pub use store::{Upload, Version};
pub use strict::{Conditions, Policy, Strict};

use crate::process::{ACCESS_KEY, BUCKET, SECRET_KEY};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

/// One request that was made, and what became of it.
#[derive(Clone, Debug)]
pub struct Event {
    /// When its head and body had arrived, on the runtime's clock.
    pub at: Instant,
    /// What was asked; its body is dropped, so that a log of many requests stays small.
    pub request: Request,
    /// Length of its body, bytes.
    pub body_bytes: u64,
    /// Status of the answer; `None` when the connection was dropped, or the answer is still due.
    pub status: Option<u16>,
}

/// A key that may sign requests.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    pub secret: String,
    pub token: Option<String>,
    /// The answer is `ExpiredToken`.
    pub expired: bool,
}

/// What is told, seen and kept.
pub(crate) struct Inner {
    pub bucket: String,
    pub region: String,
    pub keys: BTreeMap<String, Key>,
    /// Seconds that the double's clock is ahead.
    pub clock_ahead: i64,
    pub strict: Strict,
    pub rules: Vec<Rule>,
    pub store: store::Store,
    pub events: Vec<Event>,
}

#[derive(Clone)]
pub(crate) struct Shared {
    pub inner: Arc<Mutex<Inner>>,
    /// Number of events and answers so far.
    pub news: Arc<watch::Sender<u64>>,
}

/// The server. Dropped, it stops, and all is gone.
pub struct Double {
    shared: Shared,
    endpoint: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Double {
    /// Serves an empty bucket on a free port, in the runtime of the caller. It takes the key, secret
    /// and bucket of the other test servers, in region `us-east-1`, in the path or in the host name.
    pub async fn start() -> anyhow::Result<Double> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let endpoint = format!("http://{}", listener.local_addr()?);
        let key = Key { secret: SECRET_KEY.to_owned(), token: None, expired: false };
        let inner = Inner {
            bucket: BUCKET.to_owned(),
            region: "us-east-1".to_owned(),
            keys: BTreeMap::from([(ACCESS_KEY.to_owned(), key)]),
            clock_ahead: 0,
            strict: Strict::default(),
            rules: Vec::new(),
            store: store::Store::default(),
            events: Vec::new(),
        };
        let news = Arc::new(watch::Sender::new(0));
        let shared = Shared { inner: Arc::new(Mutex::new(inner)), news };
        let accepting = shared.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve::connection(accepting.clone(), stream));
            }
        });
        Ok(Double { shared, endpoint, serving })
    }

    /// Where it answers.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// Serves one more connection, such as one under TLS; completes when it ends.
    pub fn connection<S>(&self, stream: S) -> impl Future<Output = ()> + Send + use<S>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        serve::connection(self.shared.clone(), stream)
    }

    /// Adds a rule; of those that match a request, the first that has turns left acts.
    pub fn rule(&self, rule: Rule) {
        self.shared.inner.lock().rules.push(rule);
    }

    /// Forgets every rule.
    pub fn obey_no_rule(&self) {
        self.shared.inner.lock().rules.clear();
    }

    /// Changes what the double insists on.
    pub fn strict(&self, change: impl FnOnce(&mut Strict)) {
        change(&mut self.shared.inner.lock().strict);
    }

    /// Takes requests signed by this key too (or with another secret or token from now on).
    pub fn accept_key(&self, access: &str, secret: &str, token: Option<&str>) {
        let (secret, token) = (secret.to_owned(), token.map(str::to_owned));
        let key = Key { secret, token, expired: false };
        self.shared.inner.lock().keys.insert(access.to_owned(), key);
    }

    /// Answers `ExpiredToken` to this key from now on.
    pub fn expire_key(&self, access: &str) {
        if let Some(key) = self.shared.inner.lock().keys.get_mut(access) {
            key.expired = true;
        }
    }

    /// Knows no key any more but those accepted after.
    pub fn forget_keys(&self) {
        self.shared.inner.lock().keys.clear();
    }

    /// Puts its clock ahead of this machine's by so many seconds.
    pub fn clock_ahead(&self, seconds: i64) {
        self.shared.inner.lock().clock_ahead = seconds;
    }

    /// Lies in this region from now on.
    pub fn region(&self, region: &str) {
        self.shared.inner.lock().region = region.to_owned();
    }

    /// Every request so far, in order of arrival.
    pub fn events(&self) -> Vec<Event> {
        self.shared.inner.lock().events.clone()
    }

    /// Requests of one kind so far.
    pub fn count(&self, op: Op) -> usize {
        self.shared.inner.lock().events.iter().filter(|event| event.request.op == op).count()
    }

    /// Completes when the requests so far satisfy `enough`, looked at after each request and answer.
    pub async fn until(&self, mut enough: impl FnMut(&[Event]) -> bool) {
        let mut news = self.shared.news.subscribe();
        loop {
            news.borrow_and_update();
            if enough(&self.shared.inner.lock().events) {
                return;
            }
            // The sender lives as long as the double.
            let _ = news.changed().await;
        }
    }

    /// Every version of every object, the newest last; a deletion is no version.
    pub fn objects(&self) -> BTreeMap<String, Vec<Version>> {
        self.shared.inner.lock().store.objects.clone()
    }

    /// The newest version of an object.
    pub fn object(&self, key: &str) -> Option<Version> {
        self.shared.inner.lock().store.newest(key).cloned()
    }

    /// Uploads in parts that were begun and neither completed nor given up.
    pub fn uploads(&self) -> Vec<Upload> {
        self.shared.inner.lock().store.uploads.values().cloned().collect()
    }

    /// Forgets the uploads that are on their way, as a lifecycle rule does.
    pub fn forget_uploads(&self) {
        self.shared.inner.lock().store.uploads.clear();
    }

    /// Puts an object there by another hand.
    pub fn put(&self, key: &str, bytes: impl Into<bytes::Bytes>) {
        self.shared.inner.lock().store.put(key, bytes.into(), Vec::new());
    }

    /// Deletes an object by another hand.
    pub fn delete(&self, key: &str) {
        self.shared.inner.lock().store.delete(key);
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.serving.abort();
    }
}
