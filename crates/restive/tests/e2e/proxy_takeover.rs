//! The control socket of the proxy: `restive proxy reload`, and a new process that takes over the
//! listening sockets of a running one.

use crate::harness::{Server, Start, eventually, executable, run};
use crate::live_client::{Curl, Socket, curl};
use crate::sink::Sink;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time for one client to connect, ask and be answered, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A configuration for one server without checks.
fn config(address: SocketAddr) -> String {
    format!(
        "[backends.b]\nto = [\"{address}\"]\ncheck = \"off\"\n[[sites]]\n[[sites.routes]]\n\
         to = \"b\"\n"
    )
}

/// A proxy with the configuration of the folder.
fn command(folder: &Path, listen: &str, more: &[&str]) -> Command {
    let mut command = Command::new(executable());
    command.args(["proxy", "--listen", listen, "--data"]).arg(folder.join("data"));
    command.arg("--config").arg(folder.join("proxy.toml")).args(more);
    command
}

fn start(folder: &Arc<TempDir>, listen: &str, more: &[&str]) -> Server {
    Server::spawn(command(folder.path(), listen, more), folder.clone())
}

fn configured(text: &str, more: &[&str]) -> Server {
    let folder = Arc::new(TempDir::new().unwrap());
    std::fs::write(folder.path().join("proxy.toml"), text).unwrap();
    start(&folder, "127.0.0.1:0", more)
}

fn ask_control(proxy: &Server, request: &str) -> String {
    let mut stream = UnixStream::connect(proxy.data().join("proxy.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn reload_prints_the_errors_of_the_file_or_replaces_the_configuration() {
    let (old, new) = (Sink::start(), Sink::start());
    let proxy = configured(&config(old.address), &[]);
    assert_eq!(proxy.get("/").status, 200);
    let file = proxy.folder.path().join("proxy.toml");
    std::fs::write(&file, "[[sites]]\nhost = 1\n").unwrap();
    let (out, error, code) = proxy.tool(&["proxy", "reload"]);
    assert_eq!((out.as_str(), code), ("", 1), "{error}");
    let place = format!("{}:2:1: unknown key `host`", file.display());
    assert!(error.contains("the configuration has") && error.contains(&place), "{error}");
    assert_eq!((proxy.get("/").status, old.received().len()), (200, 2), "the old one is used");
    std::fs::write(&file, config(new.address)).unwrap();
    assert_eq!(proxy.tool(&["proxy", "reload"]), ("reloaded\n".into(), String::new(), 0));
    assert_eq!((proxy.get("/").status, new.received().len()), (200, 1));
    std::fs::remove_file(&file).unwrap();
    let (_, error, code) = proxy.tool(&["proxy", "reload"]);
    assert!(code == 1 && error.contains("cannot be read: No such file"), "{error}");
    assert_eq!(proxy.stop().0, 0);
}

#[test]
fn reload_says_why_it_cannot_reach_a_proxy_or_what_to_reload() {
    let folder = TempDir::new().unwrap();
    let (_, error, code) = run(folder.path(), &["proxy", "reload"]);
    assert!(code == 1 && error.contains("no proxy answers at "), "{error}");
    assert!(error.contains("--control"), "{error}");
    let proxy = crate::proxy::proxy(&["127.0.0.1:1"], &[]);
    let (_, error, code) = proxy.tool(&["proxy", "reload"]);
    assert!(code == 1 && error.contains("started without --config"), "{error}");
    assert_eq!(proxy.get("/").status, 503, "it goes on");
}

#[test]
fn the_control_socket_is_private_and_only_knows_its_requests() {
    let sink = Sink::start();
    let proxy = configured(&config(sink.address), &[]);
    let path = proxy.data().join("proxy.sock");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&proxy.data())), (0o600, 0o700));
    for request in ["\n", "stop\n", "reload \n", "RELOAD\n", &"x".repeat(65)] {
        let answer = ask_control(&proxy, request);
        assert!(answer.starts_with("error\nthe request is unknown"), "{request:?}: {answer}");
    }
    // Connections that send nothing do not keep others out for ever, and none of them a request.
    let idle: Vec<_> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert_eq!(proxy.get("/").status, 200);
    drop(idle);
    eventually("requests are answered again", || proxy.tool(&["proxy", "reload"]).2 == 0);
    assert!(!proxy.log.lock().unwrap().contains("panicked"));
    assert_eq!(proxy.stop().0, 0);
    assert!(!path.exists(), "it removes its socket");
}

