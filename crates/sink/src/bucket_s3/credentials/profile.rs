//! Profiles, as AWS's tools keep them in two files.
//!
//! Owns: reading the files, and what a profile asks for; naming what is not taken of them.
//! Leaves to others: asking for it (`credentials`).

use super::{CredentialsError, Source};
use crate::settings::{Role, Secret, StaticKeys, WebIdentity};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Profiles that lead to profiles: a circle is longer than this.
const DEPTH_MAX: usize = 5;

/// Ways to credentials that need another program or a person.
const NOT_TAKEN: &[&str] = &[
    "credential_process",
    "sso_session",
    "sso_account_id",
    "sso_start_url",
    "login_session",
    "mfa_serial",
];

/// The profiles of the files.
#[derive(Debug, Default)]
pub(super) struct Profiles {
    profiles: BTreeMap<String, BTreeMap<String, String>>,
    files: Vec<PathBuf>,
}

/// What a profile asks for.
#[derive(Debug)]
pub(super) enum Step {
    /// Its own keys.
    Keys(StaticKeys),
    /// Another source, as it is.
    Ask(Source),
    /// A role, taken on with what another source gives; and the session's name.
    Assume(Source, Role, Option<String>),
}

impl Profiles {
    /// Reads the files; one that is not there has no profiles. What an earlier one says wins.
    pub fn read(files: &[PathBuf]) -> Result<Profiles, CredentialsError> {
        let mut read = Profiles { files: files.to_vec(), ..Profiles::default() };
        for file in files {
            match std::fs::read_to_string(file) {
                Ok(text) => read.add(&text),
                Err(err) if err.kind() == std::io::ErrorKind::NotFound => {}
                Err(err) => {
                    let text = format!("the profiles of {} cannot be read: {err}", file.display());
                    return Err(CredentialsError::lasting(text));
                }
            }
        }
        Ok(read)
    }

    fn add(&mut self, text: &str) {
        let mut current: Option<String> = None;
        for line in text.lines() {
            let content = line.trim();
            if content.is_empty() || content.starts_with(['#', ';']) {
                continue;
            }
            if let Some(section) = content.strip_prefix('[') {
                let section = section.split(']').next().unwrap_or_default().trim();
                let name = section.strip_prefix("profile ").unwrap_or(section).trim();
                // Sections of other kinds (sso-session, services) hold no profile.
                current = (!name.contains(' ')).then(|| name.to_owned());
                continue;
            }
            // A line set in belongs to the value above it, which is none that is read here.
            if line.starts_with([' ', '\t']) {
                continue;
            }
            let (Some(name), Some((key, value))) = (&current, content.split_once('=')) else {
                continue;
            };
            let value = value.split(" #").next().unwrap_or_default();
            let value = value.split(" ;").next().unwrap_or_default().trim();
            if !value.is_empty() {
                let profile = self.profiles.entry(name.clone()).or_default();
                let key = key.trim().to_ascii_lowercase();
                profile.entry(key).or_insert_with(|| value.to_owned());
            }
        }
    }

    /// Whether a profile says anything about credentials.
    pub fn has(&self, name: &str) -> bool {
        let says = ["aws_access_key_id", "role_arn", "credential_source"];
        let of = |profile: &BTreeMap<String, String>| {
            says.iter().chain(NOT_TAKEN).any(|key| profile.contains_key(*key))
        };
        self.profiles.get(name).is_some_and(of)
    }

