//! Figures of one account and mode over the last hour: requests by minute with their times, and
//! errors and versions by ten minutes.

use super::Noted;
use crate::metrics::RouteKey;
use model::Timestamp;
use std::collections::VecDeque;
use std::time::Duration;

pub const MINUTE_MS: i64 = 60_000;
/// Minutes that are shown, and kept.
pub const MINUTES: i64 = 60;
/// Minutes that errors and versions are counted in.
const SPAN_MINUTES: i64 = 10;
/// Kinds of errors, by code and route, in one span, or as many as a scope has entries. Others are
/// not counted by kind.
const MAX_ERRORS: usize = 50;
/// Versions in one span; a service has few.
const MAX_VERSIONS: usize = 50;
/// Times are counted by powers of the square root of two, from 32 µs to 16 s.
const FIRST_BIT: u32 = 5;
const BUCKETS: usize = 39;

#[derive(Default)]
pub struct Figures {
    /// The newest last; minutes without requests are left out.
    minutes: VecDeque<Minute>,
    spans: VecDeque<Span>,
}

struct Minute {
    minute: i64,
    requests: u32,
    client_errors: u32,
    server_errors: u32,
    commits: u32,
    times: [u32; BUCKETS],
}

struct Span {
    /// The minute at which it begins.
    begin: i64,
    versions: Vec<(usize, u64)>,
    errors: Vec<ErrorGroup>,
}

/// Errors of one code and route.
#[derive(Clone)]
pub struct ErrorGroup {
    pub code: String,
    pub route: Option<RouteKey>,
    pub count: u64,
    /// Number of the last request.
    pub last: u64,
}

impl Figures {
    /// Keeps no more groups of errors than a scope may have entries: with many accounts each has
    /// less.
    pub fn shrink(&mut self, share: usize) {
        for span in &mut self.spans {
            span.errors.truncate(share);
            span.errors.shrink_to_fit();
        }
    }

    /// `share` bounds the groups of errors.
    pub fn count(&mut self, noted: &Noted, share: usize) {
        let minute = noted.at.0.div_euclid(MINUTE_MS);
        let own = self.minute(minute);
        own.requests += 1;
        own.client_errors += u32::from((400..500).contains(&noted.status));
        own.server_errors += u32::from(noted.status >= 500);
        own.commits += u32::from(is_commit(noted));
        own.times[bucket(noted.took)] += 1;
        let span = self.span(minute - minute.rem_euclid(SPAN_MINUTES));
        let known = span.versions.iter_mut().find(|(version, _)| *version == noted.version);
        if let Some((_, count)) = known {
            *count += 1;
        } else if span.versions.len() < MAX_VERSIONS {
            span.versions.push((noted.version, 1));
        }
        if let Some(error) = &noted.error {
            span.count_error(&error.code, noted.route, noted.number, share.min(MAX_ERRORS));
        }
    }

    /// The entry of a minute. A clock that was set back counts in the newest minute.
    fn minute(&mut self, minute: i64) -> &mut Minute {
        if self.minutes.back().is_none_or(|last| last.minute < minute) {
            while self.minutes.front().is_some_and(|first| first.minute <= minute - MINUTES) {
                self.minutes.pop_front();
            }
            self.minutes.push_back(Minute {
                minute,
                requests: 0,
                client_errors: 0,
                server_errors: 0,
                commits: 0,
                times: [0; BUCKETS],
            });
        }
        let last = self.minutes.len() - 1;
        &mut self.minutes[last]
    }

    fn span(&mut self, begin: i64) -> &mut Span {
        if self.spans.back().is_none_or(|last| last.begin < begin) {
            while self.spans.front().is_some_and(|first| first.begin <= begin - MINUTES) {
                self.spans.pop_front();
            }
            self.spans.push_back(Span { begin, versions: Vec::new(), errors: Vec::new() });
        }
        let last = self.spans.len() - 1;
        &mut self.spans[last]
    }
}

impl Span {
    fn count_error(&mut self, code: &str, route: Option<RouteKey>, number: u64, most: usize) {
        let known = self.errors.iter_mut().find(|one| one.code == code && one.route == route);
        if let Some(known) = known {
            known.count += 1;
            known.last = known.last.max(number);
        } else if self.errors.len() < most {
            let code = code.to_owned();
            self.errors.push(ErrorGroup { code, route, count: 1, last: number });
        }
    }
}

/// A write that was accepted and changed something.
fn is_commit(noted: &Noted) -> bool {
    let writes = matches!(noted.method, "POST" | "PUT" | "PATCH" | "DELETE");
    writes && noted.status < 300 && !noted.is_replayed
}

