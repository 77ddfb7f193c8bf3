//! `queen cluster status`: the nodes of a cluster, as a table for people.
//!
//! Owns: asking each node for its own view, with the token of `QUEEN_CLIENT_TOKEN`, and the table. Leaves to others: the views themselves
//! (`/api/v1/raft/status`).

use crate::asker::{Asker, Trust, url};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use queen_core::setting::access::CLIENT_TOKEN;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Commands about a cluster.
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show every node: who leads, how far each is, who does not answer; the exit code says
    /// whether a majority does
    Status(StatusArgs),
}

/// Arguments of the status.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where any node of the cluster answers; with https:// before it all are asked by TLS
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6632")]
    addr: String,
    /// The authority of the nodes' certificates, a PEM file [default: those of the system]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

const VIEW: &str = "/api/v1/raft/status";

/// Runs a command.
pub fn run(command: Cluster) -> anyhow::Result<()> {
    let Cluster::Status(args) = command;
    let base = url(&args.addr, "http");
    let (scheme, addr) = base.split_once("://").unwrap_or(("http", &base));
    let token = token()?;
    let trust = match (&args.ca, scheme) {
        (Some(ca), _) => Trust::Authority(ca),
        (None, "https") => Trust::System,
        (None, _) => Trust::Anybody,
    };
    let asker = Asker::new(trust)?;
    let view = |addr: &str| view(&asker, &url(addr, scheme), token.as_deref());
    let asked = view(addr).with_context(|| format!("no answer at {addr}"))?;
    let members = members(&asked, addr);
    // Each on a thread of its own: one that does not answer holds up nobody.
    let views: BTreeMap<u64, Result<Value, String>> = std::thread::scope(|scope| {
        let asking: Vec<_> = members
            .iter()
            .map(|(id, member)| {
                (*id, scope.spawn(|| view(&member.http).map_err(|error| format!("{error:#}"))))
            })
            .collect();
        let answer = |(id, thread): (u64, std::thread::ScopedJoinHandle<'_, _>)| {
            (id, thread.join().unwrap_or_else(|_| Err("could not be asked".to_owned())))
        };
        asking.into_iter().map(answer).collect()
    });
    print!("{}", table(&members, &views));
    let voters = || members.iter().filter(|(_, member)| member.voter);
    let up = voters().filter(|(id, _)| views.get(id).is_some_and(Result::is_ok)).count();
    let all = voters().count();
    if up * 2 <= all {
        bail!("{up} of {all} voters answer: without a majority nothing can be written");
    }
    Ok(())
}

/// A node, as the one that was asked knows it.
struct Member {
    raft: String,
    http: String,
    voter: bool,
}

/// The token to send, if one is set.
fn token() -> anyhow::Result<Option<String>> {
    let set = std::env::var(CLIENT_TOKEN.name).unwrap_or_default();
    let token = set.trim();
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!(CLIENT_TOKEN.refusal(Some(token), "it holds what no token can hold"));
    }
    Ok(Some(token.to_owned()).filter(|token| !token.is_empty()))
}

/// A node's own view.
fn view(asker: &Asker, base: &str, token: Option<&str>) -> anyhow::Result<Value> {
    let url = format!("{base}{VIEW}");
    let (status, body) = asker.get(&url, token)?;
    if status == 401 || status == 403 {
        bail!("{url} answered {status}: set {} to an admin's token", CLIENT_TOKEN.name);
    }
    if status != 200 {
        bail!("{url} answered {status}: is a broker of this release running there?");
    }
    serde_json::from_str(&body).with_context(|| format!("{url} answered no JSON"))
}

/// The members in a view; a single node knows no addresses and is its own.
fn members(asked: &Value, addr: &str) -> BTreeMap<u64, Member> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let listed = asked["members"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut members: BTreeMap<u64, Member> = listed
        .iter()
        .filter_map(|one| {
            let voter = one["voter"].as_bool().unwrap_or_default();
            let member = Member { raft: text(&one["raft"]), http: text(&one["http"]), voter };
            Some((one["id"].as_u64()?, member))
        })
        .collect();
    let own = asked["id"].as_u64().unwrap_or_default();
    let own = members.entry(own).or_insert_with(|| Member {
        raft: String::new(),
        http: String::new(),
        voter: false,
    });
    // The address at which it did answer.
    own.http = addr.to_owned();
    members
}

/// The table: a line for each node.
fn table(members: &BTreeMap<u64, Member>, views: &BTreeMap<u64, Result<Value, String>>) -> String {
    let newest = views.values().flatten().filter_map(|view| view["commit"].as_u64()).max();
    let mut lines =
        vec![["ID", "ROLE", "HTTP", "RAFT", "TERM", "APPLIED", "LAG", "STATE"].map(str::to_owned)];
    for (id, member) in members {
        let number = |value: &Value| value.as_u64().map_or("-".to_owned(), |n| n.to_string());
        let (role, term, applied, lag, state) = match views.get(id) {
            Some(Ok(view)) => {
                let applied = view["applied"].as_u64().unwrap_or(0);
                let lag = newest.unwrap_or(applied).saturating_sub(applied);
                let role = view["role"].as_str().unwrap_or("-").to_owned();
                (role, number(&view["term"]), applied.to_string(), lag.to_string(), state(view))
            }
            Some(Err(why)) => {
                let role = if member.voter { "voter" } else { "learner" };
                (role.to_owned(), "-".into(), "-".into(), "-".into(), format!("no answer: {why}"))
            }
            None => continue,
        };
        let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
        let (http, raft) = (shown(&member.http), shown(&member.raft));
        lines.push([id.to_string(), role, http, raft, term, applied, lag, state]);
    }
    let mut widths = [0; 8];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    for line in &lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        out.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        out.push('\n');
    }
    out
}

/// How a node that answers is, in a few words.
fn state(view: &Value) -> String {
    if let Some(why) = view["refused"].as_str() {
        return why.to_owned();
    }
    match (&view["leader"], view["storageReady"].as_bool()) {
        (Value::Null, _) => "knows no leader".to_owned(),
        (_, Some(false)) => "disk full".to_owned(),
        _ => "up".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_has_a_line_for_each_node() {
        let member = |id: u64| json!({"id": id, "raft": format!("q{id}:7400"), "http": format!("q{id}:6632"), "voter": true});
        let view = |id: u64, role: &str, applied: u64| {
            json!({"id": id, "role": role, "term": 3, "applied": applied, "commit": applied,
                "leader": {"id": 1}, "storageReady": true,
                "members": [member(1), member(2), member(3)]})
        };
        let members = members(&view(1, "leader", 120), "127.0.0.1:6632");
        let mut full = view(2, "follower", 118);
        full["storageReady"] = json!(false);
        let views = BTreeMap::from([
            (1, Ok(view(1, "leader", 120))),
            (2, Ok(full)),
            (3, Err("connection refused".to_owned())),
        ]);
        let want = "\
ID  ROLE      HTTP            RAFT     TERM  APPLIED  LAG  STATE
1   leader    127.0.0.1:6632  q1:7400  3     120      0    up
2   follower  q2:6632         q2:7400  3     118      2    disk full
3   voter     q3:6632         q3:7400  -     -        -    no answer: connection refused
";
        assert_eq!(table(&members, &views), want);
    }
}
