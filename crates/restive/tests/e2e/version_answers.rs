//! Versions in responses to refused and repeated requests, and on routes that all versions share:
//! the right version header, its deprecations, and no names of other versions.

use crate::harness::{Answer, PATIENCE, Server, Start};
use crate::live_client::{Opened, Socket};
use crate::version_doors::restricted;
use serde_json::json;

const NEW: &str = "2026-09-01";
const MIDDLE: &str = "2026-01-01";
const OLD: &str = "2025-06-01";

/// Two versions below `/v1`, the newest below `/v2`. Clubs and gossips came with the second one,
/// guilds went with the third.
const SHOP: &str = r#"
[service]
mount = "/v2"
[[mounts]]
path = "/v1"
version = "2026-01-01"
[webhooks]
development = true
[events.types."report.ready"]
[[versions]]
date = "2026-09-01"
[[versions.changes]]
collection = "items"
rename = { from = "a", to = "b" }
[[versions.changes]]
collection = "guilds"
collection_removed = true
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "clubs"
collection_added = true
[[versions.changes]]
collection = "gossips"
collection_added = true
[[versions]]
date = "2025-06-01"

[collections.items.fields]
b = "string"
[collections.items.actions.polish]
[collections.pens.fields]
title = "string"
[collections.ticks]
feed = { live_name = "tick" }
fields = { amount = "integer" }
[collections.clubs]
deprecated = "2026-03-01"
sunset = "2027-03-01"
link = "https://shop.example/clubs"
fields = { title = "string" }
[collections.members]
parent = "clubs"
fields = { name = "string" }
[collections.guilds.fields]
title = "string"
[collections.gossips]
feed = true
fields = { text = "string" }
[collections.rumours]
feed = true
deprecated = "2026-03-01"
sunset = "2027-03-01"
link = "https://shop.example/clubs"
fields = { text = "string" }
"#;

fn spoken(answer: &Answer) -> &str {
    answer.header("restive-version").unwrap_or("none")
}

#[test]
fn an_endpoint_whose_version_was_removed_can_still_be_changed() {
    let first = "[service]\nversion = \"2026-01-01\"\n[webhooks]\ndevelopment = true\n\
                 [collections.books.fields]\ntitle = \"string\"\n";
    let server = Start::schema(first).go();
    let body = json!({ "url": "http://127.0.0.1:9/x", "api_version": MIDDLE });
    let path = format!("/v1/webhook-endpoints/{}", server.make("/v1/webhook-endpoints", body));
    let (_, folder) = server.stop();
    let second = first.replace(MIDDLE, NEW);
    let server = Start::schema(&second).arg("--accept-changes").on(&folder).go();
    let patched = server.patch(&path, json!({ "description": "old" })).expect(200);
    assert_eq!((&patched["description"], &patched["api_version"]), (&json!("old"), &json!(MIDDLE)));
    for unknown in [MIDDLE, "2020-01-01"] {
        let patch = json!({ "api_version": unknown });
        let error = server.patch(&path, patch).error(422, "validation_failed");
        assert_eq!(error["param"], "api_version");
    }
    let patched = server.patch(&path, json!({ "api_version": NEW })).expect(200);
    assert_eq!(patched["api_version"], NEW);
}

#[test]
fn a_ref_used_in_another_version_is_refused() {
    let server = Start::schema(SHOP).go();
    let tick = json!({ "type": "tick", "data": { "amount": 5 } });
    let say = |version: &str| {
        Socket::open(&server, &format!("/ws?version={version}")).ask_for(tick.clone())
    };
    assert_eq!(say(OLD)["type"], "ack");
    let again = say(OLD);
    assert_eq!((&again["type"], &again["replayed"]), (&json!("ack"), &json!(true)));
    let refused = say(NEW);
    assert_eq!(refused["type"], "error", "{refused}");
    assert_eq!(refused["error"]["code"], "idempotency_key_reused", "{refused}");
    assert_eq!(server.get("/v2/ticks").column("amount"), [5]);
}

#[test]
fn an_event_is_published_in_the_version_of_the_request() {
    let server = Start::schema(SHOP).go();
    let said = json!({ "type": "report.ready", "data": { "object": { "pages": 7 } } });
    for (mount, version) in [("/v1", OLD), ("/v1", MIDDLE), ("/v2", NEW)] {
        let ask = |method: &str, path: &str| server.ask(method, path).version(version);
        let publish = || {
            let ask = ask("POST", &format!("{mount}/events"));
            ask.header("idempotency-key", version).json(&said).send()
        };
        let made = publish();
        assert_eq!((made.status, spoken(&made)), (201, version), "{}", made.text);
        assert_eq!(made.json["api_version"], version);
        let again = publish();
        assert_eq!((again.header("idempotent-replayed"), &again.text), (Some("true"), &made.text));
        let read = ask("GET", &format!("{mount}/events/{}", made.id())).send();
        assert_eq!(read.json["api_version"], version);
        assert_eq!(read.json["data"], made.json["data"]);
    }
}

