//! Ten thousand endpoints on one server: their cost at the start, in memory, in CPU time while
//! idle, and in writes during events that they do not enable.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rusqlite::{Connection as Database, OpenFlags};
use serde_json::json;

use crate::process::Service;
use crate::stage::Stage;

use super::arena::new_account;
use super::client::{Account, only};
use super::receiver::{Manner, Receiver};
use super::schema;

pub const NAME: &str = "endpoints-10k";
pub const WHAT: &str = "10,000 endpoints on one server";
/// Maximum endpoints of one account in one mode.
const PER_ACCOUNT: u64 = 2_000;
const ACCOUNTS: u64 = 5;
const QUICK_ACCOUNTS: u64 = 1;
/// The bars.
const MAX_START: Duration = Duration::from_secs(5);
const MAX_IDLE_PERCENT: f64 = 2.0;
const MAX_BYTES_EACH: f64 = 8.0 * 1024.0;
const MAX_POSITIONS_PER_SECOND: f64 = 100.0;
/// Time limit of the first ping of every endpoint.
const PING_LIMIT: Duration = Duration::from_secs(120);
/// After a start: caches are filled, and nothing is in progress.
const SETTLE: Duration = Duration::from_secs(3);
const IDLE: Duration = Duration::from_secs(5);
const EVENTS_PER_SECOND: u64 = 1_000;
const SECONDS: u64 = 5;
/// Interval of reading positions while events happen.
const LOOK: Duration = Duration::from_millis(100);

/// Returns remarks, and the missed bars.
pub fn run(stage: &Stage<'_>) -> Result<(Vec<String>, Vec<String>)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let accounts = if stage.options.quick { QUICK_ACCOUNTS } else { ACCOUNTS };
    let count = accounts * PER_ACCOUNT;
    let data = stage.folder(NAME)?;
    let file = stage.scratch.join("storm.toml");
    std::fs::write(&file, schema::text(([127, 0, 0, 1], 1).into(), 60))?;
    let start = || stage.restive(&data, Some(&file));
    start()?.stop()?;
    let without = settled_memory(start()?)?;
    let service = start()?;
    let keys = (0..accounts).map(|number| match number {
        0 => Ok(stage.key.clone()),
        _ => new_account(&stage.server, &data, &format!("account {number}")),
    });
    let keys = keys.collect::<Result<Vec<_>>>()?;
    println!("    {count} endpoints");
    // The same port for all endpoints at all times: a restart sends nothing to them.
    runtime.block_on(make(&service, &keys, count))?;
    service.stop()?;
    let service = start()?;
    let first = Account { address: service.address.clone(), key: stage.key.clone() };
    runtime.block_on(first.expect(200, &first.get("/v1/webhook-endpoints?limit=1")))?;
    let mut bars = Bars::default();
    let started = service.started_in.as_secs_f64();
    bars.at_most("start", started, MAX_START.as_secs_f64(), "s");
    std::thread::sleep(SETTLE);
    let cpu = service.cpu()?;
    std::thread::sleep(IDLE);
    let idle = (service.cpu()? - cpu).as_secs_f64() / IDLE.as_secs_f64();
    bars.at_most("idle CPU", idle * 100.0, MAX_IDLE_PERCENT, "%");
    let each = (service.memory()?.0 as f64 - without as f64) / count as f64;
    bars.at_most("memory each", each, MAX_BYTES_EACH, "bytes");
    println!("    {EVENTS_PER_SECOND} events a second that no endpoint wants");
    let rate = runtime.block_on(position_writes(&first, &data))?;
    bars.at_most("position writes", rate, MAX_POSITIONS_PER_SECOND, "per second");
    service.stop()?;
    Ok((bars.notes, bars.missed))
}

#[derive(Default)]
struct Bars {
    notes: Vec<String>,
    missed: Vec<String>,
}

impl Bars {
    fn at_most(&mut self, what: &str, value: f64, limit: f64, unit: &str) {
        let text = format!("{NAME}: {what} {value:.1} of at most {limit:.0} {unit}");
        println!("    {text}");
        if value > limit {
            self.missed.push(text.clone());
        }
        self.notes.push(text);
    }
}

/// Resident memory of an idle server; stops it.
fn settled_memory(service: Service) -> Result<u64> {
    std::thread::sleep(SETTLE);
    let (resident, _) = service.memory()?;
    service.stop()?;
    Ok(resident)
}

/// Creates the endpoints and receives the first ping of each.
async fn make(service: &Service, keys: &[String], count: u64) -> Result<()> {
    let receiver = Receiver::start(Manner::Answer)?;
    for key in keys {
        let account = Account { address: service.address.clone(), key: key.clone() };
        let (own, url) = (account.clone(), receiver.url(0));
        let create = move |_| {
            let body = json!({ "url": url, "enabled_events": ["badge.created"] });
            own.post("/v1/webhook-endpoints", &body.to_string())
        };
        account.send_many(16, PER_ACCOUNT, create, only(201)).await?;
    }
    let until = Instant::now() + PING_LIMIT;
    while receiver.requests() < count {
        let requests = receiver.requests();
        ensure!(Instant::now() < until, "{requests} of {count} first pings came");
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Position rows that change per second while an account creates at a fixed rate. Two changes of a
/// row between two reads count as one, so this is a lower bound.
async fn position_writes(account: &Account, data: &Path) -> Result<f64> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY;
    let database = Database::open_with_flags(data.join("restive.db"), flags)?;
    let mut before = positions(&database)?;
    let began = Instant::now();
    let creates = tokio::spawn(create_at_rate(account.clone()));
    let mut changed = 0;
    while !creates.is_finished() {
        tokio::time::sleep(LOOK).await;
        let now = positions(&database)?;
        changed += now.iter().filter(|(endpoint, seq)| before.get(endpoint) != Some(seq)).count();
        before = now;
    }
    creates.await.context("the creator broke")??;
    Ok(changed as f64 / began.elapsed().as_secs_f64())
}

fn positions(database: &Database) -> Result<HashMap<i64, i64>> {
    let mut query = database.prepare("SELECT endpoint, seq FROM positions")?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

async fn create_at_rate(account: Account) -> Result<()> {
    for second in 0..SECONDS {
        let began = Instant::now();
        let own = account.clone();
        let create = move |number| {
            own.post("/v1/notes", &schema::note(second * EVENTS_PER_SECOND + number, 100))
        };
        account.send_many(16, EVENTS_PER_SECOND, create, only(201)).await?;
        tokio::time::sleep(Duration::from_secs(1).saturating_sub(began.elapsed())).await;
    }
    Ok(())
}
