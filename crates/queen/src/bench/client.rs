//! A keep-alive HTTP/1.1 client with as little work of its own as will do.
//!
//! Owns: one connection and its buffers. Leaves to others: what is sent. It knows only answers that
//! say their length or have no body, and refuses others.

use anyhow::{Context, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A connection to the broker.
pub struct Client {
    stream: TcpStream,
    host: String,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that belong to the answer given out last.
    used: usize,
}

/// Status and body of an answer; the body is valid until the next request.
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// Body, empty when there is none.
    pub body: &'a [u8],
}

impl Client {
    /// Connects to `host:port`.
    pub async fn connect(addr: &str) -> anyhow::Result<Client> {
        let stream = TcpStream::connect(addr)
            .await
            .with_context(|| format!("no broker answers at {addr}; start one, or give --addr"))?;
        stream.set_nodelay(true)?;
        Ok(Client {
            stream,
            host: addr.to_owned(),
            outgoing: Vec::new(),
            incoming: Vec::with_capacity(64 << 10),
            used: 0,
        })
    }

    /// GET.
    pub async fn get(&mut self, path: &str) -> anyhow::Result<Answer<'_>> {
        self.outgoing.clear();
        let head = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.host);
        self.outgoing.extend_from_slice(head.as_bytes());
        self.exchange().await
    }

    /// POST of a JSON body.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.outgoing.clear();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            self.host,
            body.len()
        );
        self.outgoing.extend_from_slice(head.as_bytes());
        self.outgoing.extend_from_slice(body);
        self.exchange().await
    }

    async fn exchange(&mut self) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(&self.outgoing).await.context("send")?;
        self.incoming.drain(..self.used);
        self.used = 0;
        let head = loop {
            if let Some(at) = find(&self.incoming, b"\r\n\r\n") {
                break parse_head(&self.incoming[..at], at + 4)?;
            }
            if self.incoming.len() > HEAD_BYTES_MAX {
                bail!("the answer's head is longer than {HEAD_BYTES_MAX} bytes");
            }
            self.fill().await?;
        };
        let end = head.body_at + head.body_len;
        while self.incoming.len() < end {
            self.fill().await?;
        }
        self.used = end;
        Ok(Answer { status: head.status, body: &self.incoming[head.body_at..end] })
    }

    async fn fill(&mut self) -> anyhow::Result<()> {
        self.incoming.reserve(64 << 10);
        if self.stream.read_buf(&mut self.incoming).await.context("receive")? == 0 {
            bail!("the broker closed the connection");
        }
        Ok(())
    }
}

struct Head {
    status: u16,
    body_at: usize,
    body_len: usize,
}

fn parse_head(head: &[u8], body_at: usize) -> anyhow::Result<Head> {
    let text = std::str::from_utf8(head).context("the answer's head is not text")?;
    let mut lines = text.split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status: u16 = status_line
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse().ok())
        .with_context(|| format!("no HTTP answer: {status_line:?}"))?;
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    match length {
        Some(body_len) => Ok(Head { status, body_at, body_len }),
        None if status == 204 || status == 304 => Ok(Head { status, body_at, body_len: 0 }),
        None => bail!("the answer does not say its length"),
    }
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|window| window == needle)
}

/// A path segment with every byte that is not plain percent-encoded.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_with_a_length_or_without_a_body_are_read() {
        let head = parse_head(b"HTTP/1.1 201 Created\r\nContent-Length: 17", 100).unwrap();
        assert_eq!((head.status, head.body_at, head.body_len), (201, 100, 17));
        assert_eq!(parse_head(b"HTTP/1.1 204 No Content\r\nx: y", 9).unwrap().body_len, 0);
        assert!(parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked", 9).is_err());
        assert!(parse_head(b"\x01\x02", 9).is_err());
    }

    #[test]
    fn segments_are_encoded_whole() {
        assert_eq!(segment("a/b c%é"), "a%2Fb%20c%25%C3%A9");
    }
}
