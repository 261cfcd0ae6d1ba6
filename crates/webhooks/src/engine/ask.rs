//! Questions of queues and replays to the store: account by account, a few at a time, each with
//! bytes set aside for its answer before it is asked. Nothing is loaded here for which there is no
//! room.

use super::tasks::{Answer, TaskResult};
use super::{Engine, Requester};
use crate::prepared::Prepared;
use crate::queue::{Feed, Need};
use crate::store_retry::until_answered;
use crate::timers::Alarm;
use model::event::Event;
use std::rc::Rc;
use wire::Share;

/// One question may bring this part of all loaded bytes.
const READ_BYTES_PART: usize = 32;
/// Retries fetched at a time, at most.
const FETCHED: usize = 64;
/// Ordered events read again at a time.
const HELD_AT_A_TIME: usize = 16;

impl Engine {
    /// Puts a queue in line for the store, if it has something to ask; or sets its alarm.
    pub(super) fn want(&mut self, number: i64) {
        let (now, time) = (self.clock.now, self.clock.steady);
        let can_join = self.can_join(number);
        let Some(queue) = self.queues.get_mut(&number) else { return };
        if queue.intake.waiting || queue.intake.asking {
            return;
        }
        let need = queue.need(self.loaded.room(queue.account()), now, time, &self.limits);
        match need {
            Need::Nothing => {}
            Need::At(at) => self.timers.set(at, Alarm::Queue(number)),
            Need::Read if let Some(at) = queue.evaluation_wait(&self.evaluation_time) => {
                self.timers.set(at, Alarm::Queue(number));
            }
            Need::Read if queue.intake.searches && !can_join => self.search(number),
            Need::RetryIndex | Need::Retries | Need::Held | Need::Read => {
                queue.intake.waiting = true;
                self.asks.push(queue.account(), Requester::Queue(number));
            }
        }
    }

    /// What one question may bring.
    pub(super) fn read_bytes(&self) -> usize {
        self.limits.loaded_bytes / READ_BYTES_PART
    }

    pub(super) fn serve_asks(&mut self) {
        while self.asking < self.limits.reads {
            let bytes = self.read_bytes();
            let (queues, replays, loaded) = (&self.queues, &self.replays, &self.loaded);
            let next = self.asks.pop_with(|account, requester| {
                let least = match requester {
                    Requester::Queue(number) => {
                        queues.get(number).map_or(0, |queue| queue.intake.reserve)
                    }
                    Requester::Replay(number) => replays.reserve(*number),
                };
                loaded.reserve(account, bytes, least)
            });
            let Some((requester, reserved)) = next else { return };
            match requester {
                Requester::Queue(number) => self.ask_for_queue(number, reserved),
                Requester::Replay(number) => self.ask_for_replay(number, reserved),
            }
        }
    }

