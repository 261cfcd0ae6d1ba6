//! The memory that clients make the server hold: bodies that have not been read yet, heads that
//! have not arrived whole, answers that the client has not taken. All connections share one
//! [`Budget`]. A request is charged to the address of its client, and to the account of its caller
//! as soon as the service knows that: accounts behind one address do not share one part. A charge
//! is given back when it is dropped.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use std::{future::poll_fn, mem};

use bytes::Bytes;
use tokio::time::timeout;

use crate::budget::{Budget, Share, Wait};
use crate::payload::Payload;
use crate::peer::client_network;

/// What a connection may hold without a look at the budget, which all threads share. 4 KiB: most
/// requests and answers; 80 MB for as many connections as there may be.
const FREE_BYTES: usize = 4 * 1024;
/// A connection takes its part of the budget in steps, so that it seldom has to.
const STEP_BYTES: usize = 16 * 1024;
/// An answer counts at most as this part of the budget: a larger one could never be sent.
const ANSWER_PART: usize = 4;

/// Who an answer is charged to until its client has taken it (`Limits::held_bytes`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Holder {
    /// The address of the client.
    #[default]
    Client,
    /// The account of the caller, by its number: accounts behind one address do not share a part.
    Account(i64),
    /// The address of the client, apart from everything else it holds. For the pages of operators,
    /// who can so look at a server of which others at their address hold all they may.
    Operator,
}

/// Who holds a part of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// What an address sends before its caller is known: half heads, bodies. Apart from the
    /// responses to the same address, so that clients that take none of theirs keep no other from
    /// sending requests.
    Arriving(Network),
    /// Responses to clients without credentials.
    Client(Network),
    /// Pages for operators.
    Operator(Network),
    Account(i64),
}

/// An IPv4 address, or the /64 of an IPv6 address. The numbers do not meet: the networks of IPv6
/// below 2^32 are reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Network(u64);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Network {
        Network(match client_network(address) {
            IpAddr::V4(address) => u64::from(address.to_bits()),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
        })
    }
}

impl Key {
    /// For what arrives from this client.
    pub(crate) fn arriving(client: impl Into<Network>) -> Key {
        Key::Arriving(client.into())
    }

    /// For an answer to this client.
    pub(crate) fn answer(holder: Holder, client: impl Into<Network>) -> Key {
        match holder {
            Holder::Client => Key::Client(client.into()),
            Holder::Account(number) => Key::Account(number),
            Holder::Operator => Key::Operator(client.into()),
        }
    }
}

/// What one connection of HTTP/2 or HTTP/3 makes the server hold.
#[derive(Debug)]
pub(crate) struct Memory {
    budget: Arc<Budget<Key>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Of [`FREE_BYTES`].
    free_bytes: usize,
    /// Answers among the charges.
    answers: usize,
    /// Few: a connection has one caller, unless it is a proxy's.
    held: Vec<Held>,
}

/// What one holder has over the connection.
#[derive(Debug)]
struct Held {
    key: Key,
    bytes: usize,
    share: Share<Key>,
}

/// The charges of one holder for one connection.
#[derive(Clone, Debug)]
pub(crate) struct Charges {
    memory: Arc<Memory>,
    key: Key,
}

/// The same for a writer that waits for room where there is none.
#[derive(Debug)]
pub(crate) struct QueuedCharges {
    charges: Charges,
    /// Its place in the queue; none while there is nothing to wait for.
    queued: Option<Wait<Key>>,
}

/// A part of what a connection holds.
#[derive(Debug)]
pub(crate) struct Charge {
    memory: Arc<Memory>,
    /// None for a part of what is free.
    key: Option<Key>,
    bytes: usize,
    is_answer: bool,
}

/// A part of the budget for an answer that HTTP/1.1 has still to write.
pub(crate) fn share(budget: &Arc<Budget<Key>>, key: Key, bytes: usize) -> Option<Share<Key>> {
    budget.take(key, bytes.min(budget.total() / ANSWER_PART))
}

