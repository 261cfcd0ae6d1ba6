//! From a host name to addresses the caller agrees to. Every address a name has is shown to the
//! caller's check, and connections go to what was shown: the name is not looked up again.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use super::Names;
use super::fault::OutgoingFault;
use super::target::{Host, Origin};

/// A name that is answered for within this is prompt.
const PROMPT: Duration = Duration::from_secs(1);
/// Names whose addresses are remembered; beyond it the old ones are forgotten, or else all.
const KNOWN: usize = 1000;
/// Prompt names that are remembered; beyond it all of them have to show it again.
const REMEMBERED: usize = 10_000;

/// Lookups under way: so many at a time, and one of each name, so that a name nobody answers for
/// keeps one thread busy and not all of them. A quarter is for names whose last lookup was prompt:
/// the system gives up on the others long after the call has, and any number of those must not be
/// in the way.
#[derive(Debug)]
pub(super) struct Lookups {
    all: Arc<Semaphore>,
    others: Arc<Semaphore>,
    names: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    prompt: Arc<Mutex<HashSet<String>>>,
    ttl: Duration,
    known: Mutex<HashMap<String, Known>>,
}

/// What a lookup found, and when.
#[derive(Clone, Debug)]
struct Known {
    addresses: Vec<IpAddr>,
    since: Instant,
}

impl Lookups {
    /// So many at a time. What they find is used for `ttl`.
    pub(super) fn new(most: usize, ttl: Duration) -> Lookups {
        Lookups {
            all: Arc::new(Semaphore::new(most)),
            others: Arc::new(Semaphore::new((most - most / 4).max(1))),
            names: Mutex::default(),
            prompt: Arc::default(),
            ttl,
            known: Mutex::default(),
        }
    }

    /// The addresses that a name had a short while ago.
    fn known(&self, name: &str) -> Option<Vec<IpAddr>> {
        if self.ttl.is_zero() {
            return None;
        }
        let known = lock(&self.known);
        let known = known.get(name).filter(|known| known.since.elapsed() < self.ttl)?;
        Some(known.addresses.clone())
    }

    fn learn(&self, name: &str, addresses: impl Iterator<Item = IpAddr>) {
        if self.ttl.is_zero() {
            return;
        }
        let mut known = lock(&self.known);
        if known.len() >= KNOWN {
            known.retain(|_, known| known.since.elapsed() < self.ttl);
        }
        if known.len() >= KNOWN {
            known.clear();
        }
        let addresses = addresses.collect();
        known.insert(name.to_owned(), Known { addresses, since: Instant::now() });
    }

    /// The addresses of this place are of no use: the next call looks its name up again.
    pub(super) fn forget(&self, origin: &Origin) {
        if let Host::Name(name) = &origin.host {
            lock(&self.known).retain(|known, _| known.trim_end_matches('.') != name);
        }
    }

