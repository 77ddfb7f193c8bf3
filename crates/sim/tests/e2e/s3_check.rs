//! `queen s3 check`: what it prints of a bucket that works and of those that do not.

use queen_sim::double::{Double, Policy};
use queen_sim::process::{BUCKET, Seaweed, binary, sink_settings};
use std::process::Stdio;

/// Runs it and gives whether it ended well, and all that it printed.
async fn check(endpoint: &str, change: &[(&str, &str)]) -> (bool, String) {
    let mut command = std::process::Command::new(binary().unwrap());
    command.args(["s3", "check"]).env_clear().envs(sink_settings(endpoint, "orders"));
    command.envs(change.iter().copied()).stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    for secret in ["queen-secret-key", "not-the-secret"] {
        assert!(!text.contains(secret), "{text}");
    }
    (output.status.success(), text)
}

/// Lines of the table, without what follows the word of the outcome.
fn outcomes(text: &str) -> Vec<(&str, &str)> {
    let table = text.split("queen: ").next().unwrap();
    let lines = table.lines().filter(|line| line.starts_with("  ") && line.len() > 19);
    lines.map(|line| (line[2..19].trim(), line[19..].split("  ").next().unwrap().trim())).collect()
}

#[tokio::test]
async fn a_good_bucket_is_said_to_work_and_keeps_one_small_object() {
    let s3 = Seaweed::start().await.unwrap();
    for _ in 0..2 {
        let (well, text) = check(&s3.endpoint(), &[("QUEEN_S3_QUEUES", "")]).await;
        assert!(well, "{text}");
        assert!(text.contains("credentials: QUEEN_S3_ACCESS_KEY (key id queen)"), "{text}");
        assert!(text.contains("clock: this machine is 0 s ahead of the bucket"), "{text}");
        assert!(text.ends_with("all that the sink needs works\n"), "{text}");
        let want = ["put", "head", "get", "upload in parts", "write over"].map(|step| (step, "ok"));
        assert_eq!(outcomes(&text), want, "{text}");
    }
    let bucket = queen_sim::process::bucket(&s3.endpoint()).unwrap();
    let files = queen_sim::lake::Files::of_bucket(&bucket).await.unwrap();
    let keys: Vec<&String> = files.0.keys().collect();
    assert_eq!(keys, ["queen/_queen/check/probe"]);
}

#[tokio::test]
async fn a_missing_bucket_and_a_wrong_key_are_said_with_the_way_out() {
    let s3 = Seaweed::start().await.unwrap();
    let (well, text) = check(&s3.endpoint(), &[("QUEEN_S3_BUCKET", "nowhere")]).await;
    let want = format!(
        "bucket nowhere does not exist at {}; make it, or correct QUEEN_S3_BUCKET",
        s3.endpoint()
    );
    assert!(!well && text.contains(&want), "{text}");
    let (well, text) = check(&s3.endpoint(), &[("QUEEN_S3_SECRET_KEY", "not-the-secret")]).await;
    assert!(!well && text.contains("correct QUEEN_S3_SECRET_KEY"), "{text}");
    let (well, text) = check(&s3.endpoint(), &[("QUEEN_S3_ACCESS_KEY", "nobody")]).await;
    assert!(!well && text.contains("correct QUEEN_S3_ACCESS_KEY"), "{text}");
}

#[tokio::test]
async fn a_wrong_region_and_a_wrong_clock_are_said_with_the_way_out() {
    let double = Double::start().await.unwrap();
    let (well, text) = check(double.endpoint(), &[("QUEEN_S3_REGION", "eu-west-9")]).await;
    let want = format!("bucket {BUCKET} lies in another region; correct QUEEN_S3_REGION");
    assert!(!well && text.contains(&want), "{text}");
    double.clock_ahead(3600);
    let (well, text) = check(double.endpoint(), &[]).await;
    assert!(!well && text.contains("set this machine's clock"), "{text}");
}

#[tokio::test]
async fn a_policy_that_only_reads_is_told_from_a_wrong_key() {
    let double = Double::start().await.unwrap();
    double.strict(|strict| strict.policy = Policy::ReadOnly);
    let (well, text) = check(double.endpoint(), &[]).await;
    let want = [
        ("put", "not allowed"),
        ("head", "ok"),
        ("get", "ok"),
        ("upload in parts", "not allowed"),
        ("write over", "not tried"),
    ];
    assert_eq!((well, outcomes(&text)), (false, want.to_vec()), "{text}");
    let sentence = "the key may not write: give it s3:PutObject on arn:aws:s3:::lake/queen/*";
    assert!(text.contains(sentence), "{text}");
    assert!(!text.contains("s3:GetObject"), "{text}");
    double.strict(|strict| strict.policy = Policy::PutOnly);
    let (well, text) = check(double.endpoint(), &[]).await;
    assert!(!well && text.contains("the key may not read: give it s3:GetObject"), "{text}");
}

#[tokio::test]
async fn nobody_at_the_endpoint_and_bad_settings_are_said_with_the_way_out() {
    let (well, text) = check("http://127.0.0.1:1", &[]).await;
    assert!(!well && text.contains("http://127.0.0.1:1 is unreachable"), "{text}");
    let style = [("QUEEN_S3_PATH_STYLE", "false"), ("QUEEN_S3_ENDPOINT", "http://no.invalid:1")];
    let (well, text) = check("http://x", &style).await;
    assert!(!well && text.contains("QUEEN_S3_PATH_STYLE=true"), "{text}");
    let (well, text) = check("127.0.0.1", &[("QUEEN_S3_REGION", "")]).await;
    assert!(!well, "{text}");
    assert!(text.contains("QUEEN_S3_ENDPOINT=127.0.0.1: must begin with http://"), "{text}");
    assert!(text.contains("QUEEN_S3_REGION: not set, and needed"), "{text}");
}
