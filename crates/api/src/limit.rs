//! Request quotas: a number of requests per window for each key (or, without a key, for each
//! address). One atomic word per key; the first request after a window replaces it. Windows follow
//! a monotonic clock, so setting the wall clock opens no new window. Where several nodes share a
//! database, the quota of a key is theirs together (`part`).

use crate::part::{Part, Taken};
use crate::respond;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use model::Timestamp;
use model::problem::{Code, Problem};
use model::schema::RateLimit;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::cluster::Cluster;

/// Maximum number of buckets; when the map is full, unused buckets are removed.
const MAX_BUCKETS: usize = 100_000;
/// The low bits count requests, the others hold the number of the window.
const COUNT_BITS: u32 = 24;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;
/// Enough for the headers of the usual limits; longer ones allocate once more.
const VALUES_BYTES: usize = 96;

/// The used part of one quota.
#[derive(Default)]
pub struct Bucket {
    word: AtomicU64,
    /// Of a key, where several nodes count together.
    part: Option<Box<Part>>,
}

pub struct Limiter {
    default_limit: Option<RateLimit>,
    /// The wall-clock time at which `uptime` was zero: windows begin at full minutes and hours.
    started_at: Timestamp,
    cluster: Arc<dyn Cluster>,
    buckets: Mutex<HashMap<String, Arc<Bucket>>>,
}

/// Time of a request: by the wall clock, and since the start of the process.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: Timestamp,
    pub uptime: Duration,
}

/// The quota after a request, as the response headers show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    pub limit: u32,
    pub remaining: u32,
    /// Unix time at which the window ends.
    pub reset: u64,
    pub window_seconds: u64,
    pub now: u64,
    /// Number of the window.
    window: u64,
}

impl Limiter {
    /// `None` turns limits off, for measurements.
    pub fn new(default_limit: Option<RateLimit>, at: Moment, cluster: Arc<dyn Cluster>) -> Limiter {
        // Nodes have the same windows, by the clock that is common to them.
        let now = at.now.0.saturating_add(cluster.clock_ahead_ms());
        let started_at = Timestamp(now.saturating_sub(millis(at.uptime)));
        Limiter { default_limit, started_at, cluster, buckets: Mutex::new(HashMap::new()) }
    }

    /// Requests in a window of a key without a limit of its own; `None`: any number.
    pub fn usual(&self) -> Option<u32> {
        self.default_limit.map(|limit| limit.requests)
    }

    /// The bucket of a key, of which all nodes together admit no more than its limit.
    pub fn bucket_of_key(&self, name: &str) -> Arc<Bucket> {
        let part = self.cluster.is_shared().then(|| Box::new(Part::new(name)));
        self.bucket_with(name, part)
    }

    /// The bucket of an address, or of what else is counted by each node alone; the same name has
    /// the same bucket.
    pub fn bucket(&self, name: &str) -> Arc<Bucket> {
        self.bucket_with(name, None)
    }

    fn bucket_with(&self, name: &str, part: Option<Box<Part>>) -> Arc<Bucket> {
        let mut buckets = self.buckets.lock();
        if let Some(bucket) = buckets.get(name) {
            return bucket.clone();
        }
        if buckets.len() >= MAX_BUCKETS {
            // A bucket in use has a second owner besides this map.
            buckets.retain(|_, bucket| Arc::strong_count(bucket) > 1);
            if buckets.len() >= MAX_BUCKETS {
                buckets.clear();
            }
        }
        let new = || Arc::new(Bucket { part, ..Bucket::default() });
        buckets.entry(name.to_owned()).or_insert_with(new).clone()
    }

    /// Takes one request from the quota of a key, after a question to the other nodes if this one
    /// has used up its part.
    pub async fn take_of_key(
        &self,
        bucket: &Bucket,
        own: Option<u32>,
        at: Moment,
    ) -> Option<(Quota, bool)> {
        match &bucket.part {
            None => self.take(bucket, own, at),
            Some(part) => Box::pin(self.take_of_part(part, own, at)).await,
        }
    }

    async fn take_of_part(
        &self,
        part: &Part,
        own: Option<u32>,
        at: Moment,
    ) -> Option<(Quota, bool)> {
        let quota = self.view(self.default_limit?, own, self.common(at));
        loop {
            match part.take(&quota) {
                Taken::Granted(remaining) => return Some((Quota { remaining, ..quota }, true)),
                Taken::Refused => return Some((Quota { remaining: 0, ..quota }, false)),
                Taken::Ask => part.refill(&self.cluster, &quota).await,
            }
        }
    }

