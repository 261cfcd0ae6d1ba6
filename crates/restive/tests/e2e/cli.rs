//! The commands: what they print, what they refuse and with which exit code.

use crate::deadline::{Deadline as _, wait_with_output};
use crate::harness::{Server, Start, eventually, executable, run};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tempfile::TempDir;

#[test]
fn init_writes_a_file_that_check_accepts_and_serve_serves() {
    let folder = TempDir::new().unwrap();
    let (out, error, code) = run(folder.path(), &["init"]);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("restive.toml"), "{out}");
    let (out, error, code) = run(folder.path(), &["check"]);
    assert_eq!((code, error.as_str()), (0, ""), "{out}");
    assert!(
        out.contains("ok") && out.contains("books") && out.contains("payment-intents"),
        "{out}"
    );
    let text = std::fs::read_to_string(folder.path().join("restive.toml")).unwrap();
    assert!(text.lines().filter(|line| line.starts_with('#')).count() > 10, "it is commented");
    let server = Start::schema(&text).go();
    server.book("Dune");
    std::fs::write(folder.path().join("restive.toml"), "mine").unwrap();
    let (_, error, code) = run(folder.path(), &["init"]);
    assert_eq!(code, 1);
    assert!(error.contains("restive.toml"), "{error}");
    let kept = std::fs::read_to_string(folder.path().join("restive.toml")).unwrap();
    assert_eq!(kept, "mine", "nothing is overwritten");
    let (out, _, code) = run(folder.path(), &["init", "other.toml"]);
    assert!(code == 0 && out.contains("other.toml"), "{out}");
    let (out, _, code) = run(folder.path(), &["init", "--json-schema"]);
    let schema: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && schema["$schema"].is_string());
}

/// `restive openapi | head`: a reader that exits early ends the command without an error.
#[test]
fn a_command_whose_output_is_read_only_in_part_ends_without_an_error() {
    let folder = TempDir::new().unwrap();
    let (_, _, code) = run(folder.path(), &["init"]);
    assert_eq!(code, 0);
    let other = "[service]\nversion = \"2026-01-01\"\n[collections.pens]\n";
    std::fs::write(folder.path().join("pens.toml"), other).unwrap();
    for (arguments, code) in [
        (&["init", "--json-schema"][..], 0),
        (&["openapi", "--schema", "restive.toml"], 0),
        (&["plan", "restive.toml", "pens.toml"], 1),
    ] {
        let mut command = Command::new(executable());
        let (stdout, stderr) = (Stdio::piped(), Stdio::piped());
        command.args(arguments).current_dir(folder.path()).stdout(stdout).stderr(stderr);
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = wait_with_output(child, "the command");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*error), (Some(code), ""), "{arguments:?}");
    }
}

#[test]
fn check_prints_every_error_with_line_and_column() {
    let folder = TempDir::new().unwrap();
    let text = "[service]\nmount = \"v1\"\n[collections.Book.fields]\nTitle = \"strin\"\n\
                [collections.books.fields]\nprice = { type = \"number\", minn = 1 }\n\
                [collections.reviews]\nparent = \"boks\"\n";
    std::fs::write(folder.path().join("s.toml"), text).unwrap();
    let (out, error, code) = run(folder.path(), &["check", "s.toml"]);
    assert_eq!((code, out.as_str()), (1, ""));
    for line in ["s.toml:2:", "s.toml:3:", "s.toml:4:", "s.toml:6:", "s.toml:8:"] {
        let found = error.lines().find(|found| found.starts_with(line));
        let found = found.unwrap_or_else(|| panic!("{line} is missing in:\n{error}"));
        let column = found.split(':').nth(2).unwrap();
        assert!(column.parse::<u32>().is_ok_and(|column| column >= 1), "{found}");
    }
    assert!(error.contains("did you mean `books`"), "{error}");
    assert!(error.lines().last().unwrap().ends_with("errors"), "{error}");
    let (code, served) = Start::schema(text).fails();
    assert_eq!(code, 1);
    assert!(served.contains("restive.toml:2:") && served.contains(":8:"), "{served}");
    std::fs::write(folder.path().join("t.toml"), "[service\n").unwrap();
    let (_, error, code) = run(folder.path(), &["check", "t.toml"]);
    assert!(code == 1 && error.starts_with("t.toml:1:"), "{error}");
    let (_, error, code) = run(folder.path(), &["check", "none.toml"]);
    assert!(code == 1 && error.contains("none.toml"), "{error}");
}

