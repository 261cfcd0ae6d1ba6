//! Provider and receiver are killed 50 times in all, in random order, while events are created; on
//! request, the connections between them are cut at random, too. In the end every event has been
//! handed to the handler, and the handler has few repeated calls.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::entropy::Entropy;
use crate::http::Client;
use crate::process::Service;
use crate::report::Bar;
use crate::stage::Stage;

use super::relay::{Cutter, Relay};

const KILLS: usize = 50;
/// With `--quick`.
const FEW_KILLS: usize = 6;
/// Books between two kills.
const BOOKS: usize = 40;
const WORKERS: &str = "4";
/// Time for everything to arrive in the end.
const SETTLE: Duration = Duration::from_secs(120);
/// Time for all kills: a hundred times what one needs.
const LIMIT: Duration = Duration::from_secs(20 * 60);

/// What is between provider and receiver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Network {
    Whole,
    /// Connections are cut at random, in both directions.
    Cut,
}

/// The relays of a network that is cut.
struct Links {
    to_receiver: Relay,
    to_provider: Relay,
}

struct Scene<'a, 's> {
    stage: &'a Stage<'s>,
    data: PathBuf,
    inbox: PathBuf,
    calls: PathBuf,
    address: String,
    secret: String,
    links: Option<Links>,
}

impl Scene<'_, '_> {
    fn provider(&self) -> Result<Service> {
        let provider = self.stage.restive(&self.data, None)?;
        if let Some(links) = &self.links {
            links.to_provider.aim(&provider.address);
        }
        Ok(provider)
    }

    /// Each call of the handler appends the id of its event to a file. The ping of a new endpoint
    /// is no event of the load: it may arrive or not.
    fn receiver(&self) -> Result<Service> {
        let append = format!(
            "test $RESTIVE_EVENT_TYPE = ping || echo $RESTIVE_EVENT_ID >> {}",
            self.calls.display()
        );
        let mut command = Command::new(&self.stage.server);
        command
            .args(["receive", "--listen", &self.address, "--exec", &append])
            .args(["--workers", WORKERS, "--retry-first", "20", "--data"])
            .arg(&self.inbox)
            .env("RESTIVE_RECEIVE_SECRET", &self.secret);
        if let Some(links) = &self.links {
            // What no webhook brings is fetched, over the same network.
            let provider = format!("http://{}", links.to_provider.address);
            command
                .args(["--provider", &provider, "--provider-types", "book.*"])
                .args(["--reconcile-every", "2", "--reconcile-min-age", "1"])
                .env("RESTIVE_RECEIVE_KEY", &self.stage.key);
        }
        Service::start(command)
    }

    /// Where the provider sends webhooks.
    fn endpoint(&self) -> &str {
        self.links.as_ref().map_or(&self.address, |links| &links.to_receiver.address)
    }
}

pub fn run(stage: &mut Stage<'_>, name: &'static str, network: Network) -> Result<()> {
    let kills = if stage.options.quick { FEW_KILLS } else { KILLS };
    let outcome = outcome(stage, kills, network)?;
    let Outcome { events, repeated, strange, cuts } = outcome;
    println!("    {kills} kills, {cuts} cuts, {events} events, {repeated} calls repeated");
    let most = (kills * 4) as f64;
    stage.report.bar(name, Bar::at_most("unknown events", strange as f64, 0.0, ""));
    stage.report.bar(name, Bar::at_most("missing events", 0.0, 0.0, ""));
    stage.report.bar(name, Bar::at_most("repeated calls", repeated as f64, most, ""));
    if network == Network::Cut {
        stage.report.bar(name, Bar::at_least("connections cut", cuts as f64, kills as f64, ""));
    }
    Ok(())
}

struct Outcome {
    events: usize,
    repeated: usize,
    /// Calls for events that the provider does not have.
    strange: usize,
    cuts: u64,
}

