//! The broker's settings, read from the environment.
//!
//! Owns: the checks that need more than the table says, and the refusal of variables that promise
//! what this release does not do. Leaves to others: names, ranges, words, defaults
//! (`queen_core::setting::broker`), reading one value (`environment`), keys (`encryption`),
//! the settings of a cluster (`cluster`) and of access (`access`), `QUEEN_S3_*` (`queen_sink::settings`).

mod access;
mod cluster;

use crate::encryption::EncryptionKeys;
use crate::environment::Environment;
use crate::logging::LogSettings;
use queen_broker::cluster::ClusterOptions;
use queen_broker::ephemeral;
use queen_core::ephemeral::Effective;
use queen_core::setting::{Setting, broker};
use queen_http::auth::Auth;
use queen_http::tls::Tls;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// All that the broker is told from outside.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `QUEEN_BIND_ADDR` and `PORT`: where HTTP is answered; 0.0.0.0:6632. Port 0 takes
    /// any free one.
    pub listen: SocketAddr,
    /// `QUEEN_RAFT_DIR`: the data directory; /var/lib/queen/raft.
    pub dir: PathBuf,
    /// `QUEEN_RAFT_NODE_ID`: this node's number, 1 or more; 1. `ordinal` takes it from the end of
    /// the host's name, plus one.
    pub node_id: u64,
    /// `QUEEN_RAFT_PEERS` and what goes with them; `None`: it runs alone.
    pub cluster: Option<ClusterOptions>,
    /// `QUEEN_MAX_BODY_BYTES`: longest request; 64 MiB.
    pub body_bytes_max: usize,
    /// `QUEEN_RAFT_DISK_HIGH_PCT`: pushes are refused with 507 above this use of the disk; 85.
    pub disk_high_percent: u8,
    /// `QUEEN_RAFT_DISK_LOW_PCT`: and accepted again below this; 80.
    pub disk_low_percent: u8,
    /// `RETENTION_INTERVAL`: between two looks at a queue's retention; 5 s.
    pub retention_interval: Duration,
    /// `QUEEN_STMT_TIMEOUT_MS`: deadline of a write; 30 s, at most 60 s.
    pub write_timeout: Duration,
    /// `QUEEN_EPHEMERAL_*`: bounds of queues in memory.
    pub ephemeral: ephemeral::Settings,
    /// `QUEEN_SERVER_ID`, else the host's name: how the node calls itself.
    pub server_id: String,
    /// Variables that are set and have no effect, to be logged once.
    pub without_effect: Vec<String>,
    /// `JWT_ENABLED` and what goes with it; `None`: everybody may call.
    pub auth: Option<Arc<Auth>>,
    /// `QUEEN_TLS_CERT` and `QUEEN_TLS_KEY`; `None`: HTTP in the clear.
    pub tls: Option<Arc<Tls>>,
    /// Keys of encrypted queues.
    pub encryption: EncryptionKeys,
    /// How to log.
    pub log: LogSettings,
}

/// Switches of what is not there, and would be dangerous to ignore: refused when on.
const NOT_HERE_WHEN_ON: &[(&str, &str)] = &[
    ("QUEEN_TENANCY_HEADER", "tenants are not in this release: all requests would share one"),
    ("QUEEN_PROXY_EMBEDDED", "the embedded proxy is not in this release"),
];

impl Settings {
    /// Reads them; what is wrong is left in the environment's problems.
    pub fn read(environment: &Environment, log_level: &'static str) -> Settings {
        refuse_what_is_not_here(environment);
        let host = host_name(environment);
        let port = environment.number(&broker::PORT).unwrap_or_default();
        let high: u8 = environment.number(&broker::DISK_HIGH_PCT).unwrap_or(100);
        let low = environment.number(&broker::DISK_LOW_PCT).unwrap_or(80.min(high));
        if low > high {
            environment.refuse(
                "QUEEN_RAFT_DISK_LOW_PCT",
                format!("is above QUEEN_RAFT_DISK_HIGH_PCT={high}"),
                high.saturating_sub(5).max(1),
            );
        }
        let millis = |setting: &Setting| {
            Duration::from_millis(environment.number(setting).unwrap_or_default())
        };
        let node_id = node_id(environment, &host);
        Settings {
            listen: SocketAddr::new(bind_address(environment), port),
            dir: environment.text(&broker::DIR).unwrap_or_default().into(),
            node_id,
            cluster: cluster::read(environment, node_id),
            body_bytes_max: environment.number(&broker::MAX_BODY_BYTES).unwrap_or_default(),
            disk_high_percent: high,
            disk_low_percent: low,
            retention_interval: millis(&broker::RETENTION_INTERVAL),
            write_timeout: millis(&broker::STMT_TIMEOUT_MS),
            ephemeral: ephemeral_settings(environment),
            server_id: environment.get("QUEEN_SERVER_ID").unwrap_or(&host).to_owned(),
            without_effect: without_effect(environment),
            auth: access::read(environment),
            tls: access::tls(environment),
            encryption: EncryptionKeys::read(environment),
            log: LogSettings::read(environment, log_level),
        }
    }
}

