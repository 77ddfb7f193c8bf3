//! A `queen` process under test: started, listened to, asked over HTTP, stopped.
//!
//! Owns: the process's life (it is killed when dropped) and waiting for what it prints.

#![allow(clippy::unwrap_used, dead_code)] // each test binary uses its part

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for anything that should happen; a bound, not a measurement.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A started process.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    /// Everything it printed on its standard output so far.
    pub printed: String,
}

impl Running {
    /// Starts `queen` in a folder, with nothing of the test's own settings in its environment.
    pub fn start(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_queen"));
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            if name.starts_with("QUEEN_") || ["PORT", "LOG_LEVEL", "RUST_LOG"].contains(&&*name) {
                command.env_remove(name);
            }
        }
        let mut child = command
            .args(args)
            // How full the disk is that tests run on says nothing about the broker.
            .envs(["QUEEN_RAFT_DISK_HIGH_PCT", "QUEEN_RAFT_DISK_LOW_PCT"].map(|name| (name, "100")))
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Running { child, lines, printed: String::new() }
    }

    /// Waits for a line that contains `part`, and gives it.
    pub fn line_with(&mut self, part: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    self.printed.push_str(&line);
                    self.printed.push('\n');
                    if line.contains(part) {
                        return line;
                    }
                }
                Err(_) => panic!("no line with {part:?}; it printed:\n{}", self.printed),
            }
        }
    }

    /// The port in the line that says where the broker answers.
    pub fn port(&mut self, part: &str) -> u16 {
        let line = self.line_with(part);
        let after = line.split("http").nth(1).and_then(|rest| rest.split("://").nth(1));
        let after = after.unwrap_or_else(|| panic!("no address in {line:?}"));
        let digits = after.split(':').nth(1).unwrap_or_default();
        let digits: String = digits.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or_else(|_| panic!("no port in {line:?}"))
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: kill(2) takes two numbers; the process is our child and not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for the end; collects what was printed until then.
    pub fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(1)) {
                    self.printed.push_str(&line);
                    self.printed.push('\n');
                }
                return status;
            }
            assert!(Instant::now() < until, "it does not end; it printed:\n{}", self.printed);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `queen` to its end; gives success, and what it said on its standard error.
pub fn run(folder: &Path, args: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut running = Command::new(env!("CARGO_BIN_EXE_queen"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("QUEEN_") || name == "PORT" {
            running.env_remove(name);
        }
    }
    let output = running
        .args(args)
        .envs(variables.iter().copied())
        .current_dir(folder)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Body of a GET.
pub fn get(port: u16, path: &str) -> String {
    ask(port, &format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"))
}

/// Body of the answer to a POST of JSON.
pub fn post(port: u16, path: &str, json: &str) -> String {
    let length = json.len();
    ask(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{json}"
        ),
    )
}

fn ask(port: u16, request: &str) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

/// Asks `/status` until the sink has `records` of the queue in the bucket.
pub fn until_in_the_lake(port: u16, queue: &str, records: u64) -> serde_json::Value {
    let until = Instant::now() + PATIENCE;
    loop {
        let body = get(port, "/status");
        let status: serde_json::Value = serde_json::from_str(&body).unwrap_or_default();
        let rows = status["s3"]["sinks"][0]["queues"].as_array().cloned().unwrap_or_default();
        let row = rows.into_iter().find(|row| row["name"] == queue);
        if let Some(row) = row.filter(|row| row["records"].as_u64() >= Some(records)) {
            return row;
        }
        assert!(Instant::now() < until, "{records} records of {queue} are not in the lake: {body}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
