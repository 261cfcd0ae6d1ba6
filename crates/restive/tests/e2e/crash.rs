//! kill -9 under load: every acknowledged write exists, every other can be repeated once, and
//! records, log and search agree.

use crate::chance::Chance;
use crate::database;
use crate::harness::{Answer, Server, Start, eventually};
use model::Schema;
use model::event::Event;
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::Store;
use store::sqlite::Role;

const WRITERS: usize = 24;
const ROUNDS: usize = 4;

/// A request as it was sent, so that it can be sent again.
#[derive(Clone, Debug)]
struct Request {
    method: &'static str,
    path: String,
    body: Option<Value>,
    /// DELETE has none: repeating it is safe.
    key: Option<String>,
    /// Occurs in exactly the events that this request causes.
    mark: Option<String>,
}

impl Request {
    fn send(&self, server: &Server) -> Option<Answer> {
        let mut ask = server.ask(self.method, &self.path);
        if let Some(body) = &self.body {
            ask = ask.json(body);
        }
        if let Some(key) = &self.key {
            ask = ask.header("idempotency-key", key);
        }
        ask.try_send().ok()
    }
}

/// The responses that one client got, over all rounds.
#[derive(Default)]
struct Client {
    number: usize,
    made: usize,
    answered: Vec<(Request, Answer)>,
    /// Sent without a response before the crash. At most one per round.
    open: Option<Request>,
    /// The newest acknowledged text of each record; `None` when it was deleted.
    records: HashMap<String, Option<String>>,
}

impl Client {
    /// Writes until the server is down.
    fn work(&mut self, server: &Server, chance: &mut Chance, acknowledged: &AtomicUsize) {
        loop {
            let request = self.invent(chance);
            let Some(answer) = request.send(server) else {
                self.open = Some(request);
                return;
            };
            acknowledged.fetch_add(1, Ordering::Relaxed);
            self.note(request, answer);
        }
    }

    fn note(&mut self, request: Request, answer: Answer) {
        assert!(answer.status < 300, "{request:?}: {}", answer.text);
        let (path, text) = match (request.method, answer.header("location")) {
            ("DELETE", _) => (request.path.clone(), None),
            (_, Some(path)) => (path.to_owned(), Some(answer.text.clone())),
            _ => {
                let path = answer.header("content-location").expect("it names its record");
                (path.to_owned(), Some(answer.text.clone()))
            }
        };
        self.records.insert(path, text);
        self.answered.push((request, answer));
    }

    /// The next request; it succeeds, because no other client touches these records.
    fn invent(&mut self, chance: &mut Chance) -> Request {
        self.made += 1;
        let key = format!("client-{}-{}", self.number, self.made);
        let mark = format!("mark{}x{}x", self.number, self.made);
        let alive: Vec<(&String, Value)> = self.alive();
        let books: Vec<_> = alive.iter().filter(|(path, _)| path.contains("/books/")).collect();
        let orders: Vec<_> = alive.iter().filter(|(_, body)| body["status"] == "created").collect();
        // An order refuses the deletion of its book.
        let is_ordered = |book: &Value| alive.iter().any(|(_, body)| body["book"] == book["id"]);
        let free: Vec<_> = books.iter().filter(|(_, book)| !is_ordered(book)).collect();
        let request = |method, path: &str, body, key, mark| {
            let path = path.to_owned();
            Request { method, path, body: Some(body), key: Some(key), mark: Some(mark) }
        };
        let title = format!("{mark} client{}", self.number);
        match chance.below(100) {
            40..65 if !books.is_empty() => {
                let path = books[chance.below(books.len())].0;
                request("PATCH", path, json!({ "title": title }), key, mark)
            }
            65..75 if !free.is_empty() => {
                let path = free[chance.below(free.len())].0.clone();
                Request { method: "DELETE", path, body: None, key: None, mark: None }
            }
            75..90 if !books.is_empty() => {
                let book = &books[chance.below(books.len())].1["id"];
                let body = json!({ "book": book, "quantity": 1 + self.made % 1000 });
                let method = "POST";
                Request { mark: None, ..request(method, "/v1/orders", body, key, mark) }
            }
            90..100 if !orders.is_empty() => {
                let path = format!("{}/cancel", orders[chance.below(orders.len())].0);
                request("POST", &path, json!({ "reason": mark }), key, mark)
            }
            _ => request("POST", "/v1/books", json!({ "title": title, "author": "a" }), key, mark),
        }
    }

    fn alive(&self) -> Vec<(&String, Value)> {
        let alive = self.records.iter().filter_map(|(path, text)| Some((path, text.as_ref()?)));
        let mut alive: Vec<_> =
            alive.map(|(path, text)| (path, serde_json::from_str(text).unwrap())).collect();
        // The iteration order of a map differs between runs.
        alive.sort_by(|one: &(&String, Value), other| one.0.cmp(other.0));
        alive
    }

