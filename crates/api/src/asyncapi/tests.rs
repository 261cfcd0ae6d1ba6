//! The document describes each channel completely, for every version.

use super::*;
use crate::openapi::names::pascal;
use model::parse;
use model::schema::BOOKSHOP;
use model::version::Versions;
use std::collections::BTreeSet;
use std::sync::Arc;

fn documents(text: &str) -> Vec<Value> {
    let schema = Arc::new(parse::parse(text).unwrap());
    Versions::new(&schema).iter().map(|view| of_version(view, None)).collect()
}

fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(pointer)) = members.get("$ref") {
                into.insert(pointer.trim_start_matches('#').to_owned());
            }
            members.values().for_each(|member| references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

const VERSIONED: &str = r#"
[[versions]]
date = "2026-01-01"
[[versions.changes]]
collection = "books"
rename = { from = "name", to = "title" }
[[versions.changes]]
collection = "notes"
collection_added = true
[[versions]]
date = "2025-01-01"
[events.types."a.b_c"]
[events.types."a_b.c"]
[collections.books.fields]
title = "string"
[collections.notes]
feed = true
[collections.notes.fields]
text = "string"
"#;

#[test]
fn every_reference_resolves_and_every_component_is_used() {
    for document in [documents(BOOKSHOP), documents(VERSIONED)].concat() {
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for pointer in &found {
            assert!(document.pointer(pointer).is_some(), "dangling: {pointer}");
        }
        for (section, entries) in document["components"].as_object().unwrap() {
            for name in keys(entries) {
                let pointer = format!("/components/{section}/{name}");
                assert!(found.contains(&pointer), "unused: {pointer}");
            }
        }
    }
}

#[test]
fn each_channel_lists_the_messages_of_both_sides() {
    let document = &documents(BOOKSHOP)[0];
    assert_eq!(keys(&document["channels"]), ["pollMessage", "socket", "stream"]);
    assert_eq!(document["channels"]["pollMessage"]["address"], "/api/messages");
    let stream = keys(&document["channels"]["stream"]["messages"]);
    for name in [
        "book.created",
        "report.ready",
        "message",
        "typing",
        "online",
        "stream.reset",
        "presence.reset",
        "stream.closing",
        "webhook_endpoint.failing",
    ] {
        assert!(stream.contains(&name), "{name}");
    }
    for name in ["message.created", "ping", "ack"] {
        assert!(!stream.contains(&name), "{name}");
    }
    let socket = keys(&document["channels"]["socket"]["messages"]);
    for name in [
        "welcome",
        "ack",
        "error",
        "pong",
        "message",
        "client-message",
        "client-ping",
        "client-subscribe",
        "client-unsubscribe",
        "client-typing",
    ] {
        assert!(socket.contains(&name), "{name}");
    }
    assert_eq!(document["operations"]["socket.message"]["action"], "receive");
    assert_eq!(document["operations"]["stream"]["action"], "send");
    let query = &document["operations"]["pollMessage"]["bindings"]["http"]["query"];
    assert_eq!(keys(&query["properties"]), ["limit", "since", "user", "version", "wait"]);
    let payload = &document["components"]["messages"]["socket.book.created"]["payload"];
    assert_eq!(payload["properties"]["data"]["$ref"], "#/components/schemas/BookCreatedEvent");
    assert_eq!(payload["required"], json!(["type", "position", "data"]));
}

#[test]
fn an_older_version_has_its_own_names_and_collections() {
    let both = documents(VERSIONED);
    let shown = |document: &Value| {
        keys(&document["components"]["schemas"]["BookSnapshot"]["properties"]).join(" ")
    };
    assert!(shown(&both[0]).contains("title") && !shown(&both[0]).contains("name"));
    assert!(shown(&both[1]).contains("name") && !shown(&both[1]).contains("title"));
    assert_eq!(keys(&both[0]["channels"]), ["pollNote", "socket", "stream"]);
    assert_eq!(keys(&both[1]["channels"]), ["socket", "stream"]);
    assert_eq!(both[1]["info"]["version"], "2025-01-01");
}

#[test]
fn types_that_differ_only_in_their_separators_have_schemas_of_their_own() {
    assert_eq!(pascal("a.b_c"), pascal("a_b.c"));
    let schemas = &documents(VERSIONED)[0]["components"]["schemas"];
    let kinds = ["ABCEvent", "ABCEvent2"].map(|name| &schemas[name]["properties"]["type"]["const"]);
    assert_eq!(kinds, [&json!("a.b_c"), &json!("a_b.c")]);
}

#[test]
fn the_servers_have_the_host_and_the_scheme_of_the_url() {
    let schema = Arc::new(parse::parse(BOOKSHOP).unwrap());
    let versions = Versions::new(&schema);
    let of = |url| of_version(versions.newest(), url)["servers"].clone();
    let told = |url, server: &str| {
        let one = of(Some(url))[server].clone();
        [&one["protocol"], &one["host"], &one["pathname"]].map(|value| value.to_string()).join(" ")
    };
    for (url, server, expected) in [
        ("https://shop.example", "http", r#""https" "shop.example" null"#),
        ("https://shop.example/", "websocket", r#""wss" "shop.example" null"#),
        ("http://shop.example:8080/shop/", "websocket", r#""ws" "shop.example:8080" "/shop""#),
    ] {
        assert_eq!(told(url, server), expected, "{url}");
    }
    assert_eq!(of(None)["http"]["host"], "{host}");
    assert_eq!(of(None)["http"]["variables"]["host"]["default"], "localhost:8080");
}
