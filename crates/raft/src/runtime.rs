//! The library's clock and tasks: tokio's, without the library's time limits on requests.
//!
//! Owns: that difference. The library ties the limit of an append to its heartbeat interval, and that to
//! the leader's lease, which must be short for a quick hand-over; but a follower may take long to sync.
//! The limits that hold are those of the transport.

use openraft::{AsyncRuntime, TokioRuntime};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// See the module's header.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Patient;

/// A future without a limit.
pub struct Unlimited<T>(Pin<Box<T>>);

impl<T: Future> Future for Unlimited<T> {
    type Output = Result<T::Output, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}

impl AsyncRuntime for Patient {
    type JoinError = <TokioRuntime as AsyncRuntime>::JoinError;
    type JoinHandle<T: Send + 'static> = <TokioRuntime as AsyncRuntime>::JoinHandle<T>;
    type Sleep = <TokioRuntime as AsyncRuntime>::Sleep;
    type Instant = <TokioRuntime as AsyncRuntime>::Instant;
    type TimeoutError = Infallible;
    type Timeout<R, T: Future<Output = R> + Send> = Unlimited<T>;
    type ThreadLocalRng = <TokioRuntime as AsyncRuntime>::ThreadLocalRng;
    type OneshotSender<T: Send> = <TokioRuntime as AsyncRuntime>::OneshotSender<T>;
    type OneshotReceiver<T: Send> = <TokioRuntime as AsyncRuntime>::OneshotReceiver<T>;
    type OneshotReceiverError = <TokioRuntime as AsyncRuntime>::OneshotReceiverError;

    fn spawn<T>(future: T) -> Self::JoinHandle<T::Output>
    where
        T: Future + Send + 'static,
        T::Output: Send + 'static,
    {
        TokioRuntime::spawn(future)
    }

    fn sleep(duration: Duration) -> Self::Sleep {
        TokioRuntime::sleep(duration)
    }

    fn sleep_until(deadline: Self::Instant) -> Self::Sleep {
        TokioRuntime::sleep_until(deadline)
    }

    fn timeout<R, F: Future<Output = R> + Send>(_: Duration, future: F) -> Self::Timeout<R, F> {
        Unlimited(Box::pin(future))
    }

    fn timeout_at<R, F: Future<Output = R> + Send>(
        _: Self::Instant,
        future: F,
    ) -> Self::Timeout<R, F> {
        Unlimited(Box::pin(future))
    }

    fn is_panic(join_error: &Self::JoinError) -> bool {
        TokioRuntime::is_panic(join_error)
    }

    fn thread_rng() -> Self::ThreadLocalRng {
        TokioRuntime::thread_rng()
    }

    fn oneshot<T: Send>() -> (Self::OneshotSender<T>, Self::OneshotReceiver<T>) {
        TokioRuntime::oneshot()
    }
}
