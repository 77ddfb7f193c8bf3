//! The checker on a lake made by hand, whole and damaged in every way it must see.

use super::damage::Damage;
use super::*;
use crate::chance::Chance;
use queen_core::Stamp;

const HOUR: u64 = 3_600_000_000;
const START: u64 = 1_792_836_000_000_000;

/// Three windows of two queues, the third in the next hour, written straight from the format.
fn good_lake() -> (Files, Expected) {
    let mut files = Files::default();
    let mut expected = Expected::new();
    for queue in ["orders", "a/b"] {
        let mut prev = None;
        let mut end = START;
        for k in 1..=3u64 {
            let start = if k == 3 { START + HOUR } else { end };
            end = start + 10_000_000;
            let mut lines = Vec::new();
            for partition in ["cust-1", "cust-2", "Z"] {
                for n in 0..4u64 {
                    let offset = (k - 1) * 4 + n;
                    let stamp = Stamp(start + n * 1000 + 17).to_iso();
                    let payload = format!("{{\"n\": {n},\n\"p\":\"{partition}\"}}");
                    let transaction_id = format!("{queue}-{partition}-{offset}");
                    lines.push(format!(
                        "{{\"partition\":\"{partition}\",\"offset\":{offset},\"transactionId\":\
                         \"{transaction_id}\",\"ts\":\"{stamp}\",\"payload\":{}}}\n",
                        payload.replace('\n', " ")
                    ));
                    expected.accepted.push(Accepted {
                        queue: queue.to_owned(),
                        partition: partition.to_owned(),
                        offset,
                        transaction_id,
                        payload: payload.into_bytes(),
                    });
                }
            }
            lines.sort_by_key(|line| line[14..].split('"').next().unwrap_or_default().to_owned());
            let object = zstd::stream::encode_all(lines.concat().as_bytes(), 3).unwrap();
            prev = Some(put_window(&mut files, queue, k, (start, end), object, 12, prev));
        }
    }
    (files, expected)
}

fn put_window(
    files: &mut Files,
    queue: &str,
    k: u64,
    (start, end): (u64, u64),
    object: Vec<u8>,
    records: u64,
    prev: Option<String>,
) -> String {
    let partitions: &[&str] = if records == 1 { &["p"] } else { &["Z", "cust-1", "cust-2"] };
    let tenant = queen_core::TenantId::DEFAULT;
    let queue_folder = queue.replace('/', "%2F");
    let day = &Stamp(start).to_iso()[..10];
    let hour = &Stamp(start).to_iso()[11..13];
    let key = format!(
        "queen/tenant={tenant}/queue={queue_folder}/dt={day}/hour={hour}/w-{k:010}-{start:016}-{end:016}.jsonl.zst"
    );
    let manifest = serde_json::json!({
        "tenant": tenant.to_string(), "queue": queue, "k": k, "tStart": start, "tEnd": end,
        "format": "jsonl", "compression": "zstd", "layout": "merged",
        "objects": [{"key": key, "bytes": object.len(), "records": records, "sha256": sha256(&object)}],
        "records": records, "bytes": object.len(), "partitions": partitions.len(),
        "ranges": partitions.iter().map(|p| serde_json::json!({"partition": p,
            "firstOffset": (k - 1) * 4, "lastOffset": (k - 1) * 4 + records / partitions.len() as u64 - 1,
            "records": records / partitions.len() as u64})).collect::<Vec<_>>(),
        "minTs": start + 17, "maxTs": start + if records == 1 { 17 } else { 3017 }, "lost": [], "prev": prev,
    });
    let bytes = serde_json::to_vec(&manifest).unwrap();
    let hash = sha256(&bytes);
    files.0.insert(key, object);
    let manifest_key =
        format!("queen/_queen/tenant={tenant}/queue={queue_folder}/windows/{k:010}.json");
    files.0.insert(manifest_key, bytes);
    hash
}

fn found(files: &Files, expected: &Expected) -> Report {
    check(files, Layout::default(), expected)
}

#[test]
fn a_good_lake_has_no_fault() {
    let (files, expected) = good_lake();
    let report = found(&files, &expected);
    assert!(report.faults.is_empty(), "{}", report.text());
    assert_eq!((report.windows, report.records), (6, 72));
}

#[test]
fn each_kind_of_damage_is_found_under_its_own_name() {
    let (files, expected) = good_lake();
    for damage in Damage::ALL {
        for seed in 0..20 {
            let damaged = damage.done_to(&files, "queen", &mut Chance::new(seed)).unwrap();
            assert_ne!(damaged, files, "{damage:?} seed {seed} did nothing");
            let report = found(&damaged, &expected);
            assert!(report.has(damage.found_as()), "{damage:?} seed {seed}: {}", report.text());
        }
    }
}

