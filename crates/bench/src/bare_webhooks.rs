//! The limit of delivery: hyper's HTTP/1.1 client, one persistent connection per task, one
//! single-threaded runtime. Each delivery takes a prepared body, signs it in both formats and posts
//! it. The difference to this is the cost of everything that the server adds (reading the log,
//! selection, pacing, address checks, deadlines, durable attempts).

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::TcpStream;

use crate::entropy::Entropy;
use crate::histogram::Histogram;
use crate::options::Options;
use crate::process::cpu_of;

/// Warm-up before the measured run: connections, caches and branch predictors.
const WARM_UP: Duration = Duration::from_millis(300);
/// Different bodies: more than fit into the CPU cache, because a server's bodies are always new.
const BODIES: usize = 2_048;
const SECRET_BYTES: usize = 24;

/// An event that is prepared before the measurement.
struct Prepared {
    id: String,
    body: Bytes,
}

/// A key for each format, ready to be copied for each message.
struct Signer {
    text: hmac::Key,
    bytes: hmac::Key,
}

struct Bare {
    target: String,
    signer: Signer,
    events: Vec<Prepared>,
    next: Cell<usize>,
}

/// Delivers for the given time and prints the figures as JSON.
pub fn run(options: &Options) -> Result<()> {
    let target = options.target.clone().context("--target ADDR is missing")?;
    let mut entropy = Entropy::new()?;
    let secret: [u8; SECRET_BYTES] = std::array::from_fn(|_| entropy.next() as u8);
    let events = (0..BODIES).map(|_| Prepared::new(&mut entropy, options.body_bytes)).collect();
    let signer = Signer::new(&secret);
    let bare = Rc::new(Bare { target, signer, events, next: Cell::new(0) });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measure = |duration: Duration| {
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, deliver(Rc::clone(&bare), options.in_flight, duration))
    };
    measure(WARM_UP)?;
    let (began, before) = (Instant::now(), cpu_of("self")?);
    let latency = measure(options.seconds)?;
    let (elapsed, cpu) = (began.elapsed(), cpu_of("self")?.saturating_sub(before));
    let count = latency.count();
    ensure!(count > 0, "nothing was delivered");
    let figures = json!({
        "per_second": count as f64 / elapsed.as_secs_f64(),
        "p50_us": latency.micros(0.5),
        "p99_us": latency.micros(0.99),
        "cpu_us": cpu.as_secs_f64() * 1e6 / count as f64,
    });
    println!("{figures}");
    Ok(())
}

async fn deliver(bare: Rc<Bare>, tasks: usize, duration: Duration) -> Result<Histogram> {
    let until = Instant::now() + duration;
    let tasks: Vec<_> =
        (0..tasks).map(|_| tokio::task::spawn_local(connection(Rc::clone(&bare), until))).collect();
    let mut latency = Histogram::default();
    for task in tasks {
        latency.merge(&task.await.context("a connection's task broke")??);
    }
    Ok(latency)
}

/// One persistent connection, one delivery after the other.
async fn connection(bare: Rc<Bare>, until: Instant) -> Result<Histogram> {
    let stream = TcpStream::connect(&bare.target).await.context("cannot connect")?;
    stream.set_nodelay(true)?;
    let (mut sender, driven) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::task::spawn_local(driven);
    let mut latency = Histogram::default();
    while Instant::now() < until {
        let began = Instant::now();
        post(&bare, &mut sender).await?;
        latency.record(began.elapsed());
    }
    Ok(latency)
}

async fn post(bare: &Bare, sender: &mut SendRequest<Full<Bytes>>) -> Result<()> {
    let at = bare.next.get();
    bare.next.set((at + 1) % bare.events.len());
    let event = &bare.events[at];
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs().to_string();
    let request = Request::post("/e/0")
        .header("host", &bare.target)
        .header("content-type", "application/json")
        .header("user-agent", "bench/0")
        .header("webhook-id", &event.id)
        .header("webhook-timestamp", &seconds)
        .header("webhook-signature", bare.signer.standard(&event.id, &seconds, &event.body))
        .header("restive-signature", bare.signer.timestamped(&seconds, &event.body))
        .body(Full::new(event.body.clone()))?;
    sender.ready().await?;
    let answer = sender.send_request(request).await?;
    ensure!(answer.status().is_success(), "the sink answered {}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    ensure!(!body.is_empty(), "the sink answered without a body");
    Ok(())
}

impl Prepared {
    /// JSON like an event with exactly this many bytes, unless that is too few.
    fn new(entropy: &mut Entropy, bytes: usize) -> Self {
        let id = format!("evt_{}", entropy.letters(28));
        let frame = format!(
            "{{\"id\":\"{id}\",\"object\":\"event\",\"type\":\"note.created\",\"text\":\"\"}}"
        );
        let text = entropy.letters(bytes.saturating_sub(frame.len()));
        let body = frame.replace("\"text\":\"\"", &format!("\"text\":\"{text}\""));
        Self { id, body: Bytes::from(body) }
    }
}

impl Signer {
    fn new(secret: &[u8]) -> Self {
        let text = format!("whsec_{}", BASE64.encode(secret));
        Self {
            text: hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()),
            bytes: hmac::Key::new(hmac::HMAC_SHA256, secret),
        }
    }

    /// `t=<seconds>,v1=<hex>` over `<seconds>.<body>`.
    fn timestamped(&self, seconds: &str, body: &[u8]) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut mac = hmac::Context::with_key(&self.text);
        [seconds.as_bytes(), b".", body].iter().for_each(|part| mac.update(part));
        let mut header = String::with_capacity(96);
        header.push_str("t=");
        header.push_str(seconds);
        header.push_str(",v1=");
        for byte in mac.sign().as_ref() {
            header.push(char::from(DIGITS[usize::from(byte >> 4)]));
            header.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        header
    }

    /// `v1,<base64>` over `<id>.<seconds>.<body>`.
    fn standard(&self, id: &str, seconds: &str, body: &[u8]) -> String {
        let mut mac = hmac::Context::with_key(&self.bytes);
        let parts = [id.as_bytes(), b".", seconds.as_bytes(), b".", body];
        parts.iter().for_each(|part| mac.update(part));
        let mut header = String::with_capacity(48);
        header.push_str("v1,");
        BASE64.encode_string(mac.sign(), &mut header);
        header
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_sign_as_their_libraries_expect() {
        let secret: [u8; 32] = std::array::from_fn(|at| at as u8 + 1);
        let signer = Signer::new(&secret);
        let body = br#"{"id":"evt_01","object":"event"}"#;
        assert_eq!(
            signer.timestamped("1760000000", body),
            "t=1760000000,v1=fa3006d66abdcdf1bcf6a2cc76e57b5fe3fb21fedc7fc0a121cea98f56aa5a8c"
        );
        assert_eq!(
            signer.standard("evt_01", "1760000000", body),
            "v1,bdPrhT9a9e2XHg0LHIjMhFTurK32cpZm+Ekd5USy3Ik="
        );
    }

    #[test]
    fn a_body_is_json_of_the_size_it_was_asked_for() {
        let event = Prepared::new(&mut Entropy::new().unwrap(), 1_024);
        assert_eq!(event.body.len(), 1_024);
        let value: serde_json::Value = serde_json::from_slice(&event.body).unwrap();
        assert_eq!(value["id"], event.id.as_str());
    }
}
