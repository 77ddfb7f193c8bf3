//! A bucket in memory that remembers every version of every object.
//!
//! Owns: objects and uploads in parts. Leaves to others: how requests get here (`owner`).

use bytes::Bytes;
use parking_lot::Mutex;
use queen_sink::bucket::{BucketError, ErrorKind};
use std::collections::BTreeMap;

/// An object.
#[derive(Clone, Debug)]
pub struct SimObject {
    /// Its bytes now.
    pub bytes: Bytes,
    /// Its metadata `queen-sha256`.
    pub sha256: String,
    /// Every content that was ever written, oldest first; writing the same again counts too.
    pub versions: Vec<Bytes>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, SimObject>,
    uploads: BTreeMap<u64, BTreeMap<usize, Bytes>>,
    next_upload: u64,
    down: Option<BucketError>,
}

/// The bucket that all owners of a run share.
#[derive(Default)]
pub struct SimStore(Mutex<State>);

impl SimStore {
    /// All objects.
    pub fn objects(&self) -> BTreeMap<String, SimObject> {
        self.0.lock().objects.clone()
    }

    /// All keys.
    pub fn keys(&self) -> Vec<String> {
        self.0.lock().objects.keys().cloned().collect()
    }

    /// Every request fails so, until `None`.
    pub fn fail(&self, kind: Option<ErrorKind>) {
        self.0.lock().down = kind.map(|kind| BucketError {
            kind,
            text: format!("the bucket is {}", kind.word()),
            retry_after: None,
        });
    }

    /// Fails while the bucket is down.
    pub(super) fn up(&self) -> Result<(), BucketError> {
        self.0.lock().down.clone().map_or(Ok(()), Err)
    }

    /// Writes an object over whatever was there.
    pub(super) fn put(&self, key: &str, bytes: Bytes, sha256: &str) {
        let mut state = self.0.lock();
        let object = state.objects.entry(key.to_owned()).or_insert_with(|| SimObject {
            bytes: Bytes::new(),
            sha256: String::new(),
            versions: Vec::new(),
        });
        object.bytes = bytes.clone();
        object.sha256 = sha256.to_owned();
        object.versions.push(bytes);
    }

    /// An object's bytes and its metadata.
    pub fn get(&self, key: &str) -> Option<(Bytes, String)> {
        let state = self.0.lock();
        state.objects.get(key).map(|object| (object.bytes.clone(), object.sha256.clone()))
    }

    /// Begins an upload in parts.
    pub(super) fn begin(&self) -> u64 {
        let mut state = self.0.lock();
        state.next_upload += 1;
        let upload = state.next_upload;
        state.uploads.insert(upload, BTreeMap::new());
        upload
    }

    /// Takes a part.
    pub(super) fn part(&self, upload: u64, number: usize, bytes: Bytes) {
        if let Some(parts) = self.0.lock().uploads.get_mut(&upload) {
            parts.insert(number, bytes);
        }
    }

    /// Gives an upload up.
    pub(super) fn abort(&self, upload: u64) {
        self.0.lock().uploads.remove(&upload);
    }

    /// Makes the object of its parts; whether all were there. May come twice.
    pub(super) fn complete(&self, upload: u64, count: usize, key: &str, sha256: &str) -> bool {
        let parts = self.0.lock().uploads.get(&upload).cloned().unwrap_or_default();
        if parts.len() != count || parts.keys().copied().ne(0..count) {
            return false;
        }
        let body: Vec<Bytes> = parts.into_values().collect();
        self.put(key, body.concat().into(), sha256);
        true
    }
}
