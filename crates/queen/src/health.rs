//! `queen health`: asks a broker whether it is well, for container health checks.
//!
//! Owns: the question and the exit code, and a GET without a runtime. Leaves to others: the verdict (`/health`).

use anyhow::bail;
use clap::Args;
use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
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
    let (status, body) =
        get(&addr, path, None).map_err(|error| anyhow::anyhow!("no answer at {addr}: {error}"))?;
    println!("{body}");
    match status.as_str() {
        "200" => Ok(()),
        status => bail!("{addr}{path} answered {status}"),
    }
}

/// The status and the body of the answer to a GET that sends this token, if any.
pub fn get(addr: &str, path: &str, token: Option<&str>) -> std::io::Result<(String, String)> {
    let token = token.map_or(String::new(), |token| format!("authorization: Bearer {token}\r\n"));
    let answer = ask(addr, &format!("GET {path} HTTP/1.1\r\nhost: {addr}\r\n{token}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).unwrap_or("no HTTP");
    Ok((status.to_owned(), body.to_owned()))
}

/// The whole answer to a request of these head lines.
fn ask(addr: &str, head: &str) -> std::io::Result<String> {
    let mut stream = connect(addr)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "{head}connection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(1 << 20).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Connects to the first of the host's addresses that answers.
fn connect(addr: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the host has no address");
    for address in addr.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
