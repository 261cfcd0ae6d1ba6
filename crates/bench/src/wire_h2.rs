//! The HTTP/2 part of `bench wire`: our server compared with nginx, both with fixed responses to
//! h2load. The programs are the system's; `xtask` installs them.

use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::measure::in_turn;
use crate::process::{Pinning, Service};
use crate::report::{Bar, Report, Sample};

const CONNECTIONS: usize = 16;
/// Concurrent requests of one connection: one, where a request costs most, and as many as a web
/// page sends at once.
const STREAMS: [usize; 2] = [1, 8];
const LIMIT: f64 = 1.2;
const WARM_UP_REQUESTS: usize = 5_000;
const PATH: &str = "/v1/books/book_1";
/// The same fields as over HTTP/1.1.
const FIELDS: [&str; 4] = [
    "user-agent: bench",
    "accept: application/json",
    "accept-encoding: gzip",
    "authorization: Bearer sk_test_0123456789abcdef0123456789abcdef",
];

/// Both servers alternate, round by round, with each number of streams; the bar applies to CPU per
/// request.
pub fn run(
    quick: bool,
    pinning: Pinning,
    wire: &Service,
    body_bytes: usize,
    report: &mut Report,
) -> Result<()> {
    println!("==> h2: {body_bytes} bytes, {CONNECTIONS} connections, h2load against nginx");
    let (rounds, requests) = if quick { (3, 40_000) } else { (5, 200_000) };
    let folder = Folder::make()?;
    let nginx = start_nginx(pinning, &folder.0, body_bytes)?;
    for streams in STREAMS {
        let run = |service| measure(service, streams, requests, body_bytes);
        let pairs = in_turn(rounds, || run(&nginx), || run(wire))?;
        let ratio = pairs.ratio(|sample| sample.cpu_us);
        let bar = Bar::at_most("CPU ratio", ratio.middle, LIMIT, "× nginx").between(&ratio);
        let scenario = format!("h2 get 1 KB, {streams} a connection");
        report.sample(&scenario, "nginx", Sample::median(&pairs.limits), None);
        report.sample(&scenario, "wire", Sample::median(&pairs.ours), Some(bar));
    }
    report.note(format!("h2: {requests} requests by h2load a round, nginx with `return 200`"));
    Ok(())
}

/// One process with one worker, no log, and the response in its configuration: the minimum that it
/// can do.
fn start_nginx(pinning: Pinning, folder: &Path, body_bytes: usize) -> Result<Service> {
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {}; ", folder.display()))
        .concat();
    let configuration = format!(
        "worker_processes 1; daemon off; master_process off;\n\
         error_log stderr crit; pid {folder}/pid;\n\
         events {{ worker_connections 1024; }}\n\
         http {{ access_log off; default_type application/json; {temporary}\n\
         keepalive_requests 1000000000; http2_max_concurrent_streams 128;\n\
         server {{ listen {address} http2;\n\
         location / {{ add_header etag '\"1\"'; return 200 \"{body}\"; }} }} }}\n",
        folder = folder.display(),
        body = "x".repeat(body_bytes),
    );
    let file = folder.join("nginx.conf");
    std::fs::File::create(&file)?.write_all(configuration.as_bytes())?;
    let mut command = pinning.command(Path::new("nginx"));
    command.args(["-e", "stderr", "-p"]).arg(folder).arg("-c").arg(&file);
    Service::start_at(command, address)
}

fn measure(
    service: &Service,
    streams: usize,
    requests: usize,
    body_bytes: usize,
) -> Result<Sample> {
    h2load(service, streams, WARM_UP_REQUESTS, body_bytes)?;
    let before = service.cpu()?;
    let per_second = h2load(service, streams, requests, body_bytes)?;
    let cpu = service.cpu()?.saturating_sub(before);
    let cpu_us = cpu.as_secs_f64() * 1e6 / requests as f64;
    Ok(Sample { per_second, p50_us: f64::NAN, p99_us: f64::NAN, cpu_us })
}

/// Requests per second; every one of them must have had its complete response.
fn h2load(service: &Service, streams: usize, requests: usize, body_bytes: usize) -> Result<f64> {
    let mut command = Command::new("h2load");
    command.args(["--requests", &requests.to_string(), "--clients", &CONNECTIONS.to_string()]);
    command.args(["--max-concurrent-streams", &streams.to_string()]);
    for field in FIELDS {
        command.args(["--header", field]);
    }
    command.arg(format!("http://{}{PATH}", service.address));
    let output = command.stderr(Stdio::inherit()).output().context("cannot start h2load")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    outcome(&text, requests, body_bytes).with_context(|| format!("h2load said:\n{text}"))
}

fn outcome(text: &str, requests: usize, body_bytes: usize) -> Result<f64> {
    let succeeded = format!(" {requests} succeeded, 0 failed, 0 errored, 0 timeout");
    ensure!(text.contains(&succeeded), "not every request succeeded");
    let data = format!("({}) data", requests * body_bytes);
    ensure!(text.contains(&data), "not every answer was whole");
    let rate = text.split_once(" req/s").and_then(|(before, _)| before.rsplit(' ').next());
    rate.context("no rate")?.parse().context("the rate is not a number")
}

/// Removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn make() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("bench-nginx-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "finished in 1.06ms, 18757.50 req/s, 20.94MB/s\n\
        requests: 20 total, 20 started, 20 done, 20 succeeded, 0 failed, 0 errored, 0 timeout\n\
        traffic: 22.87KB (23420) total, 1.27KB (1300) headers (space savings 93%), \
        20.00KB (20480) data\n";

    #[test]
    fn the_output_of_h2load_is_parsed_and_a_partial_success_is_an_error() {
        assert_eq!(outcome(SAID, 20, 1024).unwrap(), 18757.5);
        for (requests, body_bytes) in [(21, 1024), (20, 1000)] {
            assert!(outcome(SAID, requests, body_bytes).is_err());
        }
        assert!(outcome(&SAID.replace("0 timeout", "1 timeout"), 20, 1024).is_err());
    }
}