/// Whether there is room for an answer that HTTP/1.1 has to write.
pub(crate) fn has_room(budget: &Arc<Budget<Key>>, key: Key, bytes: usize) -> bool {
    budget.has_room(key, bytes.min(budget.total() / ANSWER_PART))
}

impl Memory {
    pub(crate) fn new(budget: Arc<Budget<Key>>) -> Arc<Memory> {
        Arc::new(Memory { budget, state: Mutex::default() })
    }

    pub(crate) fn charges(self: &Arc<Memory>, key: Key) -> Charges {
        Charges { memory: self.clone(), key }
    }

    /// Whether answers are held that the client has not taken.
    pub(crate) fn has_answers(&self) -> bool {
        self.lock().answers > 0
    }

    /// Who has the bytes now, or how much of the budget is missing for them.
    fn add(&self, key: Key, bytes: usize) -> Result<Option<Key>, usize> {
        let mut state = self.lock();
        if state.free_bytes + bytes <= FREE_BYTES {
            state.free_bytes += bytes;
            return Ok(None);
        }
        if let Some(held) = state.held.iter_mut().find(|held| held.key == key) {
            let needed = held.bytes.saturating_add(bytes).next_multiple_of(STEP_BYTES);
            let missing = needed.saturating_sub(held.share.amount());
            if missing > 0 && !held.share.grow(missing) {
                return Err(missing);
            }
            held.bytes += bytes;
        } else {
            let needed = bytes.next_multiple_of(STEP_BYTES);
            let share = self.budget.take(key, needed).ok_or(needed)?;
            state.held.push(Held { key, bytes, share });
        }
        Ok(Some(key))
    }

