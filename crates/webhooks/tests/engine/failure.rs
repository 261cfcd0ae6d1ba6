//! What failures lead to: retries on their schedule, pauses, single tries, and a store that fails.

use crate::bed::{Bed, START, limits, linger, until};
use crate::sink::{Reply, Sink};
use model::Timestamp;
use model::schema::Builtin;
use serde_json::{Value, json};
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;
use store::Status;
use webhooks::Limits;

const NO_PING: &str = "ping";

#[tokio::test]
async fn a_failed_delivery_is_tried_again_when_its_schedule_says_so() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.kind() == NO_PING {
        true => Reply::Status(200),
        false => Reply::Status(500),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    let attempts = |count| bed.row(number, seq).is_some_and(|row| row.attempts == count);
    until("the first attempt", || attempts(1)).await;
    let row = bed.row(number, seq).unwrap();
    let wait = row.next.unwrap().0 - START;
    assert!((60_000..=72_000).contains(&wait), "{wait}");
    assert_eq!(row.status, Status::Pending);
    linger().await;
    assert_eq!(sink.events().len(), 1);
    bed.clock.advance(67);
    until("the second attempt", || attempts(2)).await;
    bed.clock.advance(331);
    until("the third attempt", || attempts(3)).await;
    engine.stop().await;
    let row = bed.row(number, seq).unwrap();
    assert_eq!((row.status, row.next), (Status::Failed, None));
    let read = |text: &String| serde_json::from_str::<Value>(text).unwrap();
    let told: Vec<Value> = row.texts.iter().map(read).collect();
    let triggers: Vec<_> = told.iter().map(|text| &text["trigger"]).collect();
    assert_eq!(triggers, ["event", "schedule", "schedule"]);
    assert_eq!(told[0]["next_attempt_reason"], "retry schedule");
    assert_eq!(told[2]["next_attempt_at"], Value::Null);
    assert_eq!((&told[0]["error"], &told[0]["status"]), (&json!("status"), &json!(500)));
    let ids: Vec<_> = sink.events().iter().map(|r| r.id().to_owned()).collect();
    assert_eq!(ids, vec![format!("evt_{seq}"); 3]);
    let signed = |n: usize| sink.events()[n].headers["webhook-timestamp"].clone();
    assert_ne!(signed(0), signed(1));
}

#[tokio::test]
async fn retry_after_pauses_the_whole_endpoint() {
    let bed = Bed::new();
    let sink = Sink::new(|request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("busy") => Reply::With(503, "retry-after: 0.4\r\n"),
        _ => Reply::Status(200),
    })
    .await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    bed.tell(&["busy"]);
    until("refused", || bed.rows(number, Status::Pending) == 1).await;
    bed.tell(&["book_1", "book_2"]);
    until("the others", || sink.events().len() == 3).await;
    engine.stop().await;
    let seen = sink.events();
    assert!(seen[1].at - seen[0].at >= Duration::from_millis(390));
}

#[tokio::test]
async fn a_failing_endpoint_gets_single_attempts_until_one_succeeds() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number {
        1..=9 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    let many: Vec<String> = (0..60).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("all tried once", || sink.events().len() == 60).await;
    until("all recorded", || bed.rows(number, Status::Succeeded) == 52).await;
    assert_eq!(bed.rows(number, Status::Pending), 9);
    // Failed while at most two were under way, then one by one with pauses between.
    let seen = sink.events();
    let gaps = seen.windows(2).map(|pair| pair[1].at - pair[0].at);
    let pauses = gaps.filter(|gap| *gap >= Duration::from_millis(45)).count();
    assert!((3..=6).contains(&pauses), "{pauses}");
    engine.stop().await;
    let fields = bed.fields(Builtin::Endpoint, &id).await;
    assert_eq!((&fields["failing_since"], &fields["status"]), (&Value::Null, &json!("enabled")));
    let inner = bed.store.look();
    let updates = inner.events.iter().filter(|event| event.kind == "webhook_endpoint.updated");
    assert_eq!(updates.count(), 2);
}

