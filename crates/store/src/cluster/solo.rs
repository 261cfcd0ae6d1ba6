//! One process that owns everything: the cluster of a SQLite file.

use super::{Cluster, Holdings};
use std::sync::Arc;
use tokio::sync::watch;

/// Serves everything, alone.
pub struct Solo {
    holdings: watch::Sender<Arc<Holdings>>,
}

impl Solo {
    pub fn new() -> Arc<Solo> {
        Arc::new(Solo { holdings: watch::Sender::new(Arc::new(Holdings::all())) })
    }
}

impl Cluster for Solo {
    fn is_shared(&self) -> bool {
        false
    }

    fn holdings(&self) -> watch::Receiver<Arc<Holdings>> {
        self.holdings.subscribe()
    }
}
