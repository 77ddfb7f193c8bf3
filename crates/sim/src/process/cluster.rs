//! A cluster of real processes on this machine.
//!
//! Owns: their ports and directories, starting and killing each, finding out who leads. Leaves to
//! others: one process (`broker`), requests (`client`).

use super::broker::{Broker, Home, Setup};
use super::client::Client;
use super::free_port;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The secret of every cluster of the tests; their listeners are on loopback.
pub const TOKEN: &str = "a token for tests only";

/// Longest wait for the cluster to come to something, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that tells nobody when it changes.
const LOOK: Duration = Duration::from_millis(20);

/// Processes that form a cluster; dropped, they are killed and their files go.
pub struct Cluster {
    root: tempfile::TempDir,
    setups: BTreeMap<u64, Setup>,
    running: BTreeMap<u64, Broker>,
}

/// How far a node is, by its own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// It leads.
    pub leads: bool,
    /// Its term.
    pub term: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index up to which it knows the log to be committed.
    pub commit: u64,
}

impl Cluster {
    /// The setups of so many nodes, with these variables too; nothing runs yet.
    pub fn new<N: Into<String>, V: Into<String>>(
        size: usize,
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> anyhow::Result<Cluster> {
        Cluster::at(&vec![Home::loopback(); size], pairs)
    }

    /// The setups of a node at each of these homes, with these variables too; nothing runs yet.
    pub fn at<N: Into<String>, V: Into<String>>(
        homes: &[Home],
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> anyhow::Result<Cluster> {
        let root = tempfile::Builder::new().prefix("queen-cluster-").tempdir()?;
        let pairs: Vec<(String, String)> =
            pairs.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
        let mut setups = BTreeMap::new();
        let mut peers = Vec::new();
        for (id, home) in (1..).zip(homes) {
            let (host, raft) = (&home.host, free_port());
            let setup = Setup::new(&root.path().join(format!("node-{id}"))).at(home);
            peers.push(format!("{id}={host}:{raft}/{host}:{}", setup.port));
            let own = [
                ("QUEEN_RAFT_NODE_ID", id.to_string()),
                ("QUEEN_RAFT_LISTEN", format!("{host}:{raft}")),
                ("QUEEN_RAFT_TOKEN", TOKEN.to_owned()),
                ("HOSTNAME", format!("sim-{id}")),
            ];
            setups.insert(id, setup.with(own).with(pairs.clone()));
        }
        let peers = peers.join(",");
        let with_peers = |setup: Setup| setup.with([("QUEEN_RAFT_PEERS", peers.clone())]);
        let setups = setups.into_iter().map(|(id, setup)| (id, with_peers(setup))).collect();
        Ok(Cluster { root, setups, running: BTreeMap::new() })
    }

    /// Three nodes with these variables, all ready.
    pub async fn of_three<N: Into<String>, V: Into<String>>(
        pairs: impl IntoIterator<Item = (N, V)>,
    ) -> anyhow::Result<Cluster> {
        let mut cluster = Cluster::new(3, pairs)?;
        for id in cluster.ids() {
            cluster.spawn(id)?;
        }
        for id in cluster.ids() {
            cluster.ready(id).await?;
        }
        Ok(cluster)
    }

    /// Ids of all nodes, running or not.
    pub fn ids(&self) -> Vec<u64> {
        self.setups.keys().copied().collect()
    }

    /// The data directory of a node.
    pub fn dir(&self, id: u64) -> PathBuf {
        self.root.path().join(format!("node-{id}"))
    }

    /// The folder of all of them.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    /// How a node is started; changes count from its next start.
    pub fn setup(&mut self, id: u64) -> anyhow::Result<&mut Setup> {
        self.setups.get_mut(&id).with_context(|| format!("there is no node {id}"))
    }

    /// A client of one node, whether it runs or not.
    pub fn client(&self, id: u64) -> anyhow::Result<Client> {
        let setup = self.setups.get(&id).with_context(|| format!("there is no node {id}"))?;
        setup.client()
    }

    /// A running node.
    pub fn node(&mut self, id: u64) -> anyhow::Result<&mut Broker> {
        self.running.get_mut(&id).with_context(|| format!("node {id} does not run"))
    }

    /// Starts a node and waits for nothing.
    pub fn spawn(&mut self, id: u64) -> anyhow::Result<()> {
        let setup = self.setups.get(&id).with_context(|| format!("there is no node {id}"))?;
        let broker = setup.spawn()?;
        self.running.insert(id, broker);
        Ok(())
    }

    /// Waits until a node can commit.
    pub async fn ready(&mut self, id: u64) -> anyhow::Result<()> {
        self.node(id)?.ready().await.with_context(|| format!("node {id}"))
    }

    /// Empties the data directory of a node that does not run.
    pub fn wipe(&mut self, id: u64) -> anyhow::Result<()> {
        anyhow::ensure!(!self.running.contains_key(&id), "node {id} runs");
        for entry in std::fs::read_dir(self.dir(id))? {
            let path = entry?.path();
            let gone = match path.is_dir() {
                true => std::fs::remove_dir_all(&path),
                false => std::fs::remove_file(&path),
            };
            gone.with_context(|| format!("remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Where a node listens for the others, and for clients.
    pub fn addresses(&self, id: u64) -> anyhow::Result<(String, String)> {
        let setup = self.setups.get(&id).with_context(|| format!("there is no node {id}"))?;
        let raft = setup.variables.get("QUEEN_RAFT_LISTEN").cloned().unwrap_or_default();
        Ok((raft, format!("{}:{}", setup.host, setup.port)))
    }

    /// kill -9.
    pub fn kill(&mut self, id: u64) -> anyhow::Result<()> {
        self.node(id)?.kill()?;
        self.running.remove(&id);
        Ok(())
    }

    /// SIGTERM, and an end without an error.
    pub async fn stop(&mut self, id: u64) -> anyhow::Result<()> {
        let node = self.node(id)?;
        let status = node.stop().await?;
        if !status.success() {
            bail!("node {id} ended with {status}:\n{}", node.tail());
        }
        self.running.remove(&id);
        Ok(())
    }

    /// Where a node stands; `None` when it does not answer.
    pub async fn place(&self, id: u64) -> Option<Place> {
        let answer = self.client(id).ok()?.get("/metrics").await.ok()?;
        let raft = &answer.json()["raft"];
        Some(Place {
            leads: raft["leader"].as_bool()?,
            term: raft["term"].as_u64()?,
            applied: raft["applied"].as_u64()?,
            commit: raft["commit"].as_u64()?,
        })
    }

    /// Waits until a running node leads in a later term than `after`; its id and its term.
    pub async fn leader(&self, after: u64) -> anyhow::Result<(u64, u64)> {
        let until = Instant::now() + PATIENCE;
        loop {
            for id in self.running.keys() {
                match self.place(*id).await {
                    Some(Place { leads: true, term, .. }) if term > after => {
                        return Ok((*id, term));
                    }
                    _ => {}
                }
            }
            if Instant::now() > until {
                bail!("nobody leads after {PATIENCE:?}:\n{}", self.tails());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until all running nodes have applied the same log; its last index.
    pub async fn level(&self) -> anyhow::Result<u64> {
        let until = Instant::now() + PATIENCE;
        loop {
            let mut places = Vec::new();
            for id in self.running.keys() {
                places.push(self.place(*id).await);
            }
            let applied = places.iter().map(|place| place.map(|p| (p.applied, p.commit)));
            let applied: Vec<_> = applied.collect();
            if let Some(Some((applied_here, commit))) = applied.first()
                && applied_here == commit
                && applied.iter().all(|other| other == &applied[0])
            {
                return Ok(*applied_here);
            }
            if Instant::now() > until {
                bail!("the nodes are not level after {PATIENCE:?}: {places:?}\n{}", self.tails());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The last lines of all running nodes.
    pub fn tails(&self) -> String {
        let tail = |(id, broker): (&u64, &Broker)| format!("--- node {id}\n{}\n", broker.tail());
        self.running.iter().map(tail).collect()
    }
}
