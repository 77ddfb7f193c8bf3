//! From text to [`Settings`]: collects every error instead of stopping at the first.

use super::*;
use crate::encode::Compression;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

const PREFIX: &str = "QUEEN_S3_";

/// Every name that is taken, with what it stands for.
const KNOWN: &[&str] = &[
    "EMBEDDED",
    "THREADS",
    "SHUTDOWN_GRACE_MS",
    "QUEUES",
    "ENDPOINT",
    "REGION",
    "BUCKET",
    "ACCESS_KEY",
    "SECRET_KEY",
    "SESSION_TOKEN",
    "PREFIX",
    "PATH_STYLE",
    "SSE",
    "SSE_KMS_KEY_ID",
    "FORMAT",
    "COMPRESSION",
    "PARQUET_CODEC",
    "LAYOUT",
    "ALIGN",
    "START",
    "TARGET_MB",
    "MAX_WINDOW_MS",
    "SINK",
    "MEMORY_MB",
    "LEASE_TTL_MS",
    "MULTIPART_THRESHOLD_MB",
    "INSTANCE",
    "CRASH_AT",
    "WRAP",
    "CA_FILE",
];

/// Names of other releases that have nothing to act on here.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("FETCH_CONCURRENCY", "windows are read from the log in one pass"),
    ("DISCOVERY_INTERVAL_MS", "partitions are not polled"),
    ("SAFE_GUARD_MS", "a window is final as soon as the log clock has passed its end"),
    ("CHECKPOINT_EVERY", "positions are part of the log"),
    ("LISTEN", "the broker's own port serves status and metrics"),
    ("LOG_FORMAT", "the broker's own log setting applies"),
];

/// Every bad setting of a start, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingsError(pub Vec<String>);

/// The variables by their short names, and what is wrong with them.
pub(super) struct Reader {
    vars: BTreeMap<String, String>,
    errors: Vec<String>,
}

impl Reader {
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(String::as_str)
    }

    pub(super) fn error(&mut self, name: &str, text: impl AsRef<str>) {
        let value = match self.get(name) {
            Some(_) if name.contains("SECRET") || name.contains("TOKEN") => {
                "=<redacted>".to_owned()
            }
            Some(value) => format!("={value}"),
            None => String::new(),
        };
        self.errors.push(format!("{PREFIX}{name}{value}: {}", text.as_ref()));
    }

    pub(super) fn required(&mut self, name: &str, what: &str) -> String {
        match self.get(name) {
            Some(value) => value.to_owned(),
            None => {
                self.error(name, format!("not set, and needed: {what}"));
                String::new()
            }
        }
    }

    pub(super) fn number(
        &mut self,
        name: &str,
        default: u64,
        range: RangeInclusive<u64>,
        what: &str,
    ) -> u64 {
        let Some(text) = self.get(name) else { return default };
        match text.parse::<u64>() {
            Ok(n) if range.contains(&n) => n,
            parsed => {
                let why = if parsed.is_ok() { "out of range" } else { "not a whole number" };
                let (low, high) = (range.start(), range.end());
                self.error(
                    name,
                    format!("{why}; {low} to {high} is allowed ({what}), for example {default}"),
                );
                default
            }
        }
    }

    /// One of `words`; each entry is a spelling and its meaning, the first of a meaning is shown.
    pub(super) fn word<T: Copy + PartialEq>(
        &mut self,
        name: &str,
        default: T,
        words: &[(&str, T)],
        what: &str,
    ) -> T {
        let Some(text) = self.get(name).map(str::to_ascii_lowercase) else { return default };
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return *meaning;
        }
        let mut shown: Vec<&str> = Vec::new();
        let mut seen: Vec<T> = Vec::new();
        for (word, meaning) in words {
            if !seen.contains(meaning) {
                seen.push(*meaning);
                shown.push(word);
            }
        }
        self.error(
            name,
            format!("{what} must be one of {}, for example {}", shown.join(", "), shown[0]),
        );
        default
    }

    pub(super) fn boolean(&mut self, name: &str, default: bool) -> bool {
        let words = [
            ("true", true),
            ("false", false),
            ("1", true),
            ("0", false),
            ("yes", true),
            ("no", false),
            ("on", true),
            ("off", false),
        ];
        self.word(name, default, &words, "the switch")
    }
}

