//! `/api/v1/system/kv-timers` and `/api/v1/system/ephemeral`: the kill switches.
//!
//! Owns: their JSON. Leaves to others: what each one stops.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::object;
use hyper::StatusCode;
use queen_core::switch::{SetSwitches, Switches};
use serde_json::{Map, Value, json};

/// `GET /api/v1/system/kv-timers`.
pub(crate) async fn kv_timers(call: Call) -> Result<Answer, Refusal> {
    Ok(shown(call.broker().switches()))
}

/// `POST /api/v1/system/kv-timers`.
pub(crate) async fn set_kv_timers(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let change = SetSwitches {
        kv: switch(&body, "kv")?,
        timers_schedule: switch(&body, "timersSchedule")?,
        timers_fire: switch(&body, "timersFire")?,
        ephemeral: None,
    };
    if change == SetSwitches::default() {
        let text = "the body turns no switch: kv, timersSchedule or timersFire, each true or false";
        return Err(Refusal::bad_request(text));
    }
    Ok(shown(call.broker().set_switches(change).await?))
}

/// `GET /api/v1/system/ephemeral`.
pub(crate) async fn ephemeral(call: Call) -> Result<Answer, Refusal> {
    Ok(shown_ephemeral(call.broker().switches()))
}

/// `POST /api/v1/system/ephemeral`.
pub(crate) async fn set_ephemeral(mut call: Call) -> Result<Answer, Refusal> {
    let body = call.object().await?;
    let ephemeral = switch(&body, "enabled")?;
    if ephemeral.is_none() {
        return Err(Refusal::bad_request("the body turns no switch: enabled, true or false"));
    }
    let change = SetSwitches { ephemeral, ..SetSwitches::default() };
    Ok(shown_ephemeral(call.broker().set_switches(change).await?))
}

fn shown_ephemeral(on: Switches) -> Answer {
    json(StatusCode::OK, &json!({"enabled": on.ephemeral}))
}

fn shown(on: Switches) -> Answer {
    let body = json!({"kv": on.kv, "timersSchedule": on.timers_schedule,
        "timersFire": on.timers_fire});
    json(StatusCode::OK, &body)
}

/// A switch of the body; absent and null leave it as it is.
fn switch(body: &Map<String, Value>, name: &str) -> Result<Option<bool>, Refusal> {
    object::flag(body, name).map_err(Refusal::bad_request)
}
