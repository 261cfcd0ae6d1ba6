//! What the console writes, in Chromium (xtask/tools/browser/writes.mjs).

use crate::auth::account;
use crate::deadline::Deadline as _;
use crate::harness::{KEY, Start};
use crate::tools;
use serde_json::{Value, json};
use std::process::Command;

const NOTES: &str = "
[collections.notes.fields]
title = { type = 'string', required = true, filter = true }
text = 'string'
tags = { type = 'array', items = 'string' }
data = 'object'
weight = 'number'
";

#[test]
fn the_console_writes_only_what_a_person_asked_for() {
    let server = Start::schema(NOTES).go();
    let (live, _, code) = server.tool(&["keys", "create", "--mode", "live"]);
    assert_eq!(code, 0);
    let live = live.split_whitespace().find(|word| word.starts_with("sk_live_")).unwrap();
    let (_, other, _) = account(&server, "other");
    let output = Command::new("node")
        .arg(tools::root().join("xtask/tools/browser/writes.mjs"))
        .arg(tools::installed("node"))
        .args([&server.url(""), KEY, live, &other])
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    check(&seen);
    check_keys(&seen);
}

fn check(seen: &Value) {
    assert_eq!(seen["errors"], json!([]));
    let edits = json!([
        {"title": "One again"},
        {"title": "Two again"},
        {"title": "Three again"},
        {"tags": ["red, blue", "yellow"]},
    ]);
    assert_eq!(seen["edits"], edits, "an edit sends only what was changed");
    let inexact = seen["inexact"].as_array().unwrap();
    assert_eq!(inexact.len(), 2, "data and weight: {inexact:?}");
    for message in inexact.iter().map(|message| message.as_str().unwrap()) {
        assert!(message.starts_with("A browser cannot keep "), "{message}");
    }
    assert!(inexact[1].as_str().unwrap().contains("1e400"), "{inexact:?}");
    let exact = seen["exact"].as_str().unwrap();
    assert!(exact.contains("9007199254740993"), "the number that nobody changed: {exact}");
    let record: Value = serde_json::from_str(exact).unwrap();
    assert_eq!(
        (&record["title"], &record["weight"], &record["data"]["d"]),
        (&json!("Exact"), &json!(42), &json!(1)),
        "the title was saved, the refused edit was not"
    );
    assert_eq!(seen["cancelled"], 0, "a cancelled write is not sent when the server is back");
    assert_eq!(seen["banner"], false, "a header that cannot be sent is no server that is away");
    assert_eq!(seen["reads"], 1, "three events while a list is read are one read");
    assert_eq!(seen["unload"], "beforeunload", "a reload asks");
    assert_eq!(seen["typed"], "http://127.0.0.1:9/", "what was typed stays");
    assert_eq!(seen["list"], 1, "a form that is saved after Back leaves the list in place");
}

fn check_keys(seen: &Value) {
    let refused = seen["refused"].as_array().unwrap();
    let reasons = [
        ("a live key", "What is open here is test data."),
        ("a key of another account", "This key belongs to another account."),
        ("no key", "Paste an API key,"),
        ("a key that may not read its account", "Nothing says that this key is of the same"),
    ];
    assert_eq!(refused.len(), reasons.len(), "{refused:?}");
    for (message, (what, begin)) in refused.iter().zip(reasons) {
        assert!(message.as_str().unwrap().starts_with(begin), "{what}: {message}");
    }
    assert_eq!(seen["unrepeated"], 1, "nobody agreed to this write with the next key");
    assert_eq!(seen["repeated"], json!([true, true]), "written when the person asked again");
    assert_eq!(seen["asked"], 0, "a person who declined is not asked again");
    assert_eq!(seen["deletedAs"], json!([true]), "not sent as somebody else who signed in");
    let restricted = json!([{"name": "renamed"}, {"scopes": ["notes:read"]}]);
    assert_eq!(seen["restricted"], restricted, "only what was changed");
    let scopes = json!([["notes:read"], ["notes:read"]]);
    assert_eq!(seen["scopes"], scopes, "an old list gives no scope back to a key");
    assert_eq!(seen["rolled"], 1, "two clicks are one write");
    let lost = "It was created, but its text was lost with the connection.";
    assert!(seen["lost"].as_str().unwrap().starts_with(lost), "{}", seen["lost"]);
}
