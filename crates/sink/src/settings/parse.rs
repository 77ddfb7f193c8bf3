//! From text to [`Settings`]: collects every error instead of stopping at the first.
//!
//! Owns: the checks that need more than the table says. Leaves to others: names, ranges, words,
//! defaults (`queen_core::setting::sink`), the bucket's part (`bucket`).

use super::*;
use crate::encode::{Compression, PageCompression};
use crate::needs::least_bytes;
use queen_core::setting::sink as table;
use queen_core::setting::{Default, Setting, nearest};
use std::collections::BTreeMap;

/// Every bad setting of a start, one line each.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("\n"))]
pub struct SettingsError(pub Vec<String>);

/// The variables, and what is wrong with them.
pub(super) struct Reader {
    vars: BTreeMap<String, String>,
    errors: Vec<String>,
}

impl Reader {
    /// A value is trimmed; an empty one counts as unset.
    fn new(vars: impl IntoIterator<Item = (String, String)>) -> Reader {
        let trimmed = vars.into_iter().map(|(name, value)| (name, value.trim().to_owned()));
        let vars = trimmed.filter(|(_, value)| !value.is_empty()).collect();
        Reader { vars, errors: Vec::new() }
    }

    pub(super) fn get(&self, setting: &Setting) -> Option<&str> {
        self.vars.get(setting.name).map(String::as_str)
    }

    /// The value, or what the table says holds without one.
    pub(super) fn text(&self, setting: &Setting) -> Option<&str> {
        match setting.default {
            Default::Value(default) => Some(self.get(setting).unwrap_or(default)),
            _ => self.get(setting),
        }
    }

    pub(super) fn error(&mut self, setting: &Setting, why: impl AsRef<str>) {
        let refusal = setting.refusal(self.get(setting), why.as_ref());
        self.errors.push(refusal);
    }

    pub(super) fn missing(&mut self, setting: &Setting) {
        self.errors.push(setting.missing());
    }

    pub(super) fn required(&mut self, setting: &Setting) -> String {
        match self.get(setting) {
            Some(value) => value.to_owned(),
            None => {
                self.missing(setting);
                String::new()
            }
        }
    }

    /// What a value means; `None` when there is none, or a bad one (which is noted).
    fn parsed<T>(
        &mut self,
        setting: &Setting,
        parse: impl FnOnce(&Setting, &str) -> Result<T, String>,
    ) -> Option<T> {
        let parsed = parse(setting, self.text(setting)?);
        parsed.map_err(|refusal| self.errors.push(refusal)).ok()
    }

    pub(super) fn number(&mut self, setting: &Setting) -> u64 {
        self.parsed(setting, Setting::parse_number).unwrap_or(1)
    }

    /// The name of the word; empty when there is none.
    pub(super) fn word(&mut self, setting: &Setting) -> &'static str {
        self.parsed(setting, Setting::parse_word).unwrap_or_default()
    }

    pub(super) fn switch(&mut self, setting: &Setting) -> bool {
        self.parsed(setting, Setting::parse_switch).unwrap_or_default()
    }
}

pub(super) fn parse(
    vars: impl IntoIterator<Item = (String, String)>,
    around: &Surroundings,
) -> Result<Option<Settings>, SettingsError> {
    let mut r = Reader::new(vars);
    let on = r.switch(&table::EMBEDDED);
    if !on {
        return if r.errors.is_empty() { Ok(None) } else { Err(SettingsError(r.errors)) };
    }
    let warnings = names(&mut r);
    let lease = Duration::from_secs(r.number(&table::LEASE_TTL_MS) / 1000);
    let encoding = encoding(&mut r);
    let settings = Settings {
        sink: sink_name(&mut r),
        queues: queues(&mut r),
        bucket: bucket::bucket(&mut r, lease * 2 / 3),
        prefix: key_prefix(&mut r),
        encoding,
        wrap: r.switch(&table::WRAP),
        layout: layout(&mut r),
        align: align(&mut r),
        start: start(&mut r),
        target_bytes: r.number(&table::TARGET_MB) << 20,
        max_window: Duration::from_millis(r.number(&table::MAX_WINDOW_MS)),
        memory_bytes: memory(&mut r, encoding),
        threads: match r.parsed(&table::THREADS, Setting::parse_number) {
            Some(threads) => threads as usize,
            None => (around.cores / 4).clamp(1, 2),
        },
        lease,
        shutdown_grace: Duration::from_millis(r.number(&table::SHUTDOWN_GRACE_MS)),
        instance: instance(&r, around),
        encoder: ENCODER_REVISION,
        crash_at: crash_at(&mut r),
        warnings,
    };
    if r.errors.is_empty() { Ok(Some(settings)) } else { Err(SettingsError(r.errors)) }
}

fn compression(r: &mut Reader) -> Compression {
    match r.word(&table::COMPRESSION) {
        "gzip" => Compression::GZIP,
        "none" => Compression::None,
        _ => Compression::ZSTD,
    }
}