/// The settings by their short names, and whether the environment offers AWS credentials.
fn reader(vars: impl IntoIterator<Item = (String, String)>) -> (Reader, bool) {
    let mut r = Reader { vars: BTreeMap::new(), errors: Vec::new() };
    let mut ambient_credentials = false;
    for (name, value) in vars {
        let value = value.trim();
        if value.is_empty() {
            continue;
        }
        ambient_credentials |= matches!(
            name.as_str(),
            "AWS_ACCESS_KEY_ID"
                | "AWS_WEB_IDENTITY_TOKEN_FILE"
                | "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"
                | "AWS_CONTAINER_CREDENTIALS_FULL_URI"
        );
        if let Some(short) = name.strip_prefix(PREFIX) {
            r.vars.insert(short.to_owned(), value.to_owned());
        }
    }
    (r, ambient_credentials)
}

pub(super) fn parse(
    vars: impl IntoIterator<Item = (String, String)>,
    around: &Surroundings,
) -> Result<Option<Settings>, SettingsError> {
    let (mut r, ambient_credentials) = reader(vars);
    let on = r.boolean("EMBEDDED", false);
    if !on {
        return if r.errors.is_empty() { Ok(None) } else { Err(SettingsError(r.errors)) };
    }
    let warnings = names(&mut r);
    let bucket = bucket::bucket(&mut r, ambient_credentials);
    let settings = Settings {
        sink: sink_name(&mut r),
        queues: queues(&mut r),
        prefix: key_prefix(&mut r),
        encoding: encoding(&mut r),
        wrap: r.boolean("WRAP", true),
        layout: layout(&mut r),
        align: align(&mut r),
        start: start(&mut r),
        target_bytes: r.number("TARGET_MB", 128, 1..=5120, "uncompressed MiB that close a window")
            << 20,
        max_window: Duration::from_millis(r.number(
            "MAX_WINDOW_MS",
            300_000,
            100..=86_400_000,
            "longest time a window stays open, milliseconds",
        )),
        memory_bytes: r.number(
            "MEMORY_MB",
            256,
            64..=1_048_576,
            "memory for all windows in work, MiB",
        ) << 20,
        threads: r.number(
            "THREADS",
            (around.cores as u64 / 4).clamp(1, 2),
            1..=64,
            "encoding threads",
        ) as usize,
        lease: Duration::from_secs(
            r.number("LEASE_TTL_MS", 30_000, 1000..=3_600_000, "life of a lease, milliseconds")
                / 1000,
        ),
        shutdown_grace: Duration::from_millis(r.number(
            "SHUTDOWN_GRACE_MS",
            30_000,
            100..=3_600_000,
            "time to give leases back, milliseconds",
        )),
        instance: instance(&r, around),
        encoder: ENCODER_REVISION,
        crash_at: crash_at(&mut r),
        bucket,
        warnings,
    };
    let settings = Settings {
        bucket: BucketSettings {
            request_timeout: settings.lease * 2 / 3,
            ..settings.bucket.clone()
        },
        ..settings
    };
    if r.errors.is_empty() { Ok(Some(settings)) } else { Err(SettingsError(r.errors)) }
}

fn compression(r: &mut Reader) -> Compression {
    r.word(
        "COMPRESSION",
        Compression::ZSTD,
        &[
            ("zstd", Compression::ZSTD),
            ("zst", Compression::ZSTD),
            ("gzip", Compression::GZIP),
            ("gz", Compression::GZIP),
            ("none", Compression::None),
            ("off", Compression::None),
        ],
        "the compression of JSONL",
    )
}

fn layout(r: &mut Reader) -> Layout {
    r.word(
        "LAYOUT",
        Layout::Merged,
        &[
            ("merged", Layout::Merged),
            ("per-partition", Layout::PerPartition),
            ("per_partition", Layout::PerPartition),
            ("perpartition", Layout::PerPartition),
        ],
        "the layout",
    )
}

fn align(r: &mut Reader) -> Align {
    r.word(
        "ALIGN",
        Align::Hour,
        &[
            ("hour", Align::Hour),
            ("hourly", Align::Hour),
            ("day", Align::Day),
            ("daily", Align::Day),
            ("none", Align::None),
            ("off", Align::None),
        ],
        "the boundary that no window crosses",
    )
}

