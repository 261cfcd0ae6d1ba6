//! Endpoints that want no more, and what happens meanwhile.

use crate::bed::{Bed, until};
use crate::sink::{Reply, Sink};
use model::schema::Builtin;
use serde_json::json;
use store::Status;

async fn disabled_by(answer: u16, header: &'static str, reason: &str, expected: Status) {
    let bed = Bed::new();
    let sink = Sink::new(move |request, _| match request.kind() {
        "ping" => Reply::Status(200),
        _ => Reply::With(answer, header),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    let disabled = || {
        let inner = bed.store.look();
        inner.events.iter().any(|event| event.kind == "webhook_endpoint.disabled")
    };
    until("disabled", disabled).await;
    bed.tell(&["book_2"]);
    until("skipped", || bed.rows(number, Status::Skipped) == 1).await;
    engine.stop().await;
    let fields = bed.fields(Builtin::Endpoint, &id).await;
    assert_eq!(
        (&fields["status"], &fields["disabled_reason"]),
        (&json!("disabled"), &json!(reason))
    );
    assert_eq!(bed.row(number, seq).unwrap().status, expected);
    assert_eq!(sink.events().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_is_gone_is_disabled() {
    disabled_by(410, "", "gone: it answered 410", Status::Failed).await;
}

#[tokio::test]
async fn an_endpoint_that_answers_disable_is_disabled() {
    let header = "webhook-delivery: disable\r\n";
    disabled_by(200, header, "asked by the endpoint", Status::Succeeded).await;
}

#[tokio::test]
async fn an_endpoint_can_refuse_a_message_permanently() {
    let bed = Bed::new();
    let sink = Sink::new(|_, _| Reply::With(500, "webhook-delivery: abort-message\r\n")).await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    until("failed", || bed.rows(number, Status::Failed) == 2).await;
    engine.stop().await;
    assert_eq!(bed.rows(number, Status::Pending), 0);
}

#[tokio::test]
async fn events_during_a_disabled_time_are_skipped_and_later_ones_are_sent() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, id) = bed.endpoint(&sink, json!({ "status": "disabled" })).await;
    let engine = bed.start();
    // Its own ping is sent all the same: that is how one tries it first.
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    let many: Vec<String> = (0..600).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("skipped", || bed.rows(number, Status::Skipped) == 600).await;
    bed.act(Builtin::Endpoint, &id, "ping").await;
    until("another ping", || bed.rows(number, Status::Succeeded) == 2).await;
    bed.act(Builtin::Endpoint, &id, "enable").await;
    bed.tell(&["book_600"]);
    until("sent again", || sink.events().len() == 1).await;
    engine.stop().await;
    assert_eq!(sink.events()[0].record(), "book_600");
    assert_eq!(bed.position(number), bed.newest());
}

#[tokio::test]
async fn retries_that_come_due_while_disabled_are_skipped() {
    let bed = Bed::new();
    let sink = Sink::new(|_, _| Reply::Status(500)).await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    until("failed once", || bed.row(number, seq).is_some()).await;
    bed.act(Builtin::Endpoint, &id, "disable").await;
    until("the engine has heard", || bed.store.look().events.len() as i64 > seq).await;
    bed.tell(&["book_2"]);
    until("skipped", || bed.rows(number, Status::Skipped) == 1).await;
    bed.clock.advance(70);
    until("the retry too", || bed.row(number, seq).unwrap().status == Status::Skipped).await;
    engine.stop().await;
    let row = bed.row(number, seq).unwrap();
    assert_eq!((row.attempts, row.next), (1, None));
}
