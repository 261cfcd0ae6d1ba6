//! Threads that run a function for every event.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use super::apply::panic_reason;
use super::{Error, Event, Failure, Inbox};

/// Running workers. They end when the inbox is closed.
#[derive(Debug)]
pub struct Workers {
    inbox: Inbox,
    threads: Vec<JoinHandle<()>>,
}

type Work = Arc<dyn Fn(&Event) -> Result<(), Failure> + Send + Sync>;

impl Workers {
    pub(super) fn start(inbox: Inbox, threads: usize, work: Work) -> Result<Self, Error> {
        let mut running = Vec::with_capacity(threads);
        for number in 0..threads {
            let (inbox, work) = (inbox.clone(), work.clone());
            let thread = std::thread::Builder::new().name(format!("inbox-{number}"));
            running.push(thread.spawn(move || run(&inbox, &work)).map_err(Error::Thread)?);
        }
        Ok(Self { inbox, threads: running })
    }

    /// Closes the inbox and waits for the events in progress.
    pub fn stop(self) {
        self.inbox.close();
        for thread in self.threads {
            let _ = thread.join();
        }
    }
}

fn run(inbox: &Inbox, work: &Work) {
    while let Some(lease) = inbox.next_blocking(None) {
        let result = catch_unwind(AssertUnwindSafe(|| work(&lease)));
        let result = result.unwrap_or_else(|panic| Err(Failure::new(panic_reason(&*panic))));
        // A result that cannot be stored now is stored later.
        let _ = match result {
            Ok(()) => lease.done_blocking(),
            Err(failure) => lease.failed_blocking(failure),
        };
    }
}
