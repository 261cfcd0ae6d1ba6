//! `bench soak`: a mixed load of all channels for minutes: clients that come and go, deliveries
//! that fail, erasures and aborted uploads. Watches the server's memory, descriptors and gauges,
//! and fails if one grows beyond a bound or a gauge does not return.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::http::header;
use crate::metrics;
use crate::options::Options;
use crate::process::Service;
use crate::stage::Stage;

use super::channel::{HANDSHAKE, frame, open};
use super::client::Account;
use super::receiver::{Manner, Receiver};
use super::schema;

/// One line of progress.
const LOOK: Duration = Duration::from_secs(10);
/// Resident memory at the end is at most this many times that after the warm-up, …
const MAX_GROWTH: f64 = 1.25;
/// … or this much more, for caches that are still filling.
const MAX_GROWTH_BYTES: u64 = 32 << 20;
/// Descriptors that may be open at the end in addition to those at the start: pooled connections.
const MAX_MORE_FILES: usize = 40;
/// Time limit for the gauges to return after the load has ended. A hanging receiver times out after
/// 5 s, and its deliveries are retried once.
const RETURN_LIMIT: Duration = Duration::from_secs(60);
const ENDPOINTS: u32 = 10;
/// Gauges of work in progress. The first also counts the request for the gauges.
const GAUGES: [(&str, u64); 7] = [
    ("restive_requests_in_flight", 1),
    ("restive_write_queue", 0),
    ("restive_webhook_in_flight", 0),
    ("restive_webhook_loaded_bytes", 0),
    ("restive_live_connections{channel=\"sse\"}", 0),
    ("restive_live_connections{channel=\"websocket\"}", 0),
    ("restive_live_connections{channel=\"poll\"}", 0),
];

/// Counts of the load.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    channels: AtomicU64,
    failures: AtomicU64,
    first_failure: std::sync::Mutex<Option<String>>,
}

/// True if nothing grew and every gauge returned.
pub fn run(options: &Options) -> Result<bool> {
    let options = Options { pin: false, ..options.clone() };
    let stage = Stage::new(&options, &[])?;
    let done = soak(&stage, options.minutes);
    std::fs::remove_dir_all(&stage.scratch).context("cannot remove the scratch folder")?;
    let faults = done?;
    for fault in &faults {
        println!("FAIL {fault}");
    }
    println!(
        "soak of {} minutes: {}",
        options.minutes,
        match faults.is_empty() {
            true => "passed",
            false => "failed",
        }
    );
    Ok(faults.is_empty())
}

fn soak(stage: &Stage<'_>, minutes: f64) -> Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let data = stage.folder("soak")?;
    let file = stage.scratch.join("storm.toml");
    let handler = std::net::TcpListener::bind("127.0.0.1:0")?;
    std::fs::write(&file, schema::text(handler.local_addr()?, 2))?;
    let service = stage.restive(&data, Some(&file))?;
    let account = Account { address: service.address.clone(), key: stage.key.clone() };
    let length = Duration::from_secs_f64(minutes * 60.0);
    let faults = runtime.block_on(load(&service, &account, handler, length));
    runtime.shutdown_background();
    let faults = faults?;
    service.stop()?;
    Ok(faults)
}

async fn load(
    service: &Service,
    account: &Account,
    handler: std::net::TcpListener,
    length: Duration,
) -> Result<Vec<String>> {
    let _handler = Receiver::on(handler, Manner::Answer)?;
    let failing = Receiver::start(Manner::FailOneOf(5))?;
    let hanging = Receiver::start(Manner::Hang)?;
    for number in 0..ENDPOINTS {
        let receiver = if number == 0 { &hanging } else { &failing };
        let body = json!({
            "url": receiver.url(number), "enabled_events": ["note.created"], "timeout": 5,
            "retry_schedule": [1, 1], "payload": if number % 2 == 0 { "fat" } else { "thin" },
        });
        account.make("/v1/webhook-endpoints", &body).await?;
    }
    let files = open_files(service)?;
    let (end, ended) = watch::channel(false);
    let counts = Arc::new(Counts::default());
    let clients = begin(account, &ended, &counts);
    let resident = watch_load(service, account, &counts, length).await?;
    println!("    the load ends");
    end.send_replace(true);
    for client in clients {
        client.await.context("a client broke")?;
    }
    hanging.set(Manner::Answer);
    failing.set(Manner::Answer);
    let mut faults = returned(service, account, files).await?;
    faults.extend(grown(service, resident)?);
    let failures = counts.failures.load(Ordering::Relaxed);
    if failures > 0 {
        let first = counts.first_failure.lock().ok().and_then(|first| first.clone());
        faults.push(format!("{failures} requests failed: {}", first.unwrap_or_default()));
    }
    Ok(faults)
}

