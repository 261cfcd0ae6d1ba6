//! A data file that an earlier development state wrote: its secrets and missing states are cleaned
//! up before it is served.

use crate::deadline::Deadline as _;
use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};
use std::process::Command;

const SCHEMA: &str = "
[collections.notes]
states = { names = ['new', 'done'] }
[collections.notes.fields]
title = 'string'
pin = { type = 'string', write_only = true }
[collections.notes.actions.finish]
from = ['new']
to = 'done'
";

fn keyed(server: &Server, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    server.ask(method, path).header("idempotency-key", key).json(body).send()
}

#[test]
fn secrets_and_missing_states_of_an_older_file_are_cleaned_up_before_it_is_served() {
    let server = Start::schema(SCHEMA).go();
    let endpoint = json!({"url": "https://hooks.example.com/in",
        "enabled_events": ["erasure.created"], "headers": {"authorization": "Bearer first"}});
    let made = keyed(&server, "POST", "/v1/webhook-endpoints", "e1", &endpoint);
    assert_eq!(made.status, 201, "{}", made.text);
    let hook = format!("/v1/webhook-endpoints/{}", made.id());
    let patch = json!({"headers": {"authorization": "Bearer second"}});
    let patched = keyed(&server, "PATCH", &hook, "e2", &patch);
    let fields = json!({"title": "Dune", "pin": "pin-0"});
    let created = keyed(&server, "POST", "/v1/notes", "n1", &fields);
    let note = format!("/v1/notes/{}", created.id());
    let tag = server.get(&note).header("etag").unwrap().to_owned();
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    let mut edit = Command::new("sqlite3");
    edit.arg(folder.path().join("data/restive.db")).arg(
        "DELETE FROM meta WHERE name = 'cleanup'; \
         UPDATE log SET object = json_set(object, '$.headers.authorization', 'Bearer second'), \
           previous = iif(previous IS NULL, NULL, \
             json_set(previous, '$.headers.authorization', 'Bearer first')) \
           WHERE collection = 'webhook-endpoints'; \
         UPDATE log SET object = json_set(object, '$.pin', 'pin-1') WHERE type LIKE 'note.%'; \
         UPDATE remembered SET text = NULL, record = NULL, api_version = NULL, hidden = NULL \
           WHERE text NOT LIKE '%whsec_%'; \
         UPDATE r_notes SET body = json_set(body, '$.status', NULL), f_status = NULL;",
    );
    let output = edit.output_in_time().expect("sqlite3 is needed: `cargo xtask test` installs it");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let server = Start::schema(SCHEMA).on(&folder).go();
    let events = server.get("/v1/events").text;
    assert!(!events.contains("Bearer") && !events.contains("pin-"), "{events}");
    assert!(events.contains(r#""authorization":"********""#), "{events}");
    // The records, and the responses of those who may read them, are as they were.
    assert_eq!(server.get(&hook).expect(200)["headers"]["authorization"], "Bearer second");
    let again = keyed(&server, "POST", "/v1/webhook-endpoints", "e1", &endpoint);
    assert_eq!(again.text, made.text, "with the secret that is shown once");
    assert_eq!(keyed(&server, "PATCH", &hook, "e2", &patch).json, patched.json);
    assert_eq!(keyed(&server, "POST", "/v1/notes", "n1", &fields).json, created.json);
    let shown = server.get(&note);
    assert_ne!(shown.header("etag"), Some(&*tag));
    assert_eq!(shown.expect(200)["status"], "new");
    assert_eq!(server.get("/v1/notes?status=new").column("title"), ["Dune"]);
    assert_eq!(server.post(&format!("{note}/finish"), json!({})).expect(200)["status"], "done");
}