fn start(r: &mut Reader) -> StartAt {
    r.word(
        "START",
        StartAt::Latest,
        &[
            ("latest", StartAt::Latest),
            ("now", StartAt::Latest),
            ("end", StartAt::Latest),
            ("earliest", StartAt::Earliest),
            ("beginning", StartAt::Earliest),
        ],
        "the start of a queue seen for the first time",
    )
}

/// Refuses unknown names with the nearest known one; gives a warning per name without effect.
fn names(r: &mut Reader) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in r.vars.keys().cloned().collect::<Vec<_>>() {
        if KNOWN.contains(&name.as_str()) {
            continue;
        }
        if name == "PARTITIONS" {
            r.error(&name, "a static list of partitions is not taken: every partition of a chosen queue is copied; unset it and name queues in QUEEN_S3_QUEUES");
        } else if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(known, _)| *known == name) {
            warnings.push(format!("{PREFIX}{name} has no effect: {why}"));
        } else {
            let near = KNOWN.iter().min_by_key(|known| distance(&name, known)).unwrap_or(&"QUEUES");
            let text = format!("no such setting; the nearest is {PREFIX}{near}");
            // The value of a misspelt secret must not be seen either.
            r.errors.push(format!("{PREFIX}{name}: {text}"));
        }
    }
    warnings
}

fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

fn queues(r: &mut Reader) -> Queues {
    let text = r.required(
        "QUEUES",
        "the queues to copy, comma-separated, or *, for example orders,invoices",
    );
    if text.is_empty() {
        return Queues::All;
    }
    let mut list: Vec<String> =
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
    list.sort();
    list.dedup();
    if list == ["*"] {
        return Queues::All;
    }
    if list.is_empty() {
        r.error(
            "QUEUES",
            "names no queue; give names separated by commas, or *, for example orders",
        );
    } else if list.iter().any(|name| name == "*") {
        r.error(
            "QUEUES",
            "* stands alone or not at all; give only *, or only names, for example *",
        );
    }
    Queues::Named(list)
}

fn key_prefix(r: &mut Reader) -> String {
    let Some(text) = r.get("PREFIX") else { return "queen".to_owned() };
    let prefix = text.trim_matches('/').to_owned();
    if prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
        r.error("PREFIX", "must have no empty, . or .. parts, for example queen or team/queen");
    } else if prefix.len() > 256 {
        r.error("PREFIX", "is longer than 256 bytes, for example queen");
    } else if prefix.chars().any(|c| c.is_control()) {
        r.error("PREFIX", "must have no control characters, for example queen");
    }
    prefix
}

fn encoding(r: &mut Reader) -> Encoding {
    let jsonl = Encoding::Jsonl(compression(r));
    r.word(
        "PARQUET_CODEC",
        0,
        &[("zstd", 0), ("zst", 0), ("snappy", 1), ("snap", 1)],
        "the codec of Parquet",
    );
    if r.get("FORMAT").is_some_and(|text| text.eq_ignore_ascii_case("parquet")) {
        r.error("FORMAT", "this release writes JSONL only; unset it or set jsonl");
        return jsonl;
    }
    let words = [("jsonl", jsonl), ("json", jsonl), ("ndjson", jsonl)];
    r.word("FORMAT", jsonl, &words, "the format")
}

fn sink_name(r: &mut Reader) -> String {
    let name = r.get("SINK").unwrap_or("default").to_owned();
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if name.len() > 64 || !name.bytes().all(fits) {
        r.error("SINK", "must be 1 to 64 of A-Z a-z 0-9 . _ -, for example default");
    }
    name
}

fn instance(r: &Reader, around: &Surroundings) -> String {
    let node = format!("node-{}", around.node);
    match r.get("INSTANCE") {
        Some(name) if name.ends_with(&format!("/{node}")) => name.to_owned(),
        Some(name) => format!("{name}/{node}"),
        None => format!("{node}@{}", around.host),
    }
}

fn crash_at(r: &mut Reader) -> Option<CrashPoint> {
    let words = [
        ("never", None),
        ("off", None),
        ("none", None),
        ("after_intent", Some(CrashPoint::AfterIntent)),
        ("mid_upload", Some(CrashPoint::MidUpload)),
        ("after_upload", Some(CrashPoint::AfterUpload)),
        ("before_commit", Some(CrashPoint::BeforeCommit)),
        ("after_commit", Some(CrashPoint::AfterCommit)),
    ];
    r.word("CRASH_AT", None, &words, "the crash point")
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
