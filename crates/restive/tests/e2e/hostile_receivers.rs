//! Receivers with bad responses or bad certificates: every attempt is recorded with the class of
//! its failure, ends by its deadline, and uses little memory.

use crate::deadline::Deadline as _;
use crate::deliveries::{attempts, endpoint, figure, wait_for};
use crate::harness::{Server, Start, eventually};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// Timeout of one attempt, in seconds; the minimum.
const TIMEOUT: u64 = 5;
/// Time for reading and recording on a busy machine.
const GRACE: Duration = Duration::from_secs(3);

/// Every bad response on one connection, and the class of its error.
fn bad_manners() -> Vec<(Manner, &'static str)> {
    let endless = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n";
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "a".repeat(200_000));
    let many: String = (0..5_000).map(|n| format!("x-{n}: {n}\r\n")).collect();
    vec![
        (Manner::Silence, "timeout"),
        (Manner::Drip(endless, "x"), "timeout"),
        (Manner::Drip("", "HTTP/1.1 100 Continue\r\n\r\n"), "too_large"),
        (Manner::Flood("", "HTTP/1.1 102 Processing\r\n\r\n"), "too_large"),
        (Manner::Drip("HTTP/1.1 200 OK\r\n", "x-more: aaaaaaaaaaaaaaaaaaaaaaa\r\n"), "timeout"),
        (Manner::raw(long), "too_large"),
        (Manner::raw(format!("HTTP/1.1 200 OK\r\n{many}\r\n")), "too_large"),
        (Manner::Flood("HTTP/1.1 200 OK\r\nx-endless: ", "aaaaaaaaaaaaaaaa"), "too_large"),
        (Manner::Close, "reset"),
        (Manner::Cut("HTTP/1.1 200 OK\r\ncontent-le"), "reset"),
        (Manner::Reset("HTTP/1.1 200 OK\r\ncontent-le"), "reset"),
        (Manner::Reset("HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf of it"), "reset"),
        (Manner::Cut("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"), "invalid_response"),
        (
            Manner::Raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n"),
            "invalid_response",
        ),
        (Manner::Raw("HTTP/1.1 99999 What\r\n\r\n"), "invalid_response"),
        (Manner::Raw("\0\u{1}\u{2}\r\n\r\n"), "invalid_response"),
    ]
}

#[test]
fn every_bad_receiver_response_is_classified_and_frees_its_slot_by_the_deadline() {
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let with = json!({
        "timeout": TIMEOUT, "retry_schedule": [], "max_in_flight": 1, "enabled_events": ["book.*"],
    });
    let made: Vec<_> = bad_manners()
        .into_iter()
        .map(|(manner, class)| {
            let sink = Sink::start();
            sink.will(manner);
            (endpoint(&server, &sink, with.clone()), class, sink)
        })
        .collect();
    // With a concurrency of one, the second delivery starts when the first has ended.
    server.book("A");
    server.book("B");
    for (id, class, sink) in &made {
        for delivery in wait_for(&server, id, &["failed", "failed"]) {
            let attempt = attempts(&server, &delivery).remove(0);
            assert_eq!(attempt["error"], *class, "{attempt}");
            assert!(attempt["error_message"].as_str().is_some_and(|text| !text.is_empty()));
            let total = attempt["latency"]["total_ms"].as_f64().unwrap();
            let most = Duration::from_secs(TIMEOUT) + GRACE;
            assert!(total < most.as_secs_f64() * 1000.0, "{attempt}");
        }
        assert_eq!(sink.of("book.created").len(), 2);
    }
    server.get("/health").expect(200);
    assert!(!server.log.lock().unwrap().contains("panicked"));
}

