//! Tests of the KV operations, one by one and against a map with time.

use super::*;
use crate::MemoryStore;
use proptest::prelude::*;
use queen_core::row::pin as pin_row;
use queen_core::{QueueId, row::pin::PinValue};

const NS: &str = "shop";

/// A store with a clock that only the test moves.
struct Kv {
    store: MemoryStore,
    now: u64,
}

impl Kv {
    fn new() -> Kv {
        Kv { store: MemoryStore::default(), now: 1_000_000_000 }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += seconds * 1_000_000;
    }

    fn batch<'a>(&mut self, ops: Vec<KvOp<'a>>) -> KvOutcome {
        self.now += 1;
        let batch = KvBatch { tenant: TenantId::DEFAULT, ops };
        apply(&batch, Stamp(self.now), &mut self.store).unwrap()
    }

    fn one(&mut self, kind: KvOpKind<'_>) -> KvResult {
        match self.batch(vec![op(kind)]) {
            KvOutcome::Done(mut results) => results.remove(0),
            other => panic!("{other:?}"),
        }
    }

    fn version(&mut self, kind: KvOpKind<'_>) -> u64 {
        match self.one(kind) {
            KvResult::Applied(Some(row)) => row.version,
            other => panic!("{other:?}"),
        }
    }

    fn value(&mut self, key: &str) -> Option<String> {
        match self.one(KvOpKind::Get { key }) {
            KvResult::Row(row) => row.map(|row| text(&row.value)),
            other => panic!("{other:?}"),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn op(kind: KvOpKind<'_>) -> KvOp<'_> {
    KvOp { ns: NS, kind, required: false }
}

fn put<'a>(key: &'a str, value: &'a str) -> KvOpKind<'a> {
    KvOpKind::Put { key, value, ttl_seconds: None, expect: None }
}

fn put_if<'a>(key: &'a str, value: &'a str, expect: u64) -> KvOpKind<'a> {
    KvOpKind::Put { key, value, ttl_seconds: None, expect: Some(expect) }
}

fn put_for<'a>(key: &'a str, value: &'a str, seconds: u64) -> KvOpKind<'a> {
    KvOpKind::Put { key, value, ttl_seconds: Some(seconds), expect: None }
}

fn incr<'a>(key: &'a str, delta: &'a str, max: Option<&'a str>) -> KvOpKind<'a> {
    KvOpKind::Incr { key, delta, min: None, max, ttl_seconds: None }
}

fn reason(result: KvResult) -> KvLoss {
    match result {
        KvResult::Lost { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

fn keys(result: KvResult) -> (Vec<String>, bool) {
    match result {
        KvResult::Rows { rows, truncated, .. } => {
            (rows.into_iter().map(|row| row.key).collect(), truncated)
        }
        other => panic!("{other:?}"),
    }
}

fn prefix<'a>(prefix: &'a str, after: Option<&'a str>, limit: u32) -> KvOpKind<'a> {
    KvOpKind::GetPrefix { prefix, after, limit, keys_only: false }
}

#[test]
fn a_put_is_read_back_with_its_version_and_times() {
    let mut kv = Kv::new();
    let version = kv.version(put_for("k", "null", 60));
    let KvResult::Row(Some(row)) = kv.one(KvOpKind::Get { key: "k" }) else { panic!() };
    assert_eq!((text(&row.value).as_str(), row.version), ("null", version));
    assert_eq!(row.expires_at, Some(row.updated_at.plus_seconds(60)));
    assert_eq!(kv.one(KvOpKind::Get { key: "other" }), KvResult::Row(None));
}

#[test]
fn expect_zero_creates_and_never_overwrites() {
    let mut kv = Kv::new();
    let version = kv.version(put_if("k", "1", 0));
    let KvResult::Lost { reason, row } = kv.one(put_if("k", "2", 0)) else { panic!() };
    assert_eq!(reason, KvLoss::Exists);
    let row = row.unwrap();
    assert_eq!((text(&row.value).as_str(), row.version), ("1", version));
}

#[test]
fn expect_of_a_version_never_creates() {
    let mut kv = Kv::new();
    let lost = kv.one(put_if("k", "1", 42));
    assert_eq!(lost, KvResult::Lost { reason: KvLoss::Absent, row: None });
    assert_eq!(kv.value("k"), None);
}

#[test]
fn expect_fences_a_stale_writer() {
    let mut kv = Kv::new();
    let first = kv.version(put("k", "1"));
    let second = kv.version(put_if("k", "2", first));
    let KvResult::Lost { reason, row } = kv.one(put_if("k", "3", first)) else { panic!() };
    assert_eq!((reason, row.unwrap().version), (KvLoss::Version, second));
    assert_eq!(kv.value("k").as_deref(), Some("2"));
}

#[test]
fn a_delete_says_whether_there_was_something_and_keeps_its_condition() {
    let mut kv = Kv::new();
    let version = kv.version(put("k", "1"));
    let stale = KvOpKind::Delete { key: "k", expect: Some(version + 1) };
    assert_eq!(reason(kv.one(stale)), KvLoss::Version);
    let exact = KvOpKind::Delete { key: "k", expect: Some(version) };
    assert_eq!(kv.one(exact), KvResult::Applied(None));
    assert_eq!(reason(kv.one(KvOpKind::Delete { key: "k", expect: None })), KvLoss::Absent);
}

#[test]
fn versions_rise_over_deletion_and_expiry() {
    let mut kv = Kv::new();
    let first = kv.version(put("k", "1"));
    kv.one(KvOpKind::Delete { key: "k", expect: None });
    let second = kv.version(put_for("k", "1", 1));
    kv.wait(2);
    let third = kv.version(put_if("k", "1", 0));
    kv.wait(2);
    assert!(!sweep(Stamp(kv.now), 10, &mut kv.store).unwrap());
    assert!(0 < first && first < second && second < third);
}

#[test]
fn an_expired_key_is_gone_before_any_sweep() {
    let mut kv = Kv::new();
    kv.one(put_for("k", "1", 5));
    kv.now += 5_000_000 - 2;
    assert_eq!(kv.value("k").as_deref(), Some("1"));
    assert_eq!(kv.value("k"), None, "gone at the stamp itself");
    assert_eq!(keys(kv.one(prefix("k", None, 10))).0.len(), 0);
    assert_eq!(reason(kv.one(put_if("k", "2", 1))), KvLoss::Absent);
}

#[test]
fn a_sweep_is_bounded_and_leaves_no_row_behind() {
    let mut kv = Kv::new();
    for n in 0..5 {
        kv.one(put_for(&format!("k{n}"), "1", 1));
    }
    kv.one(put_for("renewed", "1", 1));
    kv.one(put_for("renewed", "1", 100));
    kv.one(put("forever", "1"));
    assert_eq!(namespaces(TenantId::DEFAULT, 9, &kv.store).unwrap(), [(NS.to_owned(), 7)]);
    kv.wait(5);
    assert!(sweep(Stamp(kv.now), 3, &mut kv.store).unwrap());
    assert!(!sweep(Stamp(kv.now), 3, &mut kv.store).unwrap());
    assert_eq!(namespaces(TenantId::DEFAULT, 9, &kv.store).unwrap(), [(NS.to_owned(), 2)]);
    let left = kv.store.rows().filter(|(table, ..)| *table == Table::KvExpiry).count();
    assert_eq!(left, 1, "the renewed row's");
}

#[test]
fn incr_counts_from_zero_and_refuses_what_passes_its_bounds() {
    let mut kv = Kv::new();
    assert_eq!(reason(kv.one(incr("k", "10", Some("5")))), KvLoss::Limit);
    assert_eq!(kv.value("k"), None, "the creating call is bounded too");
    for _ in 0..3 {
        kv.one(incr("k", "1", Some("3")));
    }
    let KvResult::Lost { reason, row } = kv.one(incr("k", "1", Some("3"))) else { panic!() };
    assert_eq!((reason, text(&row.unwrap().value).as_str()), (KvLoss::Limit, "3"));
    let low =
        KvOpKind::Incr { key: "k", delta: "-4", min: Some("0"), max: None, ttl_seconds: None };
    assert_eq!(super::tests::reason(kv.one(low)), KvLoss::Limit);
    kv.one(incr("k", "0.5", None));
    assert_eq!(kv.value("k").as_deref(), Some("3.5"));
    kv.one(put("big", "9223372036854775807"));
    assert_eq!(super::tests::reason(kv.one(incr("big", "1", None))), KvLoss::Limit);
}

#[test]
fn incr_refuses_a_value_that_is_no_number_unless_it_has_expired() {
    let mut kv = Kv::new();
    kv.one(put_for("k", "{}", 1));
    assert_eq!(reason(kv.one(incr("k", "1", None))), KvLoss::Type);
    kv.wait(2);
    kv.one(incr("k", "1", None));
    assert_eq!(kv.value("k").as_deref(), Some("1"));
}

#[test]
fn incr_sets_the_expiry_only_when_it_creates() {
    let mut kv = Kv::new();
    let renew = |seconds| KvOpKind::Incr {
        key: "k",
        delta: "1",
        min: None,
        max: None,
        ttl_seconds: Some(seconds),
    };
    let KvResult::Applied(Some(first)) = kv.one(renew(2)) else { panic!() };
    let KvResult::Applied(Some(second)) = kv.one(renew(3600)) else { panic!() };
    assert_eq!(first.expires_at, second.expires_at);
}

#[test]
fn a_check_holds_or_is_lost_and_writes_nothing() {
    let mut kv = Kv::new();
    let version = kv.version(put("k", "1"));
    let check = |expect| KvOpKind::Check { key: "k", expect };
    let KvResult::Applied(Some(row)) = kv.one(check(version)) else { panic!() };
    assert_eq!(row.version, version);
    assert_eq!(reason(kv.one(check(version + 1))), KvLoss::Version);
    assert_eq!(reason(kv.one(check(0))), KvLoss::Exists);
    let absent = KvOpKind::Check { key: "none", expect: 0 };
    assert_eq!(kv.one(absent), KvResult::Applied(None));
}

#[test]
fn a_lost_required_operation_undoes_the_whole_batch() {
    let mut kv = Kv::new();
    kv.one(put("taken", "1"));
    let before = kv.store.clone();
    let required = KvOp { required: true, ..op(put_if("taken", "2", 0)) };
    let outcome = kv.batch(vec![op(put("a", "1")), op(incr("n", "1", None)), required]);
    let KvOutcome::Precondition { index, reason, row } = outcome else { panic!() };
    assert_eq!((index, reason, text(&row.unwrap().value).as_str()), (2, KvLoss::Exists, "1"));
    assert_eq!(kv.store, before);
}

#[test]
fn a_lost_operation_that_is_not_required_leaves_the_others() {
    let mut kv = Kv::new();
    kv.one(put("taken", "1"));
    kv.batch(vec![op(put_if("taken", "2", 0)), op(put("a", "1"))]);
    assert_eq!(kv.value("a").as_deref(), Some("1"));
}

#[test]
fn reads_of_a_batch_see_all_of_its_writes() {
    let mut kv = Kv::new();
    let ops = vec![op(KvOpKind::Get { key: "a" }), op(put("a", "1")), op(prefix("a", None, 5))];
    let KvOutcome::Done(results) = kv.batch(ops) else { panic!() };
    assert!(matches!(&results[0], KvResult::Row(Some(row)) if text(&row.value) == "1"));
    assert_eq!(keys(results[2].clone()).0, ["a"]);
}

#[test]
fn get_many_names_what_is_missing() {
    let mut kv = Kv::new();
    kv.one(put("a", "1"));
    let result = kv.one(KvOpKind::GetMany { keys: vec!["b", "a", "c"] });
    let KvResult::Rows { rows, missing, truncated } = result else { panic!() };
    assert_eq!((rows.len(), missing, truncated), (1, vec!["b".to_owned(), "c".to_owned()], false));
}

#[test]
fn listings_page_in_key_order_and_stay_in_their_namespace() {
    let mut kv = Kv::new();
    for key in ["w:2", "w:1", "w:3", "v", "x", "w%"] {
        kv.one(put(key, "1"));
    }
    kv.batch(vec![KvOp { ns: "shop2", kind: put("w:9", "1"), required: false }]);
    assert_eq!(keys(kv.one(prefix("w:", None, 2))), (vec!["w:1".into(), "w:2".into()], true));
    assert_eq!(keys(kv.one(prefix("w:", Some("w:2"), 2))), (vec!["w:3".into()], false));
    assert_eq!(keys(kv.one(prefix("w%", None, 9))), (vec!["w%".into()], false));
    assert_eq!(keys(kv.one(prefix("w:", Some("a"), 9))).0.len(), 3, "after below the prefix");
}

#[test]
fn listings_pass_expired_rows_and_end_at_the_byte_budget() {
    let mut kv = Kv::new();
    for n in 0..600 {
        kv.one(put_for(&format!("k{n:03}"), "1", 1));
    }
    kv.one(put("k999", "1"));
    kv.wait(2);
    assert_eq!(keys(kv.one(prefix("k", None, 2))), (vec!["k999".into()], false));
    let big = format!("\"{}\"", "x".repeat(60_000));
    for n in 0..80 {
        kv.one(put(&format!("big{n:02}"), &big));
    }
    let (listed, truncated) = keys(kv.one(prefix("big", None, 1000)));
    assert_eq!((listed.len(), truncated), (READ_BYTES_MAX / big.len(), true));
    let all: Vec<String> = (0..80).map(|n| format!("big{n:02}")).collect();
    let many = KvOpKind::GetMany { keys: all.iter().map(String::as_str).collect() };
    assert!(keys(kv.one(many)).1);
}

#[test]
fn tenants_see_only_their_own() {
    let mut kv = Kv::new();
    kv.one(put("k", "1"));
    let other = TenantId([9; 16]);
    let batch = KvBatch { tenant: other, ops: vec![op(KvOpKind::Get { key: "k" })] };
    let answer = answer_reads(&batch, Stamp(kv.now), &kv.store).unwrap();
    assert_eq!(answer, Some(vec![KvResult::Row(None)]));
    assert_eq!(namespaces(other, 9, &kv.store).unwrap(), []);
}

#[test]
fn only_a_batch_of_reads_is_answered_without_the_log() {
    let kv = Kv::new();
    let check = KvBatch {
        tenant: TenantId::DEFAULT,
        ops: vec![op(KvOpKind::Get { key: "k" }), op(KvOpKind::Check { key: "k", expect: 0 })],
    };
    assert_eq!(answer_reads(&check, Stamp(1), &kv.store).unwrap(), None);
}

/// Queues that a sink can pin.
fn with_queues(ids: &[u32]) -> Kv {
    use queen_core::options::QueueOptions;
    use queen_core::row::{QueueRow, Row, key};
    let mut kv = Kv::new();
    for id in ids {
        let row = QueueRow {
            tenant: TenantId::DEFAULT,
            name: id.to_string(),
            options: QueueOptions::default(),
            created: Stamp(1),
            deleted: None,
            last_segment: 0,
        };
        kv.store.put(Table::Queue, &key::queue(QueueId(*id)), &row.encode());
    }
    kv
}

fn sink_put(kv: &mut Kv, key: &str, value: &str) {
    kv.batch(vec![KvOp { ns: "queen-s3", kind: put(key, value), required: false }]);
}

#[test]
fn an_intent_pins_its_window_until_the_commit_reaches_it() {
    let mut kv = with_queues(&[7]);
    let intent = r#"{"queueId":7,"k":2,"tStart":10,"tEnd":20,"format":"jsonl"}"#;
    sink_put(&mut kv, "s3:default:a%2Fb:committed", r#"{"k":1}"#);
    sink_put(&mut kv, "s3:default:a%2Fb:intent", intent);
    let want = PinValue { window: 2, from: Stamp(10), to: Stamp(20) };
    let pins = crate::pin::pins(QueueId(7), &kv.store).unwrap();
    assert_eq!(pins, [want]);
    assert!(crate::pin::pinned(&pins, Stamp(5), Stamp(10)));
    assert!(crate::pin::pinned(&pins, Stamp(19), Stamp(30)));
    assert!(!crate::pin::pinned(&pins, Stamp(20), Stamp(30)));
    assert!(!crate::pin::pinned(&pins, Stamp(1), Stamp(9)));
    sink_put(&mut kv, "s3:other:a%2Fb:committed", r#"{"k":9}"#);
    assert_eq!(crate::pin::pins(QueueId(7), &kv.store).unwrap().len(), 1);
    sink_put(&mut kv, "s3:default:a%2Fb:committed", r#"{"k":2}"#);
    assert_eq!(crate::pin::pins(QueueId(7), &kv.store).unwrap(), []);
    sink_put(&mut kv, "s3:default:a%2Fb:intent", intent);
    assert_eq!(crate::pin::pins(QueueId(7), &kv.store).unwrap(), [], "committed already");
}

#[test]
fn a_pin_goes_with_its_intent() {
    let mut kv = with_queues(&[7, 8]);
    let pin =
        |kv: &Kv, queue| kv.store.get(Table::Pin, &pin_row::key(QueueId(queue), "s")).unwrap();
    sink_put(&mut kv, "s3:s:q:intent", r#"{"queueId":7,"k":1,"tStart":1,"tEnd":2}"#);
    sink_put(&mut kv, "s3:s:q:intent", r#"{"queueId":8,"k":1,"tStart":3,"tEnd":4}"#);
    assert!(pin(&kv, 7).is_none() && pin(&kv, 8).is_some());
    let delete = KvOpKind::Delete { key: "s3:s:q:intent", expect: None };
    kv.batch(vec![KvOp { ns: "queen-s3", kind: delete, required: false }]);
    assert!(pin(&kv, 8).is_none());
    sink_put(&mut kv, "s3:s:q:intent", "\"no intent\"");
    kv.one(put("s3:s:q:intent", r#"{"queueId":8,"k":1,"tStart":3,"tEnd":4}"#));
    assert!(pin(&kv, 8).is_none(), "another namespace");
}

#[test]
fn nobody_pins_a_queue_that_is_not_theirs() {
    let mut kv = Kv::new();
    sink_put(&mut kv, "s3:s:q:intent", r#"{"queueId":7,"k":1,"tStart":1,"tEnd":2}"#);
    assert_eq!(crate::pin::pins(QueueId(7), &kv.store).unwrap(), []);
}

/// The KV store as a map, with nothing of the rows of the real one.
#[derive(Default)]
struct Model {
    rows: BTreeMap<u8, (i64, u64, Option<u64>)>,
    version: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Put { key: u8, value: i64, ttl: Option<u64>, expect: Option<u64>, required: bool },
    Delete { key: u8, expect: Option<u64>, required: bool },
    Incr { key: u8, delta: i64, max: i64, ttl: Option<u64>, required: bool },
    Wait(u64),
    Sweep,
}

fn step() -> impl Strategy<Value = Step> {
    let key = 0u8..4;
    let ttl = || proptest::option::of(1u64..5);
    let expect = || proptest::option::of(0u64..30);
    prop_oneof![
        4 => (key.clone(), -9i64..9, ttl(), expect(), any::<bool>())
            .prop_map(|(key, value, ttl, expect, required)| Step::Put { key, value, ttl, expect, required }),
        2 => (key.clone(), expect(), any::<bool>())
            .prop_map(|(key, expect, required)| Step::Delete { key, expect, required }),
        3 => (key, -3i64..9, 0i64..20, ttl(), any::<bool>())
            .prop_map(|(key, delta, max, ttl, required)| Step::Incr { key, delta, max, ttl, required }),
        2 => (0u64..4).prop_map(Step::Wait),
        1 => Just(Step::Sweep),
    ]
}

impl Model {
    fn live(&self, key: u8, now: u64) -> Option<(i64, u64, Option<u64>)> {
        self.rows.get(&key).copied().filter(|row| row.2.is_none_or(|end| end > now))
    }

    /// Whether the write takes effect.
    fn write(
        &mut self,
        key: u8,
        now: u64,
        expect: Option<u64>,
        to: Option<(i64, Option<u64>)>,
    ) -> bool {
        let version = self.live(key, now).map_or(0, |row| row.1);
        if expect.is_some_and(|expect| expect != version) || (to.is_none() && version == 0) {
            return false;
        }
        match to {
            None => drop(self.rows.remove(&key)),
            Some((value, end)) => {
                self.version += 1;
                self.rows.insert(key, (value, self.version, end));
            }
        }
        true
    }

    fn step(&mut self, step: &Step, now: u64) -> bool {
        let end = |ttl: Option<u64>| ttl.map(|seconds| now + seconds * 1_000_000);
        match *step {
            Step::Put { key, value, ttl, expect, .. } => {
                self.write(key, now, expect, Some((value, end(ttl))))
            }
            Step::Delete { key, expect, .. } => self.write(key, now, expect, None),
            Step::Incr { key, delta, max, ttl, .. } => {
                let old = self.live(key, now);
                let sum = old.map_or(0, |row| row.0) + delta;
                let end = old.map_or(end(ttl), |row| row.2);
                sum <= max && self.write(key, now, None, Some((sum, end)))
            }
            Step::Wait(_) | Step::Sweep => true,
        }
    }
}

proptest! {
    #[test]
    fn the_store_behaves_as_a_map_with_time(steps in proptest::collection::vec(step(), 1..60)) {
        let (mut kv, mut model) = (Kv::new(), Model::default());
        let names = ["a", "b", "c", "d"];
        for step in &steps {
            let now = kv.now + 1;
            let text;
            let (kind, required) = match *step {
                Step::Put { key, value, ttl, expect, required } => {
                    text = value.to_string();
                    (KvOpKind::Put { key: names[key as usize], value: &text, ttl_seconds: ttl, expect }, required)
                }
                Step::Delete { key, expect, required } => {
                    (KvOpKind::Delete { key: names[key as usize], expect }, required)
                }
                Step::Incr { key, delta, max, ttl, required } => {
                    text = delta.to_string();
                    let max_text = max.to_string();
                    let kind = KvOpKind::Incr {
                        key: names[key as usize], delta: &text, min: None, max: Some(&max_text), ttl_seconds: ttl,
                    };
                    let taken = matches!(kv.batch(vec![KvOp { ns: NS, kind, required }]),
                        KvOutcome::Done(results) if matches!(results[0], KvResult::Applied(_)));
                    prop_assert_eq!(taken, model.step(step, now));
                    continue;
                }
                Step::Wait(seconds) => { kv.wait(seconds); continue; }
                Step::Sweep => { sweep(Stamp(kv.now), 2, &mut kv.store).unwrap(); continue; }
            };
            let taken = matches!(kv.batch(vec![KvOp { ns: NS, kind, required }]),
                KvOutcome::Done(results) if matches!(results[0], KvResult::Applied(_)));
            prop_assert_eq!(taken, model.step(step, now));
        }
        for (index, name) in names.iter().enumerate() {
            let KvResult::Row(row) = kv.one(KvOpKind::Get { key: name }) else { panic!() };
            let found = row.map(|row| (text(&row.value), row.version, row.expires_at.map(|s| s.0)));
            let want = model.live(index as u8, kv.now).map(|(v, version, end)| (v.to_string(), version, end));
            prop_assert_eq!(found, want);
        }
        let count = kv.store.rows().filter(|(table, ..)| *table == Table::Kv).count() as u64;
        let counted = namespaces(TenantId::DEFAULT, 9, &kv.store).unwrap();
        prop_assert_eq!(counted.first().map_or(0, |(_, n)| *n), count);
    }

    #[test]
    fn a_batch_applies_whole_or_not_at_all(steps in proptest::collection::vec(step(), 1..8), seed in proptest::collection::vec(step(), 0..8)) {
        let mut kv = Kv::new();
        let names = ["a", "b", "c", "d"];
        for batch in [seed, steps] {
            let texts: Vec<String> = batch.iter().map(|step| match step {
                Step::Put { value, .. } => value.to_string(),
                Step::Incr { delta, .. } => delta.to_string(),
                _ => String::new(),
            }).collect();
            let mut seen = std::collections::BTreeSet::new();
            let ops: Vec<KvOp<'_>> = batch.iter().zip(&texts).filter_map(|(step, text)| {
                let (key, kind, required) = match *step {
                    Step::Put { key, ttl, expect, required, .. } =>
                        (key, KvOpKind::Put { key: names[key as usize], value: text, ttl_seconds: ttl, expect }, required),
                    Step::Delete { key, expect, required } =>
                        (key, KvOpKind::Delete { key: names[key as usize], expect }, required),
                    Step::Incr { key, ttl, required, .. } => (key, KvOpKind::Incr {
                        key: names[key as usize], delta: text, min: None, max: Some("9"), ttl_seconds: ttl,
                    }, required),
                    _ => return None,
                };
                seen.insert(key).then_some(KvOp { ns: NS, kind, required })
            }).collect();
            let before = kv.store.clone();
            match kv.batch(ops.clone()) {
                KvOutcome::Precondition { index, .. } => {
                    prop_assert!(ops[index].required);
                    prop_assert_eq!(&kv.store, &before);
                }
                KvOutcome::Done(results) => {
                    let lost = |r: &KvResult| matches!(r, KvResult::Lost { .. });
                    prop_assert!(results.iter().zip(&ops).all(|(r, op)| !(op.required && lost(r))));
                }
            }
        }
    }
}
