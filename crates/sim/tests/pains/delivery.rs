//! Delivery: lost answers, false answers, uploads that vanish, ends of the process.
//!
//! Rows that are elsewhere: 1, 2, 6 (owners that overlap) want several nodes and stand in the tests of the
//! cluster, every order of their requests in the simulator; 4 (another encoder) in `sink/upgrade.rs`.

use crate::place::{IN_PARTS, Place, of};
use queen_sim::double::{Answer, Op, Rule};
use std::time::{Duration, Instant};

/// Row 7: CompleteMultipartUpload answers 200 before it knows the outcome.
#[tokio::test]
async fn a_success_that_holds_an_error_or_nothing_is_no_success() {
    let error = |code| Answer::error(200, code, "We encountered an internal error. Try again.");
    let answers = [
        error("InternalError"),
        error("InternalError").after_blanks(3, Duration::from_millis(20)),
        error("SlowDown"),
        error("OperationAborted"),
        Answer::status(200),
        Answer::status(200).body("\n   \n"),
        Answer::status(200).body("").after_blanks(5, Duration::from_millis(10)),
        Answer::status(200).body("<html>a proxy says hello</html>"),
    ];
    let mut place = Place::new(IN_PARTS).await;
    for answer in answers {
        place.double.obey_no_rule();
        place.double.rule(Rule::on(Op::Complete).times(2).answer(answer.clone()));
        place.push_large(9).await;
        place.whole().await;
    }
    // The same answers when the object was made all the same.
    place.double.obey_no_rule();
    place.double.rule(Rule::on(Op::Complete).times(1).done_answer(error("InternalError")));
    place.push_large(9).await;
    place.whole().await;
    place.double.obey_no_rule();
    place.double.rule(Rule::on(Op::Complete).done_answer(Answer::status(200)));
    place.push_large(9).await;
    place.whole().await;
    place.one_version_each();
    assert!(place.double.uploads().is_empty());
    place.stop().await;
}

/// Row 7, its neighbour: success and no object.
#[tokio::test]
async fn an_object_is_seen_before_the_pointer_moves() {
    let mut place = Place::new(IN_PARTS).await;
    place.double.rule(Rule::on(Op::Complete).times(1).answer(Answer::status(200).body(
        "<CompleteMultipartUploadResult><ETag>\"x\"</ETag></CompleteMultipartUploadResult>",
    )));
    place.push_large(9).await;
    place.whole().await;
    let events = place.double.events();
    assert_eq!(of(&events, Op::Complete, "").count(), 2);
    assert!(of(&events, Op::Head, "").count() >= 2);
    place.stop().await;
}

/// Row 7, its neighbours: answers that never arrive, before and after the effect, for each request.
#[tokio::test]
async fn lost_answers_of_every_request_leave_one_object() {
    let mut place = Place::new(IN_PARTS).await;
    for op in [Op::Put, Op::Create, Op::Part, Op::Complete, Op::Head, Op::Get] {
        place.double.rule(Rule::on(op).times(1).drop_before());
        place.double.rule(Rule::on(op).times(1).drop_after());
        place.double.rule(Rule::on(op).times(1).error(500, "InternalError"));
    }
    place.push(&[("p", "1")]).await;
    place.push_large(17).await;
    place.push(&[("p", "2")]).await;
    place.whole().await;
    for (key, versions) in place.double.objects() {
        assert!(versions.iter().all(|version| version.bytes == versions[0].bytes), "{key}");
    }
    place.stop().await;
}

/// Row 5: fencing costs no request; 1 data PUT and 1 manifest PUT a window.
#[tokio::test]
async fn a_window_costs_two_requests() {
    let mut place = Place::new(&[("QUEEN_S3_MAX_WINDOW_MS", "100")]).await;
    for n in 0..30 {
        place.push(&[("p", &n.to_string()), ("q", "{}")]).await;
        place.whole().await;
    }
    let k = place.line("orders").await["k"].as_u64().unwrap() as usize;
    assert!(k >= 20, "{k} windows");
    let (puts, all) = (place.double.count(Op::Put), place.double.events().len());
    let hours = place.double.objects().keys().filter(|key| key.contains("/hours/")).count();
    assert_eq!(puts, 2 * k + hours);
    // One GET looks for a bucket that is ahead, at the start.
    assert!(all <= puts + 1 + hours, "{}", place.log());
    place.one_version_each();
    place.stop().await;
}

