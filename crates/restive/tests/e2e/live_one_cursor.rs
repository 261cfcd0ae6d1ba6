//! One cursor for every channel: a client switches channels at every message, or comes from a list,
//! while others write, and neither misses nor repeats anything.

use crate::chance::Chance;
use crate::harness::{Server, Start};
use crate::live_client::{Events, Socket, committed, shown, write};
use serde_json::{Value, json};
use std::collections::HashSet;

const MESSAGES: usize = 150;
const LAST: &str = "the last one";

fn start() -> Server {
    Start::bookshop().arg("--rate-limit").arg("off").env("RESTIVE_ACCESS_LOG", "off").go()
}

/// Writes messages, and other records in between, so that not every position is a message.
fn chatter(server: &Server, seed: u64) {
    let mut chance = Chance::new(seed);
    for number in 0..MESSAGES {
        write(server, &format!("message {number}"));
        if chance.percent(30) {
            server.book("a book in between");
        }
    }
    write(server, LAST);
}

/// A client: its position, and the messages that it received.
struct Client<'s> {
    server: &'s Server,
    position: String,
    told: Vec<(i64, String)>,
}

impl Client<'_> {
    fn is_done(&self) -> bool {
        self.told.last().is_some_and(|(_, text)| text == LAST)
    }

    /// Reads this many messages from a WebSocket, and ignores the rest.
    fn by_socket(&mut self, count: usize) {
        let target = format!("/ws?since={}", self.position);
        let mut socket = Socket::open(self.server, &target);
        self.begins_here(socket.message()["position"].as_str().unwrap());
        for _ in 0..count {
            let message = socket.typed("message");
            self.take(&message["data"], message["position"].as_str().unwrap());
        }
    }

    fn by_stream(&mut self, count: usize, types: &str) {
        let last = Some(self.position.as_str());
        let mut events = Events::open_from(self.server, &format!("/api/events{types}"), last);
        self.begins_here(events.next().id.as_deref().unwrap());
        for _ in 0..count {
            let block = events.named("message");
            self.take(&block.json(), block.id.as_deref().unwrap());
        }
    }

    fn by_poll(&mut self, query: &str) {
        let target = format!("/api/messages?since={}{query}", self.position);
        let answer = self.server.get(&target);
        let position = answer.header("x-stream-position").unwrap().to_owned();
        for record in answer.expect(200).as_array().unwrap() {
            self.take(record, &position);
        }
        self.position = position;
    }

    /// The first position of a channel is the requested one, with the epoch.
    fn begins_here(&self, position: &str) {
        let (_, sequence) = position.split_once('.').unwrap();
        assert!(self.position == position || self.position == sequence, "begins at {position}");
    }

    fn take(&mut self, record: &Value, position: &str) {
        self.told.push(shown(record));
        position.clone_into(&mut self.position);
    }

    /// Uses the id of the last record as the position, which is equivalent.
    fn forget_position(&mut self) {
        self.position = self.told.last().map_or("0".to_owned(), |(id, _)| id.to_string());
    }
}

#[test]
fn a_client_that_switches_channels_at_every_message_misses_and_repeats_nothing() {
    let server = start();
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| chatter(&server, 1));
        let mut client = Client { server: &server, position: begin, told: Vec::new() };
        let mut channel = 0;
        while !client.is_done() {
            match channel % 5 {
                0 => client.by_socket(1),
                1 => client.by_stream(1, ""),
                2 => client.by_poll("&wait=true&limit=1"),
                3 => client.by_poll("&limit=1"),
                _ => client.by_stream(1, "?types=message"),
            }
            channel += 1;
        }
        assert_eq!(client.told, committed(&server));
    });
}

#[test]
fn many_clients_switch_channels_in_random_order_without_gaps() {
    let server = start();
    let begin = server.get("/api/messages").header("x-stream-position").unwrap().to_owned();
    std::thread::scope(|scope| {
        scope.spawn(|| chatter(&server, 2));
        let wanderer = |seed: u64| {
            let (server, position) = (&server, begin.clone());
            move || {
                let mut chance = Chance::new(seed);
                let mut client = Client { server, position, told: Vec::new() };
                while !client.is_done() {
                    let left = MESSAGES + 1 - client.told.len();
                    let count = (1 + chance.below(4)).min(left);
                    match chance.below(5) {
                        0 => client.by_socket(count),
                        1 => client.by_stream(count, "?types=message,book.*"),
                        2 => client.by_poll("&wait=true"),
                        3 => client.by_poll("&limit=3"),
                        _ => client.forget_position_once(&mut chance),
                    }
                }
                client.told
            }
        };
        let clients: Vec<_> = (0..6).map(|seed| scope.spawn(wanderer(seed))).collect();
        let told: Vec<_> = clients.into_iter().map(|client| client.join().unwrap()).collect();
        let expected = committed(&server);
        for one in told {
            assert_eq!(one, expected);
        }
    });
}