#[test]
fn account_routes_use_a_version_of_their_mount() {
    let server = Start::schema(SHOP).go();
    server.get("/v2/items").expect(200);
    for (method, name) in [
        ("GET", "account"),
        ("GET", "version-usage"),
        ("GET", "presence"),
        ("POST", "channel-tokens"),
        ("GET", "events"),
    ] {
        for (mount, outside, pinned) in [("/v1", NEW, MIDDLE), ("/v2", OLD, NEW)] {
            let path = format!("{mount}/{name}");
            let answer = server.ask(method, &path).version(outside).send();
            assert_eq!(spoken(&answer), pinned, "{path}: refused in the newest of the mount");
            let error = answer.error(400, "unknown_version");
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with(&format!("{mount} serves ")), "{message}");
            let answer = server.ask(method, &path).send();
            assert_eq!((answer.status / 100, spoken(&answer)), (2, pinned), "{path}");
        }
    }
    server.post("/v1/account", json!({ "api_version": OLD })).expect(200);
    for (path, version) in [("/v1/account", OLD), ("/v2/account", NEW), ("/v2/presence", NEW)] {
        assert_eq!(spoken(&server.get(path)), version, "{path}");
    }
}

#[test]
fn an_error_has_the_requested_version_or_one_of_the_mount() {
    let server = Start::schema(SHOP).go();
    for (path, version) in [
        ("/v1/nope", MIDDLE),
        ("/v1", MIDDLE),
        ("/v2/nope", NEW),
        ("/v3/nope", NEW),
        ("/v1/account", MIDDLE),
        ("/v1/items", MIDDLE),
        ("/api/events", NEW),
        (&format!("/api/events?version={OLD}"), OLD),
        (&format!("/api/ticks?version={OLD}"), OLD),
        (&format!("/ws?version={OLD}"), OLD),
        ("/api/events?version=2020-01-01", NEW),
        ("/v1/presence", MIDDLE),
    ] {
        let stranger = server.ask_anonymously("GET", path).send();
        assert_eq!(spoken(&stranger), version, "{} {path}", stranger.status);
        if !path.contains("nope") && path != "/v1" {
            let wrong = server.ask("PUT", path).send();
            assert_eq!((wrong.status, spoken(&wrong)), (405, version), "{path}");
        }
    }
    for (path, asked, version) in [
        ("/v1/nope", OLD, OLD),
        ("/v1/nope", NEW, MIDDLE),
        ("/v1/items", NEW, MIDDLE),
        ("/v1/presence", OLD, OLD),
        ("/api/events", MIDDLE, MIDDLE),
        (&format!("/ws?version={OLD}"), MIDDLE, OLD),
    ] {
        let stranger = server.ask_anonymously("GET", path).version(asked).send();
        assert_eq!(spoken(&stranger), version, "{} {path} {asked}", stranger.status);
    }
    let upgrade = Socket::ask(server.address, &format!("/ws?version={OLD}"), &[], PATIENCE);
    let upgrade: Opened = upgrade.unwrap();
    assert_eq!((upgrade.status, upgrade.header("restive-version")), (401, Some(OLD)));
}

#[track_caller]
fn is_leaving(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(answer.header("deprecation"), Some("@1772323200"), "{}", answer.text);
    assert_eq!(answer.header("sunset"), Some("Mon, 01 Mar 2027 00:00:00 GMT"));
    let link = "<https://shop.example/clubs>; rel=\"deprecation\"";
    assert_eq!(answer.headers("link"), [link]);
}

#[track_caller]
fn is_staying(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!((answer.header("deprecation"), answer.header("sunset")), (None, None));
}

