//! The licences of everything we link: each must be permissive.
//!
//! Owns: the list of welcome licences. Leaves to others: reading expressions (`spdx`).

use std::path::Path;

use serde_json::Value;

use crate::metadata::{list, read, text};
use crate::spdx;

/// Licences that ask for no more than a notice.
const WELCOME: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Findings over the whole dependency graph, every platform and the tests included.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = read(root, true)?;
    let packages = list(&metadata, "packages");
    Ok(packages.iter().filter_map(judge).collect())
}

fn judge(package: &Value) -> Option<String> {
    let (name, version) = (text(package, "name"), text(package, "version"));
    let licence = text(package, "license");
    if licence.is_empty() {
        return Some(format!("{name} {version}: states no licence; read its files and replace it"));
    }
    match spdx::satisfied(licence, &|one| WELCOME.contains(&one)) {
        Ok(true) => None,
        Ok(false) => Some(format!(
            "{name} {version}: licence {licence:?} is not on the permissive list of \
             xtask/licences.rs; find another crate"
        )),
        Err(error) => Some(format!("{name} {version}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_copyleft_or_silent_package_is_found() {
        let package = |licence: Value| json!({"name": "p", "version": "1.0.0", "license": licence});
        assert_eq!(judge(&package(json!("MIT OR Apache-2.0"))), None);
        assert!(judge(&package(json!("AGPL-3.0-only"))).is_some());
        assert!(judge(&package(Value::Null)).is_some());
        assert!(judge(&package(json!("MIT AND"))).is_some());
    }
}
