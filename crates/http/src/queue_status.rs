//! `GET /api/v1/status/queues` and one of them: counts of queues beside their options.
//!
//! Owns: their pages. Leaves to others: what is counted (`queue`), the figures over time (`analytics`).

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::queue::{counted, row, stats};
use hyper::StatusCode;
use queen_broker::queues::Progress;
use serde_json::{Value, json};

/// Queues of one page.
const LIMIT_DEFAULT: i64 = 100;
const LIMIT_MAX: i64 = 1000;

/// `GET /api/v1/status/queues`: in name order. Only the queues of the page are counted.
pub(crate) async fn list(call: Call) -> Result<Answer, Refusal> {
    let (query, broker) = (call.query(), call.broker());
    let number = |name| query.number(name).map_err(Refusal::bad_request);
    let limit = number("limit")?.unwrap_or(LIMIT_DEFAULT).clamp(1, LIMIT_MAX) as usize;
    let offset = usize::try_from(number("offset")?.unwrap_or(0).max(0)).unwrap_or(usize::MAX);
    let [namespace, task] = ["namespace", "task"].map(|name| query.get(name));
    let mut queues = broker.queues(call.tenant()).await?;
    queues.retain(|queue| {
        let options = &queue.row.options;
        namespace.as_deref().is_none_or(|name| name == options.namespace)
            && task.as_deref().is_none_or(|name| name == options.task)
    });
    let mut rows = Vec::new();
    for queue in queues.iter().skip(offset).take(limit) {
        let totals = broker.count_queue(queue, Progress::FurthestBehind, |_| {}).await?;
        let mut shown = row(queue, &totals);
        shown.insert("messages".to_owned(), stats(&totals.messages, totals.dead_letters));
        rows.push(Value::Object(shown));
    }
    let pagination = json!({"limit": limit, "offset": offset, "total": queues.len()});
    Ok(json(StatusCode::OK, &json!({"queues": rows, "pagination": pagination})))
}

/// `GET /api/v1/status/queues/:queue`.
pub(crate) async fn detail(call: Call) -> Result<Answer, Refusal> {
    let (queue, totals, partitions) = counted(&call).await?;
    let mut shown = row(&queue, &totals);
    shown.insert("config".to_owned(), Value::Object(queue.row.options.to_json()));
    let totals = stats(&totals.messages, totals.dead_letters);
    let body = json!({"queue": shown, "partitions": partitions, "totals": totals});
    Ok(json(StatusCode::OK, &body))
}
