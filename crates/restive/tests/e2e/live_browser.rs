//! Pages in Chromium: one with an EventSource and a WebSocket whose server is killed and restarted
//! (xtask/tools/browser/live.mjs), and one that is refused for lack of room (full.mjs).

use crate::carry;
use crate::harness::{Server, Start, eventually};
use crate::live_client::{Events, token, write};
use crate::tools;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

const LAST: &str = "the last one";

struct Page {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
}

impl Page {
    fn open(script: &str, server: &Server, token: &str) -> Page {
        let scheme = if carry::is_secure() { "https" } else { "http" };
        let mut child = Command::new("node")
            .arg(tools::root().join("xtask/tools/browser").join(script))
            .arg(tools::installed("node"))
            .arg(format!("{scheme}://{}", server.address))
            .arg(token)
            .arg(LAST)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Page { child, lines }
    }

    #[track_caller]
    fn says(&mut self) -> String {
        self.lines.next().expect("the page goes on").unwrap()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_browser_page_receives_every_event_once_across_a_restart() {
    let start = || Start::bookshop().env("RESTIVE_ACCESS_LOG", "off");
    let server = start().go();
    let address = server.address;
    let token = token(&server, json!({ "user": "ann", "types": ["message"] }));
    let mut page = Page::open("live.mjs", &server, &token);
    assert_eq!(page.says(), "open");
    let mut written = Vec::new();
    let mut write_some = |server: &Server, what: &str| {
        for number in 0..50 {
            let text = format!("{what} {number}");
            write(server, &text);
            written.push(text);
        }
    };
    write_some(&server, "before");
    // Killed while the last events may still be in transit, and once stopped gracefully.
    let folder = server.kill();
    let server = start().on(&folder).at(address).go();
    write_some(&server, "after a kill");
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let server = start().on(&folder).at(address).go();
    write_some(&server, "after a stop");
    write(&server, LAST);
    written.push(LAST.to_owned());
    let heard: Value = serde_json::from_str(&page.says()).unwrap();
    assert_eq!(heard["stream"], json!(written), "EventSource");
    assert_eq!(heard["socket"], json!(written), "WebSocket");
    assert!(heard["streamOpened"].as_u64().unwrap() >= 2, "{heard}");
    assert!(heard["socketOpened"].as_u64().unwrap() >= 2, "{heard}");
}

/// The response of a full server must not make a browser give up an EventSource.
#[test]
fn a_browser_page_refused_for_lack_of_room_reconnects_later() {
    let schema = model::schema::BOOKSHOP.replace("origins = []", "origins = [\"*\"]");
    let server = Start::schema(&schema).arg("--max-connections").arg("4").go();
    let token = token(&server, json!({ "user": "ann", "types": ["message"] }));
    let open = || {
        let mut events = Events::open(&server, "/api/events");
        events.next().id.map(|_| events)
    };
    // The last one takes the place of the connection that asked for the token, once that is idle.
    let mut held: Vec<Events> = Vec::new();
    eventually("streams take all places", || {
        held.extend(open());
        held.len() == 4
    });
    let mut page = Page::open("full.mjs", &server, &token);
    let mut said = std::iter::repeat_with(|| page.says()).take_while(|said| said != "again");
    assert!(said.all(|said| said == "open"), "it comes back");
    // Room for the page, and for the requests below.
    held.truncate(2);
    // Identified by its user: the streams that ended may still be counted for a while, so this
    // request may be refused as well.
    eventually("it is heard", || {
        let presence = server.ask("GET", "/v1/presence").try_send();
        presence.is_ok_and(|answer| answer.status == 200 && answer.json["data"] != json!([]))
    });
    write(&server, "hello");
    let said: Vec<String> = std::iter::repeat_with(|| page.says())
        .inspect(|said| assert_ne!(said, "closed"))
        .take_while(|said| said != "hello")
        .collect();
    assert_eq!(said.last().map(String::as_str), Some("open"));
}
