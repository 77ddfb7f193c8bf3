//! The page of the sink's documents in the bucket. Their fields are those of `queen_core::sink`.

use queen_core::sink::{
    Field, HourFile, LostRange, Manifest, ObjectEntry, PartitionRange, PartitionsFile,
};
use std::fmt::Write;

const INTRODUCTION: &str = "\
# Manifests and hour files

<!-- Made from the code by `cargo xtask references`. -->

What the sink writes below `<prefix>/_queen/tenant=<tenant>/queue=<queue>/`, beside the data. Each is JSON on one line with
its fields in this order. Fields may be added; a reader ignores those it does not know. A field that says *may be absent* is
left out when there is nothing to say. Stamps are microseconds since 1970 UTC, hashes are lower hex.

[The guide](../guide/sink.md#is-it-all-there) shows how to check a lake with them.
";

const SECTIONS: &[(&str, &str, &[Field])] = &[
    (
        "Manifest",
        "`windows/<k>.json`, k in ten digits: what window k holds. The window is committed when it is there. It is a function \
         of the window and the log: whoever writes it, and however often, writes the same bytes.",
        Manifest::FIELDS,
    ),
    ("In `objects`", "One data object.", ObjectEntry::FIELDS),
    ("In `ranges`", "The records of one partition in the window.", PartitionRange::FIELDS),
    ("In `lost`", "Offsets that no object will ever hold, from first to last.", LostRange::FIELDS),
    (
        "Ranges of many partitions",
        "`windows/<k>.partitions.json`: what would be too long for the manifest.",
        PartitionsFile::FIELDS,
    ),
    (
        "Hour file",
        "`hours/YYYY-MM-DDTHH.json`: written once the hour is over and its last window is committed. Nothing will be added to \
         the hour. An hour without records has none.",
        HourFile::FIELDS,
    ),
];

/// The page.
pub fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    for (title, about, fields) in SECTIONS {
        let _ = write!(page, "\n## {title}\n\n{about}\n\n");
        page.push_str("| field | type | says |\n| --- | --- | --- |\n");
        for field in *fields {
            let says = field.says.trim().trim_end_matches('.');
            let _ = writeln!(page, "| `{}` | {} | {says} |", field.camel_name(), kind(field.kind));
        }
    }
    page
}

/// The type in the words of JSON.
fn kind(rust: &str) -> String {
    let rust: String = rust.chars().filter(|c| !c.is_whitespace()).collect();
    let inner = |of: &str| rust.strip_prefix(of).and_then(|rest| rest.strip_suffix('>'));
    if let Some(inner) = inner("Option<") {
        return format!("{}, may be absent", kind(inner));
    }
    if let Some(inner) = inner("Vec<") {
        return format!("list of {}s", kind(inner));
    }
    match &*rust {
        "u32" | "u64" => "number",
        "bool" => "true or false",
        "String" | "LossReason" => "text",
        _ => "object",
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_says_name_type_and_meaning() {
        let page = super::page();
        for line in [
            "| `tStart` | number | First stamp that may be in the window, µs |",
            "| `minTs` | number, may be absent | Stamp of the first record, µs |",
            "| `objects` | list of objects | The data objects, in order of their keys |",
        ] {
            assert!(page.contains(line), "{line} is not in {page}");
        }
    }
}
