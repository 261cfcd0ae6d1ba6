//! A sends expensive reads in loops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::storm::arena::Arena;
use crate::storm::client::{Account, only};
use crate::storm::schema;

use super::Due;

/// Concurrent creates of A during the preparation.
const CREATORS: usize = 64;
/// Rows that a deep offset skips.
const NOTES: u64 = 100_000;
const QUICK_NOTES: u64 = 20_000;
/// Records of the collections that are filtered.
const FILTERED: u64 = 50_000;
const QUICK_FILTERED: u64 = 10_000;

/// Creates this many records with similar bodies.
async fn fill(a: &Account, target: &'static str, count: u64, body: Body) -> Result<()> {
    println!("    A creates {count} at {target}");
    let own = a.clone();
    a.send_many(CREATORS, count, move |number| own.post(target, &body(number)), only(201)).await
}

type Body = fn(u64) -> String;

/// Sends these requests in turn over this many connections until the time is over; returns how many
/// succeeded, and how many a limit refused.
async fn loops(
    a: &Account,
    connections: usize,
    requests: Vec<Vec<u8>>,
    length: Duration,
) -> Result<(u64, u64)> {
    let requests = Arc::new(requests);
    let until = Instant::now() + length;
    let [answered, refused] = [0, 0].map(|_| Arc::new(AtomicU64::new(0)));
    let mut tasks = Vec::new();
    for first in 0..connections {
        let (a, requests) = (a.clone(), Arc::clone(&requests));
        let (answered, refused) = (Arc::clone(&answered), Arc::clone(&refused));
        tasks.push(tokio::spawn(async move {
            let mut connection = a.connect().await?;
            for number in first.. {
                if Instant::now() >= until {
                    break;
                }
                let answer = connection.ask(&requests[number % requests.len()]).await?;
                match answer.status {
                    429 | 503 => {
                        // As the response asks for.
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        refused.fetch_add(1, Ordering::Relaxed)
                    }
                    _ => {
                        only(200)(0, &answer)?;
                        answered.fetch_add(1, Ordering::Relaxed)
                    }
                };
            }
            anyhow::Ok(())
        }));
    }
    for task in tasks {
        task.await.context("a reader broke")??;
    }
    Ok((answered.load(Ordering::Relaxed), refused.load(Ordering::Relaxed)))
}

/// Clients of A that request the last page by its number.
async fn deep_offsets(arena: &Arena, clients: usize) -> Result<Due> {
    let notes = arena.count(NOTES, QUICK_NOTES);
    fill(&arena.a, "/v1/notes", notes, |number| schema::note(number, 100)).await?;
    arena.quiet().await;
    arena.storm_begins();
    let pages = [0, 1, 2].map(|before| notes / 100 - before);
    let list = |page: u64| arena.a.get(&format!("/v1/notes?limit=100&page={page}"));
    let requests = pages.into_iter().map(list).collect();
    let (answered, refused) = loops(&arena.a, clients, requests, arena.length()).await?;
    arena.storm_ends().await;
    arena.note(format!("deep offsets: {answered} pages for A, {refused} refused"));
    Ok(due_page(arena).await?.require(answered > 0, || "A got no page in the storm".into()))
}

/// One page for A after the storm.
async fn due_page(arena: &Arena) -> Result<Due> {
    arena.a.expect(200, &arena.a.get("/v1/notes?limit=100&page=10")).await?;
    Ok(Due::new("pages", 1, 1))
}

pub async fn deep_offsets_24(arena: &Arena) -> Result<Due> {
    deep_offsets(arena, 24).await
}

pub async fn deep_offsets_1000(arena: &Arena) -> Result<Due> {
    deep_offsets(arena, if arena.quick { 200 } else { 1_000 }).await
}

/// Filters with few, distant matches: the newest half of a feed has none of them.
pub async fn scans(arena: &Arena) -> Result<Due> {
    let count = arena.count(FILTERED, QUICK_FILTERED);
    fill(&arena.a, "/v1/messages", count, |number| format!("{{\"text\":\"m{number}\"}}")).await?;
    fill(&arena.a, "/v1/badges", count, |number| format!("{{\"code\":\"c{number}\"}}")).await?;
    arena.quiet().await;
    arena.storm_begins();
    let requests = ["/v1/messages?max_id=1&limit=10", "/v1/badges?code=null&limit=10"]
        .map(|target| arena.a.get(target));
    let (answered, refused) = loops(&arena.a, 8, requests.to_vec(), arena.length()).await?;
    arena.storm_ends().await;
    arena.note(format!("scans: {answered} pages for A, {refused} refused"));
    Ok(due_page(arena).await?.require(answered > 0, || "A got no page in the storm".into()))
}
