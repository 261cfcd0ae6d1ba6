//! A's webhook endpoints hang, get more events than they accept, or get everything again.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use crate::storm::arena::Arena;
use crate::storm::client::{Account, only};
use crate::storm::receiver::{Manner, Receiver};
use crate::storm::schema;

use super::Due;

/// How long receivers hang, as in the original report.
const HANG: Duration = Duration::from_secs(8);
/// Time limit of the backlog of a recovered receiver.
const RECOVERY: Duration = Duration::from_secs(60);
const LARGE_BYTES: usize = 120_000;
const SMALL_BYTES: usize = 4_000;
/// Concurrent creates of A.
const CREATORS: usize = 8;

/// An endpoint at the receiver that retries every second, so that a case does not wait long.
async fn endpoint(a: &Account, receiver: &Receiver, number: u32) -> Result<String> {
    let body = json!({
        "url": receiver.url(number), "enabled_events": ["note.created"], "timeout": 30,
        "retry_schedule": vec![1; 20],
    });
    a.make("/v1/webhook-endpoints", &body).await
}

/// Creates this many endpoints, receives their pings, and makes the receiver hang.
async fn hanging(a: &Account, count: u32) -> Result<Receiver> {
    let receiver = Receiver::start(Manner::Answer)?;
    for number in 0..count {
        endpoint(a, &receiver, number).await?;
    }
    let pings = receiver.wait(u64::from(count), RECOVERY).await;
    anyhow::ensure!(pings == u64::from(count), "{pings} of {count} first pings arrived");
    receiver.set(Manner::Hang);
    Ok(receiver)
}

pub async fn pings(arena: &Arena) -> Result<Due> {
    let count: u64 = 300;
    let receiver = Receiver::start(Manner::Answer)?;
    let id = endpoint(&arena.a, &receiver, 0).await?;
    receiver.wait(1, RECOVERY).await;
    receiver.set(Manner::Hang);
    arena.quiet().await;
    arena.storm_begins();
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let (a, target) = (arena.a.clone(), format!("/v1/webhook-endpoints/{id}/ping"));
            tokio::spawn(async move {
                let answer = a.connect().await?.ask(&a.post(&target, "{}")).await?;
                anyhow::Ok(answer.status)
            })
        })
        .collect();
    tokio::time::sleep(arena.length()).await;
    arena.storm_ends().await;
    receiver.set(Manner::Answer);
    let mut statuses = Vec::new();
    for task in tasks {
        statuses.push(task.await.context("a ping broke")??);
    }
    // A refusal with a reason is a response, too.
    let answered = statuses.iter().filter(|status| matches!(status, 200 | 201 | 429 | 503)).count();
    let refused = statuses.iter().filter(|status| matches!(status, 429 | 503)).count();
    arena.note(format!("pings: {} were sent, {refused} refused", answered - refused));
    let before = receiver.arrived().0;
    arena.a.expect(201, &arena.a.post("/v1/notes", &schema::note(1, 100))).await?;
    let after = receiver.wait(before + 1, RECOVERY).await;
    Ok(Due::new("answers to pings", count, answered as u64)
        .require(after > before, || "an event after the pings did not arrive".into()))
}

/// Creates events for hanging endpoints, lets them recover, and counts arrivals.
async fn backlog(arena: &Arena, endpoints: u32, events: u64, bytes: usize) -> Result<Due> {
    let receiver = hanging(&arena.a, endpoints).await?;
    let (pings, _) = receiver.arrived();
    arena.quiet().await;
    arena.storm_begins();
    let began = Instant::now();
    let a = arena.a.clone();
    let create = move |number| a.post("/v1/notes", &schema::note(number, bytes));
    arena.a.send_many(CREATORS, events, create, only(201)).await?;
    tokio::time::sleep(HANG.saturating_sub(began.elapsed())).await;
    receiver.set(Manner::Answer);
    // The backlog is delivered while B is still measured.
    let due = u64::from(endpoints) * events;
    receiver.wait(pings + due, arena.length()).await;
    arena.storm_ends().await;
    let recovered = Instant::now();
    let arrived = receiver.wait(pings + due, RECOVERY).await - pings;
    let (_, twice) = receiver.arrived();
    arena.note(format!(
        "backlog: {arrived} of {due} arrived {:.1?} after the storm, {twice} more than once",
        recovered.elapsed()
    ));
    Ok(Due::new("deliveries", due, arrived))
}

pub async fn hanging_large(arena: &Arena) -> Result<Due> {
    backlog(arena, 20, 150, LARGE_BYTES).await
}

pub async fn hanging_many(arena: &Arena) -> Result<Due> {
    backlog(arena, 40, arena.count(400, 100), SMALL_BYTES).await
}

/// Filters that scan a large text, many times, for each event.
pub async fn filters(arena: &Arena) -> Result<Due> {
    let (endpoints, events) = (40_u32, arena.count(150, 50));
    let receiver = Receiver::start(Manner::Answer)?;
    let look = "!event.data.object.text.contains('not in there')";
    let filter = [look; 18].join(" && ");
    for number in 0..endpoints {
        let body = json!({
            "url": receiver.url(number), "enabled_events": ["note.created"], "filter": filter,
        });
        arena.a.make("/v1/webhook-endpoints", &body).await?;
    }
    let pings = receiver.wait(u64::from(endpoints), RECOVERY).await;
    arena.quiet().await;
    arena.storm_begins();
    let a = arena.a.clone();
    let create = move |number| a.post("/v1/notes", &schema::note(number, LARGE_BYTES));
    arena.a.send_many(CREATORS, events, create, only(201)).await?;
    let due = u64::from(endpoints) * events;
    receiver.wait(pings + due, arena.length()).await;
    arena.storm_ends().await;
    let arrived = receiver.wait(pings + due, RECOVERY).await - pings;
    Ok(Due::new("deliveries", due, arrived))
}

pub async fn replay(arena: &Arena) -> Result<Due> {
    let events = arena.count(150, 100);
    let a = arena.a.clone();
    let create = move |number| a.post("/v1/notes", &schema::note(number, LARGE_BYTES));
    arena.a.send_many(CREATORS, events, create, only(201)).await?;
    let receiver = Receiver::start(Manner::Answer)?;
    let id = endpoint(&arena.a, &receiver, 0).await?;
    let pings = receiver.wait(1, RECOVERY).await;
    arena.quiet().await;
    arena.storm_begins();
    let began = Instant::now();
    let body = json!({ "endpoint": id, "rate_limit": 1, "types": ["note.created"] });
    let replay = arena.a.make("/v1/replays", &body).await?;
    tokio::time::sleep(arena.length()).await;
    // An event outside the replay must not wait for its end.
    arena.a.expect(201, &arena.a.post("/v1/notes", &schema::note(events, 100))).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    arena.storm_ends().await;
    // One a second, a little less for the start.
    let due = began.elapsed().as_secs().saturating_sub(3) + 1;
    let arrived = receiver.wait(pings + due, Duration::from_secs(5)).await - pings;
    arena.a.expect(200, &arena.a.post(&format!("/v1/replays/{replay}/cancel"), "{}")).await?;
    Ok(Due::new("replayed and live deliveries", due, arrived.min(due)))
}