#[test]
fn openapi_prints_the_document_that_is_served() {
    let folder = TempDir::new().unwrap();
    let (out, error, code) = run(folder.path(), &["openapi"]);
    assert_eq!(code, 0, "{error}");
    let printed: Value = serde_json::from_str(&out).unwrap();
    let served = Server::bookshop().get("/openapi.json").expect(200);
    assert_eq!(printed["paths"], served["paths"]);
    assert!(printed["paths"]["/v1/books/{book_id}"]["patch"].is_object());
    let (out, _, code) = run(folder.path(), &["openapi", "--server", "https://shop.example"]);
    let document: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &document["servers"][0]["url"]), (0, &json!("https://shop.example")));
    let (_, error, code) = run(folder.path(), &["openapi", "--schema", "none.toml"]);
    assert!(code == 1 && error.contains("none.toml"), "{error}");
}

#[test]
fn every_command_has_help_and_bad_flags_exit_with_2() {
    let folder = TempDir::new().unwrap();
    let (out, _, code) = run(folder.path(), &["--help"]);
    assert_eq!(code, 0);
    let commands =
        "serve init check plan accounts keys openapi asyncapi generate backup events replay";
    for command in commands.split(' ') {
        assert!(out.contains(command), "{command}");
        let (help, _, code) = run(folder.path(), &[command, "--help"]);
        assert!(code == 0 && help.contains("Usage"), "{command}");
    }
    let (out, _, code) = run(folder.path(), &["serve", "--help"]);
    assert_eq!(code, 0);
    for text in
        ["--listen", "RESTIVE_LISTEN", "127.0.0.1:8080", "--data", "--schema", "--rate-limit"]
    {
        assert!(out.contains(text), "{text}: {out}");
    }
    let (out, _, code) = run(folder.path(), &["--version"]);
    assert!(code == 0 && out.starts_with("restive "));
    for arguments in [
        &["nonsense"][..],
        &["serve", "--nope"],
        &["serve", "--listen", "here"],
        &["check", "a", "b"],
        &["keys"],
        &["keys", "create", "--mode", "both"],
        &["serve", "--drain-delay", "x"],
    ] {
        let (_, error, code) = run(folder.path(), arguments);
        assert!(code == 2 && error.contains("--help"), "{arguments:?}: {code} {error}");
    }
    for arguments in [&["keys", "list"][..], &["accounts", "list"], &["backup", "copy.db"]] {
        let (_, error, code) = run(folder.path(), arguments);
        assert!(code == 1 && error.contains("there is no database"), "{arguments:?}: {error}");
    }
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "nothing was made by the way");
}

