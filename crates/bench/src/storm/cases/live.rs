//! A's live channels: very slow readers, constantly changing subscriptions, and ephemeral messages
//! without a pause.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::storm::arena::Arena;
use crate::storm::channel::{HANDSHAKE, frame, open};
use crate::storm::client::Account;
use crate::storm::schema;

use super::Due;

/// Time limit of all arrivals after the storm.
const RECOVERY: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);
/// Connections that are opened at the same time.
const OPENERS: usize = 32;
const PING: &[u8] = &[0x89, 0];
/// The masked answer to a ping without payload.
const PONG: &[u8] = &[0x8a, 0x80, 0, 0, 0, 0];

/// Opens many channels; the target of each is derived from its number.
async fn open_many(
    account: &Account,
    count: usize,
    target: impl Fn(usize) -> String + Send + Sync + 'static,
    headers: &'static str,
    narrow: bool,
) -> Result<Vec<TcpStream>> {
    let target = Arc::new(target);
    let tasks: Vec<_> = (0..OPENERS)
        .map(|first| {
            let (account, target) = (account.clone(), Arc::clone(&target));
            tokio::spawn(async move {
                let mut opened = Vec::new();
                for number in (first..count).step_by(OPENERS) {
                    opened.push(open(&account, &target(number), headers, narrow).await?);
                }
                anyhow::Ok(opened)
            })
        })
        .collect();
    let mut opened = Vec::with_capacity(count);
    for task in tasks {
        opened.extend(task.await.context("an opener broke")??);
    }
    Ok(opened)
}

/// Readers of one byte a second during a flow of events.
pub async fn slow_readers(arena: &Arena) -> Result<Due> {
    let readers = arena.count(1_000, 200);
    let events = arena.count(100, 40);
    let accept = "Accept: text/event-stream\r\n";
    let target = |_| "/api/events?types=note.created".to_owned();
    let count = usize::try_from(readers)?;
    let streams = open_many(&arena.a, count, target, accept, true).await?;
    arena.quiet().await;
    arena.storm_begins();
    let (recovered, _) = watch::channel(false);
    let seen = Arc::new(AtomicU64::new(0));
    for stream in streams {
        tokio::spawn(sip(stream, recovered.subscribe(), Arc::clone(&seen)));
    }
    let pause = arena.length() / u32::try_from(events)?;
    for number in 0..events {
        let note = arena.a.post("/v1/notes", &schema::note(number, 2_000));
        arena.a.expect(201, &note).await?;
        tokio::time::sleep(pause).await;
    }
    arena.storm_ends().await;
    recovered.send_replace(true);
    let due = readers * events;
    let until = Instant::now() + RECOVERY;
    while seen.load(Ordering::Relaxed) < due && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Due::new("events on streams", due, seen.load(Ordering::Relaxed)))
}

/// Reads one byte a second until it recovers, then everything; counts the events.
async fn sip(mut stream: TcpStream, mut recovered: watch::Receiver<bool>, seen: Arc<AtomicU64>) {
    let mut buffer = Vec::new();
    while !*recovered.borrow_and_update() {
        tokio::select! {
            _ = recovered.changed() => {}
            () = tokio::time::sleep(Duration::from_secs(1)) => match stream.read_u8().await {
                Ok(byte) => buffer.push(byte),
                Err(_) => return,
            },
        }
    }
    loop {
        let member = b"\"number\":";
        let found = memmem::find_iter(&buffer, member).count();
        seen.fetch_add(found as u64, Ordering::Relaxed);
        // Keeps a possible beginning of one.
        let last = memmem::rfind(&buffer, member).map_or(0, |at| at + member.len());
        let keep = last.max(buffer.len().saturating_sub(member.len() - 1));
        buffer.drain(..keep);
        match stream.read_buf(&mut buffer).await {
            Ok(1..) => {}
            _ => return,
        }
    }
}

