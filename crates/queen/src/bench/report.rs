//! The figures of a load: as a table for people, or as one line of JSON.
//!
//! Owns: what is printed. Leaves to others: measuring (`process`, `load`).

use super::Target;
use super::load::Outcome;
use super::process::{Usage, disk_bytes, listening_on};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// The broker's process before a load.
pub struct Measurement {
    process: Option<(u32, Usage)>,
    data: Option<(PathBuf, u64)>,
    json: bool,
}

/// What the sink did.
pub struct SinkOutcome {
    /// Records that reached the lake.
    pub records: u64,
    /// Bytes of their objects.
    pub object_bytes: u64,
    /// Windows committed.
    pub windows: u64,
    /// From the start to the last commit.
    pub took: Duration,
    /// When the last push was answered, if any.
    pub pushed_after: Option<Duration>,
}

impl Measurement {
    /// Looks at the process now. One that cannot be seen gives a note and no figures.
    pub fn begin(target: &Target) -> anyhow::Result<Measurement> {
        let pid = match (target.pid, local_port(&target.addr)) {
            (Some(pid), _) => Some(pid),
            (None, Some(port)) => listening_on(port)?,
            (None, None) => None,
        };
        if pid.is_none() {
            eprintln!(
                "the broker's process is not to be seen: no CPU, memory and disk figures (--pid)"
            );
        }
        let process = pid.map(|pid| Usage::of(pid).map(|usage| (pid, usage))).transpose()?;
        let data = target.data.clone().map(|dir| {
            let bytes = disk_bytes(&dir);
            (dir, bytes)
        });
        Ok(Measurement { process, data, json: target.json })
    }

    /// Prints the figures of a push or pop load.
    pub fn end(self, load: &str, shape: &str, outcome: &Outcome) -> anyhow::Result<()> {
        let seconds = outcome.took.as_secs_f64().max(1e-9);
        let millis = |quantile: f64| outcome.latency.value_at_quantile(quantile) as f64 / 1000.0;
        let mut figures = Figures::default();
        figures.text("load", load);
        figures.text("shape", shape);
        figures.count("messages", outcome.messages);
        figures.number("seconds", seconds, 3);
        figures.number("msg_per_s", outcome.messages as f64 / seconds, 0);
        figures.number("mb_per_s", outcome.payload_bytes as f64 / 1e6 / seconds, 1);
        figures.number("p50_ms", millis(0.50), 3);
        figures.number("p99_ms", millis(0.99), 3);
        figures.number("p99.9_ms", millis(0.999), 3);
        self.process_figures(&mut figures, outcome.messages)?;
        figures.print(self.json);
        Ok(())
    }

    /// Prints the figures of a sink load.
    pub fn end_sink(self, outcome: &SinkOutcome) -> anyhow::Result<()> {
        let seconds = outcome.took.as_secs_f64().max(1e-9);
        let mut figures = Figures::default();
        figures.text("load", "sink");
        figures.count("records", outcome.records);
        figures.count("windows", outcome.windows);
        figures.number("seconds", seconds, 3);
        figures.number("records_per_s", outcome.records as f64 / seconds, 0);
        if let Some(after) = outcome.pushed_after {
            figures.number("pushed_after_s", after.as_secs_f64(), 3);
        }
        let each = outcome.object_bytes as f64 / outcome.records.max(1) as f64;
        figures.number("object_bytes_per_record", each, 1);
        self.process_figures(&mut figures, outcome.records)?;
        figures.print(self.json);
        Ok(())
    }

    fn process_figures(&self, figures: &mut Figures, messages: u64) -> anyhow::Result<()> {
        let messages = messages.max(1) as f64;
        if let Some((pid, before)) = &self.process {
            let after = Usage::of(*pid)?;
            let cpu = after.cpu_seconds - before.cpu_seconds;
            figures.number("server_cpu_s_per_million", cpu / messages * 1e6, 2);
            figures.number("server_rss_mib", after.rss_bytes as f64 / f64::from(1 << 20), 1);
            let written = after.written_bytes.saturating_sub(before.written_bytes);
            figures.number("written_bytes_per_message", written as f64 / messages, 0);
        }
        if let Some((dir, before)) = &self.data {
            let grown = disk_bytes(dir).saturating_sub(*before);
            figures.number("disk_bytes_per_message", grown as f64 / messages, 0);
        }
        Ok(())
    }
}

/// The port, when the address is on this machine.
fn local_port(addr: &str) -> Option<u16> {
    let (host, port) = addr.rsplit_once(':')?;
    ["127.0.0.1", "localhost", "[::1]", "0.0.0.0"].contains(&host).then(|| port.parse().ok())?
}

#[derive(Default)]
struct Figures {
    rows: Vec<(&'static str, String)>,
    object: Map<String, Value>,
}

impl Figures {
    fn text(&mut self, name: &'static str, value: &str) {
        self.rows.push((name, value.to_owned()));
        self.object.insert(name.to_owned(), json!(value));
    }

    fn count(&mut self, name: &'static str, value: u64) {
        self.rows.push((name, grouped(value)));
        self.object.insert(name.to_owned(), json!(value));
    }

    fn number(&mut self, name: &'static str, value: f64, digits: usize) {
        let text = format!("{value:.digits$}");
        let shown = if digits == 0 { grouped(value.round().max(0.0) as u64) } else { text.clone() };
        self.rows.push((name, shown));
        self.object.insert(name.to_owned(), text.parse().map_or(Value::Null, |n: f64| json!(n)));
    }

    fn print(&self, json: bool) {
        if json {
            println!("{}", Value::Object(self.object.clone()));
            return;
        }
        for (name, value) in &self.rows {
            println!("{name:<28}{value}");
        }
    }
}

/// Thousands set apart: 1,234,567.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_readable() {
        assert_eq!([grouped(0), grouped(999), grouped(1_234_567)], ["0", "999", "1,234,567"]);
        assert_eq!(local_port("127.0.0.1:6632"), Some(6632));
        assert_eq!(local_port("queen.example:6632"), None);
    }
}
