//! The table of the broker's own settings.
//!
//! Owns: the names. Leaves to others: their use (`queen::settings`, `queen::logging`).

use super::{Default, Kind, Setting};

/// `QUEEN_RAFT_DIR`.
pub const DIR: Setting = Setting::new(
    "QUEEN_RAFT_DIR",
    Kind::Text("a folder of this machine"),
    Default::Value("/var/lib/queen/raft"),
    "/data",
    "the data directory, of one process at a time",
);
/// `PORT`.
pub const PORT: Setting =
    Setting::number("PORT", (0, 65_535, ""), "6632", "the port of HTTP; 0 takes any free one");
/// `QUEEN_BIND_ADDR`.
pub const BIND_ADDR: Setting = Setting::new(
    "QUEEN_BIND_ADDR",
    Kind::Text("an IP address of this machine"),
    Default::Value("0.0.0.0"),
    "127.0.0.1",
    "the address on which HTTP is answered",
);
/// `QUEEN_MAX_BODY_BYTES`.
pub const MAX_BODY_BYTES: Setting = Setting::number(
    "QUEEN_MAX_BODY_BYTES",
    (1024, 1 << 30, "bytes"),
    "67108864",
    "the longest request",
);
/// `QUEEN_STMT_TIMEOUT_MS`.
pub const STMT_TIMEOUT_MS: Setting = Setting::number(
    "QUEEN_STMT_TIMEOUT_MS",
    (100, 60_000, "milliseconds"),
    "30000",
    "the deadline of a write",
);
/// `QUEEN_RAFT_DISK_HIGH_PCT`.
pub const DISK_HIGH_PCT: Setting = Setting::number(
    "QUEEN_RAFT_DISK_HIGH_PCT",
    (1, 100, "percent"),
    "85",
    "the use of the disk above which pushes are refused with 507",
);
/// `QUEEN_RAFT_DISK_LOW_PCT`.
pub const DISK_LOW_PCT: Setting = Setting::number(
    "QUEEN_RAFT_DISK_LOW_PCT",
    (1, 100, "percent"),
    "80",
    "the use of the disk below which they are accepted again",
)
.otherwise("80, or QUEEN_RAFT_DISK_HIGH_PCT if that is less");
/// `RETENTION_INTERVAL`.
pub const RETENTION_INTERVAL: Setting = Setting::number(
    "RETENTION_INTERVAL",
    (100, 86_400_000, "milliseconds"),
    "5000",
    "the time between two looks at a queue's retention",
);
/// `QUEEN_ENCRYPTION_KEY`.
pub const ENCRYPTION_KEY: Setting = Setting::new(
    "QUEEN_ENCRYPTION_KEY",
    Kind::Text("64 hex digits, such as `openssl rand -hex 32` makes"),
    Default::Words("none: queues cannot be encrypted, and encrypted ones take no pushes"),
    "$(openssl rand -hex 32)",
    "the key that seals and opens the payloads of queues with encryptionEnabled",
)
.secret();
/// `QUEEN_ENCRYPTION_KEY_FILE`.
pub const ENCRYPTION_KEY_FILE: Setting = Setting::new(
    "QUEEN_ENCRYPTION_KEY_FILE",
    Kind::Text("a file of this machine that holds 64 hex digits"),
    Default::Words("none"),
    "/run/secrets/queen-key",
    "where that key is read from instead",
);
/// `QUEEN_ENCRYPTION_KEY_PREVIOUS`.
pub const ENCRYPTION_KEY_PREVIOUS: Setting = Setting::new(
    "QUEEN_ENCRYPTION_KEY_PREVIOUS",
    Kind::Text("keys of 64 hex digits each, separated by commas"),
    Default::Words("none"),
    "$OLD_KEY,$OLDER_KEY",
    "the keys before that one, for reading what they sealed",
)
.secret();
/// `QUEEN_RAFT_NODE_ID`.
pub const NODE_ID: Setting = Setting::new(
    "QUEEN_RAFT_NODE_ID",
    Kind::Number { low: 1, high: u32::MAX as u64, unit: "" },
    Default::Value("1"),
    "1",
    "this node's number; `ordinal` takes it from the end of the host's name, plus one",
);
/// `QUEEN_SERVER_ID`.
pub const SERVER_ID: Setting = Setting::new(
    "QUEEN_SERVER_ID",
    Kind::Text("any text"),
    Default::Words("the host's name"),
    "queen-0",
    "how the node calls itself in its log and pages",
);
/// `HOSTNAME`.
pub const HOSTNAME: Setting = Setting::new(
    "HOSTNAME",
    Kind::Text("any text"),
    Default::Words("the system's name for this machine"),
    "queen-0",
    "the host's name",
);
/// `QUEEN_RAFT_REPLICATOR`.
pub const REPLICATOR: Setting = Setting::new(
    "QUEEN_RAFT_REPLICATOR",
    Kind::Word(&[&["local"], &["openraft"]]),
    Default::Words("openraft with QUEEN_RAFT_PEERS or QUEEN_RAFT_JOIN, else local"),
    "openraft",
    "who keeps copies of the log: this node alone, or a cluster",
);
/// `QUEEN_RAFT_PEERS`.
pub const PEERS: Setting = Setting::new(
    "QUEEN_RAFT_PEERS",
    Kind::Text("id=raftHost:port/httpHost:port of each node, separated by commas"),
    Default::Words("none: this node runs alone"),
    "1=queen-1:7400/queen-1:6632,2=queen-2:7400/queen-2:6632,3=queen-3:7400/queen-3:6632",
    "the nodes that found the cluster, the same on each of them",
);
/// `QUEEN_RAFT_JOIN`.
pub const JOIN: Setting = Setting::switch(
    "QUEEN_RAFT_JOIN",
    "false",
    "an empty node waits to be added to a cluster that is there",
);
/// `QUEEN_RAFT_LISTEN`.
pub const LISTEN: Setting = Setting::new(
    "QUEEN_RAFT_LISTEN",
    Kind::Text("an IP address of this machine and a port"),
    Default::Words("every address, at the port that QUEEN_RAFT_PEERS gives this node"),
    "0.0.0.0:7400",
    "where other nodes of the cluster reach this one",
);
/// `QUEEN_RAFT_TOKEN`.
pub const TOKEN: Setting = Setting::new(
    "QUEEN_RAFT_TOKEN",
    Kind::Text("16 characters or more"),
    Default::Words("none; needed in a cluster"),
    "$(openssl rand -hex 32)",
    "the secret that the nodes of a cluster share",
)
.secret();
/// `QUEEN_RAFT_ELECTION_MS`.
pub const ELECTION_MS: Setting = Setting::new(
    "QUEEN_RAFT_ELECTION_MS",
    Kind::Text("a range low..high of 100 to 60000 milliseconds"),
    Default::Value("1000..2000"),
    "1000..2000",
    "how long a node that hears of no leader waits before it asks to be elected",
);
/// `QUEEN_RAFT_TLS_CA`.
pub const TLS_CA: Setting = Setting::new(
    "QUEEN_RAFT_TLS_CA",
    Kind::Text("a PEM file of this machine"),
    Default::Words("none: nodes talk in the clear"),
    "/run/secrets/ca.pem",
    "the authority that the certificates of all nodes come from; turns mutual TLS between them on",
);
/// `QUEEN_RAFT_TLS_CERT`.
pub const TLS_CERT: Setting = Setting::new(
    "QUEEN_RAFT_TLS_CERT",
    Kind::Text("a PEM file of this machine"),
    Default::Words("none; needed with QUEEN_RAFT_TLS_CA"),
    "/run/secrets/node.pem",
    "this node's certificate and its chain; it names the host in QUEEN_RAFT_PEERS",
);
/// `QUEEN_RAFT_TLS_KEY`.
pub const TLS_KEY: Setting = Setting::new(
    "QUEEN_RAFT_TLS_KEY",
    Kind::Text("a PEM file of this machine"),
    Default::Words("none; needed with QUEEN_RAFT_TLS_CA"),
    "/run/secrets/node.key",
    "the key of that certificate",
);
/// `DEFAULT_SUBSCRIPTION_MODE`.
pub const SUBSCRIPTION_MODE: Setting = Setting::word(
    "DEFAULT_SUBSCRIPTION_MODE",
    &[&["new", "new-only"]],
    "new",
    "where a new consumer group starts",
);
/// `QUEEN_EPHEMERAL_MAX_BYTES`.
pub const EPHEMERAL_MAX_BYTES: Setting = Setting::number(
    "QUEEN_EPHEMERAL_MAX_BYTES",
    (1 << 20, 1 << 40, "bytes"),
    "268435456",
    "the memory that all ephemeral queues of a node may take, what is around the payloads included",
);
/// `QUEEN_EPHEMERAL_QUEUE_MAX_BYTES`.
pub const EPHEMERAL_QUEUE_MAX_BYTES: Setting = Setting::number(
    "QUEEN_EPHEMERAL_QUEUE_MAX_BYTES",
    (1, 1 << 40, "bytes"),
    "16777216",
    "the payloads that an ephemeral queue may hold which does not say (maxBytes)",
);
/// `QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH`.
pub const EPHEMERAL_QUEUE_MAX_LENGTH: Setting = Setting::number(
    "QUEEN_EPHEMERAL_QUEUE_MAX_LENGTH",
    (1, 100_000_000, ""),
    "10000",
    "the messages that an ephemeral queue may hold which does not say (maxLength)",
);
/// `QUEEN_EPHEMERAL_LEASE_SECONDS`.
pub const EPHEMERAL_LEASE_SECONDS: Setting = Setting::number(
    "QUEEN_EPHEMERAL_LEASE_SECONDS",
    (1, 86_400, "seconds"),
    "30",
    "the lease of an ephemeral queue that does not say (leaseSeconds)",
);
/// `QUEEN_EPHEMERAL_RETRY_LIMIT`.
pub const EPHEMERAL_RETRY_LIMIT: Setting = Setting::number(
    "QUEEN_EPHEMERAL_RETRY_LIMIT",
    (0, 1_000_000, ""),
    "5",
    "how often an ephemeral queue that does not say delivers a message again (retryLimit)",
);
/// `QUEEN_EPHEMERAL_IDLE_SECONDS`.
pub const EPHEMERAL_IDLE_SECONDS: Setting = Setting::number(
    "QUEEN_EPHEMERAL_IDLE_SECONDS",
    (1, 86_400, "seconds"),
    "300",
    "after how long without a call an empty ephemeral queue, and a group on one, is forgotten",
);
/// `LOG_LEVEL`.
pub const LOG_LEVEL: Setting = Setting::word(
    "LOG_LEVEL",
    &[&["error"], &["warn"], &["info"], &["debug"], &["trace"], &["off"]],
    "info",
    "the least important line that is logged",
)
.otherwise("info; warn for `queen dev`");
/// `RUST_LOG`.
pub const RUST_LOG: Setting = Setting::new(
    "RUST_LOG",
    Kind::Text("filter directives of the tracing library"),
    Default::Words("what LOG_LEVEL says"),
    "info,queen_sink=debug",
    "levels by part of the program; wins over LOG_LEVEL",
);
/// `QUEEN_LOG_JSON`.
pub const LOG_JSON: Setting =
    Setting::switch("QUEEN_LOG_JSON", "false", "log lines are JSON objects");

