//! Commands around the server: restore, doctor, completions, `--json`, and what `serve` takes from
//! the folder it runs in.

use crate::deadline::Deadline as _;
use crate::harness::{KEY, Server, Start, executable, run};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tempfile::TempDir;

/// Runs a command that prints JSON.
#[track_caller]
fn json_of(folder: &Path, arguments: &[&str], expected: i32) -> Value {
    let (text, error, code) = run(folder, arguments);
    assert_eq!(code, expected, "{arguments:?}: {text}{error}");
    serde_json::from_str(&text).unwrap_or_else(|why| panic!("{arguments:?}: {why}: {text}"))
}

#[test]
fn a_backup_is_restored_and_what_was_there_is_kept() {
    let server = Server::bookshop();
    server.book("before the backup");
    let file = server.folder.path().join("backup.db");
    let (text, error, code) = server.tool(&["backup", file.to_str().unwrap(), "--json"]);
    assert_eq!(code, 0, "{error}");
    let made: Value = serde_json::from_str(&text).unwrap();
    assert!(made["bytes"].as_u64().unwrap() > 0, "{made}");
    server.book("after the backup");
    let data = server.data();
    let (data, file) = (data.to_str().unwrap(), file.to_str().unwrap());
    let restore = ["restore", file, "--data", data];
    let folder = server.folder.clone();
    let (_, error, code) = run(folder.path(), &[&restore[..], &["--replace"]].concat());
    assert!(code == 1 && error.contains("another restive serves"), "{error}");
    server.stop();
    let (_, error, code) = run(folder.path(), &restore);
    assert!(code == 1 && error.contains("--replace"), "{error}");
    // Something that is no backup changes nothing.
    let bad = folder.path().join("bad.db");
    for content in ["", "no database"] {
        std::fs::write(&bad, content).unwrap();
        let arguments = ["restore", bad.to_str().unwrap(), "--data", data, "--replace"];
        let (_, error, code) = run(folder.path(), &arguments);
        assert!(code == 1 && !error.is_empty(), "{content}: {error}");
    }
    let (_, error, code) = run(folder.path(), &["restore", "missing.db", "--data", data]);
    assert!(code == 1 && error.contains("no file"), "{error}");
    let server = Start::bookshop().on(&folder).go();
    assert_eq!(server.get("/v1/books").titles().len(), 2, "the data is as it was");
    server.stop();
    let done = json_of(folder.path(), &[&restore[..], &["--replace", "--json"]].concat(), 0);
    let aside = Path::new(done["moved_to"].as_str().unwrap());
    assert!(aside.join("restive.db").is_file(), "{done}");
    let server = Start::bookshop().on(&folder).go();
    assert_eq!(server.get("/v1/books").titles(), ["before the backup"]);
    server.book("after the restore");
    let fresh = folder.path().join("fresh");
    let fresh = ["restore", file, "--data", fresh.to_str().unwrap()];
    let (text, error, code) = run(folder.path(), &fresh);
    assert!(code == 0 && text.starts_with("restored "), "{text}{error}");
}

#[test]
fn the_files_of_a_killed_server_are_restored_with_every_acknowledged_write() {
    let server = Server::bookshop();
    let book = server.book("acknowledged");
    let folder = server.kill();
    let live = folder.path().join("data/restive.db");
    let new = folder.path().join("new");
    let (live, new_data) = (live.to_str().unwrap(), new.to_str().unwrap());
    let (text, error, code) = run(folder.path(), &["restore", live, "--data", new_data]);
    assert_eq!(code, 0, "{text}{error}");
    // In place as well.
    let data = folder.path().join("data");
    let own = ["restore", live, "--replace", "--data", data.to_str().unwrap()];
    let (text, error, code) = run(folder.path(), &own);
    assert_eq!(code, 0, "{text}{error}");
    let server = Start::bookshop().on(&folder).go();
    server.get(&format!("/v1/books/{book}")).expect(200);
    server.stop();
    let elsewhere = Arc::new(TempDir::new().unwrap());
    std::fs::rename(&new, elsewhere.path().join("data")).unwrap();
    let server = Start::bookshop().on(&elsewhere).go();
    server.get(&format!("/v1/books/{book}")).expect(200);
    let used = server.data().join("restive.db");
    let other = elsewhere.path().join("other");
    let from = ["restore", used.to_str().unwrap(), "--data", other.to_str().unwrap()];
    let (_, error, code) = run(elsewhere.path(), &from);
    assert!(code == 1 && error.contains("in use by a server"), "{error}");
}