#[test]
fn errors_about_a_deprecated_collection_have_deprecation_headers() {
    let server = Start::schema(SHOP).go();
    let reader = restricted(&server, "pens:read");
    let stranger = |method: &str, path: &str| server.ask_anonymously(method, path);
    for path in ["/v2/clubs", "/v2/clubs/x/members", "/v1/clubs"] {
        is_leaving(&stranger("GET", path).send(), 401);
        is_leaving(&server.ask("GET", path).key(&reader).send(), 403);
        is_leaving(&server.ask("DELETE", path).send(), 405);
        is_leaving(&stranger("OPTIONS", path).send(), 204);
        is_leaving(&server.ask("GET", path).version("2020-01-01").send(), 400);
        is_leaving(&stranger("OPTIONS", path).version("2020-01-01").send(), 204);
    }
    is_leaving(&stranger("GET", "/api/rumours").send(), 401);
    is_leaving(&server.ask("GET", "/api/rumours").key(&reader).send(), 403);
    is_leaving(&server.ask("DELETE", "/api/rumours").send(), 405);
    is_leaving(&stranger("OPTIONS", "/api/rumours").send(), 204);
    is_leaving(&server.ask("GET", "/api/rumours").version("2020-01-01").send(), 400);
    is_staying(&stranger("GET", "/v2/pens").send(), 401);
    is_staying(&server.ask("DELETE", "/v2/pens").send(), 405);
    is_staying(&stranger("GET", "/api/ticks").send(), 401);
    // A version that lacks the collection cannot deprecate it.
    is_staying(&server.ask("GET", "/v1/clubs").version(OLD).send(), 404);
    is_staying(&stranger("GET", "/v1/clubs").version(OLD).send(), 401);
    // The caller is unknown, so nothing is counted.
    let usage = server.get("/v2/version-usage").expect(200);
    assert_eq!(usage["deprecated_collections"][0]["requests"], 0);
}

#[test]
fn a_sunset_date_never_precedes_the_deprecation_date() {
    let schema = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
collection_added = true
[[versions]]
date = "2026-01-01"
sunset = "2026-02-01"
[collections.books.fields]
title = "string"
[collections.pens]
deprecated = "2026-03-01"
fields = { title = "string" }
"#;
    let server = Start::schema(schema).go();
    let answer = server.ask("GET", "/v1/pens").version(MIDDLE).send();
    assert_eq!(answer.header("sunset"), Some("Sun, 01 Feb 2026 00:00:00 GMT"));
    assert_eq!(answer.header("deprecation"), Some("@1769904000"), "the same day");
}

#[test]
fn a_collection_that_the_version_lacks_is_404_for_every_method() {
    let server = Start::schema(SHOP).go();
    for (path, asked) in [
        ("/v1/clubs", Some(OLD)),
        ("/v1/clubs/x", Some(OLD)),
        ("/v1/clubs/x/members", Some(OLD)),
        ("/v2/guilds", Some(NEW)),
        ("/v2/guilds", None),
        ("/api/gossips", Some(OLD)),
        (&format!("/api/gossips?version={OLD}"), None),
    ] {
        for method in ["OPTIONS", "DELETE", "GET"] {
            let ask = server.ask(method, path);
            let answer = match asked {
                Some(version) => ask.version(version).send(),
                None => ask.send(),
            };
            assert_eq!(answer.status, 404, "{method} {path}: {}", answer.text);
            assert_eq!(answer.header("allow"), None);
        }
    }
    // The version depends on the account, and some versions have it.
    for (method, path, status) in [
        ("OPTIONS", "/v1/clubs", 204),
        ("DELETE", "/v1/clubs", 405),
        ("OPTIONS", "/v1/guilds", 204),
        ("DELETE", "/v2/clubs", 405),
        ("OPTIONS", "/api/gossips", 204),
        ("DELETE", "/api/gossips", 405),
    ] {
        let answer = server.ask(method, path).send();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
    }
}

#[test]
fn a_version_does_not_list_event_types_that_it_lacks() {
    let server = Start::schema(SHOP).go();
    let ask = |target: String| server.get(&target);
    for (version, lacks, has) in [(OLD, "club.created", "guild.created"), (NEW, "guild.", "club.")]
    {
        let error = ask(format!("/api/events?types=zzz.*&version={version}"));
        let error = error.error(400, "invalid_parameter");
        let message = error["message"].as_str().unwrap();
        assert!(!message.contains(lacks) && message.contains(has), "{version}: {message}");
        let mut socket = Socket::open(&server, &format!("/ws?version={version}"));
        let said = socket.ask_for(json!({ "type": "subscribe", "types": ["zzz.*"] }));
        let message = said["error"]["message"].as_str().unwrap();
        assert!(!message.contains(lacks) && message.contains(has), "{version}: {message}");
        let mount = if version == OLD { "/v1" } else { "/v2" };
        let token = server.ask("POST", &format!("{mount}/channel-tokens")).version(version);
        let error = token.json(&json!({ "types": ["zzz.*"] })).send();
        let message = error.error(422, "validation_failed").to_string();
        assert!(!message.contains(lacks) && message.contains(has), "{version}: {message}");
    }
    for (version, told) in [(OLD, None), (MIDDLE, Some("@1772323200"))] {
        let target = format!("/api/events?types=club.*&version={version}");
        let stream = server.ask("HEAD", &target).send();
        assert_eq!((stream.status, stream.header("deprecation")), (200, told), "{version}");
    }
}

