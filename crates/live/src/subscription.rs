//! What every open connection does: it has a cursor in the log and sends the events after it, from
//! memory while it keeps up, from the log when it does not. There is no queue: events that the
//! client has not taken are read again.

use crate::ask::{ChannelCaller, StartPosition, Validity, ValidityCheck};
use crate::entry::{Encoding, Entry};
use crate::hub::{Hub, Ticket};
use crate::interest::{Interest, Interests};
use crate::kind::{Kind, Kinds, PerKind};
use crate::metrics::Resumed;
use crate::replies::ReplyQueue;
use crate::reset::{self, Gap};
use crate::ring::Reach;
use crate::shard::ticks;
use crate::slot::{Slot, Wakeup};
use bytes::Bytes;
use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, IoSlice};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};
use std::time::Duration;
use store::EventPage;
use tokio::io::AsyncWrite;
use wire::Raw;

/// Frames in one write.
const BATCH: usize = 16;
/// Events read from the log at a time.
const READ: usize = 16;
/// Bytes of them, but for the first: what a client takes at once is less.
const READ_BYTES: usize = 256 << 10;
/// Events in memory that are tested before other tasks run: few of them may be wanted.
const SCAN: usize = 4096;

pub struct Subscription {
    /// The count among all connections, with the hub.
    pub ticket: Ticket,
    pub slot: Slot,
    pub interests: Arc<Interests>,
    pub encoding: Encoding,
    /// Everything wanted up to here was sent.
    pub cursor: i64,
    /// Numbers of the newest ephemeral messages that were sent or missed.
    ephemeral: PerKind<u64>,
    /// Kinds of which some were missed, which the client does not know yet.
    missed: Kinds,
    /// The rest of a frame that the client did not take whole.
    rest: Option<Box<Bytes>>,
    pub replies: ReplyQueue,
    /// Only replies are sent from now on.
    pub muted: bool,
    behind: Option<Box<Behind>>,
    /// Events are being converted to its version.
    converting: Option<Converting>,
    pub now: u32,
    pub written_at: u32,
    blocked_at: Since,
    behind_at: Since,
    /// Tick at which the key expires, if it was given an end in the meantime.
    ends_at: Option<NonZeroU32>,
    resumes: bool,
    key_check: KeyCheck,
    /// The credentials were revoked.
    pub revoked: bool,
}

/// The check of the credentials, due whenever keys may have changed.
struct KeyCheck {
    validity: Arc<dyn ValidityCheck>,
    generation: u64,
    /// `Store::collection_seq` of the keys of the scope; of no time before the first look. It grows
    /// with the account's own keys only, so that others cause no checks.
    seq: i64,
    asked: Option<Box<PendingCheck>>,
}

type PendingCheck = Pin<Box<dyn Future<Output = Validity> + Send>>;

impl KeyCheck {
    /// Begins with the keys as they were when the caller was checked, not as they are now: one
    /// that was revoked in between is noticed at the first look.
    fn of(caller: &ChannelCaller) -> KeyCheck {
        let (validity, generation) = (caller.validity.clone(), caller.key_generation);
        KeyCheck { validity, generation, seq: i64::MIN, asked: None }
    }

    /// `seq` is called only if keys of any account have changed.
    fn ask(&mut self, generation: u64, seq: impl FnOnce() -> i64) {
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        let seq = seq();
        if std::mem::replace(&mut self.seq, seq) != seq {
            self.asked = Some(Box::new(self.validity.check()));
        }
    }
}

/// Since when something lasts, if it does.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Since(Option<NonZeroU32>);

impl Since {
    fn begin(&mut self, now: u32) {
        self.0 = self.0.or(NonZeroU32::new(now.saturating_add(1)));
    }

    /// For how long.
    fn ticks(self, now: u32) -> u32 {
        self.0.map_or(0, |began| now.saturating_add(1).saturating_sub(began.get()))
    }
}

/// What is read from the log for one connection.
#[derive(Default)]
struct Behind {
    reading: Option<Reading>,
    found: VecDeque<(i64, Bytes)>,
    upto: i64,
}

type Converting = Pin<Box<dyn Future<Output = ()> + Send>>;

type Reading = Pin<Box<dyn Future<Output = Result<Read, store::Error>> + Send>>;

