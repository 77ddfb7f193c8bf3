//! Kinds of damage, to prove that the checker sees each.
//!
//! Owns: doing the damage as a careful liar would: hashes, lengths, sums and the chain of manifests
//! are made to agree again wherever the damage itself is not about them. Leaves to others: finding
//! it.

use super::fault::Kind;
use super::files::Files;
use super::line::{self, Line};
use super::name::{self, Name};
use super::parquet;
use super::window::sha256;
use crate::chance::Chance;
use anyhow::{Context, bail};
use serde_json::Value;
use std::io::{Read, Write};

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// A data object is gone.
    ObjectRemoved,
    /// A byte of a data object is another.
    ByteFlipped,
    /// A data object lacks a record.
    LineRemoved,
    /// A data object has a record twice.
    LineDuplicated,
    /// A record has another payload.
    PayloadChanged,
    /// Two records stand in each other's place.
    LinesSwapped,
    /// A manifest is gone.
    ManifestRemoved,
    /// A manifest says another number of records.
    CountChanged,
    /// There is one more data object.
    ObjectAdded,
    /// A manifest lists a record as lost that is in the lake.
    LossInvented,
    /// A manifest lists a lost range twice.
    LossRepeated,
}

impl Damage {
    /// All kinds.
    pub const ALL: [Damage; 11] = [
        Damage::ObjectRemoved,
        Damage::ByteFlipped,
        Damage::LineRemoved,
        Damage::LineDuplicated,
        Damage::PayloadChanged,
        Damage::LinesSwapped,
        Damage::ManifestRemoved,
        Damage::CountChanged,
        Damage::ObjectAdded,
        Damage::LossInvented,
        Damage::LossRepeated,
    ];

    /// The fault that a check of the damaged lake must name.
    pub fn found_as(self) -> Kind {
        match self {
            Damage::ObjectRemoved => Kind::ObjectMissing,
            Damage::ByteFlipped => Kind::ObjectHash,
            Damage::LineRemoved => Kind::RecordLost,
            Damage::LineDuplicated => Kind::RecordDuplicated,
            Damage::PayloadChanged => Kind::PayloadDiffers,
            Damage::LinesSwapped => Kind::LinesUnsorted,
            Damage::ManifestRemoved => Kind::ManifestMissing,
            Damage::CountChanged => Kind::ManifestCount,
            Damage::ObjectAdded => Kind::ObjectStranger,
            Damage::LossInvented => Kind::LossUntrue,
            Damage::LossRepeated => Kind::LossRepeated,
        }
    }

    /// A copy of the lake with this damage at a place drawn by chance. The lake must be good and
    /// have an object of at least two lines.
    pub fn done_to(
        self,
        files: &Files,
        prefix: &str,
        chance: &mut Chance,
    ) -> anyhow::Result<Files> {
        let mut out = files.clone();
        let (data, manifests) = keys(files, prefix);
        let object = chance.pick(&data).context("no data object to damage")?;
        let manifest = chance.pick(&manifests).context("no manifest to damage")?;
        match self {
            Damage::ObjectRemoved => drop(out.0.remove(object)),
            Damage::ManifestRemoved => drop(out.0.remove(manifest)),
            Damage::ByteFlipped => {
                let bytes = out.0.get_mut(object).context("object")?;
                let at = chance.below(bytes.len() as u64) as usize;
                bytes[at] ^= 1 << chance.below(8);
            }
            Damage::ObjectAdded => {
                let copy = out.0.get(object).cloned().unwrap_or_default();
                // One digit more of what stands before the extension: a time, or an offset.
                let name = [".jsonl", ".parquet"].map(|dot| (dot, format!("0{dot}")));
                let [jsonl, parquet] = name.map(|(dot, longer)| object.replace(dot, &longer));
                out.0.insert(if parquet == *object { jsonl } else { parquet }, copy);
            }
            Damage::CountChanged => {
                edit_manifest(&mut out, manifest, |m| {
                    m["records"] = (m["records"].as_u64().unwrap_or_default() + 1).into();
                })?;
                rechain(&mut out, prefix)?;
            }
            Damage::LossInvented => {
                let bytes = out.0.get(object).context("object")?;
                let text = chance.pick(&expanded(object, bytes)?).cloned().context("no line")?;
                let line = line::parse(&text).map_err(anyhow::Error::msg)?;
                let range = lost_range(&line.partition, line.offset, line.offset);
                edit_manifest(&mut out, &naming(files, object)?, |m| list(m, range))?;
                rechain(&mut out, prefix)?;
            }
            Damage::LossRepeated => {
                edit_manifest(&mut out, manifest, |m| {
                    if m["lost"][0].is_null() {
                        list(m, lost_range("lost before", 0, 3));
                    }
                    let again = m["lost"][0].clone();
                    list(m, again);
                })?;
                rechain(&mut out, prefix)?;
            }
            _ => {
                let wide: Vec<_> = data.iter().filter(|key| lines_of(files, key) > 1).collect();
                let object = chance.pick(&wide).context("no object of two lines to damage")?;
                self.edit_lines(&mut out, object, chance)?;
                rechain(&mut out, prefix)?;
            }
        }
        Ok(out)
    }

