//! Chooses a server of a group for a request, among those that are healthy.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use wire::outgoing::{Backlog, Target};

use crate::config::{Balance, Group, Server};
use crate::follow::Link;
use crate::health::Health;
use crate::metrics::ServerMetrics;

/// The longest time that a request waits for a place at its server.
const MAX_WAIT: Duration = Duration::from_secs(5);
/// The scale of weights, so that a slow start can give a part of a weight.
const FULL_PERCENT: i64 = 100;

/// The servers of a group with what is known about them.
pub(crate) struct Pool {
    pub(crate) group: Group,
    pub(crate) backends: Vec<Arc<Backend>>,
    /// Smooth weighted round robin: what each server has saved up.
    credits: Mutex<Vec<i64>>,
}

/// One server of a group.
pub(crate) struct Backend {
    pub(crate) server: Server,
    /// The server without the limit of requests: a check does not wait behind them.
    pub(crate) probe: Target,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: Arc<ServerMetrics>,
    /// It says that it is a restive server, by a header of its health check.
    pub(crate) is_restive: AtomicBool,
    /// What it has reported about its commits.
    pub(crate) link: Arc<Link>,
    load: Arc<Load>,
}

/// Requests in progress at a server.
#[derive(Default)]
struct Load {
    active: AtomicUsize,
    /// Long streams are counted apart.
    streams: AtomicUsize,
}

impl Backend {
    /// `before`: the same server of the configuration before, whose state goes on.
    fn new(server: &Server, group: &Group, before: Option<&Backend>) -> Backend {
        let backlog =
            Backlog { active: group.max_active, queued: group.max_waiting, wait: MAX_WAIT };
        let mut probe = server.target.clone().with_protocol(group.protocol);
        if let Some(version) = group.send_proxy {
            probe = probe.with_proxy_protocol(version);
        }
        let target = probe.clone().with_backlog(backlog);
        Backend {
            server: Server { target, ..server.clone() },
            probe,
            health: before.map(|before| before.health.clone()).unwrap_or_default(),
            metrics: before.map(|before| before.metrics.clone()).unwrap_or_default(),
            load: before.map(|before| before.load.clone()).unwrap_or_default(),
            link: before.map(|before| before.link.clone()).unwrap_or_default(),
            is_restive: AtomicBool::new(before.is_some_and(Backend::is_restive)),
        }
    }

    pub(crate) fn is_restive(&self) -> bool {
        self.is_restive.load(Ordering::Relaxed)
    }

    pub(crate) fn active(&self) -> usize {
        self.load.active.load(Ordering::Relaxed)
    }

    pub(crate) fn streams(&self) -> usize {
        self.load.streams.load(Ordering::Relaxed)
    }

    /// The share of requests it gets, which grows after a failure until it is back to its weight.
    fn weight(&self, now: Instant) -> i64 {
        i64::from(self.server.weight) * self.health.percent(now).clamp(1, FULL_PERCENT)
    }
}

/// A request in progress at a server, until it is dropped.
pub(crate) struct InProgress {
    backend: Arc<Backend>,
    is_stream: bool,
}

impl InProgress {
    pub(crate) fn begin(backend: &Arc<Backend>) -> InProgress {
        backend.load.active.fetch_add(1, Ordering::Relaxed);
        InProgress { backend: backend.clone(), is_stream: false }
    }

