//! Two accounts behind one address: memory that one of them makes the server hold, by unread
//! responses and unfinished uploads, is not charged to the other.

use crate::auth::account;
use crate::h2_storms::{END_HEADERS, END_STREAM, HEADERS, PREFACE, SETTINGS, frame, head, streams};
use crate::harness::{PATIENCE, Start, eventually};
use serde_json::json;
use std::io::Write as _;
use std::net::TcpStream;

const SCHEMA: &str = "
[service]
rate_limit = { requests = 1000000, window = '1s' }
[collections.notes.fields]
text = { type = 'string', max_length = 1000000 }
kind = 'string'
";
/// The length of a note. 900 KB: almost the body limit.
const NOTE_BYTES: usize = 900_000;
/// Streams on one connection; the server allows 128.
const STREAMS: u32 = 120;
/// Connections of each kind. All responses together exceed the half of the memory for unread
/// responses (512 MiB) that one holder may use.
const CONNECTIONS: usize = 3;

#[test]
fn memory_held_by_one_account_is_not_charged_to_another_at_the_same_address() {
    let server = Start::schema(SCHEMA).env("RESTIVE_ACCESS_LOG", "off").go();
    let (_, theirs, _) = account(&server, "other");
    let note = json!({"text": "x".repeat(NOTE_BYTES)});
    let own = format!("/v1/notes/{}", server.make("/v1/notes", note.clone()));
    let made = server.ask("POST", "/v1/notes").key(&theirs).json(&note).send();
    let other = format!("/v1/notes/{}", made.id());
    let opening = [PREFACE, &frame(SETTINGS, 0, 0, &[])].concat();
    let connect = |frames: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&[&opening, frames].concat()).unwrap();
        stream
    };
    let (post, get) = (head("POST", "/v1/notes"), head("GET", &own));
    let uploads = streams(STREAMS, |stream| frame(HEADERS, END_HEADERS, stream, &post));
    let reads = streams(STREAMS, |stream| frame(HEADERS, END_STREAM | END_HEADERS, stream, &get));
    let mut kept: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&uploads)).collect();
    kept.extend((0..CONNECTIONS).map(|_| connect(&reads)));
    eventually("the account holds all it may", || server.get(&own).status == 503);
    // The response to a write that changed something is never replaced. If the write changed
    // nothing, the client can repeat it.
    let update = || server.ask("PATCH", &own).json(&json!({"kind": "b"})).send().status;
    assert_eq!([update(), update()], [200, 503]);
    let mut server = server;
    for version in ["http1", "http2"] {
        server = server.over(version);
        let asks = [
            server.ask("GET", &other).key(&theirs),
            server.ask("POST", "/v1/notes").key(&theirs).json(&note),
            server.ask_anonymously("GET", "/health"),
            server.ask_anonymously("GET", "/metrics"),
            // With the key of the account that has used up its share.
            server.ask("GET", "/metrics"),
            server.ask_anonymously("GET", "/openapi.json"),
        ];
        let statuses = asks.map(|ask| ask.send().status);
        assert_eq!(statuses, [200, 201, 200, 200, 200, 200], "{version}");
    }
    drop(kept);
    eventually("it has room again", || server.get(&own).status == 200);
}
