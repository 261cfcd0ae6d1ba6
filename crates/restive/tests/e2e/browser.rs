//! A real browser as the client: Chromium, driven by xtask/tools/browser.

use crate::deadline::Deadline as _;
use crate::harness::Start;
use crate::tools;
use serde_json::{Value, json};
use std::process::Command;

#[test]
fn a_browser_switches_from_http_2_to_http_3() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let output = Command::new("node")
        .arg(tools::root().join("xtask/tools/browser/versions.mjs"))
        .arg(tools::installed("node"))
        .arg(server.address.port().to_string())
        .arg(server.data().join("self-signed.crt"))
        .arg("200")
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let saw: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(saw["status"], 200);
    let versions = saw["versions"].as_array().unwrap();
    assert_eq!((&versions[0], versions.last()), (&json!("h2"), Some(&json!("h3"))), "{saw}");
}
