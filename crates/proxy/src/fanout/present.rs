//! The clients of one key, and which of them makes its stream the shared one. A client that is
//! alone shares nothing: a stream for which each user has a token of its own costs no ring.

use std::task::Waker;

/// The clients that are there for one key.
#[derive(Debug, Default)]
pub(super) struct Present {
    pub(super) count: usize,
    /// Clients that have streams of their own and could share, the oldest first.
    waiting: Vec<(u64, Waker)>,
    /// The oldest one was woken, so that it makes its stream the shared one.
    is_asked: bool,
}

impl Present {
    /// Whether this client makes its stream the shared one now. The oldest comes first: all others
    /// follow its position. One that does not react is not waited for twice.
    pub(super) fn may_lead(&mut self, id: u64, waker: &Waker) -> bool {
        let oldest = self.waiting.first().filter(|(oldest, _)| *oldest != id);
        if self.count >= 2 {
            match oldest {
                Some((_, oldest)) if !self.is_asked => {
                    oldest.wake_by_ref();
                    self.is_asked = true;
                }
                _ => return true,
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
        self.is_asked = false;
        self.waiting.drain(..).for_each(|(_, waker)| waker.wake());
    }

    pub(super) fn leave(&mut self, id: u64) {
        self.count -= 1;
        if self.waiting.first().is_some_and(|(oldest, _)| *oldest == id) {
            self.is_asked = false;
        }
        self.waiting.retain(|(other, _)| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_client_leads_unless_it_does_not_react() {
        let waker = Waker::noop();
        let mut present = Present { count: 1, ..Present::default() };
        assert!(!present.may_lead(1, waker), "it is alone");
        present.count = 2;
        assert!(!present.may_lead(2, waker), "the first one is asked");
        assert!(present.may_lead(1, waker));
        present.count = 3;
        assert!(present.may_lead(3, waker), "the first one did not react");
        present.leave(1);
        assert!(present.may_lead(2, waker), "it is the oldest now");
        assert!(!present.may_lead(3, waker), "it is asked");
        present.wake();
        assert!(present.may_lead(3, waker), "none waits");
        present.leave(2);
        assert!(!present.may_lead(3, waker));
    }
}
