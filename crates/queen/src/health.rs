//! `queen health`: asks a broker whether it is well, for container health checks.
//!
//! Owns: the question and the exit code. Leaves to others: the verdict (`/health`).

use anyhow::bail;
use clap::Args;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Arguments of the health check.
#[derive(Debug, Args)]
pub struct HealthArgs {
    /// Where the broker answers
    #[arg(long, value_name = "HOST:PORT")]
    addr: Option<String>,
    /// Ask for the sink as well
    #[arg(long)]
    sink: bool,
}

/// Longest time for the whole answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Prints the broker's answer; an error when it is not 200.
pub fn run(args: &HealthArgs) -> anyhow::Result<()> {
    let port = std::env::var("PORT").ok().filter(|port| !port.trim().is_empty());
    let addr = match (&args.addr, port) {
        (Some(addr), _) => addr.clone(),
        (None, Some(port)) => format!("127.0.0.1:{}", port.trim()),
        (None, None) => "127.0.0.1:6632".to_owned(),
    };
    let path = if args.sink { "/health?sink=true" } else { "/health" };
    let answer =
        ask(&addr, path).map_err(|error| anyhow::anyhow!("no answer at {addr}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    println!("{body}");
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        status => bail!("{addr}{path} answered {}", status.unwrap_or("no HTTP")),
    }
}

fn ask(addr: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {addr}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
