//! The raft routes over real nodes: each refusal that an operator can meet, and nodes that speak TLS.

use crate::growth::{add, learner, one_of};
use queen_sim::process::{Answer, Client, Cluster, Item};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const NONE: [(&str, &str); 0] = [];
const LEARNERS: &str = "/api/v1/system/raft/learners";
const PROMOTE: &str = "/api/v1/system/raft/promote";
const VOTERS: &str = "/api/v1/system/raft/voters";
const LONG: Duration = Duration::from_secs(60);

fn item(n: u64) -> Item {
    Item {
        queue: "q".to_owned(),
        partition: "p".to_owned(),
        transaction_id: None,
        payload: n.to_string(),
    }
}

async fn post(client: &Client, path: &str, body: Value) -> Answer {
    client.post(path, body.to_string()).await.unwrap()
}

async fn voters(client: &Client, ids: Value) -> Answer {
    client.put(VOTERS, json!({"voters": ids}).to_string()).await.unwrap()
}

/// The refusal has this status and code, and words.
fn refused(answer: &Answer, status: u16, code: &str) {
    let body = answer.json();
    assert_eq!((answer.status, &body["code"]), (status, &json!(code)), "{}", answer.text);
    assert_eq!(body["ok"], false, "{}", answer.text);
    assert!(body["error"].as_str().is_some_and(|words| words.len() > 8), "{}", answer.text);
}

#[tokio::test]
async fn a_change_of_members_that_makes_no_sense_is_refused_with_its_code() {
    let mut cluster = one_of(3);
    cluster.spawn(1).unwrap();
    cluster.ready(1).await.unwrap();
    let first = cluster.client(1).unwrap();
    let strange = learner(&mut cluster, 3);
    for body in [json!({}), json!({"id": 0, "raft": "a:1", "http": "a:2"}), json!([2])] {
        refused(&post(&first, LEARNERS, body).await, 400, "bad_request");
    }
    // Nobody answers there.
    refused(&post(&first, LEARNERS, strange).await, 400, "bad_request");
    refused(&post(&first, PROMOTE, json!({"ids": []})).await, 400, "bad_request");
    refused(&first.delete("/api/v1/system/raft/members/x").await.unwrap(), 400, "bad_request");
    refused(&post(&first, PROMOTE, json!({"ids": [2]})).await, 400, "not_a_learner");
    refused(&first.delete("/api/v1/system/raft/members/2").await.unwrap(), 400, "not_a_member");
    refused(&voters(&first, json!([1, 2])).await, 400, "not_a_member");
    refused(&voters(&first, json!([])).await, 409, "last_voter");
    refused(&first.delete("/api/v1/system/raft/members/1").await.unwrap(), 409, "last_voter");
    refused(&post(&first, PROMOTE, json!({"ids": [1]})).await, 409, "already_voter");

    add(&mut cluster, 2, &first).await;
    let mut elsewhere = learner(&mut cluster, 2);
    elsewhere["raft"] = json!("127.0.0.1:1");
    // Through the learner: the leader answers.
    let second = cluster.client(2).unwrap();
    refused(&post(&second, LEARNERS, elsewhere).await, 409, "address_mismatch");
    refused(&post(&second, PROMOTE, json!({"ids": [3]})).await, 400, "not_a_learner");

    cluster.kill(2).unwrap();
    for n in 0..1100 {
        first.push(&[item(n)]).await.unwrap();
    }
    let begin = Instant::now();
    refused(&post(&first, PROMOTE, json!({"ids": [2]})).await, 409, "learner_behind");
    println!("a learner that is behind was given up after {:?}", begin.elapsed());
    cluster.spawn(2).unwrap();
    cluster.ready(2).await.unwrap();
    let grown = post(&second, PROMOTE, json!({"ids": [2]})).await;
    assert_eq!((grown.status, &grown.json()["voters"]), (200, &json!([1, 2])), "{}", grown.text);
    let again = learner(&mut cluster, 2);
    refused(&post(&first, LEARNERS, again).await, 409, "already_voter");
    // Node 2 has just come back: that nobody would be left is said of one that stays silent, not of it.
    let left = second.delete("/api/v1/system/raft/members/1").await.unwrap();
    assert_eq!((left.status, &left.json()["voters"]), (200, &json!([2])), "{}", left.text);
}

