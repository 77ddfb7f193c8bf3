//! Names and payloads that readers of lakes are known to trip over.
//!
//! Owns: the lists. Leaves to others: pushing them, and what each reader makes of them.

use queen_sim::corpus::{LIKE_NOTHING, NUMBERS, arrays, objects};
use queen_sim::process::Item;

/// Queue that the filters ask about.
pub const ORDERS: &str = "orders";

/// Queue names, which become folders.
pub const NAMES: &[&str] = &[
    "a/b",
    "..",
    ".",
    "a=b",
    "a b",
    "a+b",
    "a%2Fb",
    "a?b",
    "a#b",
    "a&b",
    "a:b",
    "é",
    "e\u{301}",
    "日本",
    "\u{1f41d}",
    "\\",
    "a\nb",
    "a\"b",
    "a'b",
    "*",
    "[a]",
    "{a,b}",
    "-",
    "_x",
    ".x",
    "a\u{1}b",
    "__HIVE_DEFAULT_PARTITION__",
    "",
    "NULL",
    "null",
    "Null",
    "007",
    "09",
    "123",
    "t1",
    "f2",
    "n1",
    "true",
    "nan",
    "inf",
    "1.0",
    "1e5",
    "0x10",
    "12:30",
    "2026-10-24",
    "queue=x",
    "/",
    "a//b",
    "a/",
    "_queen",
];

/// Payloads that a row must hold as they are, or restorably.
pub fn payloads() -> Vec<String> {
    let mut all: Vec<String> = [
        // Keys.
        r#"{"a":1,"a":2}"#,
        r#"{"Image":1,"image":2}"#,
        r#"{"a.b":1,"a":{"b":2}}"#,
        r#"{"":1}"#,
        // Halves of surrogate pairs, a whole one, and a NUL.
        r#""\ud800""#,
        r#""\udc00\ud800""#,
        r#"{"a":["\ud83d"]}"#,
        r#""\ud83d\ude00""#,
        r#""a\u0000b""#,
        // What some take for the end of a line.
        "\"\u{2028} \u{2029} \u{85} \u{a0}\u{feff}\"",
        "\"\u{7f}\"",
        // Many lines.
        "{\r\n  \"a\": [\n    1,\r\n    \"x\\ny\"\n  ]\r\n}",
        // Types that change from row to row.
        r#"{"a":1}"#,
        r#"{"a":"x"}"#,
        r#"{"a":{"b":1.5}}"#,
        r#"[1,"x",null,{"a":1}]"#,
        r#""x""#,
        // Escapes, and text that looks like the line around it.
        r#""\"quoted\" \\ \n tab\t \/ \u00e9""#,
        "\"é 日本 \u{1f41d}\"",
        r#"{"payload":"x","partition":"y","payloadBase64":"eA=="}"#,
        r#""a\",\"payload\":1""#,
        r#"{"payload":null,"payloadBase64":"eA=="}"#,
        r#"{"queen.payloadBase64":"eA=="}"#,
    ]
    .map(str::to_owned)
    .to_vec();
    all.extend(LIKE_NOTHING.map(str::to_owned));
    all.extend(NUMBERS.map(str::to_owned));
    all.extend(NUMBERS.map(|number| format!("{{\"a\":{number}}}")));
    all.extend([126, 127, 128, 5000].map(arrays));
    all.extend([24, 127].map(objects));
    all
}

fn item(queue: &str, partition: &str, id: Option<&str>, payload: impl Into<String>) -> Item {
    Item {
        queue: queue.to_owned(),
        partition: partition.to_owned(),
        transaction_id: id.map(str::to_owned),
        payload: payload.into(),
    }
}

/// Everything that lies in every lake, one push each.
pub fn pushes() -> Vec<Vec<Item>> {
    let named = |name: &&str| {
        // Also as the name of a partition and as a transaction id, which stand inside the file.
        let payload = serde_json::json!({ "name": name }).to_string();
        let id = Some(*name).filter(|name| !name.is_empty());
        [item(name, "p", None, payload.clone()), item("partitions", name, id, payload)]
    };
    let payloads = payloads().into_iter().map(|payload| item("payloads", "p", None, payload));
    let order = |partition, n: u32| {
        item(
            ORDERS,
            partition,
            None,
            format!("{{\"order\":{n},\"status\":\"new\",\"total\":42.00}}"),
        )
    };
    vec![
        NAMES.iter().flat_map(named).collect(),
        payloads.collect(),
        vec![item("large", "p", None, format!("\"{}\"", "x".repeat(17 << 20)))],
        vec![item("large", "p", None, "{}"), item("partitions", "\",\"payload\":", None, "1")],
        vec![order("cust-1", 1), order("cust-2", 2)],
        vec![order("cust-1", 3), order("cust-3", 4), order("cust-1", 5)],
        vec![order("cust-2", 6)],
    ]
}
