//! Holds a lake against the list of accepted records, reading files only.
//!
//! Owns: the check from the bucket's names down to each byte of each payload. Leaves to others:
//! pushing and fault making (the tests), the sink's own verification. Shares no code with the sink.
//! Upholds: `windows-tile`, `once-in-the-lake`, `loss-is-listed`, `manifest-chain`.

pub mod damage;
pub mod fault;
pub mod files;
mod hours;
pub mod line;
pub mod manifest;
pub mod name;
mod object;
mod parquet;
mod records;
mod wait;
mod window;

pub use fault::{Fault, Kind};
pub use files::Files;
pub use records::{Accepted, Expected, Unanswered};
pub use wait::{whole_lake, whole_lake_of};
pub use window::sha256;

use manifest::Manifest;
use name::Name;
use records::QueueLines;
use std::collections::{BTreeMap, BTreeSet};

/// How folders are cut, as `QUEEN_S3_ALIGN` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// `dt=…/hour=…`.
    #[default]
    Hour,
    /// `dt=…`.
    Day,
    /// By the start of the window alone.
    None,
}

/// Where a sink writes, as its settings say.
#[derive(Clone, Copy, Debug)]
pub struct Layout<'a> {
    /// `QUEEN_S3_PREFIX`.
    pub prefix: &'a str,
    /// Other prefixes that the setting had: the copy goes on from one to the next.
    pub older: &'a [&'a str],
    /// `QUEEN_S3_ALIGN`.
    pub align: Align,
}

impl Default for Layout<'_> {
    fn default() -> Self {
        Layout { prefix: "queen", older: &[], align: Align::Hour }
    }
}

impl Layout<'_> {
    /// Reads a key below one of the prefixes.
    fn parse(&self, key: &str) -> Result<Name, String> {
        let found = name::parse(self.prefix, key);
        let mut others = self.older.iter().filter_map(|prefix| name::parse(prefix, key).ok());
        found.or_else(|what| others.next().ok_or(what))
    }
}

/// What the check found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Everything that is wrong; empty for a good lake.
    pub faults: Vec<Fault>,
    /// Manifests read.
    pub windows: u64,
    /// Lines read.
    pub records: u64,
}

impl Report {
    /// Whether a fault of this kind was found.
    pub fn has(&self, kind: Kind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }

    /// The faults as text, at most 20 of them.
    pub fn text(&self) -> String {
        let mut text = format!("{} faults\n", self.faults.len());
        for fault in self.faults.iter().take(20) {
            text.push_str(&format!("  {fault}\n"));
        }
        text
    }
}

/// The manifests of one queue by number, each with its key and its bytes' hash.
type Windows = BTreeMap<u64, (String, String, Manifest)>;

/// Checks everything in the bucket; keys outside the prefix are strangers.
pub fn check(files: &Files, layout: Layout<'_>, expected: &Expected) -> Report {
    let mut report = Report::default();
    let faults = &mut report.faults;
    let (queues, data) = manifests(files, layout, faults);
    sidecars(files, layout, &queues, faults);
    let mut named: BTreeSet<&str> = BTreeSet::new();
    let mut lines = Vec::new();
    for ((tenant, queue), windows) in &queues {
        let highest_object = data.iter().filter(|(_, d)| d.tenant == *tenant && d.queue == *queue);
        let highest = highest_object.map(|(_, d)| d.k).chain(windows.keys().copied()).max();
        chain(tenant, queue, windows, highest.unwrap_or_default(), layout.align, faults);
        let mut queue_lines =
            QueueLines { queue: queue.clone(), lines: Vec::new(), lost: Vec::new() };
        for (key, _, manifest) in windows.values() {
            named.extend(manifest.objects.iter().map(|object| object.key.as_str()));
            queue_lines.lost.extend(manifest.lost.iter().cloned());
            queue_lines.lines.extend(window::check(files, layout, manifest, key, faults));
            report.windows += 1;
        }
        report.records += queue_lines.lines.len() as u64;
        if *tenant == expected.tenant {
            lines.push(queue_lines);
        }
    }
    for (key, name) in &data {
        if named.contains(key) {
            continue;
        }
        let what = "no manifest names it";
        faults.push(Fault::new(Kind::ObjectStranger, *key, what));
        if !queues.contains_key(&(name.tenant.clone(), name.queue.clone())) {
            let what = format!("window {} has an object and no manifest", name.k);
            let at = format!("tenant {} queue {:?}", name.tenant, name.queue);
            faults.push(Fault::new(Kind::ManifestMissing, at, what));
        }
    }
    records::check(&lines, expected, faults);
    report
}

type Data<'a> = Vec<(&'a str, name::DataName)>;

