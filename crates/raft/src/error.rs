//! Errors of the node, one enum per operation.

use std::path::PathBuf;

/// The node did not start. Nothing was changed unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A file or directory of the log cannot be used.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Bytes that were synced and answered for are no longer readable.
    #[error(
        "the log file {} is damaged at byte {position}: {what}; entries after it were answered for, \
         so it is not a torn tail: restore the whole data directory from a copy, or move it away to start empty",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Byte position of the first bad record.
        position: u64,
        /// What is wrong there.
        what: String,
    },
    /// A file of the log was written by a newer release.
    #[error(
        "{} has format version {version}, this release reads up to {supported}: run the newer release",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The version found.
        version: u32,
        /// The newest version that this release reads.
        supported: u32,
    },
    /// The log and the tables are not of the same moment.
    #[error("{0}")]
    Mismatch(String),
    /// The consensus library or the machine refused.
    #[error("{0}")]
    Failed(String),
}

/// A proposal was not taken: nothing of it will ever be applied.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
pub enum NotProposed {
    /// This node does not lead: ask the leader, or try again when there is one.
    #[error("this node does not lead the log")]
    NotLeader,
    /// The node was shut down or failed; see [`crate::RaftNode::stopped`].
    #[error("the log has stopped")]
    Stopped,
}
