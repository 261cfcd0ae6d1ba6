//! Short and long polls of a feed: the records after a place, at once or as soon as there are some.

use crate::ask::{ChannelCaller, VERSION, Validity, ValidityCheck, invalid, place};
use crate::conversions::INLINE_UNITS;
use crate::entry::Entry;
use crate::hub::{Full, Hub, OnlineGuard, Ticket};
use crate::interest::{Interest, Interests};
use crate::metrics::Channel;
use crate::position::{Epoch, ResumePoint};
use crate::ring::Reach;
use crate::shard::ticks;
use crate::slot::Slot;
use model::Scope;
use model::problem::Problem;
use model::query::{Filter, Page, Query, SortKey, Test};
use model::record::{Record, Scalar};
use model::schema::CollectionIx;
use std::borrow::Cow;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// Records in one answer, unless the client says otherwise.
pub const LIMIT: u32 = 100;
/// Longer than it takes until a commit is known, also one of another process.
const MOMENT: Duration = Duration::from_secs(1);
/// How long a poll whose key may have changed waits for the store to say so. The poll is over then.
const CHECK: Duration = Duration::from_secs(5);

/// What a poll asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PollRequest {
    pub feed: CollectionIx,
    pub since: ResumePoint,
    pub wait: bool,
    pub limit: u32,
}

/// The response to a poll.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PollResponse {
    /// A JSON array.
    pub body: String,
    /// Where to go on.
    pub position: i64,
    /// Something before it may have been missed.
    pub gap: bool,
}

pub enum Polled {
    Now(PollResponse),
    Waiting(Box<WaitingPoll>),
    /// There are too many connections to wait.
    Full(Full),
}

impl PollRequest {
    /// Whether it continues after an event that is not known here: another server may know it.
    pub fn is_ahead_of(&self, newest: i64) -> bool {
        matches!(self.since, ResumePoint::After(seq) if seq > newest)
    }

    pub fn read(
        feed: CollectionIx,
        epoch: Epoch,
        max: u32,
        pairs: &[(String, String)],
        others: &[&str],
    ) -> Result<PollRequest, Problem> {
        let limit = LIMIT.min(max);
        let mut asking = PollRequest { feed, since: ResumePoint::After(0), wait: false, limit };
        for (name, value) in pairs {
            match name.as_str() {
                "since" => asking.since = place(epoch, "since", value)?,
                "wait" => asking.wait = flag(value)?,
                "limit" => {
                    let said = value.parse::<i64>().ok().filter(|limit| *limit > 0);
                    let message = "`limit` must be a whole number from 1 on.";
                    let said = said.ok_or_else(|| invalid("limit", value, message))?;
                    asking.limit = u32::try_from(said).unwrap_or(max).min(max);
                }
                VERSION => {}
                other if others.contains(&other) => {}
                other => {
                    let known = [&["since", "wait", "limit", VERSION], others].concat();
                    return Err(Problem::unknown_parameter(other, &known));
                }
            }
        }
        Ok(asking)
    }
}

fn flag(value: &str) -> Result<bool, Problem> {
    match value {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(invalid("wait", value, "`wait` must be true or false.")),
    }
}

/// The records that are there, or a poll that waits for some.
pub async fn poll(
    hub: &Arc<Hub>,
    caller: &ChannelCaller,
    asking: PollRequest,
) -> Result<Polled, store::Error> {
    // Read before the records are: what comes in between is sent twice rather than never.
    let newest = *hub.store.0.position().borrow();
    let since = match asking.since {
        ResumePoint::After(seq) if seq <= newest => seq,
        // Waiting there would never return anything.
        _ => {
            return Ok(Polled::Now(PollResponse {
                body: "[]".into(),
                position: newest,
                gap: true,
            }));
        }
    };
    // Most polls come back to where the feed ends. They cost no query.
    let answer = if hub.store.0.collection_seq(caller.scope, asking.feed) <= since {
        PollResponse { body: "[]".into(), position: newest, gap: false }
    } else {
        let reading = Reading { scope: caller.scope, version: caller.version, since, newest };
        read(hub, &asking, reading).await?
    };
    if !asking.wait || answer.body != "[]" {
        return Ok(Polled::Now(answer));
    }
    let ticket = match hub.enter(caller.scope, Channel::Poll) {
        Ok(ticket) => ticket,
        // A shutdown is no reason for an error: the next request finds another server.
        Err(_) if hub.is_leaving() => return Ok(Polled::Now(answer)),
        Err(full) => return Ok(Polled::Full(full)),
    };
    let online = caller.user.as_ref().map(|user| hub.mark_online(caller.scope, user, caller.now));
    let collection = &hub.codec.schema.collections[asking.feed];
    let types = vec![collection.events.created.clone()];
    let interests = hub.shared(caller.interests(Interest { types, ..Interest::default() }, 0));
    let slot = Slot::take(hub, interests.clone(), newest);
    slot.hurries();
    let timeout = hub.limits.poll_timeout;
    // Not beyond the end of the credentials.
    let end = caller.expires_in.map_or(u32::MAX, |end| ticks(end).saturating_sub(2));
    let patience = ticks(timeout).min(end);
    let (cursor, _online) = (newest, online);
    let (validity, generation) = (caller.validity.clone(), caller.key_generation);
    let held = WaitingPoll {
        slot,
        interests,
        cursor,
        asking,
        patience,
        end: None,
        validity,
        generation,
        ticket,
        _online,
    };
    Ok(Polled::Waiting(Box::new(held)))
}

