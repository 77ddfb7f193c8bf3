//! The settings of a cluster, read from the environment.
//!
//! Owns: the list of peers, what must be set together, and the words of each refusal. Leaves to
//! others: names and defaults (`queen_core::setting::broker`), what the log does with them.
//! Upholds: the token is in no refusal.

use crate::environment::Environment;
use queen_broker::cluster::{ClusterOptions, Peer, TlsFiles};
use queen_core::setting::broker;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Shortest token that is taken: one can be tried out as fast as the network carries tries.
const TOKEN_BYTES_MIN: usize = 16;
/// Bounds of an election timeout, in milliseconds.
const ELECTION_MS: (u64, u64) = (100, 60_000);

/// How this node takes part in a cluster; `None` when it runs alone, or when something is wrong.
pub fn read(environment: &Environment, node_id: u64) -> Option<ClusterOptions> {
    let asked = environment.word(&broker::REPLICATOR);
    let join = environment.switch(&broker::JOIN);
    let listed = environment.get(broker::PEERS.name);
    let wanted = join || listed.is_some();
    match (asked, wanted) {
        (Some("local"), true) => {
            let named = if join { "QUEEN_RAFT_JOIN" } else { "QUEEN_RAFT_PEERS" };
            environment.refuse(
                broker::REPLICATOR.name,
                format!("a node of a cluster was asked for by {named}: unset that one, or use"),
                "openraft",
            );
            return None;
        }
        (Some("openraft"), false) => {
            environment.complain(broker::PEERS.missing());
            return None;
        }
        (None, false) if environment.get(broker::LISTEN.name).is_some() => {
            environment.complain(format!(
                "{} is set, but nothing says of which cluster this node is: name it in {}, alone \
                 when the others are still to be added, or set {}=true on a node that is to be added",
                broker::LISTEN.name,
                broker::PEERS.name,
                broker::JOIN.name
            ));
            return None;
        }
        (_, false) => return None,
        (_, true) => {}
    }
    let peers = match listed.map(read_peers) {
        Some(Ok(peers)) => peers,
        Some(Err(wrong)) => {
            environment.complain(broker::PEERS.refusal(listed, &wrong));
            return None;
        }
        None => BTreeMap::new(),
    };
    if !join && !peers.contains_key(&node_id) {
        let ids: Vec<String> = peers.keys().map(u64::to_string).collect();
        let wrong = format!("is not one of QUEEN_RAFT_PEERS ({})", ids.join(", "));
        environment.refuse(broker::NODE_ID.name, wrong, peers.keys().next().unwrap_or(&1));
        return None;
    }
    let listen = listen(environment, peers.get(&node_id));
    let token = token(environment);
    let tls = tls(environment);
    let election = election(environment);
    Some(ClusterOptions {
        peers,
        join,
        listen: listen?,
        token: token?,
        tls: tls?,
        election: election?,
    })
}

/// Reads `id=raftHost:port/httpHost:port,...`; the error says which part is wrong and what is right.
fn read_peers(text: &str) -> Result<BTreeMap<u64, Peer>, String> {
    let mut peers = BTreeMap::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let wrong = |what: &str| {
            format!(
                "{part:?} {what}; each node is id=raftHost:port/httpHost:port, for example {}",
                broker::PEERS.example.split(',').next().unwrap_or_default()
            )
        };
        let (id, addresses) = part.split_once('=').ok_or_else(|| wrong("has no ="))?;
        let id = id.trim().parse::<u32>().ok().filter(|id| *id > 0);
        let id = id.ok_or_else(|| wrong("does not begin with a number of 1 to 4294967295"))?;
        let (raft, http) = addresses.split_once('/').ok_or_else(|| wrong("has no /"))?;
        for address in [raft, http] {
            if !is_address(address) {
                return Err(wrong(&format!("has {address:?}, which is no host:port")));
            }
        }
        let peer = Peer { raft: raft.to_owned(), http: http.to_owned() };
        if peers.values().any(|other: &Peer| other.raft == peer.raft) {
            return Err(wrong("has the raft address of another node"));
        }
        if peers.insert(u64::from(id), peer).is_some() {
            return Err(wrong("has an id that is there before"));
        }
    }
    match peers.is_empty() {
        true => Err("names no node".to_owned()),
        false => Ok(peers),
    }
}

