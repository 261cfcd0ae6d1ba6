//! From a host name to addresses the caller agrees to. Every address a name has is shown to the
//! caller's check, and connections go to what was shown: the name is not looked up again.

use std::collections::{HashMap, HashSet};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;

use super::Names;
use super::fault::OutgoingFault;
use super::target::{Host, Origin};
use crate::budget::{Budget, Share};

/// A name that is answered for within this is prompt.
const PROMPT: Duration = Duration::from_secs(1);
/// Names whose addresses are remembered; beyond it the old ones are forgotten, or else all.
const KNOWN: usize = 1000;
/// Prompt names that are remembered; beyond it the account with the most has to show one again.
const REMEMBERED: usize = 10_000;

/// On whose behalf a name is looked up; `None` for the operator.
pub(super) type Account = Option<i64>;

/// Held by the lookup of a name.
type Turn = Arc<tokio::sync::Mutex<()>>;

/// Lookups under way: so many at a time, and one of each name of an account, so that a name nobody
/// answers for keeps one thread busy and not all of them. A quarter is for names whose last lookup
/// was prompt: the system gives up on the others long after the call has, and any number of those
/// must not be in the way. Each account has its share of both parts.
#[derive(Debug)]
pub(super) struct Lookups {
    all: Arc<Budget<Account>>,
    others: Arc<Budget<Account>>,
    names: Mutex<HashMap<(Account, String), Turn>>,
    prompt: Arc<Mutex<PromptNames>>,
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
            all: Budget::new(most),
            others: Budget::new((most - most / 4).max(1)),
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

    /// The turn of a name; the next call of the account that asks for it waits.
    async fn turn(&self, account: Account, name: &str) -> OwnedMutexGuard<()> {
        let turn = {
            let mut names = lock(&self.names);
            // Nobody holds those, nor waits for them.
            names.retain(|_, turn| Arc::strong_count(turn) > 1);
            names.entry((account, name.to_owned())).or_default().clone()
        };
        turn.lock_owned().await
    }

    /// What a lookup needs to begin. Those that are not prompt wait among themselves first.
    async fn shares(&self, account: Account, name: &str) -> [Option<Share<Account>>; 2] {
        let is_prompt = lock(&self.prompt).contains(account, name);
        let other = match is_prompt {
            true => None,
            false => Some(share(&self.others, account).await),
        };
        [other, Some(share(&self.all, account).await)]
    }

    /// Looks a name up, on a thread of its own. The thread keeps the shares and the turn of the
    /// name: a lookup whose call has given up still occupies it.
    async fn run<T: Send + 'static>(
        &self,
        account: Account,
        name: String,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let turn = self.turn(account, &name).await;
        let shares = self.shares(account, &name).await;
        let prompt = self.prompt.clone();
        let lookup = spawn_blocking(move || {
            let began = Instant::now();
            let found = lookup();
            lock(&prompt).remember(account, name, began.elapsed() < PROMPT);
            drop((shares, turn));
            found
        });
        lookup.await.map_err(io::Error::other)?
    }
}

/// One lookup of an account, when it has room for it.
async fn share(budget: &Arc<Budget<Account>>, account: Account) -> Share<Account> {
    let mut place = None;
    poll_fn(|cx| {
        loop {
            if let Some(share) = budget.take(account, 1) {
                return Poll::Ready(share);
            }
            if budget.enqueue(&mut place, account, 1, cx.waker()) {
                return Poll::Pending;
            }
        }
    })
    .await
}

/// Names whose last lookup was prompt, by account.
#[derive(Debug, Default)]
struct PromptNames {
    accounts: HashMap<Account, HashSet<String>>,
    count: usize,
}

impl PromptNames {
    fn contains(&self, account: Account, name: &str) -> bool {
        self.accounts.get(&account).is_some_and(|names| names.contains(name))
    }

    fn remember(&mut self, account: Account, name: String, is_prompt: bool) {
        if !is_prompt {
            return self.forget(account, &name);
        }
        if self.contains(account, &name) {
            return;
        }
        if self.count >= REMEMBERED {
            let most = self.accounts.iter().max_by_key(|(_, names)| names.len());
            let one = most.and_then(|(most, names)| Some((*most, names.iter().next()?.clone())));
            if let Some((most, name)) = one {
                self.forget(most, &name);
            }
        }
        self.accounts.entry(account).or_default().insert(name);
        self.count += 1;
    }