#[tokio::test]
async fn a_node_without_a_raft_listener_has_no_members_to_change() {
    let dir = tempfile::tempdir().unwrap();
    let broker = queen_sim::process::Setup::new(dir.path()).start().await.unwrap();
    let body = json!({"id": 2, "raft": "127.0.0.1:1", "http": "127.0.0.1:2"});
    refused(&post(broker.client(), LEARNERS, body).await, 400, "bad_request");
}

/// A cluster of three and a fourth node that is up and no member.
async fn three_and_one() -> (Cluster, u64, Value) {
    let mut cluster = Cluster::new(4, NONE).unwrap();
    for id in cluster.ids() {
        let variables = &mut cluster.setup(id).unwrap().variables;
        let peers = variables["QUEEN_RAFT_PEERS"].clone();
        let founders = peers.split(',').take(3).collect::<Vec<_>>().join(",");
        variables.insert("QUEEN_RAFT_PEERS".to_owned(), founders);
    }
    let setup = cluster.setup(4).unwrap();
    setup.variables.remove("QUEEN_RAFT_PEERS");
    setup.variables.insert("QUEEN_RAFT_JOIN".to_owned(), "true".to_owned());
    for id in cluster.ids() {
        cluster.spawn(id).unwrap();
    }
    for id in [1, 2, 3] {
        cluster.ready(id).await.unwrap();
    }
    let (leader, _) = cluster.leader(0).await.unwrap();
    let fourth = learner(&mut cluster, 4);
    (cluster, leader, fourth)
}

fn others(leader: u64) -> impl Iterator<Item = u64> {
    [1, 2, 3].into_iter().filter(move |id| *id != leader)
}

