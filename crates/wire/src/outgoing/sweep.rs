//! Closes connections that have rested too long when nobody calls any more. One task for each
//! client, and none while no connection rests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::Shared;

/// The pause between two looks, even if connections hardly rest at all.
const SHORTEST: Duration = Duration::from_millis(10);

/// Starts the task, unless it runs. Called when a connection begins to rest.
pub(super) fn ensure(shared: &Arc<Shared>) {
    if shared.has_sweeper.load(Ordering::Acquire) || shared.has_sweeper.swap(true, Ordering::AcqRel)
    {
        return;
    }
    let sweeper = Sweeper(Arc::downgrade(shared));
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(sweeper.run());
    }
}

/// Its end, by the end of its runtime also, lets another one start.
struct Sweeper(Weak<Shared>);

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.has_sweeper.store(false, Ordering::Release);
        }
    }
}

impl Sweeper {
    async fn run(mut self) {
        loop {
            let Some(idle_time) = self.0.upgrade().map(|shared| shared.limits.idle_time) else {
                return;
            };
            tokio::time::sleep((idle_time / 4).max(SHORTEST)).await;
            let Some(shared) = self.0.upgrade() else { return };
            let now = Instant::now();
            shared.pool.remove_expired(now);
            shared.sessions.remove_expired(now);
            if !has_idle(&shared) {
                shared.has_sweeper.store(false, Ordering::Release);
                // One that came to rest before that line relied on this task.
                if !has_idle(&shared) || shared.has_sweeper.swap(true, Ordering::AcqRel) {
                    self.0 = Weak::new();
                    return;
                }
            }
        }
    }
}

fn has_idle(shared: &Shared) -> bool {
    shared.pool.count() + shared.sessions.count() > 0
}
