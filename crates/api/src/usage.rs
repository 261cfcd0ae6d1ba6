//! Who still uses what: counts per account of requests in each version, and of requests that use a
//! deprecated collection or field, so that an operator knows when it can go. On the way of every
//! request, so it is one addition and one store in memory; every few seconds, and at the end, what
//! was added is handed to the store in one go.

use model::Timestamp;
use model::schema::Deprecation;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::Upkeep;
use store::usage::{NAMED_ACCOUNTS, SubjectUse, Used, UsedInAll};

/// Accounts in memory; over it, those that do not call right now are left to the store.
pub const MAX_ACCOUNTS: usize = 100_000;
/// What a crash loses at most.
const INTERVAL: Duration = Duration::from_secs(5);
/// Stands for the accounts of a subject that have no name of their own in the metrics. No id of an
/// account is like it: they begin with `acct_`.
pub const OTHER: &str = "other";

/// Something whose uses are counted.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: SubjectKind,
    pub deprecated: Option<Deprecation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// By its date.
    Version(String),
    Collection(String),
    /// Under one of its names: a field that had another before is another kind there.
    Field {
        collection: String,
        name: String,
    },
}

impl SubjectKind {
    /// What the store calls it. No collection is called like a date, or has a dot in its name.
    fn key(&self) -> String {
        match self {
            SubjectKind::Version(name) | SubjectKind::Collection(name) => name.clone(),
            SubjectKind::Field { collection, name } => format!("{collection}.{name}"),
        }
    }
}

/// The requests of one account, by subject.
pub struct Usage(Box<[Count]>);

#[derive(Default)]
struct Count {
    requests: AtomicU64,
    /// In milliseconds.
    last: AtomicI64,
    /// How many of the requests the store knows.
    kept: AtomicU64,
}

impl Usage {
    fn new(keys: &[String], kept: &[Used]) -> Usage {
        let count = |key: &String| {
            let Some(used) = kept.iter().find(|used| used.subject == *key) else {
                return Count::default();
            };
            Count {
                requests: AtomicU64::new(used.requests),
                last: AtomicI64::new(used.last.0),
                kept: AtomicU64::new(used.requests),
            }
        };
        Usage(keys.iter().map(count).collect())
    }

    /// Counts a request that used the subject at this place.
    pub fn count(&self, place: usize, now: Timestamp) {
        if let Some(count) = self.0.get(place) {
            count.requests.fetch_add(1, Ordering::Relaxed);
            count.last.store(now.0, Ordering::Relaxed);
        }
    }

    /// Requests that used a subject, and when the last one came.
    pub fn of(&self, place: usize) -> (u64, Option<Timestamp>) {
        let Some(count) = self.0.get(place) else { return (0, None) };
        let requests = count.requests.load(Ordering::Relaxed);
        let last = Timestamp(count.last.load(Ordering::Relaxed));
        (requests, (requests > 0).then_some(last))
    }

    /// Whether the store knows all of it.
    fn is_kept(&self) -> bool {
        self.0.iter().all(|count| count.added() == 0)
    }
}

impl Count {
    fn added(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) - self.kept.load(Ordering::Relaxed)
    }
}

/// The counts of all accounts.
pub struct Usages {
    /// The versions first, each at its place.
    subjects: Vec<Subject>,
    /// What the store calls them.
    keys: Vec<String>,
    since: Timestamp,
    max_accounts: usize,
    known: Mutex<Known>,
    /// One at a time hands over: what is on its way must not go twice.
    keeping: tokio::sync::Mutex<()>,
}

struct Known {
    accounts: HashMap<String, Arc<Usage>>,
    /// By subject.
    kept: Vec<Kept>,
}

/// What the store knows of one subject.
#[derive(Clone, Default)]
struct Kept {
    requests: u64,
    /// How many accounts made some.
    accounts: u64,
    /// Requests of those that the metrics name: who used it last before the start, then who comes,
    /// as long as there is room. Nobody loses a name: a counter that jumped between two of them
    /// would count twice.
    named: BTreeMap<String, u64>,
    /// Requests of the others, since the start: as a counter that begins anew does, it begins at 0.
    others: u64,
}

impl Kept {
    fn new(used: &SubjectUse) -> Kept {
        let named = used.latest.iter().cloned().collect();
        Kept { requests: used.requests, accounts: used.accounts, named, others: 0 }
    }

