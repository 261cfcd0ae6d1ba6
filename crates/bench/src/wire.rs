//! `bench wire`: our HTTP server compared with the bare hyper server, over HTTP/2 with nginx, all
//! with fixed responses: the cost of a request and of an idle connection; and its HTTP/3 compared
//! with its HTTP/2.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use tempfile::TempDir;

use crate::bare_wire::{CERTIFICATE, EVENT, EVENTS, KEY, LARGE, LARGE_BYTES, RECEIVED, UPLOAD};
use crate::load::Source;
use crate::measure::{WARM_UP, in_turn, measure};
use crate::options::Options;
use crate::process::{Pinning, Service};
use crate::report::{Bar, Report, Sample};
use crate::streams::{self, Crowd, Protocol, Target};
use crate::wire_h2;

const SCENARIOS: [&str; 8] =
    ["get", "threads", "h2", "idle", "idle-tls", "idle-stream", "h3", "large"];
const BODY_BYTES: usize = 1024;
const CONNECTIONS: usize = 64;
const IDLE_CONNECTIONS: usize = 15_000;
/// For the protocols with streams.
const CROWD: Crowd = Crowd { connections: 8, streams: 16 };
/// Waiting streams, as many as there are idle connections.
const WAITING: Crowd = Crowd { connections: 150, streams: 100 };
/// Files in addition to the connections: the executable, sockets, pipes.
const SPARE_FILES: usize = 500;
/// Long enough for the server's work after the last response.
const SETTLE: Duration = Duration::from_secs(2);
/// The headers of a browser or a common client library, so that heads have their usual size.
const REQUEST: &[u8] = b"GET /v1/books/book_1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\
    User-Agent: bench\r\nAccept: application/json\r\nAccept-Encoding: gzip\r\n\
    Authorization: Bearer sk_test_0123456789abcdef0123456789abcdef\r\n\r\n";

/// True when every bar was met.
pub fn run(options: &Options) -> Result<bool> {
    // First, because threads that start later inherit the core.
    let pinning = Pinning::claim(options.pin);
    if let Some(only) = options.only.as_deref()
        && !SCENARIOS.contains(&only)
    {
        bail!("--only {only}: there are {}", SCENARIOS.join(" "));
    }
    let wants = |name| options.only.as_deref().is_none_or(|only| only == name);
    println!("bench wire: {}", pinning.describe());
    let mut report = Report::default();
    if wants("get") {
        get(options, pinning, &mut report).context("get")?;
    }
    if wants("threads") {
        threads(options, pinning, &mut report).context("threads")?;
    }
    if wants("h2") {
        let wire = start(pinning, "bare-wire")?;
        wire_h2::run(options.quick, pinning, &wire, BODY_BYTES, &mut report).context("h2")?;
    }
    if wants("idle") {
        idle(pinning, &mut report).context("idle")?;
    }
    if wants("idle-tls") {
        idle_tls(pinning, &mut report).context("idle-tls")?;
    }
    if wants("idle-stream") {
        idle_stream(pinning, &mut report).context("idle-stream")?;
    }
    if wants("h3") || wants("large") {
        let secured = Secured::start(pinning)?;
        if wants("h3") {
            http3(options, &secured, &mut report).context("h3")?;
        }
        if wants("large") {
            large(&secured, &mut report).context("large")?;
        }
    }
    report.note(format!("{}; latency is seen by the client, closed loop", pinning.describe()));
    report.note("a ratio is the median of its rounds' own, with the least and the most of them");
    report.note("CPU µs is user+system time of the server process per request");
    report.print();
    if let Some(file) = &options.json {
        report.save(file)?;
    }
    Ok(report.passed())
}

fn start(pinning: Pinning, command: &str) -> Result<Service> {
    let mut process = pinning.command(&std::env::current_exe()?);
    process.args(command.split(' ')).args(["--book-bytes", &BODY_BYTES.to_string()]);
    Service::start(process)
}

/// One runtime for each core compared with one for all of them, both with hyper: a basis for the
/// design of our server.
fn threads(options: &Options, pinning: Pinning, report: &mut Report) -> Result<()> {
    println!("==> threads: {BODY_BYTES} bytes, {CONNECTIONS} connections");
    let (rounds, seconds) = if options.quick { (3, 1) } else { (5, 4) };
    let duration = Duration::from_secs(seconds);
    let names = ["bare-http", "bare-http --multi-thread"];
    let services = [start(pinning, names[0])?, start(pinning, names[1])?];
    let source = |_| -> Source { Box::new(|request| request.extend_from_slice(REQUEST)) };
    let mut samples = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (service, samples) in services.iter().zip(&mut samples) {
            samples.push(measure(service, CONNECTIONS, 200, duration, &source)?);
        }
    }
    let subjects = ["hyper, a runtime for each core", "hyper, one runtime of threads"];
    for (subject, samples) in subjects.iter().zip(&samples) {
        report.sample("threads", subject, Sample::median(samples), None);
    }
    Ok(())
}

