//! Provider and receiver are killed 50 times in all, in random order, while events are created. In
//! the end every event has been handed to the handler, and the handler has few repeated calls.

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

const KILLS: usize = 50;
/// Books between two kills.
const BOOKS: usize = 40;
const WORKERS: &str = "4";
/// Time for everything to arrive in the end.
const SETTLE: Duration = Duration::from_secs(120);

struct Scene<'a, 's> {
    stage: &'a Stage<'s>,
    data: PathBuf,
    inbox: PathBuf,
    calls: PathBuf,
    address: String,
    secret: String,
}

impl Scene<'_, '_> {
    fn provider(&self) -> Result<Service> {
        self.stage.restive(&self.data, None)
    }

    /// Each call of the handler appends the id of its event to a file.
    fn receiver(&self) -> Result<Service> {
        let append = format!("echo $RESTIVE_EVENT_ID >> {}", self.calls.display());
        let mut command = Command::new(&self.stage.server);
        command
            .args(["receive", "--listen", &self.address, "--exec", &append])
            .args(["--workers", WORKERS, "--retry-first", "20", "--data"])
            .arg(&self.inbox)
            .env("RESTIVE_RECEIVE_SECRET", &self.secret);
        Service::start(command)
    }
}

pub fn run(stage: &mut Stage<'_>) -> Result<()> {
    let (data, inbox) = (stage.folder("provider")?, stage.folder("inbox")?);
    let calls = stage.scratch.join("calls");
    // A port that is free now and is used from then on.
    let free = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let secret = String::new();
    let mut scene = Scene { stage: &*stage, data, inbox, calls, address: free, secret };
    let mut provider = scene.provider()?;
    scene.secret = endpoint(stage_key(&scene), &provider.address, &scene.address)?;
    let mut receiver = scene.receiver()?;
    let mut entropy = Entropy::new()?;
    for kill in 0..KILLS {
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
    println!("    {} events, {repeated} calls repeated", events.len());
    let most = (KILLS * 4) as f64;
    stage.report.bar("kills", Bar::at_most("unknown events", strange as f64, 0.0, ""));
    stage.report.bar("kills", Bar::at_most("missing events", 0.0, 0.0, ""));
    stage.report.bar("kills", Bar::at_most("repeated calls", repeated as f64, most, ""));
    Ok(())
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
