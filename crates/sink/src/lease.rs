//! Ownership of a queue: a KV row that its holder renews, and the fence of every other write.
//!
//! Owns: claiming, renewing, releasing, and the batch that writes a row only while the lease is
//! held.
//! Leaves to others: who should claim what (`spread`), what is written (`commit`).
//! Upholds: `one-writer-commits`.
//!
//! The row's life is counted in stamps by the state machine; no clock of a node decides. Every
//! write of a holder names the version of the lease row it wrote last, as a required condition: a
//! holder that was overtaken changes nothing.

use crate::host::{Host, HostError};
use crate::retry::pause;
use queen_core::Stamp;
use queen_core::kv::{KvOp, KvOpKind, KvOutcome, KvResult, KvRow};
use queen_core::limits::SINK_NAMESPACE;
use queen_core::sink::Lease as LeaseRow;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch};

/// A write did not happen because this node does not own the queue any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue's lease is held by another node")]
pub struct Fenced;

/// Outcome of a claim.
pub enum Claim {
    /// Ours.
    Held(Arc<Lease>),
    /// Another node's, until this stamp.
    Other {
        /// Its name.
        instance: String,
        /// Expiry of the row.
        until: Option<Stamp>,
    },
}

/// A held lease.
pub struct Lease {
    host: Arc<dyn Host>,
    key: String,
    document: String,
    incarnation: String,
    ttl: Duration,
    /// Version of the lease row as this holder wrote it last. Locked across every write of it.
    version: Mutex<u64>,
    lost: watch::Sender<bool>,
}