    /// Where the requests of an account are counted.
    fn of(&mut self, account: &str) -> &mut u64 {
        if !self.named.contains_key(account) && self.named.len() >= NAMED_ACCOUNTS {
            return &mut self.others;
        }
        self.named.entry(account.to_owned()).or_default()
    }
}

impl Usages {
    pub fn new(subjects: Vec<Subject>, used: &UsedInAll, max_accounts: usize) -> Usages {
        let keys: Vec<String> = subjects.iter().map(|subject| subject.kind.key()).collect();
        let kept = |key: &String| {
            let found = used.subjects.iter().find(|one| one.subject == *key);
            found.map(Kept::new).unwrap_or_default()
        };
        let kept = keys.iter().map(kept).collect();
        let known = Mutex::new(Known { accounts: HashMap::new(), kept });
        let keeping = tokio::sync::Mutex::default();
        Usages { subjects, keys, since: used.since, max_accounts, known, keeping }
    }

    /// When counting began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// What is counted, each at its place.
    pub fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    /// The counts of an account; the same for the same id.
    pub async fn of(&self, account: &str, store: &dyn Upkeep) -> Result<Arc<Usage>, store::Error> {
        if let Some(usage) = self.known.lock().accounts.get(account) {
            return Ok(usage.clone());
        }
        let kept = store.usage_of(account).await?;
        let mut known = self.known.lock();
        if known.accounts.len() >= self.max_accounts {
            known.accounts.retain(|_, usage| Arc::strong_count(usage) > 1 || !usage.is_kept());
        }
        let fresh = || Arc::new(Usage::new(&self.keys, &kept));
        Ok(known.accounts.entry(account.to_owned()).or_insert_with(fresh).clone())
    }

    /// By subject: requests in all, and accounts that made some.
    pub fn totals(&self) -> Vec<(u64, u64)> {
        let known = self.known.lock();
        let kept = known.kept.iter().map(|kept| (kept.requests, kept.accounts));
        let mut totals: Vec<(u64, u64)> = kept.collect();
        for usage in known.accounts.values() {
            for (total, count) in totals.iter_mut().zip(&usage.0) {
                let added = count.added();
                let is_new = added > 0 && count.kept.load(Ordering::Relaxed) == 0;
                *total = (total.0 + added, total.1 + u64::from(is_new));
            }
        }
        totals
    }

    /// The accounts that used a subject, with their requests: `NAMED_ACCOUNTS` of them, and all
    /// others as one.
    pub fn by_account(&self, place: usize) -> Vec<(String, u64)> {
        let mut known = self.known.lock();
        let Known { accounts, kept } = &mut *known;
        let Some(kept) = kept.get_mut(place) else { return Vec::new() };
        let added = accounts.iter().filter_map(|(account, usage)| {
            let added = usage.0.get(place)?.added();
            (added > 0).then_some((account, added))
        });
        let added: Vec<(&String, u64)> = added.collect();
        // Named here, named from now on.
        for (account, _) in &added {
            kept.of(account);
        }
        let mut shown = kept.clone();
        for (account, requests) in added {
            *shown.of(account) += requests;
        }
        let others = (shown.others > 0).then(|| (OTHER.to_owned(), shown.others));
        shown.named.into_iter().chain(others).collect()
    }

    /// Uses that the store does not know yet: what a crash would lose now.
    pub fn unkept(&self) -> u64 {
        let known = self.known.lock();
        known.accounts.values().flat_map(|usage| &usage.0).map(Count::added).sum()
    }

    /// Hands what was added to the store; what cannot be kept now is tried again the next time.
    pub async fn keep(&self, store: &dyn Upkeep) {
        let _one = self.keeping.lock().await;
        let added = self.added();
        if added.is_empty() {
            return;
        }
        if let Err(error) = store.add_usage(added.clone()).await {
            tracing::warn!(%error, "counts of version usage cannot be kept");
            return;
        }
        let mut known = self.known.lock();
        let Known { accounts, kept } = &mut *known;
        for used in added {
            let place = self.keys.iter().position(|key| *key == used.subject);
            let usage = accounts.get(&used.account);
            let (Some(place), Some(usage)) = (place, usage) else { continue };
            let before = usage.0[place].kept.fetch_add(used.requests, Ordering::Relaxed);
            let kept = &mut kept[place];
            kept.requests += used.requests;
            kept.accounts += u64::from(before == 0);
            *kept.of(&used.account) += used.requests;
        }
    }

