//! The table of the sink's settings, `QUEEN_S3_*`.
//!
//! Owns: the names, and those of other releases that are refused or ignored here. Leaves to others:
//! their use (`queen_sink::settings`).

use super::{Default, Kind, Setting};

/// What every name begins with.
pub const PREFIX: &str = "QUEEN_S3_";

const MIB: &str = "MiB";
const MS: &str = "milliseconds";

/// `QUEEN_S3_EMBEDDED`.
pub const EMBEDDED: Setting = Setting::switch(
    "QUEEN_S3_EMBEDDED",
    "false",
    "starts the sink on this node; without it no other of these is looked at",
);
/// `QUEEN_S3_QUEUES`.
pub const QUEUES: Setting = Setting::new(
    "QUEEN_S3_QUEUES",
    Kind::Text("names separated by commas, or * alone"),
    Default::Needed,
    "orders,invoices",
    "the queues to copy, comma-separated, or * for all, those made later included",
);
/// `QUEEN_S3_ENDPOINT`.
pub const ENDPOINT: Setting = Setting::new(
    "QUEEN_S3_ENDPOINT",
    Kind::Text("http:// or https://, a host, and maybe a port; no path"),
    Default::Needed,
    "http://127.0.0.1:7070",
    "where the bucket is",
);
/// `QUEEN_S3_REGION`.
pub const REGION: Setting = Setting::new(
    "QUEEN_S3_REGION",
    Kind::Text("a region's name"),
    Default::Needed,
    "us-east-1",
    "the region of the signature; any name for servers without regions",
);
/// `QUEEN_S3_BUCKET`.
pub const BUCKET: Setting = Setting::new(
    "QUEEN_S3_BUCKET",
    Kind::Text("a bucket's name, without slash or space"),
    Default::Needed,
    "lake",
    "the bucket's name",
);
/// `QUEEN_S3_PREFIX`.
pub const KEY_PREFIX: Setting = Setting::new(
    "QUEEN_S3_PREFIX",
    Kind::Text("at most 256 bytes; no empty, `.` or `..` part, no control character"),
    Default::Value("queen"),
    "team/queen",
    "the first part of every object's name",
);
/// `QUEEN_S3_PATH_STYLE`.
pub const PATH_STYLE: Setting = Setting::switch(
    "QUEEN_S3_PATH_STYLE",
    "false",
    "the bucket is in the path of the URL, as most self-hosted servers want, not in its host",
);
/// `QUEEN_S3_CA_FILE`.
pub const CA_FILE: Setting = Setting::new(
    "QUEEN_S3_CA_FILE",
    Kind::Text("a PEM file of certificates that can be read"),
    Default::Words("the system's authorities alone"),
    "/etc/ssl/certs/my-ca.pem",
    "further authorities of the endpoint's certificate",
);
/// `QUEEN_S3_SSE`.
pub const SSE: Setting = Setting::word(
    "QUEEN_S3_SSE",
    &[&["AES256"], &["aws:kms", "kms"]],
    "AES256",
    "the encryption by the bucket",
)
.otherwise("the bucket's own default");
/// `QUEEN_S3_SSE_KMS_KEY_ID`.
pub const SSE_KMS_KEY_ID: Setting = Setting::new(
    "QUEEN_S3_SSE_KMS_KEY_ID",
    Kind::Text("a key's id or ARN; beside QUEEN_S3_SSE=aws:kms only"),
    Default::Words("the bucket's own key, which most self-hosted servers do not have"),
    "alias/lake",
    "the key of the encryption by the bucket",
);
/// `QUEEN_S3_CHECKSUM`.
pub const CHECKSUM: Setting = Setting::word(
    "QUEEN_S3_CHECKSUM",
    &[&["auto"], &["sha256"], &["md5"], &["off", "none"]],
    "auto",
    "the header that proves a body beside the signature: x-amz-checksum-sha256, Content-MD5, none, \
     or what the bucket turns out to want",
);
/// `QUEEN_S3_EXPECTED_BUCKET_OWNER`.
pub const EXPECTED_BUCKET_OWNER: Setting = Setting::new(
    "QUEEN_S3_EXPECTED_BUCKET_OWNER",
    Kind::Text("an account id, 12 digits"),
    Default::Words("whoever owns the bucket"),
    "111122223333",
    "the account that must own the bucket, or nothing is written",
);
/// `QUEEN_S3_ACL`.
pub const ACL: Setting = Setting::word(
    "QUEEN_S3_ACL",
    &[
        &["private"],
        &["bucket-owner-full-control"],
        &["bucket-owner-read"],
        &["authenticated-read"],
        &["aws-exec-read"],
        &["public-read"],
    ],
    "bucket-owner-full-control",
    "the canned access list of the objects, for buckets of another account",
)
.otherwise("the bucket's own default");
/// `QUEEN_S3_ACCESS_KEY`.
pub const ACCESS_KEY: Setting = Setting::new(
    "QUEEN_S3_ACCESS_KEY",
    Kind::Text("a key id"),
    Default::Words("the machine's credentials; needed where it offers none"),
    "queen",
    "the id of the access key",
);
/// `QUEEN_S3_SECRET_KEY`.
pub const SECRET_KEY: Setting = Setting::new(
    "QUEEN_S3_SECRET_KEY",
    Kind::Text("a secret; beside QUEEN_S3_ACCESS_KEY"),
    Default::Words("the machine's credentials; needed where it offers none"),
    "queen-secret-key",
    "the secret of the access key",
)
.secret();
/// `QUEEN_S3_SESSION_TOKEN`.
pub const SESSION_TOKEN: Setting = Setting::new(
    "QUEEN_S3_SESSION_TOKEN",
    Kind::Text("a token; beside QUEEN_S3_ACCESS_KEY and QUEEN_S3_SECRET_KEY"),
    Default::Words("the access key is a lasting one"),
    "the-token",
    "the token of a temporary access key",
)
.secret();
/// `QUEEN_S3_PROFILE`.
pub const PROFILE: Setting = Setting::new(
    "QUEEN_S3_PROFILE",
    Kind::Text("a profile of AWS_SHARED_CREDENTIALS_FILE or AWS_CONFIG_FILE"),
    Default::Words("the order below"),
    "lake",
    "the profile of the credentials, and nothing else",
);
/// `QUEEN_S3_ROLE_ARN`.
pub const ROLE_ARN: Setting = Setting::new(
    "QUEEN_S3_ROLE_ARN",
    Kind::Text("a role's ARN"),
    Default::Words("the credentials are used as they are"),
    "arn:aws:iam::123456789012:role/queen",
    "the role to take on with the credentials, whatever their source",
);
/// `QUEEN_S3_EXTERNAL_ID`.
pub const EXTERNAL_ID: Setting = Setting::new(
    "QUEEN_S3_EXTERNAL_ID",
    Kind::Text("text; beside QUEEN_S3_ROLE_ARN only"),
    Default::Words("none is sent"),
    "queen-lake",
    "what the role's owner wants to be told",
);
/// `QUEEN_S3_FORMAT`.
pub const FORMAT: Setting = Setting::word(
    "QUEEN_S3_FORMAT",
    &[&["jsonl", "json", "ndjson"], &["parquet"]],
    "jsonl",
    "the format of data files",
);
/// `QUEEN_S3_COMPRESSION`.
pub const COMPRESSION: Setting = Setting::word(
    "QUEEN_S3_COMPRESSION",
    &[&["zstd", "zst"], &["gzip", "gz"], &["none", "off"]],
    "zstd",
    "the compression of JSONL",
);
/// `QUEEN_S3_PARQUET_CODEC`.
pub const PARQUET_CODEC: Setting = Setting::word(
    "QUEEN_S3_PARQUET_CODEC",
    &[&["zstd", "zst"], &["snappy", "snap"]],
    "zstd",
    "the compression of Parquet",
);
/// `QUEEN_S3_WRAP`.
pub const WRAP: Setting = Setting::switch(
    "QUEEN_S3_WRAP",
    "true",
    "payloads that readers of the format cannot survive are written as base64",
);
/// `QUEEN_S3_LAYOUT`.
pub const LAYOUT: Setting = Setting::word(
    "QUEEN_S3_LAYOUT",
    &[&["merged"], &["per-partition", "per_partition", "perpartition"]],
    "merged",
    "one data file per window, or one per window and partition",
);
/// `QUEEN_S3_ALIGN`.
pub const ALIGN: Setting = Setting::word(
    "QUEEN_S3_ALIGN",
    &[&["hour", "hourly"], &["day", "daily"], &["none", "off"]],
    "hour",
    "the boundary that no window crosses",
);
/// `QUEEN_S3_START`.
pub const START: Setting = Setting::word(
    "QUEEN_S3_START",
    &[&["latest", "now", "end"], &["earliest", "beginning"]],
    "latest",
    "where a queue seen for the first time starts; earliest is what retention still holds",
);
/// `QUEEN_S3_TARGET_MB`.
pub const TARGET_MB: Setting = Setting::number(
    "QUEEN_S3_TARGET_MB",
    (1, 5120, MIB),
    "128",
    "the uncompressed records that close a window",
);
/// `QUEEN_S3_MAX_WINDOW_MS`.
pub const MAX_WINDOW_MS: Setting = Setting::number(
    "QUEEN_S3_MAX_WINDOW_MS",
    (100, 86_400_000, MS),
    "300000",
    "the longest time a window stays open",
);
/// `QUEEN_S3_MEMORY_MB`.
pub const MEMORY_MB: Setting = Setting::number(
    "QUEEN_S3_MEMORY_MB",
    (64, 1_048_576, MIB),
    "256",
    "the memory for all windows in work",
);
/// `QUEEN_S3_THREADS`.
pub const THREADS: Setting =
    Setting::number("QUEEN_S3_THREADS", (1, 64, "threads"), "2", "the threads that encode")
        .otherwise("a quarter of the cores, but 1 or 2");
