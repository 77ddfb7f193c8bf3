//! A network of its own for each node: namespaces joined by a bridge.
//!
//! Owns: making them, cutting and slowing links, taking all away again, also what a run that was
//! killed left behind. Leaves to others: who is cut off and when. Needs root and iproute2, and
//! nftables for links that lose.

use crate::process::Home;
use anyhow::{Context, bail};
use std::path::Path;
use std::process::Command;

/// Begins the names of namespaces, bridges and links; the owner's process id follows.
const PREFIX: &str = "qf";
/// This machine's own address, from which clients call.
const CLIENTS: u64 = 254;
/// Where the bucket answers: cut off from a node, the node goes on answering clients.
const BUCKET: u64 = 253;
/// Goes to no one: what is sent there is lost without a word, as on a cut line.
const NOBODY: &str = "02:00:00:00:00:01";
/// What a slow link carries, and how many of a hundred frames it loses: a connection over it waits
/// for its own repetitions (0.2 s and more) several times a second.
const SLOW_RATE: &str = "1mbit";
const SLOW_LOSS: u32 = 10;

/// Namespaces, bridge and links; dropped, they go.
pub struct Net {
    size: u64,
}

fn ip(arguments: &[&str]) -> anyhow::Result<String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.with_context(|| format!("run {program}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}", arguments.join(" "), said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn bridge() -> String {
    format!("{PREFIX}{}", std::process::id())
}

fn namespace(id: u64) -> String {
    format!("{}-{id}", bridge())
}

/// Below 10.64/10 of the private range, by process id, so that runs at once do not meet.
fn address(id: u64) -> String {
    let pid = std::process::id();
    format!("10.{}.{}.{id}", 64 + (pid >> 8 & 63), pid & 255)
}

/// The process that made what bears this name, if it is one of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split('-').next()?.parse().ok()
}

/// What `from` sends reaches `to` again, if it did not.
fn join(from: u64, to: u64) -> anyhow::Result<()> {
    let inside = namespace(from);
    let known = ip(&["-n", &inside, "neigh", "show", &address(to)])?;
    if known.contains("PERMANENT") {
        ip(&["-n", &inside, "neigh", "del", &address(to), "dev", "eth0"])?;
    }
    Ok(())
}

/// Changes the rules for what `id` receives.
fn nft(id: u64, rules: &str) -> anyhow::Result<()> {
    ip(&["netns", "exec", &namespace(id), "nft", rules]).map(drop)
}

/// `to` loses a part of what `from` send it.
fn lose(to: u64, from: &[u64]) -> anyhow::Result<()> {
    let from: Vec<String> = from.iter().map(|id| address(*id)).collect();
    let from = from.join(", ");
    let chain = "type filter hook ingress device eth0 priority 0";
    let rule = format!("ip saddr {{ {from} }} numgen random mod 100 < {SLOW_LOSS} drop");
    nft(to, &format!("table netdev slow {{\nchain arriving {{\n{chain};\n{rule};\n}}\n}}\n"))
}

/// Takes away what processes left that live no more.
fn sweep() -> anyhow::Result<()> {
    let dead =
        |name: &str| owner(name).is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    for line in ip(&["netns", "list"])?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        if dead(name) {
            ip(&["netns", "del", name])?;
        }
    }
    for line in ip(&["-o", "link", "show", "type", "bridge"])?.lines() {
        let name = line.split(": ").nth(1).unwrap_or_default();
        if dead(name) {
            ip(&["link", "del", name])?;
        }
    }
    Ok(())
}

impl Net {
    /// A namespace for each of so many nodes; an error that says what is missing.
    pub fn new(size: u64) -> anyhow::Result<Net> {
        sweep()?;
        let net = Net { size };
        net.make()?;
        Ok(net)
    }

