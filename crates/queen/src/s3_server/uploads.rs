//! Uploads in parts: `<dir>/.objects/uploads/<id>` with one file per part until the object is made.
//!
//! Owns: parts on disk and joining them. Leaves to others: the object that they become (`folder`).
//! What nobody completes or aborts is removed at a start a day later.

use super::folder::{Attributes, Checksums, Folder, failed, hex, is_missing};
use super::incoming::Received;
use s3s::crypto::{Checksum as _, Md5};
use s3s::{S3Error, S3Result, s3_error};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::SystemTime;

/// Smallest part but the last, bytes.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Largest number of a part.
const PARTS_MAX: i32 = 10_000;

/// What an upload will be.
#[derive(Serialize, Deserialize)]
struct Upload {
    key: String,
    attributes: Attributes,
}

/// A part that has arrived.
#[derive(Debug)]
pub struct Part {
    /// Its number, from 1.
    pub number: i32,
    /// MD5 of its bytes, lower-case hex.
    pub etag: String,
    /// Its length.
    pub bytes: u64,
    /// When it arrived.
    pub modified: SystemTime,
    path: PathBuf,
}

impl Folder {
    /// Begins an upload; gives its id.
    pub fn begin(&self, key: &str, attributes: Attributes) -> S3Result<String> {
        self.place(key)?;
        self.there()?;
        let id = uuid::Uuid::now_v7().to_string();
        let upload = Upload { key: key.to_owned(), attributes };
        let text = serde_json::to_vec(&upload).map_err(S3Error::internal_error)?;
        let folder = self.uploads().join(&id);
        let made = fs::create_dir(&folder).and_then(|()| fs::write(folder.join("upload"), text));
        made.map_err(|error| failed("begin an upload of", key, &error))?;
        Ok(id)
    }

    /// The folder of an upload of this key.
    fn upload(&self, key: &str, id: &str) -> S3Result<(PathBuf, Upload)> {
        let missing = || s3_error!(NoSuchUpload, "there is no upload {id} of {key}");
        let id = uuid::Uuid::parse_str(id).map_err(|_| missing())?;
        let folder = self.uploads().join(id.to_string());
        let text = match fs::read(folder.join("upload")) {
            Err(error) if is_missing(&error) => return Err(missing()),
            text => text.map_err(|error| failed("read the upload of", key, &error))?,
        };
        let upload: Upload = serde_json::from_slice(&text).map_err(S3Error::internal_error)?;
        if upload.key == key { Ok((folder, upload)) } else { Err(missing()) }
    }

    /// Fails unless a part of this number may be sent.
    pub fn takes_part(&self, key: &str, id: &str, number: i32) -> S3Result<()> {
        if !(1..=PARTS_MAX).contains(&number) {
            return Err(s3_error!(InvalidArgument, "part {number} is not in 1..={PARTS_MAX}"));
        }
        self.upload(key, id).map(drop)
    }

    /// Keeps a part, in place of one of the same number.
    pub fn keep_part(&self, key: &str, id: &str, number: i32, part: &Received) -> S3Result<()> {
        let (folder, _) = self.upload(key, id)?;
        let name = format!("{number:05}-{}", part.md5);
        let old = self.parts(key, id)?.into_iter().filter(|old| old.number == number);
        let old: Vec<Part> = old.filter(|old| old.etag != part.md5).collect();
        let moved = fs::rename(part.temp.path(), folder.join(name));
        moved.map_err(|error| failed("keep a part of", key, &error))?;
        for old in old {
            let _ = fs::remove_file(old.path);
        }
        Ok(())
    }

    /// The parts that have arrived, by number.
    pub fn parts(&self, key: &str, id: &str) -> S3Result<Vec<Part>> {
        let failed = |error| failed("list the parts of", key, &error);
        let (folder, _) = self.upload(key, id)?;
        let mut parts = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some((number, etag)) = name.to_str().and_then(|name| name.split_once('-')) else {
                continue;
            };
            let Ok(number) = number.parse() else { continue };
            let (etag, path) = (etag.to_owned(), entry.path());
            let file = match entry.metadata() {
                // Replaced by another part of its number meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                file => file.map_err(failed)?,
            };
            let modified = file.modified().map_err(failed)?;
            parts.push(Part { number, etag, bytes: file.len(), modified, path });
        }
        parts.sort_by_key(|part| part.number);
        Ok(parts)
    }

    /// Makes the object of these parts (number and, if it was sent, ETag); gives its ETag.
    pub fn complete(
        &self,
        key: &str,
        id: &str,
        wanted: &[(i32, Option<String>)],
    ) -> S3Result<String> {
        let (folder, upload) = self.upload(key, id)?;
        let parts = chosen(&self.parts(key, id)?, wanted)?;
        let failed = |error| failed("join the parts of", key, &error);
        let temp = self.temp();
        let mut whole = File::create(temp.path()).map_err(failed)?;
        let mut md5 = Md5::new();
        for (path, etag) in &parts {
            let mut part = File::open(path).map_err(failed)?;
            std::io::copy(&mut part, &mut whole).map_err(failed)?;
            md5.update(&bytes_of(etag));
        }
        drop(whole);
        let etag = format!("{}-{}", hex(md5.finalize().as_ref()), parts.len());
        self.publish(&temp, key, etag.clone(), upload.attributes, Checksums::default())?;
        fs::remove_dir_all(folder).map_err(failed)?;
        Ok(etag)
    }

    /// Forgets an upload.
    pub fn abort(&self, key: &str, id: &str) -> S3Result<()> {
        let (folder, _) = self.upload(key, id)?;
        fs::remove_dir_all(folder).map_err(|error| failed("abort the upload of", key, &error))
    }
}

/// File and ETag of each wanted part.
fn chosen(parts: &[Part], wanted: &[(i32, Option<String>)]) -> S3Result<Vec<(PathBuf, String)>> {
    if wanted.is_empty() {
        return Err(s3_error!(MalformedXML, "an upload is completed with at least one part"));
    }
    if !wanted.is_sorted_by(|a, b| a.0 < b.0) {
        return Err(s3_error!(InvalidPartOrder, "the parts are not in the order of their numbers"));
    }
    let last = wanted.len() - 1;
    let part = |(at, (number, etag)): (usize, &(i32, Option<String>))| {
        let same = |part: &&Part| etag.as_ref().is_none_or(|etag| *etag == part.etag);
        let mut found = parts.iter().filter(|part| part.number == *number);
        let Some(part) = found.find(same) else {
            return Err(s3_error!(InvalidPart, "part {number} has not arrived with this ETag"));
        };
        if at != last && part.bytes < PART_BYTES_MIN {
            let bytes = part.bytes;
            return Err(s3_error!(
                EntityTooSmall,
                "part {number} has {bytes} bytes; only the last may have under {PART_BYTES_MIN}"
            ));
        }
        Ok((part.path.clone(), part.etag.clone()))
    };
    wanted.iter().enumerate().map(part).collect()
}

/// The bytes of an MD5 in hex; anything else counts as it is written.
fn bytes_of(etag: &str) -> Vec<u8> {
    let digit = |at: usize| etag.get(at..at + 2).and_then(|text| u8::from_str_radix(text, 16).ok());
    let bytes: Option<Vec<u8>> = (0..etag.len()).step_by(2).map(digit).collect();
    bytes.unwrap_or_else(|| etag.as_bytes().to_vec())
}
