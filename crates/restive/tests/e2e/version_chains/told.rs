//! Reports of changes to subscribers of every version: the event log, webhooks, event streams,
//! sockets and polls.

use super::{Happened, Kept, World};
use crate::harness::{PATIENCE, eventually};
use crate::live_client::{Block, Events, Opened, Socket, open_connections};
use crate::sink::Sink;
use serde_json::{Value, json};

/// A subscriber of one version.
pub struct Listener {
    sink: Sink,
    stream: Events,
    socket: Socket,
}

/// An event in one version: its type, and the `data` of the envelope.
type Told = (String, Value);

impl World<'_> {
    /// One subscriber for each version.
    pub fn listen(&self) -> Vec<Listener> {
        let listener = |date: &&str| {
            let sink = Sink::start();
            let body = json!({ "url": sink.url(), "api_version": date });
            let endpoints = format!("{}/webhook-endpoints", self.plan.mount(0));
            self.server.post(&endpoints, body).expect(201);
            let stream = Events::open(&self.server, &format!("/api/events?version={date}"));
            let mut socket = Socket::open(&self.server, &format!("/ws?version={date}"));
            socket.typed("welcome");
            Listener { sink, stream, socket }
        };
        self.plan.dates.iter().map(listener).collect()
    }

    /// Polls of the feeds: existing records, new ones, and records sent over a socket.
    pub fn poll(&mut self, version: usize) {
        for place in 0..self.plan.collections.len() {
            let it = self.collection(place);
            if !it.feed {
                continue;
            }
            let target = format!("/api/{}?version={}", it.name, self.plan.dates[version]);
            if !it.is_served(version) {
                self.server.get(&target).error(404, "route_not_found");
                continue;
            }
            let polled = self.server.get(&target).expect(200);
            let kept = self.records.iter().filter(|kept| kept.collection == place);
            let expected: Vec<Value> = kept.map(|kept| self.shown(version, kept)).collect();
            assert_eq!(polled, json!(expected), "{target}");
            let waiting = self.wait_for_more(&target);
            self.say(version, place);
            let came: Value = serde_json::from_str(&waiting.join().unwrap()).unwrap();
            let last = &self.records[self.records.len() - 1];
            assert_eq!(came, json!([self.shown(version, last)]), "{target}");
        }
    }

    /// A poll that waits for a record.
    fn wait_for_more(&self, target: &str) -> std::thread::JoinHandle<String> {
        let answer = self.server.get(target);
        let position = answer.header("x-stream-position").unwrap();
        let target = format!("{target}&wait=true&since={position}");
        let (address, key) = (self.server.address, self.server.key.clone());
        let waiting = std::thread::spawn(move || {
            let headers = [format!("Authorization: Bearer {key}"), "Connection: close".to_owned()];
            Opened::try_get(address, &target, &headers, PATIENCE).unwrap().body()
        });
        eventually("it waits", || open_connections(&self.server, "poll") > 0.0);
        waiting
    }

    /// Creates a record of a feed over a socket of the version.
    fn say(&mut self, version: usize, collection: usize) {
        let it = self.collection(collection);
        let body = self.body(version, collection);
        let date = self.plan.dates[version];
        let mut socket = Socket::open(&self.server, &format!("/ws?version={date}"));
        let reference = format!("said-{}", self.records.len());
        socket.say(json!({ "type": it.object, "ref": reference, "data": body }));
        let said = socket.typed("ack");
        assert_eq!(said["ref"], json!(reference), "{said}");
        let path = format!("/{}/{}", it.name, said["id"]);
        let shown = self.ask(version, "GET", &path, None).expect(200);
        let fields = it.created(version, &body).unwrap();
        let (assigned, home) = (self.assigned(collection, &shown), String::new());
        let kept = Kept { collection, fields, assigned, home };
        assert_eq!(shown, self.shown(version, &kept), "{body:?}");
        let kind = format!("{}.created", it.object);
        self.log.push(Happened { kind, before: None, after: kept.clone() });
        self.records.push(kept);
    }

    /// All events so far, in each version.
    pub fn compare_log(&self, listeners: &mut [Listener]) {
        for (version, listener) in listeners.iter_mut().enumerate() {
            let all: Vec<Told> = self.log.iter().map(|one| self.told(version, one)).collect();
            self.compare_events(version, &all);
            let heard = self.log.iter().filter(|one| self.is_heard(version, one));
            let expected: Vec<Told> = heard.map(|one| self.told(version, one)).collect();
            self.compare_webhooks(version, &listener.sink, &expected);
            self.compare_live(version, listener);
            // A later subscriber gets the same from the log.
            let date = self.plan.dates[version];
            listener.stream =
                Events::open(&self.server, &format!("/api/events?version={date}&since=0"));
            listener.socket = Socket::open(&self.server, &format!("/ws?version={date}&since=0"));
            self.compare_live(version, listener);
        }
    }

    /// Subscribers receive events of collections that their version has. The log is complete in
    /// every version.
    fn is_heard(&self, version: usize, happened: &Happened) -> bool {
        self.collection(happened.after.collection).is_served(version)
    }

    fn told(&self, version: usize, happened: &Happened) -> Told {
        let it = self.collection(happened.after.collection);
        let mut data = json!({ "object": self.shown(version, &happened.after) });
        if let Some(before) = &happened.before {
            let previous = it.previous(version, before, &happened.after.fields);
            data["previous_attributes"] = Value::Object(previous);
        }
        (happened.kind.clone(), data)
    }

    fn compare_events(&self, version: usize, expected: &[Told]) {
        let date = self.plan.dates[version];
        let mut listed = self.log_in(version);
        listed.retain(|event| self.is_ours(event));
        let told: Vec<Told> = listed.iter().map(|event| in_short(event, date)).collect();
        for (one, other) in told.iter().zip(expected) {
            assert_eq!(one, other, "/events in {date}");
        }
        assert_eq!(told.len(), expected.len(), "/events in {date}");
        if let Some(last) = listed.last() {
            let path = format!("/events/{}", last["id"].as_str().unwrap());
            let read = self.ask(version, "GET", &path, None).expect(200);
            assert_eq!(in_short(&read, date), expected[expected.len() - 1], "{path}");
        }
    }

    /// All pages of the log.
    fn log_in(&self, version: usize) -> Vec<Value> {
        let first = "/events?sort=created&limit=100".to_owned();
        let (mut path, mut listed) = (first.clone(), Vec::new());
        loop {
            let page = self.ask(version, "GET", &path, None).expect(200);
            listed.extend(page["data"].as_array().unwrap().iter().cloned());
            match page["pagination"]["next_cursor"].as_str() {
                Some(cursor) => path = format!("{first}&after={cursor}"),
                None => return listed,
            }
        }
    }

    /// Whether it is about the collections, and not about endpoints or the account.
    fn is_ours(&self, event: &Value) -> bool {
        self.is_known(event["type"].as_str().unwrap())
    }

    fn is_known(&self, kind: &str) -> bool {
        let object = kind.split('.').next();
        self.plan.collections.iter().any(|collection| Some(collection.object) == object)
    }

    /// In any order, since deliveries do not wait for one another.
    fn compare_webhooks(&self, version: usize, sink: &Sink, expected: &[Told]) {
        let date = self.plan.dates[version];
        let came = || -> Vec<Value> {
            let all = sink.received().into_iter().map(|one| one.event());
            all.filter(|event| self.is_ours(event)).collect()
        };
        eventually("webhooks came", || came().len() >= expected.len());
        let mut came: Vec<Told> = came().iter().map(|event| in_short(event, date)).collect();
        for one in expected {
            let place = came.iter().position(|other| other == one);
            let place = place.unwrap_or_else(|| panic!("{date}: no {one:#?} among {came:#?}"));
            came.remove(place);
        }
        assert!(came.is_empty(), "{date}: {came:#?}");
    }

    /// In commit order. Records of a feed have no envelope.
    fn compare_live(&self, version: usize, listener: &mut Listener) {
        let date = self.plan.dates[version];
        for happened in self.log.iter().filter(|one| self.is_heard(version, one)) {
            let (kind, data) = self.told(version, happened);
            let it = self.collection(happened.after.collection);
            let name = if it.feed { it.object } else { kind.as_str() };
            let streamed = listener.next_streamed(|kind| self.is_known(kind));
            assert!(streamed.is(name), "{date}: {streamed:?} and not {name}: {data}");
            let mut said = listener.next_said(|kind| self.is_known(kind));
            assert_eq!(said["type"], name, "{date}: {said}");
            for (door, body) in [("stream", streamed.json()), ("socket", said["data"].take())] {
                match it.feed {
                    true => assert_eq!(body, data["object"], "{door} in {date}"),
                    false => {
                        assert_eq!(in_short(&body, date), (kind.clone(), data.clone()), "{door}");
                    }
                }
            }
        }
    }
}

impl Listener {
    fn next_streamed(&mut self, wanted: impl Fn(&str) -> bool) -> Block {
        loop {
            let block = self.stream.event();
            if block.event.as_deref().is_some_and(&wanted) {
                return block;
            }
        }
    }

    fn next_said(&mut self, wanted: impl Fn(&str) -> bool) -> Value {
        loop {
            let message = self.socket.message();
            if message["type"].as_str().is_some_and(&wanted) {
                return message;
            }
        }
    }
}

/// The parts of an envelope that the model knows; it must have the version.
#[track_caller]
fn in_short(event: &Value, date: &str) -> Told {
    assert_eq!(event["api_version"], date, "{event}");
    (event["type"].as_str().unwrap_or("?").to_owned(), event["data"].clone())
}