type Session = StreamOwned<ClientConnection, TcpStream>;

/// Our server with TLS, and the trust of its clients.
struct Secured {
    service: Service,
    trusted: CertificateDer<'static>,
    /// For clients of HTTP/1.1; sessions are resumed.
    client: Arc<ClientConfig>,
    _dir: TempDir,
}

impl Secured {
    fn start(pinning: Pinning) -> Result<Secured> {
        let dir = tempfile::tempdir()?;
        let made = rcgen::generate_simple_self_signed([streams::HOST.to_owned()])?;
        std::fs::write(dir.path().join(CERTIFICATE), made.cert.pem())?;
        std::fs::write(dir.path().join(KEY), made.signing_key.serialize_pem())?;
        let mut process = pinning.command(&std::env::current_exe()?);
        process.args(["bare-wire", "--book-bytes", &BODY_BYTES.to_string(), "--dir"]);
        process.arg(dir.path());
        let service = Service::start(process)?;
        let trusted = made.cert.der().clone();
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone())?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Secured { service, trusted, client: Arc::new(client), _dir: dir })
    }

    fn target(&self, protocol: Protocol) -> Result<Target> {
        let address = self.service.address.parse()?;
        Ok(Target { protocol, address, trusted: self.trusted.clone() })
    }

    /// A connection for HTTP/1.1.
    fn session(&self) -> Result<Session> {
        let socket = TcpStream::connect(&self.service.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from(streams::HOST)?;
        Ok(StreamOwned::new(ClientConnection::new(self.client.clone(), name)?, socket))
    }

    fn sample(&self, protocol: Protocol, duration: Duration) -> Result<Sample> {
        let target = self.target(protocol)?;
        target.load(CROWD, WARM_UP)?;
        let before = self.service.cpu()?;
        let outcome = target.load(CROWD, duration)?;
        let cpu = self.service.cpu()?.saturating_sub(before);
        let count = outcome.latency.count().max(1) as f64;
        Ok(Sample {
            per_second: count / outcome.elapsed.as_secs_f64(),
            p50_us: outcome.latency.micros(0.5),
            p99_us: outcome.latency.micros(0.99),
            cpu_us: cpu.as_secs_f64() * 1e6 / count,
        })
    }
}

/// The same requests on both protocols alternately, by clients of one family.
fn http3(options: &Options, secured: &Secured, report: &mut Report) -> Result<()> {
    let Crowd { connections, streams } = CROWD;
    println!("==> h3: {BODY_BYTES} bytes, {connections} connections of {streams} streams, TLS");
    let (rounds, seconds) = if options.quick { (3, 1) } else { (5, 4) };
    let duration = Duration::from_secs(seconds);
    let limit = || secured.sample(Protocol::Http2, duration);
    let pairs = in_turn(rounds, limit, || secured.sample(Protocol::Http3, duration))?;
    let share = pairs.ratio(|sample| sample.per_second);
    let bar = Bar::at_least("rate", share.middle, 0.5, "× our HTTP/2").between(&share);
    report.sample("h3 1 KB", "wire HTTP/2 + TLS", Sample::median(&pairs.limits), None);
    report.sample("h3 1 KB", "wire HTTP/3", Sample::median(&pairs.ours), Some(bar));
    Ok(())
}

/// One large body on one connection each way, the best of three: the clients' core is as busy as
/// ours.
fn large(secured: &Secured, report: &mut Report) -> Result<()> {
    println!("==> large: {LARGE_BYTES} bytes");
    let best = |send: &dyn Fn() -> Result<(Duration, u64)>| -> Result<f64> {
        let mut best: f64 = 0.0;
        for _ in 0..3 {
            let (elapsed, bytes) = send()?;
            anyhow::ensure!(bytes == LARGE_BYTES as u64, "{bytes} bytes");
            best = best.max(bytes as f64 * 8.0 / 1e9 / elapsed.as_secs_f64());
        }
        Ok(best)
    };
    let (down, up, unit) = ("100 MB body", "100 MB upload", "Gbit/s");
    let upload = best(&|| upload(secured))?;
    report.bar("large, HTTP/1.1 + TLS", Bar::shown(up, upload, unit));
    for (scenario, protocol, limit) in [
        ("large, HTTP/2 + TLS", Protocol::Http2, None),
        ("large, HTTP/3", Protocol::Http3, Some(1.0)),
    ] {
        let target = secured.target(protocol)?;
        let fetched = best(&|| target.fetch(LARGE))?;
        report.bar(
            scenario,
            match limit {
                Some(limit) => Bar::at_least(down, fetched, limit, unit),
                None => Bar::shown(down, fetched, unit),
            },
        );
        let uploaded = best(&|| target.upload(UPLOAD, LARGE_BYTES))?;
        report.bar(scenario, Bar::shown(up, uploaded, unit));
    }
    Ok(())
}

