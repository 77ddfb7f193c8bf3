//! A small client of the HTTP API.
//!
//! Owns: requests as curl would send them, payload bytes untouched. Leaves to others: judging the
//! answers.

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// An answer: its status and its body.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Body as text.
    pub text: String,
}

impl Answer {
    /// The body as JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

/// A message to push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Queue name.
    pub queue: String,
    /// Partition name.
    pub partition: String,
    /// The producer's id, if it gives one.
    pub transaction_id: Option<String>,
    /// JSON text.
    pub payload: String,
}

/// What became of a pushed message.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Pushed {
    /// Place in the request.
    pub index: u64,
    /// The message's id.
    pub message_id: String,
    /// The producer's id, or the message's.
    pub transaction_id: String,
    /// `queued`, `duplicate` or `error`.
    pub status: String,
    /// Where it lies.
    pub offset: Option<u64>,
}

/// Sends requests to one broker.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    /// A client of `base`, such as `http://127.0.0.1:6632`.
    pub fn new(base: &str) -> anyhow::Result<Client> {
        let http = reqwest::Client::builder()
            .no_proxy()
            .connect_timeout(Duration::from_secs(5))
            .timeout(Duration::from_secs(90))
            .build()?;
        Ok(Client { http, base: base.to_owned() })
    }

    /// GET.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        self.answer(self.http.get(format!("{}{path}", self.base))).await
    }

    /// POST of a JSON text.
    pub async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> anyhow::Result<Answer> {
        let request = self.http.post(format!("{}{path}", self.base));
        self.answer(request.header("content-type", "application/json").body(body)).await
    }

    /// PUT of a JSON text.
    pub async fn put(&self, path: &str, body: impl Into<reqwest::Body>) -> anyhow::Result<Answer> {
        let request = self.http.put(format!("{}{path}", self.base));
        self.answer(request.header("content-type", "application/json").body(body)).await
    }

    /// DELETE.
    pub async fn delete(&self, path: &str) -> anyhow::Result<Answer> {
        self.answer(self.http.delete(format!("{}{path}", self.base))).await
    }

    async fn answer(&self, request: reqwest::RequestBuilder) -> anyhow::Result<Answer> {
        let response = request.send().await?;
        Ok(Answer { status: response.status().as_u16(), text: response.text().await? })
    }

    /// Pushes messages; an error unless the answer is 201 with one result each.
    pub async fn push(&self, items: &[Item]) -> anyhow::Result<Vec<Pushed>> {
        let answer = self.post("/api/v1/push", push_body(items)?).await?;
        if answer.status != 201 {
            bail!("push answered {}: {}", answer.status, answer.text);
        }
        let pushed: Vec<Pushed> = serde_json::from_str(&answer.text)
            .with_context(|| format!("read the answer of a push: {}", answer.text))?;
        if pushed.len() != items.len() {
            bail!("push of {} items answered {} results", items.len(), pushed.len());
        }
        Ok(pushed)
    }

    /// The sink's part of `/status`.
    pub async fn sink_status(&self) -> anyhow::Result<Value> {
        let answer = self.get("/status").await?;
        if answer.status != 200 {
            bail!("/status answered {}: {}", answer.status, answer.text);
        }
        Ok(answer.json()["s3"].clone())
    }
}

/// The body of a push, with the payloads spliced as they are.
pub fn push_body(items: &[Item]) -> anyhow::Result<String> {
    let mut body = String::from("{\"items\":[");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            body.push(',');
        }
        body.push_str(&format!(
            "{{\"queue\":{},\"partition\":{},",
            serde_json::to_string(&item.queue)?,
            serde_json::to_string(&item.partition)?
        ));
        if let Some(id) = &item.transaction_id {
            body.push_str(&format!("\"transactionId\":{},", serde_json::to_string(id)?));
        }
        body.push_str(&format!("\"payload\":{}}}", item.payload));
    }
    body.push_str("]}");
    Ok(body)
}
