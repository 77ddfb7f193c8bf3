//! The bucket as a folder: `<dir>/<bucket>/<key>` holds an object's bytes and nothing else.
//!
//! Owns: where a key's file lies, what is kept beside it (`<dir>/.objects/<2 hex>/<sha256>.json`),
//! that both change together, and files on their way (`<dir>/.objects/tmp`). Leaves to others:
//! requests (`protocol`), bodies (`incoming`), pages of keys (`listing`), parts (`uploads`).
//!
//! A file appears under its key whole or not at all. What is kept beside a file counts only while
//! the file has the length and time it had then: a file put into the folder by hand is an object
//! too, without metadata. Everything here may block on a disk.

use s3s::crypto::{Checksum as _, Md5, Sha256};
use s3s::{S3Error, S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Longest name of a file, bytes: the limit of nearly every file system.
pub const FILE_NAME_BYTES_MAX: usize = 255;
/// What a stopped process left on its way is removed after this time.
const LEFT_OVER: Duration = Duration::from_secs(24 * 3600);

/// What the writer of an object said of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Attributes {
    /// User metadata, names without `x-amz-meta-`.
    pub metadata: BTreeMap<String, String>,
    /// `content-type`.
    pub content_type: Option<String>,
    /// `content-encoding`.
    pub content_encoding: Option<String>,
    /// `content-disposition`.
    pub content_disposition: Option<String>,
    /// `content-language`.
    pub content_language: Option<String>,
    /// `cache-control`.
    pub cache_control: Option<String>,
}

/// Checksums of an object's bytes, base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Checksums {
    /// CRC-32.
    pub crc32: Option<String>,
    /// CRC-32C.
    pub crc32c: Option<String>,
    /// CRC-64/NVME.
    pub crc64nvme: Option<String>,
    /// SHA-1.
    pub sha1: Option<String>,
    /// SHA-256.
    pub sha256: Option<String>,
}

/// What is kept beside an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct About {
    /// Its key: the file's own name does not tell it.
    pub key: String,
    /// Length of the file that this belongs to.
    pub bytes: u64,
    /// Time of the file that this belongs to, nanoseconds since 1970.
    pub modified_ns: u64,
    /// ETag without quotes.
    pub etag: String,
    /// What its writer said.
    pub attributes: Attributes,
    /// Its checksums, as far as they were sent.
    pub checksums: Checksums,
}

/// An object that was found.
pub struct Found {
    /// Its bytes, at the start.
    pub file: File,
    /// When it was written.
    pub modified: SystemTime,
    /// What is kept beside it.
    pub about: About,
}

/// A file on its way, removed when dropped unless it has become an object.
pub struct Temp(PathBuf);

impl Temp {
    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// The one bucket and its folder.
pub struct Folder {
    /// Its name.
    pub bucket: String,
    /// Its folder.
    pub root: PathBuf,
    beside: PathBuf,
    /// Held to change an object and what is beside it, shared to look at both.
    change: RwLock<()>,
}

impl Folder {
    /// Opens the folder in `dir`, made if need be, and clears what was left on its way.
    pub fn open(dir: &Path, bucket: &str) -> io::Result<Folder> {
        let folder = Folder {
            bucket: bucket.to_owned(),
            root: dir.join(bucket),
            beside: dir.join(".objects"),
            change: RwLock::new(()),
        };
        for path in [&folder.root, &folder.beside.join("tmp"), &folder.uploads()] {
            fs::create_dir_all(path)?;
        }
        clear(&folder.beside.join("tmp"))?;
        clear(&folder.uploads())?;
        Ok(folder)
    }

    /// Where uploads in parts lie.
    pub fn uploads(&self) -> PathBuf {
        self.beside.join("uploads")
    }

    /// The name of a new file on its way, on the file system of the bucket.
    pub fn temp(&self) -> Temp {
        Temp(self.beside.join("tmp").join(uuid::Uuid::now_v7().to_string()))
    }

    /// Fails when the bucket's folder is gone.
    pub fn there(&self) -> S3Result<()> {
        if self.root.is_dir() {
            return Ok(());
        }
        Err(s3_error!(NoSuchBucket, "the bucket's folder {} is gone", self.root.display()))
    }

    /// The file of a key. Never outside the bucket's folder.
    pub fn place(&self, key: &str) -> S3Result<PathBuf> {
        let mut path = self.root.clone();
        for part in key.split('/') {
            if matches!(part, "" | "." | "..") || part.contains('\0') {
                return Err(s3_error!(
                    InvalidArgument,
                    "the key {key:?} is no path of a file: between slashes it needs a name other than . and .."
                ));
            }
            if part.len() > FILE_NAME_BYTES_MAX {
                return Err(s3_error!(
                    KeyTooLongError,
                    "this server keeps objects as files, whose names have at most {FILE_NAME_BYTES_MAX} \
                     bytes; between two slashes of the key there are {}",
                    part.len()
                ));
            }
            path.push(part);
        }
        Ok(path)
    }

    fn beside(&self, key: &str) -> PathBuf {
        let hash = hex(Sha256::checksum(format!("{}/{key}", self.bucket).as_bytes()).as_ref());
        self.beside.join(&hash[..2]).join(format!("{hash}.json"))
    }