    /// What the store does not know yet.
    fn added(&self) -> Vec<Used> {
        let known = self.known.lock();
        let of_account = |(account, usage): (&String, &Arc<Usage>)| {
            let counts = self.keys.iter().zip(&usage.0);
            let counts = counts.map(|(key, count)| Used {
                account: account.clone(),
                subject: key.clone(),
                requests: count.added(),
                last: Timestamp(count.last.load(Ordering::Relaxed)),
            });
            counts.filter(|used| used.requests > 0).collect::<Vec<_>>()
        };
        known.accounts.iter().flat_map(of_account).collect()
    }

    /// Runs until the task is dropped.
    pub async fn run(self: Arc<Usages>, store: Arc<dyn Upkeep>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.keep(&*store).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::schema::parse::parse;
    use std::path::Path;
    use store::sqlite::SqliteStore;

    const DATE: &str = "2026-01-01";
    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn open(folder: &Path) -> Arc<SqliteStore> {
        let schema = parse("[collections.books.fields]\ntitle = \"string\"").unwrap();
        SqliteStore::open(&folder.join("data.db"), Arc::new(schema)).unwrap()
    }

    /// Counts of one version.
    fn usages(store: &dyn Upkeep, max_accounts: usize) -> Usages {
        let subject = Subject { kind: SubjectKind::Version(DATE.to_owned()), deprecated: None };
        Usages::new(vec![subject], store.usage(), max_accounts)
    }

    #[tokio::test]
    async fn over_the_most_accounts_only_those_are_forgotten_that_nobody_needs() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let usages = usages(&*store, 3);
        for account in ["calls", "silent", "counted"] {
            usages.of(account, &*store).await.unwrap().count(0, NOW);
        }
        usages.keep(&*store).await;
        let calls = usages.of("calls", &*store).await.unwrap();
        usages.of("counted", &*store).await.unwrap().count(0, NOW);
        usages.of("late", &*store).await.unwrap().count(0, NOW);
        let mut known: Vec<String> = usages.known.lock().accounts.keys().cloned().collect();
        known.sort();
        assert_eq!(known, ["calls", "counted", "late"]);
        // Who was forgotten is known by the store, and goes on from there.
        assert_eq!(usages.totals(), [(5, 4)]);
        let silent = usages.of("silent", &*store).await.unwrap();
        assert_eq!(silent.of(0), (1, Some(NOW)));
        silent.count(0, NOW);
        assert!(Arc::ptr_eq(&calls, &usages.of("calls", &*store).await.unwrap()));
        usages.keep(&*store).await;
        assert_eq!((usages.totals(), usages.unkept()), (vec![(6, 4)], 0));
        assert_eq!(store.usage_of("silent").await.unwrap()[0].requests, 2);
    }

    #[tokio::test]
    async fn metrics_name_so_many_accounts_and_no_counter_ever_goes_down() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let first = usages(&*store, MAX_ACCOUNTS);
        let use_it = async |usages: &Usages, store: &SqliteStore, account: &str, at: i64| {
            usages.of(account, store).await.unwrap().count(0, Timestamp(NOW.0 + at));
        };
        for number in 0..NAMED_ACCOUNTS - 1 {
            use_it(&first, &store, &format!("acct_{number}"), 0).await;
        }
        first.keep(&*store).await;
        use_it(&first, &store, "acct_seen", 0).await;
        assert_eq!(first.by_account(0).len(), NAMED_ACCOUNTS, "who was seen has its name");
        for at in [5, 6] {
            use_it(&first, &store, "acct_more", at).await;
            first.keep(&*store).await;
        }
        let shown = first.by_account(0);
        assert!(shown.contains(&("acct_seen".to_owned(), 1)), "{shown:?}");
        assert_eq!(shown.last(), Some(&(OTHER.to_owned(), 2)));
        assert_eq!(shown.len(), NAMED_ACCOUNTS + 1);
        drop((first, store));
        // Those that used it last are named after the start, with all they did; the others begin
        // anew.
        let store = open(folder.path());
        let second = usages(&*store, MAX_ACCOUNTS);
        let shown = second.by_account(0);
        assert_eq!(shown.len(), NAMED_ACCOUNTS);
        assert!(shown.contains(&("acct_more".to_owned(), 2)), "{shown:?}");
        assert!(!shown.iter().any(|(account, _)| account == "acct_seen"), "{shown:?}");
        use_it(&second, &store, "acct_seen", 7).await;
        assert_eq!(second.by_account(0).last(), Some(&(OTHER.to_owned(), 1)));
        assert_eq!(second.totals(), [(103, 101)]);
    }
}
