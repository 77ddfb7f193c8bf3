//! A broker and its listener in a temporary directory, and a client that speaks HTTP by hand.

use queen_broker::keyring::Keyring;
use queen_broker::{Broker, BrokerOptions};
use queen_http::{Server, ServerOptions};
use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub struct Node {
    pub broker: Broker,
    pub addr: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<()>,
    dir: tempfile::TempDir,
}

/// An answer: its status, its headers in lower case, its body.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Node {
    pub async fn start() -> Node {
        Node::start_with(Keyring::none()).await
    }

    /// With these keys.
    pub async fn start_with(keyring: Keyring) -> Node {
        Node::start_in(tempfile::tempdir().unwrap(), keyring, ServerOptions::default()).await
    }

    /// With a listener like this.
    pub async fn start_behind(options: ServerOptions) -> Node {
        Node::start_in(tempfile::tempdir().unwrap(), Keyring::none(), options).await
    }

    async fn start_in(dir: tempfile::TempDir, keyring: Keyring, behind: ServerOptions) -> Node {
        let mut options = BrokerOptions::new(dir.path());
        options.keyring = keyring;
        // The machine that runs the tests may be fuller than a broker's should be.
        options.disk.high_percent = 101;
        options.disk.low_percent = 101;
        let broker = Broker::start(options).await.unwrap();
        let addr = "127.0.0.1:0".parse().unwrap();
        let server = Server::bind(addr, broker.clone(), behind, Vec::new()).await.unwrap();
        let addr = server.addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = tokio::spawn(server.run(async { drop(stopped.await) }));
        Node { broker, addr, stop, served, dir }
    }

    /// Stops it in order.
    pub async fn stop(self) {
        self.broker.begin_shutdown();
        drop(self.stop);
        self.served.await.unwrap();
        self.broker.shutdown().await;
    }

    /// Stops it in order and starts it again on the same directory.
    pub async fn restart(self) -> Node {
        self.restart_with(Keyring::none()).await
    }

    /// The same, with these keys.
    pub async fn restart_with(self, keyring: Keyring) -> Node {
        self.broker.begin_shutdown();
        drop(self.stop);
        self.served.await.unwrap();
        self.broker.shutdown().await;
        Node::start_in(self.dir, keyring, ServerOptions::default()).await
    }

    /// Its data directory.
    pub fn dir(&self) -> &std::path::Path {
        self.dir.path()
    }

    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    pub async fn call(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        send(&mut stream, method, path, body).await;
        receive(&mut stream).await
    }

    /// Posts a body of the binary type.
    pub async fn post_binary(&self, path: &str, body: &[u8]) -> Reply {
        self.call_with("POST", path, "content-type: application/x-queen-push\r\n", body).await
    }

    /// With more headers, each line ended.
    pub async fn call_with(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Reply {
        let mut stream = self.connect().await;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\n{headers}content-length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        receive(&mut stream).await
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.call("GET", path, b"").await
    }

    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("POST", path, body.to_string().as_bytes()).await
    }

    /// Pushes items and gives the results of a 201.
    pub async fn push(&self, items: Value) -> Value {
        let reply = self.post("/api/v1/push", serde_json::json!({ "items": items })).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()
    }

    /// Pushes payloads 0 to before `count` to a partition.
    pub async fn push_numbers(&self, queue: &str, partition: &str, count: usize) -> Value {
        let item = |n| serde_json::json!({"queue": queue, "partition": partition, "payload": n});
        self.push((0..count).map(item).collect()).await
    }

    /// Pops and gives the answer of a 200, or null for a 204.
    pub async fn pop(&self, rest: &str) -> Value {
        let reply = self.get(&format!("/api/v1/pop/queue/{rest}")).await;
        match reply.status {
            200 => reply.json(),
            204 => Value::Null,
            other => panic!("{other}: {}", reply.text()),
        }
    }

    /// Settles all messages of a pop's answer alike, and gives the results.
    pub async fn settle(&self, popped: &Value, status: &str) -> Value {
        let items: Value = messages(popped).iter().map(|message| ack(message, status)).collect();
        let group = popped["consumerGroup"].clone();
        let body = serde_json::json!({"acknowledgments": items, "consumerGroup": group});
        let reply = self.post("/api/v1/ack/batch", body).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }
}

/// The messages of a pop's answer.
pub fn messages(popped: &Value) -> Vec<Value> {
    popped["messages"].as_array().cloned().unwrap_or_default()
}

/// Their payloads.
pub fn data(popped: &Value) -> Vec<Value> {
    messages(popped).iter().map(|message| message["data"].clone()).collect()
}

/// The ack item of a delivered message.
pub fn ack(message: &Value, status: &str) -> Value {
    serde_json::json!({
        "transactionId": message["transactionId"],
        "partitionId": message["partitionId"],
        "leaseId": message["leaseId"],
        "status": status,
    })
}

pub async fn send(stream: &mut TcpStream, method: &str, path: &str, body: &[u8]) {
    let length = match body.is_empty() {
        true => String::new(),
        false => format!("content-length: {}\r\n", body.len()),
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n{length}\r\n");
    // A refused body may be cut off by the answer.
    stream.write_all(head.as_bytes()).await.unwrap();
    drop(stream.write_all(body).await);
}

pub async fn receive(stream: &mut TcpStream) -> Reply {
    let mut bytes = Vec::new();
    let read = async {
        loop {
            if let Some(reply) = parse(&bytes) {
                return reply;
            }
            let got = stream.read_buf(&mut bytes).await.unwrap_or(0);
            assert!(got > 0, "cut off after {:?}", String::from_utf8_lossy(&bytes));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), read).await.unwrap()
}

fn parse(bytes: &[u8]) -> Option<Reply> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let status = head.split(' ').nth(1)?.parse().unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    let body = bytes.get(end + 4..end + 4 + length)?.to_vec();
    Some(Reply { status, head, body })
}
