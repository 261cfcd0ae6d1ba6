//! `restive serve` over HTTPS, with curl and openssl as clients: the operations on a record,
//! certificates by name, reload, resumption, old TLS versions, and every error in the flags.

use crate::deadline::{Deadline as _, wait_with_output};
use crate::harness::{KEY, PATIENCE, Server, Start, eventually};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Creates a certificate for a name with its key; returns the two files.
fn certificate(folder: &Path, name: &str, arguments: &[&str]) -> (PathBuf, PathBuf) {
    let cert = folder.join(format!("{name}.crt"));
    let key = folder.join(format!("{name}.key"));
    let output = Command::new("openssl")
        .args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=test", "-addext"])
        .arg(format!("subjectAltName=DNS:{name}"))
        .args(arguments)
        .arg("-out")
        .arg(&cert)
        .arg("-keyout")
        .arg(&key)
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (cert, key)
}

const ELLIPTIC: [&str; 4] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"];
const RSA: [&str; 2] = ["-newkey", "rsa:2048"];

fn start(pairs: &[&(PathBuf, PathBuf)]) -> Start {
    pairs.iter().fold(Start::bookshop(), |start, (cert, key)| {
        let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
        start.arg("--tls-cert").arg(cert).arg("--tls-key").arg(key)
    })
}

