//! Limits that only newer versions have, and edits without a change operation: the output of `plan`
//! is pasted into the file, and served.

use crate::harness::{Start, eventually, run};
use serde_json::{Value, json};

const OLD: &str = "2025-01-01";
const NEW: &str = "2026-01-01";

const FIRST: &str = r#"
[service]
version = "2025-01-01"
[collections.books.fields]
title = { type = "string", required = true, max_length = 20, filter = true }
pages = { type = "integer", min = 0 }
code = { type = "string", pattern = "^[1-9][0-9]{0,3}$" }
nick = "string"
[collections.books.actions.sell]
params = { price = "integer" }
set = { pages = "=request.price" }
"#;

/// Narrower, of another type, and unique.
fn second() -> String {
    let mut text = FIRST.to_owned();
    for (from, to) in [
        ("max_length = 20", "max_length = 5"),
        ("min = 0", "min = 0, max = 9"),
        (r#"{ type = "string", pattern = "^[1-9][0-9]{0,3}$" }"#, r#""integer""#),
        (r#"nick = "string""#, r#"nick = { type = "string", unique = true }"#),
        (r#"price = "integer""#, r#"price = { type = "integer", min = 1 }"#),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

/// The edited file with the lines that its plan prints, below a new date.
fn declared() -> (String, String) {
    let folder = tempfile::TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("first.toml", FIRST);
    write("second.toml", &second());
    let (said, failed, code) = run(folder.path(), &["plan", "first.toml", "second.toml"]);
    assert_eq!(code, 1, "{failed}");
    let lines = said.lines().filter_map(|line| line.strip_prefix("    "));
    let lines: String = lines.map(|line| format!("{line}\n")).collect();
    let lines = lines.replacen("TODO", "int(value)", 1).replacen("TODO", "string(value)", 1);
    let head = format!("[service]\nversion = \"{OLD}\"\n");
    let past = format!("[[versions]]\ndate = \"{NEW}\"\n{lines}[[versions]]\ndate = \"{OLD}\"\n");
    let text = second().replace(&head, "") + &past;
    write("third.toml", &text);
    let (again, failed, code) = run(folder.path(), &["plan", "first.toml", "third.toml"]);
    assert_eq!(code, 0, "{text}\n{again}{failed}");
    (text, said)
}

#[test]
fn plan_proposes_lines_for_every_edit_that_check_accepts() {
    let (_, said) = declared();
    for line in [
        "needs a version change: books.title: `max_length` is 5, not 20 (values that were accepted",
        "limits = { field = \"title\", was = { max_length = 20 } }",
        "needs a version change: books.pages: `max` is 9 (values that were accepted are refused)",
        "limits = { field = \"pages\", was = { min = 0 } }",
        "destructive: books.code: string became integer (clients send and read the old type, and",
        "up = \"TODO\", down = \"TODO\" }",
        "breaks = \"books.nick: became `unique`\"",
        "action = \"sell\"",
        "limits = { field = \"price\" }",
        "4 in need of a version change, 1 destructive",
        "stand below a `[[versions]]` entry with a newer date",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

#[test]
fn old_and_new_clients_are_held_to_the_limits_of_their_version() {
    let server = Start::schema(FIRST).go();
    let long = json!({"title": "A rather long title", "pages": 500, "code": "42", "nick": "a"});
    let id = server.make("/v1/books", long);
    let (_, folder) = server.stop();
    let (_, error) = Start::schema(&second()).on(&folder).fails();
    assert!(error.contains("breaks = \"books.nick: became `unique`\""), "{error}");
    let (text, _) = declared();
    let server = Start::schema(&text).on(&folder).go();
    let ask = |method: &str, path: &str, version: &str, body: Value| {
        server.ask(method, path).version(version).json(&body).send()
    };
    let path = format!("/v1/books/{id}");
    // Stored values are shown, and both versions can send them back.
    let mut shown = server.ask("GET", &path).version(NEW).send().expect(200).clone();
    assert_eq!((&shown["title"], &shown["code"]), (&json!("A rather long title"), &json!(42)));
    shown["nick"] = json!("b");
    assert_eq!(ask("PUT", &path, NEW, shown.clone()).expect(200)["nick"], "b");
    let patch = json!({"title": "A rather long title", "nick": "c"});
    assert_eq!(ask("PATCH", &path, NEW, patch).expect(200)["nick"], "c");
    for method in ["PUT", "PATCH"] {
        let mut other = shown.clone();
        other.as_object_mut().unwrap().remove("updated_at");
        other["title"] = json!("Another long title");
        let error = ask(method, &path, NEW, other.clone()).error(422, "validation_failed");
        assert_eq!(
            (&error["param"], &error["errors"][0]["code"]),
            (&json!("title"), &json!("too_long"))
        );
        assert_eq!(error["errors"].as_array().unwrap().len(), 1, "{error}");
        other["code"] = json!("42");
        let answer = ask(method, &path, OLD, other).expect(200);
        assert_eq!(
            (&answer["title"], &answer["code"]),
            (&json!("Another long title"), &json!("42"))
        );
        ask(method, &path, OLD, shown_as(&shown, "A rather long title")).expect(200);
    }
    for (version, title, pages, wrong) in [
        (OLD, "Fifteen letters", 300, None),
        (OLD, "Twenty-one characters", 3, Some(("title", "too_long"))),
        (OLD, "Short", -1, Some(("pages", "too_small"))),
        (NEW, "Fifteen letters", 3, Some(("title", "too_long"))),
        (NEW, "Short", 10, Some(("pages", "too_large"))),
    ] {
        let answer = ask("POST", "/v1/books", version, json!({"title": title, "pages": pages}));
        match wrong {
            None => drop(answer.expect(201)),
            Some((param, code)) => {
                let error = answer.error(422, "validation_failed");
                let told = (&error["param"], &error["errors"][0]["code"]);
                assert_eq!(told, (&json!(param), &json!(code)), "{error}");
            }
        }
    }
    let sell = format!("{path}/sell");
    assert_eq!(ask("POST", &sell, OLD, json!({"price": 0})).expect(200)["pages"], 0);
    ask("POST", &sell, NEW, json!({"price": 0})).error(422, "validation_failed");
    // The result of an action must satisfy the limits of the caller's version.
    assert_eq!(ask("POST", &sell, OLD, json!({"price": 700})).expect(200)["pages"], 700);
    let error = ask("POST", &sell, OLD, json!({"price": -1})).error(422, "validation_failed");
    assert_eq!(error["errors"][0]["code"], "too_small", "{error}");
    let error = ask("POST", &sell, NEW, json!({"price": 10})).error(422, "validation_failed");
    assert_eq!(error["errors"][0]["code"], "too_large", "{error}");
    let listed = server.ask("GET", "/v1/books?title=Fifteen+letters").version(NEW).send();
    assert_eq!(listed.column("pages"), [json!(300)]);
}

#[test]
fn an_edit_declared_in_breaks_applies_to_all_versions() {
    let (text, _) = declared();
    let server = Start::schema(&text).go();
    server.make("/v1/books", json!({"title": "x", "nick": "b"}));
    for version in [OLD, NEW] {
        let body = json!({"title": "x", "nick": "b"});
        let answer = server.ask("POST", "/v1/books").version(version).json(&body).send();
        let error = answer.error(422, "validation_failed");
        assert_eq!(error["errors"][0]["code"], "not_unique", "{error}");
    }
}

fn shown_as(shown: &Value, title: &str) -> Value {
    let mut body = shown.clone();
    body.as_object_mut().unwrap().retain(|name, _| name != "updated_at");
    (body["title"], body["code"]) = (json!(title), json!("42"));
    body
}

#[test]
fn openapi_and_changelog_describe_limits_and_breaks() {
    let (text, _) = declared();
    let server = Start::schema(&text).go();
    let limit = |version: &str, path: &str| {
        let document = server.get(&format!("/openapi.json?version={version}")).expect(200);
        document["components"]["schemas"].pointer(path).cloned().unwrap_or_default()
    };
    let title = "/BookCreate/properties/title/maxLength";
    assert_eq!((limit(OLD, title), limit(NEW, title)), (json!(20), json!(5)));
    let page = server.get("/changelog");
    for line in [
        "- `books`: `title` had other limits: `max_length` `20`.\n",
        "- `books`, parameters of `sell`: `price` had no limits.\n",
        "- **For all versions**: books.nick: became `unique`.\n",
    ] {
        assert!(page.text.contains(line), "{line}\n{}", page.text);
    }
}

/// `wide` had a narrower limit, `narrow` a wider one.
const BOTH: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
limits = { field = "wide", was = { max_length = 5 } }
[[versions.changes]]
collection = "books"
limits = { field = "narrow", was = { max_length = 50 } }
[[versions.changes]]
collection = "books"
limits = { field = "copy" }
[[versions.changes]]
collection = "books"
limits = { field = "secret", was = { min_length = 1 } }
[[versions.changes]]
collection = "books"
limits = { field = "pin", was = { max_length = 5 } }
[[versions]]
date = "2025-01-01"
[collections.books]
states = { names = ["new", "done"] }
[collections.books.fields]
wide = { type = "string", max_length = 50 }
narrow = { type = "string", max_length = 5 }
copy = { type = "string", max_length = 5, read_only = true }
secret = { type = "string", min_length = 8, write_only = true }
pin = { type = "string", max_length = 50, write_only = true }
other = "integer"
[collections.books.actions.keep]
set = { wide = "=record.wide", narrow = "=record.narrow" }
[[collections.books.timed]]
from = "new"
to = "done"
after = "20ms"
set = { copy = "=record.narrow" }
"#;

#[test]
fn unchanged_values_beyond_new_limits_do_not_fail_an_update() {
    let server = Start::schema(BOTH).go();
    let long = "longer than five";
    let (of_old, of_new) =
        (json!({"narrow": long, "secret": "abc"}), json!({"wide": long, "pin": long}));
    let make = |version: &str, body: &Value| {
        let made = server.ask("POST", "/v1/books").version(version).json(body).send();
        format!("/v1/books/{}", made.expect(201)["id"].as_str().unwrap())
    };
    let (old, new) = (make(OLD, &of_old), make(NEW, &of_new));
    for (path, version, field) in [(&old, NEW, "narrow"), (&new, OLD, "wide")] {
        let ask = |method: &str, body: Value| {
            server.ask(method, path).version(version).json(&body).send()
        };
        // An unchanged value is not reported with other errors.
        for method in ["PUT", "PATCH"] {
            let error = ask(method, json!({field: long, "other": "seven", "more": 1}));
            let error = error.error(422, "validation_failed");
            let told: Vec<&str> = error["errors"]
                .as_array()
                .unwrap()
                .iter()
                .map(|e| e["field"].as_str().unwrap())
                .collect();
            assert!(told.contains(&"other") && told.contains(&"more"), "{error}");
            assert!(!told.contains(&field), "{error}");
            let error = ask(method, json!({field: "another long one", "other": "seven"}));
            let error = error.error(422, "validation_failed");
            assert_eq!(error["errors"].as_array().unwrap().len(), 2, "{error}");
        }
        let keep = server.ask("POST", &format!("{path}/keep")).version(version);
        assert_eq!(keep.json(&json!({})).send().expect(200)[field], long);
    }
    // A field that is never shown cannot be sent back, so it cannot be guessed.
    for (path, version, field, guess) in [
        (&old, NEW, "secret", "abc"),
        (&old, NEW, "secret", "abd"),
        (&new, OLD, "pin", long),
        (&new, OLD, "pin", "as long as that"),
    ] {
        let patch = json!({ field: guess });
        let answer = server.ask("PATCH", path).version(version).json(&patch).send();
        assert_eq!(answer.error(422, "validation_failed")["param"], field);
    }
    // A timed transition has no caller, and fires.
    eventually("the old client's book is done", || {
        let book = server.get(&old).expect(200);
        book["status"] == "done" && book["copy"] == long
    });
}
