//! One window: its manifest held against its objects.
//!
//! Owns: keys, bytes, hashes, counts, stamps of one window. Leaves to others: what an object holds
//! (`object`), windows among one another (`chain`), and whether records are the right ones (`records`).

use super::fault::{Fault, Kind};
use super::files::Files;
use super::line::Line;
use super::manifest::{Manifest, ObjectEntry, PartitionEntry, RangesFile};
use super::name::{self, DataName, Name};
use super::object;
use super::{Align, Layout};
use std::collections::BTreeMap;

/// Reads a window's records, in the order of its objects and lines, and tells what is wrong.
pub fn check(
    files: &Files,
    layout: Layout<'_>,
    manifest: &Manifest,
    key: &str,
    faults: &mut Vec<Fault>,
) -> Vec<Line> {
    let mut all = Vec::new();
    for entry in &manifest.objects {
        let name = named(layout, manifest, entry, faults);
        let folder = name.filter(|_| layout.align != Align::None);
        let Some(object) = files.0.get(&entry.key) else {
            let what = format!("named by the manifest {key}, not in the bucket");
            faults.push(Fault::new(Kind::ObjectMissing, &entry.key, what));
            continue;
        };
        let lines = object_records(manifest, entry, object, faults);
        if lines.len() as u64 != entry.records {
            let what =
                format!("{} of them, the manifest says {} records", lines.len(), entry.records);
            faults.push(Fault::new(Kind::ManifestCount, &entry.key, what));
        }
        stamps(manifest, entry, folder.as_ref(), &lines, faults);
        all.extend(lines);
    }
    counts(files, manifest, key, &all, faults);
    all
}

/// Holds an object's key against the manifest.
fn named(
    layout: Layout<'_>,
    manifest: &Manifest,
    entry: &ObjectEntry,
    faults: &mut Vec<Fault>,
) -> Option<DataName> {
    let name = match layout.parse(&entry.key) {
        Ok(Name::Data(name)) => name,
        Ok(_) => {
            faults.push(Fault::new(Kind::ObjectName, &entry.key, "a sidecar listed as data"));
            return None;
        }
        Err(what) => {
            faults.push(Fault::new(Kind::ObjectName, &entry.key, what));
            return None;
        }
    };
    let extension = match object::extension(manifest) {
        Ok(extension) => extension,
        Err(what) => {
            faults.push(Fault::new(Kind::ObjectName, &entry.key, what));
            return Some(name);
        }
    };
    let start = queen_core::Stamp(manifest.t_start).to_iso();
    let hour_fits = name.hour.as_deref().is_none_or(|hour| hour == &start[11..13]);
    let fits = name.tenant == manifest.tenant
        && name.queue == name::queue_in_key(&manifest.queue)
        && (name.k, name.t_start, name.t_end) == (manifest.k, manifest.t_start, manifest.t_end)
        && name.extension == extension
        && name.day == start[..10]
        && hour_fits
        && name.partition.is_some() == (manifest.layout == "per-partition");
    if !fits {
        let what = format!(
            "the manifest says tenant {} queue {:?} k {} {}..{} {} {} {}",
            manifest.tenant,
            manifest.queue,
            manifest.k,
            manifest.t_start,
            manifest.t_end,
            manifest.layout,
            manifest.format,
            manifest.compression
        );
        faults.push(Fault::new(Kind::ObjectName, &entry.key, what));
    }
    Some(name)
}

fn object_records(
    manifest: &Manifest,
    entry: &ObjectEntry,
    object: &[u8],
    faults: &mut Vec<Fault>,
) -> Vec<Line> {
    if object.len() as u64 != entry.bytes {
        let what = format!("{} bytes, the manifest says {}", object.len(), entry.bytes);
        faults.push(Fault::new(Kind::ObjectBytes, &entry.key, what));
    }
    let found = sha256(object);
    if found != entry.sha256 {
        let what = format!("SHA-256 {found}, the manifest says {}", entry.sha256);
        faults.push(Fault::new(Kind::ObjectHash, &entry.key, what));
    }
    object::records(manifest, entry, object, faults)
}

