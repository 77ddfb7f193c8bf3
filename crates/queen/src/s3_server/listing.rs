//! Pages of keys, in the order of their bytes.
//!
//! Owns: prefix, delimiter, and where a page begins and ends. Leaves to others: the request and the
//! spelling of its answer (`protocol`).
//!
//! Each page walks all folders that the prefix allows: a demo's bucket, not a warehouse.

use super::folder::{Folder, failed, is_missing};
use s3s::S3Result;
use std::path::PathBuf;
use std::time::SystemTime;

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// Start of all keys.
    pub prefix: String,
    /// Keys that are equal up to the first one after the prefix make one entry.
    pub delimiter: Option<String>,
    /// Only keys after this one.
    pub start_after: Option<String>,
    /// The `next` of the page before.
    pub token: Option<String>,
    /// Most entries.
    pub entries_max: usize,
}

/// A page.
#[derive(Debug, Default)]
pub struct Page {
    /// Objects.
    pub objects: Vec<Listed>,
    /// What keys with a delimiter have in common.
    pub prefixes: Vec<String>,
    /// What to ask the next page with; `None` when there is none.
    pub next: Option<String>,
}

/// An object of a page.
#[derive(Debug)]
pub struct Listed {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// When it was written.
    pub modified: SystemTime,
    /// Its ETag, if it is known without reading the object.
    pub etag: Option<String>,
}

impl Folder {
    /// One page.
    pub fn page(&self, ask: &Ask) -> S3Result<Page> {
        self.there()?;
        let mut page = Page::default();
        let mut last: Option<String> = None;
        let mut count = 0;
        for (key, path) in self.keys(&ask.prefix)? {
            let common = ask.delimiter.as_deref().and_then(|delimiter| {
                let at = key[ask.prefix.len()..].find(delimiter)?;
                Some(key[..ask.prefix.len() + at + delimiter.len()].to_owned())
            });
            if ask.is_before(&key, common.as_deref()) || (common.is_some() && common == last) {
                continue;
            }
            if count == ask.entries_max {
                page.next = last;
                break;
            }
            last = Some(common.clone().unwrap_or_else(|| key.clone()));
            match common {
                Some(common) => page.prefixes.push(common),
                None => {
                    // Removed since the walk: not there.
                    let Ok(file) = path.symlink_metadata() else { continue };
                    let modified = file.modified().map_err(|error| failed("list", &key, &error))?;
                    let (bytes, etag) = (file.len(), self.etag(&key, &file));
                    page.objects.push(Listed { key, bytes, modified, etag });
                }
            }
            count += 1;
        }
        Ok(page)
    }

    /// All keys with a prefix and their files, sorted.
    fn keys(&self, prefix: &str) -> S3Result<Vec<(String, PathBuf)>> {
        let mut keys = Vec::new();
        let mut folders = vec![(String::new(), self.root.clone())];
        while let Some((above, folder)) = folders.pop() {
            let failed = |error| failed("list", &above, &error);
            let entries = match std::fs::read_dir(&folder) {
                Err(error) if is_missing(&error) => continue,
                entries => entries.map_err(failed)?,
            };
            for entry in entries {
                let entry = entry.map_err(failed)?;
                // A name that is no text is no key's.
                let Ok(name) = entry.file_name().into_string() else { continue };
                let kind = entry.file_type().map_err(failed)?;
                let key = format!("{above}{name}");
                if kind.is_dir() {
                    let below = key + "/";
                    if below.starts_with(prefix) || prefix.starts_with(&below) {
                        folders.push((below, entry.path()));
                    }
                } else if kind.is_file() && key.starts_with(prefix) {
                    keys.push((key, entry.path()));
                }
            }
        }
        keys.sort_unstable();
        Ok(keys)
    }
}

impl Ask {
    fn is_before(&self, key: &str, common: Option<&str>) -> bool {
        let entry = common.unwrap_or(key);
        self.start_after.as_deref().is_some_and(|after| key <= after)
            || self.token.as_deref().is_some_and(|token| entry <= token)
    }
}