/// Whether a text is `host:port`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Where the raft listener binds: as said, or on every address at the port that the others know.
fn listen(environment: &Environment, own: Option<&Peer>) -> Option<SocketAddr> {
    let own_port = own.and_then(|peer| peer.raft.rsplit_once(':')?.1.parse().ok());
    match (environment.get(broker::LISTEN.name), own_port) {
        (None, Some(port)) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
        (None, None) => {
            environment.complain(broker::LISTEN.missing());
            None
        }
        (Some(text), _) => {
            let parsed = text.parse();
            if parsed.is_err() {
                let wrong = "is no IP address and port of this machine";
                environment.refuse(broker::LISTEN.name, wrong, broker::LISTEN.example);
            }
            parsed.ok()
        }
    }
}

fn token(environment: &Environment) -> Option<String> {
    let token = environment.get(broker::TOKEN.name);
    let wrong = match token {
        Some(token) if token.len() >= TOKEN_BYTES_MIN => return Some(token.to_owned()),
        Some(_) => {
            let why = format!(
                "is shorter than {TOKEN_BYTES_MIN} characters; take the same one on every node, such \
                 as {} makes",
                broker::TOKEN.example
            );
            broker::TOKEN.refusal(token, &why)
        }
        None => broker::TOKEN.missing(),
    };
    environment.complain(wrong);
    None
}

/// The files of mutual TLS: all, or none.
#[allow(clippy::option_option)] // wrong, off, or on
fn tls(environment: &Environment) -> Option<Option<TlsFiles>> {
    let files = environment.together([&broker::TLS_CA, &broker::TLS_CERT, &broker::TLS_KEY])?;
    Some(files.map(|[ca, cert, key]| TlsFiles {
        ca: ca.into(),
        cert: cert.into(),
        key: key.into(),
    }))
}

