//! The files of a lake, read whole.
//!
//! Owns: reading them from a directory or over S3. Leaves to others: what they say.

use anyhow::Context;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::path::Path;

/// Everything in a bucket: key to bytes, in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files(pub BTreeMap<String, Vec<u8>>);

impl Files {
    /// Every file below `root`, under its relative path. Files and folders whose name begins with
    /// a dot are a server's own and left out.
    pub fn of_directory(root: &Path) -> anyhow::Result<Files> {
        let mut files = BTreeMap::new();
        let mut folders = vec![root.to_owned()];
        while let Some(folder) = folders.pop() {
            let listing =
                std::fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))?;
            for entry in listing {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                if name.starts_with('.') {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let key = path.strip_prefix(root)?.to_string_lossy().into_owned();
                let bytes =
                    std::fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                files.insert(key, bytes);
            }
        }
        Ok(Files(files))
    }

    /// Every object of a bucket.
    pub async fn of_bucket(bucket: &dyn ObjectStore) -> anyhow::Result<Files> {
        let mut files = BTreeMap::new();
        let listed: Vec<_> = bucket.list(None).try_collect().await.context("list the bucket")?;
        for object in listed {
            let got = bucket.get(&object.location).await;
            let got = got.with_context(|| format!("get {}", object.location))?;
            files.insert(object.location.to_string(), got.bytes().await?.to_vec());
        }
        Ok(Files(files))
    }
}
