//! Settings: the seed's, the bad ones all at once, and secrets that are never shown.

use super::*;

const BASE: &[(&str, &str)] = &[
    ("QUEEN_S3_EMBEDDED", "true"),
    ("QUEEN_S3_QUEUES", "orders"),
    ("QUEEN_S3_ENDPOINT", "http://s3:7070"),
    ("QUEEN_S3_REGION", "us-east-1"),
    ("QUEEN_S3_BUCKET", "lake"),
    ("QUEEN_S3_ACCESS_KEY", "queen"),
    ("QUEEN_S3_SECRET_KEY", "queen-secret-key"),
];

fn read(extra: &[(&str, &str)]) -> Result<Option<Settings>, SettingsError> {
    let around = Surroundings { node: 1, host: "h".into(), cores: 2 };
    let mut vars: BTreeMap<String, String> =
        BASE.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    vars.extend(extra.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    Settings::from_vars(vars, &around)
}

#[test]
fn the_demo_of_the_seed_is_read() {
    let s = read(&[
        ("QUEEN_S3_PATH_STYLE", "true"),
        ("QUEEN_S3_START", "earliest"),
        ("QUEEN_S3_MAX_WINDOW_MS", "10000"),
    ]);
    let s = s.unwrap().unwrap();
    assert_eq!(s.queues, Queues::Named(vec!["orders".into()]));
    assert_eq!((s.start, s.max_window), (StartAt::Earliest, Duration::from_secs(10)));
    assert_eq!((s.target_bytes, s.prefix.as_str()), (128 << 20, "queen"));
    assert!(s.bucket.path_style && s.wrap);
    assert_eq!(s.instance, "node-1@h");
    assert!(s.bucket.request_timeout < s.lease);
}

#[test]
fn without_the_switch_nothing_is_looked_at() {
    assert_eq!(read(&[("QUEEN_S3_EMBEDDED", "false"), ("QUEEN_S3_NONSENSE", "1")]), Ok(None));
    assert!(read(&[("QUEEN_S3_EMBEDDED", "maybe")]).is_err());
}

#[test]
fn every_bad_setting_is_named_at_once() {
    let err = read(&[
        ("QUEEN_S3_QUEUES", "*,orders"),
        ("QUEEN_S3_ENDPOINT", "http://s3:7070/lake"),
        ("QUEEN_S3_REGION", "  "),
        ("QUEEN_S3_TARGET_MB", "0"),
        ("QUEEN_S3_MAX_WINDOW_MS", "5s"),
        ("QUEEN_S3_FORMAT", "parquet"),
        ("QUEEN_S3_COMPRESSION", "lz4"),
        ("QUEEN_S3_SSE_KMS_KEY_ID", "k"),
        ("QUEEN_S3_PREFIX", "a//b"),
        ("QUEEN_S3_SINK", "a:b"),
        ("QUEEN_S3_PARTITIONS", "3"),
    ]);
    let err = err.unwrap_err();
    for name in [
        "QUEUES=*,orders",
        "ENDPOINT=http://s3:7070/lake",
        "REGION: not set",
        "TARGET_MB=0: out of range; 1 to 5120",
        "MAX_WINDOW_MS=5s: not a whole number",
        "FORMAT=parquet: this release writes JSONL only",
        "COMPRESSION=lz4",
        "SSE_KMS_KEY_ID=k",
        "PREFIX=a//b",
        "SINK=a:b",
        "PARTITIONS=3",
    ] {
        assert!(
            err.0.iter().any(|line| line.starts_with(&format!("QUEEN_S3_{name}"))),
            "{name} in {err}"
        );
    }
    assert_eq!(err.0.len(), 11, "{err}");
}

#[test]
fn an_unknown_name_is_refused_with_the_nearest() {
    let err = read(&[("QUEEN_S3_QUEUE", "orders"), ("QUEEN_S3_SECRETKEY", "hush")]).unwrap_err();
    assert_eq!(
        err.0,
        [
            "QUEEN_S3_QUEUE: no such setting; the nearest is QUEEN_S3_QUEUES",
            "QUEEN_S3_SECRETKEY: no such setting; the nearest is QUEEN_S3_SECRET_KEY",
        ]
    );
}

#[test]
fn the_secret_is_in_no_output() {
    let s = read(&[("QUEEN_S3_SESSION_TOKEN", "tok-tok")]).unwrap().unwrap();
    let shown = format!("{s:?}");
    assert!(!shown.contains("queen-secret-key") && !shown.contains("tok-tok"), "{shown}");
    let err = read(&[("QUEEN_S3_ACCESS_KEY", ""), ("QUEEN_S3_TARGET_MB", "x")]).unwrap_err();
    assert!(!err.to_string().contains("queen-secret-key"), "{err}");
}

#[test]
fn endpoints_are_a_scheme_a_host_and_a_port() {
    for good in [
        "http://a",
        "https://a.b:443",
        "http://127.0.0.1:7070/",
        "http://[::1]:9000",
        "http://[::1]",
    ] {
        assert!(read(&[("QUEEN_S3_ENDPOINT", good)]).is_ok(), "{good}");
    }
    for bad in [
        "a:7070",
        "HTTP://a",
        "http://",
        "http://:80",
        "http://a:port",
        "http://a:0",
        "http://u@a",
        "s3://lake",
    ] {
        assert!(read(&[("QUEEN_S3_ENDPOINT", bad)]).is_err(), "{bad}");
    }
}

#[test]
fn settings_of_other_releases_warn() {
    let s = read(&[("QUEEN_S3_SAFE_GUARD_MS", "5000")]).unwrap().unwrap();
    assert_eq!(s.warnings.len(), 1);
    assert!(s.warnings[0].starts_with("QUEEN_S3_SAFE_GUARD_MS has no effect"));
}

#[test]
fn credentials_may_come_from_the_machine() {
    let none = [("QUEEN_S3_ACCESS_KEY", ""), ("QUEEN_S3_SECRET_KEY", "")];
    assert_eq!(read(&none).unwrap_err().0.len(), 2);
    let aws = [none[0], none[1], ("QUEEN_S3_ENDPOINT", "https://s3.eu-west-1.amazonaws.com")];
    assert_eq!(read(&aws).unwrap().unwrap().bucket.keys, None);
    let env = [none[0], none[1], ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t")];
    assert_eq!(read(&env).unwrap().unwrap().bucket.keys, None);
}
