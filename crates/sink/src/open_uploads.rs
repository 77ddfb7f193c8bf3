//! Uploads in parts that are on their way, remembered beyond the life of their owner.
//!
//! Owns: the row that lists them, and giving up those that nobody will complete: parts of them cost
//! money until they are. Leaves to others: sending the parts (`upload`).
//!
//! The row is written, under the lease, after an upload was begun and before its first part. An owner
//! that dies in between leaves an upload without parts, for the bucket's lifecycle rule.

use crate::bucket::Bucket;
use crate::lease::{Fenced, Lease};
use parking_lot::Mutex;
use queen_core::sink::{OpenUpload, Uploads};

/// The uploads of one queue.
#[derive(Debug)]
pub struct OpenUploads {
    row: String,
    open: Mutex<Vec<OpenUpload>>,
    /// Of the row. Locked across every write of it.
    version: tokio::sync::Mutex<u64>,
}

impl OpenUploads {
    /// As the row `row` of this version says. A row that cannot be read lists nothing: what it said
    /// is no more than a debt.
    pub fn new(row: String, found: Option<queen_core::kv::KvRow>) -> OpenUploads {
        let version = found.as_ref().map_or(0, |row| row.version);
        let document = found.and_then(|row| Uploads::from_json(&row.value).ok());
        let open = document.map(|document| document.uploads).unwrap_or_default();
        OpenUploads { row, open: Mutex::new(open), version: tokio::sync::Mutex::new(version) }
    }

    /// Remembers an upload.
    pub async fn begun(&self, lease: &Lease, key: &str, id: &str) -> Result<(), Fenced> {
        let mut version = self.version.lock().await;
        let uploads = {
            let mut open = self.open.lock();
            open.push(OpenUpload { key: key.to_owned(), id: id.to_owned() });
            open.clone()
        };
        let document = Uploads { v: 1, uploads };
        *version = lease.put(&self.row, &document.to_json(), *version).await?;
        Ok(())
    }

    /// Forgets an upload that is completed. The row keeps it until the next is begun: giving it up
    /// once more does no harm.
    pub fn ended(&self, id: &str) {
        self.open.lock().retain(|upload| upload.id != id);
    }

    /// Gives up what is left of earlier tries; what the bucket does not answer to stays listed.
    pub async fn give_up(&self, bucket: &dyn Bucket) {
        let left = self.open.lock().clone();
        for upload in left {
            match bucket.abort(&upload.key, &upload.id).await {
                Err(err) if err.kind.transient() => {}
                // Given up, gone, or nothing that this key may do.
                _ => self.ended(&upload.id),
            }
        }
    }
}