/// Prints a line from time to time; returns the resident memory after the warm-up, which is a fifth
/// of the time.
async fn watch_load(
    service: &Service,
    account: &Account,
    counts: &Counts,
    length: Duration,
) -> Result<u64> {
    let began = Instant::now();
    let mut warm = None;
    while began.elapsed() < length {
        tokio::time::sleep(LOOK.min(length.saturating_sub(began.elapsed()))).await;
        let (resident, _) = service.memory()?;
        if began.elapsed() >= length / 5 {
            warm.get_or_insert(resident);
        }
        let page = page(account).await?;
        let gauges = GAUGES.map(|(name, _)| metrics::figure(&page, name).unwrap_or(0).to_string());
        println!(
            "{:>5.0} s  {:>4} MiB  {:>4} files  {:>8} requests  {:>6} channels  gauges {}",
            began.elapsed().as_secs_f64(),
            resident >> 20,
            open_files(service)?,
            counts.requests.load(Ordering::Relaxed),
            counts.channels.load(Ordering::Relaxed),
            gauges.join(" ")
        );
    }
    warm.context("the soak was too short")
}

async fn page(account: &Account) -> Result<String> {
    let answer = account.connect().await?.ask(&account.get(metrics::PATH)).await?;
    ensure!(answer.status == 200, "/metrics was answered {}", answer.status);
    Ok(String::from_utf8(answer.body)?)
}

fn open_files(service: &Service) -> Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/fd", service.id()))?.count())
}

