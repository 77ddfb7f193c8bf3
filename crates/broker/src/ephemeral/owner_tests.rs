//! Three brokers in one process: calls find the owner, and what becomes of contents when it changes.

use super::*;
use crate::forward::tests::Three;
use queen_core::ephemeral::{EphemeralMessage, Outcome, Payload, message_id};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(30);

async fn ask(broker: &Broker, ask: EphemeralAsk<'_>) -> Result<EphemeralAnswer, EphemeralRefusal> {
    let call = EphemeralCall { tenant: TenantId::DEFAULT, ask };
    timeout(LONG, broker.ephemeral(&call)).await.unwrap()
}

async fn push(broker: &Broker, text: &str) -> Result<EphemeralAnswer, EphemeralRefusal> {
    let payloads = vec![Payload(text.as_bytes())];
    ask(broker, EphemeralAsk::Push { queue: "q", partition: "p", payloads }).await
}

async fn pop(broker: &Broker, wait_ms: u64) -> Vec<EphemeralMessage> {
    let group = Some("g");
    let pop =
        EphemeralPop { queue: "q", partition: "p", group, batch: 9, wait_ms, auto_ack: false };
    match ask(broker, EphemeralAsk::Pop(pop)).await.unwrap() {
        EphemeralAnswer::Popped(messages) => messages,
        other => panic!("{other:?}"),
    }
}

async fn ack(broker: &Broker, message: &EphemeralMessage) -> Outcome {
    let id = message_id(message.epoch, "p", message.number);
    let (group, items) = (Some("g"), vec![(id.as_str(), true)]);
    match ask(broker, EphemeralAsk::Ack { queue: "q", group, items }).await.unwrap() {
        EphemeralAnswer::Acked(outcomes) => outcomes[0],
        other => panic!("{other:?}"),
    }
}

fn texts(messages: &[EphemeralMessage]) -> Vec<&[u8]> {
    messages.iter().map(|message| &message.payload[..]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_node_reaches_the_same_contents_and_options() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    let options = EphemeralOptions { max_length: Some(1), ..EphemeralOptions::default() };
    let tenant = TenantId::DEFAULT;
    assert!(!others[0].declare_ephemeral(tenant, "q", options).await.unwrap());
    assert_eq!(push(&others[1], "1").await, Ok(EphemeralAnswer::Pushed(1)));
    for broker in &three.brokers {
        assert_eq!(push(broker, "2").await.unwrap_err().kind, RefusalKind::Full);
        let depth = ask(broker, EphemeralAsk::Depth { queue: "q" }).await.unwrap();
        let EphemeralAnswer::Depth(Some(depth)) = depth else { panic!("{depth:?}") };
        assert!(depth.gauges.declared && depth.gauges.length == 1);
    }
    let popped = pop(&others[0], 0).await;
    assert_eq!(texts(&popped), [b"1"]);
    assert_eq!(pop(&leader, 0).await, []);
    assert_eq!(ack(&others[1], &popped[0]).await, Outcome::Acked);
    assert_eq!(ack(&leader, &popped[0]).await, Outcome::Unknown);
    assert!(leader.ephemeral_bytes() > 0 && others[0].ephemeral_bytes() == 0);
    assert!(others[1].undeclare_ephemeral(tenant, "q").await.unwrap());
    assert!(!leader.undeclare_ephemeral(tenant, "q").await.unwrap());
    push(&others[0], "3").await.unwrap();
    push(&others[1], "4").await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pop_that_waits_on_one_node_is_woken_by_a_push_to_another() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    for (waits, pushes) in [(&others[0], &others[1]), (&others[1], &leader), (&leader, &others[0])]
    {
        let (popped, pushed) = tokio::join!(pop(waits, 20_000), push(pushes, "1"));
        pushed.unwrap();
        assert_eq!(texts(&popped), [b"1"]);
        ack(waits, &popped[0]).await;
    }
    assert_eq!(pop(&others[0], 30).await, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_go_with_their_owner_and_waiting_pops_find_the_next_one() {
    let three = Three::start().await;
    let (leader, others) = three.split().await;
    push(&others[0], "old").await.unwrap();
    let old = pop(&others[0], 0).await;
    push(&others[0], "older").await.unwrap();
    let waits = tokio::spawn({
        let asker = others[1].clone();
        let pop = EphemeralPop {
            queue: "other",
            partition: "p",
            group: None,
            batch: 1,
            wait_ms: 25_000,
            auto_ack: true,
        };
        async move { ask(&asker, EphemeralAsk::Pop(pop)).await }
    });
    while leader.ephemeral_bytes() == 0 {
        tokio::task::yield_now().await;
    }
    leader.shared.ephemeral.leads(None);
    assert_eq!(leader.counters().ephemeral_wipes_owner.get(), 1);
    assert_eq!(leader.ephemeral_bytes(), 0);
    leader.begin_shutdown();
    leader.shutdown().await;
    assert_eq!(push(&others[0], "new").await, Ok(EphemeralAnswer::Pushed(1)));
    assert_eq!(ack(&others[1], &old[0]).await, Outcome::Stale);
    assert_eq!(texts(&pop(&others[1], 0).await), [b"new"]);
    let payloads = vec![Payload(b"1")];
    ask(&others[0], EphemeralAsk::Push { queue: "other", partition: "p", payloads }).await.unwrap();
    let woken = waits.await.unwrap().unwrap();
    let EphemeralAnswer::Popped(messages) = woken else { panic!("{woken:?}") };
    assert_eq!(texts(&messages), [b"1"], "it went on waiting at the next owner");
}
