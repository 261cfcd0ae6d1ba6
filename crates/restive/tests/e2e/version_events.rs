//! Each operation of the schema file, in the interfaces without a record request: the log, streams,
//! sockets, webhooks, and the OpenAPI document.

use crate::harness::{Server, Start, eventually};
use crate::live_client::{Events, Socket};
use crate::sink::Sink;
use crate::versions::{CASES, Case, NEW, OLD, OPERATIONS, json_of, same};
use serde_json::{Value, json};

/// The events of a version: the record as created and as patched.
struct Told {
    version: &'static str,
    sink: Sink,
    stream: Events,
    socket: Socket,
}

impl Told {
    fn open(server: &Server, version: &'static str) -> Told {
        let sink = Sink::start();
        let body = json!({ "url": sink.url(), "api_version": version });
        server.post("/v1/webhook-endpoints", body).expect(201);
        let mut socket = Socket::open(server, &format!("/ws?version={version}"));
        socket.typed("welcome");
        let stream = Events::open(server, &format!("/api/events?version={version}"));
        Told { version, sink, stream, socket }
    }

    /// One event of the kind, equal in every interface.
    fn told(&mut self, server: &Server, kind: &str) -> Value {
        let streamed = self.stream.named(kind).json();
        assert_eq!(streamed["api_version"], self.version, "{streamed}");
        assert_eq!(self.socket.typed(kind)["data"], streamed, "{kind}");
        let path = format!("/v1/events/{}", streamed["id"].as_str().unwrap());
        let read = server.ask("GET", &path).version(self.version).send().expect(200);
        assert_eq!(read["data"], streamed["data"], "{kind}");
        eventually("it is delivered", || !self.sink.of(kind).is_empty());
        let delivered = self.sink.of(kind).remove(0).event();
        assert_eq!(delivered["data"], streamed["data"], "{kind}");
        streamed["data"].clone()
    }
}

#[test]
fn events_of_each_operation_have_the_shape_of_both_versions_in_every_interface() {
    let schema = format!("{OPERATIONS}\n[webhooks]\ndevelopment = true\n");
    let server = Start::schema(&schema).go();
    let (mut old, mut new) = (Told::open(&server, OLD), Told::open(&server, NEW));
    for case in CASES {
        let about = case.collection;
        let list = format!("/v1/{about}");
        let made = server.ask("POST", &list).version(OLD).json(&json_of(case.sent)).send();
        assert_eq!(made.status, 201, "{about}: {}", made.text);
        let object = made.json["object"].as_str().unwrap().to_owned();
        let path = format!("{list}/{}", made.id());
        let patch = json_of(case.patch);
        server.ask("PATCH", &path).version(OLD).json(&patch).send().expect(200);
        let (created, updated) = (format!("{object}.created"), format!("{object}.updated"));
        same(&old.told(&server, &created)["object"], case.old, about);
        same(&new.told(&server, &created)["object"], case.new, about);
        let (was, is) = (old.told(&server, &updated), new.told(&server, &updated));
        same(&was["object"], case.patched_old, about);
        same(&is["object"], case.patched_new, about);
        before(&was, case.old, case.patched_old, about);
        before(&is, case.new, case.patched_new, about);
    }
}

/// The old values of the changed fields.
#[track_caller]
fn before(told: &Value, was: &str, is: &str, about: &str) {
    let (was, is) = (json_of(was), json_of(is));
    let previous = told["previous_attributes"].as_object().unwrap();
    for (name, value) in is.as_object().unwrap() {
        let expected = (was[name] != *value).then(|| was[name].clone());
        let shown = previous.get(name).filter(|shown| **shown != told["object"][name]);
        assert_eq!(shown.cloned(), expected, "{about}.{name}: {told}");
    }
}

#[test]
fn the_openapi_documents_of_both_versions_describe_each_operation() {
    let server = Start::schema(OPERATIONS).go();
    let document = |version: &str| server.get(&format!("/openapi.json?version={version}")).json;
    let (old, new) = (document(OLD), document(NEW));
    let members = |document: &Value, case: &Case| {
        let path = format!("/{}", case.collection);
        let paths = document["paths"].as_object().unwrap();
        let create = paths.iter().find(|(name, _)| name.ends_with(&path)).unwrap().1;
        let answer = &create["post"]["responses"]["201"]["content"]["application/json"]["schema"];
        let name = answer["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        let record = &document["components"]["schemas"][name]["properties"];
        record.as_object().unwrap_or_else(|| panic!("{name}: {answer}")).clone()
    };
    for case in CASES {
        for (document, shown, hidden) in [(&old, case.old, case.new), (&new, case.new, case.old)] {
            let declared = members(document, case);
            let (shown, hidden) = (json_of(shown), json_of(hidden));
            for name in shown.as_object().unwrap().keys() {
                assert!(declared.contains_key(name), "{}.{name}: {declared:?}", case.collection);
            }
            for name in hidden.as_object().unwrap().keys().filter(|name| shown.get(name).is_none())
            {
                assert!(!declared.contains_key(name), "{}.{name}: {declared:?}", case.collection);
            }
        }
    }
}
