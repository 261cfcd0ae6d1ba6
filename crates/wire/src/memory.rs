//! The memory that clients make the server hold: bodies that nobody has read yet, heads that have
//! not arrived whole, answers that the client has not taken. All connections share one
//! [`Budget`], in which a client address is a holder. A charge is given back when it is dropped.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};

use crate::budget::{Budget, Share};
use crate::payload::Payload;
use crate::peer::household;

/// What a connection may hold without a look at the budget, which all threads share. 4 KiB: most
/// requests and answers; 80 MB for as many connections as there may be.
const FREE_BYTES: usize = 4 * 1024;
/// A connection takes its part of the budget in steps, so that it seldom has to.
const STEP_BYTES: usize = 16 * 1024;
/// An answer counts at most as this part of the budget: a larger one could never be sent.
const ANSWER_PART: usize = 4;
/// While there is no room for a charge that can wait, it is tried again so often.
const RETRY: Duration = Duration::from_millis(50);

/// What one connection of HTTP/2 or HTTP/3 makes the server hold.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: Arc<Budget<IpAddr>>,
    holder: IpAddr,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// Answers among the charges.
    answers: usize,
    share: Option<Share<IpAddr>>,
}

/// A part of what a connection holds.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    bytes: usize,
    is_answer: bool,
}

/// A part of the budget for an answer that HTTP/1.1 has still to write.
pub(crate) fn share(
    budget: &Arc<Budget<IpAddr>>,
    address: IpAddr,
    bytes: usize,
) -> Option<Share<IpAddr>> {
    budget.take(household(address), bytes.min(budget.total() / ANSWER_PART))
}

/// Whether there is room for an answer that HTTP/1.1 has to write.
pub(crate) fn has_room(budget: &Arc<Budget<IpAddr>>, address: IpAddr, bytes: usize) -> bool {
    budget.has_room(household(address), bytes.min(budget.total() / ANSWER_PART))
}

impl Memory {
    pub(crate) fn new(budget: Arc<Budget<IpAddr>>, address: IpAddr) -> Arc<Memory> {
        Arc::new(Memory { budget, holder: household(address), state: Mutex::default() })
    }

    /// None while the address has its share.
    pub(crate) fn charge(self: &Arc<Memory>, bytes: usize) -> Option<Charge> {
        self.add(bytes).then(|| Charge { memory: self.clone(), bytes, is_answer: false })
    }

    /// The charge for an answer with this body, if it has one that is known.
    pub(crate) fn charge_answer(self: &Arc<Memory>, body: &Payload) -> Option<Charge> {
        let bytes = match body {
            Payload::Whole(bytes) => bytes.len(),
            Payload::Stream(_) | Payload::TakeOver(_) | Payload::Later(_) => 0,
        };
        let mut charge = self.charge(bytes.min(self.budget.total() / ANSWER_PART))?;
        charge.is_answer = true;
        self.lock().answers += 1;
        Some(charge)
    }

    /// Waits for room, for so long.
    pub(crate) async fn wait(
        self: &Arc<Memory>,
        bytes: usize,
        patience: Duration,
    ) -> Option<Charge> {
        let bytes = bytes.min(self.budget.total() / ANSWER_PART);
        let deadline = Instant::now() + patience;
        loop {
            match self.charge(bytes) {
                None if Instant::now() < deadline => sleep(RETRY).await,
                outcome => return outcome,
            }
        }
    }

    /// The same for a writer that polls. A writer that waits has no state for it here: there may be
    /// very many streams, and few ever wait.
    pub(crate) fn poll_charge(
        self: &Arc<Memory>,
        cx: &mut Context<'_>,
        bytes: usize,
    ) -> Poll<Charge> {
        if let Some(charge) = self.charge(bytes) {
            return Poll::Ready(charge);
        }
        let waker = cx.waker().clone();
        tokio::spawn(async move {
            sleep(RETRY).await;
            waker.wake();
        });
        Poll::Pending
    }

    /// Whether answers are held that the client has not taken.
    pub(crate) fn has_answers(&self) -> bool {
        self.lock().answers > 0
    }

    fn add(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        let needed = needed(state.bytes.saturating_add(bytes));
        let taken = state.share.as_ref().map_or(0, Share::amount);
        let has_room = match &mut state.share {
            _ if needed <= taken => true,
            Some(share) => share.grow(needed - taken),
            none => {
                *none = self.budget.take(self.holder, needed);
                none.is_some()
            }
        };
        if has_room {
            state.bytes += bytes;
        }
        has_room
    }

    fn remove(&self, bytes: usize, is_answer: bool) {
        let mut state = self.lock();
        state.bytes -= bytes;
        state.answers -= usize::from(is_answer);
        let needed = needed(state.bytes);
        if needed == 0 {
            state.share = None;
        } else if let Some(share) = &mut state.share {
            // A step is kept: it is often needed again at once.
            share.shrink(share.amount().saturating_sub(needed + STEP_BYTES));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a connection that holds so much needs of the budget.
fn needed(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES).next_multiple_of(STEP_BYTES)
}

impl Charge {
    /// Bytes that keep the charge as long as somebody holds a part of them.
    pub(crate) fn cover(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Covered { bytes, _charge: self })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.memory.remove(self.bytes, self.is_answer);
    }
}

struct Covered {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Covered {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(budget: &Arc<Budget<IpAddr>>, address: &str) -> Arc<Memory> {
        Memory::new(budget.clone(), address.parse().unwrap())
    }

    #[test]
    fn small_charges_leave_the_budget_alone_and_large_ones_come_back() {
        let budget = Budget::new(10 * STEP_BYTES);
        let memory = memory(&budget, "192.0.2.1");
        let small = memory.charge(FREE_BYTES).unwrap();
        assert_eq!(budget.held(), 0);
        let large = memory.charge(2 * STEP_BYTES).unwrap();
        assert_eq!(budget.held(), 2 * STEP_BYTES);
        assert!(memory.charge(4 * STEP_BYTES).is_none(), "more than what would be left");
        let covered = large.cover(Bytes::from_static(b"some bytes"));
        let part = covered.slice(5..);
        drop((small, covered));
        assert!(budget.held() > 0, "a part of them is still held");
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn an_address_is_one_holder_however_many_connections_it_has() {
        let budget = Budget::new(10 * STEP_BYTES);
        let kept: Vec<_> = (0..20)
            .filter_map(|_| memory(&budget, "2001:db8::1").charge(STEP_BYTES + FREE_BYTES))
            .collect();
        assert_eq!((kept.len(), budget.held()), (5, 5 * STEP_BYTES));
        assert!(memory(&budget, "2001:db8::2").charge(2 * FREE_BYTES).is_none(), "the same /64");
        assert!(memory(&budget, "192.0.2.1").charge(2 * FREE_BYTES).is_some());
    }

    #[test]
    fn an_answer_larger_than_the_budget_is_not_refused_for_ever() {
        let budget = Budget::new(4 * STEP_BYTES);
        let memory = memory(&budget, "192.0.2.1");
        let body = Payload::from(vec![0; 100 * STEP_BYTES]);
        let charge = memory.charge_answer(&body).unwrap();
        assert!(memory.has_answers());
        drop(charge);
        assert!(!memory.has_answers() && budget.held() == 0);
    }
}