#[tokio::test]
async fn an_endpoint_that_fails_for_days_causes_warnings_and_is_disabled() {
    let bed = Bed::new();
    let sink = Sink::new(|_, _| Reply::Status(500)).await;
    let schedule = vec![3600; 20];
    let (_, id) = bed.endpoint(&sink, json!({ "retry_schedule": schedule })).await;
    let limits = Limits { disable_after: Duration::from_secs(20_000), ..limits() };
    let engine = bed.start_with(limits);
    bed.tell(&["a", "b", "c", "d", "e", "f"]);
    let told = |kind: &str| {
        let inner = bed.store.look();
        inner.events.iter().filter(|event| event.kind == kind).count()
    };
    let disabled = || told("webhook_endpoint.disabled") == 1;
    for round in 1..=8 {
        let failed = || sink.events().len() == 6 * round && bed.rows_waiting() == 6;
        until("a round of failures", || failed() || disabled()).await;
        bed.clock.advance(3961);
    }
    until("disabled", disabled).await;
    engine.stop().await;
    let warnings = told("webhook_endpoint.failing");
    assert!((2..=3).contains(&warnings), "{warnings}");
    let fields = bed.fields(Builtin::Endpoint, &id).await;
    assert_eq!(fields["status"], "disabled");
    assert!(fields["disabled_reason"].as_str().unwrap().starts_with("failing since 2025-"));
}

#[tokio::test]
async fn a_manual_retry_ignores_the_pace_and_does_not_change_the_health() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number {
        1 | 2 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({ "retry_schedule": [] })).await;
    let engine = bed.start();
    until("the ping", || sink.count() == 1).await;
    bed.tell(&["book_1"]);
    let seq = bed.newest();
    let is = |status, attempts| {
        bed.row(number, seq).is_some_and(|row| (row.status, row.attempts) == (status, attempts))
    };
    until("failed for good", || is(Status::Failed, 1)).await;
    bed.act(Builtin::Endpoint, &id, "disable").await;
    bed.store.ask_again(number, seq);
    until("failed again", || is(Status::Failed, 2)).await;
    bed.store.ask_again(number, seq);
    until("succeeded", || is(Status::Succeeded, 3)).await;
    engine.stop().await;
    let row = bed.row(number, seq).unwrap();
    assert!(row.texts[1].contains("\"trigger\":\"retry\""));
    assert_eq!(row.next, None::<Timestamp>);
}

#[tokio::test]
async fn outcomes_survive_a_store_that_fails_for_a_while() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start_with(Limits { unsettled: 10, ..limits() });
    until("the ping is recorded", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.store.full.store(true, SeqCst);
    let many: Vec<String> = (0..200).map(|n| format!("book_{n}")).collect();
    bed.tell(&many.iter().map(String::as_str).collect::<Vec<_>>());
    until("some were sent", || sink.events().len() >= 10).await;
    linger().await;
    // What was under way when the limit was reached comes on top.
    assert!(sink.events().len() < 60, "{}", sink.events().len());
    bed.store.full.store(false, SeqCst);
    until("all recorded", || bed.rows(number, Status::Succeeded) == 201).await;
    engine.stop().await;
    assert_eq!(sink.events().len(), 200);
}

#[tokio::test]
async fn a_store_that_cannot_be_read_for_a_while_loses_nothing() {
    let bed = Bed::new();
    let sink = Sink::willing().await;
    bed.store.deaf.store(true, SeqCst);
    let engine = bed.start();
    let (number, _) = bed.endpoint(&sink, json!({})).await;
    linger().await;
    bed.store.deaf.store(false, SeqCst);
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.store.deaf.store(true, SeqCst);
    bed.tell(&["book_1", "book_2"]);
    linger().await;
    bed.store.deaf.store(false, SeqCst);
    until("all", || bed.rows(number, Status::Succeeded) == 3).await;
    engine.stop().await;
}

#[tokio::test]
async fn waiting_retries_count_in_the_age_of_the_queue() {
    let bed = Bed::new();
    let sink = Sink::new(|_, number| match number {
        1 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (number, id) = bed.endpoint(&sink, json!({})).await;
    let engine = bed.start();
    until("the ping", || bed.rows(number, Status::Succeeded) == 1).await;
    bed.tell(&["book_1"]);
    until("it waits", || bed.rows(number, Status::Pending) == 1).await;
    bed.clock.advance(40);
    let figure = |name: &str| -> f64 {
        let page = bed.figures();
        let line = page.lines().find(|line| line.starts_with(name)).unwrap_or("0");
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let own = format!("restive_webhook_queue_age_seconds{{endpoint=\"{id}\"}}");
    until("its age is told", || figure("restive_webhook_oldest_pending_seconds") >= 40.0).await;
    assert!(figure(&own) >= 40.0, "{}", bed.figures());
    assert_eq!(sink.events().len(), 1, "it still waits");
    // After a restart, too.
    engine.stop().await;
    let engine = bed.start();
    bed.clock.advance(5);
    until("told again", || figure("restive_webhook_oldest_pending_seconds") >= 45.0).await;
    bed.clock.advance(60);
    until("delivered", || bed.rows(number, Status::Succeeded) == 2).await;
    until("nothing waits", || figure("restive_webhook_oldest_pending_seconds") == 0.0).await;
    engine.stop().await;
}