struct Read {
    found: VecDeque<(i64, Bytes)>,
    upto: i64,
    /// What is missing: everything up to this.
    gap: Option<i64>,
}

/// How far sending came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// All of it; the connection is parked.
    Everything,
    /// The client, or the log, is waited for.
    Waiting,
    /// The client is gone.
    Gone,
}

#[derive(Clone, Copy)]
enum Item {
    Rest,
    Reply,
    /// Ephemeral messages were missed.
    Missed,
    Ephemeral(Kind, u64),
    Event(i64),
    Read(i64),
}

/// Frames for one write, none of which outlives it.
struct Batch(Vec<(Item, Bytes)>);

thread_local! {
    /// The memory of a batch, for the next one: a thread has one at a time.
    static ROOM: Cell<Vec<(Item, Bytes)>> = const { Cell::new(Vec::new()) };
}

/// What follows the frames that were gathered.
enum Next {
    /// Nothing up to this place.
    Head(i64),
    More,
    /// Nothing up to this place; other tasks run before the next events are tested.
    Pause(i64),
    /// The log is being read, or events are being converted.
    Reading,
}

impl Subscription {
    pub fn new(
        ticket: Ticket,
        encoding: Encoding,
        caller: &ChannelCaller,
        interest: Interest,
        begin: StartPosition,
    ) -> Subscription {
        let hub = &ticket.hub;
        let StartPosition { cursor, gap, resumes } = begin;
        let interests = hub.shared(caller.interests(interest, 0));
        let key_check = KeyCheck::of(caller);
        let slot = Slot::take(hub, interests.clone(), cursor);
        let mut subscription = Subscription {
            slot,
            interests,
            encoding,
            cursor,
            ephemeral: hub.ephemeral.newest(caller.scope),
            missed: Kinds::default(),
            rest: None,
            replies: ReplyQueue::default(),
            muted: false,
            behind: None,
            converting: None,
            now: 0,
            written_at: 0,
            blocked_at: Since::default(),
            behind_at: Since::default(),
            ends_at: None,
            resumes,
            key_check,
            revoked: false,
            ticket,
        };
        if let Some((gap, requested)) = gap {
            subscription.lost(gap, requested, cursor);
            subscription.ticket.hub.metrics.resumed(Resumed::WithGap);
        }
        subscription
    }

    /// What happened since the last time.
    pub fn wakeup(&mut self, cx: &mut Context<'_>) -> Wakeup {
        let wakeup = self.slot.wakeup(cx.waker());
        self.now = wakeup.now;
        self.revoked |= self.ends_at.is_some_and(|end| end.get() <= wakeup.now);
        self.cursor = self.cursor.max(wakeup.cursor);
        wakeup
    }

    /// Asks whether the credentials still hold, if keys of the account have changed since; pending
    /// until that is known. Called before anything is taken from the client or sent to it. While no
    /// key changes it costs one atomic load.
    pub fn poll_key(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (hub, scope) = (&self.ticket.hub, self.interests.scope);
        self.key_check.ask(hub.store.0.key_generation(), || hub.keys_seq(scope));
        let Some(asked) = &mut self.key_check.asked else { return Poll::Ready(()) };
        let Poll::Ready(validity) = asked.as_mut().as_mut().poll(cx) else { return Poll::Pending };
        self.key_check.asked = None;
        self.revoked |= validity == Validity::Revoked;
        self.ends_at = match validity {
            Validity::ExpiresIn(time) => {
                // An idle connection has not looked at the clock for long.
                self.now = self.slot.now();
                NonZeroU32::new(self.now.saturating_add(ticks(time)))
            }
            Validity::Valid | Validity::Revoked => None,
        };
        self.ends_at.inspect(|end| self.slot.wake_at(end.get()));
        Poll::Ready(())
    }

    /// Wakes the connection at a tick, or when its key expires.
    pub fn wake_at(&self, due: u32) {
        self.slot.wake_at(due.min(self.ends_at.map_or(u32::MAX, NonZeroU32::get)));
    }

    /// Another set of interests, from a place of the log on.
    pub fn follow(&mut self, interests: Interests, cursor: i64) {
        self.interests = self.ticket.hub.shared(interests);
        self.behind = None;
        self.converting = None;
        self.cursor = cursor;
        self.slot.change(self.interests.clone());
        self.slot.resume(cursor);
    }