/// Sends the large body over HTTP/1.1; returns the time, and the number of bytes that the server
/// counted.
fn upload(secured: &Secured) -> Result<(Duration, u64)> {
    let mut session = secured.session()?;
    let piece = vec![b'x'; streams::PIECE_BYTES];
    let began = Instant::now();
    write!(
        session,
        "POST {UPLOAD} HTTP/1.1\r\nHost: {}\r\nContent-Length: {LARGE_BYTES}\r\n\
         Connection: close\r\n\r\n",
        streams::HOST
    )?;
    let mut left = LARGE_BYTES;
    while left > 0 {
        let size = left.min(piece.len());
        session.write_all(&piece[..size])?;
        left -= size;
    }
    let mut answer = String::new();
    session.read_to_string(&mut answer)?;
    let counted = answer
        .split_once(&format!("{RECEIVED}: "))
        .and_then(|(_, rest)| rest.lines().next().and_then(|number| number.parse().ok()));
    Ok((began.elapsed(), counted.with_context(|| format!("it said:\n{answer}"))?))
}

/// Both servers alternate, round by round; the bar applies to CPU per request.
fn get(options: &Options, pinning: Pinning, report: &mut Report) -> Result<()> {
    println!("==> get: {BODY_BYTES} bytes, {CONNECTIONS} connections");
    let (rounds, seconds) = if options.quick { (3, 1) } else { (9, 4) };
    let duration = Duration::from_secs(seconds);
    let (hyper, wire) = (start(pinning, "bare-http")?, start(pinning, "bare-wire")?);
    let source = |_| -> Source { Box::new(|request| request.extend_from_slice(REQUEST)) };
    let run = |service| measure(service, CONNECTIONS, 200, duration, &source);
    let pairs = in_turn(rounds, || run(&hyper), || run(&wire))?;
    let ratio = pairs.ratio(|sample| sample.cpu_us);
    let bar = Bar::at_most("CPU ratio", ratio.middle, 1.0, "× bare hyper").between(&ratio);
    report.sample("get 1 KB", "bare hyper", Sample::median(&pairs.limits), None);
    report.sample("get 1 KB", "wire", Sample::median(&pairs.ours), Some(bar));
    Ok(())
}

/// The growth of the server's resident memory per connection that had one response and is idle. It
/// excludes the kernel's part, some 4 KB per socket on each side.
fn idle(pinning: Pinning, report: &mut Report) -> Result<()> {
    println!("==> idle: {IDLE_CONNECTIONS} connections that asked once");
    allow_files(IDLE_CONNECTIONS + SPARE_FILES)?;
    for (command, limit) in [("bare-http", None), ("bare-wire", Some(2.0))] {
        let service = start(pinning, command)?;
        // The same work before the first measurement, so that shared memory is not counted.
        drop(open(&service.address, CONNECTIONS)?);
        std::thread::sleep(SETTLE);
        let (before, _) = service.memory()?;
        let streams = open(&service.address, IDLE_CONNECTIONS)?;
        std::thread::sleep(SETTLE);
        let (after, _) = service.memory()?;
        let each = after.saturating_sub(before) as f64 / 1024.0 / streams.len() as f64;
        let (what, unit) = ("resident per connection", "KiB");
        match limit {
            Some(limit) => report.bar("idle, wire", Bar::at_most(what, each, limit, unit)),
            None => report.bar("idle, bare hyper", Bar::shown(what, each, unit)),
        }
    }
    report.note(format!(
        "idle: growth of VmRSS over {IDLE_CONNECTIONS} keep-alive connections of one request each, \
         kernel memory not included"
    ));
    Ok(())
}