    fn remove(&self, key: Option<Key>, bytes: usize) {
        let mut state = self.lock();
        let Some(key) = key else {
            state.free_bytes -= bytes;
            return;
        };
        let Some(place) = state.held.iter().position(|held| held.key == key) else { return };
        let held = &mut state.held[place];
        held.bytes -= bytes;
        if held.bytes == 0 {
            state.held.swap_remove(place);
        } else {
            // A step is kept: it is often needed again at once.
            let needed = held.bytes.next_multiple_of(STEP_BYTES) + STEP_BYTES;
            held.share.shrink(held.share.amount().saturating_sub(needed));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Charges {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    /// None while the holder has its share.
    pub(crate) fn take(&self, bytes: usize) -> Option<Charge> {
        let key = self.memory.add(self.key, bytes).ok()?;
        Some(Charge { memory: self.memory.clone(), key, bytes, is_answer: false })
    }

    /// The charge for an answer with this body, if it has one that is known.
    pub(crate) fn take_answer(&self, body: &Payload) -> Option<Charge> {
        let bytes = match body {
            Payload::Whole(bytes) => bytes.len(),
            Payload::Stream(_) | Payload::TakeOver(_) | Payload::Later(_) => 0,
        };
        let mut charge = self.take(bytes.min(self.most()))?;
        charge.is_answer = true;
        self.memory.lock().answers += 1;
        Some(charge)
    }

    /// Waits for room, for so long.
    pub(crate) async fn wait(&self, bytes: usize, patience: Duration) -> Option<Charge> {
        let bytes = bytes.min(self.most());
        let mut queued = self.clone().queued();
        timeout(patience, poll_fn(|cx| queued.poll_take(cx, bytes))).await.ok()
    }

    pub(crate) fn queued(self) -> QueuedCharges {
        QueuedCharges { charges: self, queued: None }
    }

    fn most(&self) -> usize {
        self.memory.budget.total() / ANSWER_PART
    }
}

impl QueuedCharges {
    pub(crate) fn charges(&self) -> &Charges {
        &self.charges
    }

    /// The writer is woken when so much is given back that there is room for it, in the order of
    /// those who wait for the same holder.
    pub(crate) fn poll_take(&mut self, cx: &mut Context<'_>, bytes: usize) -> Poll<Charge> {
        let Charges { memory, key } = &self.charges;
        loop {
            let missing = match memory.add(*key, bytes) {
                Ok(key) => {
                    self.queued = None;
                    let memory = memory.clone();
                    return Poll::Ready(Charge { memory, key, bytes, is_answer: false });
                }
                Err(missing) => missing,
            };
            if memory.budget.enqueue(&mut self.queued, *key, missing, cx.waker()) {
                return Poll::Pending;
            }
        }
    }

    /// Nothing is needed any more.
    pub(crate) fn leave(&mut self) {
        self.queued = None;
    }
}

impl Charge {
    /// Charges another holder instead. False if that has no room: then nobody is charged, and the
    /// memory must be given up.
    pub(crate) fn move_to(&mut self, key: Key) -> bool {
        if self.key.is_none() || self.key == Some(key) {
            return true;
        }
        let bytes = mem::take(&mut self.bytes);
        self.memory.remove(self.key.take(), bytes);
        let Ok(key) = self.memory.add(key, bytes) else { return false };
        (self.key, self.bytes) = (key, bytes);
        true
    }

    /// Bytes that keep the charge as long as a part of them is held.
    pub(crate) fn cover(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Covered { bytes, _charge: self })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if self.is_answer {
            self.memory.lock().answers -= 1;
        }
        self.memory.remove(self.key, self.bytes);
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

    fn charges(budget: &Arc<Budget<Key>>, key: Key) -> Charges {
        Memory::new(budget.clone()).charges(key)
    }

    fn arriving(address: &str) -> Key {
        Key::arriving(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn small_charges_use_no_budget_and_large_ones_are_returned() {
        let budget = Budget::new(10 * STEP_BYTES);
        let charges = charges(&budget, arriving("192.0.2.1"));
        let small = charges.take(FREE_BYTES).unwrap();
        assert_eq!(budget.held(), 0);
        let large = charges.take(2 * STEP_BYTES).unwrap();
        assert_eq!(budget.held(), 2 * STEP_BYTES);
        assert!(charges.take(4 * STEP_BYTES).is_none(), "more than what would be left");
        let covered = large.cover(Bytes::from_static(b"some bytes"));
        let part = covered.slice(5..);
        drop((small, covered));
        assert!(budget.held() > 0, "a part of them is still held");
        drop(part);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn all_connections_of_an_address_are_one_holder() {
        let budget = Budget::new(10 * STEP_BYTES);
        let take = |address: &str| charges(&budget, arriving(address)).take(STEP_BYTES);
        let kept: Vec<_> = (0..20).filter_map(|_| take("2001:db8::1")).collect();
        assert_eq!((kept.len(), budget.held()), (5, 5 * STEP_BYTES));
        assert!(take("2001:db8::2").is_none(), "the same /64");
        assert!(take("2001:db8:0:1::1").is_some() && take("192.0.2.1").is_some());
    }

    #[test]
    fn accounts_and_operators_at_one_address_have_separate_shares() {
        let budget = Budget::new(16 * STEP_BYTES);
        let address: IpAddr = "192.0.2.1".parse().unwrap();
        let memory = Memory::new(budget.clone());
        let take = |key| memory.charges(key).take(STEP_BYTES);
        let mut kept = Vec::new();
        for holder in [Holder::Client, Holder::Account(1), Holder::Account(2), Holder::Operator] {
            let key = Key::answer(holder, address);
            let before = kept.len();
            kept.extend(std::iter::from_fn(|| take(key)));
            assert!(kept.len() > before, "{holder:?}");
        }
        assert!(take(Key::arriving(address)).is_some());
        drop(kept);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_charge_moves_to_another_holder_who_has_room() {
        let budget = Budget::new(10 * STEP_BYTES);
        let memory = Memory::new(budget.clone());
        let address = arriving("192.0.2.1");
        let take = |_| memory.charges(address).take(STEP_BYTES).unwrap();
        let mut charges: Vec<_> = (0..5).map(take).collect();
        let moved = charges.iter_mut().filter_map(|charge| {
            let moved = charge.move_to(Key::Account(7));
            moved.then_some(())
        });
        assert_eq!(moved.count(), 5);
        assert_eq!((budget.held_by(address), budget.held_by(Key::Account(7))), (0, 5 * STEP_BYTES));
        let mut other = memory.charges(address).take(STEP_BYTES).unwrap();
        assert!(!other.move_to(Key::Account(7)), "the account has its share");
        drop((charges, other));
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn a_response_larger_than_the_budget_is_sent_in_the_end() {
        let budget = Budget::new(4 * STEP_BYTES);
        let charges = charges(&budget, arriving("192.0.2.1"));
        let body = Payload::from(vec![0; 100 * STEP_BYTES]);
        let charge = charges.take_answer(&body).unwrap();
        assert!(charges.memory.has_answers());
        drop(charge);
        assert!(!charges.memory.has_answers() && budget.held() == 0);
    }

    /// What a writer does once it has its memory: others come in between.
    async fn work(done: &Mutex<Vec<usize>>, number: usize, charge: Charge) {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        done.lock().unwrap().push(number);
        drop(charge);
    }

    #[tokio::test]
    async fn waiting_writers_get_memory_in_order_even_if_others_give_up() {
        const WRITERS: usize = 300;
        const WOKEN: usize = 4;
        let patience = Duration::from_secs(30);
        let budget = Budget::new(8 * STEP_BYTES);
        let (ours, theirs) = (Key::Account(1), Key::Account(2));
        let held = charges(&budget, ours).take(WOKEN * STEP_BYTES).unwrap();
        let done: Arc<Mutex<Vec<usize>>> = Arc::default();
        let mut writers = Vec::new();
        for number in 0..WRITERS {
            let (charges, done) = (charges(&budget, ours), done.clone());
            writers.push(tokio::spawn(async move {
                let charge = charges.wait(STEP_BYTES, patience).await;
                work(&done, number, charge.unwrap()).await;
            }));
        }
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
        assert!(done.lock().unwrap().is_empty(), "all of them wait");
        let other = charges(&budget, theirs).wait(STEP_BYTES, patience).await;
        assert!(other.is_some() && done.lock().unwrap().is_empty(), "another account does not");
        drop(other);
        drop(held);
        // Those that were woken just now leave the queue before they have taken anything.
        writers.drain(..WOKEN).for_each(|writer| writer.abort());
        let all = async {
            for writer in writers {
                writer.await.unwrap();
            }
        };
        timeout(patience, all).await.expect("everybody has had a turn");
        let done = done.lock().unwrap();
        assert_eq!(done.len(), WRITERS - WOKEN);
        let in_turn = |pair: &[usize]| pair[1] + 2 * WOKEN > pair[0];
        assert!(done.windows(2).all(in_turn), "in the order in which they came: {done:?}");
        assert_eq!(budget.held(), 0);
    }

    #[tokio::test]
    async fn a_waiting_writer_continues_when_memory_is_returned() {
        let budget = Budget::new(4 * STEP_BYTES);
        let charges = charges(&budget, arriving("192.0.2.1"));
        let all = charges.take(2 * STEP_BYTES).unwrap();
        let patience = Duration::from_secs(30);
        let (waited, ()) = tokio::join!(charges.wait(STEP_BYTES, patience), async {
            tokio::task::yield_now().await;
            drop(all);
        });
        assert!(waited.is_some());
        let more = charges.take(STEP_BYTES).unwrap();
        assert!(charges.wait(STEP_BYTES, Duration::from_millis(1)).await.is_none());
        drop((waited, more));
        assert_eq!(budget.held(), 0);
    }
}