#[test]
fn a_socket_that_a_killed_proxy_left_is_replaced_and_that_of_a_running_one_is_not() {
    let sink = Sink::start();
    let folder = configured(&config(sink.address), &[]).kill();
    let path = folder.path().join("data/proxy.sock");
    assert!(path.exists());
    let proxy = start(&folder, "127.0.0.1:0", &[]);
    assert_eq!(proxy.tool(&["proxy", "reload"]).2, 0);
    let second = start(&folder, "127.0.0.1:0", &[]);
    eventually("it says that it has none", || {
        second.log.lock().unwrap().contains("another proxy has the control socket")
    });
    assert_eq!(second.get("/").status, 200);
    assert_eq!(second.stop().0, 0);
    assert_eq!(proxy.tool(&["proxy", "reload"]).2, 0, "the first one still has it");
    // One that the operator names must be free, and a file is never replaced.
    let named = path.display().to_string();
    let file = folder.path().join("proxy.toml").display().to_string();
    for (control, expected) in
        [(named, "another proxy has the control socket"), (file, "exists and is no socket")]
    {
        let mut command = command(folder.path(), "127.0.0.1:0", &["--control", &control]);
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
    let third = start(&folder, "127.0.0.1:0", &["--control", "off"]);
    assert!(!third.log.lock().unwrap().contains("control socket"));
}

/// Clients that open connections until they are told to stop, and what went wrong.
struct Clients {
    stop: Arc<AtomicBool>,
    served: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<Vec<String>>>,
}

impl Clients {
    /// `pauses`: of each client, the time between its connection and its request.
    fn start(address: SocketAddr, pauses: &[u64]) -> Clients {
        let (stop, served) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let client = |pause: &u64| {
            let (pause, stop, served) =
                (Duration::from_millis(*pause), stop.clone(), served.clone());
            thread::spawn(move || {
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match request(address, pause) {
                        Ok(answer) if answer.starts_with("HTTP/1.1 200 ") => {
                            served.fetch_add(1, Ordering::Relaxed);
                        }
                        Ok(answer) => failures.push(answer),
                        Err(error) => failures.push(error.to_string()),
                    }
                }
                failures
            })
        };
        let threads = pauses.iter().map(client).collect();
        Clients { stop, served, threads }
    }

    /// Waits until they have been served so many more times.
    fn served_more(&self, count: usize) {
        let before = self.served.load(Ordering::Relaxed);
        eventually("clients are served", || self.served.load(Ordering::Relaxed) >= before + count);
    }

    fn failures(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.threads.into_iter().flat_map(|client| client.join().unwrap()).collect()
    }
}

fn request(address: SocketAddr, pause: Duration) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    // waits for: a client that is slow to send its request.
    thread::sleep(pause);
    stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn no_connection_is_refused_while_processes_replace_one_another() {
    let sink = Sink::start();
    let mut proxy = configured(&config(sink.address), &[]);
    let listen = proxy.address.to_string();
    let clients = Clients::start(proxy.address, &[0, 0, 20, 200]);
    clients.served_more(20);
    for _ in 0..4 {
        let new = start(&proxy.folder, &listen, &["--take-over"]);
        assert_eq!(new.address, proxy.address);
        assert_eq!(proxy.wait(), 0, "{}", proxy.log.lock().unwrap());
        proxy = new;
        clients.served_more(20);
    }
    assert_eq!(proxy.tool(&["proxy", "reload"]).2, 0, "the socket leads to the last one");
    assert_eq!(clients.failures(), [""; 0]);
    assert_eq!(proxy.stop().0, 0);
}

#[test]
fn streams_and_sockets_of_the_old_process_go_on_until_the_drain_time_is_over() {
    let server = Server::bookshop();
    let drain = Duration::from_secs(4);
    let mut old = configured(&config(server.address), &["--drain-time", "4"]);
    let mut stream = Curl::follow(curl(&old, "/api/events?types=book.*"));
    let mut socket = Socket::open(&old, "/ws?types=book.*");
    stream.events.next();
    let new = start(&old.folder, &old.address.to_string(), &["--take-over"]);
    let began = Instant::now();
    eventually("the old one drains", || old.log.lock().unwrap().contains("draining"));
    let id = new.book("Dune");
    assert_eq!(stream.events.named("book.created").json()["data"]["object"]["id"], id.as_str());
    assert_eq!(socket.typed("book.created")["data"]["data"]["object"]["id"], id.as_str());
    assert_eq!(old.wait(), 0, "{}", old.log.lock().unwrap());
    let lasted = began.elapsed();
    assert!(lasted > drain - Duration::from_secs(1), "{lasted:?}");
    assert!(old.log.lock().unwrap().contains("cut off at the end of the drain time"));
    let mut stream = Curl::follow(curl(&new, "/api/events?types=book.*"));
    stream.events.next();
    let id = new.book("Emma");
    assert_eq!(stream.events.named("book.created").json()["data"]["object"]["id"], id.as_str());
}

