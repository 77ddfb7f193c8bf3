//! The sink inside a node: its threads, its pages, its end.
//!
//! Owns: starting the sink over the broker, and what the node's pages say of it. Leaves to others:
//! the copy itself (`queen-sink`), the broker as it sees it (`sink_host`).

use queen_broker::Broker;
use queen_http::Extra;
use queen_sink::settings::Settings;
use std::sync::Arc;

/// The sink of a node that has none.
pub struct SinkPart;

impl SinkPart {
    /// Makes ready what the pages need.
    pub fn prepare(settings: Option<Settings>, _broker: Broker) -> anyhow::Result<SinkPart> {
        match settings {
            None => Ok(SinkPart),
            Some(_) => anyhow::bail!("QUEEN_S3_EMBEDDED=true: this build has no sink"),
        }
    }

    /// What it adds to the node's pages.
    pub fn pages(&self) -> Arc<dyn Extra> {
        Arc::new(NoSink)
    }

    /// Begins to copy.
    pub fn start(self) -> SinkPart {
        self
    }

    /// Gives the queues back.
    pub async fn stop(self) {}
}

struct NoSink;

impl Extra for NoSink {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn status(&self) -> serde_json::Value {
        serde_json::json!({ "enabled": false, "sinks": [] })
    }

    fn prometheus(&self, _out: &mut String) {}
}
