//! Long polls: those with the same credential that ask a restive backend for the same wait here,
//! for one poll that the proxy holds at the backend. The backend sees each poll: it authenticates
//! it, counts it and returns the records that are there. Only a poll that it would hold is held
//! here instead, for the time that it names, and receives the records that the shared poll
//! receives. Records from before are never answered from here: they may have changed since.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::pin;
use tokio::select;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::blocks::Position;
use super::feed::{Answered, Batch, read_response};
use super::key::Key;
use super::reopen::Reopen;

/// Polls that the proxy holds at backends. 1,024: with the memory of all of them, 64 MiB. Further
/// polls are held by the backend.
const MAX_FEEDS: usize = 1_024;
/// Those of one credential. 64: more feeds than an application has, and no credential takes the
/// places of the others.
const MAX_FEEDS_PER_CREDENTIAL: usize = 64;
/// Records that are kept for polls that are about to wait. 64 KiB; a poll that misses some is
/// answered without records, and asks the backend.
pub(super) const RING_BYTES: usize = 64 << 10;
/// For how long a poll without clients is held. A second: clients ask again at once.
const LINGER: Duration = Duration::from_secs(1);
/// An empty response that comes sooner is not one of a poll that was held: the backend stops.
const AT_ONCE: Duration = Duration::from_secs(1);
/// Between two tries of a backend that fails.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// For how long a backend that fails is tried while clients wait. Then they ask themselves, and see
/// the failure.
const GIVE_UP: Duration = Duration::from_secs(10);
/// Clients whose shared poll has ended ask again within this time, and not all at once.
const SPREAD: Duration = Duration::from_secs(3);

/// All feeds whose polls wait here.
#[derive(Default)]
pub(crate) struct Polls {
    table: Mutex<Table>,
    numbers: AtomicU64,
    waiting: AtomicU64,
}

#[derive(Default)]
struct Table {
    feeds: HashMap<Key, Arc<Feed>>,
    /// Shared polls, by credential.
    running: HashMap<[u8; 32], usize>,
    total: usize,
}

/// The polls of one key.
#[derive(Default)]
struct Feed {
    state: Mutex<State>,
    /// Records have come, or the shared poll has ended.
    changed: Notify,
    /// The last client that waited has left.
    is_left: Notify,
}

#[derive(Default)]
struct State {
    /// Polls in progress, shared or not.
    present: usize,
    /// Those that wait here.
    waiting: usize,
    /// The shared poll, while it is held.
    run: Option<Run>,
}

/// What the shared poll has received.
struct Run {
    /// Tells it from the one after it.
    id: u64,
    /// Everything after this position is here.
    floor: Position,
    /// Where the shared poll is.
    head: Position,
    batches: VecDeque<Batch>,
    bytes: usize,
}

/// What a poll is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Waited {
    /// A JSON array.
    pub(crate) body: Bytes,
    pub(crate) position: String,
}

impl Waited {
    fn empty(position: Position) -> Waited {
        Waited { body: Bytes::from_static(b"[]"), position: position.to_string() }
    }
}

enum Look {
    Found(Waited),
    Nothing(Position),
    /// Some of what follows the position is not here any more.
    Missed,
    /// The shared poll has ended.
    Over,
}

impl Polls {
    /// A poll has come.
    pub(crate) fn enter(self: &Arc<Polls>, key: Key) -> PollSlot {
        let mut table = self.table.lock();
        let feed = table.feeds.entry(key).or_default().clone();
        let shares = {
            let mut state = feed.state.lock();
            state.present += 1;
            state.present > 1 || state.run.is_some()
        };
        let number = self.numbers.fetch_add(1, Relaxed);
        PollSlot { polls: self.clone(), key, feed, shares, number }
    }

    /// The number of polls that wait here.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    /// The number of polls that are held at backends for them.
    pub(super) fn feeds(&self) -> u64 {
        self.table.lock().total as u64
    }
}