fn layout(r: &mut Reader) -> Layout {
    match r.word(&table::LAYOUT) {
        "per-partition" => Layout::PerPartition,
        _ => Layout::Merged,
    }
}

fn align(r: &mut Reader) -> Align {
    match r.word(&table::ALIGN) {
        "day" => Align::Day,
        "none" => Align::None,
        _ => Align::Hour,
    }
}

fn start(r: &mut Reader) -> StartAt {
    match r.word(&table::START) {
        "earliest" => StartAt::Earliest,
        _ => StartAt::Latest,
    }
}

/// Refuses unknown names with the nearest known one; gives a warning per name without effect.
fn names(r: &mut Reader) -> Vec<String> {
    let mut warnings = Vec::new();
    let of = |list: &[(&str, &'static str)], name: &str| {
        list.iter().find(|(known, _)| *known == name).map(|(_, why)| *why)
    };
    for (name, value) in r.vars.range(table::PREFIX.to_owned()..) {
        if !name.starts_with(table::PREFIX) {
            break;
        }
        if table::ALL.iter().any(|known| known.name == name) {
            continue;
        }
        if let Some(why) = of(table::REFUSED, name) {
            r.errors.push(format!("{name}={value}: {why}"));
        } else if let Some(why) = of(table::WITHOUT_EFFECT, name) {
            warnings.push(format!("{name} has no effect: {why}"));
        } else {
            let near = nearest(name, table::ALL).unwrap_or(&table::QUEUES).name;
            // The value of a misspelt secret must not be seen either.
            r.errors.push(format!("{name}: no such setting; the nearest is {near}"));
        }
    }
    warnings
}

fn queues(r: &mut Reader) -> Queues {
    let text = r.required(&table::QUEUES);
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
            &table::QUEUES,
            "names no queue; give names separated by commas, or *, for example orders",
        );
    } else if list.iter().any(|name| name == "*") {
        r.error(
            &table::QUEUES,
            "* stands alone or not at all; give only *, or only names, for example *",
        );
    }
    Queues::Named(list)
}

fn key_prefix(r: &mut Reader) -> String {
    let Some(text) = r.get(&table::KEY_PREFIX) else { return "queen".to_owned() };
    let prefix = text.trim_matches('/').to_owned();
    if prefix.split('/').any(|part| matches!(part, "" | "." | "..")) {
        r.error(
            &table::KEY_PREFIX,
            "must have no empty, . or .. parts, for example queen or team/queen",
        );
    } else if prefix.len() > 256 {
        r.error(&table::KEY_PREFIX, "is longer than 256 bytes, for example queen");
    } else if prefix.chars().any(|c| c.is_control()) {
        r.error(&table::KEY_PREFIX, "must have no control characters, for example queen");
    }
    prefix
}

/// Both codecs are checked, whichever the format needs.
fn encoding(r: &mut Reader) -> Encoding {
    let jsonl = Encoding::Jsonl(compression(r));
    let parquet = Encoding::Parquet(match r.word(&table::PARQUET_CODEC) {
        "snappy" => PageCompression::Snappy,
        _ => PageCompression::ZSTD,
    });
    if r.word(&table::FORMAT) == "parquet" { parquet } else { jsonl }
}

/// Enough for a window of this encoding.
fn memory(r: &mut Reader, encoding: Encoding) -> u64 {
    let Some(mib) = r.parsed(&table::MEMORY_MB, Setting::parse_number) else { return 0 };
    let least = least_bytes(encoding).div_ceil(1 << 20);
    if mib < least {
        let format = encoding.format();
        r.error(&table::MEMORY_MB, format!("{format} takes {least} MiB or more, for example 256"));
    }
    mib << 20
}

fn sink_name(r: &mut Reader) -> String {
    let name = r.get(&table::SINK).unwrap_or("default").to_owned();
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if name.len() > 64 || !name.bytes().all(fits) {
        r.error(&table::SINK, "must be 1 to 64 of A-Z a-z 0-9 . _ -, for example default");
    }
    name
}

fn instance(r: &Reader, around: &Surroundings) -> String {
    let node = format!("node-{}", around.node);
    match r.get(&table::INSTANCE) {
        Some(name) if name.ends_with(&format!("/{node}")) => name.to_owned(),
        Some(name) => format!("{name}/{node}"),
        None => format!("{node}@{}", around.host),
    }
}

fn crash_at(r: &mut Reader) -> Option<CrashPoint> {
    match r.word(&table::CRASH_AT) {
        "after_intent" => Some(CrashPoint::AfterIntent),
        "mid_upload" => Some(CrashPoint::MidUpload),
        "after_upload" => Some(CrashPoint::AfterUpload),
        "before_commit" => Some(CrashPoint::BeforeCommit),
        "after_commit" => Some(CrashPoint::AfterCommit),
        _ => None,
    }
}

#[cfg(test)]
#[path = "parse_tests.rs"]
mod tests;
