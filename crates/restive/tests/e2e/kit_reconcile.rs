//! Reconciliation against the real server and against an API in Stripe's form.

use crate::harness::{KEY, Server};
use crate::kit_client::run;
use crate::relay::{Plan, Relay};
use crate::sink::Sink as Receiver;
use restive_kit::client::Client;
use restive_kit::reconcile::{Event, Offered, Reconciler, Restive, Sink, Stripe};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Stores what it is offered.
#[derive(Clone, Default)]
struct Stored(Arc<Mutex<Vec<Event>>>);

impl Stored {
    fn ids(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().map(|event| event.id.clone()).collect()
    }
}

impl Sink for Stored {
    type Error = std::convert::Infallible;

    async fn offer(&self, event: &Event) -> Result<Offered, Self::Error> {
        let mut stored = self.0.lock().unwrap();
        if stored.iter().any(|known| known.id == event.id) {
            return Ok(Offered::Known);
        }
        stored.push(event.clone());
        Ok(Offered::New)
    }
}

#[test]
fn missed_events_are_fetched_once_and_in_order_despite_broken_connections() {
    let server = Server::bookshop();
    for number in 0..250 {
        server.book(&format!("book {number}"));
    }
    let relay = Relay::to(server.address);
    relay.plan([Plan::html(502), Plan::Cut(5_000), Plan::Pass]);
    let stored = Stored::default();
    run(async {
        let client = Client::builder(&relay.url()).key(KEY).build().unwrap();
        let provider = Restive::new(client).types(&["book.*"]);
        let mut reconciler = Reconciler::new(provider, stored.clone()).min_age(Duration::ZERO);
        let report = reconciler.run_once().await.unwrap();
        assert_eq!((report.checked, report.missed), (250, 250));
        server.book("one more");
        relay.cut();
        let report = reconciler.run_once().await.unwrap();
        assert_eq!((report.checked, report.missed), (251, 1));
    });
    // The same events, in the order of the log, with the bytes of the server.
    let mut logged = Vec::new();
    let mut path = "/v1/events?type=book.*&sort=created&limit=100".to_owned();
    loop {
        let page = server.get(&path).expect(200);
        logged.extend(page["data"].as_array().unwrap().clone());
        let Some(cursor) = page["pagination"]["next_cursor"].as_str() else { break };
        path = format!("/v1/events?type=book.*&sort=created&limit=100&after={cursor}");
    }
    let stored: Vec<Value> = stored
        .0
        .lock()
        .unwrap()
        .iter()
        .map(|event| serde_json::from_str(&event.text).unwrap())
        .collect();
    assert_eq!(stored, logged);
}

#[test]
fn pings_and_events_of_endpoints_come_only_to_those_who_name_them() {
    let server = Server::bookshop();
    let hook = json!({ "url": Receiver::start().url(), "enabled_events": ["*"] });
    let endpoint = server.make("/v1/webhook-endpoints", hook);
    let pinged = format!("/v1/webhook-endpoints/{endpoint}/ping");
    server.post(&pinged, json!({})).expect(200);
    server.book("Dune");
    let logged = server.get("/v1/events?type=ping,webhook_endpoint.*").expect(200);
    assert!(logged["data"].as_array().unwrap().len() >= 2, "{logged}");
    let types = |wanted: Option<&'static [&'static str]>| {
        run(async {
            let client = Client::builder(&server.url("")).key(KEY).build().unwrap();
            let provider = Restive::new(client);
            let provider = if let Some(types) = wanted { provider.types(types) } else { provider };
            let stored = Stored::default();
            let mut reconciler = Reconciler::new(provider, stored.clone()).min_age(Duration::ZERO);
            reconciler.run_once().await.unwrap();
            let stored = stored.0.lock().unwrap();
            stored.iter().map(|event| event.kind.clone()).collect::<Vec<_>>()
        })
    };
    assert_eq!(types(None), ["book.created"]);
    assert_eq!(types(Some(&["book.*", "*"])), ["book.created"]);
    assert!(types(Some(&["ping"])).iter().all(|kind| kind == "ping"));
    assert_eq!(types(Some(&["webhook_endpoint.created"])), ["webhook_endpoint.created"]);
}