#[test]
fn a_backup_taken_during_writes_is_consistent_and_can_be_served() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let first = server.book("before the backup");
    let (stop, written) = (AtomicBool::new(false), AtomicUsize::new(0));
    let copy = server.folder.path().join("copy.db");
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                let book = server.book(&format!("n{number}"));
                server.make(&format!("/v1/books/{book}/reviews"), json!({"rating": 3}));
                number += 1;
                written.store(number, Ordering::Relaxed);
            }
        });
        eventually("writes are under way", || written.load(Ordering::Relaxed) > 2);
        // Until a write began and ended during a backup.
        eventually("a write overlaps the backup", || {
            let _ = std::fs::remove_file(&copy);
            let before = written.load(Ordering::Relaxed);
            let (out, error, code) = server.tool(&["backup", copy.to_str().unwrap()]);
            assert!(code == 0 && out.contains("copy.db"), "{out}{error}");
            written.load(Ordering::Relaxed) > before + 1
        });
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    let (_, error, code) = server.tool(&["backup", copy.to_str().unwrap()]);
    assert_eq!(code, 1, "an existing file is kept: {error}");
    let folder = std::sync::Arc::new(TempDir::new().unwrap());
    std::fs::create_dir(folder.path().join("data")).unwrap();
    std::fs::copy(&copy, folder.path().join("data/restive.db")).unwrap();
    let restored = Start::bookshop().on(&folder).go();
    restored.get(&format!("/v1/books/{first}")).expect(200);
    assert_eq!(restored.get("/v1/books?q=backup").column("id"), [first.as_str()]);
    let here = server.get("/v1/books?page=1").expect(200)["pagination"]["total"].as_u64();
    let there = restored.get("/v1/books?page=1").expect(200)["pagination"]["total"].as_u64();
    assert!(there >= Some(3) && there <= here, "{there:?} of {here:?}");
    // Records and events are from one point in time: each record has its event and each event its
    // record.
    let all = |path: &str, column: &str| -> std::collections::BTreeSet<String> {
        let mut found = std::collections::BTreeSet::new();
        let mut next = format!("{path}limit=100");
        loop {
            let page = restored.get(&next).expect(200);
            let data = page["data"].as_array().unwrap();
            found.extend(
                data.iter().map(|r| r.pointer(column).unwrap().as_str().unwrap().to_owned()),
            );
            let Some(cursor) = page["pagination"]["next_cursor"].as_str() else { return found };
            next = format!("{path}limit=100&after={cursor}");
        }
    };
    let books = all("/v1/books?", "/id");
    assert_eq!(books, all("/v1/events?type=book.created&", "/data/object/id"));
    assert_eq!(books.len() as u64, there.unwrap());
    // At most the review of the last book is missing: it was written after its book.
    let reviews = all("/v1/events?type=review.created&", "/data/object/id").len();
    assert!((books.len() - 2..books.len()).contains(&reviews), "{reviews} of {books:?}");
    restored.book("the copy is a database like any other");
}

/// Starts without arguments; returns the output until the server listens.
fn bare(folder: &TempDir) -> (std::process::Child, Vec<String>) {
    let mut child = Command::new(executable())
        .env("RESTIVE_LISTEN", "127.0.0.1:0")
        .env("RESTIVE_DATA", folder.path().join("data"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let listens = line.starts_with("listening on ");
        lines.push(line);
        if listens {
            break;
        }
    }
    (child, lines)
}

#[test]
fn without_arguments_it_serves_the_bookshop_and_prints_curl_lines_that_work() {
    let folder = TempDir::new().unwrap();
    let (mut child, lines) = bare(&folder);
    let text = lines.join("\n");
    assert_eq!(text.matches("  test  sk_test_").count(), 1, "{text}");
    assert_eq!(text.matches("  live  sk_live_").count(), 1, "{text}");
    let curl: Vec<&str> =
        lines.iter().map(|line| line.trim()).filter(|line| line.starts_with("curl ")).collect();
    assert_eq!(curl.len(), 3, "{text}");
    let mut answers = Vec::new();
    for line in &curl {
        let output = Command::new("sh").arg("-c").arg(line).output_in_time().unwrap();
        let body = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        answers.push(
            serde_json::from_str::<Value>(&body).unwrap_or_else(|_| panic!("{line}: {body}")),
        );
    }
    assert_eq!(answers[0]["title"], "Dune");
    assert_eq!(
        answers[1]["data"][0]["id"], answers[0]["id"],
        "the second finds what the first made"
    );
    assert_eq!(answers[2]["status"], "ok");
    child.kill().unwrap();
    child.wait().unwrap();
    let (mut child, lines) = bare(&folder);
    let text = lines.join("\n");
    assert!(!text.contains("sk_"), "keys are printed once: {text}");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_bootstrap_key_with_a_wrong_prefix_is_refused() {
    let (code, error) = Start::bookshop().env("RESTIVE_BOOTSTRAP_KEY", "password").fails();
    assert_eq!(code, 1);
    assert!(error.contains("RESTIVE_BOOTSTRAP_KEY must begin with"), "{error}");
    assert!(!error.contains("password"), "it is not echoed: {error}");
}
