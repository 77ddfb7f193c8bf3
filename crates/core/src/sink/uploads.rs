//! Uploads in parts that are not completed.

use serde::{Deserialize, Serialize};

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenUpload {
    /// Key of the object that it would make.
    pub key: String,
    /// What the bucket calls it.
    pub id: String,
}

/// Row `uploads`: what an owner that died may have left in the bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uploads {
    /// Version of the document: 1.
    pub v: u32,
    /// In the order in which they were begun.
    pub uploads: Vec<OpenUpload>,
}
super::document!(Uploads, "uploads row");
