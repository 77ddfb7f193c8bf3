//! What a run has beside its nodes: links, a bucket, clocks, a small disk, a power switch.
//!
//! Owns: making them, saying what cannot be made, which kinds of faults there can be. Leaves to others:
//! using them (`scene`).

use super::clock::Clocks;
use super::net::Net;
use super::power::Power;
use super::schedule::{Kind, Need};
use super::sink::Bucket;
use crate::process::{Cluster, SmallDisk};
use std::collections::BTreeSet;

/// Nodes of a cluster.
const NODES: u64 = 3;
/// Megabytes of the small disk: room for a run, and little enough to fill at once.
const SMALL: u32 = 600;

/// What there is; dropped, it goes.
pub struct Means {
    /// Links that can be cut.
    pub net: Option<Net>,
    /// The server of the sink.
    pub bucket: Option<Bucket>,
    /// The nodes' wall clocks.
    pub clocks: Option<Clocks>,
    /// The disk of a node.
    pub small: Option<(u64, SmallDisk)>,
    /// A node that can lose its power.
    pub power: Option<(u64, Power)>,
    /// What was left out, and why.
    pub left_out: Vec<String>,
    has: BTreeSet<Need>,
}

impl Means {
    /// Makes what can be made, and the setups of the nodes; nothing runs yet. The seed draws whose
    /// disk is small, and who loses power.
    pub async fn find(
        seed: u64,
        variables: &[(String, String)],
    ) -> anyhow::Result<(Means, Cluster)> {
        let mut means = Means {
            net: None,
            bucket: None,
            clocks: None,
            small: None,
            power: None,
            left_out: Vec::new(),
            has: BTreeSet::new(),
        };
        means.net = means.take("cut links", Need::Links, Net::new(NODES));
        if let Some(slowed) = means.net.as_ref().map(Net::try_slow) {
            means.take("slow links", Need::SlowLinks, slowed);
        }
        let host = means.net.as_ref().map_or("127.0.0.1".to_owned(), Net::bucket);
        let bucket = Bucket::start(&host).await;
        means.bucket = means.take("the sink", Need::Bucket, bucket);
        means.clocks = means.take("clock steps", Need::Clocks, Clocks::new(NODES));
        let mut cluster = means.cluster(variables)?;
        let id = 1 + seed % NODES;
        let disk = SmallDisk::mount(&cluster.dir(id), SMALL);
        means.small = means.take("a full disk", Need::SmallDisk, disk).map(|disk| (id, disk));
        if means.small.is_some() {
            let marks = [("QUEEN_RAFT_DISK_HIGH_PCT", "95"), ("QUEEN_RAFT_DISK_LOW_PCT", "90")];
            let marks = marks.map(|(name, value)| (name.to_owned(), value.to_owned()));
            cluster.setup(id)?.variables.extend(marks);
        }
        let id = 1 + (seed + 1) % NODES;
        let power = Power::new(&cluster.dir(id));
        means.power = means.take("lost power", Need::Power, power).map(|power| (id, power));
        if let Some((_, power)) = &means.power {
            power.watch(&mut cluster.setup(id)?.variables);
        }
        Ok((means, cluster))
    }

    fn take<T>(&mut self, what: &str, need: Need, made: anyhow::Result<T>) -> Option<T> {
        match made {
            Ok(made) => {
                self.has.insert(need);
                Some(made)
            }
            Err(why) => {
                self.left_out.push(format!("{what}: {why:#}"));
                None
            }
        }
    }

    fn cluster(&self, variables: &[(String, String)]) -> anyhow::Result<Cluster> {
        let mut settings = self.bucket.as_ref().map(Bucket::settings).unwrap_or_default();
        settings.extend_from_slice(variables);
        let mut cluster = match &self.net {
            Some(net) => Cluster::at(&net.homes(), settings)?,
            None => Cluster::new(NODES as usize, settings)?,
        };
        for id in cluster.ids() {
            if let Some(clocks) = &self.clocks {
                clocks.watch(id, &mut cluster.setup(id)?.variables);
            }
        }
        Ok(cluster)
    }

    /// The kinds that are wanted (all, if none is named) and can be made.
    pub fn kinds(&self, only: &[Kind]) -> Vec<Kind> {
        let can = |kind: &Kind| kind.needs().iter().all(|need| self.has.contains(need));
        let wanted = |kind: &Kind| only.is_empty() || only.contains(kind);
        Kind::ALL.into_iter().filter(can).filter(wanted).collect()
    }
}