/// The same lake as Parquet, with footers that promise nothing.
fn parquet_lake() -> (Files, Expected) {
    let (files, expected) = good_lake();
    let mut out = Files::default();
    let mut before: Option<(String, String)> = None;
    for (key, bytes) in &files.0 {
        if key.ends_with(".jsonl.zst") {
            let text = zstd::stream::decode_all(&bytes[..]).unwrap();
            let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
            let mut rows: Vec<line::Line> = lines.map(|l| line::parse(l).unwrap()).collect();
            for row in &mut rows {
                // Nothing becomes a space here.
                let text = String::from_utf8(row.payload.clone()).unwrap();
                row.payload = text.replace(", \"p\"", ",\n\"p\"").into_bytes();
            }
            let key = key.replace(".jsonl.zst", ".parquet");
            out.0.insert(key, parquet::write(&rows).unwrap());
        }
    }
    for (key, bytes) in &files.0 {
        let Ok(mut manifest) = serde_json::from_slice::<serde_json::Value>(bytes) else { continue };
        let name =
            manifest["objects"][0]["key"].as_str().unwrap().replace(".jsonl.zst", ".parquet");
        let object = &out.0[&name];
        manifest["format"] = "parquet".into();
        manifest["objects"][0]["bytes"] = object.len().into();
        manifest["bytes"] = object.len().into();
        manifest["objects"][0]["sha256"] = sha256(object).into();
        manifest["objects"][0]["key"] = name.into();
        let folder = key.rsplit_once('/').unwrap().0.to_owned();
        if let Some((_, hash)) = before.filter(|(last, _)| *last == folder) {
            manifest["prev"] = hash.into();
        }
        let bytes = serde_json::to_vec(&manifest).unwrap();
        before = Some((folder, sha256(&bytes)));
        out.0.insert(key.clone(), bytes);
    }
    (out, expected)
}

#[test]
fn each_kind_of_damage_is_found_in_parquet_too() {
    let (files, expected) = parquet_lake();
    let report = found(&files, &expected);
    let other = report.faults.iter().find(|fault| fault.kind != Kind::FooterWrong);
    assert!(other.is_none() && report.has(Kind::FooterWrong), "{}", report.text());
    assert_eq!((report.windows, report.records), (6, 72));
    for damage in Damage::ALL {
        for seed in 0..20 {
            let damaged = damage.done_to(&files, "queen", &mut Chance::new(seed)).unwrap();
            let report = found(&damaged, &expected);
            assert!(report.has(damage.found_as()), "{damage:?} seed {seed}: {}", report.text());
        }
    }
}

#[test]
fn a_record_that_nobody_pushed_is_found_and_an_unanswered_one_is_not() {
    let (files, mut expected) = good_lake();
    let taken = expected.accepted.remove(5);
    assert!(found(&files, &expected).has(Kind::RecordUnknown));
    let maybe = Unanswered {
        queue: taken.queue.clone(),
        partition: taken.partition.clone(),
        transaction_id: taken.transaction_id.clone(),
        payload: taken.payload.clone(),
    };
    expected.unanswered.push(maybe.clone());
    assert!(found(&files, &expected).faults.is_empty());
    expected.unanswered[0].payload = b"{}".to_vec();
    assert!(found(&files, &expected).has(Kind::PayloadDiffers));
    expected.unanswered = vec![Unanswered { transaction_id: "never".to_owned(), ..maybe }];
    assert!(found(&files, &expected).has(Kind::RecordUnknown));
}

#[test]
fn offsets_that_a_manifest_lists_as_lost_are_no_gap() {
    let (mut files, expected) = good_lake();
    files = Damage::LineRemoved.done_to(&files, "queen", &mut Chance::new(3)).unwrap();
    let report = found(&files, &expected);
    let lost = report.faults.iter().find(|f| f.kind == Kind::RecordLost).unwrap().at.clone();
    let parts: Vec<&str> = lost.split(' ').collect();
    let (queue, partition) = (parts[0].trim_matches('"'), parts[1].trim_matches('"'));
    let offset: u64 = parts[3].parse().unwrap();
    let folder = format!("queue={}/windows/0000000003.json", queue.replace('/', "%2F"));
    let (_, bytes) = files.0.iter_mut().find(|(key, _)| key.ends_with(&folder)).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    manifest["lost"] = serde_json::json!([{"partition": partition, "from": offset, "to": offset, "reason": "retention"}]);
    *bytes = serde_json::to_vec(&manifest).unwrap();
    let report = found(&files, &expected);
    assert!(!report.has(Kind::RecordLost) && !report.has(Kind::OffsetGap), "{}", report.text());
}