fn bucket(took: Duration) -> usize {
    let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1 << FIRST_BIT);
    let bit = micros.ilog2();
    let half = (micros >> (bit - 1)) & 1;
    let place = (bit - FIRST_BIT) as usize * 2 + usize::from(half == 1);
    place.min(BUCKETS - 1)
}

/// A time in the middle of a bucket, in milliseconds.
fn milliseconds(bucket: usize) -> f64 {
    let begin = f64::from(1u32 << FIRST_BIT) * 2f64.powi(i32::try_from(bucket / 2).unwrap_or(0));
    let micros = if bucket.is_multiple_of(2) { begin * 1.25 } else { begin * 1.75 };
    (micros / 10.0).round() / 100.0
}

/// The figures of all shards together.
pub struct Summary {
    /// One for each minute, oldest first.
    pub points: Vec<Point>,
    pub versions: Vec<(usize, u64)>,
    pub errors: Vec<ErrorGroup>,
    first: i64,
}

#[derive(Clone)]
pub struct Point {
    pub at: Timestamp,
    pub requests: u64,
    pub client_errors: u64,
    pub server_errors: u64,
    pub commits: u64,
    times: [u64; BUCKETS],
}

impl Point {
    /// The time that a part of the requests did not exceed; none without requests.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let wanted = (self.requests as f64 * part).ceil().max(1.0);
        let mut below = 0.0;
        let place = self.times.iter().position(|count| {
            below += *count as f64;
            below >= wanted
        });
        place.filter(|_| self.requests > 0).map(milliseconds)
    }
}

impl Summary {
    pub fn new(now: Timestamp) -> Summary {
        let first = now.0.div_euclid(MINUTE_MS) - MINUTES + 1;
        let point = |minute: i64| Point {
            at: Timestamp((first + minute) * MINUTE_MS),
            requests: 0,
            client_errors: 0,
            server_errors: 0,
            commits: 0,
            times: [0; BUCKETS],
        };
        let points = (0..MINUTES).map(point).collect();
        Summary { points, versions: Vec::new(), errors: Vec::new(), first }
    }

    pub fn add(&mut self, figures: &Figures) {
        for minute in &figures.minutes {
            let place = usize::try_from(minute.minute - self.first).ok();
            let Some(point) = place.and_then(|place| self.points.get_mut(place)) else { continue };
            point.requests += u64::from(minute.requests);
            point.client_errors += u64::from(minute.client_errors);
            point.server_errors += u64::from(minute.server_errors);
            point.commits += u64::from(minute.commits);
            for (sum, count) in point.times.iter_mut().zip(minute.times) {
                *sum += u64::from(count);
            }
        }
        let recent = |span: &&Span| span.begin + SPAN_MINUTES > self.first;
        for span in figures.spans.iter().filter(recent) {
            for (version, count) in &span.versions {
                match self.versions.iter_mut().find(|(known, _)| known == version) {
                    Some((_, sum)) => *sum += count,
                    None => self.versions.push((*version, *count)),
                }
            }
            for error in &span.errors {
                let same =
                    |one: &&mut ErrorGroup| one.code == error.code && one.route == error.route;
                match self.errors.iter_mut().find(same) {
                    Some(known) => {
                        known.count += error.count;
                        known.last = known.last.max(error.last);
                    }
                    None => self.errors.push(error.clone()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_a_bucket_and_its_middle_is_near() {
        assert_eq!(bucket(Duration::ZERO), 0);
        assert_eq!(bucket(Duration::from_secs(3600)), BUCKETS - 1);
        for micros in [32u64, 50, 100, 999, 1_500, 20_000, 1_000_000, 15_000_000] {
            let shown = milliseconds(bucket(Duration::from_micros(micros))) * 1000.0;
            let ratio = shown / micros as f64;
            assert!((0.7..1.4).contains(&ratio), "{micros} {shown}");
        }
    }

    #[test]
    fn quantiles_follow_the_counts() {
        let mut point = Summary::new(Timestamp(MINUTE_MS * 1_000)).points[59].clone();
        assert_eq!(point.quantile(0.5), None);
        point.requests = 100;
        point.times[bucket(Duration::from_micros(100))] = 98;
        point.times[bucket(Duration::from_millis(50))] = 2;
        assert!(point.quantile(0.5).unwrap() < 0.2);
        assert!(point.quantile(0.99).unwrap() > 30.0);
    }
}