impl Table {
    /// Counts one more shared poll, if there may be one.
    fn take(&mut self, key: &Key) -> bool {
        let mine = self.running.entry(key.credential).or_default();
        let is_free = *mine < MAX_FEEDS_PER_CREDENTIAL && self.total < MAX_FEEDS;
        if is_free {
            *mine += 1;
            self.total += 1;
        } else if *mine == 0 {
            self.running.remove(&key.credential);
        }
        is_free
    }

    fn give(&mut self, key: &Key) {
        self.total -= 1;
        if let Some(mine) = self.running.get_mut(&key.credential) {
            *mine -= 1;
            if *mine == 0 {
                self.running.remove(&key.credential);
            }
        }
    }

    /// Forgets a feed without polls.
    fn tidy(&mut self, key: &Key, feed: &Feed) {
        let is_empty = {
            let state = feed.state.lock();
            state.present == 0 && state.run.is_none()
        };
        if is_empty {
            self.feeds.remove(key);
        }
    }
}

/// A poll in progress, until it is dropped.
pub(crate) struct PollSlot {
    polls: Arc<Polls>,
    key: Key,
    feed: Arc<Feed>,
    shares: bool,
    number: u64,
}

impl PollSlot {
    /// Whether it may wait here. A poll that is alone is held by the backend.
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    /// Joins the shared poll after a position, or begins it; none if what follows that would not
    /// come here.
    pub(crate) fn join(
        &self,
        at: Position,
        repeat: impl FnOnce() -> Option<Box<dyn Reopen>>,
    ) -> Option<Waiting> {
        let mut table = self.polls.table.lock();
        let mut state = self.feed.state.lock();
        let begun = match &state.run {
            Some(run) if run.has(at) => None,
            Some(_) => return None,
            None => {
                let repeat = repeat()?;
                if !table.take(&self.key) {
                    return None;
                }
                state.run = Some(Run::new(self.number, at));
                Some(repeat)
            }
        };
        state.waiting += 1;
        drop((state, table));
        self.polls.waiting.fetch_add(1, Relaxed);
        if let Some(repeat) = begun {
            let (polls, key, feed) = (self.polls.clone(), self.key, self.feed.clone());
            tokio::spawn(run(Running { polls, key, feed, id: self.number }, repeat));
        }
        let (polls, feed) = (self.polls.clone(), self.feed.clone());
        Some(Waiting { polls, feed, at, number: self.number })
    }
}

/// Numbers in a row become numbers all over the range.
pub(super) fn scattered(number: u64) -> u32 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    (number.wrapping_add(1).wrapping_mul(GOLDEN) >> 32) as u32
}

impl Drop for PollSlot {
    fn drop(&mut self) {
        let mut table = self.polls.table.lock();
        self.feed.state.lock().present -= 1;
        table.tidy(&self.key, &self.feed);
    }
}

/// A poll that waits, until it is dropped.
pub(crate) struct Waiting {
    polls: Arc<Polls>,
    feed: Arc<Feed>,
    at: Position,
    number: u64,
}

impl Waiting {
    /// Waits for records, up to this time.
    pub(crate) async fn wait(self, time: Duration) -> Waited {
        let at = self.at;
        let end = sleep(time);
        pin!(end);
        loop {
            let changed = self.feed.changed.notified();
            pin!(changed);
            // Before the look: what comes after it is not missed.
            changed.as_mut().enable();
            let position = match self.feed.look(at) {
                Look::Found(waited) => return waited,
                Look::Nothing(position) => position,
                Look::Missed => return Waited::empty(at),
                Look::Over => {
                    select! {
                        () = sleep(self.pause()) => {}
                        () = &mut end => {}
                    }
                    return Waited::empty(at);
                }
            };
            select! {
                () = changed => {}
                () = &mut end => return Waited::empty(position),
            }
        }
    }

    /// A part of the spread that differs from that of its neighbours.
    fn pause(&self) -> Duration {
        SPREAD.mul_f64(f64::from(scattered(self.number)) / f64::from(u32::MAX))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.polls.waiting.fetch_sub(1, Relaxed);
        let mut state = self.feed.state.lock();
        state.waiting -= 1;
        if state.waiting == 0 {
            self.feed.is_left.notify_one();
        }
    }
}

