//! A bucket whose requests are made on threads of low priority.
//!
//! Owns: those threads, and that a request ends with whoever waits for it.
//! Leaves to others: the requests (`bucket_s3`), how low the priority is (`priority`).
//!
//! A request hashes its body for the signature, encrypts it for the connection and copies it into the
//! kernel: milliseconds of a core for each part. Leases and rows go through the log, on threads that
//! stay as they are.

use crate::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use async_trait::async_trait;
use bytes::Bytes;
use std::sync::Arc;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// Threads that send. They wait most of the time.
const THREADS: usize = 2;

/// Makes the threads.
pub fn threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(THREADS)
        .thread_name("queen-s3-send")
        .on_thread_start(crate::priority::lower)
        .enable_all()
        .build()
}

/// The bucket.
pub struct Below {
    bucket: Arc<dyn Bucket>,
    threads: Handle,
}

impl Below {
    /// `bucket`, with its requests on `threads`.
    pub fn new(bucket: Arc<dyn Bucket>, threads: &Handle) -> Below {
        Below { bucket, threads: threads.clone() }
    }
}

/// A request on its way; dropped, it ends.
struct Request<T>(JoinHandle<Result<T, BucketError>>);

impl<T> Drop for Request<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn made<T: Send + 'static>(
    threads: &Handle,
    request: impl Future<Output = Result<T, BucketError>> + Send + 'static,
) -> Result<T, BucketError> {
    let mut request = Request(threads.spawn(request));
    match (&mut request.0).await {
        Ok(answer) => answer,
        Err(end) => match end.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(BucketError {
                kind: ErrorKind::Unreachable,
                text: "the sink stops".to_owned(),
                retry_after: None,
            }),
        },
    }
}

#[async_trait]
impl Bucket for Below {
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        let (bucket, key, sha256) = (self.bucket.clone(), key.to_owned(), meta.sha256.to_owned());
        let content_type = meta.content_type;
        let put = async move {
            bucket.put(&key, body, ObjectMeta { content_type, sha256: &sha256 }).await
        };
        made(&self.threads, put).await
    }

    async fn get(&self, key: &str, bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        let (bucket, key) = (self.bucket.clone(), key.to_owned());
        made(&self.threads, async move { bucket.get(&key, bytes_max).await }).await
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        let (bucket, key) = (self.bucket.clone(), key.to_owned());
        made(&self.threads, async move { bucket.head(&key).await }).await
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        let (bucket, key, sha256) = (self.bucket.clone(), key.to_owned(), meta.sha256.to_owned());
        let content_type = meta.content_type;
        let begin =
            async move { bucket.begin(&key, ObjectMeta { content_type, sha256: &sha256 }).await };
        let parts = made(&self.threads, begin).await?;
        Ok(Box::new(PartsBelow { parts: parts.into(), threads: self.threads.clone() }))
    }

    async fn abort(&self, key: &str, id: &str) -> Result<(), BucketError> {
        let (bucket, key, id) = (self.bucket.clone(), key.to_owned(), id.to_owned());
        made(&self.threads, async move { bucket.abort(&key, &id).await }).await
    }
}

struct PartsBelow {
    parts: Arc<dyn Parts>,
    threads: Handle,
}

#[async_trait]
impl Parts for PartsBelow {
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError> {
        let parts = self.parts.clone();
        made(&self.threads, async move { parts.put(number, body).await }).await
    }

    async fn complete(&self, count: usize) -> Result<(), BucketError> {
        let parts = self.parts.clone();
        made(&self.threads, async move { parts.complete(count).await }).await
    }

    fn id(&self) -> String {
        self.parts.id()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tokio::sync::oneshot;

    /// Notes the thread that each request ran on, and holds those for `hangs` until they are dropped.
    #[derive(Default)]
    struct Noting {
        threads: Mutex<Vec<String>>,
        begun: Mutex<Option<oneshot::Sender<oneshot::Sender<()>>>>,
    }

    impl Noting {
        fn note(&self) {
            let name = std::thread::current().name().unwrap_or_default().to_owned();
            self.threads.lock().unwrap().push(name);
        }
    }

    #[async_trait]
    impl Bucket for Noting {
        async fn put(
            &self,
            _key: &str,
            _body: Vec<Bytes>,
            _meta: ObjectMeta<'_>,
        ) -> Result<(), BucketError> {
            self.note();
            Ok(())
        }

        async fn get(&self, _key: &str, _bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
            self.note();
            let (dropped, watch) = oneshot::channel();
            let begun = self.begun.lock().unwrap().take().unwrap();
            begun.send(dropped).unwrap();
            let _: Result<(), _> = watch.await;
            Ok(None)
        }

        async fn head(&self, _key: &str) -> Result<Option<Head>, BucketError> {
            panic!("a bug of the bucket")
        }

        async fn begin(
            &self,
            _key: &str,
            _meta: ObjectMeta<'_>,
        ) -> Result<Box<dyn Parts>, BucketError> {
            self.note();
            Ok(Box::new(Noting::default()))
        }

        async fn abort(&self, _key: &str, _id: &str) -> Result<(), BucketError> {
            self.note();
            Ok(())
        }
    }

    #[async_trait]
    impl Parts for Noting {
        async fn put(&self, _number: usize, _body: Bytes) -> Result<(), BucketError> {
            self.note();
            match self.threads.lock().unwrap().pop().as_deref() {
                Some("queen-s3-send") => Ok(()),
                other => panic!("a part was sent on {other:?}"),
            }
        }

        async fn complete(&self, _count: usize) -> Result<(), BucketError> {
            Ok(())
        }

        fn id(&self) -> String {
            "id".to_owned()
        }
    }

    const META: ObjectMeta<'_> = ObjectMeta { content_type: "text/plain", sha256: "" };

    /// A bucket over `noting` and its threads, which may end where nothing may block.
    fn below(noting: &Arc<Noting>) -> (Below, Threads) {
        let threads = threads().unwrap();
        (Below::new(noting.clone(), threads.handle()), Threads(Some(threads)))
    }

    struct Threads(Option<Runtime>);

    impl Drop for Threads {
        fn drop(&mut self) {
            if let Some(threads) = self.0.take() {
                threads.shutdown_background();
            }
        }
    }

    #[tokio::test]
    async fn requests_and_parts_run_on_threads_of_their_own() {
        let noting = Arc::new(Noting::default());
        let (below, _threads) = below(&noting);
        below.put("k", Vec::new(), META).await.unwrap();
        below.abort("k", "id").await.unwrap();
        let parts = below.begin("k", META).await.unwrap();
        parts.put(0, Bytes::new()).await.unwrap();
        assert_eq!(parts.id(), "id");
        assert_eq!(*noting.threads.lock().unwrap(), ["queen-s3-send"; 3]);
    }

    #[tokio::test]
    async fn a_request_ends_with_whoever_waits_for_it() {
        let noting = Arc::new(Noting::default());
        let (begun, asked) = oneshot::channel();
        *noting.begun.lock().unwrap() = Some(begun);
        let (below, _threads) = below(&noting);
        let mut request = below.get("k", 1);
        let mut dropped = tokio::select! {
            biased;
            dropped = asked => dropped.unwrap(),
            _ = &mut request => panic!("nobody answers"),
        };
        drop(request);
        // Not before the request's end is this over.
        dropped.closed().await;
    }

    #[tokio::test]
    #[should_panic(expected = "a bug of the bucket")]
    async fn a_panic_of_the_bucket_is_one_of_the_caller() {
        let (below, _threads) = below(&Arc::default());
        let _ = below.head("k").await;
    }
}