/// Gauges and descriptors that do not return in time.
async fn returned(
    service: &Service,
    account: &Account,
    files_before: usize,
) -> Result<Vec<String>> {
    let until = Instant::now() + RETURN_LIMIT;
    loop {
        let page = page(account).await?;
        let mut above = Vec::new();
        for (name, most) in GAUGES {
            let value = metrics::figure(&page, name)?;
            if value > most {
                above.push(format!("{name} is {value} after the load, at most {most} is due"));
            }
        }
        let files = open_files(service)?;
        if files > files_before + MAX_MORE_FILES {
            above.push(format!("descriptors grew from {files_before} to {files}"));
        }
        if above.is_empty() || Instant::now() >= until {
            return Ok(above);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Memory that has grown since the warm-up.
fn grown(service: &Service, warm: u64) -> Result<Vec<String>> {
    let (resident, _) = service.memory()?;
    let limit = (warm as f64 * MAX_GROWTH) as u64 + MAX_GROWTH_BYTES;
    println!("    {} MiB after the warm-up, {} at the end", warm >> 20, resident >> 20);
    let grew = format!("memory grew from {} to {} MiB", warm >> 20, resident >> 20);
    Ok(if resident > limit { vec![grew] } else { Vec::new() })
}

type Tasks = Vec<tokio::task::JoinHandle<()>>;

/// Starts all clients; each repeats its round until the end.
fn begin(account: &Account, ended: &watch::Receiver<bool>, counts: &Arc<Counts>) -> Tasks {
    let mut tasks = Tasks::new();
    let client =
        || Client { account: account.clone(), ended: ended.clone(), counts: Arc::clone(counts) };
    for _ in 0..4 {
        tasks.push(tokio::spawn(client().repeat(Duration::from_millis(80), write)));
        tasks.push(tokio::spawn(client().repeat(Duration::from_millis(80), read)));
        tasks.push(tokio::spawn(client().repeat(Duration::from_millis(300), give_up)));
    }
    for number in 0..40 {
        let pause = Duration::from_millis(50 + number * 7);
        tasks.push(tokio::spawn(client().repeat(pause, listen)));
        tasks.push(tokio::spawn(client().repeat(pause, talk)));
        tasks.push(tokio::spawn(client().repeat(pause, poll)));
    }
    tasks
}

#[derive(Clone)]
struct Client {
    account: Account,
    ended: watch::Receiver<bool>,
    counts: Arc<Counts>,
}

impl Client {
    async fn repeat<Round>(self, pause: Duration, round: fn(Client, u64) -> Round)
    where
        Round: Future<Output = Result<()>>,
    {
        let mut ended = self.ended.clone();
        for number in 0.. {
            if *ended.borrow_and_update() {
                return;
            }
            if let Err(error) = round(self.clone(), number).await {
                self.counts.failures.fetch_add(1, Ordering::Relaxed);
                if let Ok(mut first) = self.counts.first_failure.lock() {
                    first.get_or_insert_with(|| format!("{error:#}"));
                }
            }
            self.counts.requests.fetch_add(1, Ordering::Relaxed);
            let _ = tokio::time::timeout(pause, ended.changed()).await;
        }
    }
}

/// Creates, changes, erases and deletes; sometimes large records, sometimes with a timer or a
/// handler.
async fn write(client: Client, number: u64) -> Result<()> {
    let a = &client.account;
    let bytes = if number.is_multiple_of(20) { 50_000 } else { 300 };
    let mut connection = a.connect().await?;
    let made = connection.expect(201, &a.post("/v1/notes", &schema::note(number, bytes))).await?;
    let id = made["id"].as_str().context("no id in the answer")?;
    let patch = a.patch(&format!("/v1/notes/{id}"), "{\"text\":\"changed\"}");
    connection.expect(200, &patch).await?;
    connection.expect(201, &a.post("/v1/messages", "{\"text\":\"soak\"}")).await?;
    if number.is_multiple_of(4) {
        connection.expect(201, &a.post("/v1/jobs", "{\"name\":\"soak\"}")).await?;
        let task = connection.expect(201, &a.post("/v1/tasks", "{\"name\":\"soak\"}")).await?;
        let task = task["id"].as_str().context("no id in the answer")?;
        connection.expect(200, &a.post(&format!("/v1/tasks/{task}/approve"), "{}")).await?;
    }
    if number.is_multiple_of(10) {
        let body: Value = json!({ "resource": id });
        connection.expect(201, &a.post("/v1/erasures", &body.to_string())).await?;
    }
    let deleted = connection.ask(&a.delete(&format!("/v1/notes/{id}"))).await?.status;
    ensure!((200..300).contains(&deleted), "DELETE was answered {deleted}");
    Ok(())
}

async fn read(client: Client, number: u64) -> Result<()> {
    let a = &client.account;
    let targets = ["/v1/notes?limit=50", "/v1/events?limit=50", "/v1/deliveries?limit=50"];
    a.expect(200, &a.get(targets[number as usize % targets.len()])).await.map(drop)
}

/// An upload that is aborted in the middle.
async fn give_up(client: Client, _: u64) -> Result<()> {
    let a = &client.account;
    let mut connection = a.connect().await?;
    connection.stream.write_all(&a.post_head("/v1/notes", 100_000)).await?;
    connection.stream.write_all(&[b' '; 5_000]).await?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(())
}

/// An event stream that is closed after a while.
async fn listen(client: Client, number: u64) -> Result<()> {
    let target = "/api/events?types=note.*,message";
    let accept = "Accept: text/event-stream\r\n";
    let stream = open(&client.account, target, accept, number.is_multiple_of(3)).await?;
    client.counts.channels.fetch_add(1, Ordering::Relaxed);
    stay(&client, stream, number).await
}

/// A socket that subscribes, sends typing, and is closed.
async fn talk(client: Client, number: u64) -> Result<()> {
    let target = format!("/ws?types=note.*&user=u{}", number % 50);
    let mut stream = open(&client.account, &target, HANDSHAKE, false).await?;
    client.counts.channels.fetch_add(1, Ordering::Relaxed);
    let subscribe = "{\"type\":\"subscribe\",\"types\":[\"typing\",\"online\",\"message\"]}";
    stream.write_all(&frame(subscribe)).await?;
    stream.write_all(&frame("{\"type\":\"typing\",\"data\":{\"room\":\"soak\"}}")).await?;
    stay(&client, stream, number).await
}

/// A long poll that may be closed before its response.
async fn poll(client: Client, number: u64) -> Result<()> {
    let a = &client.account;
    let mut connection = a.connect().await?;
    let answer = connection.ask(&a.get("/api/messages?limit=1&since=0")).await?;
    let position = header(&answer.head, b"x-stream-position").context("no position")?;
    let held = a.get(&format!("/api/messages?since={position}&wait=true"));
    connection.stream.write_all(&held).await?;
    client.counts.channels.fetch_add(1, Ordering::Relaxed);
    stay(&client, connection.stream, number).await
}

/// Reads for one to five seconds, or, one time in four, does not read.
async fn stay(client: &Client, mut stream: tokio::net::TcpStream, number: u64) -> Result<()> {
    let mut ended = client.ended.clone();
    let length = Duration::from_millis(1_000 + number * 389 % 4_000);
    let drain = async {
        if number % 4 == 3 {
            std::future::pending::<()>().await;
        }
        let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
    };
    tokio::select! {
        () = drain => {}
        () = tokio::time::sleep(length) => {}
        _ = ended.wait_for(|ended| *ended) => {}
    }
    Ok(())
}