    /// Makes a complete file the object of a key, over whatever was there.
    pub fn publish(
        &self,
        temp: &Temp,
        key: &str,
        etag: String,
        attributes: Attributes,
        checksums: Checksums,
    ) -> S3Result<()> {
        let path = self.place(key)?;
        self.there()?;
        let file = fs::metadata(temp.path()).map_err(|error| failed("read", key, &error))?;
        let (key, bytes, modified_ns) = (key.to_owned(), file.len(), nanoseconds(&file));
        let about = About { key, bytes, modified_ns, etag, attributes, checksums };
        let beside = self.beside(&about.key);
        let text = serde_json::to_vec(&about).map_err(S3Error::internal_error)?;
        let _change = self.change.write().unwrap_or_else(PoisonError::into_inner);
        let moved = move_to(temp.path(), &path);
        moved.map_err(|error| failed("write", &about.key, &error))?;
        let note = self.temp();
        let noted = fs::write(note.path(), text).and_then(|()| move_to(note.path(), &beside));
        noted.map_err(|error| failed("write what belongs to", &about.key, &error))
    }

    /// Looks for an object.
    pub fn look(&self, key: &str) -> S3Result<Found> {
        let missing = || s3_error!(NoSuchKey, "there is no object {key}");
        let path = self.place(key)?;
        self.there()?;
        let (file, metadata, about) = {
            let _looking = self.change.read().unwrap_or_else(PoisonError::into_inner);
            let file = File::open(&path).map_err(|error| match is_missing(&error) {
                true => missing(),
                false => failed("open", key, &error),
            })?;
            let metadata = file.metadata().map_err(|error| failed("read", key, &error))?;
            (file, metadata, fs::read(self.beside(key)).ok())
        };
        if !metadata.is_file() {
            return Err(missing());
        }
        let modified = metadata.modified().map_err(|error| failed("read", key, &error))?;
        let about = match about.and_then(|text| current(&text, &metadata)) {
            Some(about) => about,
            None => by_hand(&path, key, &metadata).map_err(|error| failed("read", key, &error))?,
        };
        Ok(Found { file, modified, about })
    }

    /// The ETag kept beside a file, if it still belongs to it.
    pub fn etag(&self, key: &str, file: &Metadata) -> Option<String> {
        current(&fs::read(self.beside(key)).ok()?, file).map(|about| about.etag)
    }

    /// Removes an object, and the folders that hold nothing any more. It need not be there.
    pub fn remove(&self, key: &str) -> S3Result<()> {
        let path = self.place(key)?;
        self.there()?;
        let _change = self.change.write().unwrap_or_else(PoisonError::into_inner);
        if path.is_dir() {
            return Ok(());
        }
        match fs::remove_file(&path) {
            Err(error) if !is_missing(&error) => return Err(failed("remove", key, &error)),
            _ => {}
        }
        let _ = fs::remove_file(self.beside(key));
        for above in path.ancestors().skip(1).take_while(|above| *above != self.root) {
            if fs::remove_dir(above).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Renames a file to a place whose folders are made.
fn move_to(from: &Path, to: &Path) -> io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::rename(from, to)
}

/// What was kept beside a file, if the file is still the one it was written for.
fn current(text: &[u8], file: &Metadata) -> Option<About> {
    let about: About = serde_json::from_slice(text).ok()?;
    (about.bytes == file.len() && about.modified_ns == nanoseconds(file)).then_some(about)
}

/// A file that no request wrote.
fn by_hand(path: &Path, key: &str, metadata: &Metadata) -> io::Result<About> {
    let (mut file, mut md5, mut buffer) = (File::open(path)?, Md5::new(), vec![0; 256 * 1024]);
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => md5.update(&buffer[..read]),
        }
    }
    Ok(About {
        key: key.to_owned(),
        bytes: metadata.len(),
        modified_ns: nanoseconds(metadata),
        etag: hex(md5.finalize().as_ref()),
        attributes: Attributes::default(),
        checksums: Checksums::default(),
    })
}

fn nanoseconds(metadata: &Metadata) -> u64 {
    let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    modified.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let age = entry.metadata()?.modified()?.elapsed().unwrap_or_default();
        if age > LEFT_OVER {
            let path = entry.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
    }
    Ok(())
}

/// Nothing is there, or a file where the path has a folder.
pub fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// What a disk's failure means to the client.
pub fn failed(what: &str, key: &str, error: &io::Error) -> S3Error {
    match error.kind() {
        ErrorKind::NotADirectory | ErrorKind::IsADirectory | ErrorKind::AlreadyExists => s3_error!(
            InvalidArgument,
            "{key} is, or lies below, the name of another object; files cannot be folders too"
        ),
        ErrorKind::InvalidFilename => {
            s3_error!(KeyTooLongError, "the file system takes no file of this name: {error}")
        }
        _ => {
            tracing::warn!(%error, key, "the S3 server cannot {what} a file");
            s3_error!(InternalError, "cannot {what} {key}: {error}")
        }
    }
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
