//! The hosts of a URL, of which one is the primary: the order in which they are asked, and how long
//! a connection may take. Connects to none.

use crate::Error;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio_postgres::Config;

/// How long a connection to each of several hosts may take, at first: the leases of a node end in
/// 12 s, and they are renewed at the second host or the third while the first is silent.
pub const CONNECT_EACH: Duration = Duration::from_millis(1_500);
/// The same if none of them has answered: the network is slow.
pub const CONNECT_AGAIN: Duration = Duration::from_secs(5);
/// A caller who waits no longer than this for a host has not found it silent.
const PATIENT: Duration = Duration::from_millis(500);

/// The hosts of the URL, of which one accepts writes.
pub struct Hosts {
    pub configs: Vec<Config>,
    /// The one that answered last is asked first.
    first: AtomicUsize,
    /// How long a connection to one of them may take, with all that belongs to it: one time after
    /// the other, if all of them are silent.
    pub within: Vec<Duration>,
}

impl Hosts {
    pub fn new(configs: Vec<Config>, within: Vec<Duration>) -> Hosts {
        Hosts { configs, first: AtomicUsize::new(0), within }
    }

    /// In the order in which they are to be asked.
    pub fn asked(&self) -> impl Iterator<Item = Asking<'_>> {
        let (first, count) = (self.first.load(Relaxed), self.configs.len());
        (0..count).map(move |turn| Asking {
            hosts: self,
            at: (first + turn) % count,
            began: Instant::now(),
        })
    }
}

/// The next host is asked first, unless this one answers: also if the caller waits no longer.
pub struct Asking<'a> {
    hosts: &'a Hosts,
    at: usize,
    began: Instant,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if self.began.elapsed() >= PATIENT {
            self.pass();
        }
    }
}

impl Asking<'_> {
    pub fn config(&self) -> &Config {
        &self.hosts.configs[self.at]
    }

    /// Whether the host has taken long to say that it cannot be used, or said nothing.
    pub fn is_silent(&self, within: Duration) -> bool {
        self.began.elapsed() >= within / 2
    }

    pub fn pass(&self) {
        let next = (self.at + 1) % self.hosts.configs.len();
        let _ = self.hosts.first.compare_exchange(self.at, next, Relaxed, Relaxed);
    }

    pub fn answered(self) {
        self.hosts.first.store(self.at, Relaxed);
        std::mem::forget(self);
    }
}

/// What the failures at several hosts are together. One that may end by itself counts before one
/// that does not: a replica may become the primary.
pub fn all(mut failures: Vec<Error>) -> Error {
    if failures.len() == 1 {
        return failures.remove(0);
    }
    let is_away = failures.iter().any(|error| matches!(error, Error::Unavailable(_)));
    let reasons: Vec<String> = failures
        .iter()
        .map(|error| match error {
            Error::Unavailable(source) => source.to_string(),
            other => other.to_string(),
        })
        .collect();
    match is_away {
        true => Error::Unavailable(reasons.join("; ").into()),
        false => Error::Refused(reasons),
    }
}

/// A URL for each host of a URL.
pub fn each_host(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    // As the client reads it: the user and the password end at the first `@`.
    let (user, rest) = rest.split_at(rest.find('@').map_or(0, |at| at + 1));
    let (hosts, rest) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{rest}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::connect::{Address, shown};

    #[test]
    fn a_url_with_several_hosts_has_one_url_for_each() {
        assert_eq!(each_host("postgres://u:p@db:1/shop?a=b"), ["postgres://u:p@db:1/shop?a=b"]);
        let several = each_host("postgres://u:p,/?@db-1,[::1]:5433,db-3?a=b,c");
        let expected = [
            "postgres://u:p,/?@db-1?a=b,c",
            "postgres://u:p,/?@[::1]:5433?a=b,c",
            "postgres://u:p,/?@db-3?a=b,c",
        ];
        assert_eq!(several, expected);
        let hosts = |url: &str| Address::parse(url).unwrap().hosts();
        let two = hosts("postgres://u@db-1,db-2:5433/shop");
        let names: Vec<String> = two.configs.iter().map(shown).collect();
        assert_eq!(names, ["postgres://db-1:5432/shop", "postgres://db-2:5433/shop"]);
        assert_eq!(two.within, [CONNECT_EACH, CONNECT_AGAIN]);
        let slow = hosts("postgres://u@db-1,db-2/shop?connect_timeout=4");
        assert_eq!(slow.within, [Duration::from_secs(4)]);
        let named = hosts("postgres://u@a,b/shop?hostaddr=10.0.0.1,10.0.0.2");
        assert_eq!(named.configs.len(), 1, "the addresses belong to both");
    }

    #[test]
    fn the_host_that_answered_last_is_asked_first_and_one_that_was_silent_last() {
        let hosts = Hosts::new(vec![Config::new(), Config::new()], vec![CONNECT_EACH]);
        let asking = |at: usize, began: Instant| Asking { hosts: &hosts, at, began };
        let first = || hosts.asked().next().map(|asking| asking.at);
        asking(1, Instant::now()).answered();
        assert_eq!(first(), Some(1));
        let long_ago = Instant::now() - PATIENT;
        drop(asking(0, long_ago));
        assert_eq!(first(), Some(1), "another one was silent");
        drop(asking(1, long_ago));
        assert_eq!(first(), Some(0));
        drop(asking(0, Instant::now() + PATIENT));
        assert_eq!(first(), Some(0), "it was not asked for long");
        assert!(asking(0, long_ago).is_silent(PATIENT * 2));
        assert!(!asking(0, long_ago).is_silent(PATIENT * 60));
    }
}