fn stamps(
    manifest: &Manifest,
    entry: &ObjectEntry,
    name: Option<&DataName>,
    lines: &[Line],
    faults: &mut Vec<Fault>,
) {
    for line in lines {
        let iso = line.stamp.to_iso();
        let place = || format!("{} {:?} offset {}", entry.key, line.partition, line.offset);
        if !(manifest.t_start..manifest.t_end).contains(&line.stamp.0) {
            let what = format!("{iso} is not in {}..{}", manifest.t_start, manifest.t_end);
            faults.push(Fault::new(Kind::StampOutsideWindow, place(), what));
        }
        let Some(name) = name else { continue };
        let hour_fits = name.hour.as_deref().is_none_or(|hour| hour == &iso[11..13]);
        if name.day != iso[..10] || !hour_fits {
            let what = format!("{iso} is not in dt={} hour={:?}", name.day, name.hour);
            faults.push(Fault::new(Kind::StampOutsideFolder, place(), what));
        }
        if name.partition.as_ref().is_some_and(|(p, first, last)| {
            *p != name::partition_in_key(&line.partition)
                || !(*first..=*last).contains(&line.offset)
        }) {
            let what = "the record does not belong under this key";
            faults.push(Fault::new(Kind::ObjectName, place(), what));
        }
    }
}

/// Holds a manifest's sums against the lines of its objects.
fn counts(files: &Files, manifest: &Manifest, key: &str, lines: &[Line], faults: &mut Vec<Fault>) {
    let mut partitions: BTreeMap<&str, PartitionEntry> = BTreeMap::new();
    for line in lines {
        let share = partitions.entry(&line.partition).or_insert_with(|| PartitionEntry {
            partition: line.partition.clone(),
            first_offset: line.offset,
            last_offset: line.offset,
            records: 0,
        });
        share.first_offset = share.first_offset.min(line.offset);
        share.last_offset = share.last_offset.max(line.offset);
        share.records += 1;
    }
    let mut differs = |what: &str, says: String, is: String| {
        if says != is {
            let what = format!("{what}: the manifest says {says}, the objects give {is}");
            faults.push(Fault::new(Kind::ManifestCount, key, what));
        }
    };
    let number = |n: u64| n.to_string();
    differs("records", number(manifest.records), number(lines.len() as u64));
    let sum = |of: fn(&ObjectEntry) -> u64| manifest.objects.iter().map(of).sum::<u64>();
    differs("bytes of its objects", number(manifest.bytes), number(sum(|o| o.bytes)));
    differs("records of its objects", number(manifest.records), number(sum(|o| o.records)));
    let wrapped = lines.iter().filter(|line| line.wrapped).count();
    differs("wrapped", number(manifest.wrapped), number(wrapped as u64));
    if let Some(longest) = manifest.max_record_bytes {
        let found = lines.iter().map(|line| line.length).max().unwrap_or_default();
        differs("maxRecordBytes", number(longest), number(found));
    }
    let stamp = |s: Option<u64>| format!("{s:?}");
    differs("minTs", stamp(manifest.min_ts), stamp(lines.iter().map(|l| l.stamp.0).min()));
    differs("maxTs", stamp(manifest.max_ts), stamp(lines.iter().map(|l| l.stamp.0).max()));
    differs("partitions", number(manifest.partitions), number(partitions.len() as u64));
    let found: Vec<PartitionEntry> = partitions.into_values().collect();
    let listed = match listed_ranges(files, manifest) {
        Ok(listed) => listed,
        Err(what) => return faults.push(Fault::new(Kind::ManifestCount, key, what)),
    };
    if found != listed {
        let pairs = found.iter().zip(&listed);
        let first = pairs.into_iter().find(|(is, says)| is != says);
        let what = format!(
            "ranges: {} listed, the objects give {}; first that differs: {first:?}",
            listed.len(),
            found.len()
        );
        faults.push(Fault::new(Kind::ManifestCount, key, what));
    }
}

/// The shares of the partitions, from the manifest or from its sidecar.
fn listed_ranges(files: &Files, manifest: &Manifest) -> Result<Vec<PartitionEntry>, String> {
    let Some(key) = &manifest.ranges_object else { return Ok(manifest.ranges.clone()) };
    let bytes =
        files.0.get(key).ok_or_else(|| format!("the sidecar {key} is not in the bucket"))?;
    let found = sha256(bytes);
    if manifest.ranges_sha256.as_deref() != Some(found.as_str()) {
        return Err(format!("the sidecar {key} has SHA-256 {found}, not the manifest's"));
    }
    let file: RangesFile = serde_json::from_slice(bytes).map_err(|e| format!("{key}: {e}"))?;
    if file.k != manifest.k {
        return Err(format!("the sidecar {key} speaks of window {}", file.k));
    }
    Ok(file.ranges)
}

/// SHA-256 in lower-case hex.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}
