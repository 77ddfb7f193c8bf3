//! The environment as settings are read from it.
//!
//! Owns: reading one variable as a boolean, a number, a word; collecting every bad one, so that a
//! start reports all of them at once. Leaves to others: which variables there are (`settings`, and
//! `queen_sink::settings` for `QUEEN_S3_*`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Variables and what was found wrong with them.
///
/// A value is trimmed; an empty one counts as unset.
#[derive(Debug, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    problems: RefCell<Vec<String>>,
}

impl Environment {
    /// The process's own. Names or values that are no UTF-8 are read with replacement characters.
    pub fn of_process() -> Environment {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        Environment::from_pairs(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// From given pairs.
    pub fn from_pairs(pairs: impl IntoIterator<Item = (String, String)>) -> Environment {
        let trimmed = pairs.into_iter().map(|(name, value)| (name, value.trim().to_owned()));
        let variables = trimmed.filter(|(_, value)| !value.is_empty()).collect();
        Environment { variables, problems: RefCell::default() }
    }

    /// The variables that are set.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Sets a variable, whatever it was.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.insert(name.to_owned(), value.into());
    }

    /// Sets a variable, unless it is set already.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        self.variables.entry(name.to_owned()).or_insert_with(|| value.into());
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// Notes that a variable is wrong.
    pub fn refuse(&self, name: &str, wrong: impl Display, example: impl Display) {
        let value = self.get(name).unwrap_or_default();
        self.problems
            .borrow_mut()
            .push(format!("{name}={value}: {wrong}, such as {name}={example}"));
    }

    /// Notes that a variable is wrong, in words of its own.
    pub fn complain(&self, problem: impl Into<String>) {
        self.problems.borrow_mut().push(problem.into());
    }

    /// true/false, 1/0, yes/no, on/off in any case.
    pub fn boolean(&self, name: &str, default: bool) -> bool {
        match self.get(name).map(str::to_ascii_lowercase).as_deref() {
            None => default,
            Some("true" | "1" | "yes" | "on") => true,
            Some("false" | "0" | "no" | "off") => false,
            Some(_) => {
                self.refuse(
                    name,
                    "is neither true nor false (true/false, 1/0, yes/no, on/off)",
                    default,
                );
                default
            }
        }
    }

    /// A whole number within a range.
    pub fn number<N>(&self, name: &str, default: N, range: RangeInclusive<N>) -> N
    where
        N: FromStr + PartialOrd + Display + Copy,
    {
        let Some(text) = self.get(name) else { return default };
        match text.parse::<N>() {
            Ok(number) if range.contains(&number) => number,
            Ok(_) => {
                let wrong = format!("is out of range {}..={}", range.start(), range.end());
                self.refuse(name, wrong, default);
                default
            }
            Err(_) => {
                let wrong = format!("is not a whole number of {}..={}", range.start(), range.end());
                self.refuse(name, wrong, default);
                default
            }
        }
    }

    /// One of a few words, in any case.
    pub fn word<T: Copy>(&self, name: &str, default: T, words: &[(&str, T)]) -> T {
        let Some(text) = self.get(name) else { return default };
        match words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            Some((_, value)) => *value,
            None => {
                let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                let example = known.first().copied().unwrap_or_default();
                self.refuse(name, format!("is not one of {}", known.join(", ")), example);
                default
            }
        }
    }

    /// All that was found wrong since the last call.
    pub fn take_problems(&self) -> Vec<String> {
        self.problems.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn booleans_have_eight_spellings() {
        let e = environment(&[("A", "Yes"), ("B", " off "), ("C", ""), ("D", "maybe")]);
        assert!(e.boolean("A", false));
        assert!(!e.boolean("B", true));
        assert!(e.boolean("C", true), "an empty value is unset");
        assert!(e.take_problems().is_empty());
        assert!(!e.boolean("D", false));
        assert_eq!(
            e.take_problems(),
            [
                "D=maybe: is neither true nor false (true/false, 1/0, yes/no, on/off), such as D=false"
            ]
        );
    }

    #[test]
    fn every_bad_variable_is_reported() {
        let e = environment(&[("PORT", "99999"), ("N", "5x"), ("W", "loud")]);
        assert_eq!(e.number::<u32>("PORT", 6632, 1..=65535), 6632);
        e.number("N", 3u8, 1..=9);
        e.word("W", 1, &[("quiet", 1), ("silent", 2)]);
        let problems = e.take_problems();
        assert_eq!(problems[0], "PORT=99999: is out of range 1..=65535, such as PORT=6632");
        assert_eq!(problems[1], "N=5x: is not a whole number of 1..=9, such as N=3");
        assert_eq!(problems[2], "W=loud: is not one of quiet, silent, such as W=quiet");
    }
}
