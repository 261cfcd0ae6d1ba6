//! The memory of idle connections: the growth of each proxy's resident memory per client that had
//! one response and stays connected. Kernel memory is not included.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::http::Client;
use crate::process::allow_files;
use crate::report::Bar;

use super::Bench;
use super::backend::BODY_BYTES;
use super::client::Ask;
use super::subject::{Kind, Setup, installed};

/// The first of these that the limit of open files allows.
const CONNECTIONS: [usize; 3] = [10_000, 5_000, 1_000];
/// Opened and closed first, so that memory that connections share is not counted.
const FIRST: usize = 64;
/// Files besides the connections: the executable, pipes, connections to the backend.
const SPARE_FILES: usize = 500;
/// Long enough for the proxy's work after the last response.
const SETTLE: Duration = Duration::from_secs(2);
const LIMIT_KIB: f64 = 2.0;

pub fn run(bench: &mut Bench) -> Result<()> {
    installed(&["nginx", "haproxy"])?;
    let wanted = if bench.quick { &CONNECTIONS[2..] } else { &CONNECTIONS[..] };
    let allowed = |count: &&usize| allow_files((**count + SPARE_FILES) as u64).is_ok();
    let count = *wanted.iter().find(allowed).context("too few open files are allowed")?;
    println!("==> idle: {count} connections that asked once");
    let body = BODY_BYTES.to_string();
    for kind in Kind::ALL {
        let backend = bench.bare_backend(&["bare-http", "--book-bytes", &body])?;
        let setup = Setup {
            pinning: bench.pinning,
            server: &bench.server,
            backend: &backend.address,
            certificate: None,
            cache: false,
            connections: count,
        };
        let subject = setup.start(kind)?;
        let memory = || subject.service.memory().map(|(resident, _)| resident);
        let open = |count| open(&subject.service.address, count).context(kind.name());
        drop(open(FIRST)?);
        // waits for: memory that the proxy releases after the connections are closed
        std::thread::sleep(SETTLE);
        let before = memory()?;
        let held = open(count)?;
        // waits for: memory that the proxy releases after the last response
        std::thread::sleep(SETTLE);
        let each = memory()?.saturating_sub(before) as f64 / 1024.0 / held.len() as f64;
        let (what, unit) = ("resident per connection", "KiB");
        let bar = match kind {
            Kind::Restive => Bar::at_most(what, each, LIMIT_KIB, unit),
            _ => Bar::shown(what, each, unit),
        };
        bench.report.figure("idle", kind.name(), bar);
    }
    bench.report.note(format!(
        "idle: growth of VmRSS over {count} keep-alive connections of one request each, kernel \
         memory not included"
    ));
    Ok(())
}

fn open(address: &str, count: usize) -> Result<Vec<Client>> {
    let ask = Ask { path: "/v1/books/book_1", authorized: true, body_bytes: BODY_BYTES };
    let request = ask.http1();
    let mut clients = Vec::with_capacity(count);
    for number in 0..count {
        let mut client = Client::connect(address)?;
        client.expect(200, &request).with_context(|| format!("connection {number}"))?;
        clients.push(client);
    }
    Ok(clients)
}
