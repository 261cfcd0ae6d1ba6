//! A sends many writes at once: erasures, timers, cascades, creates.

use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::http::Answer;
use crate::storm::arena::Arena;
use crate::storm::client::{Account, only};
use crate::storm::schema;

use super::Due;

/// Concurrent requests of A during the preparation.
const CLIENTS: usize = 64;
/// Time limit of A's requests after the storm.
const RECOVERY: Duration = Duration::from_secs(60);
/// Interval at which a waiting case checks.
const LOOK: Duration = Duration::from_millis(100);

/// Creates records; returns their ids.
async fn made(a: &Account, target: &'static str, count: u64, body: Body) -> Result<Vec<String>> {
    println!("    A creates {count} at {target}");
    let ids = Arc::new(Mutex::new(Vec::new()));
    let (own, kept) = (a.clone(), Arc::clone(&ids));
    let keep = move |number: u64, answer: &Answer| {
        only(201)(number, answer)?;
        let record: Value = serde_json::from_slice(&answer.body)?;
        let id = record["id"].as_str().context("no id in the answer")?;
        kept.lock().map_err(|_| anyhow::anyhow!("a sender broke"))?.push(id.to_owned());
        Ok(())
    };
    a.send_many(CLIENTS, count, move |number| own.post(target, &body(number)), keep).await?;
    let ids = ids.lock().map_err(|_| anyhow::anyhow!("a sender broke"))?;
    Ok(ids.clone())
}

type Body = fn(u64) -> String;

/// Erases these resources at once; returns the number of erased events.
async fn erase(a: &Account, ids: Vec<String>) -> Result<u64> {
    let tasks: Vec<_> = ids
        .into_iter()
        .map(|id| {
            let a = a.clone();
            tokio::spawn(async move {
                let body = json!({ "resource": id }).to_string();
                a.expect(201, &a.post("/v1/erasures", &body)).await?;
                anyhow::Ok(id)
            })
        })
        .collect();
    let mut erased = 0;
    for task in tasks {
        let id = task.await.context("an erasure broke")??;
        // The newest and the oldest events, which may be erased some time after the response.
        let until = Instant::now() + RECOVERY;
        while !is_erased(a, &id).await? {
            ensure!(Instant::now() < until, "the events of {id} are not erased");
            tokio::time::sleep(LOOK).await;
        }
        erased += 1;
    }
    Ok(erased)
}

