//! What cargo knows of the workspace, read from `cargo metadata`.
//!
//! Owns: calling cargo and naming what could not be read. Leaves to others: judging it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

/// The metadata document; with `deps` false only the workspace's own packages.
pub fn read(root: &Path, deps: bool) -> anyhow::Result<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root).args(["metadata", "--format-version", "1", "--locked"]);
    if !deps {
        cargo.arg("--no-deps");
    }
    let output = cargo.output().context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("read the answer of cargo metadata")
}

/// A list member of a JSON object; empty when absent.
pub fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A text member of a JSON object; empty when absent or null.
pub fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}
