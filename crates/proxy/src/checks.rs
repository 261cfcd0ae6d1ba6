//! Active health checks: asks each server on a connection of its own, so that a busy server is not
//! taken for a dead one because its check waits behind real requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::header::{CONNECTION, HeaderName};
use http::uri::PathAndQuery;
use http::{Method, StatusCode};
use tokio::task::JoinSet;
use tokio::time::sleep;
use wire::outgoing::{Call, CallTimeouts, Client, OutgoingLimits, Retry};

use crate::balance::{Backend, Pool};
use crate::config::Check;

/// While the result of the checks contradicts the state, the next one comes sooner.
const FASTER: u32 = 2;
/// The response to a check is read up to here.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// A restive server names its version in the response to a health check.
const RESTIVE_SERVER: HeaderName = HeaderName::from_static("restive-server");

/// Checks all servers of these pools until it is dropped.
pub(crate) async fn run(pools: Vec<Arc<Pool>>) {
    let mut tasks = JoinSet::new();
    for pool in pools {
        let Some(check) = pool.group.check.clone() else { continue };
        for backend in &pool.backends {
            tasks.spawn(follow(backend.clone(), check.clone()));
        }
    }
    while tasks.join_next().await.is_some() {}
}

async fn follow(backend: Arc<Backend>, check: Check) {
    // No connection is kept: a check proves that the server accepts new ones.
    let client = Client::with_limits(OutgoingLimits { idle_total: 0, ..OutgoingLimits::default() });
    let Ok(path) = check.path.parse::<PathAndQuery>() else { return };
    loop {
        let verdict = ask(&client, &backend, &path, check.timeout).await;
        let ok = verdict == Verdict::Healthy;
        let changed = match verdict {
            Verdict::Draining => backend.health.drains(Instant::now()),
            _ => backend.health.checked(ok, &check, Instant::now()),
        };
        if changed {
            let url = &backend.server.url;
            match verdict {
                Verdict::Healthy => tracing::info!(url, "a server is healthy again"),
                Verdict::Draining => tracing::info!(url, "a server drains: it gets no requests"),
                Verdict::Failed => tracing::warn!(url, "a server is unhealthy"),
            }
        }
        let steady = changed || ok == backend.health.is_usable(Instant::now());
        sleep(if steady { check.interval } else { check.interval / FASTER }).await;
    }
}

/// What a check has found.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The server answers 2xx in time.
    Healthy,
    Failed,
    /// A restive server says that it will stop: it still answers, but should get no new requests.
    Draining,
}

async fn ask(
    client: &Client,
    backend: &Backend,
    path: &PathAndQuery,
    timeout: Duration,
) -> Verdict {
    let mut call = Call::new(Method::GET, &backend.probe);
    call.path = Some(path.clone());
    call.headers.remove(CONNECTION);
    call.retry = Retry::Never;
    call.timeouts =
        CallTimeouts { deadline: Some(Instant::now() + timeout), ..CallTimeouts::default() };
    let Ok(opened) = client.open(&mut call).await else { return Verdict::Failed };
    let (status, is_restive) = (opened.status, opened.headers.contains_key(RESTIVE_SERVER));
    let body = opened.flow.collect(MAX_RESPONSE_BYTES).await;
    let verdict = match body {
        Ok(_) if status.is_success() => Verdict::Healthy,
        Ok(body) if is_restive && status == StatusCode::SERVICE_UNAVAILABLE => {
            if is_draining(&body) { Verdict::Draining } else { Verdict::Failed }
        }
        _ => Verdict::Failed,
    };
    // A server that drains is still the same: requests in progress may need to know.
    let is_known = status.is_success() || verdict == Verdict::Draining;
    backend.is_restive.store(is_known && is_restive, Ordering::Relaxed);
    verdict
}

/// Whether the health report of a restive server says that it drains. Other reasons for 503 count
/// as failed checks: they may pass.
fn is_draining(report: &[u8]) -> bool {
    let report: Option<serde_json::Value> = serde_json::from_slice(report).ok();
    report.is_some_and(|report| report["status"] == "draining")
}
