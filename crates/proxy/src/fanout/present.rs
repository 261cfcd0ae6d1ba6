//! The clients of one key, and which of them makes its stream the shared one. A client that is
//! alone shares nothing: a stream for which each user has a token of its own costs no ring.

use std::task::Waker;
use std::time::{Duration, Instant};

/// For how long the oldest client is waited for. One second: longer than a busy worker needs, and a
/// client that does not read keeps nobody from sharing.
const REACTION: Duration = Duration::from_secs(1);

/// The clients that are there for one key.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) count: usize,
    /// Clients that have streams of their own and could share, the oldest first.
    waiting: Vec<(u64, Waker)>,
    /// When the oldest one was woken, so that it makes its stream the shared one.
    asked_at: Option<Instant>,
}

impl Present {
    /// Whether this client makes its stream the shared one now. The oldest comes first: all others
    /// follow its position. One that does not react is not waited for.
    pub(super) fn may_lead(&mut self, id: u64, waker: &Waker, now: Instant) -> bool {
        let oldest = self.waiting.first().filter(|(oldest, _)| *oldest != id);
        if self.count >= 2 {
            match (oldest, self.asked_at) {
                (None, _) => return true,
                (Some(_), Some(asked)) if now >= asked + REACTION => return true,
                (Some(_), Some(_)) => {}
                (Some((_, oldest)), None) => {
                    oldest.wake_by_ref();
                    self.asked_at = Some(now);
                }
            }
        }
        match self.waiting.iter_mut().find(|(other, _)| *other == id) {
            Some((_, known)) => known.clone_from(waker),
            None => self.waiting.push((id, waker.clone())),
        }
        false
    }

    /// There is a shared stream: all that wait look again.
    pub(super) fn wake(&mut self) {
        self.asked_at = None;
        self.waiting.drain(..).for_each(|(_, waker)| waker.wake());
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.count -= 1;
        if self.waiting.first().is_some_and(|(oldest, _)| *oldest == id) {
            self.asked_at = None;
        }
        self.waiting.retain(|(other, _)| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_client_leads_unless_it_does_not_react() {
        let (waker, now) = (Waker::noop(), Instant::now());
        let mut present = Present { count: 1, ..Present::default() };
        assert!(!present.may_lead(1, waker, now), "it is alone");
        present.count = 2;
        for _ in 0..2 {
            assert!(!present.may_lead(2, waker, now), "the first one is asked");
        }
        assert!(present.may_lead(1, waker, now));
        present.count = 3;
        assert!(!present.may_lead(3, waker, now));
        assert!(present.may_lead(3, waker, now + REACTION), "the first one does not react");
        present.leave(1);
        assert!(present.may_lead(2, waker, now), "it is the oldest now");
        assert!(!present.may_lead(3, waker, now), "the oldest is asked");
        present.wake();
        assert!(present.may_lead(3, waker, now), "none waits");
        present.leave(2);
        assert!(!present.may_lead(3, waker, now), "it is alone");
    }
}