/// Lists a range as lost in window `k` of `orders`.
fn list(files: &mut Files, k: u64, (partition, incarnation): (&str, u64), from: u64, to: u64) {
    let end = format!("queue=orders/windows/{k:010}.json");
    let (_, bytes) = files.0.iter_mut().find(|(key, _)| key.ends_with(&end)).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
    manifest["lost"].as_array_mut().unwrap().push(serde_json::json!({
        "partition": partition, "incarnation": incarnation, "from": from, "to": to,
        "reason": "retention"
    }));
    *bytes = serde_json::to_vec(&manifest).unwrap();
}

#[test]
fn an_offset_that_two_windows_list_as_lost_is_found_and_that_of_another_incarnation_is_not() {
    let cases = [(("p", 7), 9, 9, true), (("p", 7), 10, 12, false), (("p", 8), 9, 9, false)];
    for (of, from, to, repeated) in cases {
        let (mut files, expected) = good_lake();
        list(&mut files, 1, ("p", 7), 0, 9);
        list(&mut files, 2, of, from, to);
        assert_eq!(found(&files, &expected).has(Kind::LossRepeated), repeated, "{of:?} {from}");
        list(&mut files, 2, ("p", 7), 2, 3);
        assert!(found(&files, &expected).has(Kind::LossRepeated), "inside the first");
    }
}

#[test]
fn a_record_of_the_lake_that_a_later_window_lists_as_lost_is_found() {
    for (offsets, untrue) in [((11, 12), true), ((12, 12), false)] {
        let (mut files, expected) = good_lake();
        list(&mut files, 3, ("cust-1", 1), offsets.0, offsets.1);
        let report = found(&files, &expected);
        assert_eq!(report.has(Kind::LossUntrue), untrue, "{}", report.text());
        assert!(report.faults.len() == usize::from(untrue), "{}", report.text());
    }
}

#[test]
fn an_hour_file_that_disagrees_with_the_manifests_is_found() {
    let (mut files, expected) = good_lake();
    let tenant = queen_core::TenantId::DEFAULT;
    let manifests: Vec<manifest::Manifest> = files
        .0
        .iter()
        .filter(|(key, _)| key.contains("queue=orders/windows"))
        .map(|(_, bytes)| serde_json::from_slice(bytes).unwrap())
        .collect();
    let key = format!("queen/_queen/tenant={tenant}/queue=orders/hours/2026-10-24T10.json");
    let mut hour = serde_json::json!({"v": 1, "tenant": tenant.to_string(), "queue": "orders", "hour": "2026-10-24T10",
        "firstK": 1, "lastK": 2, "windows": 2, "records": 24,
        "bytes": manifests[0].bytes + manifests[1].bytes, "complete": true});
    files.0.insert(key.clone(), serde_json::to_vec(&hour).unwrap());
    let report = found(&files, &expected);
    assert!(report.faults.is_empty(), "{}", report.text());
    hour["records"] = 25.into();
    files.0.insert(key, serde_json::to_vec(&hour).unwrap());
    assert!(found(&files, &expected).has(Kind::HourWrong));
}

#[test]
fn a_manifest_that_is_wrong_about_its_longest_line_is_found() {
    for (less, good) in [(1, false), (0, true)] {
        let mut files = Files::default();
        let line = format!(
            "{{\"partition\":\"p\",\"offset\":0,\"transactionId\":\"t\",\"ts\":\"{}\",\"payload\":1}}\n",
            Stamp(START + 17).to_iso()
        );
        let object = zstd::stream::encode_all(line.as_bytes(), 3).unwrap();
        put_window(&mut files, "q", 1, (START, START + 1000), object, 1, None);
        let (_, bytes) = files.0.iter_mut().find(|(key, _)| key.contains("windows")).unwrap();
        let mut manifest: serde_json::Value = serde_json::from_slice(bytes).unwrap();
        manifest["maxRecordBytes"] = (line.len() as u64 - 1 - less).into();
        *bytes = serde_json::to_vec(&manifest).unwrap();
        let report = found(&files, &Expected::new());
        assert_eq!(!report.has(Kind::ManifestCount), good, "{}", report.text());
    }
}

#[test]
fn windows_that_overlap_or_pass_an_hour_are_found() {
    for (start, end) in [(START - 1, START + 10_000_000), (START, START + 2 * HOUR)] {
        let mut files = Files::default();
        let line = format!(
            "{{\"partition\":\"p\",\"offset\":0,\"transactionId\":\"t\",\"ts\":\"{}\",\"payload\":1}}\n",
            Stamp(START + 17).to_iso()
        );
        put_window(&mut files, "q", 1, (start, end), line.into_bytes(), 1, None);
        assert!(found(&files, &Expected::new()).has(Kind::WindowsTile), "{start}..{end}");
    }
}