/// Runs curl as if the name resolved to the server; returns status, headers and body as text, or
/// the error.
fn curl(server: &Server, name: &str, trusted: &Path, arguments: &[&str]) -> Result<String, String> {
    let port = server.address.port();
    let (path, arguments) = arguments.split_last().unwrap();
    let output = Command::new("curl")
        .args(["-sSi", "--max-time", "20", "--cacert"])
        .arg(trusted)
        .args(["--resolve", &format!("{name}:{port}:{}", server.address.ip())])
        .args(["-u", &format!("{KEY}:")])
        .args(arguments)
        .arg(format!("https://{name}:{port}{path}"))
        .output_in_time()
        .unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The output of `openssl s_client` on a connection after sending this.
fn s_client(server: &Server, arguments: &[&str], sent: &str) -> String {
    let mut child = Command::new("openssl")
        .args(["s_client", "-connect", &server.address.to_string()])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may have exited already.
    let _ = child.stdin.take().unwrap().write_all(sent.as_bytes());
    let output = wait_with_output(child, "the command");
    let (out, error) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(error))
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

#[test]
fn a_record_is_created_changed_and_deleted_over_https_with_http_1_and_http_2() {
    let folder = TempDir::new().unwrap();
    let pair = certificate(folder.path(), "shop.example", &ELLIPTIC);
    let server = start(&[&pair]).go();
    let ask = |arguments: &[&str]| curl(&server, "shop.example", &pair.0, arguments).unwrap();
    assert!(ask(&["/health"]).starts_with("HTTP/2 200 "), "what curl would rather speak");
    let large = folder.path().join("large.json");
    std::fs::write(&large, json!({"title": "x".repeat(3 << 20), "author": "a"}).to_string())
        .unwrap();
    for (version, name) in [("--http1.1", "HTTP/1.1"), ("--http2", "HTTP/2")] {
        let ask = |arguments: &[&str]| ask(&[&[version], arguments].concat());
        live(&ask, name);
        let data = format!("@{}", large.display());
        let answer = ask(&["-H", JSON, "-d", &data, "/v1/books"]);
        let refused = [413, 422].map(|status| format!("{name} {status} "));
        assert!(refused.iter().any(|status| answer.contains(status)), "{answer}");
    }
    let (code, _) = server.stop();
    assert_eq!(code, 0);
}

const JSON: &str = "Content-Type: application/json";

/// Creates, changes and deletes a record, with responses in this version.
fn live(ask: &dyn Fn(&[&str]) -> String, version: &str) {
    let has = |answer: &str, status: u16| answer.starts_with(&format!("{version} {status} "));
    let new = json!({"title": "Dune", "author": "Frank Herbert"}).to_string();
    let made = ask(&["-H", JSON, "-d", &new, "/v1/books"]);
    assert!(has(&made, 201), "{made}");
    let path = format!("/v1/books/{}", body(&made)["id"].as_str().unwrap());
    assert_eq!(body(&ask(&[&path]))["title"], "Dune");
    let patch = "Content-Type: application/merge-patch+json";
    let patched = ask(&["-X", "PATCH", "-H", patch, "-d", "{\"title\":\"II\"}", &path]);
    assert_eq!(body(&patched)["title"], "II");
    assert_eq!(body(&ask(&["/v1/books?q=ii"]))["data"][0]["title"], "II");
    for (arguments, status) in [(&["--head"][..], 200), (&["-X", "DELETE"], 200), (&[], 404)] {
        let answer = ask(&[arguments, &[&path]].concat());
        assert!(has(&answer, status), "{arguments:?}: {answer}");
    }
    for page in ["/health", "/openapi.json", "/metrics", "/errors", "/v1/events"] {
        assert!(has(&ask(&[page]), 200), "{page}");
    }
}

#[test]
fn an_independent_http_2_client_is_served_over_https() {
    let folder = TempDir::new().unwrap();
    let server = start(&[&certificate(folder.path(), "localhost", &ELLIPTIC)]).go();
    let url = format!("https://{}/health", server.address);
    let output =
        Command::new("nghttp").args(["--verbose", "--no-verify-peer", &url]).output_in_time();
    let text = String::from_utf8(output.expect("nghttp is installed").stdout).unwrap();
    assert!(text.contains("The negotiated protocol: h2"), "{text}");
    assert!(text.contains(":status: 200") && text.contains("\"status\""), "{text}");
}

#[test]
fn every_host_name_gets_its_certificate_and_every_key_format_is_accepted() {
    let folder = TempDir::new().unwrap();
    let one = certificate(folder.path(), "one.example", &ELLIPTIC);
    let two = certificate(folder.path(), "two.example", &RSA);
    let sec1 = certificate(folder.path(), "sec1.example", &ELLIPTIC);
    let pkcs1 = certificate(folder.path(), "pkcs1.example", &RSA);
    for (key, kind) in [(&sec1.1, "ec"), (&pkcs1.1, "rsa")] {
        let mut convert = Command::new("openssl");
        convert.arg(kind).arg("-in").arg(key).arg("-out").arg(key);
        if kind == "rsa" {
            convert.arg("-traditional");
        }
        assert!(convert.output_in_time().unwrap().status.success());
        let text = std::fs::read_to_string(key).unwrap();
        assert!(text.contains("BEGIN EC PRIVATE") || text.contains("BEGIN RSA PRIVATE"), "{text}");
    }
    let server = start(&[&one, &two, &sec1, &pkcs1]).go();
    for (name, pair) in [
        ("one.example", &one),
        ("two.example", &two),
        ("sec1.example", &sec1),
        ("pkcs1.example", &pkcs1),
    ] {
        let answer = curl(&server, name, &pair.0, &["/health"]);
        assert!(answer.unwrap().starts_with("HTTP/2 200 "), "{name}");
        let wrong = if name == "two.example" { &one } else { &two };
        curl(&server, name, &wrong.0, &["/health"]).expect_err("another's certificate");
    }
    curl(&server, "other.example", &one.0, &["/health"]).expect_err("nobody's name");
}

#[test]
fn a_new_certificate_is_loaded_and_an_invalid_one_is_not() {
    let folder = TempDir::new().unwrap();
    let pair = certificate(folder.path(), "shop.example", &ELLIPTIC);
    let server = start(&[&pair]).go();
    let first = std::fs::read(&pair.0).unwrap();
    let kept = folder.path().join("first.pem");
    std::fs::write(&kept, &first).unwrap();
    let ask = |trusted: &Path| curl(&server, "shop.example", trusted, &["/health"]);
    ask(&kept).unwrap();
    let mut open = Command::new("openssl")
        .args(["s_client", "-quiet", "-connect", &server.address.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, mut output) = (open.stdin.take().unwrap(), open.stdout.take().unwrap());
    let mut answer = |request: &str| {
        input.write_all(request.as_bytes()).unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"}") {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        String::from_utf8(text).unwrap()
    };
    assert!(answer("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").contains("200 OK"));

    std::fs::write(&pair.1, "no key at all").unwrap();
    let told = || server.log.lock().unwrap().contains("the server keeps the old ones");
    eventually("the mistake is told", told);
    assert!(server.log.lock().unwrap().contains("there is no PEM private key"));
    ask(&kept).unwrap();

    certificate(folder.path(), "shop.example", &ELLIPTIC);
    assert_ne!(first, std::fs::read(&pair.0).unwrap());
    server.signal("-HUP");
    eventually("the new one is shown", || ask(&pair.0).is_ok());
    ask(&kept).expect_err("the old one is shown no more");
    certificate(folder.path(), "shop.example", &ELLIPTIC);
    eventually("a change is noticed without a signal", || ask(&pair.0).is_ok());

    assert!(answer("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").contains("200 OK"));
    let _ = open.kill();
    let _ = open.wait();
}

#[test]
fn old_tls_versions_are_refused_and_sessions_resumed() {
    let folder = TempDir::new().unwrap();
    let pair = certificate(folder.path(), "shop.example", &ELLIPTIC);
    let server = start(&[&pair]).go();
    let request = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    for old in ["-tls1", "-tls1_1"] {
        let said = s_client(&server, &[old, "-cipher", "DEFAULT@SECLEVEL=0"], request);
        assert!(!said.contains("200 OK") && said.contains("SSL alert number"), "{said}");
    }
    for version in ["-tls1_2", "-tls1_3"] {
        let session = folder.path().join(format!("session{version}"));
        let session = session.to_str().unwrap();
        let keep = [version, "-ign_eof", "-sess_out", session];
        let said = s_client(&server, &keep, request);
        assert!(said.contains("200 OK") && said.contains("New, TLSv1"), "{said}");
        let said = s_client(&server, &[version, "-ign_eof", "-sess_in", session], request);
        assert!(said.contains("200 OK") && said.contains("Reused, TLSv1"), "{said}");
    }
}

#[test]
fn plain_http_on_the_tls_port_gets_a_hint_and_other_bytes_close_the_connection() {
    let folder = TempDir::new().unwrap();
    let pair = certificate(folder.path(), "shop.example", &ELLIPTIC);
    let server = start(&[&pair]).go();
    let answer = server.get("/v1/books").error(400, "malformed_request");
    assert!(answer["message"].as_str().unwrap().contains("https://"), "{answer}");
    assert_eq!(server.raw(b"\x00\x01garbage\r\n\r\n"), "");
    let mut half = TcpStream::connect(server.address).unwrap();
    half.set_read_timeout(Some(PATIENCE)).unwrap();
    half.write_all(b"\x16\x03\x01\x02\x00\x01").unwrap();
    curl(&server, "shop.example", &pair.0, &["/health"]).unwrap();
    let mut rest = Vec::new();
    let ended = half.read_to_end(&mut rest);
    assert!(!ended.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock), "it stays open");
}

#[test]
fn the_self_signed_certificate_stays_the_same_and_its_fingerprint_is_shown() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let cert = server.data().join("self-signed.crt");
    for name in ["localhost", "127.0.0.1"] {
        curl(&server, name, &cert, &["/health"]).unwrap();
    }
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-fingerprint", "-sha256", "-in"])
        .arg(&cert)
        .output_in_time()
        .unwrap();
    let line = String::from_utf8(output.stdout).unwrap();
    let fingerprint = line.trim().split_once('=').unwrap().1.to_owned();
    assert!(server.greeting.contains(&fingerprint), "{}", server.greeting);
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::metadata(server.data().join("self-signed.key")).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600, "the key is nobody else's to read");
    let (_, folder) = server.stop();
    let again = Start::bookshop().on(&folder).env("RESTIVE_TLS", "self-signed").go();
    assert!(again.greeting.contains(&fingerprint), "{}", again.greeting);
}

