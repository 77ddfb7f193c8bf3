//! Every family of `/metrics/prometheus`, as data.
//!
//! Owns: what a family is called, its type, its labels and its help ([`Family`] and the tables below
//! it), and the two lines that stand above its samples. Leaves to others: the samples (`queen-http`,
//! `queen-sink`), the page of the reference (`xtask`).

pub mod broker;
pub mod sink;

use std::fmt::{Display, Write};

/// What the samples of a family mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Rises from 0 at the start of the process, unless its help says otherwise.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts of values up to bounds, their sum and their number.
    Histogram,
}

impl Kind {
    /// The word of the exposition format.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Samples of one name.
#[derive(Clone, Copy, Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says, in one line without a full stop.
    pub help: &'static str,
}

impl Family {
    const fn new(name: &'static str, kind: Kind, help: &'static str) -> Family {
        Family { name, kind, labels: &[], help }
    }

    const fn counter(name: &'static str, help: &'static str) -> Family {
        Family::new(name, Kind::Counter, help)
    }

    const fn gauge(name: &'static str, help: &'static str) -> Family {
        Family::new(name, Kind::Gauge, help)
    }

    const fn histogram(name: &'static str, help: &'static str) -> Family {
        Family::new(name, Kind::Histogram, help)
    }

    const fn by(self, labels: &'static [&'static str]) -> Family {
        Family { labels, ..self }
    }

    /// Appends the lines that stand above the samples.
    pub fn head(&self, out: &mut String) {
        let (name, kind, help) = (self.name, self.kind.word(), self.help);
        // Writing into a String cannot fail; the same holds below.
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Appends one sample; `values` are those of the labels, in their order.
    pub fn sample(&self, out: &mut String, values: &[&str], value: impl Display) {
        debug_assert_eq!(self.labels.len(), values.len(), "{}", self.name);
        out.push_str(self.name);
        for (at, (label, value)) in self.labels.iter().zip(values).enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(out, "{before}{label}=\"{}\"", escaped(value));
        }
        let end = if self.labels.is_empty() { "" } else { "}" };
        let _ = writeln!(out, "{end} {value}");
    }

    /// Appends the family of a single sample.
    pub fn single(&self, out: &mut String, value: impl Display) {
        self.head(out);
        self.sample(out, &[], value);
    }
}

/// A label's value, escaped as the exposition format asks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What is wrong with a page: a sample or a head that is in no table, or not as the table says. Families
/// of the tables that have no sample yet are not missed, their heads are.
pub fn faults_of_page(page: &str, tables: &[&[&Family]]) -> Vec<String> {
    let known = || tables.iter().flat_map(|table| table.iter());
    let mut faults = Vec::new();
    for family in known() {
        let mut head = String::new();
        family.head(&mut head);
        if page.matches(&*head).count() != 1 {
            faults.push(format!("{}: its head is not there once", family.name));
        }
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        let is = |family: &&&Family| match family.kind {
            Kind::Histogram => {
                let part = name.strip_prefix(family.name);
                part.is_some_and(|part| matches!(part, "_bucket" | "_sum" | "_count"))
            }
            _ => family.name == name,
        };
        match known().find(is) {
            None => faults.push(format!("{line}: its family is in no table")),
            Some(family) if family.kind != Kind::Histogram => {
                let labels =
                    family.labels.iter().all(|label| line.contains(&format!("{label}=\"")));
                if !labels || line.contains('{') == family.labels.is_empty() {
                    faults.push(format!("{line}: its labels are not {:?}", family.labels));
                }
            }
            Some(_) => {}
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn samples_follow_their_head_and_labels_are_escaped() {
        let mut page = String::new();
        Family::counter("a_total", "What").single(&mut page, 3);
        assert_eq!(page, "# HELP a_total What\n# TYPE a_total counter\na_total 3\n");
        let mut page = String::new();
        Family::gauge("b", "What").by(&["x", "y"]).sample(&mut page, &["\"\\\n", "z"], 0.5);
        assert_eq!(page, "b{x=\"\\\"\\\\\\n\",y=\"z\"} 0.5\n");
    }

    #[test]
    fn families_are_named_once_and_as_the_exposition_format_asks() {
        let all: Vec<&Family> = broker::ALL.iter().chain(sink::ALL).copied().collect();
        let names: BTreeSet<&str> = all.iter().map(|family| family.name).collect();
        assert_eq!(names.len(), all.len());
        for family in all {
            let letters = family
                .name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
            assert!(letters && family.name.starts_with("queen_"), "{}", family.name);
            let total = family.name.ends_with("_total");
            assert_eq!(total, family.kind == Kind::Counter, "{}", family.name);
            assert!(!family.help.ends_with('.') && !family.help.contains('\n'), "{}", family.name);
        }
    }

    #[test]
    fn a_page_that_differs_from_the_tables_is_found() {
        const A: Family = Family::counter("queen_a_total", "What").by(&["queue"]);
        let faults = |page: &str| faults_of_page(page, &[&[&A]]).len();
        let head = "# HELP queen_a_total What\n# TYPE queen_a_total counter\n";
        assert_eq!(faults(&format!("{head}queen_a_total{{queue=\"q\"}} 1\n")), 0);
        assert_eq!(faults(""), 1);
        assert_eq!(faults(&format!("{head}queen_a_total 1\n")), 1);
        assert_eq!(faults(&format!("{head}queen_b_total 1\n")), 1);
    }
}
