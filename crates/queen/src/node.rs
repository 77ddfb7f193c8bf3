//! One node: broker, HTTP server and sink, started and stopped in order.
//!
//! Owns: the wiring, the order of start and stop, and turning a failed start into one sentence.
//! Leaves to others: all that the parts do.

use crate::environment::Environment;
use crate::settings::Settings;
use crate::sink_part::SinkPart;
use anyhow::{Context, anyhow, bail};
use queen_broker::{Broker, BrokerOptions, DiskMarks};
use queen_http::{Server, ServerOptions};
use std::net::SocketAddr;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Settings of all parts of a node.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    broker: Settings,
    /// `None`: the sink is off.
    sink: Option<queen_sink::settings::Settings>,
}

impl NodeSettings {
    /// Reads them; the error lists every bad variable, each on a line.
    pub fn read(
        environment: &Environment,
        log_level: &'static str,
    ) -> anyhow::Result<NodeSettings> {
        let broker = Settings::read(environment, log_level);
        let around = queen_sink::settings::Surroundings {
            node: broker.node_id,
            host: crate::settings::host_name(environment),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        };
        let variables = environment.variables().clone();
        let sink = queen_sink::settings::Settings::from_vars(variables, &around);
        let mut problems = environment.take_problems();
        let sink = sink.unwrap_or_else(|bad| {
            problems.extend(bad.0);
            None
        });
        match problems.as_slice() {
            [] => Ok(NodeSettings { broker, sink }),
            [one] => bail!("a setting is wrong: {one}"),
            all => bail!("{} settings are wrong:\n  {}", all.len(), all.join("\n  ")),
        }
    }

    /// Those of the sink; `None` when it is off.
    pub fn into_sink(self) -> Option<queen_sink::settings::Settings> {
        self.sink
    }

    /// How the sink writes data objects; `None` when it is off.
    pub fn encoding(&self) -> Option<queen_sink::encode::Encoding> {
        self.sink.as_ref().map(|sink| sink.encoding)
    }

    /// Begins to log as they say.
    pub fn start_logging(&self) {
        self.broker.log.start();
    }
}

/// A running node.
pub struct Node {
    broker: Broker,
    addr: SocketAddr,
    scheme: &'static str,
    sink: SinkPart,
    server: JoinHandle<()>,
    server_stop: watch::Sender<bool>,
}

impl Node {
    /// Opens the data directory, replays the log, then listens. Nothing is left running on an error.
    pub async fn start(settings: NodeSettings) -> anyhow::Result<Node> {
        let NodeSettings { broker: settings, sink } = settings;
        for name in &settings.without_effect {
            tracing::warn!(%name, "the variable has no effect in this release");
        }
        let broker = Broker::start(broker_options(&settings)?).await?;
        match Node::attach(&settings, sink, broker.clone()).await {
            Ok(node) => Ok(node),
            Err(error) => {
                broker.shutdown().await;
                Err(error)
            }
        }
    }

    async fn attach(
        settings: &Settings,
        sink: Option<queen_sink::settings::Settings>,
        broker: Broker,
    ) -> anyhow::Result<Node> {
        let mut sink = SinkPart::prepare(sink, broker.clone())?;
        let options = ServerOptions {
            body_bytes_max: settings.body_bytes_max,
            version: env!("CARGO_PKG_VERSION"),
            auth: settings.auth.clone(),
            tls: settings.tls.clone(),
            ..ServerOptions::default()
        };
        let pages = vec![sink.pages()];
        let server = Server::bind(settings.listen, broker.clone(), options, pages)
            .await
            .map_err(|error| cannot_listen(settings.listen, &error))?;
        let addr = server.addr().context("ask for the address of the listener")?;
        sink.start()?;
        let (server_stop, mut stopped) = watch::channel(false);
        let server = tokio::spawn(server.run(async move {
            // An error says that the node is gone: that is a stop too.
            let _ = stopped.wait_for(|stop| *stop).await;
        }));
        let scheme = if settings.tls.is_some() { "https" } else { "http" };
        tracing::info!(%addr, scheme, node = %settings.server_id, "listening");
        Ok(Node { broker, addr, scheme, sink, server, server_stop })
    }

    /// Where it answers.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The same, as callers write it.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.addr)
    }

    /// Runs until `stop` is done, then stops in order: long polls end, the sink gives its queues
    /// back while open requests are answered, the log ends, the store makes a last checkpoint.
    ///
    /// An error when the node could not go on by itself.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> anyhow::Result<()> {
        let failed = tokio::select! {
            () = stop => None,
            reason = self.broker.stopped() => Some(reason.unwrap_or_else(|| "it was stopped".into())),
        };
        self.broker.begin_shutdown();
        self.server_stop.send_replace(true);
        let (_, served) = tokio::join!(self.sink.stop(), self.server);
        self.broker.shutdown().await;
        served.context("the HTTP server ended badly")?;
        match failed {
            None => Ok(()),
            Some(reason) => Err(anyhow!("the node cannot go on: {reason}")),
        }
    }
}

fn broker_options(settings: &Settings) -> anyhow::Result<BrokerOptions> {
    let mut options = BrokerOptions::new(&settings.dir);
    options.node_id = settings.node_id;
    options.cluster = settings.cluster.clone();
    options.deadline = settings.write_timeout;
    options.ephemeral = settings.ephemeral;
    options.retention_every = settings.retention_interval;
    options.disk = DiskMarks {
        high_percent: settings.disk_high_percent,
        low_percent: settings.disk_low_percent,
    };
    options.keyring = settings.encryption.keyring()?;
    Ok(options)
}

fn cannot_listen(addr: SocketAddr, error: &std::io::Error) -> anyhow::Error {
    match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!(
                "port {} is in use by another process; stop that one or set PORT to another",
                addr.port()
            )
        }
        std::io::ErrorKind::PermissionDenied => {
            anyhow!("port {} may not be used by this user; set PORT to one above 1023", addr.port())
        }
        std::io::ErrorKind::AddrNotAvailable => {
            anyhow!("{} is no address of this machine; set QUEEN_BIND_ADDR to one", addr.ip())
        }
        _ => anyhow!("cannot listen on {addr}: {error}"),
    }
}
