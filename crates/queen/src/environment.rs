//! The environment as settings are read from it.
//!
//! Owns: reading one setting as a switch, a number, a word; collecting every bad one, so that a
//! start reports all of them at once. Leaves to others: which settings there are and what each may
//! hold (`queen_core::setting`), `QUEEN_S3_*` (`queen_sink::settings`).

use queen_core::setting::{Default as Otherwise, Setting};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;

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

    /// Takes a variable out.
    pub fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    /// Sets a variable, unless it is set already.
    pub fn set_default(&mut self, name: &str, value: impl Into<String>) {
        self.variables.entry(name.to_owned()).or_insert_with(|| value.into());
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// The values of settings that are set together or not at all; `None` when only some are, which is
    /// noted.
    #[allow(clippy::option_option)] // wrong, off, or on
    pub fn together<const N: usize>(&self, settings: [&Setting; N]) -> Option<Option<[&str; N]>> {
        let values = settings.map(|setting| self.get(setting.name));
        if values.iter().all(Option::is_none) {
            return Some(None);
        }
        let unset = settings.iter().zip(&values).filter(|(_, value)| value.is_none());
        unset.for_each(|(setting, _)| self.complain(setting.missing()));
        values.iter().all(Option::is_some).then(|| Some(values.map(Option::unwrap_or_default)))
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

    /// The value, or what the table says holds without one.
    pub fn text(&self, setting: &Setting) -> Option<&str> {
        match setting.default {
            Otherwise::Value(default) => Some(self.get(setting.name).unwrap_or(default)),
            _ => self.get(setting.name),
        }
    }

    fn parsed<T>(
        &self,
        setting: &Setting,
        parse: impl FnOnce(&Setting, &str) -> Result<T, String>,
    ) -> Option<T> {
        parse(setting, self.text(setting)?).map_err(|refusal| self.complain(refusal)).ok()
    }

    /// Whether a switch is on; off when its value is bad.
    pub fn switch(&self, setting: &Setting) -> bool {
        self.parsed(setting, Setting::parse_switch).unwrap_or_default()
    }

    /// A number, or the table's default; `None` when there is neither, or a bad value.
    pub fn number<N: TryFrom<u64>>(&self, setting: &Setting) -> Option<N> {
        let number = self.parsed(setting, Setting::parse_number)?;
        number.try_into().ok()
    }

    /// The name of a word, or the table's default; `None` when there is neither, or a bad value.
    pub fn word(&self, setting: &Setting) -> Option<&'static str> {
        self.parsed(setting, Setting::parse_word)
    }

    /// All that was found wrong since the last call.
    pub fn take_problems(&self) -> Vec<String> {
        self.problems.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::setting::broker;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        Environment::from_pairs(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())))
    }

    #[test]
    fn an_empty_value_is_unset_and_a_value_is_trimmed() {
        let e = environment(&[("QUEEN_LOG_JSON", " on "), ("PORT", "")]);
        assert!(e.switch(&broker::LOG_JSON));
        assert_eq!(e.number::<u16>(&broker::PORT), Some(6632));
        assert_eq!(e.number::<u8>(&broker::DISK_LOW_PCT), None, "its default is no fixed number");
        assert!(e.take_problems().is_empty());
    }

    #[test]
    fn every_bad_variable_is_reported() {
        let e = environment(&[("PORT", "99999"), ("QUEEN_LOG_JSON", "2"), ("LOG_LEVEL", "loud")]);
        assert_eq!(e.number::<u16>(&broker::PORT), None);
        assert!(!e.switch(&broker::LOG_JSON));
        assert_eq!(e.word(&broker::LOG_LEVEL), None);
        let problems = e.take_problems();
        assert!(problems[0].starts_with("PORT=99999: out of range; 0 to 65535"), "{problems:?}");
        assert!(problems[1].starts_with("QUEEN_LOG_JSON=2: not one of true, false"));
        assert!(problems[2].starts_with("LOG_LEVEL=loud: not one of error, warn"), "{problems:?}");
    }
}
