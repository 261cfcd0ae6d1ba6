//! Backends that lie, break off, stall or send without end, in front of clients of every version of
//! HTTP. No client takes half a response for a whole one, the next request on any connection gets
//! its own response, and neither the memory of the proxy nor other clients suffer.

use crate::harness::{PATIENCE, Server, eventually, executable};
use crate::hostile::{GROWTH_KIB, resident_kib};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A response of somebody else, which follows or interrupts the lies.
const FORGED: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nforged";
/// Far longer than a response takes, far shorter than on a proxy that is blocked.
const PROMPT: Duration = Duration::from_secs(3);

/// What a client must get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Want {
    /// An error in the format of the API.
    Error(u16, &'static str),
    /// An error, or a response that is visibly incomplete.
    Broken,
    /// This body.
    Whole(&'static str),
}

use Want::{Broken, Error, Whole};

const BAD: Want = Error(502, "bad_gateway");

/// What follows the bytes of a response.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The connection stays open, and the backend answers the next request on it.
    Serve,
    Close,
    /// Nothing, until the proxy closes.
    Stall,
    /// These bytes, until the proxy closes.
    Repeat(&'static str),
}

use Then::{Close, Repeat, Serve, Stall};

/// What the backend sends, and what becomes of it. All of them may be stored, so that a broken one
/// must not be found in the cache.
const LIES: &[(&str, Then, Want)] = &[
    ("", Close, BAD),
    ("HTTP/1.1 200", Close, BAD),
    ("HTTP/1.1 200 OK\r\nx: y\r\n", Close, BAD),
    ("SMTP ready\r\n\r\n", Serve, BAD),
    ("HTTP/2.0 200 OK\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 99 Low\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 2000 High\r\n\r\n", Serve, BAD),
    ("\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 6\r\n\r\nforged", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ncontent-length: 1, 6\r\n\r\nforged", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\nx", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\nx", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ncontent-length : 1\r\n\r\nx", Serve, BAD),
    (
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        Serve,
        BAD,
    ),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\ntransfer-encoding: identity\r\n\r\nx", Close, BAD),
    ("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\nx: a\r\n folded\r\ncontent-length: 0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\nx: a\ncontent-length: 0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\nx: a\0b\r\ncontent-length: 0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 200 OK\r\nno field\r\ncontent-length: 0\r\n\r\n", Serve, BAD),
    ("HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", Serve, BAD),
    // Heads and interim responses without end.
    ("HTTP/1.1 200 OK\r\n", Repeat("x: y\r\n"), BAD),
    ("HTTP/1.1 200 OK\r\nx: ", Repeat("yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"), BAD),
    ("", Repeat("HTTP/1.1 102 Processing\r\n\r\n"), BAD),
    ("", Repeat("HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n"), BAD),
    ("", Repeat("HTTP/1.1 100 Continue\r\n\r\n"), BAD),
    // Bodies.
    ("HTTP/1.1 200 OK\r\n{c}content-length: 10\r\n\r\nhalf", Close, Broken),
    ("HTTP/1.1 200 OK\r\n{c}content-length: 10\r\n\r\nhalf", Stall, Broken),
    ("HTTP/1.1 200 OK\r\n{c}content-length: 1000000000000\r\n\r\nhalf", Close, Broken),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\nzz\r\n", Serve, Broken),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n-1\r\nx\r\n", Serve, Broken),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n", Serve, Broken),
    (
        "HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n1\r\nxyz\r\n0\r\n\r\n",
        Serve,
        Broken,
    ),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", Close, Broken),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", Stall, Broken),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n", Close, Broken),
    (
        "HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n",
        Serve,
        Broken,
    ),
    (
        "HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
        Repeat("x: y\r\n"),
        Broken,
    ),
    ("HTTP/1.1 200 OK\r\n{c}transfer-encoding: chunked\r\n\r\n4;", Repeat("xxxxxxxx"), Broken),
    // Silence.
    ("", Stall, Error(504, "gateway_timeout")),
    ("HTTP/1.1 200 OK\r\n", Stall, Error(504, "gateway_timeout")),
    ("HTTP/1.1 103 Early Hints\r\n\r\n", Stall, Error(504, "gateway_timeout")),
    // What follows a response belongs to nobody.
    ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{f}", Serve, Whole("ok")),
    (
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n{f}",
        Serve,
        Whole("ok"),
    ),
    ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok\r\n", Serve, Whole("ok")),
    ("HTTP/1.1 204 No Content\r\n\r\n{f}", Serve, Whole("")),
    ("HTTP/1.1 204 No Content\r\ncontent-length: 6\r\n\r\nforged{f}", Serve, Whole("")),
    ("HTTP/1.1 304 Not Modified\r\ncontent-length: 6\r\n\r\nforged{f}", Serve, Whole("")),
    ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\nforged", Serve, Whole("")),
    ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok{f}", Serve, Whole("ok")),
    ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\nok", Serve, Whole("ok")),
    ("HTTP/1.1 200 OK\r\n\r\nok", Close, Whole("ok")),
];