/// For how long a poll of this client would be held; none if it would not be, because the server
/// stops.
pub fn hold_time(hub: &Hub, caller: &ChannelCaller) -> Option<Duration> {
    let longest = hub.limits.poll_timeout;
    let time = caller.expires_in.map_or(longest, |end| end.min(longest));
    (!hub.is_leaving()).then_some(time)
}

/// Whose records, as which version shows them, from where on in a log of which length.
struct Reading {
    scope: Scope,
    version: usize,
    since: i64,
    newest: i64,
}

/// The records after a place.
async fn read(
    hub: &Hub,
    asking: &PollRequest,
    reading: Reading,
) -> Result<PollResponse, store::Error> {
    let Reading { scope, version, since, newest } = reading;
    let first = Scalar::Integer(since.saturating_add(1));
    let query = Query {
        parent: None,
        filters: vec![Filter { field: "id".into(), test: Test::Min(first) }],
        sort: vec![SortKey::new("created_at", false)],
        words: Vec::new(),
        revealed: Vec::new(),
        page: Page::First,
        limit: asking.limit,
    };
    let page = hub.store.0.list(scope, asking.feed, &query).await?;
    let last = page.records.last().and_then(|record| record.id.parse::<i64>().ok());
    if let Some(last) = last.filter(|last| *last > newest) {
        // A commit can be read a moment before it is announced. A client that polls again quickly
        // must not be ahead of the log.
        let mut told = hub.store.0.position();
        let _ = timeout(MOMENT, told.wait_for(|newest| *newest >= last)).await;
    }
    let position = match (last, page.has_more) {
        (Some(last), true) => last,
        (last, _) => newest.max(last.unwrap_or(0)),
    };
    let (feed, view) = (asking.feed, hub.codec.versions.get(version).cloned());
    let view = view.filter(|view| view.lens(feed).is_some());
    let body = match view {
        None => array(page.records.iter().map(|record| record.body.as_str().into())),
        Some(view) => {
            let units = |record: &Record| view.formula_units((feed, None), record.body.len());
            let units = page.records.iter().map(units).fold(0, u64::saturating_add);
            let show = move |record: Record| match view.lens(feed) {
                Some(lens) => lens.show(&record),
                None => record.body,
            };
            let shown: Vec<String> = match units > INLINE_UNITS {
                true => hub.conversions.run(scope.account_number(), page.records, show).await,
                false => page.records.into_iter().map(show).collect(),
            };
            array(shown.into_iter().map(Cow::from))
        }
    };
    Ok(PollResponse { body, position, gap: false })
}

fn array<'a>(texts: impl Iterator<Item = Cow<'a, str>>) -> String {
    let mut body = String::from("[");
    for (place, text) in texts.enumerate() {
        if place > 0 {
            body.push(',');
        }
        body.push_str(&text);
    }
    body.push(']');
    body
}

/// A poll that waits. It costs no query until there is something.
pub struct WaitingPoll {
    slot: Slot,
    interests: Arc<Interests>,
    cursor: i64,
    asking: PollRequest,
    /// Ticks to wait, and the one at which that is over.
    patience: u32,
    end: Option<u32>,
    /// The credentials, and `Store::key_generation` when they were checked.
    validity: Arc<dyn ValidityCheck>,
    generation: u64,
    ticket: Ticket,
    _online: Option<OnlineGuard>,
}

/// What a waiting poll found in memory, and how far it looked.
struct Looked {
    found: Vec<Arc<Entry>>,
    position: i64,
}

impl WaitingPoll {
    /// The records, or none when the time is over.
    pub async fn wait(mut self: Box<WaitingPoll>) -> PollResponse {
        let looked = poll_fn(|cx| self.look(cx)).await;
        // The next poll of a client whose key was revoked is refused.
        if self.ticket.hub().store.0.key_generation() != self.generation
            && !Box::pin(self.is_valid()).await
        {
            return PollResponse { body: "[]".into(), position: self.cursor, gap: false };
        }
        match looked {
            Some(Looked { found, position }) => {
                let body = match found.is_empty() {
                    true => "[]".into(),
                    false => Box::pin(self.objects(found)).await,
                };
                PollResponse { body, position, gap: false }
            }
            // Faster than memory: the records are all there. Boxed: room for it must not be kept
            // while nothing happens.
            None => Box::pin(self.read()).await,
        }
    }