    /// The turn of a name; the next one who asks for it waits.
    async fn turn(&self, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut names = lock(&self.names);
            // Nobody holds those, nor waits for them.
            names.retain(|_, turn| Arc::strong_count(turn) > 1);
            names.entry(name.to_owned()).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// What a lookup needs to begin. Those that are not prompt wait among themselves first.
    async fn permits(&self, name: &str) -> io::Result<[Option<OwnedSemaphorePermit>; 2]> {
        let other = match lock(&self.prompt).contains(name) {
            true => None,
            false => Some(self.others.clone()),
        };
        let other = match other {
            Some(others) => Some(others.acquire_owned().await.map_err(io::Error::other)?),
            None => None,
        };
        let any = self.all.clone().acquire_owned().await.map_err(io::Error::other)?;
        Ok([other, Some(any)])
    }

    /// Looks a name up, on a thread of its own. The thread keeps the permits and the turn of the
    /// name: a lookup whose call has given up still occupies it.
    async fn run<T: Send + 'static>(
        &self,
        name: String,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn(&name).await;
        let permits = self.permits(&name).await?;
        let prompt = self.prompt.clone();
        let lookup = spawn_blocking(move || {
            let began = Instant::now();
            let found = lookup();
            remember(&mut lock(&prompt), name, began.elapsed() < PROMPT);
            drop((permits, turn));
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}

fn remember(names: &mut HashSet<String>, name: String, is_prompt: bool) {
    if !is_prompt {
        names.remove(&name);
        return;
    }
    if names.len() >= REMEMBERED && !names.contains(&name) {
        names.clear();
    }
    names.insert(name);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where to connect, in the order to try. Literals are checked like names.
pub(super) async fn addresses(
    origin: &Origin,
    names: Names,
    lookups: &Lookups,
) -> Result<Vec<SocketAddr>, OutgoingFault> {
    match &origin.host {
        Host::Literal(address) => Ok(vec![SocketAddr::new(*address, origin.port)]),
        Host::Name(name) => {
            let name = spelled(name, names);
            if let Some(known) = lookups.known(&name) {
                return Ok(known.into_iter().map(|ip| SocketAddr::new(ip, origin.port)).collect());
            }
            let found = look_up(name.clone(), origin.port, lookups).await;
            let found = found.map_err(OutgoingFault::Resolve)?;
            lookups.learn(&name, found.iter().map(SocketAddr::ip));
            Ok(found)
        }
        // It is connected to by its path.
        Host::Unix(_) => Ok(Vec::new()),
    }
}

/// One refused address refuses the whole name: a name with good and bad addresses is an attack.
pub(super) fn vetted(
    mut found: Vec<SocketAddr>,
    vet: &(dyn Fn(IpAddr) -> bool + Sync),
    most: usize,
) -> Result<Vec<SocketAddr>, OutgoingFault> {
    if found.is_empty() {
        return Err(OutgoingFault::Resolve(io::ErrorKind::NotFound.into()));
    }
    if let Some(refused) = found.iter().find(|address| !vet(address.ip())) {
        return Err(OutgoingFault::Forbidden(refused.ip()));
    }
    let mut seen = HashSet::new();
    found.retain(|address| seen.insert(*address));
    // The families take turns (RFC 8305 4), so that one that leads nowhere does not use up all
    // attempts. IPv6 is more often announced than reachable. The order is the system's otherwise.
    let mut turns = [0, 0];
    let mut turn = |address: &SocketAddr| {
        let turn = &mut turns[usize::from(address.is_ipv6())];
        *turn += 1;
        *turn
    };
    let mut found: Vec<_> = found.into_iter().map(|found| (turn(&found), found)).collect();
    found.sort_by_key(|(turn, address)| (*turn, address.is_ipv6()));
    found.truncate(most);
    Ok(found.into_iter().map(|(_, address)| address).collect())
}

/// The system's own lookup.
async fn look_up(name: String, port: u16, lookups: &Lookups) -> io::Result<Vec<SocketAddr>> {
    let asked = name.clone();
    lookups.run(name, move || Ok((asked.as_str(), port).to_socket_addrs()?.collect())).await
}

/// A final dot keeps the system from trying its search domains. The hosts file knows `localhost`
/// only without.
fn spelled(name: &str, names: Names) -> String {
    let local = name == "localhost" || name.ends_with(".localhost");
    if names == Names::AsConfigured || local || name.ends_with('.') {
        return name.to_owned();
    }
    format!("{name}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{Future as _, poll_fn};
    use std::task::Poll;

    fn all(addresses: &[&str]) -> Vec<SocketAddr> {
        addresses.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn one_bad_address_among_good_ones_refuses_the_name() {
        let vet = |address: IpAddr| !address.is_loopback();
        for mixed in [
            &["192.0.2.1:80", "127.0.0.1:80"][..],
            &["127.0.0.1:80", "192.0.2.1:80"],
            &["192.0.2.1:80", "192.0.2.2:80", "[::1]:80"],
        ] {
            let fault = vetted(all(mixed), &vet, 8).unwrap_err();
            assert!(matches!(fault, OutgoingFault::Forbidden(address) if address.is_loopback()));
        }
        // Also one that would not have been tried.
        let fault = vetted(all(&["192.0.2.1:80", "[::1]:80"]), &vet, 1).unwrap_err();
        assert_eq!(fault.class(), "forbidden_address");
    }

    #[tokio::test]
    async fn a_name_has_one_lookup_at_a_time_and_leaves_nothing_behind() {
        let lookups = Lookups::new(2, Duration::ZERO);
        let turn = lookups.turn("slow.example").await;
        let again = lookups.turn("slow.example");
        tokio::pin!(again);
        let waits = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        drop(lookups.turn("other.example").await);
        drop(turn);
        drop(again.await);
        drop(lookups.turn("last.example").await);
        assert_eq!(lookups.names.lock().unwrap().len(), 1, "those that are done are forgotten");
    }

    /// Lookups that nobody answers until the sender is dropped.
    fn dead(count: usize, lookups: &Arc<Lookups>) -> std::sync::mpsc::Sender<()> {
        let (alive, ends) = std::sync::mpsc::channel::<()>();
        let ends = Arc::new(Mutex::new(ends));
        for number in 0..count {
            let (lookups, ends) = (lookups.clone(), ends.clone());
            tokio::spawn(async move {
                let lookup = move || {
                    let _ended = lock(&ends).recv();
                    Ok(())
                };
                lookups.run(format!("dead{number}.example"), lookup).await
            });
        }
        alive
    }

    #[tokio::test]
    async fn unanswered_lookups_do_not_delay_names_that_were_fast() {
        let lookups = Arc::new(Lookups::new(8, Duration::ZERO));
        lookups.run("good.example".into(), || Ok(())).await.unwrap();
        let alive = dead(100, &lookups);
        while lookups.others.available_permits() > 0 {
            // waits for: the dead names to have all they can get
            tokio::task::yield_now().await;
        }
        for _ in 0..10 {
            lookups.run("good.example".into(), || Ok(())).await.unwrap();
        }
        drop(alive);
        lookups.run("new.example".into(), || Ok(())).await.unwrap();
    }

    #[test]
    fn the_last_lookup_decides_if_a_name_is_fast_and_the_memory_is_limited() {
        let mut names = HashSet::new();
        remember(&mut names, "a".into(), true);
        remember(&mut names, "a".into(), false);
        assert!(names.is_empty());
        (0..REMEMBERED).for_each(|n| remember(&mut names, n.to_string(), true));
        remember(&mut names, "0".into(), true);
        assert_eq!(names.len(), REMEMBERED);
        remember(&mut names, "one too many".into(), true);
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn addresses_alternate_between_families_with_ipv4_first_up_to_a_limit() {
        let found = all(&["[2001:db8::1]:1", "192.0.2.2:1", "192.0.2.1:1", "192.0.2.2:1"]);
        let expected = all(&["192.0.2.2:1", "[2001:db8::1]:1", "192.0.2.1:1"]);
        assert_eq!(vetted(found.clone(), &|_| true, 8).unwrap(), expected);
        assert_eq!(vetted(found, &|_| true, 2).unwrap(), expected[..2]);
        assert_eq!(vetted(Vec::new(), &|_| true, 8).unwrap_err().class(), "dns");
    }

    #[tokio::test]
    async fn addresses_are_cached_until_they_expire_or_refuse() {
        let origin = |url: &str| crate::outgoing::Target::parse(url).unwrap().origin;
        let localhost = origin("http://localhost:7/");
        let lookups = Lookups::new(1, Duration::from_secs(60));
        let elsewhere: IpAddr = "192.0.2.9".parse().unwrap();
        lookups.learn("localhost", [elsewhere].into_iter());
        let found = addresses(&localhost, Names::Absolute, &lookups).await.unwrap();
        assert_eq!(found, all(&["192.0.2.9:7"]));
        lookups.forget(&localhost);
        let found = addresses(&localhost, Names::Absolute, &lookups).await.unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()), "{found:?}");
        assert!(lookups.known("localhost").is_some());
        let short = Lookups::new(1, Duration::from_nanos(1));
        short.learn("localhost", [elsewhere].into_iter());
        assert_eq!(short.known("localhost"), None);
        let never = Lookups::new(1, Duration::ZERO);
        never.learn("localhost", [elsewhere].into_iter());
        assert!(never.known("localhost").is_none() && lock(&never.known).is_empty());
        (0..=KNOWN).for_each(|n| lookups.learn(&n.to_string(), [elsewhere].into_iter()));
        assert!(lock(&lookups.known).len() <= KNOWN);
    }

    #[test]
    fn an_absolute_name_ends_with_a_dot_unless_the_hosts_file_resolves_it() {
        let absolute = |name| spelled(name, Names::Absolute);
        assert_eq!(absolute("example.com"), "example.com.");
        assert_eq!(absolute("example.com."), "example.com.");
        assert_eq!(absolute("intranet"), "intranet.");
        assert_eq!(absolute("localhost"), "localhost");
        assert_eq!(absolute("a.localhost"), "a.localhost");
        assert_eq!(spelled("a.svc", Names::AsConfigured), "a.svc");
    }
}
