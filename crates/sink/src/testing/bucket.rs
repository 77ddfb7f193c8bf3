//! A bucket in memory that remembers every version of every object.

use super::{Fault, Faults};
use crate::bucket::{Bucket, BucketError, ErrorKind, Head, ObjectMeta, Parts};
use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// An object: bytes, SHA-256 in its metadata, how often it was written, all bytes it ever had.
#[derive(Clone, Debug)]
pub struct SimObject {
    pub bytes: Bytes,
    pub sha256: String,
    pub writes: usize,
    pub versions: Vec<Bytes>,
}

/// The bucket that all owners of a test share.
#[derive(Clone, Default)]
pub struct SimStore {
    objects: Arc<Mutex<BTreeMap<String, SimObject>>>,
    late: Arc<Mutex<Vec<(String, Bytes, String)>>>,
    down: Arc<Mutex<Option<BucketError>>>,
    /// Objects cannot be written, but read.
    full: Arc<Mutex<bool>>,
    /// Each PUT takes so long.
    slow: Arc<Mutex<Duration>>,
}

impl SimStore {
    /// The bucket, as one owner sees it.
    pub fn bucket(&self, faults: Arc<Faults>) -> Arc<dyn Bucket> {
        Arc::new(SimBucket { store: self.clone(), faults })
    }

    pub fn objects(&self) -> BTreeMap<String, SimObject> {
        self.objects.lock().clone()
    }

    pub fn keys(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Every request fails so, until `None`.
    pub fn fail(&self, kind: Option<ErrorKind>) {
        *self.down.lock() = kind.map(|kind| BucketError {
            kind,
            text: format!("the bucket is {}", kind.word()),
            retry_after: None,
        });
    }

    /// From now on every PUT fails, or none.
    pub fn refuse_puts(&self, refuse: bool) {
        *self.full.lock() = refuse;
    }

    /// From now on each PUT takes so long.
    pub fn slow_down(&self, time: Duration) {
        *self.slow.lock() = time;
    }

    /// What dead owners had sent arrives now.
    pub fn deliver_late(&self) {
        for (key, bytes, sha256) in std::mem::take(&mut *self.late.lock()) {
            self.write(&key, bytes, sha256);
        }
    }

    fn write(&self, key: &str, bytes: Bytes, sha256: String) {
        let mut objects = self.objects.lock();
        let (writes, mut versions) = objects
            .get(key)
            .map_or((0, Vec::new()), |object| (object.writes, object.versions.clone()));
        versions.push(bytes.clone());
        objects.insert(key.to_owned(), SimObject { bytes, sha256, writes: writes + 1, versions });
    }
}

struct SimBucket {
    store: SimStore,
    faults: Arc<Faults>,
}

impl SimBucket {
    fn up(&self) -> Result<(), BucketError> {
        self.store.down.lock().clone().map_or(Ok(()), Err)
    }
}

#[async_trait]
impl Bucket for SimBucket {
    async fn put(
        &self,
        key: &str,
        body: Vec<Bytes>,
        meta: ObjectMeta<'_>,
    ) -> Result<(), BucketError> {
        self.up()?;
        if *self.store.full.lock() {
            let text = "the bucket takes nothing".to_owned();
            return Err(BucketError { kind: ErrorKind::Throttled, text, retry_after: None });
        }
        let slow = *self.store.slow.lock();
        if slow > Duration::ZERO {
            tokio::time::sleep(slow).await;
        }
        let fault = self.faults.step().await;
        let bytes = Bytes::from(body.concat());
        if fault == Some(Fault::Late) {
            self.store.late.lock().push((key.to_owned(), bytes, meta.sha256.to_owned()));
            self.faults.die().await;
            return Ok(());
        }
        self.store.write(key, bytes, meta.sha256.to_owned());
        match fault {
            Some(Fault::After) => self.faults.die().await,
            Some(Fault::AnswerLost) => {
                let text = "the answer was lost".to_owned();
                return Err(BucketError { kind: ErrorKind::Unreachable, text, retry_after: None });
            }
            _ => {}
        }
        Ok(())
    }

    async fn get(&self, key: &str, _bytes_max: u64) -> Result<Option<Bytes>, BucketError> {
        self.up()?;
        Ok(self.store.objects.lock().get(key).map(|object| object.bytes.clone()))
    }

    async fn head(&self, key: &str) -> Result<Option<Head>, BucketError> {
        self.up()?;
        let head = |object: &SimObject| Head {
            bytes: object.bytes.len() as u64,
            sha256: Some(object.sha256.clone()),
        };
        Ok(self.store.objects.lock().get(key).map(head))
    }

    async fn begin(&self, key: &str, meta: ObjectMeta<'_>) -> Result<Box<dyn Parts>, BucketError> {
        self.up()?;
        Ok(Box::new(SimParts {
            store: self.store.clone(),
            faults: self.faults.clone(),
            key: key.to_owned(),
            sha256: meta.sha256.to_owned(),
            parts: Mutex::default(),
        }))
    }

    async fn abort(&self, _key: &str, _id: &str) -> Result<(), BucketError> {
        Ok(())
    }
}

struct SimParts {
    store: SimStore,
    faults: Arc<Faults>,
    key: String,
    sha256: String,
    parts: Mutex<BTreeMap<usize, Bytes>>,
}

#[async_trait]
impl Parts for SimParts {
    async fn put(&self, number: usize, body: Bytes) -> Result<(), BucketError> {
        self.faults.step().await;
        self.parts.lock().insert(number, body);
        Ok(())
    }

    async fn complete(&self, count: usize) -> Result<(), BucketError> {
        self.faults.step().await;
        let parts: Vec<Bytes> = (0..count).map(|n| self.parts.lock()[&n].clone()).collect();
        self.store.write(&self.key, parts.concat().into(), self.sha256.clone());
        Ok(())
    }

    fn id(&self) -> String {
        format!("upload of {}", self.key)
    }
}
