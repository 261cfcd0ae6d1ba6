//! Two backends, of which one after the other is killed and restarted while clients send requests:
//! no GET may fail, and no POST may take effect twice. A POST may fail: the proxy cannot know
//! whether the lost backend has processed it.

use std::collections::HashMap;
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::time::{sleep, timeout};

use crate::process::Service;
use crate::report::Bar;

use super::Bench;
use super::backend::{self, BODY_BYTES, DELAYED, EFFECTS, EFFECTS_FILE};
use super::client::{HOST, Lane};
use super::steady::{Clients, PATIENCE, Stop, Tally, Task, gets, wait_until};
use super::subject::restive;

const KILLS: usize = 6;
const QUICK_KILLS: usize = 2;
const GETTERS: usize = 32;
const POSTERS: usize = 4;
/// The time that clients work with one backend.
const DOWN: Duration = Duration::from_millis(700);
/// For a restarted backend to receive requests again: two health checks.
const RETURN_LIMIT: Duration = Duration::from_secs(30);
/// Requests that show that a backend takes part.
const TAKING_PART: u64 = 20;
/// Between two POSTs of one client.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Default)]
struct Tallies {
    gets: Arc<Tally>,
    posts: Arc<Tally>,
    /// The ids of POSTs with a response of 200.
    confirmed: Arc<Mutex<Vec<u64>>>,
}

pub fn run(bench: &mut Bench) -> Result<()> {
    let kills = if bench.quick { QUICK_KILLS } else { KILLS };
    println!("==> failover: {kills} backends killed under {GETTERS} clients");
    let folder = tempfile::tempdir()?;
    let mut backends = Vec::new();
    for _ in 0..2 {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        backends.push(Some(start_backend(bench, &address, folder.path())?));
    }
    let addresses: Vec<String> =
        backends.iter().flatten().map(|backend| backend.address.clone()).collect();
    let file = folder.path().join("proxy.toml");
    std::fs::write(&file, configuration(&addresses))?;
    let mut command = restive(bench.pinning, &bench.server, folder.path());
    command.arg("--config").arg(&file);
    let proxy = Service::start(command)?;

    let tallies = Tallies::default();
    let clients = start_clients(&proxy.address, &tallies);
    let outcome = kill_in_turn(bench, kills, &addresses, &mut backends, folder.path());
    clients.finish()?;
    outcome?;
    report(bench, &tallies, folder.path())
}

fn start_backend(bench: &Bench, address: &str, folder: &Path) -> Result<Service> {
    let folder = folder.to_str().context("the temporary folder is not UTF-8")?;
    bench.bare_backend(&["bare-backend", "--listen", address, "--dir", folder])
}

/// Checks are frequent, so that a restarted backend returns soon.
fn configuration(addresses: &[String]) -> String {
    format!(
        "[backends.api]\nto = {addresses:?}\n\
         check = {{ path = \"/health\", interval = \"200ms\", timeout = \"1s\" }}\n\n\
         [[sites]]\n[[sites.routes]]\nto = \"api\"\n"
    )
}

fn start_clients(address: &str, tallies: &Tallies) -> Clients {
    let (address, tallies) = (address.to_owned(), tallies.clone());
    Clients::start(move |stop| {
        let ids = Arc::<AtomicU64>::default();
        let mut tasks: Vec<Task> = Vec::new();
        for _ in 0..GETTERS {
            let (tally, stop) = (tallies.gets.clone(), stop.clone());
            tasks.push(Box::pin(gets(address.clone(), DELAYED, tally, stop)));
        }
        for _ in 0..POSTERS {
            let (tallies, stop) = (tallies.clone(), stop.clone());
            tasks.push(Box::pin(posts(address.clone(), ids.clone(), tallies, stop)));
        }
        tasks
    })
}

