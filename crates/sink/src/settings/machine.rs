//! From the machine's environment to [`Machine`]: where credentials may come from.
//!
//! Owns: the names that AWS's tools share, and which of them go together.
//! Leaves to others: asking for credentials (`bucket_s3::credentials`), the sink's own keys
//! (`bucket`).

use super::parse::Reader;
use super::{Secret, StaticKeys};
use queen_core::setting::{machine as table, sink};
use std::path::PathBuf;

/// A token in a file, and the role it gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebIdentity {
    /// Read again at each renewal.
    pub token_file: PathBuf,
    /// ARN of the role.
    pub role: String,
}

/// Where a container asks for credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The whole URL.
    pub url: String,
    /// What is shown there.
    pub token: Option<Secret>,
    /// What is shown there instead, read again at each renewal.
    pub token_file: Option<PathBuf>,
}

/// A role to take on with other credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// Its ARN.
    pub arn: String,
    /// What its owner wants to be told.
    pub external_id: Option<String>,
}

/// Where credentials may come from, beside the sink's own keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// `QUEEN_S3_PROFILE`: the only place that is looked at.
    pub only_profile: Option<String>,
    /// Keys of the environment.
    pub keys: Option<StaticKeys>,
    /// A token in a file.
    pub web_identity: Option<WebIdentity>,
    /// `AWS_PROFILE`, which must be there; without it `default` may be.
    pub profile: Option<String>,
    /// Files of profiles; what the first says of a profile's keys wins.
    pub profile_files: Vec<PathBuf>,
    /// A container's credentials.
    pub container: Option<Container>,
    /// URL of the instance's metadata service; `None` when it is not to be asked.
    pub metadata: Option<String>,
    /// `QUEEN_S3_ROLE_ARN`, taken on with whatever was found, the sink's own keys included.
    pub role: Option<Role>,
    /// Name of the sessions of roles.
    pub session: String,
    /// URL of the service that gives roles; `None` is Amazon's for the region.
    pub sts: Option<String>,
}

impl Machine {
    /// Whether the environment names credentials, so that keys of the sink's own are not needed.
    pub(super) fn offers(&self, r: &Reader) -> bool {
        self.only_profile.is_some()
            || self.keys.is_some()
            || self.web_identity.is_some()
            || self.container.is_some()
            || [
                table::PROFILE,
                table::SHARED_CREDENTIALS_FILE,
                table::CONFIG_FILE,
                table::EC2_METADATA_SERVICE_ENDPOINT,
            ]
            .iter()
            .any(|setting| r.get(setting).is_some())
    }
}

/// What the environment says.
pub(super) fn machine(r: &mut Reader) -> Machine {
    let text = |r: &Reader, setting| r.get(setting).map(str::to_owned);
    let only_profile = text(r, &sink::PROFILE);
    if only_profile.is_some() && r.get(&sink::ACCESS_KEY).is_some() {
        r.error(&sink::PROFILE, "goes without QUEEN_S3_ACCESS_KEY: unset one of the two");
    }
    let external_id = text(r, &sink::EXTERNAL_ID);
    let role = text(r, &sink::ROLE_ARN).map(|arn| Role { arn, external_id });
    if role.is_none() && r.get(&sink::EXTERNAL_ID).is_some() {
        r.error(&sink::EXTERNAL_ID, "goes with QUEEN_S3_ROLE_ARN only; set that or unset this");
    }
    let home = r.get(&table::HOME).map(PathBuf::from);
    let file = |set: Option<&str>, name: &str| match set {
        Some(path) => Some(PathBuf::from(path)),
        None => home.as_ref().map(|home| home.join(".aws").join(name)),
    };
    let files = [
        file(r.get(&table::SHARED_CREDENTIALS_FILE), "credentials"),
        file(r.get(&table::CONFIG_FILE), "config"),
    ];
    let metadata = r.text(&table::EC2_METADATA_SERVICE_ENDPOINT).unwrap_or_default();
    let metadata = metadata.trim_end_matches('/').to_owned();
    Machine {
        only_profile,
        keys: keys(r),
        web_identity: web_identity(r),
        profile: text(r, &table::PROFILE),
        profile_files: files.into_iter().flatten().collect(),
        container: container(r),
        metadata: (!r.switch(&table::EC2_METADATA_DISABLED)).then_some(metadata),
        role,
        session: r.text(&table::ROLE_SESSION_NAME).unwrap_or_default().to_owned(),
        sts: text(r, &table::ENDPOINT_URL_STS),
    }
}

fn keys(r: &mut Reader) -> Option<StaticKeys> {
    // Beside the sink's own keys those of other programs are no concern, be they whole or not.
    if r.get(&sink::ACCESS_KEY).is_some() {
        return None;
    }
    let access = r.get(&table::ACCESS_KEY_ID).map(str::to_owned);
    let secret = r.get(&table::SECRET_ACCESS_KEY).map(Secret::new);
    let session_token = r.get(&table::SESSION_TOKEN).map(Secret::new);
    match (access, secret) {
        (Some(access_key), Some(secret_key)) => {
            return Some(StaticKeys { access_key, secret_key, session_token });
        }
        (Some(_), None) => {
            r.error(&table::SECRET_ACCESS_KEY, "not set, and needed beside AWS_ACCESS_KEY_ID");
        }
        (None, Some(_)) => {
            r.error(&table::ACCESS_KEY_ID, "not set, and needed beside AWS_SECRET_ACCESS_KEY");
        }
        (None, None) => {}
    }
    None
}

fn web_identity(r: &mut Reader) -> Option<WebIdentity> {
    let token_file = r.get(&table::WEB_IDENTITY_TOKEN_FILE).map(PathBuf::from)?;
    if r.get(&sink::ACCESS_KEY).is_some() {
        return None;
    }
    match r.get(&table::ROLE_ARN).map(str::to_owned) {
        Some(role) => Some(WebIdentity { token_file, role }),
        None => {
            r.error(&table::ROLE_ARN, "not set, and needed beside AWS_WEB_IDENTITY_TOKEN_FILE");
            None
        }
    }
}

fn container(r: &mut Reader) -> Option<Container> {
    let relative = r.get(&table::CONTAINER_CREDENTIALS_RELATIVE_URI);
    let relative = relative.map(|path| format!("http://169.254.170.2{path}"));
    let full = r.get(&table::CONTAINER_CREDENTIALS_FULL_URI).map(str::to_owned);
    let url = relative.or(full)?;
    if !may_see_a_token(&url) {
        let why = "must be https, or http to this machine or a container service's address \
                   (169.254.170.2, 169.254.170.23, [fd00:ec2::23])";
        r.error(&table::CONTAINER_CREDENTIALS_FULL_URI, why);
    }
    Some(Container {
        url,
        token: r.get(&table::CONTAINER_AUTHORIZATION_TOKEN).map(Secret::new),
        token_file: r.get(&table::CONTAINER_AUTHORIZATION_TOKEN_FILE).map(PathBuf::from),
    })
}

/// Credentials in the clear stay on the machine.
fn may_see_a_token(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return url.starts_with("https://") };
    let authority = rest.split(['/', '?']).next().unwrap_or(rest);
    let host = match authority.find(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or(authority),
    };
    let services = ["169.254.170.2", "169.254.170.23", "[fd00:ec2::23]", "[::1]", "localhost"];
    let loopback = host.parse::<std::net::Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    services.contains(&host) || loopback
}
