//! The version of a request: header, pin, mount; deprecation of old versions; their OpenAPI
//! documents and the changelog.

use crate::harness::{Answer, Server, Start, run};
use serde_json::{Value, json};

/// Four versions below two mounts.
const SHOP: &str = r#"
[service]
name = "shop"
version = "2026-11-01"
mount = "/v2"

[[mounts]]
path = "/v1"
version = "2025-06-01"

[[versions]]
date = "2026-11-01"
description = "Books have a title."
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title" }

[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
description = "Prices are whole cents."
convert = { field = "price", from = { type = "number" },
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }

[[versions]]
date = "2025-06-01"
deprecated = "2026-11-01"
sunset = "2027-11-01"
link = "https://shop.example/old"
[[versions.changes]]
collection = "clubs"
collection_added = true

[[versions]]
date = "2024-01-01"
deprecated = "2025-06-01"

[collections.books.fields]
title = { type = "string", required = true }
price = "integer"
shelf = { type = "string", filter = true, sort = true, deprecated = "2026-10-01" }

[collections.clubs]
deprecated = "2026-09-01"
sunset = "2026-12-01"
fields = { title = "string" }
"#;

const NEWEST: &str = "2026-11-01";

fn spoken(answer: &Answer) -> &str {
    answer.header("restive-version").unwrap_or("none")
}

#[test]
fn the_version_header_selects_the_version_and_every_response_echoes_it() {
    let server = Start::schema(SHOP).go();
    let id = server.make("/v2/books", json!({"title": "Dune", "price": 950}));
    for (version, mount, expected) in [
        ("2026-11-01", "/v2", json!({"title": "Dune", "price": 950})),
        ("2026-01-01", "/v2", json!({"name": "Dune", "price": 950})),
        ("2025-06-01", "/v1", json!({"name": "Dune", "price": 9.5})),
        ("2024-01-01", "/v1", json!({"name": "Dune", "price": 9.5})),
    ] {
        let path = format!("{mount}/books/{id}");
        let answer = server.ask("GET", &path).version(version).send();
        assert_eq!(spoken(&answer), version);
        let shown = answer.expect(200);
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&shown[name], value, "{version}: {shown}");
        }
        let missing = server.ask("GET", &format!("{mount}/books/none")).version(version).send();
        assert_eq!(spoken(&missing), version);
        missing.error(404, "not_found");
        let stranger = server.ask_anonymously("GET", &path).version(version).send();
        assert_eq!((stranger.status, spoken(&stranger)), (401, version));
    }
    for path in ["/health", "/nowhere", "/changelog"] {
        assert_eq!(spoken(&server.get(path)), NEWEST, "{path}");
    }
}