/// `QUEEN_S3_MULTIPART_THRESHOLD_MB`.
pub const MULTIPART_THRESHOLD_MB: Setting = Setting::number(
    "QUEEN_S3_MULTIPART_THRESHOLD_MB",
    (5, 5120, MIB),
    "64",
    "the longest object sent in one request",
);
/// `QUEEN_S3_LEASE_TTL_MS`.
pub const LEASE_TTL_MS: Setting = Setting::number(
    "QUEEN_S3_LEASE_TTL_MS",
    (1000, 3_600_000, MS),
    "30000",
    "the life of a queue's lease, in whole seconds",
);
/// `QUEEN_S3_SHUTDOWN_GRACE_MS`.
pub const SHUTDOWN_GRACE_MS: Setting = Setting::number(
    "QUEEN_S3_SHUTDOWN_GRACE_MS",
    (100, 3_600_000, MS),
    "30000",
    "the time from SIGTERM in which queues are given back",
);
/// `QUEEN_S3_SINK`.
pub const SINK: Setting = Setting::new(
    "QUEEN_S3_SINK",
    Kind::Text("1 to 64 of A-Z a-z 0-9 . _ -"),
    Default::Value("default"),
    "default",
    "the sink's name, as in a queue's `retentionSinkHold`; in no object's name",
);
/// `QUEEN_S3_INSTANCE`.
pub const INSTANCE: Setting = Setting::new(
    "QUEEN_S3_INSTANCE",
    Kind::Text("any text; `/node-<id>` is added where it lacks"),
    Default::Words("node-<id>@<host>"),
    "blue",
    "this node's name in leases",
);
/// `QUEEN_S3_CRASH_AT`.
pub const CRASH_AT: Setting = Setting::word(
    "QUEEN_S3_CRASH_AT",
    &[
        &["never", "off", "none"],
        &["after_intent"],
        &["mid_upload"],
        &["after_upload"],
        &["before_commit"],
        &["after_commit"],
    ],
    "never",
    "where the process aborts, for crash tests",
);

