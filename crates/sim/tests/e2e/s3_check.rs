//! `queen s3 check`: what it prints of a bucket that works and of those that do not.

use queen_sim::double::{Double, Op, Policy, Rule};
use queen_sim::process::{BUCKET, Seaweed, binary, sink_settings};
use std::process::Stdio;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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

#[tokio::test]
async fn encryption_is_asked_for_where_objects_begin_and_nowhere_else() {
    let double = Double::start().await.unwrap();
    double.strict(|strict| strict.sse = Some("AES256".to_owned()));
    let sse = [("QUEEN_S3_SSE", "AES256")];
    let (well, text) = check(double.endpoint(), &sse).await;
    assert!(well && text.contains("encryption AES256"), "{text}");
    // An upload that fails is given up, which is no place for it either.
    double.rule(Rule::on(Op::Part).times(1).error(400, "InvalidPart"));
    let (well, text) = check(double.endpoint(), &sse).await;
    assert!(!well && outcomes(&text)[3] == ("upload in parts", "failed"), "{text}");
    let aborts = double.events().into_iter().filter(|event| event.request.op == Op::Abort);
    let statuses: Vec<_> = aborts.map(|event| event.status).collect();
    assert_eq!((statuses, double.uploads().len()), (vec![Some(204)], 0));
    let (well, text) = check(double.endpoint(), &[]).await;
    let sentence = "give it s3:PutObject on arn:aws:s3:::lake/queen/*; or a policy of the bucket \
                    demands QUEEN_S3_SSE";
    assert!(!well && text.contains(sentence), "{text}");
}

#[tokio::test]
async fn an_encryption_that_the_bucket_does_not_have_is_said_with_the_way_out() {
    let s3 = Seaweed::start().await.unwrap();
    let (well, text) = check(&s3.endpoint(), &[("QUEEN_S3_SSE", "aws:kms")]).await;
    assert!(!well && text.contains("aws:kms needs QUEEN_S3_SSE_KMS_KEY_ID on most"), "{text}");
}

#[tokio::test]
async fn a_proxy_that_wants_a_password_is_said_with_the_way_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let answer = "HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\
                          proxy-authenticate: Basic\r\nconnection: close\r\n\r\n";
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    for (endpoint, variable) in
        [("http://lake.invalid", "HTTP_PROXY"), ("https://lake.invalid", "HTTPS_PROXY")]
    {
        let (well, text) = check(endpoint, &[(variable, proxy.as_str())]).await;
        let want = "the proxy wants a user and a password";
        assert!(!well && text.contains(want), "{endpoint}: {text}");
    }
}

#[tokio::test]
async fn credentials_that_are_not_there_are_said_with_the_way_out() {
    let s3 = Double::start().await.unwrap();
    let none = [
        ("QUEEN_S3_ACCESS_KEY", ""),
        ("QUEEN_S3_SECRET_KEY", ""),
        ("AWS_CONFIG_FILE", "/nonexistent/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials"),
    ];
    let profile = [&none[..], &[("QUEEN_S3_PROFILE", "lake")]].concat();
    let (well, text) = check(s3.endpoint(), &profile).await;
    let want = "profile lake: is not in /nonexistent/credentials and /nonexistent/config";
    assert!(!well && text.contains(want), "{text}");
    let nothing = [&none[..], &[("AWS_EC2_METADATA_DISABLED", "true")]].concat();
    let (well, text) = check(s3.endpoint(), &nothing).await;
    assert!(!well && text.contains("no credentials are set: set QUEEN_S3_ACCESS_KEY"), "{text}");
    assert_eq!(s3.events().len(), 0, "nothing is asked without credentials");
}
