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
        ("QUEEN_S3_FORMAT", "csv"),
        ("QUEEN_S3_COMPRESSION", "lz4"),
        ("QUEEN_S3_PARQUET_CODEC", "gzip"),
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
        "FORMAT=csv: not one of jsonl, parquet",
        "COMPRESSION=lz4: not one of zstd, gzip, none",
        "PARQUET_CODEC=gzip: not one of zstd, snappy",
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
    assert_eq!(err.0.len(), 12, "{err}");
}

#[test]
fn a_format_and_its_codec_are_read_in_every_spelling() {
    let jsonl = Encoding::Jsonl;
    let parquet = Encoding::Parquet;
    for (format, compression, codec, want) in [
        ("", "", "", jsonl(Compression::ZSTD)),
        ("NDJSON", "gz", "snap", jsonl(Compression::GZIP)),
        ("json", "off", "", jsonl(Compression::None)),
        ("parquet", "", "", parquet(PageCompression::ZSTD)),
        ("Parquet", "none", "zst", parquet(PageCompression::ZSTD)),
        ("parquet", "gzip", "SNAPPY", parquet(PageCompression::Snappy)),
        ("parquet", "", "snap", parquet(PageCompression::Snappy)),
    ] {
        let names = ["QUEEN_S3_FORMAT", "QUEEN_S3_COMPRESSION", "QUEEN_S3_PARQUET_CODEC"];
        let values = [format, compression, codec];
        let pairs: Vec<_> = names.into_iter().zip(values).collect();
        assert_eq!(read(&pairs).unwrap().unwrap().encoding, want, "{values:?}");
    }
}

