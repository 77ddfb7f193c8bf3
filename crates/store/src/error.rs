//! What can go wrong with the data directory, in words that say what to do.
//!
//! Owns: the errors of opening, locking and checkpointing. Leaves to others: errors while applying
//! (`queen_state::StorageError`).

use std::path::PathBuf;

/// The directory cannot be had for ourselves.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error(
        "the data directory {dir} is in use by process {pid}: stop that process, or give this one another directory"
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
        /// The process that holds it, as it wrote down itself; `unknown` when it did not.
        pid: String,
    },
    /// It cannot be created or written.
    #[error(
        "the data directory {dir} cannot be used: {source}: it must be a directory that this user may write"
    )]
    Unusable {
        /// The directory.
        dir: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// The store cannot be opened: nothing was changed, and nothing may be served.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A file or directory could not be read or written.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A queue log is shorter than the tables say: bytes that were synced are gone.
    #[error(
        "the queue log {file} has {found} bytes where the tables say {expected}: bytes that were synced are gone, so the disk or a person has changed the directory; restore the whole data directory from a copy, or start with an empty one"
    )]
    LogShort {
        /// The segment file.
        file: PathBuf,
        /// Bytes that the Segment row says.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A queue log that the tables name is not there.
    #[error(
        "the queue log {file} is missing, the tables say that it has {expected} bytes: the disk or a person has changed the directory; put the file back, restore the whole data directory from a copy, or start with an empty one"
    )]
    LogMissing {
        /// The segment file.
        file: PathBuf,
        /// Bytes that the Segment row says.
        expected: u64,
    },
    /// The tables cannot be opened or read.
    #[error(
        "the tables in {dir} cannot be opened: {why}; restore the whole data directory from a copy, or start with an empty one"
    )]
    Tables {
        /// The directory of the tables.
        dir: PathBuf,
        /// What their library says.
        why: String,
    },
    /// A row that the store itself needs cannot be read.
    #[error(
        "a row of {table} in {dir} cannot be read: {why}; was the directory written by a newer release?"
    )]
    Row {
        /// The directory of the tables.
        dir: PathBuf,
        /// The table's name.
        table: &'static str,
        /// Why.
        why: String,
    },
}

/// The store can no longer go on, or not now.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum StoreError {
    /// A write or sync failed for another reason than a full disk: the process must end; the next
    /// start goes on from the last durable checkpoint.
    #[error(
        "the store failed and the process must end: {0}; the next start goes on from the last durable checkpoint"
    )]
    Failed(String),
    /// The store was closed meanwhile.
    #[error("the store is closed")]
    Closed,
}

/// An image could not be sent, received or installed.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Nothing was ever applied: there is nothing to send.
    #[error("nothing has been applied yet, so there is no image")]
    Empty,
    /// The stream is not one that was sent, or not all of it. Ask for it again.
    #[error("the image is not what was sent: {0}; it must be sent again")]
    Damaged(String),
    /// The image stands before what is applied here. There is no need for it.
    #[error("the image stands at {image}, and {store} is applied here already")]
    Older {
        /// Position of the image.
        image: u64,
        /// Position of the store.
        store: u64,
    },
    /// A file or directory could not be read or written; a full disk too.
    #[error("{what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The tables could not be read.
    #[error("the tables cannot be read: {0}")]
    Tables(String),
    /// The store is closed or has failed.
    #[error(transparent)]
    Store(StoreError),
}

impl From<ImageError> for std::io::Error {
    fn from(error: ImageError) -> std::io::Error {
        let kind = match &error {
            ImageError::Io { source, .. } => source.kind(),
            ImageError::Damaged(_) => std::io::ErrorKind::InvalidData,
            _ => std::io::ErrorKind::Other,
        };
        std::io::Error::new(kind, error)
    }
}
