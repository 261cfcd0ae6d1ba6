//! The console: its files over HTTP, and in Chromium (xtask/tools/browser/console.mjs).

use crate::carry;
use crate::deadline::Deadline as _;
use crate::harness::{Server, Start};
use crate::tools;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

/// The bars of a first visit.
const MAX_FIRST_VISIT_BYTES: u64 = 100_000;
const MAX_FIRST_VISIT_REQUESTS: u64 = 15;
/// "Good" is less than 0.1; a person notices nothing below half of it.
const MAX_SHIFT: f64 = 0.05;

#[test]
fn the_files_of_the_console_have_a_strict_policy_and_are_not_sent_twice() {
    let server = Server::bookshop();
    let page = server.ask_anonymously("GET", "/console").send();
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'; script-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    let tag = page.header("etag").unwrap();
    let again = server.ask_anonymously("GET", "/console").header("if-none-match", tag).send();
    assert_eq!(again.status, 304);
    let script = server
        .ask_anonymously("HEAD", "/console/app.js")
        .header("accept-encoding", "gzip")
        .try_send()
        .unwrap();
    assert_eq!(script.header("content-encoding"), Some("gzip"));
    server.ask_anonymously("POST", "/console").send().error(405, "method_not_allowed");
    for path in ["/console/absent.js", "/console/../Cargo.toml", "/consoles", "/console/%2e%2e"] {
        server.ask_anonymously("GET", path).send().error(404, "route_not_found");
    }
}

#[test]
fn console_off_removes_the_console() {
    let server = Start::bookshop().arg("--console").arg("off").go();
    for path in ["/console", "/console/app.js"] {
        server.ask_anonymously("GET", path).send().error(404, "route_not_found");
    }
}

/// Prints what each of the addresses becomes as a link of the console.
const SAFE: &str = "const { safe } = await import(process.argv[1]);
console.log(JSON.stringify(JSON.parse(process.argv[2]).map(safe)));";

#[test]
fn a_link_of_the_console_leads_to_no_other_host() {
    let kept = ["#", "#/records/books", "/docs", "/errors#not_found", "/", "/docs?a=//b"];
    let refused = [
        "//evil.example",
        "/\\evil.example",
        "\\\\evil.example",
        "/\t/evil.example",
        "/\n\\evil.example",
        "\t//evil.example",
        "javascript:alert(1)",
        " javascript:alert(1)",
        "https://evil.example",
        "data:text/html,x",
        "",
    ];
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../console/static/dom.js");
    let addresses = json!([kept.as_slice(), refused.as_slice()].concat()).to_string();
    let output = Command::new("node")
        .args(["--input-type=module", "-e", SAFE, file, &addresses])
        .output_in_time()
        .unwrap();
    let links: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let expected = kept.iter().copied().chain(refused.iter().map(|_| "#"));
    assert_eq!(links, json!(expected.collect::<Vec<_>>()));
}

/// Creates a key on the server's command line.
fn key(server: &Server, arguments: &[&str]) -> String {
    let (output, errors, code) = server.tool(&[&["keys", "create"], arguments].concat());
    assert_eq!(code, 0, "{errors}");
    let mut words = output.split_whitespace();
    let is_secret = |word: &&str| word.starts_with("sk_") || word.starts_with("rk_");
    words.find(is_secret).expect("a secret is printed").to_owned()
}

#[test]
fn a_person_can_do_everything_in_the_console() {
    let server = Server::bookshop();
    let address = server.address;
    let restricted = key(&server, &["--scope", "books:read"]);
    let live = key(&server, &["--mode", "live"]);
    let (_, login) = server.greeting.split_once("/console#login=").unwrap();
    let login = login.lines().next().unwrap().to_owned();
    let mut child = Command::new("node")
        .arg(tools::root().join("xtask/tools/browser/console.mjs"))
        .arg(tools::installed("node"))
        .arg(format!("http://{address}"))
        .args([crate::harness::KEY, &restricted, &live, &login])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(!carry::is_secure(), "the console is tested without TLS");
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut says = || lines.next().expect("the page goes on").unwrap();
    assert_eq!(says(), "stop");
    let (_, folder) = server.stop();
    assert_eq!(says(), "start");
    let _server = Start::bookshop().on(&folder).at(address).go();
    let seen: Value = serde_json::from_str(&says()).unwrap();
    child.wait().unwrap();
    check(&seen);
}

#[test]
fn every_screen_of_the_console_opens_in_firefox() {
    let server = Server::bookshop();
    let output = Command::new("node")
        .args(["--experimental-websocket", "--no-warnings"])
        .arg(tools::root().join("xtask/tools/browser/firefox.mjs"))
        .args(["firefox-esr", &format!("http://{}", server.address), crate::harness::KEY])
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(seen["errors"], json!([]));
    assert_eq!((&seen["created"], &seen["pwned"]), (&json!(1), &Value::Null));
    assert_eq!(seen["screens"]["records/books"], "books", "{seen}");
    assert_eq!(seen["screens"]["explorer"], "Explorer", "{seen}");
}

fn check(seen: &Value) {
    assert_eq!(seen["errors"], json!([]));
    assert_eq!(seen["axe"], json!([]));
    assert_eq!(seen["pwned"], Value::Null, "a record ran a script");
    assert_eq!(seen["besideField"], "price must be at least 0.");
    assert_eq!(seen["kept"], "Dune Messiah", "a conflict discards nothing");
    assert_eq!(
        (&seen["saved"]["title"], &seen["saved"]["price"]),
        (&json!("Dune Messiah"), &json!(11))
    );
    assert_eq!(seen["order"], "paid");
    assert!(seen["address"].as_str().unwrap().ends_with("/console#/home"), "{}", seen["address"]);
    assert!(seen["used"].as_str().unwrap().contains("used already"), "{}", seen["used"]);
    assert_eq!(seen["signedOut"], "invalid_api_key", "the key of the link goes on");
    let keys = seen["keys"].as_array().unwrap();
    assert!(keys.iter().all(|key| key[0] == json!(["books:read"])), "{keys:?}");
    assert_eq!(keys.iter().filter(|key| key[1] == true).count(), 1, "{keys:?}");
    assert_eq!(seen["doctor"][0], true);
    for (place, words) in [(1, "parsed and written again"), (2, "quotes"), (3, "seconds old")] {
        assert!(seen["doctor"][place].as_str().unwrap().contains(words), "{}", seen["doctor"]);
    }
    assert!(seen["banner"].as_str().unwrap().contains("server is away"), "{}", seen["banner"]);
    assert_eq!(seen["away"], 1, "written once");
    assert!(seen["restricted"].as_str().unwrap().contains("orders:read"), "{}", seen["restricted"]);
    assert_eq!((&seen["asked"], &seen["declined"]), (&json!("Create a live book?"), &json!(0)));
    assert!(seen["wide"].as_i64().unwrap() <= 0, "{} px too wide", seen["wide"]);
    for (name, visit) in seen["visits"].as_object().unwrap() {
        assert!(visit["bytes"].as_u64().unwrap() <= MAX_FIRST_VISIT_BYTES, "{name}: {visit}");
        assert!(visit["requests"].as_u64().unwrap() <= MAX_FIRST_VISIT_REQUESTS, "{name}: {visit}");
        assert!(visit["shift"].as_f64().unwrap() <= MAX_SHIFT, "{name}: {visit}");
    }
}