#[test]
fn parquet_is_not_started_with_less_memory_than_it_takes() {
    let parquet = ("QUEEN_S3_FORMAT", "parquet");
    let err = read(&[parquet, ("QUEEN_S3_MEMORY_MB", "64")]).unwrap_err();
    assert_eq!(err.0, ["QUEEN_S3_MEMORY_MB=64: parquet takes 103 MiB or more, for example 256"]);
    assert!(read(&[parquet, ("QUEEN_S3_MEMORY_MB", "103")]).is_ok());
    assert!(read(&[("QUEEN_S3_MEMORY_MB", "64")]).is_ok());
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
        let path = ("QUEEN_S3_PATH_STYLE", "true");
        assert!(read(&[("QUEEN_S3_ENDPOINT", good), path]).is_ok(), "{good}");
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
    let with = |more: &[(&'static str, &'static str)]| read(&[&none[..], more].concat());
    assert_eq!(with(&[]).unwrap_err().0.len(), 2);
    let aws = with(&[("QUEEN_S3_ENDPOINT", "https://s3.eu-west-1.amazonaws.com")]);
    let aws = aws.unwrap().unwrap().bucket;
    assert_eq!((aws.keys, aws.machine.metadata.as_deref()), (None, Some("http://169.254.169.254")));
    let pod = with(&[("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "r")]);
    let pod = pod.unwrap().unwrap().bucket.machine;
    assert_eq!(pod.web_identity.unwrap().token_file.to_str(), Some("/t"));
    assert_eq!(pod.session, "queen");
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "hush")];
    let keys = with(&keys).unwrap().unwrap().bucket.machine;
    assert!(keys.keys.is_some() && !format!("{keys:?}").contains("hush"));
    let profile = with(&[("QUEEN_S3_PROFILE", "lake"), ("HOME", "/h"), ("AWS_CONFIG_FILE", "/c")]);
    let profile = profile.unwrap().unwrap().bucket.machine;
    let files: Vec<_> = profile.profile_files.iter().filter_map(|file| file.to_str()).collect();
    assert_eq!(files, ["/h/.aws/credentials", "/c"]);
}

#[test]
fn containers_are_asked_on_this_machine_or_over_tls_only() {
    let none = [("QUEEN_S3_ACCESS_KEY", ""), ("QUEEN_S3_SECRET_KEY", "")];
    let full = "AWS_CONTAINER_CREDENTIALS_FULL_URI";
    for good in [
        "http://169.254.170.23/v1",
        "http://[fd00:ec2::23]/v1",
        "https://far/",
        "http://127.0.0.1:9/x",
    ] {
        assert!(read(&[none[0], none[1], (full, good)]).is_ok(), "{good}");
    }
    for bad in ["http://far/v1", "http://169.254.170.2.evil/", "ftp://x"] {
        let err = read(&[none[0], none[1], (full, bad)]).unwrap_err();
        assert!(err.0[0].starts_with(&format!("{full}={bad}: must be https")), "{err}");
    }
}

/// Each bad value and its whole line.
#[test]
fn each_bad_value_is_refused_with_what_is_allowed_and_an_example() {
    let lines = [
        (
            "EMBEDDED",
            "2",
            "2: not one of true, false (starts the sink on this node; without it no other of these is looked at), for example false",
        ),
        (
            "QUEUES",
            ",",
            ",: names no queue; give names separated by commas, or *, for example orders",
        ),
        (
            "QUEUES",
            "*,a",
            "*,a: * stands alone or not at all; give only *, or only names, for example *",
        ),
        (
            "ENDPOINT",
            "s3:7070",
            "s3:7070: must begin with http:// or https://, for example https://s3.eu-central-1.amazonaws.com",
        ),
        (
            "ENDPOINT",
            "http://s3/lake",
            "http://s3/lake: must be a scheme, a host and a port only (put folders in QUEEN_S3_PREFIX), for example http://127.0.0.1:7070",
        ),
        (
            "ENDPOINT",
            "http://:7070",
            "http://:7070: names no host, for example http://127.0.0.1:7070",
        ),
        (
            "ENDPOINT",
            "http://s3:0",
            "http://s3:0: the port must be 1 to 65535, for example http://127.0.0.1:7070",
        ),
        (
            "BUCKET",
            "a/b",
            "a/b: must be a bucket's name without slash or space (put folders in QUEEN_S3_PREFIX), for example lake",
        ),
        (
            "PREFIX",
            "a//b",
            "a//b: must have no empty, . or .. parts, for example queen or team/queen",
        ),
        ("PREFIX", "/", "/: must have no empty, . or .. parts, for example queen or team/queen"),
        (
            "PATH_STYLE",
            "maybe",
            "maybe: not one of true, false (the bucket is in the path of the URL, as most self-hosted servers want, not in its host), for example false",
        ),
        (
            "SSE",
            "aes",
            "aes: not one of AES256, aws:kms (the encryption by the bucket), for example AES256",
        ),
        ("SSE_KMS_KEY_ID", "k", "k: goes with QUEEN_S3_SSE=aws:kms only; set that or unset this"),
        (
            "FORMAT",
            "csv",
            "csv: not one of jsonl, parquet (the format of data files), for example jsonl",
        ),
        (
            "COMPRESSION",
            "lz4",
            "lz4: not one of zstd, gzip, none (the compression of JSONL), for example zstd",
        ),
        (
            "PARQUET_CODEC",
            "gzip",
            "gzip: not one of zstd, snappy (the compression of Parquet), for example zstd",
        ),
        (
            "LAYOUT",
            "flat",
            "flat: not one of merged, per-partition (one data file per window, or one per window and partition), for example merged",
        ),
        (
            "ALIGN",
            "week",
            "week: not one of hour, day, none (the boundary that no window crosses), for example hour",
        ),
        (
            "START",
            "yesterday",
            "yesterday: not one of latest, earliest (where a queue seen for the first time starts; earliest is what retention still holds), for example latest",
        ),
        (
            "TARGET_MB",
            "0",
            "0: out of range; 1 to 5120 MiB is allowed (the uncompressed records that close a window), for example 128",
        ),
        (
            "TARGET_MB",
            "5121",
            "5121: out of range; 1 to 5120 MiB is allowed (the uncompressed records that close a window), for example 128",
        ),
        (
            "MAX_WINDOW_MS",
            "5s",
            "5s: not a whole number; 100 to 86400000 milliseconds is allowed (the longest time a window stays open), for example 300000",
        ),
        (
            "MAX_WINDOW_MS",
            "99",
            "99: out of range; 100 to 86400000 milliseconds is allowed (the longest time a window stays open), for example 300000",
        ),
        (
            "MEMORY_MB",
            "63",
            "63: out of range; 64 to 1048576 MiB is allowed (the memory for all windows in work), for example 256",
        ),
        (
            "THREADS",
            "65",
            "65: out of range; 1 to 64 threads is allowed (the threads that encode), for example 2",
        ),
        (
            "MULTIPART_THRESHOLD_MB",
            "4",
            "4: out of range; 5 to 5120 MiB is allowed (the longest object sent in one request), for example 64",
        ),
        (
            "LEASE_TTL_MS",
            "999",
            "999: out of range; 1000 to 3600000 milliseconds is allowed (the life of a queue's lease, in whole seconds), for example 30000",
        ),
        (
            "SHUTDOWN_GRACE_MS",
            "-1",
            "-1: not a whole number; 100 to 3600000 milliseconds is allowed (the time from SIGTERM in which queues are given back), for example 30000",
        ),
        ("SINK", "a b", "a b: must be 1 to 64 of A-Z a-z 0-9 . _ -, for example default"),
        (
            "CRASH_AT",
            "noon",
            "noon: not one of never, after_intent, mid_upload, after_upload, before_commit, after_commit (where the process aborts, for crash tests), for example never",
        ),
        ("PROFILE", "lake", "lake: goes without QUEEN_S3_ACCESS_KEY: unset one of the two"),
        ("EXTERNAL_ID", "x", "x: goes with QUEEN_S3_ROLE_ARN only; set that or unset this"),
    ];
    for (name, value, line) in lines {
        let name = format!("QUEEN_S3_{name}");
        let err = read(&[(name.as_str(), value)]).unwrap_err();
        assert_eq!(err.0, [format!("{name}={line}")]);
    }
    for (name, what) in [
        (
            "QUEUES",
            "the queues to copy, comma-separated, or * for all, those made later included, for example orders,invoices",
        ),
        ("ENDPOINT", "where the bucket is, for example http://127.0.0.1:7070"),
        (
            "REGION",
            "the region of the signature; any name for servers without regions, for example us-east-1",
        ),
        ("BUCKET", "the bucket's name, for example lake"),
    ] {
        let name = format!("QUEEN_S3_{name}");
        let err = read(&[(name.as_str(), "")]).unwrap_err();
        assert_eq!(err.0, [format!("{name}: not set, and needed: {what}")]);
    }
    let err = read(&[("QUEEN_S3_SECRET_KEY", "")]).unwrap_err();
    let want = "QUEEN_S3_SECRET_KEY: not set, and needed beside QUEEN_S3_ACCESS_KEY";
    assert_eq!(err.0, [want]);
    let err = read(&[("QUEEN_S3_ACCESS_KEY", "")]).unwrap_err();
    assert!(!err.to_string().contains("queen-secret-key"), "{err}");
    let address = read(&[("QUEEN_S3_ENDPOINT", "http://10.0.0.1:9000")]).unwrap_err();
    let want = "QUEEN_S3_PATH_STYLE: must be true: the bucket cannot stand before the address \
                10.0.0.1 in the host; set QUEEN_S3_PATH_STYLE=true, or name a host in \
                QUEEN_S3_ENDPOINT";
    assert_eq!(address.0, [want]);
}
