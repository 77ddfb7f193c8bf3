//! `queen health`: asks a broker whether it is well, for container health checks.
//!
//! Owns: the question and the exit code. Leaves to others: HTTP (`asker`), the verdict (`/health`).

use crate::asker::{Asker, Trust, url};
use anyhow::bail;
use clap::Args;
use queen_core::setting::access::TLS_CERT;

/// Arguments of the health check.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Where the broker answers; without a scheme by TLS if QUEEN_TLS_CERT is set. No certificate is
    /// checked: the question holds no secret
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// Ask for the sink as well
    #[arg(long)]
    sink: bool,
}

/// Prints the broker's answer; an error when it is not 200.
pub fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let set = |name| std::env::var(name).ok().filter(|text| !text.trim().is_empty());
    let addr = match (&args.addr, set("PORT")) {
        (Some(addr), _) => addr.clone(),
        (None, Some(port)) => format!("127.0.0.1:{}", port.trim()),
        (None, None) => "127.0.0.1:6632".to_owned(),
    };
    let base = url(&addr, if set(TLS_CERT.name).is_some() { "https" } else { "http" });
    let path = if args.sink { "/health?sink=true" } else { "/health" };
    let asker = Asker::new(Trust::Anybody)?;
    let (status, body) = asker
        .get(&format!("{base}{path}"), None)
        .map_err(|error| error.context(format!("no answer at {addr}")))?;
    println!("{body}");
    match status {
        200 => Ok(()),
        status => bail!("{addr}{path} answered {status}"),
    }
}