/// A batch of operations, tried again while it is certain that nothing was written.
pub async fn kv(host: &dyn Host, ops: &[KvOp<'_>]) -> Result<KvOutcome, HostError> {
    let mut attempt = 0;
    loop {
        match host.kv(ops).await {
            Err(HostError::Retry(_)) => {
                attempt += 1;
                tokio::time::sleep(pause(host.random(), attempt.min(6))).await;
            }
            result => return result,
        }
    }
}

/// Reads rows by key, in the order of `keys`; tries for ever.
pub async fn rows(host: &dyn Host, keys: &[&str]) -> Vec<Option<KvRow>> {
    let ops: Vec<KvOp<'_>> = keys.iter().map(|key| op(KvOpKind::Get { key }, false)).collect();
    let mut attempt = 0;
    loop {
        if let Ok(KvOutcome::Done(results)) = kv(host, &ops).await {
            let row = |result| match result {
                KvResult::Row(row) => row,
                _ => None,
            };
            return results.into_iter().map(row).collect();
        }
        attempt += 1;
        tokio::time::sleep(pause(host.random(), attempt)).await;
    }
}

/// Writes a row that must not exist, or gives the one that does; tries for ever.
pub async fn put_once(host: &dyn Host, key: &str, value: &str) -> KvRow {
    let mut attempt = 0;
    loop {
        if let Some(row) = rows(host, &[key]).await.pop().flatten() {
            return row;
        }
        let put = KvOpKind::Put { key, value, ttl_seconds: None, expect: Some(0) };
        let _ = kv(host, &[op(put, false)]).await;
        attempt += 1;
        if attempt > 1 {
            tokio::time::sleep(pause(host.random(), attempt)).await;
        }
    }
}

/// An operation in the sink's namespace.
pub fn op(kind: KvOpKind<'_>, required: bool) -> KvOp<'_> {
    KvOp { ns: SINK_NAMESPACE, kind, required }
}

/// 16 hex digits that no other claim has.
pub fn incarnation(host: &dyn Host) -> String {
    format!("{:016x}", host.random())
}

impl Lease {
    /// Tries once to claim the row `key`. A row of the same instance is taken over at once: its
    /// process is gone.
    pub async fn claim(host: &Arc<dyn Host>, key: &str, instance: &str, ttl: Duration) -> Claim {
        let incarnation = incarnation(&**host);
        let since = host.now().0;
        let row =
            LeaseRow { instance: instance.to_owned(), incarnation: incarnation.clone(), since };
        let document = row.to_json();
        loop {
            let found = rows(&**host, &[key]).await.pop().flatten();
            let holder = found.as_ref().and_then(|row| LeaseRow::from_json(&row.value).ok());
            let ours = holder.as_ref().is_some_and(|holder| holder.incarnation == incarnation);
            let version = match (&found, holder) {
                (Some(row), _) if ours => {
                    return Claim::Held(Arc::new(Lease {
                        host: host.clone(),
                        key: key.to_owned(),
                        document,
                        incarnation,
                        ttl,
                        version: Mutex::new(row.version),
                        lost: watch::Sender::new(false),
                    }));
                }
                (Some(row), Some(holder)) if holder.instance != instance => {
                    return Claim::Other { instance: holder.instance, until: row.expires_at };
                }
                (Some(row), _) => row.version,
                (None, _) => 0,
            };
            let ttl_seconds = Some(ttl.as_secs().max(1));
            let put = KvOpKind::Put { key, value: &document, ttl_seconds, expect: Some(version) };
            // Whatever is answered, the next look tells who holds it.
            if kv(&**host, &[op(put, false)]).await.is_err() {
                tokio::time::sleep(pause(host.random(), 3)).await;
            }
        }
    }

    fn put_self(&self, version: u64) -> KvOp<'_> {
        let ttl_seconds = Some(self.ttl.as_secs().max(1));
        let expect = Some(version);
        op(KvOpKind::Put { key: &self.key, value: &self.document, ttl_seconds, expect }, true)
    }

    /// Renews until the lease is lost; completes then. Cancel-safe.
    pub async fn keep(&self) {
        let mut lost = self.lost.subscribe();
        loop {
            tokio::select! {
                biased;
                _ = lost.wait_for(|lost| *lost) => return,
                () = tokio::time::sleep(self.ttl / 3) => {}
            }
            let mut version = self.version.lock().await;
            match kv(&*self.host, &[self.put_self(*version)]).await {
                Ok(KvOutcome::Done(results)) => set(&mut version, results.first()),
                Ok(KvOutcome::Precondition { .. }) => self.lose(),
                Err(_) => match self.look().await {
                    Some(now) => *version = now,
                    None => self.lose(),
                },
            }
        }
    }

    fn lose(&self) {
        self.lost.send_replace(true);
    }

    /// Version of the row, if it is still this claim's.
    async fn look(&self) -> Option<u64> {
        let row = rows(&*self.host, &[&self.key]).await.pop().flatten()?;
        let holder = LeaseRow::from_json(&row.value).ok()?;
        (holder.incarnation == self.incarnation).then_some(row.version)
    }

    /// Writes the row `key`, which must have version `expect`, if the lease is still held; gives the
    /// row's new version. An answer that was lost is settled by reading.
    pub async fn put(&self, key: &str, value: &str, expect: u64) -> Result<u64, Fenced> {
        let mut version = self.version.lock().await;
        let mut attempt = 0;
        loop {
            if *self.lost.borrow() {
                return Err(Fenced);
            }
            let put = KvOpKind::Put { key, value, ttl_seconds: None, expect: Some(expect) };
            match kv(&*self.host, &[self.put_self(*version), op(put, true)]).await {
                Ok(KvOutcome::Done(results)) => {
                    set(&mut version, results.first());
                    let mut written = expect;
                    set(&mut written, results.get(1));
                    return Ok(written);
                }
                Ok(KvOutcome::Precondition { .. }) => {
                    self.lose();
                    return Err(Fenced);
                }
                Err(_) => {
                    attempt += 1;
                    tokio::time::sleep(pause(self.host.random(), attempt)).await;
                }
            }
            let found = rows(&*self.host, &[&self.key, key]).await;
            let holder = found[0].as_ref().map(|row| (row, LeaseRow::from_json(&row.value)));
            match holder {
                Some((row, Ok(holder))) if holder.incarnation == self.incarnation => {
                    *version = row.version;
                }
                _ => {
                    self.lose();
                    return Err(Fenced);
                }
            }
            match &found[1] {
                Some(row) if row.value == value.as_bytes() => return Ok(row.version),
                row if row.as_ref().map_or(0, |row| row.version) != expect => {
                    self.lose();
                    return Err(Fenced);
                }
                _ => {}
            }
        }
    }

    /// Gives the queue back, so that another node can claim it at once. Best effort: what is not
    /// released expires.
    pub async fn release(&self) {
        let version = self.version.lock().await;
        if !*self.lost.borrow() {
            let delete = KvOpKind::Delete { key: &self.key, expect: Some(*version) };
            let _ = self.host.kv(&[op(delete, false)]).await;
        }
        self.lose();
    }
}

/// Takes over the version of a written row.
fn set(version: &mut u64, result: Option<&KvResult>) {
    if let Some(KvResult::Applied(Some(row))) = result {
        *version = row.version;
    }
}