/// A backend that lies to requests for `/lie/NUMBER`; others get their path back.
fn liar() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || respond(stream));
        }
    });
    address
}

/// Answers the requests of a connection, which have no bodies.
fn respond(mut stream: TcpStream) -> Option<()> {
    let (mut received, mut piece) = (String::new(), [0; 4096]);
    loop {
        while let Some(end) = received.find("\r\n\r\n") {
            let request: String = received.drain(..end + 4).collect();
            let path = request.split(' ').nth(1)?.to_owned();
            let Some(number) = path.strip_prefix("/lie/").and_then(|n| n.parse::<usize>().ok())
            else {
                let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", path.len());
                stream.write_all((answer + &path).as_bytes()).ok()?;
                continue;
            };
            let (bytes, then, _) = LIES[number];
            let bytes =
                bytes.replace("{c}", "cache-control: max-age=60\r\n").replace("{f}", FORGED);
            stream.write_all(bytes.as_bytes()).ok()?;
            match then {
                Serve => {}
                Close => return None,
                Stall => while stream.read(&mut piece).ok()? > 0 {},
                Repeat(text) => loop {
                    stream.write_all(text.repeat(100).as_bytes()).ok()?;
                },
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => received.push_str(&String::from_utf8_lossy(&piece[..count])),
        }
    }
}

/// A proxy in front of it, with short times, for clients of this version.
fn proxy(backend: SocketAddr, version: &str) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    let file = folder.path().join("proxy.toml");
    let text = format!(
        "[backends.b]\nto = [\"{backend}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\n\
         to = \"b\"\ntimeouts = {{ read = \"400ms\" }}\n"
    );
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", "127.0.0.1:0", "--early-hints", "always", "--data"]);
    command.arg(folder.path().join("data")).arg("--config").arg(file);
    if version == "http3" {
        command.args(["--tls", "self-signed"]);
    }
    Server::spawn(command, folder).over(version)
}

#[track_caller]
fn check(proxy: &Server, number: usize, version: &str) {
    let (bytes, then, want) = LIES[number];
    let begun = Instant::now();
    let got = proxy.ask_anonymously("GET", &format!("/lie/{number}")).try_send();
    let case = format!("{version}, {bytes:?} {then:?}: {got:?}");
    match (want, got) {
        (Error(status, code), Ok(answer)) => {
            assert_eq!(
                (answer.status, &answer.json["error"]["code"]),
                (status, &code.into()),
                "{case}"
            );
        }
        (Broken, Ok(answer)) => assert_eq!(answer.status, 502, "{case}"),
        (Broken, Err(_)) => {}
        (Whole(body), Ok(answer)) => assert_eq!(answer.text, body, "{case}"),
        (_, Err(_)) => panic!("{case}"),
    }
    assert!(begun.elapsed() < 2 * PROMPT, "{case}: {:?}", begun.elapsed());
}