/// Sorts the keys into manifests by (tenant, queue) and data objects.
fn manifests<'a>(
    files: &'a Files,
    layout: Layout<'_>,
    faults: &mut Vec<Fault>,
) -> (BTreeMap<(String, String), Windows>, Data<'a>) {
    let mut queues: BTreeMap<(String, String), Windows> = BTreeMap::new();
    let mut data = Vec::new();
    for (key, bytes) in &files.0 {
        match layout.parse(key) {
            Ok(Name::Data(name)) => data.push((key.as_str(), name)),
            Ok(Name::Manifest(tenant, queue, k)) => {
                let manifest: Manifest = match serde_json::from_slice(bytes) {
                    Ok(manifest) => manifest,
                    Err(error) => {
                        let what = error.to_string();
                        faults.push(Fault::new(Kind::ManifestUnreadable, key, what));
                        continue;
                    }
                };
                let says = (&manifest.tenant, &manifest.queue, manifest.k);
                let in_key = name::queue_in_key(&manifest.queue);
                if (&manifest.tenant, &in_key, manifest.k) != (&tenant, &queue, k) {
                    let what = format!("the document speaks of {says:?}");
                    faults.push(Fault::new(Kind::ManifestName, key, what));
                }
                let of = (tenant, manifest.queue.clone());
                let row = (key.clone(), sha256(bytes), manifest);
                queues.entry(of).or_default().insert(k, row);
            }
            Ok(Name::Sidecar(..)) => {}
            Err(what) => faults.push(Fault::new(Kind::ObjectStranger, key, what)),
        }
    }
    let whole = whole_names(&queues);
    for (_, name) in &mut data {
        if let Some(queue) = whole.get(&name.queue) {
            name.queue.clone_from(queue);
        }
    }
    (queues, data)
}

/// Names of queues as keys show them, and whole.
fn whole_names(queues: &BTreeMap<(String, String), Windows>) -> BTreeMap<String, String> {
    let names = queues.keys().map(|(_, queue)| (name::queue_in_key(queue), queue.clone()));
    names.filter(|(in_key, whole)| in_key != whole).collect()
}

/// Holds hour files against the windows, and knows every sidecar's manifest.
fn sidecars(
    files: &Files,
    layout: Layout<'_>,
    queues: &BTreeMap<(String, String), Windows>,
    faults: &mut Vec<Fault>,
) {
    let none = Windows::new();
    let whole = whole_names(queues);
    for (key, bytes) in &files.0 {
        let Ok(Name::Sidecar(tenant, queue, rest)) = layout.parse(key) else {
            continue;
        };
        let queue = whole.get(&queue).cloned().unwrap_or(queue);
        let windows = queues.get(&(tenant.clone(), queue.clone())).unwrap_or(&none);
        let listed =
            windows.values().any(|(_, _, m)| m.ranges_object.as_deref() == Some(key.as_str()));
        match rest.strip_prefix("hours/").and_then(|file| file.strip_suffix(".json")) {
            Some(hour) => {
                let manifests = windows.values().map(|(_, _, manifest)| manifest);
                if let Err(what) = hours::check((&tenant, &queue, hour), bytes, manifests) {
                    faults.push(Fault::new(Kind::HourWrong, key, what));
                }
            }
            None if listed => {}
            None => faults.push(Fault::new(Kind::ObjectStranger, key, "no manifest names it")),
        }
    }
}

/// Holds the windows of a queue against one another: 1..=highest, each chained to the one before,
/// together tiling time.
fn chain(
    tenant: &str,
    queue: &str,
    windows: &Windows,
    highest: u64,
    align: Align,
    faults: &mut Vec<Fault>,
) {
    let mut next = 1;
    for k in windows.keys().copied().chain([highest.saturating_add(1)]) {
        if next < k {
            let at = format!("tenant {tenant} queue {queue:?}");
            let what = format!("windows {next}..{k} have none");
            faults.push(Fault::new(Kind::ManifestMissing, at, what));
        }
        next = k.saturating_add(1);
    }
    for (k, (key, _, manifest)) in windows {
        let before = k.checked_sub(1).and_then(|k| windows.get(&k));
        let prev = manifest.prev.as_deref().filter(|prev| !prev.is_empty());
        let want = before.map(|(_, hash, _)| hash.as_str());
        if prev != want && (*k == 1 || before.is_some()) {
            let what = format!("prev is {prev:?}, the manifest before has {want:?}");
            faults.push(Fault::new(Kind::ManifestChain, key, what));
        }
        let end_before = before.map(|(_, _, m)| m.t_end);
        if let Some(what) = tiles(manifest, end_before, align) {
            faults.push(Fault::new(Kind::WindowsTile, key, what));
        }
    }
}

/// What is wrong with a window's place in time. A window starts where the one before ended, or at
/// the boundary below its first record when that is later (any boundary, when it has none: it lists
/// loss); it does not pass the next boundary.
fn tiles(manifest: &Manifest, end_before: Option<u64>, align: Align) -> Option<String> {
    let unit = match align {
        Align::Hour => 3_600_000_000,
        Align::Day => 86_400_000_000,
        Align::None => return tiles_unaligned(manifest, end_before),
    };
    let (start, end) = (manifest.t_start, manifest.t_end);
    if end <= start {
        return Some(format!("it ends at {end}, before its start {start}"));
    }
    if (end - 1) / unit != start / unit {
        return Some(format!("{start}..{end} passes a boundary of {unit} µs"));
    }
    if manifest.min_ts.is_none() && start % unit == 0 && end_before.is_none_or(|end| end <= start) {
        return None;
    }
    let floor = manifest.min_ts.map(|first| first / unit * unit);
    // The first window may begin where the copy does, inside the hour of its first record.
    let inside = floor.is_some_and(|floor| floor <= start) && manifest.min_ts >= Some(start);
    if end_before.is_none() && inside {
        return None;
    }
    let want = floor.into_iter().chain(end_before).max();
    match want {
        Some(want) if want != start => {
            Some(format!("it starts at {start}; the end before and its hour give {want}"))
        }
        _ => None,
    }
}

fn tiles_unaligned(manifest: &Manifest, end_before: Option<u64>) -> Option<String> {
    let start = manifest.t_start;
    match end_before {
        Some(before) if before > start => {
            Some(format!("it starts at {start}, inside the window before, which ends at {before}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod lake_tests;
