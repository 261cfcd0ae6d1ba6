//! Runs the delivery engine on a separate thread, so that slow endpoints do not delay requests and
//! requests do not delay deliveries.

use crate::outside::System;
use model::Schema;
use model::Timestamp;
use model::id::Entropy;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use store::Store;
use store::cluster::Cluster;
use tokio::sync::oneshot;
use webhooks::{Limits, Metrics, Parts};

/// The running engine; `stop` shuts it down gracefully.
pub struct Deliveries {
    stop: oneshot::Sender<()>,
    /// Closed when the thread ends, even by a panic.
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
    drain: Duration,
}

impl Deliveries {
    pub fn start(
        schema: Arc<Schema>,
        store: Arc<dyn Store>,
        cluster: Arc<dyn Cluster>,
        folder: &Path,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Deliveries> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let limits = wire::outgoing::OutgoingLimits { idle_per_target: 100, ..Default::default() };
        let parts = Parts {
            schema,
            store,
            cluster,
            client: wire::Client::with_limits(limits),
            folder: Some(folder.to_owned()),
            outside: Arc::new(System::new()),
            limits: Limits::default(),
            metrics,
        };
        let drain = parts.limits.drain;
        let (ends, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("webhooks".into()).spawn(move || {
            let _ends: oneshot::Sender<()> = ends;
            runtime.block_on(webhooks::run(parts, async {
                let _ = stopped.await;
            }));
        })?;
        Ok(Deliveries { stop, ended, thread, drain })
    }

    /// The longest time that `stop` takes unless the engine hangs.
    pub fn drain(&self) -> Duration {
        self.drain
    }

    /// Waits for deliveries in progress and makes their results durable. The future may be dropped
    /// earlier; the thread is then left behind, because a thread that hangs must not delay the end
    /// of the process.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.ended.await;
        // The thread has finished, so this does not block.
        if self.thread.join().is_err() {
            tracing::error!("the delivery engine panicked");
        }
    }
}

impl webhooks::Outside for System {
    fn now(&self) -> Timestamp {
        api::Outside::now(self)
    }

    fn entropy(&self) -> Entropy {
        api::Outside::entropy(self)
    }
}
