//! What every file of the repository must look like: header, size, name, no unfinished marks.
//!
//! Owns: those four rules and the short list of files that may be longer for now. Leaves to others:
//! line length (`rustfmt`), lints (`clippy`), whether a file is reached at all (`modules`).

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// Longest source file, without its inline tests.
const LINES_MAX: usize = 500;
/// Longest inline test module; beyond it tests go to `x_tests.rs` beside `x.rs`.
const INLINE_TEST_LINES_MAX: usize = 250;
/// Files that may be longer, with the length they may have. The lengths only ever go down.
const LONGER: &[(&str, usize)] = &[];
/// Names that say nothing about what a file owns.
const EMPTY_NAMES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "manager"];
/// Marks of unfinished work, in two halves so that this file does not find itself.
const UNFINISHED: &[(&str, &str)] = &[("TO", "DO"), ("FIX", "ME"), ("XX", "X")];
/// Files whose text is not ours.
const FOREIGN: &[&str] = &["LICENSE", "Cargo.lock"];

/// All files git knows or would add, as paths from the root.
pub fn tracked(root: &Path) -> anyhow::Result<Vec<String>> {
    let listed = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(root).args(listed).output().context("run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("file names are not UTF-8")?;
    let there = |name: &&str| root.join(name).is_file();
    Ok(names.lines().filter(there).map(str::to_owned).collect())
}

/// Findings over all files.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    for path in tracked {
        let bytes = std::fs::read(root.join(path)).with_context(|| format!("read {path}"))?;
        found.extend(judge_name(path));
        let Ok(text) = String::from_utf8(bytes) else { continue };
        if !FOREIGN.contains(&path.as_str()) {
            found.extend(judge_marks(path, &text));
        }
        if path.ends_with(".rs") {
            found.extend(judge_header(path, &text));
            found.extend(judge_size(path, &text));
        }
    }
    for (path, _) in LONGER {
        if !tracked.iter().any(|known| known == path) {
            found.push(format!("{path}: is gone, remove it from the list in xtask/files.rs"));
        }
    }
    Ok(found)
}

fn judge_name(path: &str) -> Option<String> {
    let says_nothing = |part: &str| {
        let stem = part.split('.').next().unwrap_or(part);
        EMPTY_NAMES.contains(&stem)
    };
    let part = path.split('/').find(|part| says_nothing(part))?;
    Some(format!("{path}: the name {part:?} says nothing; name the file after what it owns"))
}

fn judge_marks(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (head, tail) in UNFINISHED {
            let mark = format!("{head}{tail}");
            let words = line.split(|c: char| !c.is_ascii_alphanumeric());
            if words.into_iter().any(|word| word == mark) {
                let number = number + 1;
                found.push(format!("{path}:{number}: {mark}: finish it, or open an issue"));
            }
        }
    }
    found
}

fn judge_header(path: &str, text: &str) -> Option<String> {
    let first = text.lines().next().unwrap_or_default();
    let says = first.strip_prefix("//! ").is_some_and(|sentence| sentence.len() >= 10);
    (!says).then(|| {
        format!("{path}:1: begin with `//! ` and one sentence: what the file owns, what it leaves")
    })
}

fn judge_size(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    if is_test_file(path) {
        return found;
    }
    let total = text.lines().count();
    let code = code_lines(text);
    let allowed = LONGER.iter().find(|(known, _)| *known == path).map(|(_, lines)| *lines);
    match allowed {
        None if code > LINES_MAX => found.push(format!(
            "{path}: {code} lines without tests, {LINES_MAX} is the most; split it by noun"
        )),
        Some(most) if code > most => found.push(format!(
            "{path}: grew to {code} lines, {most} is what the list in xtask/files.rs allows"
        )),
        Some(_) if code <= LINES_MAX => {
            found.push(format!("{path}: fits now, remove it from the list in xtask/files.rs"))
        }
        _ => {}
    }
    let tests = total - code;
    if tests > INLINE_TEST_LINES_MAX {
        found.push(format!(
            "{path}: {tests} lines of inline tests, {INLINE_TEST_LINES_MAX} is the most; move them \
             to a `_tests.rs` beside it"
        ));
    }
    found
}

fn is_test_file(path: &str) -> bool {
    path.ends_with("_tests.rs") || path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Lines before the inline test module, or all.
fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let opens_tests = |pair: &[&str]| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{')
    };
    lines.windows(2).position(opens_tests).unwrap_or(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_header_is_found() {
        assert!(judge_header("a.rs", "//! Owns the close rule.\n").is_none());
        assert!(judge_header("a.rs", "use std::fs;\n").is_some());
        assert!(judge_header("a.rs", "//!\n").is_some());
        assert!(judge_header("a.rs", "").is_some());
    }

    #[test]
    fn size_counts_the_lines_before_the_inline_tests() {
        let tests = "#[cfg(test)]\nmod tests {\n}\n";
        let fits = format!("{}{tests}", "x\n".repeat(LINES_MAX));
        assert!(judge_size("a.rs", &fits).is_empty());
        let long = format!("{}{tests}", "x\n".repeat(LINES_MAX + 1));
        assert_eq!(judge_size("a.rs", &long).len(), 1);
        assert!(judge_size("a_tests.rs", &long).is_empty());
        assert!(judge_size("crates/a/tests/b.rs", &long).is_empty());
        let wordy = format!("x\n{}{}", tests, "x\n".repeat(INLINE_TEST_LINES_MAX));
        assert_eq!(judge_size("a.rs", &wordy).len(), 1);
    }

    #[test]
    fn names_and_marks_are_found() {
        assert!(judge_name("crates/core/src/utils.rs").is_some());
        assert!(judge_name("crates/core/src/helpers/mod.rs").is_some());
        assert!(judge_name("crates/core/src/queue.rs").is_none());
        let mark = ["TO", "DO"].concat();
        assert_eq!(judge_marks("a.rs", &format!("ok\n// {mark}: later\n")).len(), 1);
        assert!(judge_marks("a.rs", "METHODOLOGY\n").is_empty());
    }
}
