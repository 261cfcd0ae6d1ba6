//! Answers callers whose event the disk does not store in time: a sync that hangs must not keep the
//! provider waiting. The event may still be stored; the provider sends it again, and it is known.

use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::Error;
use super::queue::{Job, Queue};

/// How late an answer may be.
const TICK: Duration = Duration::from_millis(200);

pub(super) fn run(queue: &Queue) {
    let mut waiting = queue.lock();
    while !waiting.ended {
        let now = Instant::now();
        for (deadline, answer) in &waiting.committing {
            if *deadline <= now {
                let _ = answer.send(Err(Error::Late));
            }
        }
        // What nobody waits for is not stored.
        waiting.jobs.retain(|job| match job {
            Job::Accept(accept) if accept.deadline <= now => {
                let _ = accept.answer.send(Err(Error::Late));
                false
            }
            _ => true,
        });
        let waited = queue.ending.wait_timeout(waiting, TICK);
        waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