impl Client<'_> {
    /// A bare id is a position of this log from the first message on.
    fn forget_position_once(&mut self, chance: &mut Chance) {
        if !self.told.is_empty() && chance.percent(50) {
            self.forget_position();
        } else {
            self.by_poll("&limit=1");
        }
    }
}

/// The stream from the position of a list, until this book.
fn books_from(server: &Server, position: &str, last: &str) -> Vec<String> {
    let target = format!("/api/events?types=book.created&since={position}");
    let mut events = Events::open(server, &target);
    let mut ids = Vec::new();
    while ids.last().is_none_or(|id| id != last) {
        let block = events.event();
        ids.push(block.json()["data"]["object"]["id"].as_str().unwrap().to_owned());
    }
    ids
}

#[test]
fn a_stream_from_the_position_of_a_list_has_no_gap() {
    let server = start();
    server.book("before");
    let list = server.get("/v1/books");
    let position = list.header("x-stream-position").unwrap().to_owned();
    let between = server.book("between list and stream");
    let same = server.ask("GET", "/v1/books").header("if-none-match", "W/\"0-0\"").send();
    assert_eq!(same.titles().len(), 2);
    let live = books_from(&server, &position, &between);
    assert_eq!(live, [between.as_str()], "what the list had is not told again");
    // The other channels accept it as well.
    let mut socket = Socket::open(&server, &format!("/ws?types=book.created&since={position}"));
    assert_eq!(socket.typed("book.created")["data"]["data"]["object"]["id"], between);
    let message = write(&server, "a message");
    let polled = server.get(&format!("/api/messages?since={position}"));
    assert_eq!(polled.expect(200)[0]["id"], message);
}

#[test]
fn lists_and_streams_together_are_complete_during_writes() {
    let server = start();
    let mut rounds = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let server = &server;
            // With the marks, no more than one page.
            scope.spawn(move || (0..40).for_each(|n| drop(server.book(&format!("{writer} {n}")))));
        }
        for _ in 0..12 {
            let list = server.get("/v1/books?limit=100");
            let position = list.header("x-stream-position").unwrap().to_owned();
            let mark = server.book("mark");
            let live = books_from(&server, &position, &mark);
            let listed: Vec<String> =
                list.column("id").iter().map(|id| id.as_str().unwrap().to_owned()).collect();
            rounds.push((listed, live, mark));
        }
    });
    let last = server.book("the last one");
    let all = books_from(&server, "0", &last);
    for (listed, live, mark) in rounds {
        let seen: HashSet<&String> = listed.iter().chain(&live).collect();
        let until = all.iter().position(|id| *id == mark).unwrap();
        for id in &all[..=until] {
            assert!(seen.contains(id), "{id} was in neither");
        }
        assert!(all[..=until].ends_with(&live), "the stream is in order and without a hole");
    }
}

#[test]
fn every_list_returns_the_position_of_the_log() {
    let server = start();
    let book = server.book("Dune");
    server.make(&format!("/v1/books/{book}/reviews"), json!({ "rating": 5 }));
    write(&server, "hello");
    let here = Events::open(&server, "/api/events").next().id.unwrap();
    let check = |method: &str, path: &str, tag: &str| {
        let answer = server.ask(method, path).header("if-none-match", tag).send();
        assert_eq!(answer.header("x-stream-position"), Some(here.as_str()), "{method} {path}");
        answer
    };
    for path in [
        "/v1/books",
        "/v1/books?page=2&limit=1",
        "/v1/books?q=dune&sort=-title&fields=title",
        &format!("/v1/books/{book}/reviews"),
        "/v1/orders",
        "/v1/payment-intents",
        "/v1/messages",
        "/v1/events",
        "/v1/webhook-endpoints",
        "/v1/deliveries",
        "/v1/replays",
        "/v1/presence",
        "/api/messages",
        "/api/messages?since=0&limit=1",
    ] {
        let answer = check("GET", path, "\"none\"");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        check("HEAD", path, "\"none\"");
        // Also a 304.
        if let Some(tag) = answer.header("etag") {
            assert_eq!(check("GET", path, tag).status, 304, "{path}");
        }
    }
}
