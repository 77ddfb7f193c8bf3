//! The checks of the house: `cargo xtask tidy` and `cargo xtask licences`; and the pages made from
//! the code: `cargo xtask references`.
//!
//! Owns: which check runs, how findings are printed, the exit code. Leaves to others: the rules
//! themselves (`edges`, `files`, `modules`, `pains`, `licences`), the pages (`references`), formatting (`rustfmt`) and lints (`clippy`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod edges;
mod files;
mod licences;
mod metadata;
mod modules;
mod pains;
mod references;
mod spdx;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
cargo xtask <check>

  tidy       crate edges, file headers, sizes, names, dead files, unfinished marks, pains
  licences   every dependency's licence is on the permissive list
  all        both, and that docs/reference is what the code says

  references writes docs/reference";

fn main() -> ExitCode {
    let check = std::env::args().nth(1).unwrap_or_default();
    let root = workspace_root();
    let findings = match check.as_str() {
        "tidy" => tidy(&root),
        "licences" => licences::check(&root),
        "all" => tidy(&root).and_then(|mut found| {
            found.extend(licences::check(&root)?);
            found.extend(references::check(&root));
            Ok(found)
        }),
        "references" => references::write(&root),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match findings {
        Ok(found) if found.is_empty() => {
            println!("{check}: nothing to say");
            ExitCode::SUCCESS
        }
        Ok(found) => {
            for finding in &found {
                eprintln!("{finding}");
            }
            eprintln!("{check}: {} finding(s)", found.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{check}: cannot look: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn tidy(root: &Path) -> anyhow::Result<Vec<String>> {
    let mut found = edges::check(root)?;
    let tracked = files::tracked(root)?;
    found.extend(files::check(root, &tracked)?);
    found.extend(modules::check(root, &tracked)?);
    found.extend(pains::check(root, &tracked)?);
    Ok(found)
}

/// The folder of the workspace's Cargo.toml: two above this crate.
fn workspace_root() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_path_buf()
}
