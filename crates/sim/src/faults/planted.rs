//! Whether the harness finds faults that were planted in the broker.
//!
//! Owns: under which faults of the world each is looked for, and what must tell of it. Leaves to others: the
//! planted faults, which only a build with `--features queen/planted-bugs` has; one run (`run`).

use super::report::Report;
use super::run::{Options, run};
use super::schedule::Kind;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

/// The setting that turns one on.
const VARIABLE: &str = "QUEEN_PLANTED_BUG";

/// A fault of the broker that a build can have.
#[derive(Debug)]
pub struct Planted {
    /// Its name, as the setting has it.
    pub name: &'static str,
    /// Faults of the world under which it shows.
    kinds: &'static [Kind],
    /// How a violation that it can cause begins.
    shows: &'static [&'static str],
}

/// All.
pub static PLANTED: [Planted; 4] = [
    Planted {
        name: "answer-before-majority",
        kinds: &[Kind::CutLeader, Kind::MuteLeader, Kind::DeafLeader, Kind::KillLeader],
        shows: &["lost", "not linearizable", "dead", "books"],
    },
    Planted {
        name: "read-without-barrier",
        kinds: &[Kind::CutLeader, Kind::CutFollower, Kind::MuteLeader, Kind::PauseLeader],
        shows: &["not linearizable", "count", "pointer"],
    },
    Planted {
        name: "lease-on-wall-clock",
        kinds: &[Kind::LeapLeader, Kind::LeapFollower, Kind::KillLeader],
        shows: &["two holders", "taken away", "fence", "lost", "stuck"],
    },
    Planted {
        name: "commit-without-fence",
        kinds: &[Kind::PauseOwner],
        shows: &["pointer", "lake"],
    },
];

impl Planted {
    /// The one that bears this name.
    pub fn from_name(name: &str) -> Option<&'static Planted> {
        PLANTED.iter().find(|planted| planted.name == name)
    }

    /// Whether a run found it, and not something else.
    fn shows_in(&self, report: &Report) -> bool {
        let tells = |wrong: &String| self.shows.iter().any(|word| wrong.starts_with(word));
        report.wrong.iter().any(tells)
    }
}

/// Runs seeds with the fault turned on until one finds it; its report, or `None`.
pub async fn find_planted(
    planted: &Planted,
    seeds: Range<u64>,
    length: Duration,
    folder: &Path,
) -> anyhow::Result<Option<Report>> {
    for seed in seeds {
        let options = Options {
            seed,
            length: Some(length),
            folder: folder.to_owned(),
            variables: vec![(VARIABLE.to_owned(), planted.name.to_owned())],
            only: planted.kinds.to_vec(),
        };
        let report = run(&options).await?;
        println!("{}", report.text());
        if planted.shows_in(&report) {
            return Ok(Some(report));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_found_by_what_it_causes_and_by_nothing_else() {
        let planted = Planted::from_name("commit-without-fence").unwrap();
        let report = |wrong: &[&str]| Report {
            seed: 1,
            wrong: wrong.iter().map(|text| (*text).to_owned()).collect(),
            left_out: Vec::new(),
            faults: Vec::new(),
            counts: Default::default(),
            history: Default::default(),
            again: String::new(),
        };
        assert!(planted.shows_in(&report(&["lost: x", "pointer: window 3 after window 5"])));
        assert!(!planted.shows_in(&report(&["not healed: node 2"])));
        assert!(!planted.shows_in(&report(&[])));
        assert!(Planted::from_name("none").is_none());
    }
}