#[test]
fn a_provider_that_answers_nonsense_fails_the_run_and_the_next_one_finds_everything() {
    let server = Server::bookshop();
    server.book("Dune");
    let relay = Relay::to(server.address);
    relay.plan([
        Plan::html(200),
        Plan::status(200, "content-type: application/json\r\n", "[]"),
        Plan::status(
            200,
            "content-type: application/json\r\n",
            r#"{"data":[{}],"pagination":{"has_more":false,"next_cursor":null}}"#,
        ),
    ]);
    run(async {
        let client = Client::builder(&relay.url()).key(KEY).build().unwrap();
        let stored = Stored::default();
        let mut reconciler =
            Reconciler::new(Restive::new(client), stored.clone()).min_age(Duration::ZERO);
        for _ in 0..3 {
            assert!(reconciler.run_once().await.is_err());
        }
        assert_eq!(reconciler.run_once().await.unwrap().missed, 1);
        assert_eq!(stored.ids().len(), 1);
    });
    run(async {
        let client = Client::builder(&server.url("")).key("sk_test_wrong").build().unwrap();
        let mut reconciler = Reconciler::new(Restive::new(client), Stored::default());
        let error = reconciler.run_once().await.unwrap_err().to_string();
        assert!(error.contains("invalid_api_key"), "{error}");
    });
}

/// Stripe's list of events: newest first, `starting_after`, `ending_before`, `has_more`.
fn stripe(events: Vec<u64>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut line = String::new();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            reader.read_line(&mut line).unwrap();
            let query = line.split([' ', '?']).nth(2).unwrap_or_default();
            let query: BTreeMap<&str, &str> =
                query.split('&').filter_map(|pair| pair.split_once('=')).collect();
            let since: u64 = query["created%5Bgte%5D"].parse().unwrap();
            assert_eq!(query["limit"], "100");
            let number = |name: &str| {
                query.get(name).map(|id| id.trim_start_matches("evt_").parse::<usize>().unwrap())
            };
            let all = events.iter().enumerate().rev().filter(|(_, created)| **created >= since);
            let all: Vec<(usize, u64)> = all.map(|(at, created)| (at, *created)).collect();
            let (page, more): (Vec<_>, bool) =
                match (number("starting_after"), number("ending_before")) {
                    (_, Some(before)) => {
                        let newer: Vec<_> = all.iter().filter(|(at, _)| *at > before).collect();
                        let skip = newer.len().saturating_sub(100);
                        (newer[skip..].iter().map(|event| **event).collect(), skip > 0)
                    }
                    (after, None) => {
                        let older =
                            all.iter().filter(|(at, _)| after.is_none_or(|after| *at < after));
                        let older: Vec<_> = older.copied().collect();
                        (older.iter().take(100).copied().collect(), older.len() > 100)
                    }
                };
            let data: Vec<Value> = page
                .iter()
                .map(|(at, created)| {
                    let id = format!("evt_{at}");
                    json!({ "id": id, "type": "charge.succeeded", "created": created })
                })
                .collect();
            let body = json!({ "object": "list", "data": data, "has_more": more }).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n";
            let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
        }
    });
    url
}

#[test]
fn an_api_in_stripes_form_is_read_from_its_oldest_event_on() {
    for count in [0, 1, 99, 100, 101, 350] {
        let url = stripe((0..count).map(|number| 1000 + number).collect());
        run(async {
            let client = Client::builder(&url).key("sk_test_stripe").build().unwrap();
            let stored = Stored::default();
            let mut reconciler = Reconciler::new(Stripe::new(client), stored.clone())
                .lookback(Duration::from_secs(1_000_000));
            let report = reconciler.run_at(5000).await.unwrap();
            assert_eq!((report.checked, report.missed), (count, count));
            let expected: Vec<String> = (0..count).map(|number| format!("evt_{number}")).collect();
            assert_eq!(stored.ids(), expected, "{count}");
        });
    }
}