    /// Whether the client took nothing for longer than it may.
    pub fn is_stalled(&self) -> bool {
        self.is_slow(self.blocked_at, self.ticket.hub.limits.stall_timeout)
    }

    /// Whether the client takes something, and was behind the log for longer than it may.
    pub fn is_behind(&self) -> bool {
        self.is_slow(self.behind_at, self.ticket.hub.limits.behind_timeout)
    }

    fn is_slow(&self, since: Since, patience: Duration) -> bool {
        let slow = since.ticks(self.now) > ticks(patience);
        // One that is being closed is counted already.
        if slow && !self.muted {
            self.ticket.hub.metrics.slow.fetch_add(1, Relaxed);
        }
        slow
    }

    pub fn is_blocked(&self) -> bool {
        self.blocked_at != Since::default()
    }

    /// Sends as much as there is and the client takes; `waiting` are the numbers of the first
    /// ephemeral messages that wait for it.
    pub fn poll_send(
        &mut self,
        raw: &mut Raw,
        cx: &mut Context<'_>,
        waiting: PerKind<u64>,
    ) -> Sent {
        let mut ephemeral = waiting != [0; 2] && !self.muted;
        self.skip_ephemeral(waiting);
        loop {
            let mut batch = Batch::new();
            self.gather_replies(&mut batch);
            let passed = if ephemeral { self.gather_ephemeral(&mut batch) } else { None };
            let next = self.gather(&mut batch, cx);
            if batch.0.is_empty() {
                self.ephemeral = passed.unwrap_or(self.ephemeral);
                ephemeral = false;
                match next {
                    Next::Head(head) if self.park(head) => return self.flushed(raw, cx),
                    Next::Head(_) | Next::More => continue,
                    Next::Pause(place) => {
                        self.cursor = self.cursor.max(place);
                        self.slot.resume(self.cursor);
                        cx.waker().wake_by_ref();
                        return Sent::Waiting;
                    }
                    Next::Reading => {
                        self.slot.resume(self.cursor);
                        return Sent::Waiting;
                    }
                }
            }
            match self.poll_write(raw, cx, &batch) {
                Poll::Ready(Ok(0)) | Poll::Ready(Err(_)) => return Sent::Gone,
                Poll::Ready(Ok(count)) => {
                    let whole = self.consume(&mut batch, count);
                    if let (true, Some(newest)) = (whole, passed) {
                        self.ephemeral = newest;
                        ephemeral = false;
                    }
                    if let (true, false, Next::Head(head)) = (whole, ephemeral, next)
                        && self.park(head)
                    {
                        return self.flushed(raw, cx);
                    }
                }
                Poll::Pending => {
                    self.block();
                    return Sent::Waiting;
                }
            }
        }
    }

    fn flushed(&self, raw: &mut Raw, cx: &mut Context<'_>) -> Sent {
        match Pin::new(raw).poll_flush(cx) {
            Poll::Ready(Err(_)) => Sent::Gone,
            Poll::Ready(Ok(())) | Poll::Pending => Sent::Everything,
        }
    }

    fn park(&mut self, head: i64) -> bool {
        self.cursor = self.cursor.max(head);
        self.behind_at = Since::default();
        if std::mem::take(&mut self.resumes) {
            self.ticket.hub.metrics.resumed(Resumed::FromMemory);
        }
        if !self.replies.is_empty() || self.muted {
            return self.replies.is_empty();
        }
        self.missed.is_empty() && self.slot.park(self.cursor)
    }

    /// The client takes no more. What was gathered is gathered again when it does.
    fn block(&mut self) {
        self.blocked_at.begin(self.now);
        self.behind = None;
        self.converting = None;
        self.slot.resume(self.cursor);
        for kind in Kind::ALL {
            let (mut missed, number) = (0, self.slot.number());
            let from = self.ephemeral[kind as usize] + 1;
            let (hub, interests) = (&self.ticket.hub, &self.interests);
            let extent = hub.ephemeral.view(self.interests.scope, kind, from, |_, one| {
                missed += u64::from(one.from != Some(number) && interests.may_receive(one));
            });
            self.ephemeral[kind as usize] = self.ephemeral[kind as usize].max(extent.newest);
            if missed > 0 && self.interests.wants_ephemeral(kind) {
                self.miss(kind, missed);
            }
        }
    }

