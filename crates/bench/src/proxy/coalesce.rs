//! A crowd of clients that ask for one cacheable response which no cache has yet: the proxy must
//! send one request to its backend.

use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::spawn_local;

use crate::process::allow_files;
use crate::report::Bar;

use super::Bench;
use super::backend::{self, BODY_BYTES, SLOW};
use super::client::{Ask, Lane, Protocol};
use super::load::in_runtime;
use super::subject::{Kind, Setup, installed};

const CLIENTS: usize = 1_000;
const LIMIT: Duration = Duration::from_secs(60);
/// Files besides the connections: the executable, pipes.
const SPARE_FILES: usize = 500;

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("==> coalesce: {CLIENTS} concurrent misses of one response");
    installed(&["nginx"])?;
    // The proxy has a connection to each side.
    allow_files((2 * CLIENTS + SPARE_FILES) as u64)?;
    for kind in [Kind::Nginx, Kind::Restive] {
        let backend = bench.bare_backend(&["bare-backend"])?;
        let setup = Setup {
            pinning: bench.pinning,
            server: &bench.server,
            backend: &backend.address,
            certificate: None,
            cache: true,
            connections: CLIENTS,
        };
        let subject = setup.start(kind)?;
        ask_together(&subject.service.address).context(kind.name())?;
        let asked = backend::count(&backend.address)? as f64;
        let (what, unit) = ("backend requests", "");
        let bar = match kind {
            Kind::Restive => Bar::at_most(what, asked, 1.0, unit),
            _ => Bar::shown(what, asked, unit),
        };
        bench.report.figure("1,000 misses", kind.name(), bar);
    }
    bench.report.note("1,000 misses: the backend takes 1 s; nginx with `proxy_cache_lock`");
    Ok(())
}

/// Connects all clients first; every one of them must have the whole response.
fn ask_together(address: &str) -> Result<()> {
    in_runtime(LIMIT, async {
        let ask = Rc::new(Ask { path: SLOW, authorized: false, body_bytes: BODY_BYTES });
        let encoded: Rc<[u8]> = ask.http1().into();
        let mut tasks = Vec::with_capacity(CLIENTS);
        for mut lane in Lane::open(address, Protocol::Http1, None, CLIENTS).await? {
            let (ask, encoded) = (ask.clone(), encoded.clone());
            tasks.push(spawn_local(async move { lane.ask(&ask, &encoded).await }));
        }
        for task in tasks {
            task.await??;
        }
        Ok(())
    })
}