#[test]
fn configuration_errors_say_what_to_do() {
    let folder = TempDir::new().unwrap();
    let one = certificate(folder.path(), "one.example", &ELLIPTIC);
    let two = certificate(folder.path(), "two.example", &ELLIPTIC);
    let missing = folder.path().join("missing.pem");
    let check = |start: Start, expected: &[&str]| {
        let (code, error) = start.fails();
        assert_eq!(code, 1, "{error}");
        for text in expected {
            assert!(error.contains(text), "{text} is missing in: {error}");
        }
    };
    let mixed = |cert: &Path, key: &Path| start(&[&(cert.to_owned(), key.to_owned())]);
    check(mixed(&missing, &one.1), &["missing.pem", "cannot be read", "No such file"]);
    check(mixed(&one.0, &missing), &["missing.pem", "cannot be read"]);
    check(mixed(&one.0, &two.1), &["one.example.crt", "private key is not the certificate's"]);
    check(mixed(&one.1, &one.1), &["no PEM certificate"]);
    check(mixed(&one.0, &one.0), &["no PEM private key"]);
    check(start(&[&one]).arg("--tls").arg("self-signed"), &["exclude each other", "leave out"]);
    let cert = one.0.to_str().unwrap();
    check(Start::bookshop().arg("--tls-cert").arg(cert), &["1 --tls-cert and 0 --tls-key"]);
    check(Start::bookshop().env("RESTIVE_TLS_KEY", cert), &["0 --tls-cert and 1 --tls-key"]);
}