    fn ask_for_queue(&mut self, number: i64, reserved: Share<i64>) {
        let (now, time) = (self.clock.now, self.clock.steady);
        let Some(queue) = self.queues.get_mut(&number) else { return };
        queue.intake.waiting = false;
        let room = self.loaded.room(queue.account()) + reserved.amount();
        let need = queue.need(room, now, time, &self.limits);
        let bytes = reserved.amount() / Prepared::BYTES_FACTOR;
        let (store, limits) = (self.store.clone(), self.limits.clone());
        match need {
            Need::Nothing => {}
            Need::At(at) => self.timers.set(at, Alarm::Queue(number)),
            Need::Read if let Some(at) = queue.evaluation_wait(&self.evaluation_time) => {
                self.timers.set(at, Alarm::Queue(number));
            }
            Need::Read => self.read_on(number, reserved),
            Need::RetryIndex => {
                queue.intake.census = crate::queue::RetryIndex::Asked;
                let most = limits.held;
                self.ask_store(number, None, async move {
                    let records =
                        until_answered("retries", &limits, || store.pending_retries(number, most))
                            .await;
                    Answer::RetryIndex { records, most }
                });
            }
            Need::Retries => {
                queue.retries.due = None;
                queue.retries.requested = false;
                let most =
                    queue.sending.pace.window().clamp(1, FETCHED) + queue.retries.trying.len();
                self.ask_store(number, Some(reserved), async move {
                    let ask = || store.retries(number, time, most, bytes);
                    let retries = until_answered("retries", &limits, ask).await;
                    Answer::Retries { retries, most }
                });
            }
            Need::Held => {
                let free = queue.intake.order.free().iter().take(HELD_AT_A_TIME);
                let (seqs, scope) = (free.copied().collect::<Vec<_>>(), queue.endpoint.scope);
                self.ask_store(number, Some(reserved), async move {
                    let mut found: Vec<(i64, Option<Event>)> = Vec::new();
                    let mut left = bytes;
                    for seq in seqs {
                        let ask = || store.events(Some(scope), seq - 1, 1);
                        let event = until_answered("the log", &limits, ask).await.pop();
                        let event = event.filter(|event| event.seq == seq);
                        let weight = event.as_ref().map_or(0, store::event_bytes);
                        if weight > left && !found.is_empty() {
                            break;
                        }
                        left = left.saturating_sub(weight);
                        found.push((seq, event));
                    }
                    Answer::Held(found)
                });
            }
        }
    }

    /// Asks for a queue; there is one question of it at a time.
    pub(super) fn ask_store(
        &mut self,
        number: i64,
        reserved: Option<Share<i64>>,
        question: impl Future<Output = Answer> + 'static,
    ) {
        self.asking += 1;
        let mut opened = 0;
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.intake.asking = true;
            opened = queue.opened;
        }
        self.tasks.run(async move {
            let answer = question.await;
            TaskResult::Queue { number, opened, answer, reserved }
        });
    }

    pub(super) fn answered(
        &mut self,
        (number, opened): (i64, u64),
        answer: Answer,
        reserved: Option<Share<i64>>,
    ) {
        self.asking -= 1;
        // From here on each event is charged by itself.
        drop(reserved);
        let queue = self.queues.get_mut(&number).filter(|queue| queue.opened == opened);
        let Some(queue) = queue else { return };
        queue.intake.asking = false;
        queue.intake.reserve = 0;
        match answer {
            Answer::Read(batch) => self.was_read(number, batch),
            Answer::Retries { retries, most } => self.got_retries(number, retries, most),
            Answer::RetryIndex { records, most } => self.got_census(number, &records, most),
            Answer::Held(events) => self.got_held(number, events),
        }
        self.touch(number);
    }

    /// Ordered events whose turn has come.
    fn got_held(&mut self, number: i64, events: Vec<(i64, Option<Event>)>) {
        for (seq, event) in events {
            let Some(queue) = self.queues.get_mut(&number) else { return };
            // Its order was given up in the meantime, or it is read already.
            if queue.intake.order.free().front() != Some(&seq) {
                return;
            }
            let Some(event) = event else {
                // Retention removed it, and noted that it was skipped.
                queue.intake.order.take_free();
                queue.intake.order.vanished(seq);
                queue.intake.open.remove(seq);
                continue;
            };
            let weight = crate::prepared::weigh(&event);
            match Prepared::new(Rc::new(event), 1, &self.loaded) {
                Some(event) => {
                    queue.intake.order.take_free();
                    queue.intake.load_freed(event);
                }
                None => {
                    queue.intake.reserve = weight;
                    return;
                }
            }
        }
    }

    /// The queue could not load an event of this weight: it asks again once there is room.
    pub(super) fn no_room(&mut self, number: i64, seq: i64, weight: usize) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.intake.reserve = weight;
            if queue.intake.feed == Feed::Head || queue.intake.seen >= seq {
                queue.intake.fall_behind(seq - 1);
            }
        }
    }
}
