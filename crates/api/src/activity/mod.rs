//! The recent requests and the figures of each account and mode, in memory: what `/v1/requests` and
//! `/v1/stats` show. Every request with a valid key is noted once, when it ends.
//!
//! Each thread notes in a shard of its own, so its lock is free unless somebody reads. Within a
//! shard every account and mode has the same share of the entries, and loses only its own: a flood
//! of requests of one account removes none of another.

mod figures;
mod text;

use crate::auth::Identity;
use crate::metrics::RouteKey;
use figures::Figures;
pub(crate) use figures::{MINUTE_MS, Summary};
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
pub(crate) use text::ShortText;

/// Shards at most: more threads share them.
const MAX_SHARDS: usize = 16;
/// Entries of one account and mode in a shard, of successful and of failed requests each: a flood
/// of successful requests must not hide the errors before it.
const PER_SCOPE: usize = 256;
/// Entries of all in a shard, of 256 bytes each. With more scopes than have room for `PER_SCOPE`,
/// each has less.
const PER_SHARD: usize = 8_192;
/// Accounts and modes in a shard. Beyond it, one that was silent for long is forgotten.
const MAX_SCOPES: usize = 512;
/// Scopes that are compared to find one that was silent long: comparing all would take longer than
/// the request. Each time others are, so that no scope is the first choice again and again.
const COMPARED: usize = 8;
/// Characters of an error message that are kept.
const MESSAGE_CHARS: usize = 300;

/// Deliveries of one account and mode, as the engine counts them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeliveryFigures {
    /// Events that are to be sent and were not tried yet.
    pub waiting: u64,
    /// Age of the oldest event that is not delivered.
    pub oldest: Option<Duration>,
    /// In the last hour.
    pub delivered: u64,
    pub failed: u64,
}

/// One request that ended.
#[derive(Clone)]
pub(crate) struct Noted {
    pub number: u64,
    pub at: Timestamp,
    pub took: Duration,
    pub method: &'static str,
    pub path: ShortText,
    pub route: Option<RouteKey>,
    pub status: u16,
    pub version: usize,
    pub is_replayed: bool,
    pub client: IpAddr,
    pub identity: Arc<Identity>,
    pub error: Option<Arc<ErrorNote>>,
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) struct ErrorNote {
    pub code: String,
    pub message: String,
}

impl ErrorNote {
    pub fn new(code: &str, message: &str) -> ErrorNote {
        let message = message.chars().take(MESSAGE_CHARS).collect();
        ErrorNote { code: code.to_owned(), message }
    }
}

impl Noted {
    fn is_failed(&self) -> bool {
        self.status >= 400
    }
}

pub(crate) struct Activity {
    shards: Box<[Mutex<Shard>]>,
    next: AtomicUsize,
}

#[derive(Default)]
struct Shard {
    scopes: HashMap<Scope, Kept, BuildHasherDefault<ScopeHasher>>,
    /// The scopes, those that were compared longest ago first.
    order: VecDeque<Scope>,
    /// Entries of each scope and kind at the moment: `PER_SCOPE`, or less if there are many.
    share: usize,
}

#[derive(Default)]
struct Kept {
    succeeded: VecDeque<Noted>,
    failed: VecDeque<Noted>,
    figures: Figures,
    /// Time of the newest entry, in milliseconds.
    last: i64,
}

/// Spreads the numbers of scopes. They are assigned by the service, so no client can choose numbers
/// that collide.
#[derive(Default)]
struct ScopeHasher(u64);

impl Hasher for ScopeHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_i64(i64::from(*byte)));
    }

    fn write_i64(&mut self, number: i64) {
        let spread = (self.0 ^ number.cast_unsigned()).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = spread ^ (spread >> 32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

thread_local! {
    /// The shard of this thread, once it has one.
    static SHARD: Cell<Option<usize>> = const { Cell::new(None) };
}

impl Activity {
    pub fn new(threads: usize) -> Activity {
        let shards = (0..threads.clamp(1, MAX_SHARDS)).map(|_| Mutex::default()).collect();
        Activity { shards, next: AtomicUsize::new(0) }
    }

    pub fn note(&self, noted: Noted) {
        let place = SHARD.get().unwrap_or_else(|| {
            let place = self.next.fetch_add(1, Ordering::Relaxed);
            SHARD.set(Some(place));
            place
        });
        let mut shard = self.shards[place % self.shards.len()].lock();
        // What is removed is freed without the lock.
        let removed = shard.note(noted);
        drop(shard);
        drop(removed);
    }

    /// The requests of a scope that are kept, newest first.
    pub fn of(&self, scope: Scope, wanted: impl Fn(&Noted) -> bool) -> Vec<Noted> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            if let Some(kept) = shard.scopes.get(&scope) {
                let both = kept.succeeded.iter().chain(&kept.failed);
                all.extend(both.filter(|noted| wanted(noted)).cloned());
            }
        }
        all.sort_unstable_by_key(|noted| std::cmp::Reverse(noted.number));
        all
    }

    /// The figures of a scope in the hour before a moment.
    pub fn summary(&self, scope: Scope, now: Timestamp) -> Summary {
        let mut summary = Summary::new(now);
        for shard in &self.shards {
            if let Some(kept) = shard.lock().scopes.get(&scope) {
                summary.add(&kept.figures);
            }
        }
        summary
    }
}

impl Shard {
    /// Returns the entry that had to leave for the new one.
    fn note(&mut self, noted: Noted) -> Option<Noted> {
        let scope = noted.identity.caller.scope;
        if let Some(kept) = self.scopes.get_mut(&scope) {
            return kept.note(noted, self.share);
        }
        self.make_room();
        self.order.push_back(scope);
        self.scopes.entry(scope).or_default().note(noted, self.share)
    }