/// Waits until the leader's log holds an entry that is not committed: a change is on its way.
async fn on_its_way(client: &Client) {
    let begin = Instant::now();
    loop {
        let view = client.get("/api/v1/raft/status").await.unwrap().json();
        if view["log"].as_u64() > view["commit"].as_u64() {
            return;
        }
        assert!(begin.elapsed() < LONG, "nothing is on its way: {view}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_change_that_no_majority_takes_is_in_flight_and_then_timed_out() {
    let (mut cluster, leader, fourth) = three_and_one().await;
    let client = cluster.client(leader).unwrap();
    // Empty and no member: it runs, and says that it cannot commit.
    let stranger = cluster.client(4).unwrap();
    let begin = Instant::now();
    while stranger.get("/health").await.map_or(0, |answer| answer.status) != 503 {
        assert!(begin.elapsed() < LONG, "node 4 does not say that it is no member");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for id in others(leader) {
        cluster.node(id).unwrap().signal(libc::SIGSTOP).unwrap();
    }
    let first = tokio::spawn({
        let (client, fourth) = (client.clone(), fourth.clone());
        async move { post(&client, LEARNERS, fourth).await }
    });
    on_its_way(&client).await;
    refused(&post(&client, LEARNERS, fourth.clone()).await, 409, "in_flight");
    refused(&first.await.unwrap(), 504, "timeout");
    // By now it has found out that no majority answers.
    refused(&post(&client, LEARNERS, fourth).await, 503, "leader_unreachable");
    for id in others(leader) {
        cluster.node(id).unwrap().signal(libc::SIGCONT).unwrap();
    }
    for id in [1, 2, 3] {
        cluster.ready(id).await.unwrap();
    }
}

#[tokio::test]
async fn a_change_whose_leader_is_replaced_says_so() {
    let (mut cluster, leader, fourth) = three_and_one().await;
    let (_, term) = cluster.leader(0).await.unwrap();
    let client = cluster.client(leader).unwrap();
    // Not paused: what waits in the socket of a paused one is taken later, by the next leader too.
    for id in others(leader) {
        cluster.kill(id).unwrap();
    }
    let change = tokio::spawn({
        let client = client.clone();
        async move { post(&client, LEARNERS, fourth).await }
    });
    on_its_way(&client).await;
    cluster.node(leader).unwrap().signal(libc::SIGSTOP).unwrap();
    for id in others(leader) {
        cluster.spawn(id).unwrap();
    }
    let begin = Instant::now();
    loop {
        let mut found = false;
        for id in others(leader) {
            found |= cluster.place(id).await.is_some_and(|at| at.leads && at.term > term);
        }
        if found {
            break;
        }
        assert!(begin.elapsed() < LONG, "nobody follows the leader:\n{}", cluster.tails());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.node(leader).unwrap().signal(libc::SIGCONT).unwrap();
    refused(&change.await.unwrap(), 409, "leader_changed");
}

#[tokio::test]
async fn voters_that_could_commit_nothing_are_refused() {
    let (mut cluster, leader, _) = three_and_one().await;
    let client = cluster.client(leader).unwrap();
    let body = learner(&mut cluster, 4);
    let added = post(&client, LEARNERS, body).await;
    assert_eq!(added.status, 200, "{}", added.text);
    let gone = others(leader).next().unwrap();
    cluster.kill(4).unwrap();
    cluster.kill(gone).unwrap();
    // A node counts as one that answers for three seconds: nothing tells when they are over, and
    // a change before would be taken.
    tokio::time::sleep(Duration::from_secs(4)).await;
    refused(&voters(&client, json!([leader, gone, 4])).await, 409, "no_quorum");
    let kept = others(leader).nth(1).unwrap();
    let path = format!("/api/v1/system/raft/members/{kept}");
    refused(&client.delete(&path).await.unwrap(), 409, "no_quorum");
}

/// An authority, and what it signs for this machine.
struct Authority {
    dir: tempfile::TempDir,
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let issuer = CertifiedIssuer::self_signed(params, key).unwrap();
        Authority { dir: tempfile::tempdir().unwrap(), issuer }
    }

    /// The settings of a node with a certificate of its own.
    fn settings(&self, id: u64) -> [(String, String); 3] {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let write = |name: String, text: String| {
            let path = self.dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        [
            ("QUEEN_RAFT_TLS_CA".to_owned(), write(format!("ca-{id}.pem"), self.issuer.pem())),
            ("QUEEN_RAFT_TLS_CERT".to_owned(), write(format!("cert-{id}.pem"), cert.pem())),
            ("QUEEN_RAFT_TLS_KEY".to_owned(), write(format!("key-{id}.pem"), key.serialize_pem())),
        ]
    }
}

#[tokio::test]
async fn nodes_with_certificates_form_a_cluster_and_a_foreign_one_is_refused_in_words() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let mut cluster = Cluster::new(3, NONE).unwrap();
    for id in cluster.ids() {
        cluster.setup(id).unwrap().variables.extend(ours.settings(id));
        cluster.spawn(id).unwrap();
    }
    for id in cluster.ids() {
        cluster.ready(id).await.unwrap();
    }
    for id in cluster.ids() {
        cluster.client(id).unwrap().push(&[item(id)]).await.unwrap();
    }

    cluster.stop(3).await.unwrap();
    cluster.setup(3).unwrap().variables.extend(theirs.settings(3));
    cluster.spawn(3).unwrap();
    let begin = Instant::now();
    let says =
        |cluster: &mut Cluster, id| cluster.node(id).unwrap().output().contains("certificate");
    while !(says(&mut cluster, 1) || says(&mut cluster, 2)) || !says(&mut cluster, 3) {
        assert!(begin.elapsed() < LONG, "nobody speaks of a certificate:\n{}", cluster.tails());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let health = cluster.client(3).unwrap().get("/health").await.unwrap();
    assert_eq!(health.status, 503, "{}", health.text);
    println!("{}", cluster.tails());

    cluster.stop(3).await.unwrap();
    cluster.setup(3).unwrap().variables.extend(ours.settings(3));
    cluster.spawn(3).unwrap();
    cluster.ready(3).await.unwrap();
    cluster.client(3).unwrap().push(&[item(4)]).await.unwrap();
}
