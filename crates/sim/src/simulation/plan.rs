//! What a run holds fixed, and the settings its owners draw.
//!
//! Owns: which settings vary in a run and over what. Leaves to others: when owners start (`run`).

use crate::chance::Chance;
use crate::lake;
use crate::twin::settings;
use queen_sink::encode::{Compression, ENCODER_REVISION, Encoding, PageCompression};
use queen_sink::layout::{Align, Layout};
use queen_sink::settings::{Queues, Settings, StartAt};
use std::time::Duration;

/// Prefixes that settings take.
pub const PREFIXES: [&str; 2] = ["queen", "other/lake"];

/// What a run holds fixed.
pub struct Plan {
    /// Nodes.
    pub nodes: u64,
    /// Steps before everything calms down.
    pub steps: u64,
    /// Names of queues that are pushed to.
    pub queues: Vec<&'static str>,
    /// The sink copies all queues, by `*`.
    all: bool,
    start: StartAt,
    aligns: Vec<Align>,
    /// Prefixes in use.
    pub prefixes: Vec<&'static str>,
    lease: Duration,
    /// Releases with another encoder come along.
    pub upgrades: bool,
    /// The broker is restored from a backup in the end.
    pub restored: bool,
    /// Some owners write Parquet.
    parquet: bool,
    /// Queues are encrypted from some moment on.
    pub encrypted: bool,
    base: Settings,
}

impl Plan {
    /// Draws a plan.
    pub fn new(chance: &mut Chance) -> Plan {
        let restored = chance.below(12) == 0;
        let aligns = match chance.below(4) {
            0 => vec![Align::Hour, Align::Day, Align::None],
            1 => vec![Align::Day],
            _ => vec![Align::Hour],
        };
        let prefixes = if chance.below(5) == 0 && !restored { 2 } else { 1 };
        let all = chance.below(4) == 0;
        Plan {
            nodes: 1 + chance.below(3),
            steps: 15 + chance.below(45),
            queues: if all && chance.below(2) == 0 {
                vec!["orders", "a/b"]
            } else {
                vec!["orders"]
            },
            all,
            start: if chance.below(3) == 0 { StartAt::Latest } else { StartAt::Earliest },
            aligns,
            prefixes: PREFIXES[..prefixes].to_vec(),
            lease: Duration::from_secs(*chance.pick(&[20, 30, 60]).unwrap_or(&30)),
            upgrades: chance.below(5) == 0,
            restored,
            parquet: chance.below(6) == 0,
            encrypted: chance.below(5) == 0,
            base: settings(&[]),
        }
    }

    /// Settings of an owner on the node `name`, of a release so many after this one.
    pub fn settings(&self, chance: &mut Chance, name: &str, release: u32) -> Settings {
        let mut settings = self.base.clone();
        if self.all {
            settings.queues = Queues::All;
        }
        settings.instance = name.to_owned();
        settings.start = self.start;
        settings.lease = self.lease;
        settings.encoder = ENCODER_REVISION + release;
        settings.threads = 1;
        let kinds = [
            Compression::ZSTD,
            Compression::Zstd(1),
            Compression::GZIP,
            Compression::None,
            Compression::None,
        ];
        let compression = chance.pick(&kinds).copied().unwrap_or(Compression::None);
        settings.encoding = Encoding::Jsonl(compression);
        if self.parquet && chance.below(2) == 0 {
            let kinds = [PageCompression::Snappy, PageCompression::ZSTD, PageCompression::Zstd(1)];
            let compression = chance.pick(&kinds).copied().unwrap_or(PageCompression::ZSTD);
            settings.encoding = Encoding::Parquet(compression);
        }
        settings.layout = if chance.below(3) == 0 { Layout::PerPartition } else { Layout::Merged };
        settings.align = chance.pick(&self.aligns).copied().unwrap_or(Align::Hour);
        settings.prefix = chance.pick(&self.prefixes).map_or("queen", |prefix| prefix).to_owned();
        settings.wrap = chance.below(2) == 0;
        settings.target_bytes = chance.pick(&[200, 600, 3_000, 100_000]).copied().unwrap_or(600);
        let window = chance.pick(&[1_000, 5_000, 20_000, 60_000]).copied().unwrap_or(5_000);
        settings.max_window = Duration::from_millis(window);
        if chance.below(4) == 0 {
            settings.bucket.multipart_threshold = 0;
        }
        if chance.below(4) == 0 {
            // A window gets what it needs to be encoded, and no object fits the rest.
            settings.memory_bytes = 1;
        }
        settings
    }

    /// Where the checker is to look.
    pub fn layout(&self) -> lake::Layout<'_> {
        let align = match self.aligns[..] {
            [Align::Hour] => lake::Align::Hour,
            [Align::Day] => lake::Align::Day,
            _ => lake::Align::None,
        };
        lake::Layout { prefix: self.prefixes[0], older: &self.prefixes[1..], align }
    }
}