#[test]
fn an_expired_certificate_is_served_with_a_warning() {
    let folder = TempDir::new().unwrap();
    let key = folder.path().join("old.key");
    let cert = folder.path().join("old.crt");
    let mut make = Command::new("faketime");
    make.args(["2020-01-01 00:00:00", "openssl", "req", "-x509", "-nodes", "-days", "1"]);
    make.args(["-subj", "/CN=old", "-newkey", "rsa:2048", "-keyout"]).arg(&key);
    assert!(make.arg("-out").arg(&cert).output_in_time().unwrap().status.success());
    let server = start(&[&(cert.clone(), key)]).go();
    let warned = || server.log.lock().unwrap().contains("has expired");
    eventually("there is a warning", warned);
    let answer = curl(&server, "old", &cert, &["--insecure", "/health"]).unwrap();
    assert!(answer.starts_with("HTTP/2 200 "), "{answer}");
}

#[test]
fn a_tls_scanner_finds_no_weakness() {
    let server = Start::bookshop().arg("--tls").arg("self-signed").go();
    let folder = TempDir::new().unwrap();
    let findings = folder.path().join("findings.json");
    let output = Command::new("testssl")
        // Versions, ciphers, forward secrecy, known attacks; only findings above information.
        .args(["-p", "-s", "-f", "-U", "--severity", "LOW", "--warnings", "off", "--jsonfile"])
        .arg(&findings)
        .arg(format!("https://{}", server.address))
        .output_in_time()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("TLS 1.3") && said.contains("RC4"), "it came to its end: {said}");
    let findings: Value = serde_json::from_slice(&std::fs::read(findings).unwrap()).unwrap();
    let weak = findings.as_array().unwrap().iter();
    // It warns about missing features of its own openssl.
    let weak: Vec<_> = weak.filter(|finding| finding["severity"] != "WARN").collect();
    assert!(weak.is_empty(), "{weak:#?}");
}