#[test]
fn unknown_versions_are_refused_with_the_known_ones() {
    let server = Start::schema(SHOP).go();
    for bad in ["2023-01-01", "2026-02-30", "2027-01-01", "newest", "", "2026-11-1", "2026-11-01 "]
    {
        let ask = server.ask("GET", "/v2/books").version(bad);
        // Spaces around a value are ignored.
        let status = if bad.trim() == NEWEST { 200 } else { 400 };
        let answer = ask.send();
        assert_eq!(answer.status, status, "`{bad}`: {}", answer.text);
        if status == 400 {
            let error = answer.error(400, "unknown_version");
            assert_eq!(error["param"], "Restive-Version");
            for date in ["2026-11-01", "2026-01-01", "2025-06-01", "2024-01-01"] {
                assert!(error["message"].as_str().unwrap().contains(date), "{error}");
                assert!(error["versions"].as_array().unwrap().contains(&json!(date)), "{error}");
            }
        }
    }
    let twice = server.ask("GET", "/v2/books").version(NEWEST).version("2026-01-01").send();
    twice.error(400, "unknown_version");
    for path in ["/v2/books", "/v2/account", "/v2/presence", "/api/events"] {
        let answer = server.ask("GET", path).version("2020-01-01").send();
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
}

#[test]
fn a_mount_serves_its_range_of_versions() {
    let server = Start::schema(SHOP).go();
    let made = server.post("/v1/books", json!({"name": "Dune", "price": 9.5}));
    assert_eq!((made.status, spoken(&made)), (201, "2025-06-01"), "{}", made.text);
    let path = format!("/v1/books/{}", made.id());
    assert_eq!(made.header("location"), Some(path.as_str()));
    assert_eq!(spoken(&server.get("/v2/books")), NEWEST, "the pin");
    let error = server.ask("GET", "/v1/books").version(NEWEST).send().error(400, "unknown_version");
    assert_eq!(
        error["message"],
        "/v1 serves versions 2024-01-01 to 2025-06-01; /v2 serves 2026-11-01."
    );
    server.ask("GET", "/v2/books").version("2024-01-01").send().error(400, "unknown_version");
    server.post("/v1/books", json!({"name": "Emma"})).expect(201);
    let page = server.get("/v1/books?limit=1");
    let next = page.header("link").unwrap().split(['<', '>']).nth(1).unwrap().to_owned();
    assert!(next.starts_with("/v1/books?"), "{next}");
    assert_eq!(server.get(&next).column("name"), ["Dune"]);
    let patched = server.patch(&path, json!({"price": 10}));
    assert_eq!(patched.header("content-location"), Some(path.as_str()));
    for unknown in ["/v3/books", "/v0", "/v11/books/x"] {
        let error = server.get(unknown).error(404, "route_not_found");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("/v2, /v1"), "{unknown}: {message}");
        assert_eq!(error["mounts"], json!(["/v2", "/v1"]));
    }
    let error = server.get("/v2/nothing").error(404, "route_not_found");
    assert!(error["message"].as_str().unwrap().contains("/v2/books"), "{error}");
    server.get("/v1/presence").expect(200);
}

#[test]
fn the_error_for_an_unknown_path_lists_the_paths_of_its_mount() {
    let server = Start::schema(&format!(
        "[service]\nmount = \"/v2\"\n[[mounts]]\npath = \"/v1\"\nversion = \"2026-01-01\"\n{SECOND}"
    ));
    let server = server.go();
    let listed = |path: &str| {
        let error = server.get(path).error(404, "route_not_found");
        let message = error["message"].as_str().unwrap().to_owned();
        let (_, paths) = message.trim_end_matches('.').split_once("Resources are: ").unwrap();
        paths.split(", ").map(str::to_owned).collect::<Vec<_>>()
    };
    let new = listed("/v2/boks");
    for path in ["/v2/books", "/v2/people", "/v2/account", "/v2/version-usage", "/ws"] {
        assert!(new.iter().any(|known| known == path), "{path}: {new:?}");
    }
    let old = listed("/v1/boks");
    let same: Vec<_> = new.iter().map(|path| path.replace("/v2/", "/v1/")).collect();
    assert_eq!(old, same.into_iter().filter(|path| path != "/v1/people").collect::<Vec<_>>());
    assert_eq!(listed("/nowhere"), new);
    for path in old.iter().chain(&new).filter(|path| path.starts_with("/v")) {
        assert_ne!(server.get(path).status, 404, "{path}");
    }
}

/// The same service before it had versions.
const FIRST: &str = r#"
[service]
version = "2026-01-01"
[collections.books.fields]
name = { type = "string", required = true }
"#;

const SECOND: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "people"
collection_added = true
[[versions]]
date = "2026-01-01"
[collections.books.fields]
name = { type = "string", required = true }
[collections.people.fields]
name = "string"
"#;

