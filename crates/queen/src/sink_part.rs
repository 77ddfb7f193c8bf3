//! The sink inside a node: its start, its pages, its end.
//!
//! Owns: starting the sink over the broker, and what the node's pages say of it. Leaves to others:
//! the copy itself (`queen-sink`), the broker as it sees it (`sink_host`).

use crate::sink_host::SinkHost;
use anyhow::{Context, anyhow};
use queen_broker::Broker;
use queen_core::TenantId;
use queen_http::Extra;
use queen_sink::Sink;
use queen_sink::bucket_s3::S3Bucket;
use queen_sink::settings::Settings;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The sink of a node, or that it has none.
pub struct SinkPart {
    /// Name of the sink, if there is one.
    name: Option<String>,
    ready: Option<(Settings, S3Bucket, Broker)>,
    grace: Duration,
    running: Arc<OnceLock<Sink>>,
}

impl SinkPart {
    /// Makes the bucket of the settings; no request is sent yet.
    pub fn prepare(settings: Option<Settings>, broker: Broker) -> anyhow::Result<SinkPart> {
        let grace = settings.as_ref().map_or(Duration::ZERO, |settings| settings.shutdown_grace);
        let name = settings.as_ref().map(|settings| settings.sink.clone());
        let ready = match settings {
            None => None,
            Some(settings) => {
                let bucket = S3Bucket::new(&settings.bucket)
                    .map_err(|bad| anyhow!("the bucket's settings cannot be used: {bad}"))?;
                Some((settings, bucket, broker))
            }
        };
        Ok(SinkPart { name, ready, grace, running: Arc::default() })
    }

    /// What it adds to the node's pages.
    pub fn pages(&self) -> Arc<dyn Extra> {
        Arc::new(Pages { name: self.name.clone(), running: Arc::clone(&self.running) })
    }

    /// Begins to copy, on threads of its own.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let Some((settings, bucket, broker)) = self.ready.take() else { return Ok(()) };
        let host = Arc::new(SinkHost::new(broker, &settings.sink));
        let sink = Sink::start(settings, TenantId::DEFAULT, host, Arc::new(bucket))
            .context("cannot start the sink's threads")?;
        // The cell is empty: `ready` gives its value once.
        let _ = self.running.set(sink);
        Ok(())
    }

    /// Finishes what is on its way, gives the queues back, within the grace of the settings.
    pub async fn stop(&self) {
        if let Some(sink) = self.running.get() {
            sink.shutdown(self.grace).await;
        }
    }
}

struct Pages {
    name: Option<String>,
    running: Arc<OnceLock<Sink>>,
}

impl Extra for Pages {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn status(&self) -> serde_json::Value {
        self.running.get().map_or_else(queen_sink::status::off, Sink::status)
    }

    fn prometheus(&self, out: &mut String) {
        if let Some(sink) = self.running.get() {
            sink.write_metrics(out);
        }
    }

    fn sinks(&self) -> Vec<String> {
        self.name.iter().cloned().collect()
    }

    fn healthy(&self) -> Result<(), String> {
        self.running.get().map_or(Ok(()), Sink::healthy)
    }
}