    /// After a restart: every acknowledged write exists, and the open request takes effect once.
    fn check(&mut self, server: &Server, answered_before: usize) {
        for (request, answer) in &self.answered[answered_before..] {
            let Some(_) = &request.key else { continue };
            let again = request.send(server).expect("the server is back");
            assert_eq!(again.text, answer.text, "a replay must be byte for byte: {request:?}");
            assert_eq!(again.status, answer.status);
            for name in ["etag", "location", "content-location", "last-modified"] {
                assert_eq!(again.header(name), answer.header(name), "{name} of {request:?}");
            }
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
        }
        let touched = self.open.as_ref().map(|open| open.path.trim_end_matches("/cancel"));
        for (path, text) in &self.records {
            let now = server.get(path);
            match text {
                _ if Some(path.as_str()) == touched => {}
                Some(text) => assert_eq!(&now.text, text, "an acknowledged write is gone"),
                None => assert_eq!(now.status, 404, "a deletion was undone: {path}"),
            }
        }
        if let Some(open) = self.open.take() {
            let answer = open.send(server).expect("the server is back");
            if open.key.is_some() {
                let again = open.send(server).expect("the server is back");
                assert_eq!((again.status, &again.text), (answer.status, &answer.text));
            }
            self.note(open, answer);
        }
    }
}

#[test]
fn a_kill_neither_loses_nor_repeats_an_acknowledged_write() {
    let mut chance = Chance::new(0xC0FFEE);
    let start =
        || Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off");
    let mut server = start().go();
    let mut clients: Vec<Client> =
        (0..WRITERS).map(|number| Client { number, ..Client::default() }).collect();
    for round in 0..ROUNDS {
        let enough = 60 + chance.below(500);
        let before: Vec<usize> = clients.iter().map(|client| client.answered.len()).collect();
        let acknowledged = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for client in &mut clients {
                let mut own = Chance::new((round * 1000 + client.number) as u64);
                let (server, acknowledged) = (&server, &acknowledged);
                scope.spawn(move || client.work(server, &mut own, acknowledged));
            }
            let reached = || acknowledged.load(Ordering::Relaxed) >= enough;
            eventually("enough writes are acknowledged", reached);
            server.signal("-KILL");
        });
        let folder = server.kill();
        server = start().on(&folder).go();
        std::thread::scope(|scope| {
            for (client, before) in clients.iter_mut().zip(before) {
                let server = &server;
                scope.spawn(move || client.check(server, before));
            }
        });
    }
    search_finds_what_exists(&server, &clients);
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let schema = model::parse::parse(model::schema::BOOKSHOP).unwrap();
    log_and_records_agree(folder.path(), Arc::new(schema), &clients);
}

fn search_finds_what_exists(server: &Server, clients: &[Client]) {
    for client in clients {
        let alive = client.alive();
        let expected: HashSet<&str> = alive
            .iter()
            .filter(|(path, _)| path.contains("/books/"))
            .map(|(_, body)| body["id"].as_str().unwrap())
            .collect();
        let mut found = HashSet::new();
        let mut path = format!("/v1/books?q=client{}&limit=100", client.number);
        loop {
            let page = server.get(&path).expect(200);
            for book in page["data"].as_array().unwrap() {
                assert!(found.insert(book["id"].as_str().unwrap().to_owned()), "found twice");
            }
            let Some(cursor) = page["pagination"]["next_cursor"].as_str() else { break };
            path = format!("/v1/books?q=client{}&limit=100&after={cursor}", client.number);
        }
        assert_eq!(found.iter().map(String::as_str).collect::<HashSet<_>>(), expected);
    }
}

/// Reads the file itself, through the store: no event without record, no record without event.
fn log_and_records_agree(folder: &std::path::Path, schema: Arc<Schema>, clients: &[Client]) {
    let store = database::open(folder, &schema, Role::Tool);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let events = runtime.block_on(all_events(&*store));
    let mut ids = HashSet::new();
    let mut last = 0;
    let mut newest: HashMap<(usize, &str), &Event> = HashMap::new();
    for event in &events {
        assert!(event.seq > last, "sequence {} after {last}", event.seq);
        last = event.seq;
        assert!(ids.insert(&event.id), "an event id was given twice");
        let collection = schema.find(&event.collection).unwrap();
        newest.insert((collection, &event.record), event);
    }
    for ((collection, id), event) in &newest {
        let found = store.record(event.scope, *collection, None, id);
        let found = runtime.block_on(found).unwrap();
        if event.kind.ends_with(".deleted") {
            assert!(found.is_none(), "{id} is there after its deletion");
        } else {
            let record = found.unwrap_or_else(|| panic!("an event without record: {id}"));
            assert_eq!(record.body, event.object);
            assert_eq!(record.version, event.seq);
        }
    }
    for client in clients {
        for (path, text) in &client.records {
            let id = path.rsplit('/').next().unwrap();
            let name = if path.contains("/books/") { "books" } else { "orders" };
            let event = newest.get(&(schema.find(name).unwrap(), id));
            let event = event.unwrap_or_else(|| panic!("a record without event: {id}"));
            assert_eq!(text.is_none(), event.kind.ends_with(".deleted"), "{id}");
        }
    }
    each_request_has_one_event(&events, clients);
}

fn each_request_has_one_event(events: &[Event], clients: &[Client]) {
    let mut by_key: HashMap<&str, usize> = HashMap::new();
    for event in events {
        if let Some(key) = &event.idempotency_key {
            *by_key.entry(key).or_default() += 1;
        }
    }
    for (request, _) in clients.iter().flat_map(|client| &client.answered) {
        if let (Some(key), Some(_)) = (&request.key, &request.mark) {
            assert_eq!(by_key.get(key.as_str()), Some(&1), "{request:?} happened once");
        }
    }
}

async fn all_events(store: &dyn Store) -> Vec<Event> {
    let mut all: Vec<Event> = Vec::new();
    loop {
        let after = all.last().map_or(0, |event| event.seq);
        let more = store.events(None, after, 200).await.unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}
