//! What came of runs, for people.
//!
//! Owns: one run's report, the command that runs it again, the table over many. Leaves to others:
//! judging (`run`).

use super::run::Options;
use super::schedule::Kind;
use crate::process::binary;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Violations shown of a run.
const SHOWN: usize = 20;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// Its seed.
    pub seed: u64,
    /// What is wrong; nothing, if all is well.
    pub wrong: Vec<String>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    /// The faults that came, in order.
    pub faults: Vec<Kind>,
    /// What the clients did, by name.
    pub counts: BTreeMap<&'static str, u64>,
    /// The history.
    pub history: PathBuf,
    /// The command that runs it again.
    pub again: String,
}

impl Report {
    /// How often the clients did this.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    /// As text; a failing one says how to run it again.
    pub fn text(&self) -> String {
        let faults: Vec<String> = self.faults.iter().map(|kind| format!("{kind:?}")).collect();
        let counts: Vec<String> =
            self.counts.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let (number, seed) = (self.faults.len(), self.seed);
        let mut text = format!("seed {seed}: {number} faults ({})\n", faults.join(" "));
        text.push_str(&format!("  {}\n", counts.join(", ")));
        for one in &self.left_out {
            text.push_str(&format!("  left out: {one}\n"));
        }
        for wrong in self.wrong.iter().take(SHOWN) {
            text.push_str(&format!("  WRONG {wrong}\n"));
        }
        if !self.wrong.is_empty() {
            let (number, history) = (self.wrong.len(), self.history.display());
            text.push_str(&format!("{number} wrong; history: {history}\nagain: {}\n", self.again));
        }
        text
    }
}

/// The command that runs it again.
pub fn again(options: &Options) -> String {
    let Options { seed, length, variables, only, .. } = options;
    let mut words = Vec::new();
    if let Ok(binary) = binary() {
        words.push(format!("QUEEN_TEST_BINARY={}", quoted(&binary.display().to_string())));
    }
    words.push(format!("cargo run -p queen-sim -- faults --seed {seed}"));
    words.push(match length {
        Some(length) => format!("--seconds {}", length.as_secs()),
        None => "--once".to_owned(),
    });
    words.extend(only.iter().map(|kind| format!("--only {kind:?}")));
    let settings = variables.iter().map(|(name, value)| quoted(&format!("{name}={value}")));
    words.extend(settings.map(|setting| format!("--set {setting}")));
    words.join(" ")
}

/// As one word of a shell.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-=:,@".contains(c);
    if text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// What came of many runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    runs: u64,
    wrong: u64,
    faults: BTreeMap<Kind, u64>,
    counts: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// With one more run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        self.wrong += report.wrong.len() as u64;
        for kind in &report.faults {
            *self.faults.entry(*kind).or_default() += 1;
        }
        for (what, count) in &report.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    /// A table of what was exercised, also of the kinds that never came.
    pub fn text(&self) -> String {
        let mut text = format!("{} runs, {} violations\n", self.runs, self.wrong);
        for kind in Kind::ALL {
            let count = self.faults.get(&kind).copied().unwrap_or(0);
            text.push_str(&format!("  {:<18} {count:>9}\n", format!("{kind:?}")));
        }
        for (what, count) in &self.counts {
            text.push_str(&format!("  {what:<18} {count:>9}\n"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn options() -> Options {
        Options {
            seed: 7,
            length: Some(Duration::from_secs(12)),
            folder: PathBuf::new(),
            variables: vec![("QUEEN_PLANTED_BUG".into(), "it's one".into())],
            only: vec![Kind::KillLeader],
        }
    }

    #[test]
    fn the_command_says_all_that_the_run_was_given() {
        let command = again(&options());
        let want = "-- faults --seed 7 --seconds 12 --only KillLeader \
                    --set 'QUEEN_PLANTED_BUG=it'\\''s one'";
        assert!(command.ends_with(want), "{command}");
        let once = again(&Options { length: None, ..options() });
        assert!(once.contains("--seed 7 --once --only"), "{once}");
    }

    #[test]
    fn the_table_adds_up_and_names_what_never_came() {
        let report = Report {
            seed: 1,
            wrong: vec!["lost".into()],
            left_out: Vec::new(),
            faults: vec![Kind::KillLeader, Kind::CutPair, Kind::KillLeader],
            counts: [("records pushed", 5)].into(),
            history: PathBuf::new(),
            again: "again".into(),
        };
        let mut summary = Summary::default();
        summary.add(&report);
        summary.add(&report);
        let text = summary.text();
        let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        let rows: Vec<String> = rows.collect();
        for row in [
            "2 runs, 2 violations",
            "KillLeader 4",
            "CutPair 2",
            "StopLeader 0",
            "records pushed 10",
        ] {
            assert!(rows.iter().any(|found| found == row), "{row}: {text}");
        }
        assert!(report.text().contains("again: again"));
    }
}
