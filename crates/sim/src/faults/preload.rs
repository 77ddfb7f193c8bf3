//! Libraries that are preloaded into a broker as it ships, to stand between it and the system.
//!
//! Owns: compiling one with the machine's C compiler, naming it to a process. Leaves to others: what it
//! does (`clock.c`, `power.c`).

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "LD_PRELOAD";

/// Compiles a C source into a folder.
pub fn compile(source: &str, folder: &Path) -> anyhow::Result<PathBuf> {
    let (file, library) = (folder.join("preload.c"), folder.join("preload.so"));
    std::fs::write(&file, source)?;
    let mut command = Command::new("cc");
    command.args(["-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&library);
    let output = command.arg(&file).args(["-ldl", "-lpthread"]).output().context("run cc")?;
    if !output.status.success() {
        bail!("cc: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(library)
}

/// Has a library preloaded after those that are.
pub fn name(library: &Path, variables: &mut BTreeMap<String, String>) {
    let all = variables.entry(VARIABLE.to_owned()).or_default();
    if !all.is_empty() {
        all.push(':');
    }
    all.push_str(&library.display().to_string());
}
