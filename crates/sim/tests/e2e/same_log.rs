//! The same log on two nodes' directories gives the same objects.

use queen_sim::lake::whole_lake;
use queen_sim::lake::{Accepted, Expected, Files};
use queen_sim::process::{FolderS3, Item, Seaweed, Setup, copy_directory, sink_settings};
use std::collections::BTreeMap;
use std::time::Duration;

/// Data objects only: a manifest also says when its node decided the window.
fn data(files: &Files) -> BTreeMap<&String, &Vec<u8>> {
    files.0.iter().filter(|(key, _)| !key.contains("/_queen/")).collect()
}

#[tokio::test]
async fn two_nodes_with_the_same_log_write_the_same_objects() {
    let root = tempfile::tempdir().unwrap();
    let first = root.path().join("a");
    let mut broker = Setup::new(&first).start().await.unwrap();
    let mut expected = Expected::new();
    for round in 0..12 {
        let items: Vec<Item> = (0..400)
            .map(|n| Item {
                queue: "orders".to_owned(),
                partition: format!("é/{}", n % 37),
                transaction_id: (n % 2 == 0).then(|| format!("t-{round}-{n}")),
                payload: format!("{{\"n\": {n}.0,\n\"f\":\"{}\"}}", "y".repeat(n % 700)),
            })
            .collect();
        let pushed = broker.client().push(&items).await.unwrap();
        for (item, result) in items.into_iter().zip(pushed) {
            expected.accepted.push(Accepted {
                queue: item.queue,
                partition: item.partition,
                offset: result.offset.unwrap(),
                transaction_id: result.transaction_id,
                payload: item.payload.into_bytes(),
            });
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
    assert!(broker.stop().await.unwrap().success(), "{}", broker.tail());
    let second = root.path().join("b");
    copy_directory(&first, &second).unwrap();

    // Two servers that are nothing alike: the bytes do not depend on the bucket either.
    let (one, two) = (Seaweed::start().await.unwrap(), FolderS3::start().await.unwrap());
    let mut lakes = Vec::new();
    for (dir, endpoint) in [(&first, one.endpoint()), (&second, two.endpoint().to_owned())] {
        let mut pairs = sink_settings(&endpoint, "orders");
        pairs.push(("QUEEN_S3_MAX_WINDOW_MS".to_owned(), "700".to_owned()));
        pairs.push(("QUEEN_S3_TARGET_MB".to_owned(), "1".to_owned()));
        let mut broker = Setup::new(dir).with(pairs).start().await.unwrap();
        let (files, report) =
            whole_lake(&endpoint, &expected, Duration::from_secs(40)).await.unwrap();
        assert!(report.faults.is_empty(), "{}\n{}", report.text(), broker.tail());
        assert!(report.windows > 1, "{} windows", report.windows);
        broker.stop().await.unwrap();
        lakes.push(files);
    }
    let keys = |files| data(files).into_keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&lakes[0]), keys(&lakes[1]));
    assert!(data(&lakes[0]) == data(&lakes[1]), "an object's bytes differ");
    let folder = Files::of_directory(&two.folder()).unwrap();
    assert_eq!(keys(&folder), keys(&lakes[1]));
}
