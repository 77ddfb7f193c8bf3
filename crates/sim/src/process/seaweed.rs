//! A SeaweedFS process: an S3 server that checks signatures and knows missing buckets.
//!
//! Owns: its start on free ports, its end, its start again on the same files. Leaves to others:
//! what lies in the bucket.

use super::{ACCESS_KEY, BUCKET, SECRET_KEY, ends_with_parent, free_port_pair, tool};
use anyhow::{Context, bail};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The process and its files; dropped, both go.
pub struct Seaweed {
    host: String,
    root: tempfile::TempDir,
    ports: Ports,
    child: Option<Child>,
}

/// Each also takes the port 10,000 above.
struct Ports {
    s3: u16,
    master: u16,
    volume: u16,
    filer: u16,
    admin: u16,
}

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

impl Seaweed {
    /// Starts a server with an empty bucket on loopback.
    pub async fn start() -> anyhow::Result<Seaweed> {
        Seaweed::at("127.0.0.1").await
    }

    /// Starts one at an address of this machine.
    pub async fn at(host: &str) -> anyhow::Result<Seaweed> {
        let mut last = None;
        // Another process may take a port between finding and using it.
        for _ in 0..3 {
            let root = tempfile::Builder::new().prefix("queen-seaweed-").tempdir()?;
            let ports = Ports {
                s3: free_port_pair(),
                master: free_port_pair(),
                volume: free_port_pair(),
                filer: free_port_pair(),
                admin: free_port_pair(),
            };
            let mut server = Seaweed { host: host.to_owned(), root, ports, child: None };
            match server.begin().await {
                Ok(()) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("not tried"))).context("start SeaweedFS")
    }

    /// Starts the process on its files, and waits until it answers.
    pub async fn begin(&mut self) -> anyhow::Result<()> {
        let root = self.root.path();
        let data = root.join("data");
        std::fs::create_dir_all(&data)?;
        let identities = root.join("s3.json");
        let identity = serde_json::json!({"identities": [{
            "name": "queen",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }], "kms": {
            "default_provider": "local",
            "providers": {"local": {"type": "local", "enableOnDemandCreate": true}},
            "buckets": {(BUCKET): {"provider": "local"}},
        }});
        std::fs::write(&identities, identity.to_string())?;
        self.child = Some(self.command(&data, &identities)?.spawn().context("start weed")?);
        let health = format!("{}/healthz", self.endpoint());
        let http = reqwest::Client::builder().no_proxy().build()?;
        let until = Instant::now() + PATIENCE;
        loop {
            let answer = http.get(&health).send().await;
            if answer.is_ok_and(|a| a.status() == 200) && self.has_bucket().await {
                return Ok(());
            }
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > until {
                let log = std::fs::read(root.join("log")).unwrap_or_default();
                let log = String::from_utf8_lossy(&log).into_owned();
                let from = log.char_indices().rev().nth(2000).map(|(at, _)| at).unwrap_or(0);
                bail!("weed is not ready ({ended:?}):\n{}", &log[from..]);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The bucket is made a moment after the server answers.
    async fn has_bucket(&self) -> bool {
        use futures::StreamExt;
        use object_store::ObjectStore;
        let Ok(bucket) = super::bucket(&self.endpoint()) else { return false };
        let first = bucket.list(None).next().await;
        first.is_none_or(|listed| listed.is_ok())
    }

    fn command(&self, data: &Path, identities: &Path) -> anyhow::Result<Command> {
        let log = std::fs::File::create(self.root.path().join("log"))?;
        let mut command = Command::new(tool("weed")?);
        command
            .arg("mini")
            .arg(format!("-dir={}", data.display()))
            .arg(format!("-s3.config={}", identities.display()))
            .arg(format!("-bucket={BUCKET}"))
            .arg(format!("-ip={}", self.host))
            .arg(format!("-ip.bind={}", self.host))
            .arg("-s3.autoCreateBucket=false")
            .args(["-s3.domainName=localhost", "-admin.ui=false", "-webdav=false"])
            .args(["-s3.port.iceberg=0", "-s3.port.lance=0"])
            .arg(format!("-s3.port={}", self.ports.s3))
            .arg(format!("-master.port={}", self.ports.master))
            .arg(format!("-volume.port={}", self.ports.volume))
            .arg(format!("-filer.port={}", self.ports.filer))
            .arg(format!("-admin.port={}", self.ports.admin))
            .current_dir(self.root.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        ends_with_parent(&mut command);
        Ok(command)
    }

    /// Where it answers, or would.
    pub fn endpoint(&self) -> String {
        format!("http://{}:{}", self.host, self.ports.s3)
    }

    /// Whether these bytes lie in the server's files as they are.
    pub fn holds(&self, bytes: &[u8]) -> anyhow::Result<bool> {
        let mut folders = vec![self.root.path().join("data")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder)? {
                let path = entry?.path();
                if path.is_dir() {
                    folders.push(path);
                } else if std::fs::read(&path)?.windows(bytes.len()).any(|found| found == bytes) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Ends the process at once; the files stay.
    pub fn stop(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Seaweed {
    fn drop(&mut self) {
        let _ = self.stop();
    }
}
