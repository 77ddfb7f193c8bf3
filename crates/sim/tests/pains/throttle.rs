//! Throttling, permissions, failures that last.
//!
//! Rows that are elsewhere: 10, 12 (minutes and hours of failures) under a clock that leaps, in
//! `sink/failure.rs`; 30, 31, 36 (credentials, certificates, proxies) in its
//! `bucket_s3` and in `e2e/credentials.rs`.

use crate::place::{IN_PARTS, Place, item, noise};
use queen_sim::double::{Answer, Event, Op, Rule};
use std::time::{Duration, Instant};

fn slow_down() -> Answer {
    Answer::error(503, "SlowDown", "Please reduce your request rate.")
}

/// The times between the first refusal and what follows it.
fn pause_after_refusal(events: &[Event]) -> Duration {
    let refused = events.iter().position(|event| event.status == Some(503)).unwrap();
    events[refused + 1].at - events[refused].at
}

/// Row 29: a pause that is asked for in seconds holds for every queue.
#[tokio::test]
async fn nothing_is_sent_within_the_pause_that_the_bucket_asks_for() {
    let mut place = Place::new(&[]).await;
    place.push(&[("p", "0")]).await;
    place.whole().await;
    let before = place.double.events().len();
    place.double.rule(Rule::on(Op::Put).times(1).answer(slow_down().header("retry-after", "3")));
    place.push(&[("p", "1")]).await;
    place.until("a refusal", || place.double.events().len() > before).await;
    // Another queue of the same bucket waits too.
    place.push_items(vec![crate::place::item("others", "p", "2")]).await;
    place.whole().await;
    let pause = pause_after_refusal(&place.double.events());
    assert!(pause >= Duration::from_secs(3), "{pause:?}");
    place.stop().await;
}

/// Row 29: `Retry-After` as a date.
#[tokio::test]
async fn a_pause_until_a_date_is_held() {
    let mut place = Place::new(&[]).await;
    let answer = slow_down()
        .header("date", "Sat, 24 Oct 2026 10:00:00 GMT")
        .header("retry-after", "Sat, 24 Oct 2026 10:00:03 GMT");
    place.double.rule(Rule::on(Op::Put).times(1).answer(answer));
    place.push(&[("p", "1")]).await;
    place.whole().await;
    let pause = pause_after_refusal(&place.double.events());
    assert!(pause >= Duration::from_secs(3), "{pause:?}");
    place.stop().await;
}

/// Row 29: forty refusals, of five queues at a time. (Forty in a row of one request, with pauses of up to
/// 30 s, under a paused clock in `queen_sink::retry`.)
#[tokio::test]
async fn forty_refusals_are_met_with_growing_pauses() {
    let mut place = Place::new(&[]).await;
    place.double.rule(Rule::on(Op::Put).times(40).answer(slow_down()));
    let item = |n: usize| crate::place::item(&format!("q{n}"), "p", "1");
    place.push_items((0..5).map(item).collect()).await;
    place.whole().await;
    let events = place.double.events();
    let refused: Vec<&Event> = events.iter().filter(|e| e.status == Some(503)).collect();
    assert_eq!(refused.len(), 40, "{}", place.log());
    let puts = place.double.count(Op::Put);
    assert_eq!(puts, 40 + 10, "each object and each manifest once\n{}", place.log());
    // Eight tries of one object take 13 s on average, and next to nothing without the pauses.
    let first = |key: &str| refused.iter().find(|e| e.request.key == key).map(|e| e.at);
    let longest = refused.iter().filter_map(|e| Some(e.at - first(&e.request.key)?)).max();
    assert!(longest > Some(Duration::from_secs(3)), "{longest:?}\n{}", place.log());
    place.stop().await;
}

/// Rows 10, 29: what the state says while the bucket refuses, and that it goes on.
#[tokio::test]
async fn a_throttled_queue_says_so_and_catches_up() {
    let mut place = Place::new(&[]).await;
    place.double.rule(Rule::on(Op::Put).times(8).answer(slow_down()));
    place.push(&[("p", "1")]).await;
    place.said("orders", "asks for fewer requests").await;
    place.whole().await;
    assert_eq!(place.double.count(Op::Put), 10);
    place.stop().await;
}

/// A large object whose parts hang has a thread that waits, and no place among those that encode.
#[tokio::test]
async fn a_queue_goes_on_while_the_parts_of_anothers_large_object_hang() {
    // One place, and memory for no such object: its parts go up while it is encoded.
    let few = [("QUEEN_S3_THREADS", "1"), ("QUEEN_S3_MEMORY_MB", "64")];
    let mut place = Place::new(&[IN_PARTS, &few].concat()).await;
    place
        .double
        .rule(Rule::on(Op::Part).key("queue=large/").wait(Duration::from_secs(20)).times(3));
    // One push is in one window.
    let large = |n: usize| item("large", &format!("p{n}"), &noise(n, 1 << 20));
    place.push_items((0..48).map(large).collect()).await;
    place.until("parts hang", || place.double.count(Op::Part) >= 2).await;
    let hung = Instant::now();
    let small = |place: &Place| {
        let objects = place.double.objects();
        objects
            .keys()
            .filter(|key| key.contains("queue=small/") && key.contains("/windows/"))
            .count()
    };
    for n in 1..=3 {
        place.push_items(vec![item("small", "p", &n.to_string())]).await;
        place.until("a window of the other queue", || small(&place) == n).await;
    }
    assert!(hung.elapsed() < Duration::from_secs(20), "the parts hang no longer");
    let large = place.data().into_iter().filter(|key| key.contains("queue=large/"));
    assert_eq!(large.count(), 0);
    place.whole().await;
    place.stop().await;
}