/// Sockets whose subscription changes every second.
pub async fn changing_subscriptions(arena: &Arena) -> Result<Due> {
    let sockets = arena.count(10_000, 500);
    let count = usize::try_from(sockets)?;
    let target = |_| "/ws?types=badge.created".to_owned();
    let streams = open_many(&arena.a, count, target, HANDSHAKE, false).await?;
    arena.quiet().await;
    arena.storm_begins();
    let (recovered, _) = watch::channel(false);
    let [acks, events] = [0, 0].map(|_| Arc::new(AtomicU64::new(0)));
    for (number, stream) in streams.into_iter().enumerate() {
        let subscriber =
            Subscriber { stream, number, acks: Arc::clone(&acks), events: Arc::clone(&events) };
        tokio::spawn(subscriber.run(recovered.subscribe(), sockets));
    }
    let until = Instant::now() + arena.length();
    let mut number = 0;
    while Instant::now() < until {
        arena.a.expect(201, &arena.a.post("/v1/notes", &schema::note(number, 100))).await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
        number += 1;
    }
    let changes = acks.load(Ordering::Relaxed);
    arena.storm_ends().await;
    recovered.send_replace(true);
    let rate = changes as f64 / arena.length().as_secs_f64();
    arena.note(format!("subscriptions: {rate:.0} changes a second were acknowledged"));
    // Every client has its last acknowledgement before the event that all are due.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let before = events.load(Ordering::Relaxed);
    arena.a.expect(201, &arena.a.post("/v1/notes", &schema::note(number, 100))).await?;
    let until = Instant::now() + RECOVERY;
    while events.load(Ordering::Relaxed) < before + sockets && Instant::now() < until {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Due::new("events on sockets", sockets, events.load(Ordering::Relaxed) - before)
        .require(changes > 0, || "no change was acknowledged".into()))
}

struct Subscriber {
    stream: TcpStream,
    number: usize,
    acks: Arc<AtomicU64>,
    events: Arc<AtomicU64>,
}

impl Subscriber {
    /// Changes its subscription every second until it recovers, then receives all notes.
    async fn run(mut self, mut recovered: watch::Receiver<bool>, sockets: u64) {
        let mut buffer = Vec::with_capacity(512);
        // Spread over the second.
        let first = Duration::from_secs_f64(self.number as f64 / sockets as f64);
        let mut due = Instant::now() + first;
        let mut subscribed = false;
        let mut over = false;
        loop {
            let sent = tokio::select! {
                _ = recovered.changed(), if !over => {
                    over = true;
                    let all = "{\"type\":\"subscribe\",\"types\":[\"note.created\"]}";
                    self.stream.write_all(&frame(all)).await
                }
                () = tokio::time::sleep_until(due.into()), if !over => {
                    due += Duration::from_secs(1);
                    let kind = if subscribed { "unsubscribe" } else { "subscribe" };
                    subscribed = !subscribed;
                    let (number, types) = (self.number, "[\"note.updated\",\"note.deleted\"]");
                    let text = format!(
                        "{{\"type\":\"{kind}\",\"types\":{types},\"resource\":\"note_{number}\"}}"
                    );
                    self.stream.write_all(&frame(&text)).await
                }
                read = self.stream.read_buf(&mut buffer) => match read {
                    Ok(1..) => self.hear(&mut buffer).await,
                    _ => return,
                },
            };
            if sent.is_err() {
                return;
            }
        }
    }

    /// Messages are short, so that one is hardly ever split.
    async fn hear(&self, buffer: &mut Vec<u8>) -> std::io::Result<()> {
        let count = |word: &[u8]| memmem::find_iter(buffer, word).count() as u64;
        self.acks.fetch_add(count(b"\"type\":\"ack\""), Ordering::Relaxed);
        self.events.fetch_add(count(b"\"number\":"), Ordering::Relaxed);
        let pinged = memmem::find(buffer, PING).is_some();
        buffer.clear();
        if pinged {
            let _ = self.stream.try_write(PONG)?;
        }
        Ok(())
    }
}