/// Whether neither the newest nor the oldest event of a record has a payload.
async fn is_erased(a: &Account, id: &str) -> Result<bool> {
    for sort in ["created", "-created"] {
        let target = format!("/v1/events?resource={id}&limit=20&sort={sort}");
        let page = a.expect(200, &a.get(&target)).await?;
        let events = page["data"].as_array().context("a list without data")?;
        ensure!(!events.is_empty(), "{id} has no events");
        if !events.iter().all(|event| event["data"]["object"]["erased"] == true) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// One record with very many events.
pub async fn erasure_of_many(arena: &Arena) -> Result<Due> {
    let events = arena.count(300_000, 30_000);
    let id = made(&arena.a, "/v1/notes", 1, |_| schema::note(1, 100)).await?.remove(0);
    println!("    A updates it {events} times");
    let (a, target) = (arena.a.clone(), format!("/v1/notes/{id}"));
    let patch = move |number| a.patch(&target, &format!("{{\"number\":{number}}}"));
    arena.a.send_many(CLIENTS, events, patch, only(200)).await?;
    arena.quiet().await;
    arena.storm_begins();
    let began = Instant::now();
    let erased = erase(&arena.a, vec![id]).await?;
    arena.note(format!("erasure: {events} events erased in {:.1?}", began.elapsed()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    arena.storm_ends().await;
    Ok(Due::new("erasures", 1, erased))
}

/// Records of 100 MB together, in ten versions of 100 KB each, erased at once.
pub async fn erasures_of_large(arena: &Arena) -> Result<Due> {
    const LARGE_BYTES: usize = 100_000;
    let records = arena.count(100, 20);
    let ids = made(&arena.a, "/v1/notes", records, |n| schema::note(n, LARGE_BYTES)).await?;
    let (a, own) = (arena.a.clone(), ids.clone());
    let patch = move |number: u64| {
        let id = &own[(number % records) as usize];
        a.patch(&format!("/v1/notes/{id}"), &format!("{{\"number\":{number}}}"))
    };
    arena.a.send_many(8, records * 9, patch, only(200)).await?;
    arena.quiet().await;
    arena.storm_begins();
    let began = Instant::now();
    let erased = erase(&arena.a, ids).await?;
    arena.note(format!("erasures: {records} records erased in {:.1?}", began.elapsed()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    arena.storm_ends().await;
    Ok(Due::new("erasures", records, erased))
}

/// Timers that become due at once: the server is suspended until all of them are.
pub async fn timers(arena: &Arena) -> Result<Due> {
    let jobs = arena.count(50_000, 5_000);
    let began = Instant::now();
    made(&arena.a, "/v1/jobs", jobs, |number| format!("{{\"name\":\"{number}\"}}")).await?;
    let last = Instant::now();
    arena.quiet().await;
    ensure!(began.elapsed() < arena.timer, "the first timers were due too soon");
    arena.signal("STOP")?;
    // waits for: the last timer
    tokio::time::sleep(arena.timer.saturating_sub(last.elapsed())).await;
    arena.signal("CONT")?;
    arena.storm_begins();
    let (began, until) = (Instant::now(), Instant::now() + RECOVERY);
    while waiting(&arena.a).await? && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    arena.note(format!("timers: {jobs} after {:.1?}", began.elapsed()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    arena.storm_ends().await;
    let left = if waiting(&arena.a).await? { jobs } else { 0 };
    Ok(Due::new("timers", jobs, jobs - left))
}

/// Whether a job is not done yet.
async fn waiting(a: &Account) -> Result<bool> {
    let page = a.expect(200, &a.get("/v1/jobs?status=waiting&limit=1")).await?;
    Ok(!page["data"].as_array().context("a list without data")?.is_empty())
}

/// Parents with a thousand children each, deleted at once.
pub async fn cascade(arena: &Arena) -> Result<Due> {
    const CHILDREN: u64 = 1_000;
    let shelves = arena.count(100, 10);
    let ids = made(&arena.a, "/v1/shelves", shelves, |n| format!("{{\"name\":\"{n}\"}}")).await?;
    println!("    A creates {} children", shelves * CHILDREN);
    let (a, own) = (arena.a.clone(), ids.clone());
    let create = move |number: u64| {
        let id = &own[(number / CHILDREN) as usize];
        a.post(&format!("/v1/shelves/{id}/volumes"), &format!("{{\"title\":\"{number}\"}}"))
    };
    arena.a.send_many(CLIENTS, shelves * CHILDREN, create, only(201)).await?;
    arena.quiet().await;
    arena.storm_begins();
    let began = Instant::now();
    let (a, own) = (arena.a.clone(), ids.clone());
    let delete = move |number: u64| a.delete(&format!("/v1/shelves/{}", own[number as usize]));
    let see = |_: u64, answer: &Answer| {
        ensure!(matches!(answer.status, 200 | 202 | 204), "DELETE was answered {}", answer.status);
        Ok(())
    };
    arena.a.send_many(ids.len(), shelves, delete, see).await?;
    arena.note(format!("cascade: {} records in {:.1?}", shelves * CHILDREN, began.elapsed()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    arena.storm_ends().await;
    let page = arena.a.expect(200, &arena.a.get("/v1/shelves?limit=1000")).await?;
    let left = page["data"].as_array().context("a list without data")?.len() as u64;
    Ok(Due::new("deleted parents", shelves, shelves - left))
}

/// Creates without a pause.
pub async fn creates(arena: &Arena) -> Result<Due> {
    arena.quiet().await;
    arena.storm_begins();
    let until = Instant::now() + arena.length();
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let a = arena.a.clone();
        tasks.push(tokio::spawn(async move {
            let mut connection = a.connect().await?;
            let mut count = 0;
            while Instant::now() < until {
                connection.expect(201, &a.post("/v1/notes", &schema::note(count, 1_000))).await?;
                count += 1;
            }
            anyhow::Ok(count)
        }));
    }
    let mut created = 0;
    for task in tasks {
        created += task.await.context("a creator broke")??;
    }
    arena.storm_ends().await;
    let rate = created as f64 / arena.length().as_secs_f64();
    arena.note(format!("creates: {created} by A, {rate:.0}/s"));
    Ok(Due::new("creates", created, created))
}