/// Row 11: the tail is not lost by SIGTERM.
#[tokio::test]
async fn records_pushed_right_before_sigterm_are_in_one_file() {
    let mut place = Place::new(&[("QUEEN_S3_MAX_WINDOW_MS", "2000")]).await;
    for round in 0..3 {
        let payloads = [round.to_string(), (round + 10).to_string(), (round + 20).to_string()];
        place.push(&[("a", &payloads[0]), ("b", &payloads[1]), ("a", &payloads[2])]).await;
        assert!(place.broker.stop().await.unwrap().success(), "{}", place.broker.tail());
        place.restart().await;
        place.whole().await;
    }
    assert_eq!(place.data().len(), 3, "each three in one file");
    place.one_version_each();
    place.stop().await;
}

/// Row 11: nothing of a window on its way is lost either.
#[tokio::test]
async fn sigterm_in_the_middle_of_an_upload_finishes_or_leaves_it_whole() {
    let mut place = Place::new(IN_PARTS).await;
    place.double.rule(Rule::on(Op::Part).skip(1).times(1).wait(Duration::from_secs(2)));
    place.push_large(17).await;
    place.until("a second part", || place.double.count(Op::Part) >= 2).await;
    assert!(place.broker.stop().await.unwrap().success(), "{}", place.broker.tail());
    place.restart().await;
    place.whole().await;
    place.one_version_each();
    assert!(place.double.uploads().is_empty());
    place.stop().await;
}

/// Row 13: parts of an owner that was killed cost money until somebody gives them up. No listing looks
/// for them (row 66): an upload's id is in the log before its first part leaves. An upload without parts,
/// whose owner died before it could write the id down, costs nothing and is for the bucket's rule.
#[tokio::test]
async fn uploads_of_killed_owners_are_given_up_and_those_of_others_left_alone() {
    let mut place = Place::new(IN_PARTS).await;
    let foreign = queen_sim::process::bucket(place.double.endpoint()).unwrap();
    let theirs = {
        use object_store::multipart::MultipartStore;
        foreign.create_multipart(&object_store::path::Path::from("theirs/file")).await.unwrap()
    };
    place.double.rule(Rule::on(Op::Part).skip(1).hang());
    place.push_large(17).await;
    for _ in 0..6 {
        let parts = place.double.count(Op::Part);
        place.until("part 2", || place.double.count(Op::Part) >= parts + 2).await;
        place.broker.kill().unwrap();
        place.double.obey_no_rule();
        place.double.rule(Rule::on(Op::Part).skip(1).hang());
        place.restart().await;
    }
    place.double.obey_no_rule();
    place.broker.kill().unwrap();
    place.restart().await;
    place.whole().await;
    let left: Vec<String> = place.double.uploads().into_iter().map(|upload| upload.id).collect();
    assert_eq!(left, [theirs], "{}", place.log());
    place.one_version_each();
    place.stop().await;
}

/// Row 14: a rule of the bucket ends the upload between two parts, or before its end.
#[tokio::test]
async fn an_upload_that_the_bucket_ends_is_begun_anew() {
    let mut place = Place::new(IN_PARTS).await;
    for op in [Op::Part, Op::Complete] {
        place.double.obey_no_rule();
        place.double.rule(Rule::on(op).skip(usize::from(op == Op::Part)).times(1).forget_upload());
        let begun = Instant::now();
        place.push_large(17).await;
        place.whole().await;
        // At once, and not when a queue that stopped is tried again.
        assert!(begun.elapsed() < Duration::from_secs(50), "{}", place.log());
    }
    place.one_version_each();
    assert!(place.double.uploads().is_empty());
    place.stop().await;
}