#[test]
fn an_account_is_pinned_at_its_first_request_and_stays_pinned() {
    let server = Start::schema(FIRST).go();
    let id = server.make("/v1/books", json!({"name": "Dune"}));
    assert_eq!(server.get("/v1/account").expect(200)["api_version"], "2026-01-01");
    let (_, folder) = server.stop();
    let server = Start::schema(SECOND).on(&folder).go();
    let answer = server.get(&format!("/v1/books/{id}"));
    assert_eq!((answer.status, spoken(&answer)), (200, "2026-01-01"), "{}", answer.text);
    server.get("/v1/people").error(404, "route_not_found");
    // A new account is pinned to the current newest version.
    let (said, _, _) = server.tool(&["accounts", "create", "late"]);
    let key = said.lines().find_map(|line| line.strip_prefix("test key ")).unwrap();
    let first = server.ask("GET", "/v1/people").key(key).send();
    assert_eq!((first.status, spoken(&first)), (200, "2026-06-01"), "{}", first.text);
    let late = server.ask("GET", "/v1/account").key(key).send().expect(200);
    assert_eq!((&late["name"], &late["api_version"]), (&json!("late"), &json!("2026-06-01")));
    let (_, folder) = server.stop();
    let server = Start::schema(SECOND).on(&folder).go();
    assert_eq!(server.get("/v1/account").expect(200)["api_version"], "2026-01-01");
}

#[test]
fn an_account_can_change_its_pin_with_immediate_effect() {
    let server = Start::schema(SHOP).go();
    let shown = server.get("/v2/account").expect(200);
    assert_eq!((&shown["object"], &shown["api_version"]), (&json!("account"), &json!(NEWEST)));
    let id = server.make("/v2/books", json!({"title": "Dune"}));
    let path = format!("/v2/books/{id}");
    let moved = server.post("/v2/account", json!({"api_version": "2026-01-01"})).expect(200);
    assert_eq!(moved["api_version"], "2026-01-01");
    let read = server.get(&path);
    assert_eq!((spoken(&read), &read.json["name"]), ("2026-01-01", &json!("Dune")));
    let named = server.ask("GET", &path).version(NEWEST).send();
    assert_eq!(named.json["title"], "Dune", "a header wins over the pin");
    // Older than the mount's versions: the oldest of the mount is used.
    server.post("/v1/account", json!({"api_version": "2024-01-01"})).expect(200);
    assert_eq!(spoken(&server.get(&path)), "2026-01-01");
    assert_eq!(spoken(&server.get("/v1/books")), "2024-01-01");
    server.post("/v1/account", json!({"api_version": NEWEST})).expect(200);
    assert_eq!(spoken(&server.get("/v1/books")), "2025-06-01");
}

#[test]
fn only_an_authorised_key_can_set_the_pin_and_only_to_known_versions() {
    let server = Start::schema(SHOP).go();
    for (body, field, code) in [
        (json!({"api_version": "2020-01-01"}), "api_version", "not_in_enum"),
        (json!({"api_version": 3}), "api_version", "wrong_type"),
        (json!({"api_version": null}), "api_version", "required"),
        (json!({}), "api_version", "required"),
        (json!({"api_version": NEWEST, "name": "x"}), "name", "unknown_field"),
    ] {
        let error = server.post("/v2/account", body.clone()).error(422, "validation_failed");
        assert_eq!(
            (&error["param"], &error["errors"][0]["code"]),
            (&json!(field), &json!(code)),
            "{body}"
        );
    }
    server.ask("POST", "/v2/account").json(&json!([])).send().error(400, "body_not_object");
    server.delete("/v2/account").error(405, "method_not_allowed");
    server.get("/v2/account?x=1").error(400, "unknown_parameter");
    server.ask_anonymously("GET", "/v2/account").send().error(401, "authentication_required");
    let reader = restricted(&server, "account:read");
    let ask = |method: &str, path: &str| server.ask(method, path).key(&reader);
    ask("GET", "/v2/account").send().expect(200);
    let body = json!({"api_version": NEWEST});
    let error = ask("POST", "/v2/account").json(&body).send().error(403, "permission_denied");
    assert!(error["message"].as_str().unwrap().contains("account:write"), "{error}");
    ask("GET", "/v2/version-usage").send().error(403, "permission_denied");
}

pub fn restricted(server: &Server, scope: &str) -> String {
    let (said, failed, code) = server.tool(&["keys", "create", "--scope", scope]);
    assert_eq!(code, 0, "{failed}");
    let key = said.split_whitespace().find(|word| word.starts_with("rk_test_"));
    key.unwrap_or_else(|| panic!("{said}")).to_owned()
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.header(name)
}

