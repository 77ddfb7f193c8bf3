//! Every setting the binary reads from its environment, as data.
//!
//! Owns: what a setting is called, may hold, means and defaults to ([`Setting`] and the tables below
//! it); the checks of numbers, words and switches, and the words of their refusals.
//! Leaves to others: reading the environment (`queen`), checks that need more than one value or the
//! machine (`queen::settings`, `queen_sink::settings`), the page of the reference (`xtask`).
//!
//! Upholds: the value of a secret is in no refusal.

pub mod access;
pub mod broker;
pub mod machine;
pub mod sink;

/// One variable of the environment.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The variable.
    pub name: &'static str,
    /// What it may hold.
    pub kind: Kind,
    /// What holds when it is not set.
    pub default: Default,
    /// What it decides, in one line without a full stop.
    pub what: &'static str,
    /// A value that is taken.
    pub example: &'static str,
    /// Its value is shown nowhere.
    pub secret: bool,
    /// The first release that reads it.
    pub since: &'static str,
}

/// What a setting may hold.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// true or false.
    Switch,
    /// A whole number of `low..=high`, counted in `unit` (empty for a mere number).
    Number {
        /// Least value.
        low: u64,
        /// Greatest value.
        high: u64,
        /// What is counted.
        unit: &'static str,
    },
    /// One of these, in any case; of each group the first is its name, the others are synonyms.
    Word(&'static [&'static [&'static str]]),
    /// Text, of which this is demanded.
    Text(&'static str),
}

/// What holds when a setting is not set.
#[derive(Clone, Copy, Debug)]
pub enum Default {
    /// This value, as if it were set.
    Value(&'static str),
    /// Nothing: it must be set.
    Needed,
    /// What these words say.
    Words(&'static str),
}

const SWITCH: &[&[&str]] = &[&["true", "1", "yes", "on"], &["false", "0", "no", "off"]];

impl Setting {
    const fn new(
        name: &'static str,
        kind: Kind,
        default: Default,
        example: &'static str,
        what: &'static str,
    ) -> Setting {
        Setting { name, kind, default, what, example, secret: false, since: "0.1.0" }
    }

    const fn switch(name: &'static str, default: &'static str, what: &'static str) -> Setting {
        Setting::new(name, Kind::Switch, Default::Value(default), default, what)
    }

    const fn number(
        name: &'static str,
        (low, high, unit): (u64, u64, &'static str),
        default: &'static str,
        what: &'static str,
    ) -> Setting {
        let kind = Kind::Number { low, high, unit };
        Setting::new(name, kind, Default::Value(default), default, what)
    }

    const fn word(
        name: &'static str,
        words: &'static [&'static [&'static str]],
        default: &'static str,
        what: &'static str,
    ) -> Setting {
        Setting::new(name, Kind::Word(words), Default::Value(default), default, what)
    }

    const fn otherwise(self, words: &'static str) -> Setting {
        Setting { default: Default::Words(words), ..self }
    }

    const fn secret(self) -> Setting {
        Setting { secret: true, ..self }
    }

    /// The refusal of a value: the variable, the value unless it is secret, and why.
    pub fn refusal(&self, value: Option<&str>, why: &str) -> String {
        match value {
            None => format!("{}: {why}", self.name),
            Some(_) if self.secret => format!("{}=<redacted>: {why}", self.name),
            Some(value) => format!("{}={value}: {why}", self.name),
        }
    }

    /// The refusal of a start without it.
    pub fn missing(&self) -> String {
        let why = format!("not set, and needed: {}, for example {}", self.what, self.example);
        self.refusal(None, &why)
    }

    /// The number a text stands for; the error is a whole refusal.
    pub fn parse_number(&self, text: &str) -> Result<u64, String> {
        let Kind::Number { low, high, unit } = self.kind else {
            return Err(self.refusal(Some(text), "is no number"));
        };
        let why = match text.parse::<u64>() {
            Ok(number) if (low..=high).contains(&number) => return Ok(number),
            Ok(_) => "out of range",
            Err(_) => "not a whole number",
        };
        let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
        let (what, example) = (self.what, self.example);
        let why =
            format!("{why}; {low} to {high}{unit} is allowed ({what}), for example {example}");
        Err(self.refusal(Some(text), &why))
    }

    /// The name of the word a text is, or is a synonym of; the error is a whole refusal.
    pub fn parse_word(&self, text: &str) -> Result<&'static str, String> {
        let words = match self.kind {
            Kind::Word(words) => words,
            _ => SWITCH,
        };
        let named = |group: &&[&str]| group.iter().any(|word| word.eq_ignore_ascii_case(text));
        match words.iter().find(|group| named(group)).and_then(|group| group.first()) {
            Some(name) => Ok(name),
            None => {
                let names: Vec<&str> = words.iter().filter_map(|g| g.first().copied()).collect();
                let (what, example) = (self.what, self.example);
                let names = names.join(", ");
                let why = format!("not one of {names} ({what}), for example {example}");
                Err(self.refusal(Some(text), &why))
            }
        }
    }

    /// Whether a text means on; the error is a whole refusal.
    pub fn parse_switch(&self, text: &str) -> Result<bool, String> {
        self.parse_word(text).map(|word| word == "true")
    }
}

/// The setting of a table whose name is nearest to a misspelt one.
pub fn nearest<'a>(name: &str, table: &[&'a Setting]) -> Option<&'a Setting> {
    table.iter().min_by_key(|known| distance(name, known.name)).copied()
}

/// Letters to change, add or remove to make `b` of `a`.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn all() -> impl Iterator<Item = &'static Setting> {
        broker::ALL.iter().chain(access::ALL).chain(sink::ALL).chain(machine::ALL).copied()
    }

    fn accepts(setting: &Setting, text: &str) -> bool {
        match setting.kind {
            Kind::Switch => setting.parse_switch(text).is_ok(),
            Kind::Number { .. } => setting.parse_number(text).is_ok(),
            Kind::Word(_) => setting.parse_word(text).is_ok(),
            Kind::Text(_) => !text.is_empty(),
        }
    }

    #[test]
    fn every_name_is_there_once_and_takes_its_own_default_and_example() {
        let mut names = BTreeSet::new();
        for setting in all() {
            assert!(names.insert(setting.name), "{} is there twice", setting.name);
            assert!(accepts(setting, setting.example), "{} example", setting.name);
            if let Default::Value(text) = setting.default {
                assert!(accepts(setting, text), "{} default", setting.name);
            }
            assert!(!setting.what.ends_with('.') && !setting.what.contains('\n'));
        }
    }

    #[test]
    fn each_word_means_one_thing() {
        for setting in all() {
            let Kind::Word(groups) = setting.kind else { continue };
            for group in groups {
                for word in *group {
                    assert_eq!(setting.parse_word(word), Ok(group[0]), "{}", setting.name);
                    assert_eq!(setting.parse_word(&word.to_uppercase()), Ok(group[0]));
                }
            }
        }
    }

    #[test]
    fn a_refusal_names_the_variable_the_value_what_is_allowed_and_an_example() {
        let number = Setting::number("N_MS", (1, 9, "milliseconds"), "5", "the pause");
        assert_eq!(
            number.parse_number("0").unwrap_err(),
            "N_MS=0: out of range; 1 to 9 milliseconds is allowed (the pause), for example 5"
        );
        assert!(number.parse_number("-1").unwrap_err().starts_with("N_MS=-1: not a whole number"));
        let word = Setting::word("W", &[&["red"], &["green", "verde"]], "red", "the colour");
        assert_eq!(word.parse_word("Verde"), Ok("green"));
        assert_eq!(
            word.parse_word("blue").unwrap_err(),
            "W=blue: not one of red, green (the colour), for example red"
        );
        let switch = Setting::switch("S", "false", "the light");
        assert_eq!((switch.parse_switch("ON"), switch.parse_switch("0")), (Ok(true), Ok(false)));
        assert!(switch.parse_switch("2").unwrap_err().contains("true, false (the light)"));
        let secret = number.secret().parse_number("hush").unwrap_err();
        assert!(secret.starts_with("N_MS=<redacted>: ") && !secret.contains("hush"), "{secret}");
    }

    #[test]
    fn the_nearest_name_is_found() {
        let near = |name| nearest(name, sink::ALL).unwrap().name;
        assert_eq!(near("QUEEN_S3_QUEUE"), "QUEEN_S3_QUEUES");
        assert_eq!(near("QUEEN_S3_SECRETKEY"), "QUEEN_S3_SECRET_KEY");
    }
}