/// A shared poll. However its task ends, nobody may wait for it.
struct Running {
    polls: Arc<Polls>,
    key: Key,
    feed: Arc<Feed>,
    id: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut table = self.polls.table.lock();
        self.feed.state.lock().run.take_if(|run| run.id == self.id);
        table.give(&self.key);
        table.tidy(&self.key, &self.feed);
        drop(table);
        self.feed.changed.notify_waiters();
    }
}

/// Polls the backend while clients wait.
async fn run(running: Running, repeat: Box<dyn Reopen>) {
    select! {
        () = running.feed.follow(&*repeat) => {}
        () = running.feed.abandoned() => {}
    }
}

impl Feed {
    /// One poll after the other. Ends when the backend refuses them, or fails for too long.
    async fn follow(&self, repeat: &dyn Reopen) {
        let (mut failing, mut pause) = (None, FIRST_PAUSE);
        loop {
            let Some(from) = self.state.lock().run.as_ref().map(|run| run.head) else { return };
            let asked = Instant::now();
            match read_response(repeat.reopen(from.to_string()).await).await {
                Answered::Batch(batch) => {
                    let is_early = batch.is_empty() && asked.elapsed() < AT_ONCE;
                    if !self.push(batch) {
                        return;
                    }
                    if !is_early {
                        (failing, pause) = (None, FIRST_PAUSE);
                        continue;
                    }
                }
                Answered::Refused => return,
                Answered::Failed => {}
            }
            if failing.get_or_insert(asked).elapsed() > GIVE_UP {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Gives records to the polls that wait. False if they are of another log.
    fn push(&self, batch: Batch) -> bool {
        let mut state = self.state.lock();
        let Some(run) = &mut state.run else { return false };
        if !run.push(batch) {
            return false;
        }
        drop(state);
        self.changed.notify_waiters();
        true
    }

    fn look(&self, at: Position) -> Look {
        let state = self.state.lock();
        let Some(run) = &state.run else { return Look::Over };
        if !run.has(at) {
            return Look::Missed;
        }
        let mut found = run.batches.iter().filter_map(|batch| {
            let body = batch.after(at.number)?;
            Some(Waited { body, position: batch.position.to_string() })
        });
        match found.next() {
            Some(waited) => Look::Found(waited),
            None if run.head.number > at.number => Look::Nothing(run.head),
            None => Look::Nothing(at),
        }
    }

    /// Waits until no client has waited for a while.
    async fn abandoned(&self) {
        loop {
            if self.state.lock().waiting == 0 {
                sleep(LINGER).await;
                let mut state = self.state.lock();
                if state.waiting == 0 {
                    // None can join after that.
                    state.run = None;
                    return;
                }
            }
            self.is_left.notified().await;
        }
    }
}

impl Run {
    fn new(id: u64, at: Position) -> Run {
        Run { id, floor: at, head: at, batches: VecDeque::new(), bytes: 0 }
    }

    /// Whether everything after this position is here or will come.
    fn has(&self, at: Position) -> bool {
        at.epoch == self.head.epoch && at.number >= self.floor.number
    }

    fn push(&mut self, batch: Batch) -> bool {
        if batch.position.epoch != self.head.epoch {
            return false;
        }
        self.head = batch.position;
        if batch.is_too_large {
            self.batches.clear();
            (self.bytes, self.floor) = (0, batch.position);
        } else if !batch.is_empty() {
            self.bytes += batch.bytes();
            self.batches.push_back(batch);
        }
        while self.bytes > RING_BYTES
            && let Some(old) = self.batches.pop_front()
        {
            self.bytes -= old.bytes();
            self.floor = old.position;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u64) -> Position {
        Position { epoch: 1, number }
    }

    fn batch(ids: &[u64], position: u64) -> Batch {
        let records: Vec<String> = ids.iter().map(|id| format!("{{\"id\":{id}}}")).collect();
        Batch::read(format!("[{}]", records.join(",")).into(), at(position)).unwrap()
    }

    fn feed(floor: u64) -> Feed {
        let feed = Feed::default();
        feed.state.lock().run = Some(Run::new(0, at(floor)));
        feed
    }

    fn found(feed: &Feed, number: u64) -> Option<(String, String)> {
        match feed.look(at(number)) {
            Look::Found(Waited { body, position }) => {
                Some((String::from_utf8(body.to_vec()).unwrap(), position))
            }
            Look::Nothing(_) | Look::Missed | Look::Over => None,
        }
    }

    #[test]
    fn a_poll_receives_the_records_after_its_position_and_the_position_of_their_response() {
        let feed = feed(5);
        assert!(matches!(feed.look(at(7)), Look::Nothing(position) if position == at(7)));
        assert!(matches!(feed.look(at(4)), Look::Missed), "records may be missing");
        assert!(matches!(feed.look(Position { epoch: 2, number: 7 }), Look::Missed));
        assert!(feed.push(batch(&[], 6)));
        assert!(matches!(feed.look(at(5)), Look::Nothing(position) if position == at(6)));
        assert!(feed.push(batch(&[8, 9], 10)) && feed.push(batch(&[12], 12)));
        for (number, body, position) in [
            (5, "[{\"id\":8},{\"id\":9}]", 10),
            (8, "[{\"id\":9}]", 10),
            (9, "[{\"id\":12}]", 12),
            (11, "[{\"id\":12}]", 12),
        ] {
            let expected = (body.to_owned(), format!("00000001.{position}"));
            assert_eq!(found(&feed, number), Some(expected), "{number}");
        }
        assert!(found(&feed, 12).is_none());
        let mut other = batch(&[13], 13);
        other.position.epoch = 2;
        assert!(!feed.push(other), "another log");
    }

    #[test]
    fn the_records_that_are_kept_are_bounded_and_a_poll_that_missed_some_is_sent_back() {
        let feed = feed(0);
        let large = |id: u64| {
            let text = "x".repeat(RING_BYTES / 3);
            Batch::read(format!("[{{\"id\":{id},\"text\":\"{text}\"}}]").into(), at(id)).unwrap()
        };
        for id in 1..=5 {
            assert!(feed.push(large(id)));
        }
        assert!(matches!(feed.look(at(1)), Look::Missed));
        assert!(found(&feed, 4).is_some());
        assert!(feed.state.lock().run.as_ref().unwrap().bytes <= RING_BYTES);
        let mut too_large = batch(&[], 6);
        too_large.is_too_large = true;
        assert!(feed.push(too_large));
        assert!(matches!(feed.look(at(5)), Look::Missed));
        assert!(matches!(feed.look(at(6)), Look::Nothing(_)));
    }

    #[test]
    fn a_credential_has_a_bounded_number_of_shared_polls() {
        let mut table = Table::default();
        let key = |credential: u8, number: u8| Key::numbered(credential, number);
        for number in 0..MAX_FEEDS_PER_CREDENTIAL as u8 {
            assert!(table.take(&key(1, number)));
        }
        assert!(!table.take(&key(1, 200)));
        assert!(table.take(&key(2, 0)), "others have theirs");
        table.give(&key(1, 0));
        assert!(table.take(&key(1, 200)));
        for credential in 3..=255 {
            for number in 0..MAX_FEEDS_PER_CREDENTIAL as u8 {
                table.take(&key(credential, number));
            }
        }
        assert_eq!(table.total, MAX_FEEDS);
    }

    #[test]
    fn clients_ask_again_at_different_times() {
        let mut times: Vec<u32> = (0..100).map(scattered).collect();
        times.sort_unstable();
        let widest = times.windows(2).map(|two| two[1] - two[0]).max().unwrap();
        assert!(widest < u32::MAX / 30, "{widest}");
    }
}
