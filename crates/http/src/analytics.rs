//! Status and analytics over time: what this node did, in points of a few minutes each.
//!
//! Owns: the span of a request, its points, the JSON of the pages. Leaves to others: the minutes
//! (`queen_broker`, a day of them, from each start on), counts of queues (`queue`).
//!
//! In a cluster each node says what went through it: `node` says which one answered.

use crate::answer::{Answer, Refusal, json};
use crate::call::Call;
use crate::query::Query;
use hyper::StatusCode;
use queen_broker::history::{Figures, Gauges, Minute};
use queen_broker::queues::{Progress, Totals};
use queen_core::Stamp;
use serde_json::{Value, json};

/// How far back a page reaches when the request does not say, seconds.
const SPAN_SECONDS: u64 = 3600;
/// Points of a page, unless the request says how long each is.
const POINTS_MAX: u64 = 120;
const MINUTE_MICROS: u64 = 60_000_000;
/// Minutes of a point, at most.
const BUCKET_MINUTES_MAX: i64 = 24 * 60;

/// The time a page is about, and the length of its points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    from: Stamp,
    to: Stamp,
    bucket_minutes: u64,
}

/// Minutes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Point {
    at: Stamp,
    micros: u64,
    figures: Figures,
    /// As at the end.
    gauges: Gauges,
}

impl Span {
    fn read(query: Query<'_>, now: Stamp) -> Result<Span, String> {
        let to = query.time("to")?.unwrap_or(now);
        let from = query.time("from")?.unwrap_or_else(|| to.minus_seconds(SPAN_SECONDS));
        if from > to {
            return Err(format!("from: {} is after to, {}", from.to_iso(), to.to_iso()));
        }
        let minutes = (to.0 - from.0).div_ceil(MINUTE_MICROS);
        let asked = query.number("bucketMinutes")?.map(|m| m.clamp(1, BUCKET_MINUTES_MAX) as u64);
        let interval = query.get("interval").map(|word| interval(&word)).transpose()?;
        let fitting = minutes.div_ceil(POINTS_MAX).max(1);
        Ok(Span { from, to, bucket_minutes: asked.or(interval).unwrap_or(fitting) })
    }

    /// The points, oldest first; a time in which the node did not run has none.
    fn points(&self, minutes: &[Minute]) -> Vec<Point> {
        let length = self.bucket_minutes * MINUTE_MICROS;
        let mut points: Vec<Point> = Vec::new();
        for minute in minutes {
            let at = Stamp(minute.start.0 / length * length);
            if points.last().is_none_or(|last| last.at != at) {
                points.push(Point { at, ..Point::default() });
            }
            if let Some(point) = points.last_mut() {
                point.micros += minute.end.0.saturating_sub(minute.start.0);
                point.figures = point.figures.plus(&minute.figures);
                point.gauges = minute.gauges;
            }
        }
        points
    }

    fn range(&self) -> Value {
        json!({"from": self.from.to_iso(), "to": self.to.to_iso()})
    }
}

/// Minutes of a named length.
fn interval(word: &str) -> Result<u64, String> {
    match word {
        "minute" => Ok(1),
        "hour" => Ok(60),
        "day" => Ok(24 * 60),
        _ => Err(format!("parameter interval: {word:?} is none of minute, hour, day")),
    }
}

impl Point {
    /// So many a second, to hundredths.
    fn rate(&self, count: u64) -> f64 {
        let seconds = (self.micros as f64 / 1e6).max(1.0);
        (count as f64 / seconds * 100.0).round() / 100.0
    }

    fn throughput(&self) -> Value {
        let figures = &self.figures;
        let (pushed, popped, acked) =
            (figures.push_messages, figures.pop_messages, figures.ack_messages);
        json!({
            "timestamp": self.at.to_iso(),
            "ingested": pushed,
            "processed": popped,
            "acked": acked,
            "ingestedPerSecond": self.rate(pushed),
            "processedPerSecond": self.rate(popped),
            "ackedPerSecond": self.rate(acked),
        })
    }