    /// Skips ephemeral messages that are no longer there.
    fn skip_ephemeral(&mut self, waiting: PerKind<u64>) {
        for kind in Kind::ALL {
            let first = waiting[kind as usize].max(self.ephemeral[kind as usize] + 1);
            if waiting[kind as usize] == 0 {
                continue;
            }
            let buffers = &self.ticket.hub.ephemeral;
            let floor = buffers.view(self.interests.scope, kind, u64::MAX, |_, _| {}).floor;
            if floor >= first && !self.muted {
                self.miss(kind, floor + 1 - first);
            }
            self.ephemeral[kind as usize] = floor.max(first - 1);
        }
    }

    /// Notes that ephemeral messages were missed, which is reported as soon as the client takes
    /// something.
    fn miss(&mut self, kind: Kind, count: u64) {
        self.missed.add(kind);
        self.ticket.hub.metrics.dropped.fetch_add(count, Relaxed);
    }

    fn gather_replies(&self, batch: &mut Batch) {
        if let Some(rest) = &self.rest {
            batch.push(Item::Rest, Bytes::clone(rest));
        }
        for frame in self.replies.iter().take(BATCH - 1) {
            batch.push(Item::Reply, frame.clone());
        }
        if !self.missed.is_empty() && !self.muted && batch.has_room() {
            let codec = &self.ticket.hub.codec;
            let frame = reset::presence(codec, &self.interests, self.encoding, self.missed);
            batch.push(Item::Missed, frame);
        }
    }

    /// The ephemeral messages that wait, as far as there is room; the newest of them, if that is
    /// all.
    fn gather_ephemeral(&self, batch: &mut Batch) -> Option<PerKind<u64>> {
        let mut all = true;
        let mut newest = self.ephemeral;
        for kind in Kind::ALL {
            if !self.interests.wants_ephemeral(kind) {
                continue;
            }
            let from = self.ephemeral[kind as usize] + 1;
            let buffers = &self.ticket.hub.ephemeral;
            let extent = buffers.view(self.interests.scope, kind, from, |number, one| {
                if one.from == Some(self.slot.number()) || !self.interests.may_receive(one) {
                    return;
                }
                all &= batch.has_room();
                if all {
                    batch.push(Item::Ephemeral(kind, number), one.frame(self.encoding));
                }
            });
            newest[kind as usize] = newest[kind as usize].max(extent.newest);
        }
        all.then_some(newest)
    }

    fn gather(&mut self, batch: &mut Batch, cx: &mut Context<'_>) -> Next {
        if self.muted {
            self.converting = None;
            return Next::Head(self.cursor);
        }
        if self.behind.is_some() {
            return self.gather_behind(batch, cx);
        }
        if let Some(converting) = &mut self.converting {
            if converting.as_mut().poll(cx).is_pending() {
                return Next::Reading;
            }
            self.converting = None;
        }
        let (interests, encoding, version) =
            (&self.interests, self.encoding, self.interests.version);
        let mut seen = 0;
        let mut costly: Vec<Arc<Entry>> = Vec::new();
        let reach = self.ticket.hub.ring.view(interests.scope, self.cursor, |entry| {
            seen += 1;
            if !batch.has_room() || costly.len() == BATCH || seen > SCAN {
                return false;
            }
            if interests.wants(entry) {
                match entry.ready_frame(encoding, version).filter(|_| costly.is_empty()) {
                    Some(frame) => batch.push(Item::Event(entry.event.seq), frame),
                    None => costly.push(entry.clone()),
                }
            }
            true
        });
        match reach {
            _ if !costly.is_empty() => self.convert(costly, batch, cx),
            Reach::Head(head) => Next::Head(head),
            Reach::Until(place) if batch.0.is_empty() => Next::Pause(place),
            Reach::Until(_) => Next::More,
            Reach::Behind => {
                self.behind = Some(Box::default());
                self.behind_at.begin(self.now);
                self.gather_behind(batch, cx)
            }
        }
    }

