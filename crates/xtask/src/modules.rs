//! Dead files: sources that no `mod` reaches, and golden files that no test names.
//!
//! Owns: following `mod name;` from the roots of each crate. Leaves to others: dead items inside a
//! file (the compiler says so).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Findings over all crates.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut reached = BTreeSet::new();
    let sources: Vec<&String> = tracked.iter().filter(|path| path.ends_with(".rs")).collect();
    for path in sources.iter().filter(|path| is_root(path)) {
        follow(root, Path::new(path.as_str()), true, &mut reached)?;
    }
    let mut found: Vec<String> = sources
        .iter()
        .filter(|path| !reached.contains(Path::new(path.as_str())))
        .map(|path| format!("{path}: no `mod` reaches it; name it in its parent or remove it"))
        .collect();
    found.extend(unnamed_golden_files(root, tracked, &sources)?);
    Ok(found)
}

/// Whether cargo compiles the file as a crate of its own.
fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        [.., "src", "lib.rs" | "main.rs"]
            | [.., "build.rs"]
            | [.., "src", "bin", _]
            | [.., "fuzz_targets", _]
            | ["crates", _, "tests" | "benches" | "examples", _]
            | ["crates", _, "tests", _, "main.rs"]
    )
}

fn follow(
    root: &Path,
    path: &Path,
    is_root: bool,
    reached: &mut BTreeSet<PathBuf>,
) -> anyhow::Result<()> {
    if !reached.insert(path.to_path_buf()) {
        return Ok(());
    }
    let text = std::fs::read_to_string(root.join(path))
        .with_context(|| format!("read {}", path.display()))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let owns_folder = is_root || path.file_name().is_some_and(|name| name == "mod.rs");
    let beside = match (owns_folder, path.file_stem()) {
        (false, Some(stem)) => folder.join(stem),
        _ => folder.to_path_buf(),
    };
    for (name, explicit) in declared(&text) {
        let candidates = match explicit {
            Some(explicit) => vec![without_dots(&folder.join(explicit))],
            None => vec![beside.join(format!("{name}.rs")), beside.join(&name).join("mod.rs")],
        };
        for candidate in candidates {
            if root.join(&candidate).is_file() {
                follow(root, &candidate, false, reached)?;
            }
        }
    }
    Ok(())
}

/// The path with its `..` taken out.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            std::path::Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

/// The modules a source declares in files of their own, with their `#[path]` if one is given.
fn declared(text: &str) -> Vec<(String, Option<String>)> {
    let mut found = Vec::new();
    let mut explicit = None;
    for line in text.lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("#[path = \"") {
            explicit = rest.strip_suffix("\"]").map(str::to_owned);
            continue;
        }
        if line.starts_with("#[") || line.starts_with("//") {
            continue;
        }
        let unqualified = match line.strip_prefix("pub") {
            Some(rest) if rest.starts_with('(') => {
                rest.split_once(')').map(|(_, rest)| rest.trim_start()).unwrap_or_default()
            }
            Some(rest) => rest.trim_start(),
            None => line,
        };
        let name = unqualified.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';'));
        if let Some(name) = name {
            found.push((name.trim().to_owned(), explicit.take()));
        }
        explicit = None;
    }
    found
}

fn unnamed_golden_files(
    root: &Path,
    tracked: &[String],
    sources: &[&String],
) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for golden in tracked.iter().filter(|path| path.contains("/golden/")) {
        let (owner, _) = golden.split_once("/golden/").unwrap_or_default();
        let name = golden.rsplit('/').next().unwrap_or_default();
        let stem = name.split('.').next().unwrap_or(name);
        let mut named = false;
        for source in sources.iter().filter(|source| source.starts_with(owner)) {
            let text = std::fs::read_to_string(root.join(source.as_str()))
                .with_context(|| format!("read {source}"))?;
            named |= text.contains(stem);
        }
        if !named {
            found.push(format!("{golden}: no source of {owner} names it"));
        }
    }
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_read_with_their_paths() {
        let text = "mod a;\npub mod b;\npub(crate) mod c;\n#[cfg(test)]\n#[path = \"d_tests.rs\"]\n\
                    mod tests;\nmod inline {\n}\n// mod e;\n";
        let names: Vec<String> = declared(text).iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["a", "b", "c", "tests"]);
        assert_eq!(declared(text)[3].1.as_deref(), Some("d_tests.rs"));
    }

    #[test]
    fn a_file_that_nothing_names_is_dead() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("crates/a/src/lib.rs", "mod b;\n");
        write("crates/a/src/b.rs", "mod c;\n#[path = \"../e.rs\"]\nmod e;\n");
        write("crates/a/e.rs", "");
        write("crates/a/src/b/c.rs", "");
        write("crates/a/src/dead.rs", "");
        write("crates/a/golden/row-v1.hex", "");
        let tracked: Vec<String> = ["src/lib.rs", "src/b.rs", "src/b/c.rs", "src/dead.rs", "e.rs"]
            .iter()
            .chain(&["golden/row-v1.hex"])
            .map(|path| format!("crates/a/{path}"))
            .collect();
        let found = check(dir.path(), &tracked).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/dead.rs"));
        assert!(found[1].starts_with("crates/a/golden/row-v1.hex"));
    }
}
