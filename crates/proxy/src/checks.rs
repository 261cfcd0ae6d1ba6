//! Active health checks: asks each server on a connection of its own, so that a busy server is not
//! taken for a dead one because its check waits behind real requests.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use http::Method;
use http::header::{CONNECTION, HeaderName};
use http::uri::PathAndQuery;
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
        let ok = ask(&client, &backend, &path, check.timeout).await;
        let changed = backend.health.checked(ok, &check, Instant::now());
        if changed {
            let url = &backend.server.url;
            match ok {
                true => tracing::info!(url, "a server is healthy again"),
                false => tracing::warn!(url, "a server is unhealthy"),
            }
        }
        let steady = changed || ok == backend.health.is_usable(Instant::now());
        sleep(if steady { check.interval } else { check.interval / FASTER }).await;
    }
}

/// Whether the server answers 2xx in time.
async fn ask(client: &Client, backend: &Backend, path: &PathAndQuery, timeout: Duration) -> bool {
    let mut call = Call::new(Method::GET, &backend.probe);
    call.path = Some(path.clone());
    call.headers.remove(CONNECTION);
    call.retry = Retry::Never;
    call.timeouts =
        CallTimeouts { deadline: Some(Instant::now() + timeout), ..CallTimeouts::default() };
    let Ok(opened) = client.open(&mut call).await else { return false };
    let is_ok = opened.status.is_success();
    backend
        .is_restive
        .store(is_ok && opened.headers.contains_key(RESTIVE_SERVER), Ordering::Relaxed);
    is_ok && opened.flow.collect(MAX_RESPONSE_BYTES).await.is_ok()
}
