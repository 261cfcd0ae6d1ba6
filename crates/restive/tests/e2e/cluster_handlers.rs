//! Effects outside the database, where several servers share it: calls of handlers, deliveries and
//! timers of a node that dies or is paused. Runs where `RESTIVE_TEST_POSTGRES` names a server.

use crate::cluster::{Nodes, arrivals};
use crate::database;
use crate::deliveries::endpoint;
use crate::handlers::Handler;
use crate::harness::{Answer, Server, eventually};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn approve(server: &Server, path: &str, key: Option<&str>) -> Answer {
    let ask = server.ask("POST", &format!("{path}/approve"));
    let ask = key.into_iter().fold(ask, |ask, key| ask.header("idempotency-key", key));
    ask.json(&json!({"by": "Ada"})).send()
}

fn order(server: &Server) -> String {
    format!("/v1/orders/{}", server.make("/v1/orders", json!({"amount": 5})))
}

#[test]
fn repetitions_at_several_nodes_call_the_handler_once() {
    let Some(nodes) = Nodes::new() else { return };
    let handler = Handler::start();
    let schema = handler.schema("5s");
    let servers = [nodes.start_with(&schema), nodes.start_with(&schema)];
    let path = order(&servers[0]);
    let pause = Duration::from_millis(300);
    handler.will_answer_late(pause, json!({"change": {"approval": "once"}}));
    let at_once = |key: Option<&str>| -> Vec<Answer> {
        std::thread::scope(|threads| {
            let ask = |place: usize| {
                let (server, path) = (&servers[place % 2], &path);
                threads.spawn(move || approve(server, path, key))
            };
            let callers: Vec<_> = (0..8).map(ask).collect();
            callers.into_iter().map(|caller| caller.join().unwrap()).collect()
        })
    };
    let answers = at_once(Some("k"));
    for answer in &answers {
        assert_eq!((answer.status, &answer.text), (200, &answers[0].text));
    }
    let replayed = answers.iter().filter(|a| a.header("idempotent-replayed").is_some());
    assert_eq!((replayed.count(), handler.asked_exactly().len()), (7, 1));
    // Without a key they are different requests: each sees what the one before it has changed.
    let path = order(&servers[1]);
    let path = &path;
    let answers: Vec<Answer> = std::thread::scope(|threads| {
        let ask = |server| threads.spawn(move || approve(server, path, None));
        let callers = [&servers[0], &servers[1]].map(ask);
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses, handler.asked_exactly().len()), (vec![200, 409], 2));
}

#[test]
fn a_key_that_a_dead_node_held_is_free_when_its_lease_ends() {
    let Some(nodes) = Nodes::new() else { return };
    let handler = Handler::start();
    let schema = handler.schema("60s");
    let (first, second) = (nodes.start_with(&schema), nodes.start_with(&schema));
    let path = order(&first);
    handler.will_be_silent();
    std::thread::scope(|threads| {
        let url = first.url(&format!("{path}/approve"));
        let request = ureq::post(&url).header("authorization", &format!("Bearer {}", first.key));
        let request = request.header("content-type", "application/json");
        let request = request.header("idempotency-key", "k");
        threads.spawn(move || request.send(r#"{"by": "Ada"}"#).map(drop));
        eventually("the handler is called", || handler.asked_exactly().len() == 1);
        first.kill();
    });
    let killed = Instant::now();
    handler.will_answer(200, json!({"change": {"approval": "second"}}));
    let refused = approve(&second, &path, Some("k"));
    refused.error(409, "idempotency_key_in_use");
    let mut answer = None;
    eventually("the key is free", || {
        let found = approve(&second, &path, Some("k"));
        answer = (found.status == 200).then_some(found);
        answer.is_some()
    });
    assert!(killed.elapsed() < Duration::from_secs(20), "{:?}", killed.elapsed());
    assert_eq!(answer.unwrap().json["approval"], "second");
    assert_eq!(handler.asked_exactly().len(), 2);
}

#[test]
fn a_node_that_was_paused_for_longer_than_its_lease_repeats_and_settles_nothing() {
    let Some(nodes) = Nodes::new() else { return };
    let owner = nodes.start(&[]);
    let other = nodes.start(&[]);
    let sink = Sink::start();
    endpoint(&other, &sink, json!({"enabled_events": ["book.created"]}));
    let confirm = |server: &Server| {
        let body = json!({"amount": 500, "currency": "eur", "payment_method": "pm_card_visa"});
        let id = server.make("/v1/payment-intents", body);
        server.post(&format!("/v1/payment-intents/{id}/confirm"), json!({})).expect(200);
    };
    for number in 0..20 {
        other.book(&format!("before {number}"));
    }
    (0..5).for_each(|_| confirm(&other));
    owner.signal("-STOP");
    for number in 0..20 {
        other.book(&format!("during {number}"));
    }
    (0..5).for_each(|_| confirm(&other));
    let succeeded = || {
        let path = "/v1/events?type=payment_intent.succeeded&limit=100";
        other.get(path).expect(200)["data"].as_array().unwrap().len()
    };
    eventually("the other node has taken over", || {
        arrivals(&sink).len() == 40 && succeeded() == 10
    });
    owner.signal("-CONT");
    eventually("it joins again", || nodes.alive() == 2);
    owner.book("after");
    eventually("the last one arrives", || arrivals(&sink).len() == 41);
    assert_eq!(succeeded(), 10, "each timer fires once");
    let path = "/v1/deliveries?limit=100";
    let all = owner.get(path).expect(200)["data"].as_array().unwrap().clone();
    let done = |delivery: &&Value| delivery["status"] == "succeeded";
    eventually("every delivery has one outcome", || {
        let all = owner.get(path).expect(200)["data"].as_array().unwrap().clone();
        all.iter().filter(done).count() >= 41
    });
    assert!(all.iter().all(|delivery| delivery["status"] != "failed"), "{all:?}");
    let listed = owner.get("/v1/webhook-endpoints").expect(200);
    assert_eq!(listed["data"][0]["status"], "enabled");
}

#[test]
fn an_outdated_node_asks_no_handler() {
    let Some(nodes) = Nodes::new() else { return };
    let handler = Handler::start();
    let server = nodes.start_with(&handler.schema("5s"));
    let path = order(&server);
    database::run(&nodes.url, "UPDATE meta SET value = 'another' WHERE name = 'edition'");
    eventually("the node has noticed", || server.get("/health").status == 503);
    handler.will_answer(200, json!({"change": {}}));
    assert_eq!(approve(&server, &path, None).status, 503);
    assert_eq!(handler.asked_exactly().len(), 0);
}
