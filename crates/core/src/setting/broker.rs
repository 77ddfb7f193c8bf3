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
pub const REPLICATOR: Setting = Setting::word(
    "QUEEN_RAFT_REPLICATOR",
    &[&["local"]],
    "local",
    "who keeps copies of the log; this release runs one node",
);
/// `DEFAULT_SUBSCRIPTION_MODE`.
pub const SUBSCRIPTION_MODE: Setting = Setting::word(
    "DEFAULT_SUBSCRIPTION_MODE",
    &[&["new", "new-only"]],
    "new",
    "where a new consumer group starts",
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
    &SUBSCRIPTION_MODE,
    &LOG_LEVEL,
    &RUST_LOG,
    &LOG_JSON,
];