    /// If the store does not answer in time, nothing is sent.
    async fn is_valid(&self) -> bool {
        let checked = timeout(CHECK, self.validity.check()).await;
        matches!(checked, Ok(Validity::Valid | Validity::ExpiresIn(_)))
    }

    async fn objects(&self, found: Vec<Arc<Entry>>) -> String {
        let hub = self.ticket.hub();
        hub.metrics.sent(Channel::Poll, found.len());
        let Interests { scope, version, .. } = *self.interests;
        if !found.iter().any(|entry| entry.is_costly(version)) {
            return array(found.iter().map(|entry| entry.object(version)));
        }
        let object = move |entry: Arc<Entry>| entry.object(version).into_owned();
        let objects = hub.conversions.run(scope.account_number(), found, object).await;
        array(objects.into_iter().map(Cow::from))
    }

    async fn read(&self) -> PollResponse {
        let hub = self.ticket.hub();
        let newest = *hub.store.0.position().borrow();
        let Interests { scope, version, .. } = *self.interests;
        let reading = Reading { scope, version, since: self.cursor, newest };
        let read = read(hub, &self.asking, reading).await;
        read.unwrap_or(PollResponse { body: "[]".into(), position: self.cursor, gap: false })
    }

    fn look(&mut self, cx: &mut Context<'_>) -> Poll<Option<Looked>> {
        let hub = self.ticket.hub().clone();
        loop {
            let wakeup = self.slot.wakeup(cx.waker());
            self.cursor = self.cursor.max(wakeup.cursor);
            let mut found = Vec::new();
            let limit = self.asking.limit as usize;
            let reach = hub.ring.view(self.interests.scope, self.cursor, |entry| {
                let room = found.len() < limit;
                if room && self.interests.wants(entry) {
                    found.push(entry.clone());
                }
                room
            });
            let head = match reach {
                Reach::Behind => return Poll::Ready(None),
                Reach::Head(seq) | Reach::Until(seq) => seq,
            };
            if !found.is_empty() {
                return Poll::Ready(Some(Looked { found, position: head }));
            }
            self.cursor = head;
            let end = *self.end.get_or_insert(wakeup.now + self.patience);
            let over = wakeup.now >= end;
            if wakeup.leaving || over {
                return Poll::Ready(Some(Looked { found, position: head }));
            }
            self.slot.wake_at(end);
            if self.slot.park(self.cursor) {
                return Poll::Pending;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::problem::Code;

    fn ask(name: &str, value: &str) -> Result<PollRequest, Problem> {
        let pairs = [(name.to_owned(), value.to_owned())];
        PollRequest::read(0, Epoch(0xab), 1000, &pairs, &["user"])
    }

    #[test]
    fn a_limit_beyond_the_largest_page_is_the_largest_page() {
        let limit = |value| ask("limit", value).map(|asking| asking.limit).ok();
        assert_eq!(ask("user", "ann").unwrap().limit, LIMIT);
        assert_eq!((limit("1"), limit("999")), (Some(1), Some(999)));
        assert_eq!((limit("1001"), limit("9223372036854775807")), (Some(1000), Some(1000)));
        for bad in ["0", "-1", "1.5", "", "ten", "99999999999999999999"] {
            assert_eq!(limit(bad), None, "{bad}");
        }
    }

    fn task_bytes<F: Future>(_: impl FnOnce(Box<WaitingPoll>) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_held_poll_stays_small() {
        // Each waiting poll keeps this, in addition to its connection and its slot.
        let bytes = size_of::<WaitingPoll>() + task_bytes(WaitingPoll::wait);
        assert!(bytes <= 256, "{bytes}");
    }

    #[test]
    fn unknown_parameters_and_bad_values_are_reported() {
        assert!(ask("wait", "true").unwrap().wait && ask("wait", "1").unwrap().wait);
        assert!(!ask("wait", "false").unwrap().wait);
        assert_eq!(ask("since", "000000ab.7").unwrap().since, ResumePoint::After(7));
        for (name, value) in [("wait", "yes"), ("wait", ""), ("since", "-1"), ("since", "")] {
            let problem = ask(name, value).unwrap_err();
            assert_eq!((problem.code, problem.param.as_deref()), (INVALID, Some(name)), "{value}");
        }
        assert_eq!(ask("sinc", "1").unwrap_err().code, Code::UnknownParameter);
    }

    const INVALID: Code = Code::InvalidParameter;
}
