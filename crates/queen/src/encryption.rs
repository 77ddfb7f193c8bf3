//! The keys of encrypted queues, as they are set.
//!
//! Owns: `QUEEN_ENCRYPTION_KEY`, `QUEEN_ENCRYPTION_KEY_FILE` and `QUEEN_ENCRYPTION_KEY_PREVIOUS`.
//! Leaves to others: what is done with the keys (`queen_broker::keyring`).
//! No text of this file's errors, logs or `Debug` holds a key.

use crate::environment::Environment;
use anyhow::Context;
use queen_broker::keyring::{Keyring, SecretKey};
use queen_core::setting::{Setting, broker};

/// The keys.
#[derive(Debug, Clone, Default)]
pub struct EncryptionKeys {
    /// `QUEEN_ENCRYPTION_KEY`, or what is in the file of `QUEEN_ENCRYPTION_KEY_FILE`: writes and
    /// reads; none.
    current: Option<SecretKey>,
    /// `QUEEN_ENCRYPTION_KEY_PREVIOUS`: those before it, which only read; none.
    previous: Vec<SecretKey>,
}

impl EncryptionKeys {
    /// Reads them; what is wrong is left in the environment's problems.
    pub fn read(environment: &Environment) -> EncryptionKeys {
        let (key, file) = (&broker::ENCRYPTION_KEY, &broker::ENCRYPTION_KEY_FILE);
        let current = match (environment.text(key), environment.text(file)) {
            (Some(text), None) => parse(environment, key, "", text),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) => parse(environment, file, "the text in it ", text.trim()),
                Err(e) => {
                    let why = format!("the file cannot be read: {e}");
                    environment.complain(file.refusal(Some(path), &why));
                    None
                }
            },
            (Some(_), Some(path)) => {
                let why = format!("{} is set too: unset one of them", key.name);
                environment.complain(file.refusal(Some(path), &why));
                None
            }
            (None, None) => None,
        };
        let previous = &broker::ENCRYPTION_KEY_PREVIOUS;
        let list = environment.text(previous).unwrap_or_default();
        let texts = list.split(',').map(str::trim).filter(|text| !text.is_empty());
        let keys = (1..).zip(texts).filter_map(|(number, text)| {
            parse(environment, previous, &format!("key {number} of the list "), text)
        });
        EncryptionKeys { current, previous: keys.collect() }
    }

    /// The keys, to seal and open with; says in the log which they are.
    pub fn keyring(&self) -> anyhow::Result<Keyring> {
        let Some(current) = &self.current else {
            return Keyring::new(None, &self.previous).context("cannot set up encryption");
        };
        let previous: Vec<String> = self.previous.iter().map(|key| key.id().to_string()).collect();
        tracing::info!(key = %current.id(), ?previous, "payloads of encrypted queues are sealed");
        Keyring::new(Some(current), &self.previous).context("cannot set up encryption")
    }
}

fn parse(
    environment: &Environment,
    setting: &Setting,
    which: &str,
    text: &str,
) -> Option<SecretKey> {
    let key = SecretKey::parse(text);
    if key.is_none() {
        let has = match text.chars().count() {
            64 => "a character of it is no hex digit".to_owned(),
            1 => "it has 1 character".to_owned(),
            count => format!("it has {count} characters"),
        };
        let why = format!(
            "{which}is not a key of 64 hex digits ({has}); make one with `openssl rand -hex 32`"
        );
        environment.complain(setting.refusal(environment.get(setting.name), &why));
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "QUEEN_ENCRYPTION_KEY";
    const FILE: &str = "QUEEN_ENCRYPTION_KEY_FILE";
    const PREVIOUS: &str = "QUEEN_ENCRYPTION_KEY_PREVIOUS";
    const ONE: &str = "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF";
    const TWO: &str = "11112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

    fn read(pairs: &[(&str, &str)]) -> (EncryptionKeys, Vec<String>) {
        let owned = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let environment = Environment::from_pairs(owned);
        (EncryptionKeys::read(&environment), environment.take_problems())
    }

    #[test]
    fn a_key_writes_and_the_ones_before_it_read() {
        let list = format!("{TWO} , {ONE},");
        let (keys, problems) = read(&[(KEY, ONE), (PREVIOUS, &list)]);
        assert_eq!(problems, Vec::<String>::new());
        let ring = keys.keyring().unwrap();
        let [one, two] = [ONE, TWO].map(|hex| SecretKey::parse(hex).unwrap().id());
        assert_eq!(ring.current(), Some(one));
        assert!(ring.has(one) && ring.has(two));
        let (keys, _) = read(&[(PREVIOUS, TWO)]);
        assert_eq!(keys.keyring().unwrap().current(), None);
        let (keys, problems) = read(&[]);
        assert!(problems.is_empty() && keys.keyring().unwrap().current().is_none());
    }

    #[test]
    fn a_key_may_lie_in_a_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("{ONE}\n")).unwrap();
        let path = file.path().to_str().unwrap();
        let (keys, problems) = read(&[(FILE, path)]);
        assert!(problems.is_empty());
        assert_eq!(keys.current.unwrap().id(), SecretKey::parse(ONE).unwrap().id());
        let (_, problems) = read(&[(FILE, path), (KEY, ONE)]);
        assert_eq!(problems, [format!("{FILE}={path}: {KEY} is set too: unset one of them")]);
        let (_, problems) = read(&[(FILE, "/nowhere/key")]);
        assert!(problems[0].starts_with("QUEEN_ENCRYPTION_KEY_FILE=/nowhere/key: the file cannot"));
    }

    #[test]
    fn a_malformed_key_is_named_with_the_way_out_and_never_shown() {
        let secret = "hunter2hunter2";
        let wrong = ONE.replace("FF", "xy");
        let (_, problems) = read(&[(KEY, secret), (PREVIOUS, &format!("{TWO},{wrong}"))]);
        assert_eq!(
            problems,
            [
                "QUEEN_ENCRYPTION_KEY=<redacted>: is not a key of 64 hex digits (it has 14 characters); make \
                 one with `openssl rand -hex 32`",
                "QUEEN_ENCRYPTION_KEY_PREVIOUS=<redacted>: key 2 of the list is not a key of 64 hex digits (a \
                 character of it is no hex digit); make one with `openssl rand -hex 32`",
            ]
        );
    }

    #[test]
    fn no_text_of_the_keys_shows_them() {
        let (keys, _) = read(&[(KEY, ONE), (PREVIOUS, TWO)]);
        let shown = format!("{keys:?}").to_lowercase();
        assert!(!shown.contains("0011") && !shown.contains("1111"), "{shown}");
        assert!(shown.contains(&SecretKey::parse(TWO).unwrap().id().to_string()));
    }
}