#[test]
fn requests_that_use_deprecated_things_get_deprecation_headers() {
    let server = Start::schema(SHOP).go();
    let plain = server.get("/v2/books");
    assert_eq!((header(&plain, "deprecation"), header(&plain, "sunset")), (None, None));
    // The version: on every response, including errors.
    for path in ["/v1/books", "/v1/books/none"] {
        let old = server.ask("GET", path).version("2025-06-01").send();
        assert_eq!(header(&old, "deprecation"), Some("@1793491200"), "{path}");
        assert_eq!(header(&old, "sunset"), Some("Mon, 01 Nov 2027 00:00:00 GMT"), "{path}");
        assert_eq!(header(&old, "link"), Some("<https://shop.example/old>; rel=\"deprecation\""));
    }
    let older = server.ask("GET", "/v1/books").version("2024-01-01").send();
    assert_eq!(header(&older, "link"), Some("</changelog>; rel=\"deprecation\""));
    // The collection.
    let clubs = server.get("/v2/clubs");
    assert_eq!(header(&clubs, "deprecation"), Some("@1788220800"));
    assert_eq!(header(&clubs, "sunset"), Some("Tue, 01 Dec 2026 00:00:00 GMT"));
    // A field, where it is used.
    let sent = server.post("/v2/books", json!({"title": "Dune", "shelf": "a"}));
    assert_eq!(header(&sent, "deprecation"), Some("@1790812800"));
    assert_eq!(header(&server.post("/v2/books", json!({"title": "x"})), "deprecation"), None);
    for query in ["shelf=a", "sort=-shelf", "fields=shelf"] {
        let asked = server.get(&format!("/v2/books?{query}"));
        assert_eq!(header(&asked, "deprecation"), Some("@1790812800"), "{query}");
    }
}

