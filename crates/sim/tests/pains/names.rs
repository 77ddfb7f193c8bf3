//! Names: every queue and partition a user can think of, as keys of a bucket.

use crate::place::{Place, item};
use queen_sim::double::{Double, Strict};
use queen_sim::lake::Layout;
use std::collections::BTreeSet;

/// Names that broke one sink or another.
fn corpus() -> Vec<String> {
    let mut names: Vec<String> = [
        "a/b",
        "a",
        "..",
        ".",
        "...",
        "a=b",
        "a b",
        "a+b",
        "a%2Fb",
        "a%b",
        "a?b",
        "a#b",
        "a&b",
        "a:b",
        "a;b",
        "a,b",
        "a@b",
        "a~b",
        "a'b",
        "a\"b",
        "a*b",
        "a[b]",
        "a{b}",
        "a|b",
        "a^b",
        "a`b",
        "a$b",
        "a<b>",
        "a\\b",
        "a\nb",
        "a\rb",
        "a\tb",
        "é",
        "e\u{301}",
        "日本",
        "\u{1f41d}",
        "ü".repeat(9).as_str(),
        "__HIVE_DEFAULT_PARTITION__",
        "_queen",
        "_x",
        ".x",
        "/",
        "//",
        "a/",
        "/a",
        "a//b",
        "-",
        "123",
        "007",
        "t1",
        "true",
        "nan",
        "NULL",
        "0x10",
        "12:30",
        "1e5",
        " ",
        "a ",
        " a",
        "queue=a",
        "dt=2026-10-24",
        "\u{202e}abc",
        "\u{7f}",
        "%",
        "%%",
        "%zz",
        "con",
        "a.json",
        "windows",
    ]
    .map(str::to_owned)
    .into();
    // Longer than a file's name may be, and than a key may be; alike but for the end.
    names.extend(["x".repeat(255), "日".repeat(136), format!("{}本", "日".repeat(135))]);
    names.push("/".repeat(410));
    names
}

/// The strictest bucket: keys of 1,024 bytes, names of 255, as servers have that keep files.
async fn strict() -> Double {
    let double = Double::start().await.unwrap();
    double.strict(|strict| {
        *strict = Strict { name_bytes_max: Some(255), ..Strict::default() };
    });
    double
}

/// What must hold of all keys together.
fn keys_are_sound(place: &Place, prefix: &str) {
    let keys: BTreeSet<String> = place.double.objects().into_keys().collect();
    for key in &keys {
        let sound = |c: char| c.is_ascii_alphanumeric() || "/=._-%~".contains(c);
        assert!(key.chars().all(sound), "{key}");
        let inside = key.strip_prefix(prefix).unwrap_or_else(|| panic!("{key} escaped"));
        let empty = |part: &str| matches!(part, "" | "." | "..");
        assert!(!inside.trim_start_matches('/').split('/').any(empty), "{key}");
        let folder = format!("{key}/");
        assert!(!keys.iter().any(|other| other.starts_with(&folder)), "{key} is a folder too");
    }
}

/// Rows 39, 40: distinct folders, readable, signed right (the double checks every signature).
#[tokio::test]
async fn every_queue_has_a_folder_of_its_own() {
    let mut place = Place::on(strict().await, &[]).await;
    let names = corpus();
    let items = names.iter().enumerate().map(|(n, name)| item(name, "p", &n.to_string()));
    place.push_items(items.collect()).await;
    place.whole().await;
    keys_are_sound(&place, "queen/");
    let folders: BTreeSet<String> = place
        .data()
        .iter()
        .filter_map(|key| key.split('/').find(|part| part.starts_with("queue=")).map(str::to_owned))
        .collect();
    assert_eq!(folders.len(), names.len());
    place.stop().await;
}

/// Rows 39, 40: the same names as partitions, one object each.
#[tokio::test]
async fn every_partition_has_an_object_of_its_own() {
    let mut place = Place::on(strict().await, &[("QUEEN_S3_LAYOUT", "per-partition")]).await;
    let names = corpus();
    let items = names.iter().enumerate().map(|(n, name)| item("o", name, &n.to_string()));
    place.push_items(items.collect()).await;
    // Nothing is wedged by it: the queue goes on.
    place.whole().await;
    place.push(&[("p", "1")]).await;
    place.whole().await;
    keys_are_sound(&place, "queen/");
    assert_eq!(place.data().len(), names.len() + 1);
    place.stop().await;
}

/// Row 40: prefixes with slashes around them, and the longest one.
#[tokio::test]
async fn prefixes_make_no_empty_folder() {
    let long = format!("deep/{}", "p".repeat(251));
    for (setting, prefix) in [("/x/y/", "x/y"), ("a=b/c d", "a=b/c d"), (long.as_str(), &long)] {
        let double = Double::start().await.unwrap();
        let mut place = Place::on(double, &[("QUEEN_S3_PREFIX", setting)]).await;
        let longest = "日".repeat(68);
        place.push_items(vec![item(&longest, &longest, "1"), item("a", "p", "2")]).await;
        place.whole_as(Layout { prefix, ..Layout::default() }).await;
        place.stop().await;
    }
    let double = Double::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    for refused in ["/x//y/", "..", "a/./b", "a\nb"] {
        let pairs = queen_sim::process::sink_settings(double.endpoint(), "*");
        let setup = queen_sim::process::Setup::new(dir.path()).with(pairs);
        let mut broker = setup.with([("QUEEN_S3_PREFIX", refused)]).spawn().unwrap();
        let status = broker.end(std::time::Duration::from_secs(30)).await.unwrap();
        assert!(!status.success() && broker.output().contains("QUEEN_S3_PREFIX"), "{refused}");
    }
}