/// All of them, in the order of the reference.
pub const ALL: &[&Setting] = &[
    &DIR,
    &PORT,
    &BIND_ADDR,
    &MAX_BODY_BYTES,
    &STMT_TIMEOUT_MS,
    &DISK_HIGH_PCT,
    &DISK_LOW_PCT,
    &RETENTION_INTERVAL,
    &ENCRYPTION_KEY,
    &ENCRYPTION_KEY_FILE,
    &ENCRYPTION_KEY_PREVIOUS,
    &NODE_ID,
    &SERVER_ID,
    &HOSTNAME,
    &REPLICATOR,
    &PEERS,
    &JOIN,
    &LISTEN,
    &TOKEN,
    &ELECTION_MS,
    &TLS_CA,
    &TLS_CERT,
    &TLS_KEY,
    &SUBSCRIPTION_MODE,
    &EPHEMERAL_MAX_BYTES,
    &EPHEMERAL_QUEUE_MAX_BYTES,
    &EPHEMERAL_QUEUE_MAX_LENGTH,
    &EPHEMERAL_LEASE_SECONDS,
    &EPHEMERAL_RETRY_LIMIT,
    &EPHEMERAL_IDLE_SECONDS,
    &LOG_LEVEL,
    &RUST_LOG,
    &LOG_JSON,
];
