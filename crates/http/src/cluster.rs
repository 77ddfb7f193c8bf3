//! The raft routes: how this node stands, who the members are, changes of members.
//!
//! Owns: their JSON, and the status of each refusal. Leaves to others: the changes themselves
//! (`queen-broker`, `queen-raft`). Any node takes a change; the leader carries it out.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use hyper::StatusCode;
use queen_broker::cluster::{ClusterView, Leader, Members, MembershipCode, MembershipError, Peer};
use serde_json::{Map, Value, json};

/// `GET /api/v1/raft/status`: this node's own view.
pub(crate) async fn status(call: Call) -> Result<Answer, Refusal> {
    let standing = call.broker().standing();
    let Some(ClusterView { raft, leader, storage_full }) = call.broker().cluster() else {
        return Err(queen_core::Error::new(queen_core::Code::Retry, "the log is starting").into());
    };
    let followers = raft.matched.iter().map(|(id, matched)| {
        json!({
            "id": id,
            "matched": matched,
            "lag": raft.last.unwrap_or(0).saturating_sub(matched.unwrap_or(0)),
            "storageReady": storage_full.get(id).map(|full| !full),
        })
    });
    let body = json!({
        "id": raft.id,
        "role": raft.role.name(),
        "term": raft.term,
        "leader": leader.as_ref().map(leader_json),
        "log": raft.last,
        "commit": standing.committed,
        "applied": standing.applied,
        "durable": standing.durable,
        "lag": standing.committed.saturating_sub(standing.applied),
        "storageReady": !standing.storage_full,
        "quorumAckMs": raft.quorum_ack_ms,
        "refused": raft.refused,
        "followers": followers.collect::<Value>(),
        "members": members_json(&raft.members),
        "version": call.face.options.version,
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/raft/members`: the members as this node sees them.
pub(crate) async fn members(call: Call) -> Result<Answer, Refusal> {
    let members = call.broker().cluster().map(|view| view.raft.members).unwrap_or_default();
    Ok(shown(&members))
}

/// `GET /api/v1/system/raft/membership`: the members as committed now.
pub(crate) async fn membership(call: Call) -> Result<Answer, Refusal> {
    Ok(shown(&call.broker().membership().await?))
}

/// `POST /api/v1/system/raft/learners` `{id, raft, http}`.
pub(crate) async fn add_learner(mut call: Call) -> Result<Answer, Refusal> {
    let body = object(&mut call).await?;
    let id = id_of(body.get("id"), "id")?;
    let address = |name: &str| match body.get(name).and_then(Value::as_str) {
        Some(text) if is_address(text) => Ok(text.to_owned()),
        _ => Err(bad(format!("{name}: needed as host:port, such as \"queen-4:7400\""))),
    };
    let peer = Peer { raft: address("raft")?, http: address("http")? };
    changed(call.broker().add_learner(id, peer).await)
}

/// `POST /api/v1/system/raft/promote` `{ids}`.
pub(crate) async fn promote(mut call: Call) -> Result<Answer, Refusal> {
    let ids = ids(&mut call, "ids").await?;
    changed(call.broker().promote(ids).await)
}

/// `PUT /api/v1/system/raft/voters` `{voters}`.
pub(crate) async fn set_voters(mut call: Call) -> Result<Answer, Refusal> {
    let ids = ids(&mut call, "voters").await?;
    changed(call.broker().set_voters(ids).await)
}

/// `DELETE /api/v1/system/raft/members/:id`.
pub(crate) async fn remove(call: Call) -> Result<Answer, Refusal> {
    let id = call.param(0).parse::<u32>().ok().filter(|id| *id > 0);
    let id = id.ok_or_else(|| bad(format!("{:?} is no node id", call.param(0))))?;
    changed(call.broker().remove_member(u64::from(id)).await)
}

fn leader_json(leader: &Leader) -> Value {
    json!({"id": leader.id, "term": leader.term, "raft": leader.raft, "http": leader.http})
}

fn members_json(members: &Members) -> Value {
    let one = |(id, peer): (&u64, &Peer)| {
        let voter = members.voters.contains(id);
        json!({"id": id, "raft": peer.raft, "http": peer.http, "voter": voter})
    };
    members.peers.iter().map(one).collect()
}

fn shown(members: &Members) -> Answer {
    let body = json!({
        "ok": true,
        "voters": members.voters,
        "learners": members.learners,
        "members": members_json(members),
    });
    json(StatusCode::OK, &body)
}

fn changed(done: Result<Members, MembershipError>) -> Result<Answer, Refusal> {
    match done {
        Ok(members) => Ok(shown(&members)),
        Err(MembershipError { code, text }) => {
            Err(Refusal::Members(status_of(code), code.name(), text))
        }
    }
}

fn status_of(code: MembershipCode) -> StatusCode {
    match code {
        MembershipCode::BadRequest | MembershipCode::NotALearner | MembershipCode::NotAMember => {
            StatusCode::BAD_REQUEST
        }
        MembershipCode::LeaderUnreachable => StatusCode::SERVICE_UNAVAILABLE,
        MembershipCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::CONFLICT,
    }
}

fn bad(text: String) -> Refusal {
    let code = MembershipCode::BadRequest;
    Refusal::Members(status_of(code), code.name(), text)
}

async fn object(call: &mut Call) -> Result<Map<String, Value>, Refusal> {
    call.object().await.map_err(|refusal| match refusal {
        Refusal::Plain(error) => bad(error.text),
        other => other,
    })
}

async fn ids(call: &mut Call, name: &str) -> Result<Vec<u64>, Refusal> {
    let body = object(call).await?;
    let Some(Value::Array(ids)) = body.get(name) else {
        return Err(bad(format!("{name}: needed, an array of node ids such as [1, 2, 3]")));
    };
    ids.iter().map(|id| id_of(Some(id), name)).collect()
}

fn id_of(value: Option<&Value>, name: &str) -> Result<u64, Refusal> {
    let id = value.and_then(Value::as_u64).filter(|id| (1..=u64::from(u32::MAX)).contains(id));
    id.ok_or_else(|| bad(format!("{name}: a node id is a whole number of 1 to {}", u32::MAX)))
}

/// Whether a text is `host:port`.
fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        assert!(["queen-1:7400", "10.0.0.1:1", "[::1]:7400"].into_iter().all(is_address));
        assert!(!["queen-1", ":7400", "queen-1:0", "queen-1:x", ""].into_iter().any(is_address));
    }

    #[test]
    fn each_refusal_has_the_status_of_the_contract() {
        let status = |code| status_of(code).as_u16();
        for code in MembershipCode::ALL {
            let want = match code.name() {
                "bad_request" | "not_a_learner" | "not_a_member" => 400,
                "leader_unreachable" => 503,
                "timeout" => 504,
                _ => 409,
            };
            assert_eq!(status(code), want, "{}", code.name());
        }
    }
}