#[test]
fn an_id_that_equals_a_field_name_is_not_converted() {
    let server = Start::schema(SHOP).go();
    let ask = |method: &str, path: &str| server.ask(method, path).version(OLD).json(&json!({}));
    for (method, path) in [
        ("GET", "/v1/items/b"),
        ("PATCH", "/v1/items/b"),
        ("PUT", "/v1/items/b"),
        ("DELETE", "/v1/items/b"),
        ("POST", "/v1/items/b/polish"),
    ] {
        let error = ask(method, path).send().error(404, "not_found");
        assert_eq!(error["message"], "No such item: `b`.", "{method}");
    }
}

#[test]
fn if_modified_since_does_not_hide_a_change_of_the_pinned_version() {
    let mounts = "mount = \"/v2\"\n[[mounts]]\npath = \"/v1\"\nversion = \"2026-01-01\"\n";
    let schema = SHOP.replace(mounts, "");
    let server = Start::schema(&schema).go();
    let since = |server: &Server, path: &str| {
        let read = server.get(path);
        let modified = read.header("last-modified").unwrap().to_owned();
        let tag = read.header("etag").unwrap().to_owned();
        (modified, tag)
    };
    let item = format!("/v1/items/{}", server.make("/v1/items", json!({ "b": "x" })));
    let pen = format!("/v1/pens/{}", server.make("/v1/pens", json!({ "title": "quill" })));
    let (modified, tag) = since(&server, &item);
    let event = format!("/v1/events/{}", server.get("/v1/events").json["data"][0]["id"]);
    let event = event.replace('"', "");
    let (told, _) = since(&server, &event);
    server.post("/v1/account", json!({ "api_version": OLD })).expect(200);
    let read = |path: &str, name: &str, value: &str| server.ask("GET", path).header(name, value);
    assert_eq!(read(&item, "if-modified-since", &modified).send().expect(200)["a"], "x");
    assert_eq!(read(&item, "if-none-match", &tag).send().expect(200)["a"], "x");
    assert_eq!(read(&event, "if-modified-since", &told).send().expect(200)["api_version"], OLD);
    // Not even without a change: the service does not store which version was shown.
    let (modified, tag) = since(&server, &item);
    read(&item, "if-modified-since", &modified).send().expect(200);
    assert_eq!(read(&item, "if-none-match", &tag).send().status, 304);
    // A collection that is equal in all versions supports dates.
    let (modified, _) = since(&server, &pen);
    assert_eq!(read(&pen, "if-modified-since", &modified).send().status, 304);
}

/// States that older clients do not know, and see as others. A field has the name of one of them.
const STATES: &str = r#"
[[versions]]
date = "2026-09-01"
[[versions.changes]]
collection = "things"
rename = { from = "opened", to = "open" }
[[versions.changes]]
collection = "things"
[versions.changes.enum_map]
field = "status"
values = { shut = "closed" }
down = { stuck = "open", held = "open" }
[[versions]]
date = "2026-01-01"

[collections.things.fields]
open = "string"
[collections.things.states]
names = ["open", "stuck", "held", "closed"]
[collections.things.actions.jam]
from = "open"
to = "stuck"
[collections.things.actions.close]
from = ["open", "held"]
to = "closed"
[collections.things.actions.free]
from = ["stuck", "held"]
to = "open"
"#;