    /// Damages the lines of an object and makes its manifest agree with the result.
    fn edit_lines(self, files: &mut Files, key: &str, chance: &mut Chance) -> anyhow::Result<()> {
        let object = files.0.get(key).context("object")?;
        let mut lines = expanded(key, object)?;
        let at = chance.below(lines.len() as u64) as usize;
        match self {
            Damage::LineRemoved => drop(lines.remove(at)),
            Damage::LineDuplicated => lines.insert(at, lines[at].clone()),
            Damage::LinesSwapped => {
                let other = (at + 1) % lines.len();
                lines.swap(at, other);
            }
            Damage::PayloadChanged => {
                let text = String::from_utf8(lines[at].clone())?;
                let (head, _) = text.split_once("\"payload\":").context("no payload")?;
                lines[at] = format!("{head}\"payload\":{{\"changed\":true}}}}").into_bytes();
            }
            other => bail!("{other:?} is no damage to lines"),
        }
        let count = lines.len() as u64;
        let bytes = packed(key, &lines)?;
        let (length, hash) = (bytes.len() as u64, sha256(&bytes));
        files.0.insert(key.to_owned(), bytes);
        let manifest = naming(files, key)?;
        edit_manifest(files, &manifest, |m| {
            let Some(index) = place(m, key) else { return };
            let entry = &mut m["objects"][index];
            entry["bytes"] = length.into();
            entry["records"] = count.into();
            entry["sha256"] = hash.into();
            for field in ["bytes", "records"] {
                let objects = m["objects"].as_array().into_iter().flatten();
                let sum: u64 = objects.filter_map(|o| o[field].as_u64()).sum();
                m[field] = sum.into();
            }
        })
    }
}

/// Keys of data objects and of manifests.
fn keys(files: &Files, prefix: &str) -> (Vec<String>, Vec<String>) {
    let mut keys = (Vec::new(), Vec::new());
    for key in files.0.keys() {
        match name::parse(prefix, key) {
            Ok(Name::Data(_)) => keys.0.push(key.clone()),
            Ok(Name::Manifest(..)) => keys.1.push(key.clone()),
            _ => {}
        }
    }
    keys
}

/// Where a manifest names an object.
fn place(manifest: &Value, key: &str) -> Option<usize> {
    manifest["objects"].as_array()?.iter().position(|object| object["key"] == *key)
}

/// Key of the manifest that names an object.
fn naming(files: &Files, key: &str) -> anyhow::Result<String> {
    let names = |bytes: &[u8]| {
        serde_json::from_slice(bytes).is_ok_and(|value: Value| place(&value, key).is_some())
    };
    let found = files.0.iter().find(|(_, bytes)| names(bytes));
    found.map(|(key, _)| key.clone()).context("no manifest names it")
}

fn lost_range(partition: &str, from: u64, to: u64) -> Value {
    serde_json::json!({
        "partition": partition, "incarnation": 1, "from": from, "to": to, "reason": "retention",
    })
}

fn list(manifest: &mut Value, range: Value) {
    if let Some(lost) = manifest["lost"].as_array_mut() {
        lost.push(range);
    }
}

fn edit_manifest(
    files: &mut Files,
    key: &str,
    edit: impl FnOnce(&mut Value),
) -> anyhow::Result<()> {
    let bytes = files.0.get_mut(key).context("manifest")?;
    let mut manifest: Value = serde_json::from_slice(bytes)?;
    edit(&mut manifest);
    *bytes = serde_json::to_vec(&manifest)?;
    Ok(())
}

/// Makes every `prev` the hash of the manifest before, in order.
fn rechain(files: &mut Files, prefix: &str) -> anyhow::Result<()> {
    let (_, manifests) = keys(files, prefix);
    let mut before: Option<(String, String)> = None;
    for key in manifests {
        let folder = key.rsplit_once('/').map(|(folder, _)| folder.to_owned()).unwrap_or_default();
        if let Some((_, hash)) = before.filter(|(last, _)| *last == folder) {
            edit_manifest(files, &key, |m| m["prev"] = hash.into())?;
        }
        before = Some((folder, sha256(&files.0[&key])));
    }
    Ok(())
}

fn lines_of(files: &Files, key: &str) -> usize {
    let lines = files.0.get(key).and_then(|object| expanded(key, object).ok());
    lines.map(|lines| lines.len()).unwrap_or_default()
}

/// The records of an object as lines; those of a Parquet file too.
fn expanded(key: &str, object: &[u8]) -> anyhow::Result<Vec<Vec<u8>>> {
    if key.ends_with(".parquet") {
        return parquet::read(object)?.rows.iter().map(Line::text).collect();
    }
    let mut text = Vec::new();
    match key.rsplit_once('.').map(|(_, extension)| extension) {
        Some("zst") => text = zstd::stream::decode_all(object)?,
        Some("gz") => drop(flate2::read::GzDecoder::new(object).read_to_end(&mut text)?),
        _ => text.extend_from_slice(object),
    }
    let body = text.strip_suffix(b"\n").context("no line")?;
    Ok(body.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect())
}

fn packed(key: &str, lines: &[Vec<u8>]) -> anyhow::Result<Vec<u8>> {
    if key.ends_with(".parquet") {
        let rows = lines.iter().map(|line| line::parse(line).map_err(anyhow::Error::msg));
        return parquet::write(&rows.collect::<anyhow::Result<Vec<_>>>()?);
    }
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(line);
        text.push(b'\n');
    }
    match key.rsplit_once('.').map(|(_, extension)| extension) {
        Some("zst") => Ok(zstd::stream::encode_all(&text[..], 3)?),
        Some("gz") => {
            let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
            out.write_all(&text)?;
            Ok(out.finish()?)
        }
        _ => Ok(text),
    }
}