#[test]
fn http3_goes_on_in_the_new_process_when_the_old_one_has_ended() {
    let sink = Sink::start();
    let secure = ["--tls", "self-signed", "--take-over"];
    let mut old = configured(&config(sink.address), &secure).over("http3");
    assert_eq!(old.get("/").status, 200);
    let listen = old.address.to_string();
    let new = start(&old.folder, &listen, &secure).over("http3");
    // The client of HTTP/3 that the old one serves is told to leave.
    assert_eq!(old.wait(), 0, "{}", old.log.lock().unwrap());
    eventually("the new one answers over HTTP/3", || {
        new.ask("GET", "/").try_send().is_ok_and(|answer| answer.status == 200)
    });
    assert_eq!(new.stop().0, 0);
}

#[test]
fn a_take_over_that_fails_leaves_the_old_process_in_service() {
    let sink = Sink::start();
    let proxy = configured(&config(sink.address), &[]);
    let folder = proxy.folder.path();
    // The process that asks for the sockets ends before it is ready.
    let mut asks = UnixStream::connect(proxy.data().join("proxy.sock")).unwrap();
    asks.write_all(b"take-over\n").unwrap();
    asks.read_exact(&mut [0]).unwrap();
    assert_eq!(ask_control(&proxy, "take-over\n"), "error\nanother process takes over");
    drop(asks);
    eventually("the old one notices", || {
        proxy.log.lock().unwrap().contains("another process did not take over")
    });
    // The new process has a wrong configuration, or cannot listen on another address.
    let listen = proxy.address.to_string();
    let taken = Sink::start().address.to_string();
    for (config, listen, expected) in
        [("[[sites]]\nhost = 1\n", &listen, "unknown key"), ("", &taken, "cannot listen on")]
    {
        let file = folder.join("new.toml");
        let text = if config.is_empty() { self::config(sink.address) } else { config.to_owned() };
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(executable());
        command.args(["proxy", "--take-over", "--listen", listen, "--data"]);
        let output = command.arg(folder.join("data")).arg("--config").arg(file).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(expected), "{error}");
    }
    let clients = Clients::start(proxy.address, &[0]);
    clients.served_more(20);
    assert_eq!(clients.failures(), [""; 0]);
    assert_eq!(proxy.tool(&["proxy", "reload"]).2, 0);
    // Without a running proxy, the flag changes nothing.
    let address = proxy.address.to_string();
    let (code, folder) = proxy.stop();
    assert_eq!(code, 0);
    assert_eq!(start(&folder, &address, &["--take-over"]).get("/").status, 200);
}

#[test]
fn a_backend_that_drains_gets_no_new_requests_and_keeps_those_in_progress() {
    let draining = Start::bookshop().arg("--drain-delay").arg("20").go();
    let stays = Server::bookshop();
    // Failed checks alone would take longer than the drain.
    let proxy = configured(
        &format!(
            "[backends.b]\nto = [\"{}\", \"{}\"]\n\
             check = {{ interval = \"500ms\", fall = 100 }}\n\
             [[sites]]\n[[sites.routes]]\nto = \"b\"\n",
            draining.address, stays.address
        ),
        &[],
    );
    // In turn: one stream of each server.
    let mut streams = [(); 2].map(|()| {
        let mut stream = Curl::follow(curl(&proxy, "/api/events?types=book.*"));
        stream.events.next();
        stream
    });
    draining.signal("-TERM");
    eventually("the proxy knows", || {
        proxy.log.lock().unwrap().contains("a server drains: it gets no requests")
    });
    for number in 1..=10 {
        // Each is another one, so that none comes from the cache.
        assert_eq!(proxy.get(&format!("/v1/books?limit={number}")).status, 200);
    }
    let lines = |part: &str| {
        let log = proxy.log.lock().unwrap();
        log.lines().filter(|line| line.contains("/v1/books") && line.contains(part)).count()
    };
    eventually("the requests are logged", || lines("") == 10);
    assert_eq!(lines(&format!("\"backend\":\"http://{}\"", stays.address)), 10);
    let expected = [draining.book("Dune"), stays.book("Emma")];
    let mut ids = streams.each_mut().map(|stream| {
        let event = stream.events.named("book.created").json();
        event["data"]["object"]["id"].as_str().unwrap().to_owned()
    });
    if ids[0] != expected[0] {
        ids.reverse();
    }
    assert_eq!(ids, expected, "both streams go on");
    assert!(!proxy.log.lock().unwrap().contains("a server is unhealthy"));
}
