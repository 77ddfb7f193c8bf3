//! Waiting between tries of the bucket: growing pauses with full jitter, one limiter per bucket.
//!
//! Owns: pauses, `Retry-After`, the record of whether the bucket can be reached.
//! Leaves to others: which errors are worth another try (`bucket::ErrorKind`).

use crate::bucket::{BucketError, ErrorKind};
use crate::metrics::Metrics;
use crate::status::BucketStatus;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(30);

/// The pause before try number `attempt` (from 1): anything up to 100 ms doubled each time, at most
/// 30 s, so that many waiters do not come back together. `random` decides.
pub fn pause(random: u64, attempt: u32) -> Duration {
    let most = FIRST.saturating_mul(1 << attempt.saturating_sub(1).min(20)).min(LONGEST);
    let share = (random >> 32) as f64 / f64::from(u32::MAX);
    most.mul_f64(share).max(Duration::from_millis(5))
}

/// Where the limiter's pauses get their randomness.
pub type Random = Box<dyn Fn() -> u64 + Send + Sync>;

/// The one limiter of a bucket, shared by all queues.
pub struct Limiter {
    random: Random,
    not_before: Mutex<Option<Instant>>,
    status: Arc<Mutex<BucketStatus>>,
    metrics: Arc<Metrics>,
}

impl Limiter {
    /// For one bucket.
    pub fn new(random: Random, status: Arc<Mutex<BucketStatus>>, metrics: Arc<Metrics>) -> Limiter {
        Limiter { random, not_before: Mutex::new(None), status, metrics }
    }

    /// Calls until it succeeds, or fails with an error that no pause mends. `told` is called with
    /// each error that is worth another try.
    pub async fn call<T, F>(
        &self,
        op: &'static str,
        mut told: impl FnMut(&BucketError),
        mut call: impl FnMut() -> F,
    ) -> Result<T, BucketError>
    where
        F: Future<Output = Result<T, BucketError>>,
    {
        let mut attempt = 0;
        loop {
            self.wait().await;
            let begun = Instant::now();
            let result = call().await;
            self.metrics.request(op, begun.elapsed(), result.as_ref().err().map(|e| e.kind));
            self.saw(result.as_ref().err());
            let err = match result {
                Err(err) if err.kind.transient() => err,
                result => return result,
            };
            attempt += 1;
            told(&err);
            if let Some(wait) = err.retry_after {
                let until = Instant::now() + wait;
                let mut not_before = self.not_before.lock();
                *not_before = Some(not_before.map_or(until, |other| other.max(until)));
            }
            tokio::time::sleep(pause((self.random)(), attempt)).await;
        }
    }

    /// Waits until the bucket takes requests again; those who waited come back one by one.
    async fn wait(&self) {
        loop {
            let until = (*self.not_before.lock()).filter(|until| *until > Instant::now());
            let Some(until) = until else { return };
            tokio::time::sleep_until(until + pause((self.random)(), 4)).await;
        }
    }

    fn saw(&self, err: Option<&BucketError>) {
        let mut status = self.status.lock();
        let reachable = err.is_none_or(|err| !matches!(err.kind, ErrorKind::Unreachable));
        if status.reachable != Some(reachable) {
            status.since = Some(Instant::now());
        }
        status.reachable = Some(reachable);
        status.error = err.map(|err| err.text.clone());
        status.kind = err.map(|err| err.kind.word());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ErrorKind, retry_after: Option<u64>) -> BucketError {
        let retry_after = retry_after.map(Duration::from_secs);
        BucketError { kind, text: "no".into(), retry_after }
    }

    fn limiter() -> Limiter {
        Limiter::new(Box::new(|| u64::MAX / 3), Arc::default(), Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_tried_until_it_works() {
        let limiter = limiter();
        let mut left = 40;
        let mut told = 0;
        let result = limiter.call(
            "put",
            |_| told += 1,
            || {
                left -= 1;
                std::future::ready(if left > 0 {
                    Err(error(ErrorKind::Throttled, None))
                } else {
                    Ok(7)
                })
            },
        );
        assert_eq!(result.await, Ok(7));
        assert_eq!(told, 39);
        let refused = error(ErrorKind::WrongSecret, None);
        let result =
            limiter.call("put", |_| {}, || std::future::ready(Err::<(), _>(refused.clone())));
        assert_eq!(result.await, Err(refused.clone()));
        assert_eq!(limiter.status.lock().kind, Some("wrong_secret"));
    }

    #[tokio::test(start_paused = true)]
    async fn retry_after_holds_for_every_caller() {
        let limiter = limiter();
        let begun = Instant::now();
        let mut first = true;
        let slow = limiter.call(
            "put",
            |_| {},
            || {
                let result = if first { Err(error(ErrorKind::Throttled, Some(7))) } else { Ok(()) };
                first = false;
                std::future::ready(result)
            },
        );
        let other = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            limiter.call("get", |_| {}, || std::future::ready(Ok(()))).await
        };
        let (a, b) = futures::join!(slow, other);
        assert!(a.is_ok() && b.is_ok() && begun.elapsed() >= Duration::from_secs(7));
    }

    #[test]
    fn pauses_grow_to_thirty_seconds() {
        assert!((1..60).all(|attempt| pause(u64::MAX, attempt) <= LONGEST));
        assert_eq!((pause(u64::MAX, 1), pause(u64::MAX, 60)), (FIRST, LONGEST));
        assert_eq!(pause(0, 60), Duration::from_millis(5));
    }
}