/// A certificate authority and its certificates; the files of a certificate have its name.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let authority = Authority { folder: TempDir::new().unwrap() };
        let (cert, key) = authority.files("authority");
        let mut make = Command::new("openssl");
        make.args(["req", "-x509", "-days", "30", "-subj"]).arg(format!("/CN={name}"));
        authority.run(&mut make, &cert, &key);
        authority
    }

    fn files(&self, name: &str) -> (PathBuf, PathBuf) {
        let at = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        (at("crt"), at("key"))
    }

    fn run(&self, make: &mut Command, cert: &Path, key: &Path) {
        make.args(["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]);
        let output = make.arg("-keyout").arg(key).arg("-out").arg(cert).output_in_time().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// A server with a certificate for `name`, issued on that day and valid for thirty days.
    fn receiver(&self, file: &str, name: &str, day: &str) -> Server {
        let (cert, key) = self.files(file);
        let (own, own_key) = self.files("authority");
        let mut make = Command::new("faketime");
        make.args([day, "openssl", "req", "-x509", "-days", "30", "-subj", "/CN=receiver"]);
        make.arg("-addext").arg(format!("subjectAltName=DNS:{name}"));
        make.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
        make.arg("-CA").arg(own).arg("-CAkey").arg(own_key);
        self.run(&mut make, &cert, &key);
        let (cert, key) = (cert.to_str().unwrap(), key.to_str().unwrap());
        Start::bookshop().arg("--tls-cert").arg(cert).arg("--tls-key").arg(key).go()
    }
}

#[test]
fn invalid_receiver_certificates_are_refused_and_reported() {
    let [known, unknown] = ["known", "unknown"].map(Authority::new);
    let (trusted, _) = known.files("authority");
    let server = Start::bookshop().env("SSL_CERT_FILE", trusted.to_str().unwrap()).go();
    let now = "now";
    for (receiver, class, word) in [
        // It has no such page, but 404 is a response.
        (known.receiver("good", "localhost", now), "status", "404"),
        (known.receiver("expired", "localhost", "2020-01-01 00:00:00"), "tls", "expired"),
        (known.receiver("early", "localhost", "2090-01-01 00:00:00"), "tls", "not valid yet"),
        (known.receiver("other", "shop.example", now), "tls", "name"),
        (unknown.receiver("unknown", "localhost", now), "tls", "issuer"),
    ] {
        let url = format!("https://localhost:{}/hook", receiver.address.port());
        let body = json!({"url": url, "timeout": TIMEOUT, "retry_schedule": []});
        let id = server.make("/v1/webhook-endpoints", body);
        let ping = pinged(&server, &id);
        assert_eq!(ping["status"], "failed");
        let attempt = attempts(&server, &ping).remove(0);
        assert_eq!(attempt["error"], class, "{attempt}");
        let message = attempt["error_message"].as_str().unwrap().to_lowercase();
        assert!(message.contains(word), "{message}");
    }
}

/// The delivery of an endpoint's first ping, once it has ended.
fn pinged(server: &Server, id: &str) -> Value {
    let path = format!("/v1/deliveries?endpoint={id}");
    let mut ping = Value::Null;
    eventually("the ping is over", || {
        ping = server.get(&path).expect(200)["data"][0].clone();
        ping["status"].is_string() && ping["status"] != "pending"
    });
    ping
}

/// A server with its own hosts file, in a separate mount namespace. Root may create one, and every
/// user where the system allows it.
fn with_hosts(start: &Start, folder: &Arc<TempDir>, hosts: &str) -> Server {
    let file = folder.path().join("hosts");
    std::fs::write(&file, hosts).unwrap();
    let inner = start.command(folder.path());
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-c"]);
    command.arg("mount --bind \"$0\" /etc/hosts && exec \"$@\"").arg(&file);
    command.arg(inner.get_program()).args(inner.get_args());
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    Server::spawn(command, folder.clone())
}

#[test]
fn host_names_with_any_private_address_are_never_called() {
    let strict = "[collections.books.fields]\ntitle = 'string'";
    let sink = Sink::start();
    let port = sink.address.port();
    let names = [
        ("loopback.example", &["127.0.0.1"][..]),
        ("private.example", &["10.1.2.3"]),
        ("metadata.example", &["169.254.169.254"]),
        ("mapped.example", &["::ffff:127.0.0.1"]),
        ("six.example", &["::1"]),
        // One public address and one forbidden address, in either order.
        ("mixed.example", &["93.184.215.14", "127.0.0.1"]),
        ("mixed-too.example", &["127.0.0.1", "93.184.215.14"]),
    ];
    // Names are resolved with a final dot, so that no search domain is tried.
    let lines = names.iter().flat_map(|(name, addresses)| {
        addresses.iter().map(move |address| format!("{address} {name}.\n"))
    });
    let folder = Arc::new(TempDir::new().unwrap());
    let start = Start::schema(strict).arg("--rate-limit").arg("off");
    let server = with_hosts(&start, &folder, &lines.collect::<String>());
    let mut ids = Vec::new();
    for (name, _) in names {
        let url = format!("https://{name}:{port}/hook");
        let body = json!({"url": url, "timeout": TIMEOUT, "retry_schedule": []});
        ids.push((server.make("/v1/webhook-endpoints", body), name));
    }
    server.make("/v1/books", json!({"title": "A"}));
    for (id, name) in &ids {
        for delivery in [wait_for(&server, id, &["failed"]).remove(0), pinged(&server, id)] {
            let attempt = attempts(&server, &delivery).remove(0);
            assert_eq!(attempt["error"], "forbidden_address", "{name}: {attempt}");
            assert_eq!(attempt["remote_address"], Value::Null, "{name}: {attempt}");
            let told = attempt.to_string();
            assert!(!told.contains("127.0.0.1") && !told.contains("10.1.2.3"), "{told}");
        }
    }
    assert_eq!(sink.connections(), 0, "nobody was even connected to");
    let warned = |text: &str| server.log.lock().unwrap().contains(text);
    eventually("the operator learns the address", || warned("10.1.2.3"));
}

#[test]
fn many_hostile_receivers_use_little_memory() {
    const RECEIVERS: usize = 40;
    const EVENTS: usize = 20;
    let server = Start::bookshop().arg("--rate-limit").arg("off").go();
    let with = json!({
        "timeout": TIMEOUT, "retry_schedule": [], "max_in_flight": EVENTS,
        "enabled_events": ["book.*"],
    });
    let sinks: Vec<Sink> = (0..RECEIVERS).map(|_| Sink::start()).collect();
    for sink in &sinks {
        endpoint(&server, sink, with.clone());
    }
    // They respond well at first, so that their concurrency grows to the limit.
    for n in 0..EVENTS * 2 {
        server.book(&n.to_string());
    }
    let friendly = |sink: &Sink| sink.of("book.created").len() == EVENTS * 2;
    eventually("all take everything", || sinks.iter().all(friendly));
    let before = peak_kib(&server);
    let block: &'static str = Box::leak("a".repeat(1 << 16).into_boxed_str());
    let head = "HTTP/1.1 500 No\r\ncontent-length: 100000000000\r\n\r\n";
    for (place, sink) in sinks.iter().enumerate() {
        sink.will(match place % 5 {
            0 => Manner::Silence,
            1 => Manner::Flood(head, block),
            2 => Manner::Flood("HTTP/1.1 200 OK\r\nx-endless: ", block),
            3 => Manner::Flood("", "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
            _ => Manner::Drip("HTTP/1.1 200 OK\r\n", "x-more: aaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"),
        });
    }
    for n in 0..EVENTS {
        server.book(&n.to_string());
    }
    // Two in five do not respond in time and hold their slots; the others fail at once.
    let under_way = || figure(&server, "restive_webhook_in_flight").unwrap();
    eventually("many are under way", || under_way() >= (RECEIVERS * 2 / 5 * EVENTS / 2) as f64);
    for n in 0..EVENTS * 4 {
        server.book(&n.to_string());
    }
    let failed = || figure(&server, "restive_webhook_failed_attempts_total").unwrap();
    eventually("and are given up", || failed() >= (RECEIVERS * 8) as f64);
    let grown = peak_kib(&server) - before;
    assert!(grown < 64 * 1024, "{grown} KiB more than {before}");
    server.get("/health").expect(200);
}

/// The peak of the resident memory.
fn peak_kib(server: &Server) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
