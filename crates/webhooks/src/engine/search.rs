//! The search for events that endpoints behind the head enable. One read of an account's log serves
//! all of its endpoints that search: most enable none of the events, and only move on. An endpoint
//! for which an event is found reads it by itself.

use super::Engine;
use super::head::{self, Claim};
use super::tasks::TaskResult;
use crate::fair::FairQueue;
use crate::limits::Limits;
use crate::prepared::Prepared;
use crate::queue::Feed;
use crate::store_retry::until_answered;
use model::Scope;
use model::event::Event;
use model::version::Versions;
use model::webhook::Endpoint;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use std::sync::Arc;
use store::{EventPage, Store};
use wire::Share;

/// Events of one page whose deliveries are looked up for one endpoint. An endpoint that enables
/// more reads them by itself, and looks up all at once.
const LOOKED_UP: usize = 16;
/// Endpoints between two yields to other tasks: less than a millisecond, or a few if each enables
/// hundreds of types.
const ENDPOINTS_AT_A_TIME: usize = 8;

/// The endpoints that search, by scope.
#[derive(Default)]
pub struct Searches {
    scopes: HashMap<Scope, BTreeSet<i64>>,
    /// Scopes whose next page is not being read. Each is here once.
    ready: FairQueue<Scope>,
    in_flight: usize,
}

impl Searches {
    pub fn is_idle(&self) -> bool {
        self.scopes.is_empty()
    }
}

/// An endpoint that searches, as it was when the page was asked for.
struct Member {
    number: i64,
    endpoint: Rc<Endpoint>,
    version: usize,
    seen: i64,
    /// Events that it was given already, if they are few: they hold its position by themselves.
    given: Vec<i64>,
}

/// How far a page brings an endpoint.
pub struct Found {
    member: Member,
    /// There is nothing to deliver up to here.
    seen: i64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// There may be more after the page.
    Searching,
    /// The next event is for the endpoint.
    Wanted,
    /// There was nothing after the page.
    Newest,
}

impl Engine {
    /// Lets an endpoint behind the head search together with the others of its scope.
    pub(super) fn search(&mut self, number: i64) {
        let Some(queue) = self.queues.get(&number) else { return };
        let scope = queue.endpoint.scope;
        let searches = &mut self.searches;
        searches
            .scopes
            .entry(scope)
            .or_insert_with(|| {
                searches.ready.push(scope.account_number(), scope);
                BTreeSet::new()
            })
            .insert(number);
    }

    pub(super) fn serve_searches(&mut self) {
        while self.searches.in_flight < self.limits.searches {
            let (bytes, loaded) = (self.read_bytes(), &self.loaded);
            let admit = |account: i64, _: &Scope| loaded.reserve(account, bytes, 0);
            let Some((scope, reserved)) = self.searches.ready.pop_with(admit) else { return };
            let members = self.members(scope);
            let Some(from) = members.iter().map(|member| member.seen).min() else {
                self.searches.scopes.remove(&scope);
                continue;
            };
            let search = Search {
                versions: self.versions.clone(),
                store: self.store.clone(),
                limits: self.limits.clone(),
                scope,
                from,
                bytes: reserved.amount() / Prepared::BYTES_FACTOR,
            };
            self.searches.in_flight += 1;
            self.tasks.run(async move {
                let found = search.run(members).await;
                TaskResult::Searched { scope, found, reserved }
            });
        }
    }

    /// The endpoints of a scope that search, without those that need not any more.
    fn members(&mut self, scope: Scope) -> Vec<Member> {
        let Some(numbers) = self.searches.scopes.get_mut(&scope) else { return Vec::new() };
        let queues = &self.queues;
        let behind = |number: &i64| {
            let queue = queues.get(number).filter(|queue| queue.intake.feed == Feed::Behind)?;
            let (endpoint, version) = (queue.endpoint.clone(), queue.version);
            let (seen, given) = (queue.intake.seen, queue.intake.given(LOOKED_UP));
            Some(Member { number: *number, endpoint, version, seen, given })
        };
        let members: Vec<Member> = numbers.iter().filter_map(behind).collect();
        *numbers = members.iter().map(|member| member.number).collect();
        members
    }