fn ephemeral_settings(environment: &Environment) -> ephemeral::Settings {
    let number = |setting: &Setting| environment.number(setting).unwrap_or_default();
    ephemeral::Settings {
        max_bytes: number(&broker::EPHEMERAL_MAX_BYTES),
        defaults: Effective {
            max_bytes: number(&broker::EPHEMERAL_QUEUE_MAX_BYTES),
            max_length: number(&broker::EPHEMERAL_QUEUE_MAX_LENGTH),
            lease_seconds: number(&broker::EPHEMERAL_LEASE_SECONDS),
            retry_limit: number(&broker::EPHEMERAL_RETRY_LIMIT),
            ..Effective::default()
        },
        idle_seconds: number(&broker::EPHEMERAL_IDLE_SECONDS),
    }
}

/// Variables of the broker's family that are set and have no effect here.
fn without_effect(environment: &Environment) -> Vec<String> {
    let has_effect = |name: &str| {
        broker::ALL.iter().chain(queen_core::setting::access::ALL).any(|known| known.name == name)
            || name.starts_with("QUEEN_S3_")
            || name.starts_with("QUEEN_TEST_")
            || NOT_HERE_WHEN_ON.iter().any(|(known, _)| *known == name)
    };
    let ours = environment.variables().keys().filter(|name| name.starts_with("QUEEN_"));
    ours.filter(|name| !has_effect(name)).cloned().collect()
}

fn refuse_what_is_not_here(environment: &Environment) {
    for (name, why) in NOT_HERE_WHEN_ON {
        if environment.get(name).is_some_and(is_on) {
            environment.complain(format!("{name} is on: {why}; unset it, or set {name}=false"));
        }
    }
    environment.word(&broker::SUBSCRIPTION_MODE);
}

/// What is not clearly off would be dangerous to take for off.
fn is_on(text: &str) -> bool {
    !matches!(text.to_ascii_lowercase().as_str(), "false" | "0" | "no" | "off")
}

fn bind_address(environment: &Environment) -> IpAddr {
    let all = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let Some(text) = environment.get("QUEEN_BIND_ADDR") else { return all };
    text.parse().unwrap_or_else(|_| {
        environment.refuse("QUEEN_BIND_ADDR", "is no IP address of this machine", "127.0.0.1");
        all
    })
}

fn node_id(environment: &Environment, host: &str) -> u64 {
    if environment.get(broker::NODE_ID.name).is_none_or(|text| text != "ordinal") {
        return environment.number(&broker::NODE_ID).unwrap_or(1);
    }
    let ordinal = host.rsplit('-').next().and_then(|suffix| suffix.parse::<u32>().ok());
    ordinal.map_or_else(
        || {
            let wrong = format!("the host's name {host:?} does not end in a number");
            environment.refuse("QUEEN_RAFT_NODE_ID", wrong, 1);
            1
        },
        |ordinal| u64::from(ordinal) + 1,
    )
}

/// `HOSTNAME`, else the system's name for this machine, else `localhost`.
pub fn host_name(environment: &Environment) -> String {
    if let Some(name) = environment.get("HOSTNAME") {
        return name.to_owned();
    }
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => "localhost".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let owned = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let environment = Environment::from_pairs(owned);
        let settings = Settings::read(&environment, "info");
        (settings, environment.take_problems())
    }

    #[test]
    fn an_empty_environment_gives_the_defaults() {
        let (settings, problems) = read(&[]);
        assert_eq!(problems, Vec::<String>::new());
        assert_eq!(settings.listen.to_string(), "0.0.0.0:6632");
        assert_eq!(settings.dir, PathBuf::from("/var/lib/queen/raft"));
        assert_eq!(settings.body_bytes_max, 67_108_864);
        assert_eq!(settings.ephemeral, ephemeral::Settings::default());
    }

    #[test]
    fn all_bad_values_are_reported_at_once() {
        let (_, problems) = read(&[
            ("PORT", "http"),
            ("QUEEN_BIND_ADDR", "everywhere"),
            ("QUEEN_RAFT_DISK_LOW_PCT", "90"),
            ("QUEEN_RAFT_NODE_ID", "0"),
            ("LOG_LEVEL", "loud"),
            ("JWT_ENABLED", "true"),
            ("QUEEN_TLS_KEY", "key.pem"),
            ("QUEEN_RAFT_REPLICATOR", "raft"),
        ]);
        assert_eq!(problems.len(), 8, "{problems:#?}");
        assert!(problems.iter().any(|p| p.starts_with("PORT=http: not a whole number")));
        assert!(problems.iter().any(|p| p.starts_with("JWT_ENABLED is on, and there is nothing")));
    }

    #[test]
    fn variables_without_effect_are_named() {
        let (settings, problems) = read(&[("QUEEN_LANES", "8"), ("QUEEN_SERVER_ID", "a")]);
        assert!(problems.is_empty());
        assert_eq!(settings.without_effect, ["QUEEN_LANES"]);
    }

    #[test]
    fn a_node_id_may_come_from_the_host_name() {
        let (settings, problems) =
            read(&[("QUEEN_RAFT_NODE_ID", "ordinal"), ("HOSTNAME", "queen-2")]);
        assert!(problems.is_empty());
        assert_eq!((settings.node_id, settings.server_id.as_str()), (3, "queen-2"));
        let (_, problems) = read(&[("QUEEN_RAFT_NODE_ID", "ordinal"), ("HOSTNAME", "queen")]);
        assert_eq!(problems.len(), 1);
    }
}
