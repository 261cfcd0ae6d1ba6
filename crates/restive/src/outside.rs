//! Clocks, randomness and signals: the only place where the program reads them.

use model::Timestamp;
use model::id::Entropy;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};

pub struct System {
    started: Instant,
}

impl System {
    pub fn new() -> System {
        System { started: Instant::now() }
    }
}

impl api::Outside for System {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    fn entropy(&self) -> Entropy {
        let mut bytes = [0; 32];
        // Without randomness, ids and keys would be guessable, so the process stops.
        getrandom::fill(&mut bytes).expect("the system has random bytes");
        Entropy(bytes)
    }
}

/// Completes at SIGTERM or SIGINT. Signals are received from the call on, so call it before the
/// server announces that it runs: an earlier signal would end the process at once.
pub fn stop_signal() -> anyhow::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
