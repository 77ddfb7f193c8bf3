//! One process of the broker.
//!
//! Owns: its start, its end, its log. Leaves to others: requests (`client`).

use super::client::Client;
use super::{binary, ends_with_parent, free_port};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const LOOPBACK: &str = "127.0.0.1";

/// Where a broker runs.
#[derive(Clone, Debug)]
pub struct Home {
    /// Address that it serves.
    pub host: String,
    /// Network namespace, unless it is the caller's own.
    pub namespace: Option<String>,
}

impl Home {
    /// Beside the caller, on loopback.
    pub fn loopback() -> Home {
        Home { host: LOOPBACK.to_owned(), namespace: None }
    }
}

/// How a broker is started.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Data directory.
    pub dir: PathBuf,
    /// Address that it serves and that clients call.
    pub host: String,
    /// HTTP port; kept over restarts.
    pub port: u16,
    /// Network namespace in which it runs; the caller's own if none is named.
    pub namespace: Option<String>,
    /// Arguments of the command line.
    pub arguments: Vec<String>,
    /// Its whole environment beside PATH and HOME.
    pub variables: BTreeMap<String, String>,
}

impl Setup {
    /// A broker on `dir` and a free port, without a sink.
    pub fn new(dir: &Path) -> Setup {
        let port = free_port();
        let pairs = [
            ("QUEEN_RAFT_DIR", dir.display().to_string()),
            ("QUEEN_BIND_ADDR", LOOPBACK.to_owned()),
            ("PORT", port.to_string()),
            ("HOSTNAME", "sim".to_owned()),
            // How full the disk is that tests run on says nothing about the broker.
            ("QUEEN_RAFT_DISK_HIGH_PCT", "100".to_owned()),
            ("QUEEN_RAFT_DISK_LOW_PCT", "100".to_owned()),
        ];
        let variables = pairs.map(|(name, value)| (name.to_owned(), value)).into();
        Setup {
            dir: dir.to_owned(),
            host: LOOPBACK.to_owned(),
            port,
            namespace: None,
            arguments: vec!["serve".to_owned()],
            variables,
        }
    }

    /// At this home instead of on loopback.
    pub fn at(mut self, home: &Home) -> Setup {
        self.host.clone_from(&home.host);
        self.namespace.clone_from(&home.namespace);
        let host = home.host.clone();
        self.with([("QUEEN_BIND_ADDR", host)])
    }

    /// With these variables too.
    pub fn with<N: Into<String>, V: Into<String>>(
        mut self,
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> Setup {
        self.variables.extend(pairs.into_iter().map(|(n, v)| (n.into(), v.into())));
        self
    }

    /// Without this variable.
    pub fn without(mut self, name: &str) -> Setup {
        self.variables.remove(name);
        self
    }

    /// Starts the process and waits for nothing.
    pub fn spawn(&self) -> anyhow::Result<Broker> {
        let log = tempfile::Builder::new().prefix("queen-log-").tempfile()?;
        let output = log.reopen()?;
        let mut command = self.command()?;
        command.args(&self.arguments).env_clear().envs(&self.variables);
        for name in ["PATH", "HOME", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        ends_with_parent(&mut command);
        let child = command.spawn().context("start the broker")?;
        let client = self.client()?;
        Ok(Broker { child, log, client, status: None })
    }

    /// `ip` turns into the broker: the process that is started is the one that is signalled.
    fn command(&self) -> anyhow::Result<Command> {
        let Some(namespace) = &self.namespace else { return Ok(Command::new(binary()?)) };
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace]).arg(binary()?);
        Ok(command)
    }

    /// A client of it, whether it runs or not.
    pub fn client(&self) -> anyhow::Result<Client> {
        Client::new(&format!("http://{}:{}", self.host, self.port))
    }

    /// Starts the process and waits until it can commit.
    pub async fn start(&self) -> anyhow::Result<Broker> {
        let mut broker = self.spawn()?;
        broker.ready().await?;
        Ok(broker)
    }
}

/// A running or ended process. Dropped, it is killed.
#[derive(Debug)]
pub struct Broker {
    child: Child,
    log: tempfile::NamedTempFile,
    client: Client,
    status: Option<ExitStatus>,
}

/// Longest time to wait for a start or a stop, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that tells nobody when it changes.
const LOOK: Duration = Duration::from_millis(20);

impl Broker {
    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far.
    pub fn output(&self) -> String {
        std::fs::read(self.log.path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The last lines of what it printed.
    pub fn tail(&self) -> String {
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Waits until `/health` answers 200; an error when the process ends before.
    pub async fn ready(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                bail!("the broker ended at its start ({status}):\n{}", self.tail());
            }
            if self.client.get("/health").await.is_ok_and(|answer| answer.status == 200) {
                return Ok(());
            }
            if Instant::now() > until {
                bail!("the broker was not ready in {PATIENCE:?}:\n{}", self.tail());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Its exit status, when it has ended.
    pub fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            self.status = self.child.try_wait()?;
        }
        Ok(self.status)
    }

    /// Waits for its end.
    pub async fn end(&mut self, patience: Duration) -> anyhow::Result<ExitStatus> {
        let until = Instant::now() + patience;
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            if Instant::now() > until {
                bail!("the broker did not end in {patience:?}:\n{}", self.tail());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// kill -9.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        if self.ended()?.is_none() {
            self.child.kill()?;
            self.status = Some(self.child.wait()?);
        }
        Ok(())
    }

    /// Sends a signal.
    pub fn signal(&self, signal: libc::c_int) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id())?;
        // SAFETY: kill has no memory of ours; the child is not reaped, so its id is its own.
        match unsafe { libc::kill(pid, signal) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()).context("signal the broker"),
        }
    }

    /// SIGTERM, and its exit status.
    pub async fn stop(&mut self) -> anyhow::Result<ExitStatus> {
        if self.ended()?.is_none() {
            self.signal(libc::SIGTERM)?;
        }
        self.end(PATIENCE).await
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let failing = std::thread::panicking();
        let _ = self.kill();
        if failing {
            eprintln!("--- the broker's last lines ---\n{}", self.tail());
        }
    }
}

/// Copies a directory with all that is in it.
pub fn copy_directory(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| format!("list {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_directory(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), &target)?;
            File::open(&target)?.sync_all()?;
        }
    }
    Ok(())
}