    /// Makes room for one more scope. The share only changes by halves, so all entries are looked
    /// at a few times only.
    fn make_room(&mut self) {
        if self.scopes.len() >= MAX_SCOPES {
            let compared = COMPARED.min(self.order.len());
            let last = |scope: &Scope| self.scopes.get(scope).map_or(i64::MIN, |kept| kept.last);
            let compare = self.order.iter().enumerate().take(compared);
            let silent = compare.min_by_key(|(_, scope)| last(scope)).map(|(place, _)| place);
            if let Some(scope) = silent.and_then(|place| self.order.remove(place)) {
                self.scopes.remove(&scope);
            }
            // By one: larger steps meet the same accounts again in each round.
            self.order.rotate_left(usize::from(compared > 1));
        }
        let scopes = self.scopes.len() + 1;
        let mut share = PER_SCOPE;
        while share > 1 && share * scopes * 2 > PER_SHARD {
            share /= 2;
        }
        if share < self.share {
            for kept in self.scopes.values_mut() {
                for ring in [&mut kept.succeeded, &mut kept.failed] {
                    let surplus = ring.len().saturating_sub(share);
                    ring.drain(..surplus);
                    ring.shrink_to(share);
                }
                kept.figures.shrink(share);
            }
        }
        self.share = share;
    }
}

impl Kept {
    fn note(&mut self, noted: Noted, share: usize) -> Option<Noted> {
        self.last = noted.at.0;
        self.figures.count(&noted, share);
        let ring = match noted.is_failed() {
            true => &mut self.failed,
            false => &mut self.succeeded,
        };
        let removed = if ring.len() >= share { ring.pop_front() } else { None };
        ring.push_back(noted);
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Account;
    use crate::limit::{Limiter, Moment};
    use model::Caller;

    fn noted(scope: i64, number: u64, status: u16) -> Noted {
        let caller = Caller {
            scope: Scope(scope),
            account: format!("acct_{scope}"),
            key: "key_1".into(),
            grants: None,
            admin: None,
            rate_limit: None,
        };
        let at = Moment { now: Timestamp(1), uptime: Duration::ZERO };
        let bucket = Limiter::new(None, at, store::cluster::Solo::new()).bucket("key_1");
        Noted {
            number,
            at: Timestamp(i64::try_from(number).unwrap()),
            took: Duration::from_micros(100),
            method: "GET",
            path: ShortText::new("/v1/books"),
            route: None,
            status,
            version: 0,
            is_replayed: false,
            client: [127, 0, 0, 1].into(),
            identity: Arc::new(Identity::of_token(caller, bucket, Account::default(), None)),
            error: (status >= 400).then(|| Arc::new(ErrorNote::new("not_found", "No."))),
        }
    }

    fn numbers(activity: &Activity, scope: i64) -> Vec<u64> {
        activity.of(Scope(scope), |_| true).iter().map(|noted| noted.number).collect()
    }

    #[test]
    fn a_flood_of_one_account_removes_no_request_of_another_and_no_error() {
        let activity = Activity::new(1);
        activity.note(noted(4, 0, 404));
        activity.note(noted(2, 1, 200));
        for number in 2..20_000 {
            activity.note(noted(4, number, 200));
        }
        assert_eq!(numbers(&activity, 2), [1]);
        let own = numbers(&activity, 4);
        assert_eq!((own.len(), own[0], own[own.len() - 1]), (PER_SCOPE + 1, 19_999, 0));
    }

    #[test]
    fn the_entries_of_all_accounts_have_a_limit_and_each_keeps_some() {
        let activity = Activity::new(1);
        let scopes = i64::try_from(MAX_SCOPES).unwrap();
        for number in 0..600 {
            for scope in 0..scopes {
                activity.note(noted(scope, number, if number % 2 == 0 { 200 } else { 500 }));
            }
        }
        let shard = activity.shards[0].lock();
        let held = |kept: &Kept| kept.succeeded.len() + kept.failed.len();
        let all: usize = shard.scopes.values().map(held).sum();
        assert!(all <= PER_SHARD, "{all}");
        assert!(shard.scopes.values().all(|kept| held(kept) == 16));
        drop(shard);
        activity.note(noted(scopes, 1_000, 200));
        assert_eq!(activity.shards[0].lock().scopes.len(), MAX_SCOPES);
        assert_eq!(numbers(&activity, scopes), [1_000]);
    }

    #[test]
    fn with_more_accounts_than_there_is_room_for_no_account_is_always_the_one_forgotten() {
        let activity = Activity::new(1);
        let scopes = i64::try_from(MAX_SCOPES).unwrap() + 100;
        let mut seen = std::collections::HashSet::new();
        for round in 0..40 {
            for scope in 0..scopes {
                activity.note(noted(scope, round * 1_000 + scope.unsigned_abs(), 200));
            }
            let shard = activity.shards[0].lock();
            assert_eq!((shard.scopes.len(), shard.order.len()), (MAX_SCOPES, MAX_SCOPES));
            seen.extend(shard.scopes.keys().copied());
        }
        assert_eq!(seen.len(), usize::try_from(scopes).unwrap());
        // One that is active is kept while others come and go.
        for number in 0..2_000 {
            activity.note(noted(7, 100_000 + 2 * number, 200));
            activity.note(noted(
                10_000 + i64::try_from(number).unwrap(),
                100_001 + 2 * number,
                200,
            ));
        }
        assert!(numbers(&activity, 7).len() > 1);
    }
}