    /// Has the next events converted, unless something else can be sent first.
    fn convert(&mut self, entries: Vec<Arc<Entry>>, batch: &Batch, cx: &mut Context<'_>) -> Next {
        if !batch.0.is_empty() {
            return Next::More;
        }
        let (hub, interests) = (self.ticket.hub.clone(), self.interests.clone());
        let encoding = self.encoding;
        let mut converting: Converting = Box::pin(async move {
            let (account, version) = (interests.scope.account_number(), interests.version);
            // Kept in the entries, where all connections find them.
            let convert = move |entry: Arc<Entry>| drop(entry.frame(encoding, version));
            hub.conversions.run(account, entries, convert).await;
        });
        match converting.as_mut().poll(cx) {
            Poll::Ready(()) => Next::More,
            Poll::Pending => {
                self.converting = Some(converting);
                Next::Reading
            }
        }
    }

    fn gather_behind(&mut self, batch: &mut Batch, cx: &mut Context<'_>) -> Next {
        let Some(behind) = &mut self.behind else { return Next::More };
        if behind.found.is_empty() && behind.reading.is_none() {
            // What was gathered is sent first. If the log were read for a client that takes
            // nothing, the result would be dropped and the task woken by it, again and again.
            if !batch.0.is_empty() {
                return Next::More;
            }
            if behind.upto > self.cursor {
                self.cursor = behind.upto;
            }
            // Perhaps what follows is in memory by now.
            let ring = &self.ticket.hub.ring;
            if ring.view(self.interests.scope, self.cursor, |_| false) != Reach::Behind {
                self.behind = None;
                return Next::More;
            }
            let reading =
                read(self.ticket.hub.clone(), self.interests.clone(), self.cursor, self.encoding);
            behind.reading = Some(Box::pin(reading));
        }
        if let Some(reading) = &mut behind.reading {
            match reading.as_mut().poll(cx) {
                Poll::Pending => return Next::Reading,
                Poll::Ready(Ok(Read { found, upto, gap })) => {
                    behind.reading = None;
                    (behind.found, behind.upto) = (found, upto);
                    let resumed = if gap.is_some() { Resumed::WithGap } else { Resumed::FromLog };
                    if std::mem::take(&mut self.resumes) {
                        self.ticket.hub.metrics.resumed(resumed);
                    }
                    if let Some(oldest) = gap {
                        self.lost(Gap::Expired, Some(self.cursor), oldest);
                        self.cursor = oldest;
                    }
                }
                Poll::Ready(Err(error)) => {
                    tracing::warn!(%error, "a connection cannot read the log");
                    behind.reading = None;
                    // Tried again when the clock wakes the connection.
                    self.slot.wake_at(self.now + 2);
                    return Next::Reading;
                }
            }
            // Other connections come first: only slow ones read the log.
            cx.waker().wake_by_ref();
            return Next::Reading;
        }
        for (seq, frame) in behind.found.iter().take(BATCH - batch.0.len()) {
            batch.push(Item::Read(*seq), frame.clone());
        }
        Next::More
    }

    fn poll_write(
        &self,
        raw: &mut Raw,
        cx: &mut Context<'_>,
        batch: &Batch,
    ) -> Poll<io::Result<usize>> {
        // The usual case, and the cheaper call.
        if let [(_, frame)] = &batch.0[..] {
            return Pin::new(raw).poll_write(cx, frame);
        }
        let mut slices = [IoSlice::new(&[]); BATCH];
        for (slice, (_, frame)) in slices.iter_mut().zip(&batch.0) {
            *slice = IoSlice::new(frame);
        }
        Pin::new(raw).poll_write_vectored(cx, &slices[..batch.0.len()])
    }

    /// Moves past what was written; true if it was everything.
    fn consume(&mut self, batch: &mut Batch, mut count: usize) -> bool {
        self.blocked_at = Since::default();
        self.written_at = self.now;
        self.rest = None;
        let mut events = 0;
        for (item, frame) in batch.0.drain(..) {
            if count == 0 {
                self.ticket.hub.metrics.sent(self.ticket.channel, events);
                return false;
            }
            match item {
                Item::Rest => {}
                Item::Reply => drop(self.replies.pop_front()),
                Item::Missed => {
                    self.missed = Kinds::default();
                    self.ticket.hub.metrics.presence_resets.fetch_add(1, Relaxed);
                }
                Item::Ephemeral(kind, number) => self.ephemeral[kind as usize] = number,
                Item::Event(seq) => self.cursor = seq,
                Item::Read(seq) => {
                    self.cursor = seq;
                    self.behind.as_mut().map(|behind| behind.found.pop_front());
                }
            }
            events += usize::from(matches!(item, Item::Event(_) | Item::Read(_)));
            if count < frame.len() {
                self.rest = Some(Box::new(frame.slice(count..)));
                self.ticket.hub.metrics.sent(self.ticket.channel, events);
                return false;
            }
            count -= frame.len();
        }
        self.ticket.hub.metrics.sent(self.ticket.channel, events);
        true
    }

