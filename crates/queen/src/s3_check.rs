//! `queen s3 check`: tries the bucket of the settings, and says what to do about what does not work.
//!
//! Owns: the steps, the table and the sentences a person reads, the exit code.
//! Leaves to others: the settings (`queen_sink::settings`), requests and the words of their failures
//! (`queen_sink::bucket_s3`).
//!
//! It deletes nothing and needs no right to: all that it leaves is one small object, written over
//! by the next check.

use crate::environment::Environment;
use crate::node::NodeSettings;
use anyhow::{Context, bail};
use bytes::Bytes;
use clap::{Args, Subcommand};
use queen_sink::bucket::{Bucket, BucketError, ErrorKind, ObjectMeta};
use queen_sink::bucket_s3::S3Bucket;
use queen_sink::settings::{Settings, Sse};
use std::fmt::Write;

/// What may be done with the bucket by hand.
#[derive(Debug, Subcommand)]
pub enum S3 {
    /// Try the bucket with the settings of the sink, and say what is missing
    #[command(after_help = "\
Reads the same QUEEN_S3_* as `serve`; QUEEN_S3_EMBEDDED and QUEEN_S3_QUEUES may be missing. Tries
what the sink needs (put, head, get, an upload in parts, writing over an object) with one small
object, <prefix>/_queen/check/probe, which stays there: no right to delete is needed. The least
rights are s3:PutObject, s3:GetObject and s3:AbortMultipartUpload on <bucket>/<prefix>/*.

The exit code is 0 when all of it works. No secret is printed.

Example:
  QUEEN_S3_ENDPOINT=http://127.0.0.1:7070 QUEEN_S3_PATH_STYLE=true QUEEN_S3_REGION=us-east-1 \\
  QUEEN_S3_BUCKET=lake QUEEN_S3_ACCESS_KEY=queen QUEEN_S3_SECRET_KEY=queen-secret-key \\
  queen s3 check")]
    Check(CheckArgs),
}

/// Arguments of the check.
#[derive(Debug, Args)]
pub struct CheckArgs {}

/// Runs it; an error when something does not work.
pub async fn run(command: S3) -> anyhow::Result<()> {
    let S3::Check(CheckArgs {}) = command;
    let mut environment = Environment::of_process();
    environment.set("QUEEN_S3_EMBEDDED", "true");
    environment.set_default("QUEEN_S3_QUEUES", "*");
    let settings = NodeSettings::read(&environment, "warn")?;
    settings.start_logging();
    let settings = settings.into_sink().context("the sink is off")?;
    let bucket = S3Bucket::new(&settings.bucket)?;
    println!("{}", title(&settings));
    let credentials = bucket.describe_credentials().await;
    let checked = match credentials {
        Ok(from) => {
            println!("credentials: {from}");
            check(&bucket, &settings.prefix).await
        }
        Err(error) => vec![Step { name: "credentials", outcome: Outcome::Failed(error) }],
    };
    let ahead = bucket.clock_ahead();
    print!("{}", report(&checked, ahead));
    match verdict(&checked, &settings, ahead) {
        None => {
            println!("\nall that the sink needs works");
            Ok(())
        }
        Some(sentences) => bail!("the sink cannot use this bucket yet:\n{sentences}"),
    }
}

fn title(settings: &Settings) -> String {
    let bucket = &settings.bucket;
    let style = if bucket.path_style { "path" } else { "host" };
    let sse = match &bucket.sse {
        None => String::new(),
        Some(Sse::Aes256) => ", encryption AES256".to_owned(),
        Some(Sse::Kms { key_id: None }) => ", encryption aws:kms with the bucket's key".to_owned(),
        Some(Sse::Kms { key_id: Some(id) }) => format!(", encryption aws:kms with key {id}"),
    };
    format!(
        "bucket {} at {} (bucket in the {style}), region {}, prefix {}{sse}",
        bucket.bucket, bucket.endpoint, bucket.region, settings.prefix
    )
}

/// One thing that was tried.
struct Step {
    name: &'static str,
    outcome: Outcome,
}

enum Outcome {
    Works,
    Failed(BucketError),
    /// Another failure stands in its way.
    NotTried,
}

impl Step {
    fn new(name: &'static str, result: Result<(), BucketError>) -> Step {
        let outcome = match result {
            Ok(()) => Outcome::Works,
            Err(error) => Outcome::Failed(error),
        };
        Step { name, outcome }
    }

    fn works(&self) -> bool {
        matches!(self.outcome, Outcome::Works)
    }
}

fn found(what: &str, as_written: bool) -> Result<(), BucketError> {
    match as_written {
        true => Ok(()),
        false => Err(BucketError {
            kind: ErrorKind::Refused,
            text: format!("{what}: the object is not as it was written a moment ago"),
            retry_after: None,
        }),
    }
}

/// Tries all that the sink does, in its order.
async fn check(bucket: &dyn Bucket, prefix: &str) -> Vec<Step> {
    let key = format!("{prefix}/_queen/check/probe");
    let meta = ObjectMeta { content_type: "text/plain", sha256: "" };
    let text = |n: u8| Bytes::from(format!("queen s3 check wrote this, {n}; it may be removed\n"));
    let put = Step::new("put", bucket.put(&key, vec![text(1)], meta).await);
    // Without an object to look for, an absent one shows as well that looking is allowed.
    let written = put.works();
    let head = bucket.head(&key).await.and_then(|head| {
        let same = head.is_some_and(|head| head.bytes == text(1).len() as u64);
        found("head", same || !written)
    });
    let get = bucket.get(&key, 1 << 16).await;
    let get = get.and_then(|body| found("get", body == Some(text(1)) || !written));
    let parts = match put.outcome {
        // The bucket is not there, or not for this key: an upload in parts would say the same.
        Outcome::Failed(ref error) if error.kind != ErrorKind::Forbidden => None,
        _ => Some(in_parts(bucket, &key, meta, text(2)).await),
    };
    let parts_work = matches!(parts, Some(Ok(())));
    let over = match written {
        false => None,
        true => Some(write_over(bucket, &key, meta, text(3), parts_work).await),
    };
    let or_not = |name, result: Option<Result<(), BucketError>>| match result {
        Some(result) => Step::new(name, result),
        None => Step { name, outcome: Outcome::NotTried },
    };
    vec![
        put,
        Step::new("head", head),
        Step::new("get", get),
        or_not("upload in parts", parts),
        or_not("write over", over),
    ]
}

async fn in_parts(
    bucket: &dyn Bucket,
    key: &str,
    meta: ObjectMeta<'_>,
    body: Bytes,
) -> Result<(), BucketError> {
    let parts = bucket.begin(key, meta).await?;
    let sent = match parts.put(0, body).await {
        Ok(()) => parts.complete(1).await,
        Err(error) => Err(error),
    };
    if sent.is_err() {
        let _ = bucket.abort(key, &parts.id()).await;
    }
    sent
}

async fn write_over(
    bucket: &dyn Bucket,
    key: &str,
    meta: ObjectMeta<'_>,
    body: Bytes,
    after_parts: bool,
) -> Result<(), BucketError> {
    bucket.put(key, vec![body.clone()], meta).await?;
    // What cannot be read was said by `get`.
    let Ok(Some(read)) = bucket.get(key, 1 << 16).await else { return Ok(()) };
    let after = if after_parts { "write over an upload in parts" } else { "write over" };
    found(after, read == body)
}

fn report(steps: &[Step], clock_ahead: Option<i64>) -> String {
    let mut text = String::new();
    if let Some(ahead) = clock_ahead {
        let side = if ahead < 0 { "behind" } else { "ahead of" };
        let _ = writeln!(text, "clock: this machine is {} s {side} the bucket", ahead.abs());
    }
    text.push('\n');
    for Step { name, outcome } in steps {
        let (word, why) = match outcome {
            Outcome::Works => ("ok", String::new()),
            Outcome::NotTried => ("not tried", String::new()),
            Outcome::Failed(error) => {
                let denied = error.kind == ErrorKind::Forbidden;
                let word = if denied { "not allowed" } else { "failed" };
                (word, error.to_string())
            }
        };
        let line = format!("  {name:<17}{word:<13}{why}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Each request says the same of a missing bucket; its own name before that helps nobody.
fn without_request(text: &str) -> &str {
    let requests =
        ["put", "head", "get", "multipart create", "multipart part", "multipart complete"];
    let why = |request: &str| text.strip_prefix(request)?.strip_prefix(": ");
    requests.iter().find_map(|request| why(request)).unwrap_or(text)
}

/// What to do, a sentence a line; `None` when all works.
fn verdict(steps: &[Step], settings: &Settings, clock_ahead: Option<i64>) -> Option<String> {
    let failed = steps.iter().filter_map(|step| match &step.outcome {
        Outcome::Failed(error) => Some((step.name, error)),
        _ => None,
    });
    let failed: Vec<(&str, &BucketError)> = failed.collect();
    let bucket = &settings.bucket;
    let place = format!("arn:aws:s3:::{}/{}/*", bucket.bucket, settings.prefix);
    let denied = |names: &[&str]| {
        failed.iter().any(|(name, e)| names.contains(name) && e.kind == ErrorKind::Forbidden)
    };
    let mut sentences: Vec<String> = Vec::new();
    let mut say = |sentence: String| {
        if !sentences.contains(&sentence) {
            sentences.push(sentence);
        }
    };
    if denied(&["put", "upload in parts", "write over"]) {
        let or = match bucket.sse {
            None => "; or a policy of the bucket demands QUEEN_S3_SSE",
            Some(_) => "",
        };
        say(format!("the key may not write: give it s3:PutObject on {place}{or}"));
    }
    if denied(&["head", "get"]) {
        say(format!("the key may not read: give it s3:GetObject on {place}"));
    }
    for (_, error) in failed.iter().filter(|(_, error)| error.kind != ErrorKind::Forbidden) {
        say(without_request(&error.text).to_owned());
    }
    if let Some(ahead) = clock_ahead.filter(|ahead| ahead.abs() > 300 && !failed.is_empty()) {
        say(format!("set this machine's clock: it differs from the bucket's by {ahead} s"));
    }
    if bucket.sse.is_some() && failed.iter().any(|(name, _)| *name == "put") {
        say("if it works without QUEEN_S3_SSE, the bucket does not have this encryption; aws:kms \
             needs QUEEN_S3_SSE_KMS_KEY_ID on most self-hosted servers"
            .to_owned());
    }
    match sentences.as_slice() {
        [] => None,
        sentences => Some(format!("  {}", sentences.join("\n  "))),
    }
}