#[test]
fn a_restore_that_was_interrupted_is_not_mistaken_for_an_empty_folder() {
    let server = Server::bookshop();
    let book = server.book("kept");
    let file = server.folder.path().join("backup.db");
    let (_, error, code) = server.tool(&["backup", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{error}");
    let (_, folder) = server.stop();
    let data = folder.path().join("data");
    // As a kill between its two steps leaves the folder.
    std::fs::create_dir(data.join("before-restore-now")).unwrap();
    for name in ["restive.db", "restive.db-wal", "restive.db-shm", "restive.db-acknowledged"] {
        let file = data.join(name);
        if file.exists() {
            std::fs::rename(&file, data.join("before-restore-now").join(name)).unwrap();
        }
    }
    let (code, error) = Start::bookshop().on(&folder).fails();
    assert!(code == 1 && error.contains("a restore was interrupted"), "{code} {error}");
    let shown = data.to_str().unwrap();
    let doctor = ["doctor", "--json", "--data", shown, "--listen", "127.0.0.1:0"];
    let report = json_of(folder.path(), &doctor, 1);
    assert!(report.to_string().contains("a restore was interrupted"), "{report}");
    let (_, error, code) =
        run(folder.path(), &["restore", file.to_str().unwrap(), "--data", shown]);
    assert_eq!(code, 0, "{error}");
    let server = Start::bookshop().on(&folder).go();
    server.get(&format!("/v1/books/{book}")).expect(200);
}

#[test]
fn a_server_whose_output_cannot_be_written_serves_all_the_same() {
    let folder = Arc::new(TempDir::new().unwrap());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Start::bookshop().at(taken).command(folder.path());
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let mut server = command.stdout(full).stderr(std::process::Stdio::null()).spawn().unwrap();
    crate::harness::eventually("it listens", || std::net::TcpStream::connect(taken).is_ok());
    server.kill().unwrap();
    server.wait().unwrap();
}

#[test]
fn a_schema_that_is_a_folder_is_refused_instead_of_serving_the_bookshop() {
    let folder = TempDir::new().unwrap();
    std::fs::create_dir(folder.path().join("restive.toml")).unwrap();
    let (_, error, code) = run(folder.path(), &["serve", "--listen", "127.0.0.1:0"]);
    assert!(code != 0 && error.contains("restive.toml"), "{code} {error}");
    assert!(!folder.path().join("restive-data").exists());
}

#[test]
fn names_that_customers_choose_do_not_control_the_terminal() {
    let server = Server::bookshop();
    let name = "ok\r\u{1b}[2Kforged\n\u{202e}row";
    server.post("/v1/keys", serde_json::json!({"name": name, "scopes": null})).expect(201);
    let (text, error, code) = server.tool(&["keys", "list"]);
    assert!(code == 0 && text.contains("forged"), "{text}{error}");
    assert!(!text.contains(['\r', '\u{1b}', '\u{202e}']), "{text:?}");
    assert!(!text.contains("forged\n"), "{text:?}");
}

#[test]
fn doctor_finds_what_would_keep_a_server_from_starting() {
    let folder = TempDir::new().unwrap();
    let at = folder.path();
    let status = |report: &Value, name: &str| {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("{name} in {report}"))["status"].as_str().unwrap().to_owned()
    };
    let healthy = json_of(at, &["doctor", "--json", "--listen", "127.0.0.1:0"], 0);
    for name in ["schema", "data", "clock", "port"] {
        assert_eq!(status(&healthy, name), "ok", "{healthy}");
    }
    assert_eq!(healthy["ok"], true);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    std::fs::write(at.join("restive.toml"), "[collections.books]\nfeilds = 1\n").unwrap();
    std::fs::create_dir(at.join("restive-data")).unwrap();
    std::fs::write(at.join("restive-data/restive.db"), "no database").unwrap();
    std::fs::write(at.join("cert.pem"), "no certificate").unwrap();
    let arguments = ["doctor", "--json", "--listen", &address];
    let tls = ["--tls-cert", "cert.pem", "--tls-key", "cert.pem"];
    let broken = json_of(at, &[&arguments[..], &tls].concat(), 1);
    for name in ["schema", "database", "port", "certificate"] {
        assert_eq!(status(&broken, name), "failed", "{broken}");
    }
    for check in broken["checks"].as_array().unwrap() {
        assert_eq!(check["status"] != "ok", check["advice"].is_string(), "{check}");
    }
    let (text, _, code) = run(at, &["doctor", "--listen", &address]);
    assert!(code == 1 && text.contains("what to do: "), "{text}");
    std::os::unix::fs::symlink("loop", at.join("loop")).unwrap();
    for missing in ["loop", "cert.pem/data"] {
        let report = json_of(at, &["doctor", "--json", "--data", missing], 1);
        assert_eq!(status(&report, "data"), "failed", "{report}");
    }
    let server = Server::bookshop();
    let (data, address) = (server.data(), server.address.to_string());
    let arguments = ["doctor", "--json", "--data", data.to_str().unwrap(), "--listen", &address];
    let other = TempDir::new().unwrap();
    let served = json_of(other.path(), &arguments, 0);
    assert_eq!((status(&served, "port"), status(&served, "database")), ("ok".into(), "ok".into()));
}

#[test]
fn completions_offer_commands_options_and_values() {
    let folder = TempDir::new().unwrap();
    let script = |shell: &str| {
        let (text, error, code) = run(folder.path(), &["completions", shell]);
        assert_eq!(code, 0, "{error}");
        text
    };
    for (shell, expected) in [
        ("zsh", "'keys:Create, list, revoke and roll API keys'"),
        ("fish", "complete -c restive -f -n '__fish_use_subcommand' -a keys"),
    ] {
        assert!(script(shell).contains(expected), "{}", script(shell));
    }
    let file = folder.path().join("completions.bash");
    std::fs::write(&file, script("bash")).unwrap();
    let complete = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let source = format!(
            "source '{}'; COMP_WORDS=({}); COMP_CWORD={}; _restive; echo \"${{COMPREPLY[*]}}\"",
            file.display(),
            words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" "),
            words.len() - 1
        );
        let output = Command::new("bash").arg("-c").arg(source).output_in_time().unwrap();
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    for (line, expected) in [
        ("restive ke", "keys"),
        ("restive keys ro", "roll"),
        ("restive keys create --adm", "--admin"),
        ("restive keys create --mode li", "live"),
        ("restive serve --data x --early-hints as", "asked"),
        ("restive completions nothing-", ""),
    ] {
        assert_eq!(complete(line), expected, "{line}");
    }
}