    /// Counts it as a long stream from now on: such streams wait most of the time, and a server
    /// with many of them is not a busy one.
    pub(crate) fn becomes_stream(&mut self) {
        if !std::mem::replace(&mut self.is_stream, true) {
            self.backend.load.active.fetch_sub(1, Ordering::Relaxed);
            self.backend.load.streams.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        let Load { active, streams } = &*self.backend.load;
        let count = if self.is_stream { streams } else { active };
        count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Servers that `before` has as well keep their state, whatever else has changed.
    pub(crate) fn new(group: Group, before: Option<&Pool>) -> Pool {
        let limits =
            |group: &Group| (group.max_active, group.max_waiting, group.protocol, group.send_proxy);
        let known =
            |server: &Server| before?.backends.iter().find(|old| old.server.url == server.url);
        let backend = |server: &Server| {
            let old = known(server);
            let is_same = |old: &&Arc<Backend>| {
                let before = before.map(|before| limits(&before.group));
                old.server.is_same(server) && before == Some(limits(&group))
            };
            let backend = match old.filter(is_same) {
                // Its limit goes on to count the requests in progress.
                Some(backend) => backend.clone(),
                None => Arc::new(Backend::new(server, &group, old.map(|old| &**old))),
            };
            if group.check.is_none() {
                backend.health.forget_checks();
            }
            backend
        };
        let backends: Vec<_> = group.servers.iter().map(backend).collect();
        let credits = Mutex::new(vec![0; backends.len()]);
        Pool { group, backends, credits }
    }

    /// The servers as this client reaches them, where each client has connections of its own.
    pub(crate) fn introduced(&self, client: SocketAddr, reached: SocketAddr) -> Vec<Target> {
        let targets = self.backends.iter().map(|backend| &backend.server.target);
        targets.filter_map(|target| target.for_client(client, reached)).collect()
    }

    /// Whether all servers say that they are restive servers.
    pub(crate) fn is_restive(&self) -> bool {
        self.backends.iter().all(|backend| backend.is_restive())
    }

    /// The only server, if there is one: what it would refuse, the pool refuses.
    pub(crate) fn only(&self) -> Option<&Arc<Backend>> {
        self.backends.first().filter(|_| self.backends.len() == 1)
    }

    /// A server that was not tried yet. If none is healthy, all are candidates: a wrong health
    /// check must not stop the service.
    pub(crate) fn choose(
        &self,
        client: IpAddr,
        tried: &[usize],
        now: Instant,
    ) -> Option<(usize, &Arc<Backend>)> {
        let untried = |place: &usize| !tried.contains(place);
        let is_usable = |place: &usize| self.backends[*place].health.is_usable(now);
        let all = 0..self.backends.len();
        if all.len() == 1 {
            // The usual case needs no lists.
            return tried.is_empty().then(|| (0, &self.backends[0]));
        }
        let mut places: Vec<usize> = all.clone().filter(untried).filter(is_usable).collect();
        if places.is_empty() {
            places = all.filter(untried).collect();
        }
        let place = match self.group.balance {
            Balance::RoundRobin => self.next_in_turn(&places, now),
            Balance::LeastConnections => self.least_busy(&places, now),
            Balance::ClientHash => self.by_hash(&places, client),
        }?;
        Some((place, &self.backends[place]))
    }

    /// Smooth weighted round robin: with weights 5, 1, 1 the order is a a b a c a a, not a a a a a.
    fn next_in_turn(&self, places: &[usize], now: Instant) -> Option<usize> {
        let mut credits = self.credits.lock();
        let mut total = 0;
        for place in places {
            let weight = self.backends[*place].weight(now);
            credits[*place] += weight;
            total += weight;
        }
        let best = places.iter().copied().max_by_key(|place| credits[*place])?;
        credits[best] -= total;
        Some(best)
    }

    /// The fewest requests in progress for its weight; among equals, in turn.
    fn least_busy(&self, places: &[usize], now: Instant) -> Option<usize> {
        let load = |place: &usize| {
            let backend = &self.backends[*place];
            // One more than now: an idle server with a higher weight comes first.
            let load = (backend.active() as i64 + 1) * FULL_PERCENT * FULL_PERCENT;
            load / backend.weight(now)
        };
        let least = places.iter().map(load).min()?;
        let equal: Vec<usize> = places.iter().copied().filter(|p| load(p) == least).collect();
        self.next_in_turn(&equal, now)
    }

    /// Rendezvous hashing: when a server leaves, only its own clients move.
    fn by_hash(&self, places: &[usize], client: IpAddr) -> Option<usize> {
        let score = |place: &usize| {
            let backend = &self.backends[*place];
            let mut hasher = DefaultHasher::new();
            (client, &backend.server.url).hash(&mut hasher);
            // Uniform in (0, 1]; the weighted form of the method takes its logarithm.
            let uniform = (hasher.finish() >> 11) as f64 / (1u64 << 53) as f64;
            -f64::from(backend.server.weight) / uniform.max(f64::MIN_POSITIVE).ln()
        };
        places.iter().copied().max_by(|a, b| score(a).total_cmp(&score(b)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn pool(balance: Balance, weights: &[u32]) -> Pool {
        let mut group = Group { balance, ..Group::new("test") };
        for (place, weight) in weights.iter().enumerate() {
            let url = format!("10.0.0.{}:80", place + 1);
            group.servers.push(Server::parse(&url, *weight).unwrap());
        }
        Pool::new(group, None)
    }

    fn client(number: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, number])
    }

    #[test]
    fn round_robin_is_smooth_and_follows_the_weights() {
        let pool = pool(Balance::RoundRobin, &[5, 1, 1]);
        let now = Instant::now();
        let order: Vec<usize> =
            (0..7).map(|_| pool.choose(client(1), &[], now).unwrap().0).collect();
        assert_eq!(order.iter().filter(|place| **place == 0).count(), 5);
        assert!(!order.windows(3).any(|three| three == [1, 1, 1] || three == [2, 2, 2]));
        assert!(order.windows(2).any(|two| two[0] == 0 && two[1] != 0), "{order:?}");
    }

    #[test]
    fn the_least_busy_server_is_chosen_and_streams_count_apart() {
        let pool = pool(Balance::LeastConnections, &[1, 1]);
        let now = Instant::now();
        let mut busy = InProgress::begin(&pool.backends[0]);
        for _ in 0..4 {
            assert_eq!(pool.choose(client(1), &[], now).unwrap().0, 1);
        }
        busy.becomes_stream();
        assert_eq!((pool.backends[0].active(), pool.backends[0].streams()), (0, 1));
        let chosen: Vec<usize> =
            (0..4).map(|_| pool.choose(client(1), &[], now).unwrap().0).collect();
        assert!(chosen.contains(&0));
        drop(busy);
        assert_eq!(pool.backends[0].streams(), 0);
    }

    #[test]
    fn a_client_keeps_its_server_and_only_clients_of_a_lost_server_move() {
        let pool = pool(Balance::ClientHash, &[1, 1, 1, 1]);
        let now = Instant::now();
        let of = |number| pool.choose(client(number), &[], now).unwrap().0;
        let before: BTreeMap<u8, usize> = (0..200).map(|number| (number, of(number))).collect();
        for place in 0..4 {
            let count = before.values().filter(|found| **found == place).count();
            assert!((25..=80).contains(&count), "{place}: {count}");
        }
        for (number, place) in &before {
            assert_eq!(of(*number), *place);
            let moved = pool.choose(client(*number), &[2], now).unwrap().0;
            assert!(moved == *place || *place == 2);
        }
    }

    #[test]
    fn a_reload_keeps_what_is_known_and_forgets_checks_that_are_off() {
        let old = pool(Balance::RoundRobin, &[1, 1]);
        let now = Instant::now();
        let _busy = InProgress::begin(&old.backends[0]);
        old.backends[0].health.set_checked(false, now);
        let changed = Group { max_active: 7, ..old.group.clone() };
        let new = Pool::new(changed, Some(&old));
        assert!(!new.backends[0].health.is_usable(now));
        assert_eq!(new.backends[0].active(), 1);
        let unchecked = Group { check: None, ..new.group.clone() };
        let new = Pool::new(unchecked, Some(&new));
        assert!(new.backends[0].health.is_usable(now), "nothing would make it healthy again");
    }

    #[test]
    fn unhealthy_servers_are_avoided_until_none_is_left() {
        let pool = pool(Balance::RoundRobin, &[1, 1, 1]);
        let now = Instant::now();
        let places = |tried: &[usize]| -> Vec<usize> {
            let mut all: Vec<usize> =
                (0..12).filter_map(|_| Some(pool.choose(client(1), tried, now)?.0)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        pool.backends[1].health.set_checked(false, now);
        assert_eq!(places(&[]), [0, 2]);
        assert_eq!(places(&[0]), [2]);
        assert_eq!(places(&[0, 2]), [1], "fail open");
        assert_eq!(places(&[0, 1, 2]), [0; 0]);
        pool.backends[0].health.set_checked(false, now);
        pool.backends[2].health.set_checked(false, now);
        assert_eq!(places(&[]), [0, 1, 2], "fail open");
    }
}