/// All of them, in the order of the reference.
pub const ALL: &[&Setting] = &[
    &EMBEDDED,
    &QUEUES,
    &ENDPOINT,
    &REGION,
    &BUCKET,
    &ACCESS_KEY,
    &SECRET_KEY,
    &SESSION_TOKEN,
    &PROFILE,
    &ROLE_ARN,
    &EXTERNAL_ID,
    &PATH_STYLE,
    &KEY_PREFIX,
    &FORMAT,
    &COMPRESSION,
    &PARQUET_CODEC,
    &WRAP,
    &LAYOUT,
    &ALIGN,
    &START,
    &TARGET_MB,
    &MAX_WINDOW_MS,
    &SSE,
    &SSE_KMS_KEY_ID,
    &CHECKSUM,
    &EXPECTED_BUCKET_OWNER,
    &ACL,
    &CA_FILE,
    &MEMORY_MB,
    &THREADS,
    &MULTIPART_THRESHOLD_MB,
    &LEASE_TTL_MS,
    &SHUTDOWN_GRACE_MS,
    &SINK,
    &INSTANCE,
    &CRASH_AT,
];

/// A name of other releases that is refused, with why.
pub const REFUSED: &[(&str, &str)] = &[(
    "QUEEN_S3_PARTITIONS",
    "a static list of partitions is not taken: every partition of a chosen queue is copied; unset \
     it and name queues in QUEEN_S3_QUEUES",
)];

/// Names of other releases that have nothing to act on here, with why.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("QUEEN_S3_FETCH_CONCURRENCY", "windows are read from the log in one pass"),
    ("QUEEN_S3_DISCOVERY_INTERVAL_MS", "partitions are not polled"),
    ("QUEEN_S3_SAFE_GUARD_MS", "a window is final as soon as the log clock has passed its end"),
    ("QUEEN_S3_CHECKPOINT_EVERY", "positions are part of the log"),
    ("QUEEN_S3_LISTEN", "the broker's own port serves status and metrics"),
    ("QUEEN_S3_LOG_FORMAT", "the broker's own log setting applies"),
];
