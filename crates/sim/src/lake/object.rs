//! The records of one data object, whatever its format.
//!
//! Owns: which format is read how, and what is wrong with the order of records.
//! Leaves to others: a line of JSONL (`line`), a Parquet file (`parquet`), what the values must be
//! (`window`, `records`).

use super::fault::{Fault, Kind};
use super::line::{self, Line};
use super::manifest::{Manifest, ObjectEntry};
use super::parquet;
use std::io::Read;

/// The extension that a manifest's words promise; the error names words that nobody may write.
pub fn extension(manifest: &Manifest) -> Result<&'static str, String> {
    match (manifest.format.as_str(), manifest.compression.as_str()) {
        ("jsonl", "zstd") => Ok("jsonl.zst"),
        ("jsonl", "gzip") => Ok("jsonl.gz"),
        ("jsonl", "none") => Ok("jsonl"),
        ("parquet", "zstd" | "snappy") => Ok("parquet"),
        (format, compression) => Err(format!("nothing is written as {format} {compression}")),
    }
}

/// Reads an object as its manifest says.
pub fn records(
    manifest: &Manifest,
    entry: &ObjectEntry,
    object: &[u8],
    faults: &mut Vec<Fault>,
) -> Vec<Line> {
    let read = match manifest.format.as_str() {
        "parquet" => parquet::read(object).map(|file| {
            for what in parquet::footer(&file, manifest) {
                faults.push(Fault::new(Kind::FooterWrong, &entry.key, what));
            }
            file.rows
        }),
        _ => lines(&manifest.compression, entry, object, faults),
    };
    let records = read.unwrap_or_else(|error| {
        faults.push(Fault::new(Kind::ObjectUnreadable, &entry.key, error.to_string()));
        Vec::new()
    });
    for pair in records.windows(2) {
        order(&pair[0], &pair[1], entry, faults);
    }
    records
}

fn lines(
    compression: &str,
    entry: &ObjectEntry,
    object: &[u8],
    faults: &mut Vec<Fault>,
) -> anyhow::Result<Vec<Line>> {
    let text = expand(compression, object)?;
    if !text.is_empty() && !text.ends_with(b"\n") {
        faults.push(Fault::new(Kind::ObjectUnreadable, &entry.key, "the last line has no end"));
    }
    let mut lines: Vec<Line> = Vec::new();
    let body = text.strip_suffix(b"\n").unwrap_or(&text);
    let parts = body.split(|b| *b == b'\n').filter(|_| !text.is_empty());
    for (number, bytes) in parts.enumerate() {
        match line::parse(bytes) {
            Ok(line) => lines.push(line),
            Err(what) => {
                let place = format!("{} line {}", entry.key, number + 1);
                faults.push(Fault::new(Kind::LineMalformed, place, what));
            }
        }
    }
    Ok(lines)
}

fn order(before: &Line, line: &Line, entry: &ObjectEntry, faults: &mut Vec<Fault>) {
    let key = |l: &Line| (l.partition.as_bytes().to_vec(), l.offset);
    // The same pair twice is told as such by `records`.
    if key(before) > key(line) {
        let what = format!(
            "{:?} offset {} after {:?} offset {}",
            line.partition, line.offset, before.partition, before.offset
        );
        faults.push(Fault::new(Kind::LinesUnsorted, &entry.key, what));
    }
}

fn expand(compression: &str, object: &[u8]) -> anyhow::Result<Vec<u8>> {
    match compression {
        "zstd" => Ok(zstd::stream::decode_all(object)?),
        "gzip" => {
            let mut text = Vec::new();
            flate2::read::GzDecoder::new(object).read_to_end(&mut text)?;
            Ok(text)
        }
        "none" => Ok(object.to_vec()),
        other => anyhow::bail!("the compression {other:?} is none of zstd, gzip, none"),
    }
}