    /// Takes one request from the quota; `own` is the key's own limit.
    pub fn take(&self, bucket: &Bucket, own: Option<u32>, at: Moment) -> Option<(Quota, bool)> {
        let quota = self.view(self.default_limit?, own, at);
        let mut current = bucket.word.load(Ordering::Relaxed);
        loop {
            // A request that began in an earlier window counts in the newest one: it must not
            // start that window afresh.
            let window = quota.window.max(current >> COUNT_BITS);
            let used = if current >> COUNT_BITS == window { current & COUNT_MASK } else { 0 };
            if used >= u64::from(quota.limit) {
                return Some((Quota { remaining: 0, ..quota }, false));
            }
            let next = window << COUNT_BITS | (used + 1).min(COUNT_MASK);
            match bucket.word.compare_exchange_weak(
                current,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    let remaining = quota.limit - u32::try_from(used + 1).unwrap_or(quota.limit);
                    return Some((Quota { remaining, ..quota }, true));
                }
                Err(actual) => current = actual,
            }
        }
    }

    /// Gives back one request that was taken at this moment.
    pub fn give_back(&self, bucket: &Bucket, at: Moment) {
        let Some(default_limit) = self.default_limit else { return };
        if let Some(part) = &bucket.part {
            return part.give_back(self.view(default_limit, None, self.common(at)).window);
        }
        let window = self.view(default_limit, None, at).window;
        let less = |current: u64| {
            let is_counted = current >> COUNT_BITS == window && current & COUNT_MASK > 0;
            is_counted.then(|| current - 1)
        };
        // If the window has ended, there is nothing to give back.
        let _ = bucket.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// The current quota, without taking a request: replays are free.
    pub fn peek(&self, bucket: &Bucket, own: Option<u32>, at: Moment) -> Option<Quota> {
        if let Some(part) = &bucket.part {
            let quota = self.view(self.default_limit?, own, self.common(at));
            return Some(Quota { remaining: part.remaining(&quota), ..quota });
        }
        let quota = self.view(self.default_limit?, own, at);
        let current = bucket.word.load(Ordering::Relaxed);
        let used = if current >> COUNT_BITS == quota.window { current & COUNT_MASK } else { 0 };
        let used = u32::try_from(used).unwrap_or(u32::MAX);
        Some(Quota { remaining: quota.limit.saturating_sub(used), ..quota })
    }

    /// The moment by the clock that nodes have in common. The monotonic one stands still while a
    /// machine is suspended, and its node would go on in a window that is over for the others.
    fn common(&self, at: Moment) -> Moment {
        let now = at.now.0.saturating_add(self.cluster.clock_ahead_ms());
        let since = now.saturating_sub(self.started_at.0);
        Moment { uptime: Duration::from_millis(u64::try_from(since).unwrap_or(0)), ..at }
    }

    fn view(&self, default_limit: RateLimit, own: Option<u32>, at: Moment) -> Quota {
        let seconds = |time: Timestamp| u64::try_from(time.seconds()).unwrap_or(0);
        let monotonic = seconds(Timestamp(self.started_at.0.saturating_add(millis(at.uptime))));
        let now = seconds(at.now);
        let window_seconds = default_limit.window.as_secs().max(1);
        let limit = own.unwrap_or(default_limit.requests).min(COUNT_MASK as u32);
        let window = monotonic / window_seconds;
        // By the wall clock, which the client compares it with.
        let reset = now + (window + 1) * window_seconds - monotonic;
        Quota { limit, remaining: limit, reset, window_seconds, now, window }
    }
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl Quota {
    pub fn window(&self) -> u64 {
        self.window
    }

    pub fn seconds_left(&self) -> u64 {
        self.reset.saturating_sub(self.now).max(1)
    }

    pub fn problem(&self) -> Problem {
        let message = format!(
            "The limit of {} requests in {} s is exceeded. Try again in {} s.",
            self.limit,
            self.window_seconds,
            self.seconds_left()
        );
        Problem::new(Code::RateLimited, message).retry_after(self.seconds_left())
    }

    /// Writes both families of headers: the de-facto `X-RateLimit-*` and those of the IETF draft.
    pub fn write(&self, headers: &mut HeaderMap) {
        const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
        const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
        const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
        const IETF: HeaderName = HeaderName::from_static("ratelimit");
        const IETF_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
        let mut all = Values::default();
        let limit = all.push(&[""], &[self.limit.into()]);
        let remaining = all.push(&[""], &[self.remaining.into()]);
        let reset = all.push(&[""], &[self.reset]);
        let ietf = ["\"default\";r=", ";t="];
        let ietf = all.push(&ietf, &[self.remaining.into(), self.seconds_left()]);
        let policy = ["\"default\";q=", ";w="];
        let policy = all.push(&policy, &[self.limit.into(), self.window_seconds]);
        let text = Bytes::from(all.text);
        for (name, place, is_unique) in [
            (LIMIT, limit, false),
            (REMAINING, remaining, true),
            (RESET, reset, false),
            (IETF, ietf, true),
            (IETF_POLICY, policy, false),
        ] {
            if let Ok(mut value) = HeaderValue::from_maybe_shared(text.slice(place)) {
                if is_unique {
                    respond::mark_unique(&mut value);
                }
                headers.insert(name, value);
            }
        }
    }
}

/// The values of several headers in one allocation, without `format!`: this runs for every
/// response.
#[derive(Default)]
struct Values {
    text: String,
}

impl Values {
    /// Appends a value: each number after its name. Returns its place in the text.
    fn push(&mut self, names: &[&str], numbers: &[u64]) -> Range<usize> {
        if self.text.is_empty() {
            self.text.reserve(VALUES_BYTES);
        }
        let start = self.text.len();
        let mut digits = itoa::Buffer::new();
        for (name, number) in names.iter().zip(numbers) {
            self.text.push_str(name);
            self.text.push_str(digits.format(*number));
        }
        start..self.text.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment that many seconds after 1970, with the wall clock at another time if `clock`
    /// differs.
    fn at(seconds: u64, clock: i64) -> Moment {
        Moment { now: Timestamp(clock * 1000), uptime: Duration::from_secs(seconds) }
    }

    fn limiter() -> Limiter {
        let limit = RateLimit { requests: 2, window: Duration::from_secs(60) };
        Limiter::new(Some(limit), at(0, 0), store::cluster::Solo::new())
    }

    #[test]
    fn a_used_up_quota_is_restored_in_the_next_window() {
        let limiter = limiter();
        let bucket = limiter.bucket("key");
        let take = |seconds: u64| limiter.take(&bucket, None, at(seconds, seconds as i64)).unwrap();
        assert_eq!(take(60).0.remaining, 1);
        assert_eq!(take(61).0.remaining, 0);
        let (quota, granted) = take(119);
        assert!(!granted);
        assert_eq!((quota.reset, quota.seconds_left()), (120, 1));
        assert!(take(120).1, "a new window");
        assert_eq!(limiter.peek(&bucket, Some(5), at(120, 120)).unwrap().remaining, 4);
    }

    #[test]
    fn setting_the_clock_neither_opens_nor_closes_a_window() {
        let limiter = limiter();
        for jump in [-86_400, -60, 60, 86_400] {
            let bucket = limiter.bucket(&jump.to_string());
            assert!(limiter.take(&bucket, None, at(100_000, 100_000)).unwrap().1);
            assert!(limiter.take(&bucket, None, at(100_001, 100_001)).unwrap().1);
            let (quota, granted) =
                limiter.take(&bucket, None, at(100_002, 100_002 + jump)).unwrap();
            assert!(!granted, "{jump}");
            assert_eq!(quota.seconds_left(), 18, "{jump}");
            assert_eq!(quota.reset, (100_020 + jump) as u64, "{jump}");
            assert!(limiter.take(&bucket, None, at(100_020, 100_020 + jump)).unwrap().1, "{jump}");
        }
    }

    #[test]
    fn a_request_that_arrives_late_counts_in_the_newest_window() {
        let limiter = limiter();
        let bucket = limiter.bucket("key");
        let take = |seconds: u64| limiter.take(&bucket, None, at(seconds, seconds as i64)).unwrap();
        assert!(take(120).1);
        // It began in the window before, and neither starts that window nor this one again.
        let (quota, granted) = take(119);
        assert_eq!((quota.remaining, granted), (0, true));
        for seconds in [119, 120, 60, 179] {
            assert!(!take(seconds).1, "at {seconds}");
        }
        assert!(take(180).1, "a new window");
    }

    #[test]
    fn the_limit_of_a_key_overrides_the_default() {
        let limiter = limiter();
        let bucket = limiter.bucket("key");
        for left in (0..5).rev() {
            let (quota, granted) = limiter.take(&bucket, Some(5), at(0, 0)).unwrap();
            assert_eq!((quota.remaining, granted), (left, true));
        }
        assert!(!limiter.take(&bucket, Some(5), at(0, 0)).unwrap().1);
    }
}
