//! The sink's settings: names, defaults, ranges, and every error at once.
//!
//! Owns: the table of `QUEEN_S3_*` names and the checked [`Settings`].
//! Leaves to others: reading the environment and stopping the start (`queen`), making a bucket of
//! them (`bucket_s3`).

mod bucket;
mod machine;
mod parse;

pub use machine::{Container, Machine, Role, WebIdentity};
pub use parse::SettingsError;

use crate::encode::{ENCODER_REVISION, Encoding};
use crate::layout::{Align, Layout};
use std::time::Duration;

/// A value that must not be seen: its debug output is redacted.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// The secret itself, for signing only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Which queues are copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queues {
    /// Every queue of the tenant, those made later included.
    All,
    /// These, whether they exist yet or not; sorted, without doubles.
    Named(Vec<String>),
}

/// Where a queue that the sink sees for the first time starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At the stamp at which the sink was first turned on, or the queue's creation if later.
    Latest,
    /// At the first record that retention still holds.
    Earliest,
}

impl StartAt {
    /// The word of the setting.
    pub fn word(self) -> &'static str {
        match self {
            StartAt::Latest => "latest",
            StartAt::Earliest => "earliest",
        }
    }
}

/// Static credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticKeys {
    /// Access key id.
    pub access_key: String,
    /// Secret key.
    pub secret_key: Secret,
    /// Session token, of temporary credentials.
    pub session_token: Option<Secret>,
}

/// Encryption of the objects by the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sse {
    /// `AES256`.
    Aes256,
    /// `aws:kms`, with a key id or the bucket's default key.
    Kms {
        /// Key id or ARN.
        key_id: Option<String>,
    },
}

/// Header that proves a body beside the signature, whose hash of the body no proxy can forge either.
/// Buckets with Object Lock want one; which one, providers do not agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// None until the bucket asks, then the first that it takes.
    Auto,
    /// None.
    Off,
    /// `x-amz-checksum-sha256`.
    Sha256,
    /// `Content-MD5`.
    Md5,
}

/// Slowest line on which an upload is not given up.
pub const UPLOAD_BYTES_PER_SECOND: u64 = 256 << 10;

/// Where the bucket is, and how to talk to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketSettings {
    /// `http://` or `https://`, host and optional port, no path.
    pub endpoint: String,
    /// Region of the signature.
    pub region: String,
    /// Bucket name.
    pub bucket: String,
    /// The sink's own keys; without them the machine is asked.
    pub keys: Option<StaticKeys>,
    /// Where else credentials may come from.
    pub machine: Machine,
    /// The bucket in the URL's path instead of its host.
    pub path_style: bool,
    /// Encryption headers of PUT and of the start of a multipart upload.
    pub sse: Option<Sse>,
    /// Header that proves a body beside the signature.
    pub checksum: Checksum,
    /// Account that must own the bucket.
    pub expected_owner: Option<String>,
    /// Canned access list of the objects.
    pub acl: Option<&'static str>,
    /// PEM file of further certificate authorities.
    pub ca_file: Option<String>,
    /// Longest object sent in one PUT, bytes.
    pub multipart_threshold: u64,
    /// A request without an answer is given up after this time, below a lease; one with a long body
    /// gets the time that [`UPLOAD_BYTES_PER_SECOND`] takes, if that is more.
    pub request_timeout: Duration,
}

/// A step of the commit at which the process aborts. For crash tests only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrashPoint {
    /// The intent is written, nothing is in the bucket.
    AfterIntent,
    /// A part of the window's objects is sent.
    MidUpload,
    /// All data objects are there, the manifest is not.
    AfterUpload,
    /// Objects and manifest are there, the pointer has not moved.
    BeforeCommit,
    /// The pointer has moved.
    AfterCommit,
}

/// All settings of one sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the sink, in its KV rows and in `retentionSinkHold`. Default `default`.
    pub sink: String,
    /// Which queues are copied.
    pub queues: Queues,
    /// Where the bucket is.
    pub bucket: BucketSettings,
    /// First part of every key, without outer slashes. Default `queen`.
    pub prefix: String,
    /// Format and compression of data objects. Default JSONL with zstd.
    pub encoding: Encoding,
    /// Payloads that readers cannot survive go as base64. Default true.
    pub wrap: bool,
    /// One object per window, or one per window and partition. Default merged.
    pub layout: Layout,
    /// Boundary that no window crosses, and the folders. Default hour.
    pub align: Align,
    /// Start of a queue seen for the first time. Default latest.
    pub start: StartAt,
    /// Weight at which a window closes, bytes. Default 128 MiB.
    pub target_bytes: u64,
    /// Age at which a window closes, from its first record, on the log clock. Default 5 minutes.
    pub max_window: Duration,
    /// Memory for windows being read, encoded and sent, bytes, all queues together. Default 256 MiB.
    pub memory_bytes: u64,
    /// Encoding threads. Default a quarter of the cores, 1 or 2.
    pub threads: usize,
    /// Life of a lease, on the log clock, whole seconds. Default 30 s.
    pub lease: Duration,
    /// Time from SIGTERM in which leases are given back. Default 30 s.
    pub shutdown_grace: Duration,
    /// Name of this node in leases.
    pub instance: String,
    /// Revision of the encoder: always [`ENCODER_REVISION`], but where a test plays the release after
    /// this one.
    pub encoder: u32,
    /// Where to abort, in crash tests.
    pub crash_at: Option<CrashPoint>,
    /// Sentences about settings that have no effect here, to be logged once.
    pub warnings: Vec<String>,
}

/// What the settings take from their surroundings besides `QUEEN_S3_*`.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// Raft node number, from 1; in the default instance name.
    pub node: u64,
    /// Host name; in the default instance name.
    pub host: String,
    /// Cores of the machine.
    pub cores: usize,
}

impl Settings {
    /// Reads `QUEEN_S3_*` out of an environment (other names are looked at for AWS credentials only).
    ///
    /// `Ok(None)` unless `QUEEN_S3_EMBEDDED` is true; nothing else is looked at then. An error lists
    /// every bad setting, each in one line that names the variable, the value, what is allowed and
    /// an example.
    pub fn from_vars(
        vars: impl IntoIterator<Item = (String, String)>,
        around: &Surroundings,
    ) -> Result<Option<Settings>, SettingsError> {
        parse::parse(vars, around)
    }
}
