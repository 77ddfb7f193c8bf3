//! Real processes of the broker and of an S3 server, and a small client.
//!
//! Owns: starting, killing and asking them. Leaves to others: what is tested.
//!
//! The broker's binary is `$QUEEN_TEST_BINARY`, else `queen` in the folder of the target directory
//! in which the running test was built: `cargo build` (with the test's profile) makes it. The S3
//! server and the readers come from the Python environment `$QUEEN_TEST_VENV`, else `.venv` in the
//! repository: `./test` makes it.

mod broker;
mod client;
mod cluster;
mod folder;
mod ports;
mod seaweed;
mod small_disk;

pub use broker::{Broker, Home, Setup, copy_directory};
pub use client::{Answer, Client, Item, Pushed, push_body};
pub use cluster::{Cluster, Place};
pub use folder::FolderS3;
pub use ports::{free_port, free_port_pair};
pub use seaweed::Seaweed;
pub use small_disk::SmallDisk;

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};

/// Access key of both S3 servers.
pub const ACCESS_KEY: &str = "queen";
/// Secret key of both S3 servers; it guards a test's bucket on loopback.
pub const SECRET_KEY: &str = "queen-secret-key";
/// Bucket of both S3 servers.
pub const BUCKET: &str = "lake";

/// The folder of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}

/// A program of the tests' Python environment.
pub fn tool(name: &str) -> anyhow::Result<PathBuf> {
    let set = std::env::var_os("QUEEN_TEST_VENV").map(PathBuf::from);
    let folder = set.unwrap_or_else(|| repository().join(".venv"));
    let program = folder.join("bin").join(name);
    if !program.exists() {
        bail!(
            "{} is not there: run ./test once, or set QUEEN_TEST_VENV to a Python environment \
             with tests/requirements.txt installed",
            program.display()
        );
    }
    Ok(program)
}

/// The broker's binary.
pub fn binary() -> anyhow::Result<PathBuf> {
    if let Some(set) = std::env::var_os("QUEEN_TEST_BINARY") {
        return Ok(set.into());
    }
    let test = std::env::current_exe().context("find the running test")?;
    let folders = test.ancestors().skip(1).take(2);
    let mut built = folders.map(|folder| folder.join("queen")).filter(|path| path.is_file());
    built.next().with_context(|| {
        format!("no queen beside {}: build it with cargo build -p queen", test.display())
    })
}

/// The settings that point a sink at a bucket, as pairs of variable and value.
pub fn sink_settings(endpoint: &str, queues: &str) -> Vec<(String, String)> {
    let pairs = [
        ("QUEEN_S3_EMBEDDED", "true"),
        ("QUEEN_S3_QUEUES", queues),
        ("QUEEN_S3_ENDPOINT", endpoint),
        ("QUEEN_S3_REGION", "us-east-1"),
        ("QUEEN_S3_PATH_STYLE", "true"),
        ("QUEEN_S3_BUCKET", BUCKET),
        ("QUEEN_S3_ACCESS_KEY", ACCESS_KEY),
        ("QUEEN_S3_SECRET_KEY", SECRET_KEY),
        ("QUEEN_S3_START", "earliest"),
    ];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
}

/// A client of the bucket, as the checker reads it.
pub fn bucket(endpoint: &str) -> anyhow::Result<object_store::aws::AmazonS3> {
    Ok(object_store::aws::AmazonS3Builder::new()
        .with_endpoint(endpoint)
        .with_region("us-east-1")
        .with_bucket_name(BUCKET)
        .with_access_key_id(ACCESS_KEY)
        .with_secret_access_key(SECRET_KEY)
        .with_allow_http(true)
        .build()?)
}

/// Makes a child end with its parent, so that a test that is killed leaves nothing behind.
fn ends_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt;
    // SAFETY: prctl is async-signal-safe, and the closure touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            Ok(())
        });
    }
}
