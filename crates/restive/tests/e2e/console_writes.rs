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
    assert_eq!(seen["errors"], json!([]));
    println!("{seen:#}");
}
