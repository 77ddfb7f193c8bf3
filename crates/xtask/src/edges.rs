//! Which crate may use which: the table of ARCHITECTURE.md, held against every Cargo.toml.
//!
//! Owns: the table of layers, and the libraries that only one layer may name. Leaves to others:
//! what lies inside a crate. A new crate needs a line here and a reason there.

use std::path::Path;

use serde_json::Value;

use crate::metadata::{list, read, text};

/// Package, the packages of ours it may use, and those it may use in tests only.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("queen-core", &[], &[]),
    ("queen-state", &["queen-core"], &[]),
    ("queen-store", &["queen-core", "queen-state"], &[]),
    ("queen-raft", &["queen-core"], &[]),
    ("queen-broker", &["queen-core", "queen-state", "queen-store", "queen-raft"], &[]),
    ("queen-sink", &["queen-core"], &[]),
    ("queen-http", &["queen-core", "queen-broker"], &["queen-store", "queen-raft"]),
    (
        "queen",
        &[
            "queen-core",
            "queen-state",
            "queen-store",
            "queen-raft",
            "queen-broker",
            "queen-sink",
            "queen-http",
        ],
        &["queen-sim"],
    ),
    (
        "queen-sim",
        &[
            "queen-core",
            "queen-state",
            "queen-store",
            "queen-raft",
            "queen-broker",
            "queen-sink",
            "queen-http",
        ],
        &[],
    ),
    ("xtask", &["queen-core"], &[]),
];

/// A library, the packages that may name it outside their tests, and why no other may.
const RESERVED: &[(&str, &[&str], &str)] = &[
    ("openraft", &["queen-raft"], "consensus is known to raft alone"),
    ("lsm-tree", &["queen-store"], "tables on disk are the store's"),
    ("object_store", &["queen-sink", "queen-sim"], "the bucket is behind the sink's Bucket trait"),
    ("axum", &["queen-http"], "routes are http's"),
    ("s3s", &["queen", "queen-sim"], "the S3 server of `queen dev` and of tests"),
    ("s3s-fs", &["queen-sim"], "the S3 server of tests"),
];

/// Layers that are pure: no runtime, no clock, no log, no randomness.
const PURE: &[&str] = &["queen-core", "queen-state"];
const IMPURE: &[&str] = &["tokio", "tracing", "rand", "fastrand", "futures", "libc", "reqwest"];

/// Findings over all packages of the workspace.
pub fn check(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = read(root, false)?;
    Ok(list(&metadata, "packages").iter().flat_map(judge).collect())
}

fn judge(package: &Value) -> Vec<String> {
    let name = text(package, "name");
    let Some((_, may, tests_may)) = LAYERS.iter().find(|(layer, ..)| *layer == name) else {
        return vec![format!(
            "crate {name} is in no layer: give it a line in ARCHITECTURE.md and in xtask/edges.rs"
        )];
    };
    let mut found = Vec::new();
    for dependency in list(package, "dependencies") {
        let (other, in_tests) = (text(dependency, "name"), text(dependency, "kind") == "dev");
        let ours = LAYERS.iter().any(|(layer, ..)| *layer == other);
        let allowed = may.contains(&other) || (in_tests && tests_may.contains(&other));
        if ours && !allowed && other != name {
            found.push(format!(
                "{name} may not use {other}: it may use {may:?} (ARCHITECTURE.md, layers); move the \
                 code down, or pass it in behind a trait"
            ));
        }
        if in_tests {
            continue;
        }
        for (library, owners, why) in RESERVED {
            if other == *library && !owners.contains(&name) {
                found.push(format!("{name} may not use {library}: {why} ({owners:?})"));
            }
        }
        if PURE.contains(&name) && IMPURE.contains(&other) {
            found.push(format!("{name} may not use {other}: the layer is pure and deterministic"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependencies: Vec<Value> =
            dependencies.iter().map(|(name, kind)| json!({"name": name, "kind": kind})).collect();
        json!({"name": name, "dependencies": dependencies})
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let found = judge(&package("queen-state", &[("queen-core", None), ("queen-store", None)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("queen-state may not use queen-store"));
    }

    #[test]
    fn a_test_edge_is_allowed_only_where_the_table_says_so() {
        assert!(judge(&package("queen", &[("queen-sim", Some("dev"))])).is_empty());
        assert_eq!(judge(&package("queen", &[("queen-sim", None)])).len(), 1);
        assert_eq!(judge(&package("queen-core", &[("queen-sim", Some("dev"))])).len(), 1);
    }

    #[test]
    fn reserved_libraries_and_impure_ones_are_found() {
        assert_eq!(judge(&package("queen-broker", &[("openraft", None)])).len(), 1);
        assert!(judge(&package("queen-raft", &[("openraft", None)])).is_empty());
        assert_eq!(judge(&package("queen-core", &[("tokio", None)])).len(), 1);
        assert_eq!(judge(&package("queen-new", &[])).len(), 1);
    }
}
