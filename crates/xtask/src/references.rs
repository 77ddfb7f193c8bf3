//! The pages of `docs/reference` that are made from the code.
//!
//! Owns: which pages there are, and the page of settings. Leaves to others: the tables it is made of
//! (`queen_core::setting`), the other pages (`manifest`, `metrics`).
//!
//! `cargo xtask references` writes the pages; `cargo xtask all` fails when one is not what the code
//! says.

mod manifest;
mod metrics;

use std::fmt::Write;
use std::path::Path;

use anyhow::Context;
use queen_core::setting::{Default, Kind, Setting, access, broker, machine, sink};

/// Each page and its text.
fn pages() -> [(&'static str, String); 3] {
    [
        ("docs/reference/settings.md", settings()),
        ("docs/reference/metrics.md", metrics::page()),
        ("docs/reference/manifest.md", manifest::page()),
    ]
}

/// Writes every page.
pub fn write(root: &Path) -> anyhow::Result<Vec<String>> {
    for (path, text) in pages() {
        let file = root.join(path);
        let folder = file.parent().context("a page has a folder")?;
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        std::fs::write(&file, text).with_context(|| format!("write {path}"))?;
    }
    Ok(Vec::new())
}

/// Findings: the pages that are not what the code says.
pub fn check(root: &Path) -> Vec<String> {
    let is_current = |path: &str, text: &str| {
        std::fs::read_to_string(root.join(path)).is_ok_and(|found| found == text)
    };
    let pages = pages();
    let stale = pages.iter().filter(|(path, text)| !is_current(path, text));
    let finding = |path| format!("{path}: not what the code says; run cargo xtask references");
    stale.map(|(path, _)| finding(path)).collect()
}

const INTRODUCTION: &str = "\
# Settings

<!-- Made from the code by `cargo xtask references`. -->

All settings are variables of the environment, read once at the start. A value is trimmed; an empty one counts as unset.
Words are taken in any case, synonyms stand in brackets. A switch is `true`, `1`, `yes`, `on` or `false`, `0`, `no`, `off`.
A bad value stops the start; all bad values are named at once, each with what is allowed.
";

const SINK: &str = "
Nothing of these is looked at unless `QUEEN_S3_EMBEDDED` is true. A name that is not here is refused with the nearest that
is. `queen s3 check` tries the bucket with the same variables. The secrets are shown nowhere.
";

fn settings() -> String {
    let mut page = INTRODUCTION.to_owned();
    section(&mut page, "The broker", "", broker::ALL);
    section(&mut page, "Who may call", access::ABOUT, access::ALL);
    section(&mut page, "The S3 sink", SINK, sink::ALL);
    section(&mut page, "What the sink takes from the machine", machine::ABOUT, machine::ALL);
    page.push_str("\n## Names of other releases\n\n| variable | here |\n| --- | --- |\n");
    for (name, why) in sink::REFUSED {
        let _ = writeln!(page, "| `{name}` | refused: {why} |");
    }
    for (name, why) in sink::WITHOUT_EFFECT {
        let _ = writeln!(page, "| `{name}` | no effect: {why} |");
    }
    page
}

fn section(page: &mut String, title: &str, about: &str, settings: &[&Setting]) {
    let _ = write!(page, "\n## {title}\n{about}\n");
    page.push_str("| variable | default | allowed | decides | since |\n");
    page.push_str("| --- | --- | --- | --- | --- |\n");
    for setting in settings {
        let Setting { name, what, since, .. } = setting;
        let (default, allowed) = (default(setting), allowed(setting));
        let _ = writeln!(page, "| `{name}` | {default} | {allowed} | {what} | {since} |");
    }
}

fn default(setting: &Setting) -> String {
    match setting.default {
        Default::Value(value) => format!("`{value}`"),
        Default::Needed => format!("needed, for example `{}`", setting.example),
        Default::Words(words) => words.to_owned(),
    }
}

fn allowed(setting: &Setting) -> String {
    let with_example = |allowed: &str| match setting.default {
        Default::Words(_) if !setting.secret => {
            format!("{allowed}, for example `{}`", setting.example)
        }
        _ => allowed.to_owned(),
    };
    match setting.kind {
        Kind::Switch => "a switch".to_owned(),
        Kind::Number { low, high, unit } => format!("{low} to {high} {unit}").trim_end().to_owned(),
        Kind::Text(allowed) => with_example(allowed),
        Kind::Word(groups) => {
            let group = |words: &&[&str]| match words {
                [] => String::new(),
                [word] => format!("`{word}`"),
                [word, synonyms @ ..] => format!("`{word}` (`{}`)", synonyms.join("`, `")),
            };
            groups.iter().map(group).collect::<Vec<_>>().join(", ")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_not_what_the_code_says_is_found() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(check(root.path()).len(), pages().len(), "a missing page is found");
        write(root.path()).unwrap();
        assert_eq!(check(root.path()), Vec::<String>::new());
        let page = root.path().join("docs/reference/settings.md");
        let text = std::fs::read_to_string(&page).unwrap();
        std::fs::write(&page, text.replace("6632", "6633")).unwrap();
        let found = check(root.path());
        assert!(found[0].starts_with("docs/reference/settings.md: not what the code says"));
    }

    #[test]
    fn the_page_says_default_range_words_and_synonyms() {
        let page = settings();
        for line in [
            "| `PORT` | `6632` | 0 to 65535 | the port of HTTP; 0 takes any free one | 0.1.0 |",
            "| `QUEEN_S3_COMPRESSION` | `zstd` | `zstd` (`zst`), `gzip` (`gz`), `none` (`off`) |",
            "| `QUEEN_S3_BUCKET` | needed, for example `lake` |",
            "| `QUEEN_S3_LISTEN` | no effect: ",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