#[test]
fn an_action_refused_for_a_state_with_an_ambiguous_old_name_explains_it() {
    let server = Start::schema(STATES).go();
    let thing = format!("/v1/things/{}", server.make("/v1/things", json!({})));
    let act = |version: &str, action: &str| {
        let path = format!("{thing}/{action}");
        server.ask("POST", &path).version(version).json(&json!({})).send()
    };
    let refused = |version: &str, action: &str| {
        let error = act(version, action).error(409, "invalid_state");
        (error["current_state"].clone(), error["message"].as_str().unwrap().to_owned())
    };
    let alike = |action: &str| {
        let message = format!(
            "`{action}` is not possible in the state the thing is in, which this version shows as \
             `open`."
        );
        (json!("open"), message)
    };
    let plain = |action: &str, state: &str, needed: &str| {
        let message =
            format!("`{action}` is not possible while the thing is `{state}`; it needs {needed}.");
        (json!(state), message)
    };
    assert_eq!(refused(NEW, "free"), plain("free", "open", "stuck or held"));
    assert_eq!(refused(MIDDLE, "free"), alike("free"));
    act(NEW, "jam").expect(200);
    assert_eq!(refused(NEW, "close"), plain("close", "stuck", "open or held"));
    assert_eq!(refused(MIDDLE, "close"), alike("close"));
    act(MIDDLE, "free").expect(200);
    act(MIDDLE, "close").expect(200);
    // Each required state once.
    assert_eq!(refused(NEW, "close"), plain("close", "closed", "open or held"));
    assert_eq!(refused(MIDDLE, "close"), plain("close", "shut", "open"));
    let contract = server.get(&format!("/openapi.json?version={MIDDLE}")).expect(200);
    let told = &contract["paths"]["/v1/things/{thing_id}/close"]["post"]["description"];
    assert!(told.as_str().unwrap().contains(" Possible while it is `open`."), "{told}");
}

#[test]
fn pages_have_the_header_of_the_version_they_show_and_vary() {
    let server = Start::schema(SHOP).go();
    let ask = |path: &str| server.ask_anonymously("GET", path);
    // The document is that of the parameter, independent of the header.
    for (query, version) in
        [("", NEW), ("?version=2025-06-01", OLD), ("?version=2026-01-01", MIDDLE)]
    {
        let path = format!("/openapi.json{query}");
        for answer in [ask(&path).send(), ask(&path).version(MIDDLE).send()] {
            assert_eq!(spoken(&answer), version, "{path}");
            assert_eq!(answer.json["info"]["version"], version);
            assert!(answer.header("cache-control").unwrap().starts_with("public"));
        }
        assert_eq!(spoken(&server.ask_anonymously("HEAD", &path).send()), version, "{path}");
    }
    for path in ["/changelog", "/errors"] {
        for (answer, version) in [(ask(path).send(), NEW), (ask(path).version(OLD).send(), OLD)] {
            assert_eq!((answer.status, spoken(&answer)), (200, version), "{path}");
            assert_eq!(answer.header("vary"), Some("Restive-Version"), "{path}");
        }
    }
    let key = &server.key;
    let poll = || server.ask("GET", "/api/ticks").key(key);
    let first = poll().send();
    let again = poll().header("if-none-match", first.header("etag").unwrap()).send();
    assert_eq!(again.status, 304);
    assert_eq!(first.header("vary"), Some("Accept, Authorization, Restive-Version"));
    assert_eq!(again.header("vary"), first.header("vary"));
}

#[test]
fn the_changelog_describes_conversions_and_deprecations() {
    let schema = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "notes"
convert = { field = "size", from = "integer",
  up = "string(value)", down = "int(value)", lossy = true }
[[versions.changes]]
collection = "notes"
convert = { field = "at", from = { type = "timestamp" },
  up = "to_millis(value)", down = "from_millis(value)" }
[[versions.changes]]
collection = "notes"
convert = { field = "from", from = "integer",
  up = "from_millis(value * 1000)", down = "to_millis(value) / 1000", lossy = true }
[[versions.changes]]
collection = "notes"
required = { field = "kind", fill = "plain" }
[[versions.changes]]
collection = "notes"
removed = { field = "gone" }
[[versions.changes]]
collection = "clubs"
collection_removed = true
[[versions]]
date = "2025-01-01"
[collections.clubs]
deprecated = "2026-01-01"
[collections.notes]
sunset = "2027-01-01"
[collections.notes.fields]
size = "string"
at = "integer"
from = "timestamp"
kind = { type = "string", required = true }
old = { type = "string", deprecated = "2026-01-01" }
gone = { type = "string", deprecated = "2026-01-01" }
"#;
    let server = Start::schema(schema).go();
    let page = server.ask_anonymously("GET", "/changelog").send();
    for line in [
        "`size` was of type integer; its values are converted, not always without loss.\n",
        "`at` was of type timestamp; its values are converted.\n",
        "`kind` is required; requests of older versions without it get `\"plain\"`.\n",
        "- `notes`: **Deprecated**, served until 2027-01-01.\n",
        "- `old` of `notes`: **Deprecated**, since 2026-01-01.\n",
        "- `gone` of `notes`, in older versions: **Deprecated**, since 2026-01-01.\n",
        "- `clubs`, in older versions: **Deprecated**, since 2026-01-01.\n",
    ] {
        assert!(page.text.contains(line), "{line}\n{}", page.text);
    }
}