/// Reads `low..high`, in milliseconds.
fn election(environment: &Environment) -> Option<(Duration, Duration)> {
    let Some(text) = environment.get(broker::ELECTION_MS.name) else {
        return Some(ClusterOptions::ELECTION);
    };
    let bounds = text.split_once("..").and_then(|(low, high)| {
        Some((low.trim().parse::<u64>().ok()?, high.trim().parse::<u64>().ok()?))
    });
    let (least, most) = ELECTION_MS;
    match bounds {
        Some((low, high)) if least <= low && low < high && high <= most => {
            Some((Duration::from_millis(low), Duration::from_millis(high)))
        }
        _ => {
            let wrong = format!("is no range low..high of {least} to {most} milliseconds");
            environment.refuse(broker::ELECTION_MS.name, wrong, broker::ELECTION_MS.example);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEERS: &str = "1=queen-1:7400/queen-1:6632,2=queen-2:7400/queen-2:6632";
    const TOKEN: &str = "0123456789abcdef";

    fn try_read(pairs: &[(&str, &str)], id: u64) -> (Option<ClusterOptions>, Vec<String>) {
        let owned = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        let environment = Environment::from_pairs(owned);
        (read(&environment, id), environment.take_problems())
    }

    fn one_problem(pairs: &[(&str, &str)], id: u64) -> String {
        let (cluster, problems) = try_read(pairs, id);
        assert!(cluster.is_none());
        assert_eq!(problems.len(), 1, "{problems:#?}");
        problems.into_iter().next().unwrap()
    }

    #[test]
    fn peers_and_a_token_make_a_cluster() {
        let (cluster, problems) =
            try_read(&[("QUEEN_RAFT_PEERS", PEERS), ("QUEEN_RAFT_TOKEN", TOKEN)], 2);
        assert_eq!(problems, Vec::<String>::new());
        let cluster = cluster.unwrap();
        assert_eq!(cluster.listen.to_string(), "0.0.0.0:7400");
        assert_eq!(cluster.peers[&2].http, "queen-2:6632");
        assert!(!cluster.join && cluster.tls.is_none());
        assert!(!format!("{cluster:?}").contains(TOKEN));
        assert!(try_read(&[], 1).0.is_none());
    }

    #[test]
    fn a_node_that_joins_needs_a_listener_and_no_peers() {
        let pairs = [
            ("QUEEN_RAFT_JOIN", "true"),
            ("QUEEN_RAFT_TOKEN", TOKEN),
            ("QUEEN_RAFT_LISTEN", "127.0.0.1:7400"),
            ("QUEEN_RAFT_ELECTION_MS", "300..600"),
        ];
        let (cluster, problems) = try_read(&pairs, 4);
        assert_eq!(problems, Vec::<String>::new());
        let cluster = cluster.unwrap();
        assert!(cluster.join && cluster.peers.is_empty());
        assert_eq!(cluster.election.1, Duration::from_millis(600));
        let problem = one_problem(&pairs[..2], 4);
        assert!(problem.starts_with("QUEEN_RAFT_LISTEN: not set, and needed"), "{problem}");
    }

    #[test]
    fn each_fault_names_the_variable_the_value_and_the_way_out() {
        let with = |name, value| {
            let base = [("QUEEN_RAFT_PEERS", PEERS), ("QUEEN_RAFT_TOKEN", TOKEN)];
            let kept = base.into_iter().filter(|(n, _)| *n != name).chain([(name, value)]);
            one_problem(&kept.collect::<Vec<_>>(), 1)
        };
        for (peers, wrong) in [
            ("1=a:1", "has no /"),
            ("a:1/b:1", "has no ="),
            ("0=a:1/b:1", "does not begin with a number"),
            ("1=a/b:1", "\"a\", which is no host:port"),
            ("1=a:1/b:1,1=c:1/d:1", "has an id that is there before"),
            ("1=a:1/b:1,2=a:1/d:1", "has the raft address of another node"),
            (",", "names no node"),
        ] {
            let problem = with("QUEEN_RAFT_PEERS", peers);
            assert!(problem.starts_with(&format!("QUEEN_RAFT_PEERS={peers}: ")), "{problem}");
            assert!(problem.contains(wrong), "{problem}");
        }
        let problem = with("QUEEN_RAFT_TOKEN", "short");
        assert!(problem.contains("16 characters") && !problem.contains("short;"), "{problem}");
        assert!(problem.starts_with("QUEEN_RAFT_TOKEN=<redacted>"), "{problem}");
        assert!(with("QUEEN_RAFT_ELECTION_MS", "5").starts_with("QUEEN_RAFT_ELECTION_MS=5: "));
        assert!(with("QUEEN_RAFT_LISTEN", "x").starts_with("QUEEN_RAFT_LISTEN=x: "));
        assert!(with("QUEEN_RAFT_REPLICATOR", "local").contains("QUEEN_RAFT_PEERS"));
        let id = one_problem(&[("QUEEN_RAFT_PEERS", PEERS), ("QUEEN_RAFT_NODE_ID", "3")], 3);
        assert!(id.contains("is not one of QUEEN_RAFT_PEERS (1, 2)"), "{id}");
        let unsaid = one_problem(&[("QUEEN_RAFT_LISTEN", "0.0.0.0:7400")], 1);
        assert!(unsaid.contains("name it in QUEEN_RAFT_PEERS"), "{unsaid}");
        let alone = one_problem(&[("QUEEN_RAFT_REPLICATOR", "openraft")], 1);
        assert!(alone.starts_with("QUEEN_RAFT_PEERS: not set, and needed"), "{alone}");
    }

    #[test]
    fn tls_needs_all_of_its_files() {
        let pairs = [
            ("QUEEN_RAFT_PEERS", PEERS),
            ("QUEEN_RAFT_TOKEN", TOKEN),
            ("QUEEN_RAFT_TLS_CA", "ca.pem"),
            ("QUEEN_RAFT_TLS_CERT", "node.pem"),
            ("QUEEN_RAFT_TLS_KEY", "node.key"),
        ];
        let files = try_read(&pairs, 1).0.unwrap().tls.unwrap();
        assert_eq!(files.key, std::path::PathBuf::from("node.key"));
        let problem = one_problem(&pairs[..4], 1);
        assert!(problem.starts_with("QUEEN_RAFT_TLS_KEY: not set, and needed"), "{problem}");
    }
}