/// Ephemeral messages at full speed, and users that come and go.
pub async fn typing(arena: &Arena) -> Result<Due> {
    // The server reads 50 messages a second of each: 500 a second to 60 subscribers are 30,000
    // messages a second, which a core can send. More would measure its capacity and not fairness.
    const TYPISTS: usize = 10;
    const LISTENERS: usize = 50;
    let target = |number| format!("/ws?types=typing,online&user=u{number}");
    let ears = open_many(&arena.a, LISTENERS, target, HANDSHAKE, false).await?;
    let typists = open_many(&arena.a, TYPISTS, target, HANDSHAKE, false).await?;
    arena.quiet().await;
    arena.storm_begins();
    let until = Instant::now() + arena.length();
    for stream in ears {
        tokio::spawn(drain(stream));
    }
    let text = format!("{{\"type\":\"typing\",\"data\":{{\"room\":\"{}\"}}}}", "r".repeat(900));
    let message: Arc<[u8]> = frame(&text).into();
    for mut stream in typists {
        let message = Arc::clone(&message);
        tokio::spawn(async move {
            while Instant::now() < until && stream.write_all(&message).await.is_ok() {}
        });
    }
    for first in 0..4 {
        let a = arena.a.clone();
        tokio::spawn(async move {
            for number in 0.. {
                let target = format!("/ws?types=online&user=guest{first}-{number}");
                if Instant::now() >= until || open(&a, &target, HANDSHAKE, false).await.is_err() {
                    return;
                }
                // 200 users a second in total, each of whom comes and goes.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    let (sent, heard) = passing_of_b(arena, until).await?;
    arena.storm_ends().await;
    arena.note(format!("typing: B sent {sent} messages in passing and heard {heard}"));
    // A recovers: a subscriber receives a message.
    let mut ear = open(&arena.a, "/ws?types=note.created", HANDSHAKE, false).await?;
    arena.a.expect(201, &arena.a.post("/v1/notes", &schema::note(1, 100))).await?;
    let arrived = tokio::time::timeout(RECOVERY, hear(&mut ear, b"note.created")).await;
    Ok(Due::new("events", 1, u64::from(arrived.is_ok_and(|heard| heard.is_ok())))
        .require(heard >= sent, || format!("B heard {heard} of {sent} messages in passing")))
}

/// B types ten times a second; returns how often, and how many of these its other socket received.
async fn passing_of_b(arena: &Arena, until: Instant) -> Result<(u64, u64)> {
    let mut mouth = open(&arena.b, "/ws?types=badge.created&user=bea", HANDSHAKE, false).await?;
    let mut ear = open(&arena.b, "/ws?types=typing&user=ben", HANDSHAKE, false).await?;
    let heard = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&heard);
    let task = tokio::spawn(async move {
        while hear(&mut ear, b"\"room\"").await.is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut sent = 0;
    while Instant::now() < until {
        mouth.write_all(&frame("{\"type\":\"typing\",\"data\":{\"room\":\"b\"}}")).await?;
        sent += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let limit = Instant::now() + Duration::from_secs(5);
    while heard.load(Ordering::Relaxed) < sent && Instant::now() < limit {
        tokio::time::sleep(LOOK).await;
    }
    task.abort();
    Ok((sent, heard.load(Ordering::Relaxed)))
}

/// Reads until the word has arrived.
async fn hear(stream: &mut TcpStream, word: &[u8]) -> Result<()> {
    let mut buffer = Vec::new();
    while memmem::find(&buffer, word).is_none() {
        ensure!(stream.read_buf(&mut buffer).await? > 0, "the channel was closed");
    }
    Ok(())
}

async fn drain(mut stream: TcpStream) {
    let mut buffer = vec![0; 16 << 10];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}