/// POSTs with an id each, on a kept connection.
async fn posts(address: String, ids: Arc<AtomicU64>, tallies: Tallies, stop: Stop) {
    let tally = &tallies.posts;
    let mut lane = None;
    while !stop.is_set() {
        let id = ids.fetch_add(1, Ordering::Relaxed);
        let exchange = async {
            let mut open = match lane.take() {
                Some(open) => open,
                None => Lane::plain(&address).await?,
            };
            let request = format!(
                "POST {EFFECTS}?{id} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 2\r\n\r\n{{}}"
            );
            open.send(request.as_bytes(), BODY_BYTES).await?;
            anyhow::Ok(open)
        };
        match timeout(PATIENCE, exchange).await {
            Ok(Ok(open)) => {
                tally.succeed();
                tallies.confirmed.lock().unwrap_or_else(PoisonError::into_inner).push(id);
                lane = Some(open);
            }
            Ok(Err(error)) => tally.fail(format!("POST: {error:#}")),
            Err(_) => tally.fail(format!("POST: no response within {PATIENCE:?}")),
        }
        sleep(PAUSE).await;
    }
}

/// Kills with SIGKILL, restarts at the same address, and waits until the proxy uses the backend
/// again.
fn kill_in_turn(
    bench: &Bench,
    kills: usize,
    addresses: &[String],
    backends: &mut [Option<Service>],
    folder: &Path,
) -> Result<()> {
    let takes_part = |address: &str| {
        wait_until("both backends receive requests", RETURN_LIMIT, || {
            Ok(backend::count(address)? >= TAKING_PART)
        })
    };
    for address in addresses {
        takes_part(address)?;
    }
    for turn in 0..kills {
        let place = turn % addresses.len();
        // Dropping a service kills its process.
        drop(backends[place].take());
        // waits for: requests while one backend is gone
        std::thread::sleep(DOWN);
        backends[place] = Some(start_backend(bench, &addresses[place], folder)?);
        takes_part(&addresses[place]).with_context(|| format!("after kill {}", turn + 1))?;
    }
    Ok(())
}

fn report(bench: &mut Bench, tallies: &Tallies, folder: &Path) -> Result<()> {
    let Tallies { gets, posts, confirmed } = tallies;
    let effects = std::fs::read_to_string(folder.join(EFFECTS_FILE))?;
    let confirmed = confirmed.lock().unwrap_or_else(PoisonError::into_inner);
    let (repeated, missing) = judge(&effects, &confirmed);
    let scenario = "backends killed";
    for (what, value) in [
        ("GETs failed", gets.failed()),
        ("POSTs with two effects", repeated),
        ("POSTs without effect after 200", missing),
    ] {
        bench.report.bar(scenario, Bar::at_most(what, value as f64, 0.0, ""));
    }
    bench.report.figure(
        scenario,
        "restive",
        Bar::shown("POSTs with an error response", posts.failed() as f64, ""),
    );
    let reason = gets.reason().map_or(String::new(), |reason| format!("; the first: {reason}"));
    let post = posts.reason().map_or(String::new(), |reason| format!("; of POSTs: {reason}"));
    let (gets, posts) = (gets.done(), posts.done());
    bench.report.note(format!("backends killed: {gets} GETs and {posts} POSTs{reason}{post}"));
    Ok(())
}

/// The number of ids that took effect more than once, and of confirmed ids that took none.
fn judge(effects: &str, confirmed: &[u64]) -> (u64, u64) {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    for id in effects.lines().filter_map(|line| line.parse().ok()) {
        *counts.entry(id).or_default() += 1;
    }
    let repeated = counts.values().filter(|count| **count > 1).count();
    let missing = confirmed.iter().filter(|id| !counts.contains_key(id)).count();
    (repeated as u64, missing as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_effect_that_appears_twice_or_never_is_counted() {
        assert_eq!(judge("1\n2\n3\n2\n", &[1, 2]), (1, 0));
        assert_eq!(judge("1\n", &[1, 7]), (0, 1));
        assert_eq!(judge("", &[]), (0, 0));
    }
}
