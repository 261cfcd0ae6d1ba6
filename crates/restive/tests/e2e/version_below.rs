//! Children of a collection exist in the same versions as the collection: a version without clubs
//! has no members of clubs, in every interface.

use crate::harness::{Server, Start, eventually, run};
use crate::live_client::{Events, Socket};
use crate::sink::Sink;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NEW: &str = "2026-09-01";
const MIDDLE: &str = "2026-01-01";
const OLD: &str = "2025-06-01";

/// Clubs were added with the second version, guilds removed with the third. Their children have no
/// changes of their own.
const CLUBS: &str = r#"
[webhooks]
development = true
[[versions]]
date = "2026-09-01"
[[versions.changes]]
collection = "guilds"
collection_removed = true
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "clubs"
collection_added = true
[[versions]]
date = "2025-06-01"

[collections.clubs.fields]
title = "string"
[collections.members]
parent = "clubs"
fields = { name = "string" }
[collections.badges]
parent = "members"
fields = { name = "string" }
[collections.guilds.fields]
title = "string"
[collections.crafts]
parent = "guilds"
fields = { name = "string" }
[collections.notes.fields]
text = "string"
"#;

/// A record of each collection, in versions that have it.
fn fill(server: &Server) -> [String; 3] {
    let make = |path: &str| {
        let made = server.ask("POST", path).version(MIDDLE).json(&json!({})).send();
        assert_eq!(made.status, 201, "{path}: {}", made.text);
        format!("{path}/{}", made.id())
    };
    let members = format!("{}/members", make("/v1/clubs"));
    let badges = format!("{}/badges", make(&members));
    make(&badges);
    let crafts = format!("{}/crafts", make("/v1/guilds"));
    make(&crafts);
    make("/v1/notes");
    [members, badges, crafts]
}

#[test]
fn child_paths_exist_only_in_the_versions_of_their_parent() {
    let server = Start::schema(CLUBS).go();
    let [members, badges, crafts] = fill(&server);
    for (path, version, message) in [
        (&members, OLD, "`members` exists since version 2026-01-01"),
        (&badges, OLD, "`badges` exists since version 2026-01-01"),
        (&crafts, NEW, "`crafts` existed until version 2026-01-01"),
    ] {
        let error = server.ask("GET", path).version(version).send().error(404, "route_not_found");
        let expected = format!("{message}; this request uses version {version}.");
        assert_eq!(error["message"], expected.as_str());
    }
    for (path, versions) in
        [(&members, [MIDDLE, NEW]), (&badges, [MIDDLE, NEW]), (&crafts, [OLD, MIDDLE])]
    {
        for version in versions {
            let page = server.ask("GET", path).version(version).send();
            assert_eq!(page.column("object").len(), 1, "{path} {version}");
        }
    }
}

#[test]
fn openapi_documents_have_child_paths_only_with_their_parent() {
    let server = Start::schema(CLUBS).go();
    for (version, expected) in [
        (OLD, ["crafts", "guilds", "notes"].as_slice()),
        (MIDDLE, &["badges", "clubs", "crafts", "guilds", "members", "notes"]),
        (NEW, &["badges", "clubs", "members", "notes"]),
    ] {
        let contract = server.get(&format!("/openapi.json?version={version}")).expect(200);
        let known = ["badges", "clubs", "crafts", "guilds", "members", "notes"];
        let paths = contract["paths"].as_object().unwrap();
        let segments: BTreeSet<&str> =
            paths.keys().flat_map(|path| path.split('/')).filter(|s| known.contains(s)).collect();
        assert_eq!(segments.into_iter().collect::<Vec<_>>(), expected, "{version}");
        resolves(&contract, &contract);
    }
}

/// Every reference of a document resolves.
fn resolves(document: &Value, part: &Value) {
    match part {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
            }
            members.values().for_each(|part| resolves(document, part));
        }
        Value::Array(items) => items.iter().for_each(|part| resolves(document, part)),
        _ => {}
    }
}

#[test]
fn channels_and_webhooks_send_events_of_children_only_in_the_versions_of_their_parent() {
    let server = Start::schema(CLUBS).go();
    let expected = |version: &str| match version {
        OLD => ["guild", "craft", "note"].as_slice(),
        MIDDLE => &["club", "member", "badge", "guild", "craft", "note"],
        _ => &["club", "member", "badge", "note"],
    };
    let doors = [OLD, MIDDLE, NEW].map(|version| {
        let sink = Sink::start();
        let body = json!({ "url": sink.url(), "api_version": version, "max_in_flight": 1 });
        let endpoint = server.make("/v1/webhook-endpoints", body);
        let stream = Events::open(&server, &format!("/api/events?version={version}"));
        let socket = Socket::open(&server, &format!("/ws?version={version}"));
        (version, sink, endpoint, stream, socket)
    });
    fill(&server);
    for (version, sink, endpoint, mut stream, mut socket) in doors {
        let expected: Vec<String> =
            expected(version).iter().map(|object| format!("{object}.created")).collect();
        let streamed = until_note(|| stream.event().event.unwrap());
        let sent = until_note(|| socket.message()["type"].as_str().unwrap().to_owned());
        assert_eq!((&streamed, &sent), (&expected, &expected), "{version}");
        let told = || {
            let kinds = sink.received().into_iter().map(|got| got.kind());
            kinds.filter(|kind| kind.ends_with(".created")).collect::<BTreeSet<_>>()
        };
        // Deliveries are in order: an event that has not arrived by now will not arrive.
        eventually("the last was delivered", || told().contains("note.created"));
        server.post("/v1/replays", json!({ "endpoint": endpoint })).expect(201);
        eventually("it was delivered again", || sink.of("note.created").len() == 2);
        assert_eq!(told(), expected.into_iter().collect(), "{version}");
    }
}

/// Types of events in order, up to the last one that `fill` creates.
fn until_note(mut next: impl FnMut() -> String) -> Vec<String> {
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "note.created") {
        kinds.push(next());
        kinds.retain(|kind| kind.ends_with(".created"));
    }
    kinds
}

#[test]
fn removing_a_collection_with_its_children_needs_one_declared_change() {
    let folder = tempfile::tempdir().unwrap();
    let kept = "[collections.guilds.fields]\ntitle = \"string\"\n\
                [collections.crafts]\nparent = \"guilds\"\nfields = { name = \"string\" }\n";
    let removed = "[[versions]]\ndate = \"2026-09-01\"\n\
                   [[versions.changes]]\ncollection = \"guilds\"\ncollection_removed = true\n\
                   [[versions]]\ndate = \"2026-01-01\"\n";
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    write("first.toml", format!("[service]\nversion = \"2026-01-01\"\n{kept}"));
    write("second.toml", format!("{removed}{kept}"));
    let later = kept.replace("name =", "word =");
    write("third.toml", format!("{removed}{later}"));
    let plan = |old: &str, new: &str| run(folder.path(), &["plan", old, new]);
    let (said, failed, code) = plan("first.toml", "second.toml");
    assert_eq!(code, 0, "{said}{failed}");
    assert!(said.contains("0 in need of a version change, 0 destructive"), "{said}");
    // Old clients still have it.
    let (said, failed, code) = plan("first.toml", "third.toml");
    assert_eq!(code, 1, "{said}{failed}");
    assert!(said.contains("crafts"), "{said}");
    let (said, failed, code) = plan("second.toml", "second.toml");
    assert_eq!(code, 0, "{said}{failed}");
}