#[test]
fn commands_print_json_for_programs() {
    let server = Server::bookshop();
    let data = server.data();
    let data = data.to_str().unwrap();
    let other = TempDir::new().unwrap();
    let at = other.path();
    let made = json_of(at, &["keys", "create", "--data", data, "--json", "--name", "ci"], 0);
    assert!(made["secret"].as_str().unwrap().starts_with("sk_test_") && made["name"] == "ci");
    let id = made["id"].as_str().unwrap();
    let rolled = json_of(at, &["keys", "roll", id, "--data", data, "--json"], 0);
    assert_eq!(rolled["replaces"]["id"], id);
    let revoked = json_of(at, &["keys", "revoke", id, "--data", data, "--json"], 0);
    assert!(revoked["revoked_at"].is_string(), "{revoked}");
    let keys = json_of(at, &["keys", "list", "--data", data, "--json"], 0);
    assert_eq!(keys["data"].as_array().unwrap().len(), 3, "{keys}");
    assert!(!keys.to_string().contains("digest"), "{keys}");
    let account = json_of(at, &["accounts", "create", "Acme", "--data", data, "--json"], 0);
    assert!(account["keys"]["live"].as_str().unwrap().starts_with("sk_live_"), "{account}");
    let accounts = json_of(at, &["accounts", "list", "--data", data, "--json"], 0);
    assert_eq!(accounts["data"][1]["name"], "Acme");
    std::fs::write(at.join("good.toml"), "[collections.books.fields]\ntitle = 'string'\n").unwrap();
    std::fs::write(at.join("bad.toml"), "[collections.books]\nfeilds = 1\n").unwrap();
    let checked = json_of(at, &["check", "good.toml", "--json"], 0);
    assert_eq!(checked["ok"], true);
    let checked = json_of(at, &["check", "bad.toml", "--json"], 1);
    assert_eq!((&checked["errors"][0]["line"], &checked["ok"]), (&2.into(), &false.into()));
    let edited = "[collections.books.fields]\ntitle = { type = 'string', required = true }\n";
    std::fs::write(at.join("edited.toml"), edited).unwrap();
    let plan = json_of(at, &["plan", "good.toml", "edited.toml", "--json"], 1);
    assert_eq!(plan["edits"][0]["place"], "books.title", "{plan}");
    let book = server.book("Dune");
    let events = server.get("/v1/events?type=book.created").column("id");
    let event = events[0].as_str().unwrap();
    let shown = json_of(at, &["events", "show", event, "--data", data, "--json"], 0);
    assert_eq!(shown["data"]["object"]["id"], book.as_str());
}

#[test]
fn serve_takes_the_schema_of_its_folder_and_a_name_to_listen_on() {
    let folder = Arc::new(TempDir::new().unwrap());
    let schema = "[service]\nname = 'helpdesk'\n[collections.tickets.fields]\ntitle = 'string'\n";
    std::fs::write(folder.path().join("restive.toml"), schema).unwrap();
    let start = || {
        let mut command = Command::new(executable());
        command.current_dir(folder.path()).env("RESTIVE_BOOTSTRAP_KEY", KEY);
        command.args(["serve", "--listen", "localhost:0"]);
        command
    };
    let server = Server::spawn(start(), folder.clone());
    assert!(server.greeting.contains("`helpdesk` (./restive.toml)"), "{}", server.greeting);
    assert!(server.address.ip().is_loopback());
    server.get("/v1/tickets").expect(200);
    server.stop();
    let (document, _, _) = run(folder.path(), &["openapi"]);
    assert!(document.contains("/v1/tickets"), "{document}");
    for bad in ["localhost", "localhost:x", "localhost:99999", "nowhere.invalid:80", ""] {
        let (_, error, code) = run(folder.path(), &["serve", "--listen", bad]);
        assert!(code == 2 && error.contains("--listen"), "{bad}: {error}");
    }
}