    fn work(&self) -> Value {
        let mut shown = self.throughput();
        let figures = &self.figures;
        shown["pushRequests"] = json!(figures.push_requests);
        shown["popRequests"] = json!(figures.pop_requests);
        shown["ackRequests"] = json!(figures.ack_requests);
        shown["transactions"] = json!(figures.transactions);
        shown["overloaded"] = json!(figures.overloaded);
        shown["storageFull"] = json!(figures.storage_full);
        shown["timeouts"] = json!(figures.timeouts);
        shown["parkedLongPolls"] = json!(self.gauges.parked);
        shown
    }

    fn system(&self) -> Value {
        json!({
            "timestamp": self.at.to_iso(),
            "cpuPercent": self.rate(self.figures.cpu_micros / 10_000),
            "memoryBytes": self.gauges.resident_bytes,
            "parkedLongPolls": self.gauges.parked,
            "waitingCommands": self.gauges.waiting,
        })
    }
}

/// All points as one.
fn sum(points: &[Point]) -> Point {
    let add = |all: Point, one: &Point| Point {
        at: one.at,
        micros: all.micros + one.micros,
        figures: all.figures.plus(&one.figures),
        gauges: one.gauges,
    };
    points.iter().fold(Point::default(), add)
}

fn look(call: &Call) -> Result<(Span, Vec<Point>), Refusal> {
    let broker = call.broker();
    let span = Span::read(call.query(), broker.now()).map_err(Refusal::bad_request)?;
    let points = span.points(&broker.history(span.from, span.to));
    Ok((span, points))
}

/// What went in and out a second, over the last minute.
pub(crate) fn rates(call: &Call) -> (u64, u64) {
    let now = call.broker().now();
    let span = Span { from: now.minus_seconds(60), to: now, bucket_minutes: 1 };
    // A command of this very moment is stamped after `now`.
    let last = sum(&span.points(&call.broker().history(span.from, Stamp::MAX)));
    let rate = |count| last.rate(count).round() as u64;
    (rate(last.figures.push_messages), rate(last.figures.pop_messages))
}

/// This node as a worker.
fn worker(call: &Call) -> Value {
    let standing = call.broker().standing();
    json!({
        "workerId": standing.node.to_string(),
        "role": standing.role.name(),
        "uptimeSeconds": call.face.started.elapsed().as_secs(),
        "parkedLongPolls": standing.parked,
        "waitingCommands": standing.waiting,
    })
}