    fn forget(&mut self, account: Account, name: &str) {
        let Some(names) = self.accounts.get_mut(&account) else { return };
        self.count -= usize::from(names.remove(name));
        if names.is_empty() {
            self.accounts.remove(&account);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where to connect, in the order to try. Literals are checked like names.
pub(super) async fn addresses(
    origin: &Origin,
    names: Names,
    account: Account,
    lookups: &Lookups,
) -> Result<Vec<SocketAddr>, OutgoingFault> {
    match &origin.host {
        Host::Literal(address) => Ok(vec![SocketAddr::new(*address, origin.port)]),
        Host::Name(name) => {
            let name = spelled(name, names);
            if let Some(known) = lookups.known(&name) {
                return Ok(known.into_iter().map(|ip| SocketAddr::new(ip, origin.port)).collect());
            }
            let found = look_up(account, name.clone(), origin.port, lookups).await;
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
async fn look_up(
    account: Account,
    name: String,
    port: u16,
    lookups: &Lookups,
) -> io::Result<Vec<SocketAddr>> {
    let asked = name.clone();
    let lookup = move || Ok((asked.as_str(), port).to_socket_addrs()?.collect());
    lookups.run(account, name, lookup).await
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
        let turn = lookups.turn(None, "slow.example").await;
        let again = lookups.turn(None, "slow.example");
        tokio::pin!(again);
        let waits = poll_fn(|cx| Poll::Ready(again.as_mut().poll(cx).is_pending())).await;
        assert!(waits);
        drop(lookups.turn(None, "other.example").await);
        drop(lookups.turn(Some(1), "slow.example").await);
        drop(turn);
        drop(again.await);
        drop(lookups.turn(None, "last.example").await);
        assert_eq!(lookups.names.lock().unwrap().len(), 1, "those that are done are forgotten");
    }

    /// Lookups of account 1 that nobody answers until the sender is dropped.
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
                lookups.run(Some(1), format!("dead{number}.example"), lookup).await
            });
        }
        alive
    }

    /// The dead names of account 1 have all they can get.
    async fn is_stuck(lookups: &Lookups) {
        while lookups.others.has_room(Some(1), 1) {
            // waits for: the lookups to begin
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn unanswered_lookups_do_not_delay_names_that_were_fast() {
        let lookups = Arc::new(Lookups::new(8, Duration::ZERO));
        lookups.run(Some(1), "good.example".into(), || Ok(())).await.unwrap();
        let alive = dead(100, &lookups);
        is_stuck(&lookups).await;
        for _ in 0..10 {
            lookups.run(Some(1), "good.example".into(), || Ok(())).await.unwrap();
        }
        drop(alive);
        lookups.run(Some(1), "new.example".into(), || Ok(())).await.unwrap();
    }

    #[tokio::test]
    async fn unanswered_lookups_of_one_account_do_not_delay_new_names_of_another() {
        let lookups = Arc::new(Lookups::new(64, Duration::ZERO));
        let alive = dead(1000, &lookups);
        is_stuck(&lookups).await;
        assert_eq!(lookups.all.held_by(Some(1)), 24, "half of those that are not prompt");
        for account in 2..=200 {
            // Account 1 waits for its turn to look this one up, too.
            let name = if account == 2 { "dead999.example" } else { "new.example" };
            let lookup = lookups.run(Some(account), name.into(), || Ok(()));
            tokio::time::timeout(Duration::from_secs(5), lookup).await.unwrap().unwrap();
        }
        drop(alive);
        lookups.run(Some(1), "new.example".into(), || Ok(())).await.unwrap();
    }

    #[test]
    fn the_last_lookup_decides_if_a_name_is_fast_and_the_memory_is_limited() {
        let mut names = PromptNames::default();
        names.remember(None, "a".into(), true);
        names.remember(None, "a".into(), false);
        assert!(names.accounts.is_empty() && names.count == 0);
        names.remember(Some(2), "only".into(), true);
        (0..2 * REMEMBERED).for_each(|n| names.remember(Some(1), n.to_string(), true));
        assert_eq!(names.count, REMEMBERED);
        assert_eq!(names.accounts[&Some(1)].len(), REMEMBERED - 1);
        assert!(names.contains(Some(2), "only"), "one account takes no room from the others");
        assert!(!names.contains(Some(1), "only"));
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
        let found = addresses(&localhost, Names::Absolute, None, &lookups).await.unwrap();
        assert_eq!(found, all(&["192.0.2.9:7"]));
        lookups.forget(&localhost);
        let found = addresses(&localhost, Names::Absolute, None, &lookups).await.unwrap();
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