    /// Reports that events were lost, and from which position on they are sent again.
    pub fn lost(&mut self, gap: Gap, requested: Option<i64>, resumed_at: i64) {
        let (codec, encoding) = (&self.ticket.hub.codec, self.encoding);
        let frame = reset::frame(codec, &self.interests, encoding, gap, requested, resumed_at);
        self.replies.push_back(frame);
    }
}

/// Reads the log from a place on. Whether the place is still in it is checked last: events removed
/// before the read would otherwise be lost in silence.
async fn read(
    hub: Arc<Hub>,
    interests: Arc<Interests>,
    after: i64,
    encoding: Encoding,
) -> Result<Read, store::Error> {
    let place = hub.readers.place(interests.scope.account_number()).await;
    hub.metrics.log_reads.fetch_add(1, Relaxed);
    let head = hub.ring.head();
    let read = hub.store.0.events_within(Some(interests.scope), after, READ, READ_BYTES);
    let EventPage { events, more } = read.await?;
    let oldest = hub.store.0.oldest().await?;
    let upto = match events.last() {
        Some(last) if more => last.seq,
        last => head.max(last.map_or(after, |event| event.seq)),
    };
    // Others may read while the events are converted.
    drop(place);
    let entries: Vec<Entry> = events
        .into_iter()
        .filter(|event| hub.leaves(&event.collection))
        .map(|event| Entry::new(&hub.codec, event))
        .filter(|entry| interests.wants(entry))
        .collect();
    let version = interests.version;
    let frame = move |entry: Entry| (entry.event.seq, entry.frame(encoding, version));
    let found = match entries.iter().any(|entry| entry.is_costly(version)) {
        true => hub.conversions.run(interests.scope.account_number(), entries, frame).await.into(),
        false => entries.into_iter().map(frame).collect(),
    };
    let gap = (after < oldest - 1).then_some(oldest - 1);
    Ok(Read { found, upto, gap })
}

impl Batch {
    fn new() -> Batch {
        Batch(ROOM.take())
    }

    fn has_room(&self) -> bool {
        self.0.len() < BATCH
    }

    fn push(&mut self, item: Item, frame: Bytes) {
        self.0.push((item, frame));
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.0.clear();
        ROOM.set(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interest::Permit;
    use crate::{Feeds, ValidityCheck};

    #[derive(Debug)]
    struct Revoked;

    impl ValidityCheck for Revoked {
        fn check(&self) -> PendingCheck {
            Box::pin(std::future::ready(Validity::Revoked))
        }
    }

    #[test]
    fn a_key_that_is_revoked_while_its_channel_opens_is_noticed_at_the_first_look() {
        let caller = ChannelCaller {
            scope: model::Scope(2),
            permit: Permit::default(),
            user: None,
            feeds: Feeds::All,
            by_token: false,
            expires_in: None,
            validity: Arc::new(Revoked),
            key_generation: 6,
            version: 0,
            now: model::Timestamp(0),
        };
        // Keys have changed after the caller was checked and before the channel opened.
        let mut check = KeyCheck::of(&caller);
        check.ask(7, || 12);
        let mut asked = check.asked.take().unwrap();
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert_eq!(asked.as_mut().as_mut().poll(&mut cx), Poll::Ready(Validity::Revoked));
        check.ask(7, || unreachable!("no key has changed"));
        assert!(check.asked.is_none(), "nothing has changed since");
        check.ask(8, || 12);
        assert!(check.asked.is_none(), "only keys of other accounts have changed");
        check.ask(9, || 13);
        assert!(check.asked.is_some());
    }
}