    pub(super) fn searched(&mut self, scope: Scope, found: Vec<Found>, reserved: Share<i64>) {
        self.searches.in_flight -= 1;
        drop(reserved);
        let is_running = self.is_running();
        for Found { member, seen, state } in found {
            let number = member.number;
            let Some(queue) = self.queues.get_mut(&number) else { continue };
            let intake = &mut queue.intake;
            let mut given = member.given.iter().filter(|seq| **seq > member.seen);
            let is_current = intake.feed == Feed::Behind
                && intake.seen == member.seen
                && given.all(|seq| intake.has(*seq))
                && Rc::ptr_eq(&queue.endpoint, &member.endpoint);
            if is_current {
                intake.seen = seen;
                intake.searches = state != State::Wanted;
            }
            // After a stop nobody lets it search again.
            let again = !is_current && intake.feed == Feed::Behind && !is_running;
            if !again && (!is_current || state != State::Searching) {
                if let Some(members) = self.searches.scopes.get_mut(&scope) {
                    members.remove(&number);
                }
                self.touch(number);
            }
        }
        match self.searches.scopes.get(&scope).is_none_or(BTreeSet::is_empty) {
            true => drop(self.searches.scopes.remove(&scope)),
            false => self.searches.ready.push(scope.account_number(), scope),
        }
    }
}

/// One page of a scope's log, for all of its endpoints that search.
struct Search {
    versions: Arc<Versions>,
    store: Arc<dyn Store>,
    limits: Rc<Limits>,
    scope: Scope,
    from: i64,
    bytes: usize,
}

impl Search {
    async fn run(self, members: Vec<Member>) -> Vec<Found> {
        // Asked before the read, which sees everything that was committed until then.
        let newest = *self.store.position().borrow();
        let most = self.limits.batch;
        let ask = || self.store.events_within(Some(self.scope), self.from, most, self.bytes);
        let EventPage { events, more } = until_answered("the log", &self.limits, ask).await;
        let last = events.last().map_or(self.from, |event| event.seq);
        let to = if more { last } else { last.max(newest) };
        let page = Contents::of(&events, &self.versions);
        let mut found = Vec::with_capacity(members.len());
        for (count, member) in members.into_iter().enumerate() {
            if count % ENDPOINTS_AT_A_TIME == ENDPOINTS_AT_A_TIME - 1 {
                tokio::task::yield_now().await;
            }
            let wanted = page.wanted(&self.versions, &member);
            let (seen, state) = match self.first(&member, wanted).await {
                Some(seq) => (seq - 1, State::Wanted),
                None if more => (to.max(member.seen), State::Searching),
                None => (to.max(member.seen), State::Newest),
            };
            found.push(Found { member, seen, state });
        }
        found
    }

    /// The first of these events that has no delivery at the endpoint; without a look at deliveries
    /// if there are many.
    async fn first(&self, member: &Member, wanted: Vec<i64>) -> Option<i64> {
        if wanted.is_empty() || wanted.len() > LOOKED_UP {
            return wanted.first().copied();
        }
        let ask = || self.store.deliveries(member.number, &wanted);
        let known = until_answered("deliveries", &self.limits, ask).await;
        let known: HashSet<i64> = known.iter().map(|delivery| delivery.event).collect();
        wanted.into_iter().find(|seq| !known.contains(seq))
    }
}

/// What is on a page.
struct Contents<'a> {
    /// Pings by the endpoint they are for.
    pings: HashMap<&'a str, Vec<i64>>,
    /// The others by type: whether an endpoint enables them depends on nothing else.
    types: HashMap<(&'a str, &'a str), (&'a Event, Vec<i64>)>,
}

impl<'a> Contents<'a> {
    fn of(events: &'a [Event], versions: &Versions) -> Contents<'a> {
        let (mut pings, mut types) = (HashMap::new(), HashMap::new());
        for event in events {
            let seqs: &mut Vec<i64> = match head::is_ping(versions.kept(), event) {
                true => pings.entry(event.record.as_str()).or_default(),
                false => {
                    let kind = (event.kind.as_str(), event.collection.as_str());
                    &mut types.entry(kind).or_insert_with(|| (event, Vec::new())).1
                }
            };
            seqs.push(event.seq);
        }
        Contents { pings, types }
    }

    /// The events after those that the endpoint has seen and that it enables, in order.
    fn wanted(&self, versions: &Versions, member: &Member) -> Vec<i64> {
        let Member { endpoint, version, seen, given, .. } = member;
        let claims =
            |event: &Event| head::claim(versions, endpoint, *version, event) != Claim::None;
        let types = self.types.values().filter(|(event, _)| claims(event)).map(|(_, seqs)| seqs);
        let pings = self.pings.get(endpoint.id.as_str());
        let all = types.chain(pings).flatten().copied();
        let mut wanted: Vec<i64> = all.filter(|seq| seq > seen && !given.contains(seq)).collect();
        wanted.sort_unstable();
        wanted
    }
}