/// The same with TLS, where a session has its own keys and buffers.
fn idle_tls(pinning: Pinning, report: &mut Report) -> Result<()> {
    println!("==> idle-tls: {IDLE_CONNECTIONS} connections under TLS that asked once");
    allow_files(IDLE_CONNECTIONS + SPARE_FILES)?;
    let secured = Secured::start(pinning)?;
    drop(open_secured(&secured, CONNECTIONS)?);
    std::thread::sleep(SETTLE);
    let (before, _) = secured.service.memory()?;
    let streams = open_secured(&secured, IDLE_CONNECTIONS)?;
    std::thread::sleep(SETTLE);
    let (after, _) = secured.service.memory()?;
    let each = after.saturating_sub(before) as f64 / 1024.0 / streams.len() as f64;
    report.bar("idle, wire + TLS", Bar::at_most("resident per connection", each, 14.0, "KiB"));
    Ok(())
}

/// Idle streams that the service took over: over HTTP/1.1 each has its own connection, over HTTP/2
/// they share some.
fn idle_stream(pinning: Pinning, report: &mut Report) -> Result<()> {
    let Crowd { connections, streams } = WAITING;
    println!("==> idle-stream: {IDLE_CONNECTIONS} streams, {streams} on a connection of HTTP/2");
    allow_files(IDLE_CONNECTIONS + SPARE_FILES)?;
    let service = start(pinning, "bare-wire")?;
    let follow = |count: usize| -> Result<Vec<TcpStream>> {
        (0..count).map(|_| follow(&service.address)).collect()
    };
    drop(follow(CONNECTIONS)?);
    std::thread::sleep(SETTLE);
    let (before, _) = service.memory()?;
    let held = follow(IDLE_CONNECTIONS)?;
    std::thread::sleep(SETTLE);
    let (after, _) = service.memory()?;
    let each = after.saturating_sub(before) as f64 / 1024.0 / held.len() as f64;
    report.bar("idle stream, HTTP/1.1", Bar::shown("resident per stream", each, "KiB"));

    let service = start(pinning, "bare-wire")?;
    let memory = || service.memory().map(|(resident, _)| resident);
    let few = Crowd { connections: 1, streams };
    streams::hold(&service.address, few, SETTLE, || Ok(()))?;
    std::thread::sleep(SETTLE);
    let before = memory()?;
    let after = streams::hold(&service.address, WAITING, SETTLE, memory)?;
    let each = after.saturating_sub(before) as f64 / 1024.0 / (connections * streams) as f64;
    report.bar("idle stream, HTTP/2", Bar::shown("resident per stream", each, "KiB"));
    report.note("idle stream: each has had one event; the share of its connection is in it");
    Ok(())
}

/// A connection that became an event stream and has had the first event.
fn follow(address: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {EVENTS} HTTP/1.1\r\nHost: {}\r\n\r\n", streams::HOST)?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(EVENT) {
        let count = stream.read(&mut buffer)?;
        anyhow::ensure!(count > 0, "it was closed");
        answer.extend_from_slice(&buffer[..count]);
    }
    Ok(stream)
}

fn open_secured(secured: &Secured, count: usize) -> Result<Vec<Session>> {
    let mut sessions = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = secured.session()?;
        ask(&mut stream).with_context(|| format!("connection {number}"))?;
        sessions.push(stream);
    }
    Ok(sessions)
}

/// Sends one request and reads its response.
fn ask(stream: &mut (impl Read + Write)) -> Result<()> {
    let mut answer = [0; 4096];
    stream.write_all(REQUEST)?;
    let mut read = 0;
    while read < BODY_BYTES {
        let count = stream.read(&mut answer)?;
        anyhow::ensure!(count > 0, "it was closed");
        read += count;
    }
    Ok(())
}

/// Connections that have had one response each.
fn open(address: &str, count: usize) -> Result<Vec<TcpStream>> {
    let mut streams = Vec::with_capacity(count);
    for number in 0..count {
        let mut stream = TcpStream::connect(address).with_context(|| format!("{number}"))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        ask(&mut stream).with_context(|| format!("connection {number}"))?;
        streams.push(stream);
    }
    Ok(streams)
}

/// Raises this process's limit of open files, which its children inherit.
fn allow_files(count: usize) -> Result<()> {
    let limits = std::fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut columns = line.context("no limit of open files")?.split_whitespace();
    if columns.next().is_some_and(|soft| soft.parse().is_ok_and(|soft: usize| soft >= count)) {
        return Ok(());
    }
    let own = std::process::id().to_string();
    let raised = Command::new("prlimit")
        .args(["--pid", &own, &format!("--nofile={count}:{count}")])
        .stderr(Stdio::null())
        .status();
    if !raised.is_ok_and(|status| status.success()) {
        bail!("{count} open files are needed: raise the limit (ulimit -n) and try again");
    }
    Ok(())
}