    fn make(&self) -> anyhow::Result<()> {
        let bridge = bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        for own in [CLIENTS, BUCKET] {
            ip(&["addr", "add", &format!("{}/24", address(own)), "dev", &bridge])?;
        }
        ip(&["link", "set", &bridge, "up"])?;
        for id in 1..=self.size {
            let (inside, outside) = (namespace(id), format!("{bridge}-{id}"));
            ip(&["netns", "add", &inside])?;
            let peer = ["peer", "name", "eth0", "netns", &inside];
            ip(&[&["link", "add", &outside, "type", "veth"], &peer[..]].concat())?;
            ip(&["link", "set", &outside, "master", &bridge, "up"])?;
            let net = format!("{}/24", address(id));
            ip(&["-n", &inside, "addr", "add", &net, "dev", "eth0"])?;
            ip(&["-n", &inside, "link", "set", "eth0", "up"])?;
            ip(&["-n", &inside, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    /// Where the nodes run.
    pub fn homes(&self) -> Vec<Home> {
        let home = |id| Home { host: address(id), namespace: Some(namespace(id)) };
        (1..=self.size).map(home).collect()
    }

    /// Slows a link and heals it; an error that says what is missing.
    pub fn try_slow(&self) -> anyhow::Result<()> {
        self.slow(1)?;
        self.heal()
    }

    /// The address of the bucket's server.
    pub fn bucket(&self) -> String {
        address(BUCKET)
    }

    /// From now on the node does not reach the bucket.
    pub fn cut_bucket(&self, id: u64) -> anyhow::Result<()> {
        self.cut(id, BUCKET)
    }

    /// Every node reaches the bucket again.
    pub fn heal_bucket(&self) -> anyhow::Result<()> {
        (1..=self.size).try_for_each(|id| join(id, BUCKET))
    }

    /// From now on nothing that `from` sends reaches `to`.
    pub fn cut(&self, from: u64, to: u64) -> anyhow::Result<()> {
        let neighbour = ["neigh", "replace", &address(to), "lladdr", NOBODY];
        let place = ["dev", "eth0", "nud", "permanent"];
        ip(&[&["-n", &namespace(from)], &neighbour[..], &place[..]].concat()).map(drop)
    }

    /// What `id` and the other nodes send each other comes late, and in part not at all.
    pub fn slow(&self, id: u64) -> anyhow::Result<()> {
        let others: Vec<u64> = (1..=self.size).filter(|other| *other != id).collect();
        let link = format!("{}-{id}", bridge());
        let tc = |arguments: &[&str]| run("tc", arguments).map(drop);
        // Frames of no class are not held back: clients reach the node as ever.
        tc(&["qdisc", "replace", "dev", &link, "root", "handle", "1:", "htb"])?;
        let class = ["class", "add", "dev", &link, "parent", "1:", "classid", "1:2"];
        tc(&[&class[..], &["htb", "rate", SLOW_RATE]].concat())?;
        for other in &others {
            let filter = ["filter", "add", "dev", &link, "parent", "1:", "protocol", "ip", "u32"];
            let from = ["match", "ip", "src", &format!("{}/32", address(*other))];
            tc(&[&filter[..], &from, &["flowid", "1:2"]].concat())?;
            lose(*other, &[id])?;
        }
        lose(id, &others)
    }

    /// All links between nodes are whole again.
    pub fn heal(&self) -> anyhow::Result<()> {
        for id in 1..=self.size {
            for other in (1..=self.size).filter(|other| *other != id) {
                join(id, other)?;
            }
            // Errors say that it was not slowed.
            let _ = run("tc", &["qdisc", "del", "dev", &format!("{}-{id}", bridge()), "root"]);
            let _ = nft(id, "delete table netdev slow");
        }
        Ok(())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // Each on its own: what was never made is no reason to leave the rest.
        for id in 1..=self.size {
            let _ = ip(&["netns", "del", &namespace(id)]);
        }
        let _ = ip(&["link", "del", &bridge()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_its_own_are_swept() {
        assert_eq!(owner("qf123-2"), Some(123));
        assert_eq!(owner("qf123"), Some(123));
        assert_eq!(owner("qfx-2"), None);
        assert_eq!(owner("docker0"), None);
    }
}
