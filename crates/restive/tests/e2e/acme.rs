//! Certificates from an ACME authority: pebble, the test server of Let's Encrypt, verifies the
//! names through the TLS port or through plain HTTP, and the server serves the certificates that it
//! signs.

use crate::deadline::Deadline as _;
use crate::harness::{Server, Start, eventually};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The authority, with a certificate of its own that the server trusts.
struct Pebble {
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Pebble {
    /// Does not start the process yet: its configuration needs the port of the server.
    fn new() -> Pebble {
        let folder = TempDir::new().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        std::fs::write(folder.path().join("cert.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        Pebble { folder, port: free_port(), child: None }
    }

    fn directory(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&mut self, http_port: u16, tls_port: u16) {
        let config = serde_json::json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{}", self.port),
            "managementListenAddress": "127.0.0.1:0",
            "certificate": self.file("cert.pem"),
            "privateKey": self.file("key.pem"),
            "httpPort": http_port,
            "tlsPort": tls_port,
        }});
        let file = self.folder.path().join("config.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let child = Command::new("pebble")
            .arg("-config")
            .arg(file)
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap());
    }

    fn start(&self, name: &str) -> Start {
        Start::bookshop()
            .arg("--tls")
            .arg("acme")
            .arg("--acme-domain")
            .arg(name)
            .arg("--acme-directory")
            .arg(&self.directory())
            .env("SSL_CERT_FILE", &self.file("cert.pem"))
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The issuer of the certificate that the server sends for this name.
fn issuer(server: &Server, name: &str) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &server.address.to_string(), "-servername", name])
        .stdin(Stdio::null())
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.trim_start().starts_with("i:"));
    line.unwrap_or_default().to_owned()
}

fn is_kept(folder: &Path) -> bool {
    folder.join("data/acme/localhost.crt").exists()
}

#[test]
fn acme_obtains_stores_and_renews_a_certificate_through_the_tls_port() {
    let mut pebble = Pebble::new();
    let server = pebble.start("localhost").go();
    assert!(!issuer(&server, "localhost").contains("Pebble"), "there is none yet");
    // The authority does not run at the first attempt; the server must try again.
    let told = || server.log.lock().unwrap().contains("no certificate was obtained");
    eventually("the failure is told", told);
    pebble.run(1, server.address.port());
    eventually("the authority's certificate is shown", || {
        issuer(&server, "localhost").contains("Pebble")
    });
    eventually("it is kept", || is_kept(server.folder.path()));
    let first = issuer(&server, "localhost");
    let (code, folder) = server.stop();
    assert_eq!(code, 0);
    drop(pebble);
    let pebble = Pebble::new();
    let server = pebble.start("localhost").on(&folder).go();
    assert_eq!(issuer(&server, "localhost"), first, "served again without asking anybody");
    let (_, folder) = server.stop();
    // Makes the certificate old: two thirds of its lifetime are over.
    let kept = folder.path().join("data/acme/localhost.pem");
    let touch = Command::new("touch").args(["-d", "20 years ago"]).arg(&kept).status();
    assert!(touch.unwrap().success());
    let old = std::fs::read(&kept).unwrap();
    let mut pebble = Pebble::new();
    let server = pebble.start("localhost").on(&folder).go();
    pebble.run(1, server.address.port());
    eventually("it is renewed", || std::fs::read(&kept).unwrap() != old);
    eventually("the new one is shown", || issuer(&server, "localhost") != first);
}

#[test]
fn acme_obtains_a_certificate_through_plain_http_which_otherwise_redirects() {
    let mut pebble = Pebble::new();
    let server = pebble.start("localhost").arg("--redirect-http").arg("127.0.0.1:0").go();
    let plain = server.greeting.lines().find_map(|line| line.strip_prefix("redirecting http://"));
    let plain: std::net::SocketAddr = plain.unwrap().parse().unwrap();
    pebble.run(plain.port(), 1);
    eventually("the authority's certificate is shown", || {
        issuer(&server, "localhost").contains("Pebble")
    });
    let answer = Command::new("curl")
        .args(["-sSi", "--max-time", "20"])
        .arg(format!("http://{plain}/v1/books?q=a%20b"))
        .output_in_time()
        .unwrap();
    let answer = String::from_utf8(answer.stdout).unwrap();
    assert!(answer.starts_with("HTTP/1.1 308 "), "{answer}");
    let place = format!("location: https://127.0.0.1:{}/v1/books?q=a%20b", server.address.port());
    assert!(answer.contains(&place), "{answer}");
}

#[test]
fn acme_logs_the_authoritys_reason_when_it_refuses_a_name() {
    let mut pebble = Pebble::new();
    let server = pebble.start("localhost").go();
    // The authority connects to a port that nothing listens on.
    pebble.run(1, free_port());
    let said = || server.log.lock().unwrap().clone();
    eventually("the reason is told", || said().contains("Failed to connect"));
    assert!(said().contains("next try in 300 s"), "{}", said());
    assert!(!is_kept(server.folder.path()));
}

#[test]
fn configuration_errors_say_what_to_do() {
    let check = |arguments: &[&str], expected: &str| {
        let start = arguments.iter().fold(Start::bookshop(), |start, arg| start.arg(arg));
        let (code, error) = start.fails();
        assert!(code == 1 && error.contains(expected), "{expected}: {error}");
    };
    check(&["--tls", "acme"], "needs --acme-domain");
    check(&["--acme-domain", "a.example"], "--tls acme");
    check(&["--tls", "self-signed", "--acme-domain", "a.example"], "--tls acme");
    for name in ["a..example", "https://a.example", "a-.example", "a.example/", "*.a.example"] {
        check(&["--tls", "acme", "--acme-domain", name], "is not a host name");
    }
    check(&["--redirect-http", "127.0.0.1:0"], "is not served");
}