    /// What a profile asks for; `environment` are the keys that `credential_source` may mean.
    pub fn step(
        &self,
        name: &str,
        environment: Option<&StaticKeys>,
        depth: usize,
    ) -> Result<Step, CredentialsError> {
        let bad = |why: String| CredentialsError::lasting(format!("profile {name}: {why}"));
        let files: Vec<String> = self.files.iter().map(|file| file.display().to_string()).collect();
        let files = files.join(" and ");
        let Some(profile) = self.profiles.get(name) else {
            return Err(bad(format!("is not in {files}")));
        };
        if depth > DEPTH_MAX {
            return Err(bad("its source_profile leads in a circle".to_owned()));
        }
        if let Some(key) = NOT_TAKEN.iter().find(|key| profile.contains_key(**key)) {
            return Err(bad(format!(
                "{key} needs another program or a person and is not taken: give the profile \
                 aws_access_key_id or role_arn, or set QUEEN_S3_ACCESS_KEY"
            )));
        }
        let get = |key: &str| profile.get(key).cloned();
        let session = get("role_session_name");
        let Some(arn) = get("role_arn") else {
            let keys = keys(profile).ok_or_else(|| {
                bad(format!("has neither aws_access_key_id with its secret nor role_arn ({files})"))
            })?;
            return Ok(Step::Keys(keys));
        };
        if let Some(file) = get("web_identity_token_file") {
            let identity = WebIdentity { token_file: file.into(), role: arn };
            return Ok(Step::Ask(Source::WebIdentity(identity, session)));
        }
        let role = Role { arn, external_id: get("external_id") };
        let source = match (get("source_profile"), get("credential_source").as_deref()) {
            (Some(source), _) if source == name => match keys(profile) {
                Some(keys) => Source::Keys(keys, "its keys"),
                None => return Err(bad("names itself as source_profile, without keys".to_owned())),
            },
            (Some(source), _) => Source::Profile(source),
            (None, Some("Environment")) => match environment {
                Some(keys) => Source::Keys(keys.clone(), "AWS_ACCESS_KEY_ID"),
                None => {
                    return Err(bad(
                        "credential_source is Environment, and AWS_ACCESS_KEY_ID is not \
                         set"
                        .to_owned(),
                    ));
                }
            },
            (None, Some("EcsContainer")) => Source::Container,
            (None, Some("Ec2InstanceMetadata")) => Source::Instance,
            (None, other) => {
                return Err(bad(format!(
                    "role_arn needs source_profile, web_identity_token_file, or credential_source \
                     as Environment, EcsContainer or Ec2InstanceMetadata, not {}",
                    other.unwrap_or("nothing")
                )));
            }
        };
        Ok(Step::Assume(source, role, session))
    }
}

fn keys(profile: &BTreeMap<String, String>) -> Option<StaticKeys> {
    Some(StaticKeys {
        access_key: profile.get("aws_access_key_id")?.clone(),
        secret_key: Secret::new(profile.get("aws_secret_access_key")?.clone()),
        session_token: profile.get("aws_session_token").map(Secret::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles(text: &str) -> Profiles {
        let mut profiles = Profiles { files: vec!["~/.aws/config".into()], ..Profiles::default() };
        profiles.add(text);
        profiles
    }

    const FILE: &str = "
# comment
[default]
aws_access_key_id = AKIADEFAULT
aws_secret_access_key=se=cret # not of it
s3 =
  aws_access_key_id = nested
[profile lake]
role_arn = arn:aws:iam::1:role/lake
source_profile = default
external_id = 42
[profile pod]
role_arn = arn:aws:iam::1:role/pod
web_identity_token_file = /token
[profile instance]
role_arn = arn:aws:iam::1:role/i
credential_source = Ec2InstanceMetadata
[profile tool]
credential_process = /bin/keys
[profile bare]
region = eu-west-1
[sso-session x]
sso_start_url = https://x
";

    #[test]
    fn keys_roles_and_sources_are_read() {
        let profiles = profiles(FILE);
        let step = |name| profiles.step(name, None, 0);
        let Step::Keys(keys) = step("default").unwrap() else { panic!("keys") };
        assert_eq!(
            (keys.access_key.as_str(), keys.secret_key.expose()),
            ("AKIADEFAULT", "se=cret")
        );
        let Step::Assume(Source::Profile(from), role, None) = step("lake").unwrap() else {
            panic!("a role")
        };
        assert_eq!((from.as_str(), role.external_id.as_deref()), ("default", Some("42")));
        assert!(matches!(step("pod").unwrap(), Step::Ask(Source::WebIdentity(_, None))));
        assert!(matches!(step("instance").unwrap(), Step::Assume(Source::Instance, _, _)));
        assert!(profiles.has("default") && profiles.has("tool") && !profiles.has("bare"));
    }

    #[test]
    fn what_cannot_be_taken_is_named() {
        let profiles = profiles(FILE);
        let error = |name, depth| profiles.step(name, None, depth).unwrap_err().text;
        assert!(error("tool", 0).starts_with("profile tool: credential_process needs another"));
        assert!(error("bare", 0).contains("has neither aws_access_key_id"), "{}", error("bare", 0));
        assert_eq!(error("none", 0), "profile none: is not in ~/.aws/config");
        assert!(error("lake", 6).contains("leads in a circle"));
    }

    #[test]
    fn what_the_first_file_says_wins() {
        let dir = tempfile::tempdir().unwrap();
        let files = [dir.path().join("credentials"), dir.path().join("config")];
        std::fs::write(&files[0], "[a]\naws_access_key_id=1\naws_secret_access_key=s").unwrap();
        std::fs::write(&files[1], "[profile a]\naws_access_key_id=2\nrole_session_name=x").unwrap();
        let profiles = Profiles::read(&files).unwrap();
        let Step::Keys(keys) = profiles.step("a", None, 0).unwrap() else { panic!("keys") };
        assert_eq!(keys.access_key, "1");
        assert!(!Profiles::read(&[dir.path().join("none")]).unwrap().has("a"));
    }
}