#[test]
fn an_operator_sees_who_uses_which_version() {
    let server = Start::schema(SHOP).go();
    for version in ["2026-11-01", "2026-01-01", "2026-01-01"] {
        server.ask("GET", "/v2/books").version(version).send().expect(200);
    }
    server.ask("GET", "/v1/books").version("2025-06-01").send().expect(200);
    server.ask("GET", "/v2/books").version("2020-01-01").send().error(400, "unknown_version");
    let usage = server.get("/v2/version-usage").expect(200);
    let data = usage["data"].as_array().unwrap();
    let counts: Vec<(&str, u64)> = data
        .iter()
        .map(|one| (one["version"].as_str().unwrap(), one["requests"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        counts,
        [("2026-11-01", 1), ("2026-01-01", 2), ("2025-06-01", 1), ("2024-01-01", 0)]
    );
    assert_eq!((&data[0]["pinned"], &data[3]["last_used_at"]), (&json!(true), &Value::Null));
    assert!(data[1]["last_used_at"].as_str().unwrap() >= usage["since"].as_str().unwrap());
    assert_eq!(data[2]["sunset"], "2027-11-01");
    let metrics = server.get("/metrics").text;
    for line in [
        "restive_version_requests_total{version=\"2026-01-01\"} 2",
        "restive_version_requests_total{version=\"2024-01-01\"} 0",
        "restive_version_accounts{version=\"2025-06-01\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    server.post("/v2/version-usage", json!({})).error(405, "method_not_allowed");
}

#[test]
fn version_usage_counts_survive_a_restart() {
    let server = Start::schema(SHOP).go();
    let old = |server: &Server| {
        server.ask("GET", "/v1/books").version("2025-06-01").send().expect(200);
    };
    let usage = |server: &Server| {
        let usage = server.get("/v2/version-usage").expect(200);
        let of_old = usage["data"][2].clone();
        assert_eq!(of_old["version"], "2025-06-01");
        (
            of_old["requests"].as_u64().unwrap(),
            of_old["last_used_at"].clone(),
            usage["since"].clone(),
        )
    };
    old(&server);
    old(&server);
    let (requests, last, since) = usage(&server);
    assert_eq!(requests, 2);
    let server = Start::schema(SHOP).on(&server.stop().1).go();
    assert_eq!(usage(&server), (2, last.clone(), since.clone()));
    let (said, _, _) = server.tool(&["accounts", "create", "late"]);
    let key = said.lines().find_map(|line| line.strip_prefix("test key ")).unwrap();
    server.ask("GET", "/v1/books").version("2025-06-01").key(key).send().expect(200);
    old(&server);
    let account = server.get("/v2/account").expect(200)["id"].as_str().unwrap().to_owned();
    let told = |server: &Server| {
        let metrics = server.get("/metrics").text;
        for line in [
            "restive_version_requests_total{version=\"2025-06-01\"} 4",
            "restive_version_accounts{version=\"2025-06-01\"} 2",
        ] {
            assert!(metrics.contains(line), "{line}\n{metrics}");
        }
        let name = "restive_deprecated_version_requests_total";
        let labels = format!("version=\"2025-06-01\",account=\"{account}\"");
        assert!(metrics.contains(&format!("{name}{{{labels}}} 3\n")), "{metrics}");
    };
    told(&server);
    // A version that is removed and restored still has its counts.
    let server = Start::schema(SHOP).on(&server.stop().1).go();
    let (requests, later, same) = usage(&server);
    assert_eq!((requests, &same), (3, &since));
    assert!(later.as_str() > last.as_str(), "{later} {last}");
    told(&server);
}

#[test]
fn every_version_has_its_openapi_document() {
    let server = Start::schema(SHOP).go();
    let contract = |query: &str| server.get(&format!("/openapi.json{query}")).expect(200);
    let newest = contract("");
    assert_eq!(newest, contract(&format!("?version={NEWEST}")));
    assert_eq!(newest["info"]["version"], NEWEST);
    assert_eq!(newest["x-changelog"], "/changelog");
    assert_eq!(newest["paths"]["/v2/clubs"]["get"]["deprecated"], true);
    assert_eq!(newest["paths"]["/v2/books"]["get"].get("deprecated"), None);
    let body = |document: &Value| document["components"]["schemas"]["BookCreate"].clone();
    assert_eq!(body(&newest)["required"], json!(["title"]));
    assert_eq!(body(&newest)["properties"]["shelf"]["deprecated"], true);
    let old = contract("?version=2024-01-01");
    assert_eq!(old["info"]["version"], "2024-01-01");
    assert_eq!(body(&old)["required"], json!(["name"]));
    assert_eq!(body(&old)["properties"]["price"]["type"], json!(["number", "null"]));
    let paths = old["paths"].as_object().unwrap();
    assert!(paths.contains_key("/v1/books") && paths.contains_key("/v1/account"), "{paths:?}");
    assert!(!paths.keys().any(|path| path.starts_with("/v2") || path.contains("clubs")));
    assert_eq!(old["paths"]["/v1/books"]["get"]["deprecated"], true);
    server.get("/openapi.json?version=2020-01-01").error(400, "unknown_version");
    let error = server.get("/openapi.json?versio=2024-01-01").error(400, "unknown_parameter");
    assert_eq!(error["param"], "versio");
    assert_eq!(error["message"], "There is no parameter `versio` here; there are: version.");
    server
        .get("/openapi.json?version=2024-01-01&version=2025-06-01")
        .error(400, "invalid_parameter");
    for version in ["2026-11-01", "2026-01-01", "2025-06-01", "2024-01-01"] {
        whole(&contract(&format!("?version={version}")));
    }
}

/// Every reference resolves, and every operation has its own name.
fn whole(document: &Value) {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                let pointer = members.get("$ref").and_then(Value::as_str);
                found.extend(pointer.map(|text| text.trim_start_matches('#').to_owned()));
                members.values().for_each(|member| references(member, found));
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    references(document, &mut found);
    for pointer in found {
        assert!(document.pointer(&pointer).is_some(), "{pointer} leads nowhere");
    }
    let items = document["paths"].as_object().unwrap().values();
    let operations = items.flat_map(|item| item.as_object().unwrap().values());
    let mut ids: Vec<&str> = operations.filter_map(|one| one["operationId"].as_str()).collect();
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "operation ids are unique");
}

#[test]
fn the_changelog_lists_the_changes_of_each_version() {
    let server = Start::schema(SHOP).go();
    let page = server.ask_anonymously("GET", "/changelog").send();
    assert_eq!(page.header("content-type"), Some("text/markdown; charset=utf-8"));
    for line in [
        "## 2026-11-01\n",
        "Books have a title.\n",
        "- `books`: `name` is now `title`.\n",
        "- `books`: Prices are whole cents. (`price` was of type number; its values are \
         converted)\n",
        "**Deprecated**, since 2026-11-01, served until 2027-11-01, see \
         <https://shop.example/old>.",
        "- `clubs`: new.\n",
        "Served below `/v1`. [OpenAPI](/openapi.json?version=2024-01-01)\n",
    ] {
        assert!(page.text.contains(line), "{line}\n{}", page.text);
    }
}

#[test]
fn commands_plan_edits_check_dates_and_print_old_openapi_documents() {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("shop.toml", SHOP);
    write("first.toml", FIRST);
    write("second.toml", SECOND);
    write("broken.toml", &FIRST.replace("name = {", "title = {"));
    write("future.toml", &SECOND.replace("2026-06-01", "2999-06-01"));
    let run = |arguments: &[&str]| run(folder.path(), arguments);
    let (said, failed, code) = run(&["plan", "first.toml", "second.toml"]);
    assert_eq!(code, 0, "{said}{failed}");
    assert!(said.contains("safe: people"), "{said}");
    let (said, _, code) = run(&["plan", "first.toml", "broken.toml"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("rename = { from = \"name\", to = \"title\" }"), "{said}");
    let (_, failed, code) = run(&["plan", "first.toml", "nowhere.toml"]);
    assert_eq!(code, 1);
    assert!(failed.contains("nowhere.toml"), "{failed}");
    let (_, failed, code) = run(&["check", "future.toml"]);
    assert_eq!(code, 1);
    assert!(failed.contains("lies in the future"), "{failed}");
    let (said, _, code) = run(&["openapi", "--schema", "shop.toml", "--api-version", "2025-06-01"]);
    assert_eq!(code, 0);
    let document: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["info"]["version"], "2025-06-01");
    let (_, failed, code) =
        run(&["openapi", "--schema", "shop.toml", "--api-version", "2020-01-01"]);
    assert_eq!(code, 1);
    assert!(failed.contains("2026-11-01, 2026-01-01"), "{failed}");
}

/// Every error in versions, each marked by a comment.
const WRONG: &str = r#"
[service]
version = "2999-01-01"

[[versions]]
date = "2999-01-01" # in the future
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "titel" } # no such field
[[versions.changes]]
collection = "boks" # no such collection
rename = { from = "a", to = "b" }

[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "pens"
rename = { from = "left", to = "right" } # half of a circle
[[versions.changes]]
collection = "pens"
rename = { from = "right", to = "left" } # the other half

[[versions]]
date = "2026-07-01" # not older
[[versions.changes]]
collection = "cups"
convert = { field = "size", from = "string", up = "int(value)", down = "string(value)" }
[[versions.changes]]
collection = "cups"
default = { field = "size", was = 2 } # twice on one date
[[versions.changes]]
collection = "hats"
rename = { from = "form", to = "shape" } # the old name is taken
[[versions.changes]]
collection = "maps"
collection_added = true
[[versions.changes]]
collection = "maps"
rename = { from = "area", to = "land" } # of a collection that was not there

[[versions]]
date = "2025-01-01"
[[versions.changes]] # the oldest
collection = "books"
removed = { field = "pages" }

[collections.books.fields]
title = "string"
pages = "integer"
[collections.pens.fields]
left = "string"
right = "string"
[collections.cups.fields]
size = { type = "integer", default = 1 }
[collections.hats.fields]
shape = "string"
form = "string"
[collections.maps.fields]
land = "string"
"#;

#[test]
fn check_reports_all_errors_of_versions_with_line_and_column() {
    let folder = tempfile::TempDir::new().unwrap();
    std::fs::write(folder.path().join("wrong.toml"), WRONG).unwrap();
    let (_, told, code) = run(folder.path(), &["check", "wrong.toml"]);
    assert_eq!(code, 1, "{told}");
    let line = |mark: &str| 1 + WRONG.lines().position(|line| line.contains(mark)).unwrap();
    for (mark, column, what) in [
        ("# in the future", 8, "version 2999-01-01 lies in the future"),
        (
            "# no such field",
            1,
            "`titel` is no field of `books` in version 2999-01-01 (did you mean `title`?)",
        ),
        ("# no such collection", 14, "names `boks`, which is not declared"),
        ("# half of a circle", 1, "`left` is a field of the newer version, too"),
        ("# the other half", 1, "`left` and `right` are renamed in a circle"),
        ("# not older", 8, "versions stand newest first"),
        ("# twice on one date", 1, "`size` is changed by another change of the same date"),
        ("# the old name is taken", 1, "`form` is a field of the newer version, too"),
        ("# of a collection", 1, "adds or removes a collection changes nothing else of it"),
        ("# the oldest", 12, "the oldest version has no changes"),
    ] {
        let place = format!("wrong.toml:{}:{column}: ", line(mark));
        let found = told.lines().find(|line| line.starts_with(&place));
        assert!(found.is_some_and(|found| found.contains(what)), "{place}{what}\n{told}");
    }
    assert!(told.ends_with("10 errors\n"), "{told}");
}

/// A rule that names a field and a parameter, both under new names.
const PAID: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "orders"
rename = { from = "qty", to = "quantity" }
[[versions.changes]]
collection = "orders"
action = "pay"
rename = { from = "sum", to = "amount" }
[[versions.changes]]
collection = "orders"
code = { from = "too_cheap", to = "too_little" }
[[versions]]
date = "2026-01-01"

[collections.orders.fields]
quantity = "integer"
[collections.orders.actions.pay]
params = { amount = "integer" }
[[collections.orders.actions.pay.rules]]
when = "has(request.amount) && request.amount < 100"
code = "too_little"
message = "The `amount` must be at least a hundred for `quantity`."
"#;

#[test]
fn the_openapi_document_describes_rules_with_the_names_of_its_version() {
    let server = Start::schema(PAID).go();
    let pay = format!("/v1/orders/{}/pay", server.make("/v1/orders", json!({})));
    for (version, sum, code, message) in [
        (
            "2026-06-01",
            "amount",
            "too_little",
            "The `amount` must be at least a hundred for `quantity`.",
        ),
        ("2026-01-01", "sum", "too_cheap", "The `sum` must be at least a hundred for `qty`."),
    ] {
        let refused = server.ask("POST", &pay).version(version).json(&json!({ sum: 5 })).send();
        assert_eq!(refused.error(422, code)["message"], message, "{version}");
        let contract = server.get(&format!("/openapi.json?version={version}")).expect(200);
        let described = &contract["components"]["responses"]["ClientError"]["description"];
        let line = format!("- `{code}`: {message}");
        let described = described.as_str().unwrap();
        assert!(described.lines().any(|told| told == line), "{version}: {described}");
    }
}

#[test]
fn the_openapi_document_describes_the_version_parameter_of_channels() {
    let feed = "[collections.notes]\nfeed = true\nfields = { text = \"string\" }\n";
    let server = Start::schema(&format!("{SHOP}{feed}")).go();
    for version in [NEWEST, "2024-01-01"] {
        let contract = server.get(&format!("/openapi.json?version={version}")).expect(200);
        whole(&contract);
        let resolve = |part: &Value| match part["$ref"].as_str() {
            Some(pointer) => contract.pointer(&pointer[1..]).unwrap().clone(),
            None => part.clone(),
        };
        for path in ["/api/notes", "/api/events", "/ws"] {
            let asked = &contract["paths"][path]["get"];
            let parameters = asked["parameters"].as_array().unwrap().iter().map(resolve);
            let found: Vec<Value> = parameters.filter(|one| one["name"] == "version").collect();
            assert_eq!(found.len(), 1, "{path}");
            assert_eq!((&found[0]["in"], &found[0]["required"]), (&json!("query"), &Value::Null));
            assert_eq!(found[0]["schema"]["enum"], json!([version]), "{path}");
        }
        let headers = contract["components"]["responses"]["ClientError"]["headers"].as_object();
        for name in ["Request-Id", "Restive-Version", "Deprecation", "Sunset", "Link"] {
            assert!(headers.unwrap().contains_key(name), "{name}");
        }
        let target = format!("/api/notes?version={version}");
        assert_eq!(spoken(&server.get(&target)), version);
    }
}

/// Members of a free object that became fields of their own.
const MOVED: &str = r#"
[[versions]]
date = "2026-06-01"
[[versions.changes]]
collection = "books"
enum_map = { field = "kind", values = { paperback = "soft" } }
[[versions.changes]]
collection = "books"
convert = { field = "price", from = "number",
  up = "int(math.round(value * 100.0))", down = "double(value) / 100.0" }
[[versions.changes]]
collection = "books"
move = { from = "tag", to = "extra.tag" }
[[versions]]
date = "2026-03-01"
[[versions.changes]]
collection = "books"
move = { from = "meta.tag", to = "tag" }
[[versions.changes]]
collection = "books"
move = { from = "meta.code", to = "code" }
[[versions.changes]]
collection = "books"
move = { from = "meta.sort", to = "kind" }
[[versions.changes]]
collection = "books"
move = { from = "meta.price", to = "price" }
[[versions]]
date = "2026-01-01"

[collections.books.fields]
meta = "object"
extra = "object"
code = { type = "string", max_length = 5 }
kind = { type = "string", enum = ["soft", "hard"] }
price = "integer"
"#;

#[test]
fn the_openapi_document_restricts_members_that_became_fields() {
    let server = Start::schema(MOVED).go();
    let old = "2026-01-01";
    let contract = server.get(&format!("/openapi.json?version={old}")).expect(200);
    whole(&contract);
    let described = |name: &str| {
        let mut schema = contract["components"]["schemas"][name].clone();
        schema["components"] = contract["components"].clone();
        jsonschema::validator_for(&schema).unwrap()
    };
    let (create, replace, update) =
        (described("BookCreate"), described("BookCreate"), described("BookUpdate"));
    let path = format!("/v1/books/{}", server.make("/v1/books", json!({})));
    let send = |method: &str, path: &str, body: &Value| {
        server.ask(method, path).version(old).json(body).send()
    };
    let shown = described("Book");
    for (meta, taken) in [
        (json!({}), true),
        (json!(null), true),
        (json!({ "code": "a", "sort": "hard", "price": 2.5, "other": [1, { "a": null }] }), true),
        (json!({ "code": null, "sort": null, "price": null }), true),
        (json!({ "sort": "paperback", "tag": "x" }), true),
        (json!({ "code": 5 }), false),
        (json!({ "code": "longer" }), false),
        (json!({ "code": { "a": 1 } }), false),
        (json!({ "sort": "loose" }), false),
        (json!({ "price": "dear" }), false),
        (json!({ "tag": 5 }), false),
        (json!(5), false),
    ] {
        let body = json!({ "meta": meta });
        for (method, path, schema) in
            [("POST", "/v1/books", &create), ("PUT", &path, &replace), ("PATCH", &path, &update)]
        {
            let answer = send(method, path, &body);
            assert_eq!(answer.status < 300, taken, "{method} {body}: {}", answer.text);
            assert_eq!(schema.is_valid(&body), taken, "{method} {body}");
            if taken {
                assert!(shown.is_valid(&answer.json), "{}", answer.text);
            }
        }
    }
    // Values that newer clients store there are shown, but the document does not promise them.
    let newest = server.get("/openapi.json").expect(200);
    for (contract, name) in [(&newest, "BookCreate"), (&contract, "Book")] {
        let meta = contract["components"]["schemas"][name]["properties"]["meta"].to_string();
        assert!(!meta.contains("properties"), "{name}: {meta}");
    }
}
