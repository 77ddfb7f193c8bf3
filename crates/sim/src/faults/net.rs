//! A network of its own for each node: namespaces joined by a bridge.
//!
//! Owns: making them, cutting and slowing links, taking all away again, also what a run that was
//! killed left behind. Leaves to others: who is cut off and when. Needs root and iproute2.

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

/// Namespaces, bridge and links; dropped, they go.
pub struct Net {
    size: u64,
    /// Links can be slowed: the kernel has the netem discipline.
    slows: bool,
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
        let mut net = Net { size, slows: false };
        net.make()?;
        let link = format!("{}-1", bridge());
        net.slows = run("tc", &["qdisc", "replace", "dev", &link, "root", "netem", "delay", "1ms"])
            .and_then(|_| run("tc", &["qdisc", "del", "dev", &link, "root"]))
            .is_ok();
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

    /// Whether links can be slowed.
    pub fn slows(&self) -> bool {
        self.slows
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

    /// What `id` is sent comes late, out of order, and in part not at all.
    pub fn slow(&self, id: u64) -> anyhow::Result<()> {
        let link = format!("{}-{id}", bridge());
        let how = ["netem", "delay", "60ms", "30ms", "loss", "5%"];
        run("tc", &[&["qdisc", "replace", "dev", &link, "root"], &how[..]].concat()).map(drop)
    }

    /// All links between nodes are whole again.
    pub fn heal(&self) -> anyhow::Result<()> {
        for id in 1..=self.size {
            for other in (1..=self.size).filter(|other| *other != id) {
                join(id, other)?;
            }
            if self.slows {
                // An error says that it was not slowed.
                let link = format!("{}-{id}", bridge());
                let _ = run("tc", &["qdisc", "del", "dev", &link, "root"]);
            }
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
