//! Hands events to a URL, on a thread of its own: a slow handler must not delay receipts.

use crate::outside::System;
use anyhow::Context as _;
use api::Outside as _;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use restive_kit::inbox::{Event, Failure, Inbox, Lease};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use wire::Client;
use wire::outgoing::{Call, CallTimeouts, OutgoingLimits, Reply, Retry, Target};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("restive/", env!("CARGO_PKG_VERSION")));
const ID: HeaderName = HeaderName::from_static("webhook-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const ATTEMPT: HeaderName = HeaderName::from_static("restive-attempt");
const STALE: HeaderName = HeaderName::from_static("restive-stale");
/// Of a response that is stored as the reason of a failure.
const REASON_BYTES: usize = 500;

/// Checks the URL before anything starts.
pub fn target(url: &str) -> anyhow::Result<Target> {
    Target::parse(url).map_err(|fault| anyhow::anyhow!("--forward {url}: {fault}"))
}

/// Runs until the inbox is closed and the last attempt has ended.
pub fn start(
    inbox: Inbox,
    target: Target,
    workers: u16,
    timeout: Duration,
) -> anyhow::Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let limits =
        OutgoingLimits { idle_per_target: usize::from(workers), ..OutgoingLimits::default() };
    let client = Client::with_limits(limits);
    let run = move || {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..workers {
                tasks.spawn(work(inbox.clone(), client.clone(), target.clone(), timeout));
            }
            while tasks.join_next().await.is_some() {}
        });
    };
    let thread = std::thread::Builder::new().name("forward".into());
    thread.spawn(run).context("the thread of the handler cannot be started")
}

async fn work(inbox: Inbox, client: Client, target: Target, timeout: Duration) {
    while let Some(lease) = inbox.next().await {
        let result = send(&client, &target, &lease, timeout).await;
        super::finish(lease, result).await;
    }
}

async fn send(
    client: &Client,
    target: &Target,
    lease: &Lease,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut call = Call {
        headers: headers(lease, target),
        body: Bytes::from(lease.body.clone()).into(),
        timeouts: CallTimeouts::until(Instant::now() + timeout),
        retry: Retry::Replayable,
        max_response_bytes: REASON_BYTES,
        ..Call::new(Method::POST, target)
    };
    match client.send(&mut call).await.result {
        Ok(reply) if reply.status.is_success() => Ok(()),
        Ok(reply) => Err(refused(&reply)),
        Err(fault) => Err(Failure::new(format!("the handler did not answer: {fault}"))),
    }
}

fn headers(event: &Event, target: &Target) -> HeaderMap {
    let mut headers = target.headers();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, AGENT);
    headers.insert(ATTEMPT, HeaderValue::from(event.attempt));
    // An id that is no header value is in the body only.
    if let Ok(id) = HeaderValue::from_str(&event.id) {
        headers.insert(ID, id.clone());
        headers.insert(IDEMPOTENCY_KEY, id);
    }
    if event.is_stale {
        headers.insert(STALE, HeaderValue::from_static("true"));
    }
    headers
}

fn refused(reply: &Reply) -> Failure {
    let body = String::from_utf8_lossy(&reply.body);
    let failure = Failure::new(format!("the handler answered {}: {body}", reply.status.as_u16()));
    let wait = reply.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let now = System::new().now();
    match wait.and_then(|text| webhooks::retry_after(text, now)) {
        Some(wait) => failure.retry_after(wait),
        None => failure,
    }
}
