//! The delivery engine on a thread of its own: a slow endpoint must not hold up a request, nor a
//! request a delivery.

use crate::outside::System;
use model::Schema;
use model::Timestamp;
use model::id::Entropy;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use store::Store;
use tokio::sync::oneshot;
use webhooks::{Limits, Metrics, Parts};

/// The running engine; `stop` ends it in good order.
pub struct Deliveries {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Deliveries {
    pub fn start(
        schema: Arc<Schema>,
        store: Arc<dyn Store>,
        folder: &Path,
        metrics: Arc<Metrics>,
    ) -> anyhow::Result<Deliveries> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let limits = wire::outgoing::OutgoingLimits { idle_per_target: 100, ..Default::default() };
        let parts = Parts {
            schema,
            store,
            client: wire::Client::with_limits(limits),
            folder: Some(folder.to_owned()),
            outside: Arc::new(System::new()),
            limits: Limits::default(),
            metrics,
        };
        let thread = std::thread::Builder::new().name("webhooks".into()).spawn(move || {
            runtime.block_on(webhooks::run(parts, async {
                let _ = stopped.await;
            }));
        })?;
        Ok(Deliveries { stop, thread })
    }

    /// Lets what is under way end, makes it durable, and returns.
    pub fn stop(self) {
        let _ = self.stop.send(());
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
