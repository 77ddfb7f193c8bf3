//! The page of pains: each row names tests that are there, or says why it needs none.
//!
//! Owns: which rows `docs/design/broker-pains.md` must have, reading them, finding their tests in the
//! sources. Leaves to others: whether a test holds off what its row says.

use std::path::Path;

use anyhow::Context;

const PAGE: &str = "docs/design/broker-pains.md";
/// Numbers of the rows; they have gaps. A row may be worded anew, and none goes.
const ROWS: &[u32] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 14, 15, 16, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 30,
    31, 32, 33, 34, 35, 36, 37, 38, 40, 41, 42, 43, 46, 47, 48, 50, 51, 52, 53, 56, 57,
];

/// Findings on the page.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let page = std::fs::read_to_string(root.join(PAGE)).with_context(|| format!("read {PAGE}"))?;
    let source = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    Ok(judge(&page, ROWS, tracked, &source))
}

/// Findings on a page that must have these rows; `source` gives the text of a file.
fn judge(
    page: &str,
    rows: &[u32],
    tracked: &[String],
    source: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (mut found, mut seen) = (Vec::new(), Vec::new());
    for (at, line) in page.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, numbers, pain, held_off, _] = cells[..] else { continue };
        let numbers: Result<Vec<u32>, _> = numbers.split(", ").map(str::parse).collect();
        let Ok(numbers) = numbers else { continue };
        let mut say = |what: String| found.push(format!("{PAGE}:{}: {what}", at + 1));
        for number in &numbers {
            if !rows.contains(number) || seen.contains(number) {
                say(format!("row {number} is there twice, or not in the list of xtask/pains.rs"));
            }
        }
        seen.extend(numbers);
        if pain.is_empty() || held_off.is_empty() {
            say("say what hurt, and name a test or why it needs none".to_owned());
        }
        judge_names(held_off, tracked, source).into_iter().for_each(say);
    }
    let missing = rows.iter().filter(|row| !seen.contains(row));
    found.extend(missing.map(|row| format!("{PAGE}: row {row} is missing")));
    found
}

/// What is wrong with the files, folders and tests that a row names. A test lies in the file named
/// last before it.
fn judge_names(
    held_off: &str,
    tracked: &[String],
    source: &dyn Fn(&str) -> Option<String>,
) -> Vec<String> {
    let (mut found, mut file) = (Vec::new(), None);
    for name in held_off.split('`').skip(1).step_by(2) {
        let below = format!("crates/{name}");
        let in_words = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if name.ends_with(".rs") {
            if !tracked.contains(&below) {
                found.push(format!("there is no file {below}"));
            }
            file = Some(below);
        } else if name.contains('/') && !name.starts_with('/') {
            if !tracked.iter().any(|path| path.starts_with(&format!("{below}/"))) {
                found.push(format!("there is no folder {below}"));
            }
        } else if name.contains('_') && name.chars().all(in_words) {
            let text = file.as_deref().and_then(source).unwrap_or_default();
            if !has_test(&text, name) {
                let place = file.as_deref().unwrap_or("a file, which must be named before it");
                found.push(format!("there is no test {name} in {place}"));
            }
        }
    }
    found
}

/// Whether a source has a test of this name that is run.
fn has_test(text: &str, name: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        let after = line.strip_prefix("fn ").and_then(|line| line.strip_prefix(name));
        after.is_some_and(|after| after.starts_with('('))
    };
    (0..lines.len()).filter(|at| begins(lines[*at])).any(|at| {
        let above = lines[..at].iter().rev();
        let above: Vec<&&str> =
            above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).collect();
        let with = |start: &str| above.iter().any(|line| line.starts_with(start));
        (with("#[test]") || with("#[tokio::test")) && !with("#[ignore")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "\
        #[test]\nfn what_was_sent_is_there() {}\n\
        #[tokio::test(start_paused = true)]\n// why\nasync fn and_comes_once() {}\n\
        #[test]\n#[ignore = \"slow\"]\nfn nobody_runs_this() {}\n\
        fn makes_a_queue() {}\n";

    fn findings(page: &str) -> Vec<String> {
        let tracked = ["crates/a/src/lib.rs".to_owned(), "crates/a/tests/e2e/main.rs".to_owned()];
        judge(page, &[1, 2, 4], &tracked, &|_| Some(SOURCE.to_owned()))
    }

    /// A page with this as its first row.
    fn page(first: &str) -> String {
        format!(
            "# Pains\n\n| | pain | held off by |\n| --- | --- | --- |\n{first}\n\
             | 2, 4 | gone | there is nothing to go, `/health` says so; `a/tests/e2e` |\n"
        )
    }

    #[test]
    fn a_row_that_names_its_tests_or_says_why_it_needs_none_is_in_order() {
        let row = "| 1 | lost | `a/src/lib.rs`: `what_was_sent_is_there`, `and_comes_once` |";
        assert_eq!(findings(&page(row)), [""; 0]);
    }

    #[test]
    fn a_test_or_file_that_is_not_there_is_found() {
        for (row, want) in [
            ("| 1 | lost | `a/src/lib.rs`: `what_was_lost_is_there` |", "no test what_was_lost_is"),
            ("| 1 | lost | `a/src/lib.rs`: `what_was_sent_is` |", "no test what_was_sent_is in"),
            ("| 1 | lost | `a/src/lib.rs`: `nobody_runs_this` |", "no test nobody_runs_this"),
            ("| 1 | lost | `a/src/lib.rs`: `makes_a_queue` |", "no test makes_a_queue"),
            ("| 1 | lost | `and_comes_once` |", "a file, which must be named before it"),
            ("| 1 | lost | `a/src/main.rs`: reads nothing |", "no file crates/a/src/main.rs"),
            ("| 1 | lost | all of `a/tests/sink` |", "no folder crates/a/tests/sink"),
        ] {
            let found = findings(&page(row));
            assert_eq!(found.len(), 1, "{row}: {found:?}");
            assert!(found[0].contains(want) && found[0].contains(".md:5:"), "{row}: {found:?}");
        }
    }

    #[test]
    fn a_row_that_is_gone_empty_twice_or_unknown_is_found() {
        let row = "| 1 | lost | nothing can be |";
        assert!(findings("no table").iter().any(|found| found.contains("row 4 is missing")));
        assert!(findings(&page("| 1 | lost | |"))[0].contains("name a test"));
        assert!(findings(&page(&format!("{row}\n{row}")))[0].contains("row 1 is there twice"));
        assert!(findings(&page(&format!("{row}\n| 3 | x | y |")))[0].contains("row 3"));
    }
}