fn outcome(stage: &Stage<'_>, kills: usize, network: Network) -> Result<Outcome> {
    let (data, inbox) = (stage.folder("provider")?, stage.folder("inbox")?);
    let calls = stage.scratch.join("calls");
    // A port that is free now and is used from then on.
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let links = match network {
        Network::Whole => None,
        // The provider's address is known when it has started.
        Network::Cut => {
            Some(Links { to_receiver: Relay::to(&free)?, to_provider: Relay::to(&free)? })
        }
    };
    let secret = String::new();
    let mut scene = Scene { stage, data, inbox, calls, address: free, secret, links };
    let mut provider = scene.provider()?;
    scene.secret = endpoint(stage_key(&scene), &provider.address, scene.endpoint())?;
    let mut receiver = scene.receiver()?;
    let relays = scene.links.as_ref().map(|links| [&links.to_receiver, &links.to_provider]);
    let cutter = relays.map(|relays| Cutter::start(relays.map(Relay::clone).to_vec()));
    let cutter = cutter.transpose()?;
    let mut entropy = Entropy::new()?;
    let began = Instant::now();
    for kill in 0..kills {
        ensure!(began.elapsed() < LIMIT, "{kill} kills took over {LIMIT:?}");
        create(stage_key(&scene), &provider.address, BOOKS)?;
        // Dropping a process kills it.
        match (entropy.next() >> 32) % 2 {
            0 => {
                drop(receiver);
                receiver = scene.receiver()?;
            }
            _ => {
                drop(provider);
                provider = scene.provider()?;
            }
        }
        if kill % 10 == 9 {
            println!("    {} kills", kill + 1);
        }
    }
    drop(cutter);
    let events = logged(stage_key(&scene), &provider.address)?;
    let began = Instant::now();
    let found = loop {
        let found = called(&scene.calls)?;
        if events.iter().all(|id| found.contains_key(id)) {
            break found;
        }
        let missing = events.iter().filter(|id| !found.contains_key(*id)).count();
        ensure!(began.elapsed() < SETTLE, "{missing} of {} events are missing", events.len());
        std::thread::sleep(Duration::from_millis(200));
    };
    drop(receiver);
    let strange = found.keys().filter(|id| !events.contains(id)).count();
    let repeated: usize = found.values().map(|count| count - 1).sum();
    let cuts = relays.map_or(0, |relays| relays.iter().map(|relay| relay.cuts()).sum());
    Ok(Outcome { events: events.len(), repeated, strange, cuts })
}

fn stage_key<'a>(scene: &'a Scene<'_, '_>) -> &'a str {
    &scene.stage.key
}

fn request(key: &str, method: &str, path: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    head.into_bytes()
}

/// Returns the secret.
fn endpoint(key: &str, provider: &str, receiver: &str) -> Result<String> {
    let body = json!({
        "url": format!("http://{receiver}/"), "enabled_events": ["book.*"],
        "retry_schedule": [1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
    });
    let request = request(key, "POST", "/v1/webhook-endpoints", &body.to_string());
    let answer = Client::connect(provider)?.expect(201, &request)?;
    let made: Value = serde_json::from_slice(&answer.body)?;
    Ok(made["secret"].as_str().context("no secret")?.to_owned())
}

fn create(key: &str, provider: &str, count: usize) -> Result<()> {
    let mut client = Client::connect(provider)?;
    let request = request(key, "POST", "/v1/books", r#"{"title":"T","author":"A"}"#);
    for _ in 0..count {
        client.expect(201, &request)?;
    }
    Ok(())
}

fn logged(key: &str, provider: &str) -> Result<Vec<String>> {
    let mut client = Client::connect(provider)?;
    let mut ids = Vec::new();
    let mut path = "/v1/events?type=book.created&limit=100".to_owned();
    loop {
        let answer = client.expect(200, &request(key, "GET", &path, ""))?;
        let page: Value = serde_json::from_slice(&answer.body)?;
        let Some(events) = page["data"].as_array() else { bail!("no list of events") };
        ids.extend(events.iter().filter_map(|event| event["id"].as_str()).map(str::to_owned));
        match page["pagination"]["next_cursor"].as_str() {
            Some(cursor) => {
                path = format!("/v1/events?type=book.created&limit=100&after={cursor}");
            }
            None => return Ok(ids),
        }
    }
}

/// How often the handler was called for each event.
fn called(file: &Path) -> Result<HashMap<String, usize>> {
    let mut calls = HashMap::new();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    for line in text.lines() {
        *calls.entry(line.to_owned()).or_default() += 1;
    }
    Ok(calls)
}