/// `GET /api/v1/status`.
pub(crate) async fn status(call: Call) -> Result<Answer, Refusal> {
    let (span, points) = look(&call)?;
    let broker = call.broker();
    let (mut all, mut pending) = (Totals::default(), 0_u64);
    let queues = broker.queues(call.tenant()).await?;
    for queue in &queues {
        let totals = broker.count_queue(queue, Progress::FurthestBehind, |_| {}).await?;
        all.dead_letters += totals.dead_letters;
        all.messages.total += totals.messages.total;
        all.messages.pending += totals.messages.pending;
        all.messages.processing += totals.messages.processing;
        all.messages.completed += totals.messages.completed;
        pending += u64::from(totals.messages.pending > 0);
    }
    let (messages, figures) = (&all.messages, sum(&points).figures);
    let body = json!({
        "node": broker.standing().node,
        "timeRange": span.range(),
        "bucketMinutes": span.bucket_minutes,
        "pointCount": points.len(),
        "statsAge": 0,
        "throughput": points.iter().map(Point::throughput).collect::<Vec<_>>(),
        "workers": [worker(&call)],
        "queues": {"total": queues.len(), "withPending": pending},
        "messages": {
            "total": messages.total,
            "pending": messages.pending,
            "processing": messages.processing,
            "completed": messages.completed,
            "deadLetter": all.dead_letters,
        },
        "leases": {"active": broker.count_leases().await?},
        "deadLetterQueue": {"total": all.dead_letters},
        "errors": {
            "overloaded": figures.overloaded,
            "storageFull": figures.storage_full,
            "timeouts": figures.timeouts,
        },
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/status/analytics`.
pub(crate) async fn analytics(call: Call) -> Result<Answer, Refusal> {
    let (span, points) = look(&call)?;
    let body = json!({
        "node": call.broker().standing().node,
        "interval": format!("{}m", span.bucket_minutes),
        "from": span.from.to_iso(),
        "to": span.to.to_iso(),
        "dataPoints": points.iter().map(Point::work).collect::<Vec<_>>(),
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/analytics/system-metrics`.
pub(crate) async fn system_metrics(call: Call) -> Result<Answer, Refusal> {
    let (span, points) = look(&call)?;
    let standing = call.broker().standing();
    let replica = json!({
        "replicaId": standing.node.to_string(),
        "role": standing.role.name(),
        "timeSeries": points.iter().map(Point::system).collect::<Vec<_>>(),
    });
    let body = json!({
        "timeRange": span.range(),
        "bucketMinutes": span.bucket_minutes,
        "pointCount": points.len(),
        "replicas": [replica],
    });
    Ok(json(StatusCode::OK, &body))
}

/// `GET /api/v1/analytics/worker-metrics`.
pub(crate) async fn worker_metrics(call: Call) -> Result<Answer, Refusal> {
    let (span, points) = look(&call)?;
    let broker = call.broker();
    let mut summary = sum(&points).work();
    if let Some(summary) = summary.as_object_mut() {
        summary.remove("timestamp");
    }
    let parked = broker.parked_by_queue().into_iter().filter_map(|(queue, parked)| {
        let name = broker.queue_name(queue)?;
        Some(json!({"queue": name, "parkedLongPolls": parked}))
    });
    let body = json!({
        "timeRange": span.range(),
        "bucketMinutes": span.bucket_minutes,
        "pointCount": points.len(),
        "summary": summary,
        "timeSeries": points.iter().map(Point::work).collect::<Vec<_>>(),
        "workers": [worker(&call)],
        "queues": parked.collect::<Vec<_>>(),
    });
    Ok(json(StatusCode::OK, &body))
}

/// `POST /api/v1/stats/refresh`: every count is taken when it is asked for, so there is nothing to do.
pub(crate) async fn refresh(call: Call) -> Result<Answer, Refusal> {
    let now = call.broker().now().to_iso();
    Ok(json(StatusCode::OK, &json!({"success": true, "refreshed": true, "timestamp": now})))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(query: &str) -> Result<Span, String> {
        let now = Stamp::parse_iso("2026-03-01T09:30:20Z").unwrap();
        Span::read(Query::new(Some(query)), now)
    }

    #[test]
    fn a_span_is_the_last_hour_and_its_points_fit_it() {
        let hour = span("").unwrap();
        assert_eq!((hour.to.0 - hour.from.0, hour.bucket_minutes), (3600 * 1_000_000, 1));
        let from = |from: &str| span(&format!("from={from}")).unwrap().bucket_minutes;
        assert_eq!(from("2026-02-28T09:30:20Z"), 12);
        assert_eq!(from("2026-03-01T09:30:20Z"), 1);
        assert_eq!(span("interval=hour").unwrap().bucket_minutes, 60);
        assert_eq!(span("bucketMinutes=5&interval=hour").unwrap().bucket_minutes, 5);
        assert_eq!(span("bucketMinutes=0").unwrap().bucket_minutes, 1);
        for bad in ["interval=week", "from=2027-01-01T00:00:00Z", "to=soon", "bucketMinutes=x"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn minutes_of_a_point_are_added_and_its_rates_are_of_the_time_that_the_node_ran() {
        let minute = |start: u64, push_messages, parked| Minute {
            start: Stamp(start * MINUTE_MICROS),
            end: Stamp((start + 1) * MINUTE_MICROS),
            figures: Figures { push_messages, cpu_micros: 30_000_000, ..Figures::default() },
            gauges: Gauges { parked, ..Gauges::default() },
        };
        let span = Span { from: Stamp::ZERO, to: Stamp::MAX, bucket_minutes: 5 };
        let points = span.points(&[minute(5, 60, 1), minute(6, 30, 2), minute(10, 1, 3)]);
        assert_eq!(points.iter().map(|p| p.at.0 / MINUTE_MICROS).collect::<Vec<_>>(), [5, 10]);
        let first = points[0].work();
        assert_eq!((&first["ingested"], &first["ingestedPerSecond"]), (&json!(90), &json!(0.75)));
        assert_eq!(first["parkedLongPolls"], 2);
        assert_eq!(points[0].system()["cpuPercent"], json!(50.0));
        assert_eq!(sum(&points).figures.push_messages, 91);
    }
}