#[test]
fn no_lie_of_a_backend_reaches_a_client_as_a_whole_response() {
    let backend = liar();
    std::thread::scope(|scope| {
        for version in ["http1", "http2", "http3"] {
            scope.spawn(move || {
                let proxy = proxy(backend, version);
                proxy.ask_anonymously("GET", "/first").send();
                let before = resident_kib(&proxy);
                for (number, lie) in LIES.iter().enumerate() {
                    // Twice: a broken response is not found in the cache either.
                    for _ in 0..2 {
                        check(&proxy, number, version);
                    }
                    for next in 0..3 {
                        let path = format!("/mine/{number}/{next}");
                        let answer = proxy.ask_anonymously("GET", &path).send();
                        assert_eq!(answer.text, path, "{version}: after {lie:?}");
                    }
                }
                let now = resident_kib(&proxy);
                assert!(now < before + GROWTH_KIB, "{version}: {before} KiB became {now} KiB");
                let log = proxy.log.lock().unwrap();
                assert!(!log.contains("panicked"), "{log}");
            });
        }
    });
}

#[test]
fn a_hundred_clients_of_a_silent_backend_delay_nobody() {
    let proxy = proxy(liar(), "http1");
    let address = proxy.address;
    let silent = LIES.iter().position(|(bytes, then, _)| bytes.is_empty() && matches!(then, Stall));
    let half =
        LIES.iter().position(|(bytes, then, _)| bytes.contains("half") && matches!(then, Stall));
    let before = resident_kib(&proxy);
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for client in 0..100 {
            let number = if client % 2 == 0 { silent } else { half };
            let answered = &answered;
            scope.spawn(move || {
                let head = format!("GET /lie/{} HTTP/1.1\r\nhost: a\r\n\r\n", number.unwrap());
                let mut stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(PATIENCE)).unwrap();
                stream.write_all(head.as_bytes()).unwrap();
                let mut text = [0; 4096];
                let count = stream.read(&mut text).unwrap_or(0);
                assert!(count > 0 && text.starts_with(b"HTTP/1.1 "), "client {client}");
                answered.fetch_add(1, Ordering::Relaxed);
            });
        }
        let other = scope.spawn(|| {
            let (mut slowest, mut count) = (Duration::ZERO, 0);
            while !over.load(Ordering::Relaxed) || count < 20 {
                let (path, begun) = (format!("/mine/{count}"), Instant::now());
                assert_eq!(proxy.ask_anonymously("GET", &path).send().text, path);
                slowest = slowest.max(begun.elapsed());
                count += 1;
            }
            slowest
        });
        eventually("all clients have an answer", || answered.load(Ordering::Relaxed) == 100);
        over.store(true, Ordering::Relaxed);
        let slowest = other.join().unwrap();
        assert!(slowest < PROMPT, "another client waited {slowest:?}");
    });
    let now = resident_kib(&proxy);
    assert!(now < before + GROWTH_KIB, "{before} KiB became {now} KiB");
}

#[test]
fn a_body_without_end_waits_for_its_reader_and_ends_with_it() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let (count, ended) = (sent.clone(), Arc::new(AtomicBool::new(false)));
    let end = ended.clone();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 4096]);
        let head =
            "HTTP/1.1 200 OK\r\ncache-control: max-age=60\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
        while stream.write_all(chunk.as_bytes()).is_ok() {
            count.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        end.store(true, Ordering::Relaxed);
    });
    let proxy = proxy(backend, "http1");
    let before = resident_kib(&proxy);
    let mut client = TcpStream::connect(proxy.address).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut piece = vec![0; 1 << 16];
    let mut read = 0;
    while read < 8 << 20 {
        read += client.read(&mut piece).unwrap();
    }
    // The backend is ahead by what the sockets and the cache hold, and stands still.
    let mut last = 0;
    eventually("the backend waits for the client", || {
        let now = sent.load(Ordering::Relaxed);
        // waits for: the backend to send more, which it must not
        std::thread::sleep(Duration::from_millis(100));
        std::mem::replace(&mut last, now) == now
    });
    let now = resident_kib(&proxy);
    assert!(now < before + GROWTH_KIB, "{before} KiB became {now} KiB");
    drop(client);
    eventually("the backend's connection ends", || ended.load(Ordering::Relaxed));
}
