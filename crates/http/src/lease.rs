//! `POST /api/v1/lease/:leaseId/extend`: more time for a batch.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use hyper::StatusCode;
use queen_core::LeaseId;
use queen_core::command::ExtendLease;
use queen_core::reply::LeaseExtended;
use serde_json::{Map, Value, json};

/// Seconds when the request does not say.
const SECONDS_DEFAULT: u32 = 60;

/// `POST /api/v1/lease/:leaseId/extend`.
pub(crate) async fn extend(mut call: Call) -> Result<Answer, Refusal> {
    let seconds = seconds(&call.object().await?)?;
    let text = call.param(0).to_owned();
    let extended = match LeaseId::parse(&text) {
        Some(lease) => {
            let extend = ExtendLease { tenant: call.tenant(), lease, seconds };
            Some(call.broker().extend_lease(extend).await?)
        }
        None => None,
    };
    Ok(json(StatusCode::OK, &body(&text, extended.filter(|extended| extended.claims > 0))))
}

fn body(lease: &str, extended: Option<LeaseExtended>) -> Value {
    let until = extended.map(|extended| extended.expires_at.to_iso());
    json!({
        "leaseId": lease,
        "success": extended.is_some(),
        "renewed": extended.map_or(0, |extended| extended.claims),
        "newExpiresAt": until,
        "expiresAt": until,
        "lease_expires_at": until,
    })
}

fn seconds(body: &Map<String, Value>) -> Result<u32, Refusal> {
    match body.get("seconds") {
        None | Some(Value::Null) => Ok(SECONDS_DEFAULT),
        Some(value) => match value.as_f64() {
            Some(seconds) => Ok(seconds.clamp(1.0, f64::from(u32::MAX)) as u32),
            None => Err(Refusal::bad_request(format!("seconds: {value} is not a number"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use queen_core::Stamp;

    #[test]
    fn seconds_are_sixty_by_default_and_at_least_one() {
        let of = |value: Value| seconds(value.as_object().unwrap()).ok();
        assert_eq!(of(json!({})), Some(60));
        assert_eq!(of(json!({"seconds": null})), Some(60));
        assert_eq!(of(json!({"seconds": 0})), Some(1));
        assert_eq!(of(json!({"seconds": -5})), Some(1));
        assert_eq!(of(json!({"seconds": 90})), Some(90));
        assert_eq!(of(json!({"seconds": "x"})), None);
    }

    #[test]
    fn a_lease_that_is_not_live_has_no_times() {
        let dead = body("x", None);
        assert_eq!(dead["success"], false);
        assert!(dead["newExpiresAt"].is_null() && dead["lease_expires_at"].is_null());
        let live = body("x", Some(LeaseExtended { claims: 2, expires_at: Stamp(0) }));
        assert_eq!((&live["renewed"], &live["success"]), (&json!(2), &json!(true)));
        assert_eq!(live["expiresAt"], "1970-01-01T00:00:00.000000Z");
    }
}
