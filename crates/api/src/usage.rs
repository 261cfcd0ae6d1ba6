//! Usage counts per account: requests in each version, and requests that use a deprecated
//! collection or field, so that an operator knows when it can be removed. Every request counts, so
//! counting is one addition and one store in memory. The counts are saved every few seconds and at
//! shutdown. The last use of each key is kept and saved here as well.

use model::Timestamp;
use model::schema::Deprecation;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::Upkeep;
use store::cluster::Cluster;
pub use store::usage::KEY_SUBJECT;
use store::usage::{KEPT_KEYS, NAMED_ACCOUNTS, SubjectUse, Used, UsedInAll};

/// Maximum accounts in memory; beyond it, inactive accounts are dropped from memory and read from
/// the store again when needed.
pub const MAX_ACCOUNTS: usize = 100_000;
/// Interval between two saves. A crash loses at most this much.
const INTERVAL: Duration = Duration::from_secs(5);
/// The last use of a key is not stored again before this time has passed: a key that is used all
/// the time costs one memory write per second, and one row per minute.
const KEY_USE_MS: i64 = 1_000;
const KEY_SAVE_MS: i64 = 60_000;
/// Label of the accounts without their own label in the metrics. No account id equals it: ids begin
/// with `acct_`.
pub const OTHER: &str = "other";

/// Something whose use is counted.
#[derive(Clone, Debug)]
pub struct Subject {
    pub kind: SubjectKind,
    pub deprecated: Option<Deprecation>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubjectKind {
    /// By date.
    Version(String),
    Collection(String),
    /// Under one of its names: a field with another name in an older version is another subject.
    Field {
        collection: String,
        name: String,
    },
}

impl SubjectKind {
    /// The subject's name in the store. No collection is named like a date or has a dot in its
    /// name.
    fn key(&self) -> String {
        match self {
            SubjectKind::Version(name) | SubjectKind::Collection(name) => name.clone(),
            SubjectKind::Field { collection, name } => format!("{collection}.{name}"),
        }
    }
}

/// The requests of one account, by subject, and the last use of its keys.
#[derive(Default)]
pub struct Usage {
    counts: Box<[Count]>,
    keys: Mutex<HashMap<String, Arc<KeyUse>>>,
}

/// When a key was last used, in milliseconds; 0 if never.
#[derive(Default)]
pub struct KeyUse {
    last: AtomicI64,
    saved: AtomicI64,
}

impl KeyUse {
    /// Every request calls this, so it usually only reads.
    pub fn note(&self, now: Timestamp) {
        if now.0 - self.last.load(Ordering::Relaxed) >= KEY_USE_MS {
            self.last.store(now.0, Ordering::Relaxed);
        }
    }

    pub fn last(&self) -> Option<Timestamp> {
        let last = self.last.load(Ordering::Relaxed);
        (last > 0).then_some(Timestamp(last))
    }

    fn is_saved(&self) -> bool {
        self.last.load(Ordering::Relaxed) - self.saved.load(Ordering::Relaxed) < KEY_SAVE_MS
    }
}

#[derive(Default)]
struct Count {
    requests: AtomicU64,
    /// In milliseconds.
    last: AtomicI64,
    /// The part of `requests` that is saved.
    saved: AtomicU64,
}

impl Usage {
    fn new(keys: &[String], saved: &[Used]) -> Usage {
        let count = |key: &String| {
            let Some(used) = saved.iter().find(|used| used.subject == *key) else {
                return Count::default();
            };
            Count {
                requests: AtomicU64::new(used.requests),
                last: AtomicI64::new(used.last.0),
                saved: AtomicU64::new(used.requests),
            }
        };
        let used = saved.iter().filter_map(|used| {
            let key = used.subject.strip_prefix(KEY_SUBJECT)?;
            let (last, saved) = (AtomicI64::new(used.last.0), AtomicI64::new(used.last.0));
            Some((key.to_owned(), Arc::new(KeyUse { last, saved })))
        });
        Usage { counts: keys.iter().map(count).collect(), keys: Mutex::new(used.collect()) }
    }

    /// The last use of a key; the same object for the same id.
    pub fn key(&self, id: &str) -> Arc<KeyUse> {
        let mut keys = self.keys.lock();
        if let Some(known) = keys.get(id) {
            return known.clone();
        }
        // Beyond this, most are of revoked keys: no caller has them.
        if keys.len() >= 2 * KEPT_KEYS {
            keys.retain(|_, key| Arc::strong_count(key) > 1 || !key.is_saved());
        }
        keys.entry(id.to_owned()).or_default().clone()
    }

    /// When a key was last used, without an entry for one that never was.
    pub fn last_use(&self, key: &str) -> Option<Timestamp> {
        self.keys.lock().get(key).and_then(|known| known.last())
    }

    /// Counts a request that used the subject at this index.
    pub fn count(&self, place: usize, now: Timestamp) {
        if let Some(count) = self.counts.get(place) {
            count.requests.fetch_add(1, Ordering::Relaxed);
            count.last.store(now.0, Ordering::Relaxed);
        }
    }

    /// Requests that used a subject, and the time of the last one.
    pub fn of(&self, place: usize) -> (u64, Option<Timestamp>) {
        let Some(count) = self.counts.get(place) else { return (0, None) };
        let requests = count.requests.load(Ordering::Relaxed);
        let last = Timestamp(count.last.load(Ordering::Relaxed));
        (requests, (requests > 0).then_some(last))
    }

    /// Whether all counts are saved.
    fn is_saved(&self) -> bool {
        self.counts.iter().all(|count| count.added() == 0)
            && self.keys.lock().values().all(|key| key.is_saved())
    }
}

/// The use of an account at all nodes.
pub struct Shown {
    here: Arc<Usage>,
    /// What all nodes have saved, with the counts that this one has not saved yet. `None` where
    /// there are no others.
    stored: Option<Usage>,
}

impl Shown {
    /// Requests that used a subject, and the time of the last one.
    pub fn of(&self, place: usize) -> (u64, Option<Timestamp>) {
        self.stored.as_ref().unwrap_or(&self.here).of(place)
    }

    /// When a key was last used.
    pub fn last_use(&self, key: &str) -> Option<Timestamp> {
        let stored = self.stored.as_ref().and_then(|stored| stored.last_use(key));
        self.here.last_use(key).max(stored)
    }
}

impl Count {
    fn added(&self) -> u64 {
        self.requests.load(Ordering::Relaxed) - self.saved.load(Ordering::Relaxed)
    }
}

/// The counts of all accounts.
pub struct Usages {
    /// The versions first, each at its index.
    subjects: Vec<Subject>,
    /// The subjects' names in the store.
    keys: Vec<String>,
    since: Timestamp,
    max_accounts: usize,
    known: Mutex<Known>,
    /// Held while saving, so that no count is saved twice, and shared by those who add what is
    /// saved and what is not.
    saving: tokio::sync::RwLock<()>,
}

struct Known {
    accounts: HashMap<String, Arc<Usage>>,
    /// By subject.
    saved: Vec<Saved>,
}

/// The saved use of one subject.
#[derive(Clone, Default)]
struct Saved {
    requests: u64,
    /// Number of accounts with at least one request.
    accounts: u64,
    /// Requests of the accounts that the metrics name: the latest accounts before the start, then
    /// new ones while there is room. A name is never removed: moving a count between labels would
    /// count it twice.
    named: BTreeMap<String, u64>,
    /// Requests of the other accounts since the start. Like any restarted counter, it starts at 0.
    others: u64,
}

impl Saved {
    fn new(used: &SubjectUse) -> Saved {
        let named = used.latest.iter().cloned().collect();
        Saved { requests: used.requests, accounts: used.accounts, named, others: 0 }
    }

    /// The counter for the requests of an account.
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
        let saved = |key: &String| {
            let found = used.subjects.iter().find(|one| one.subject == *key);
            found.map(Saved::new).unwrap_or_default()
        };
        let saved = keys.iter().map(saved).collect();
        let known = Mutex::new(Known { accounts: HashMap::new(), saved });
        let saving = tokio::sync::RwLock::default();
        Usages { subjects, keys, since: used.since, max_accounts, known, saving }
    }

    /// When counting began.
    pub fn since(&self) -> Timestamp {
        self.since
    }

    /// The subjects, each at its index.
    pub fn subjects(&self) -> &[Subject] {
        &self.subjects
    }

    /// The counts of an account; the same object for the same id.
    pub async fn of(&self, account: &str, store: &dyn Upkeep) -> Result<Arc<Usage>, store::Error> {
        if let Some(usage) = self.known.lock().accounts.get(account) {
            return Ok(usage.clone());
        }
        let saved = store.usage_of(account).await?;
        let mut known = self.known.lock();
        if known.accounts.len() >= self.max_accounts {
            known.accounts.retain(|_, usage| Arc::strong_count(usage) > 1 || !usage.is_saved());
        }
        let fresh = || Arc::new(Usage::new(&self.keys, &saved));
        Ok(known.accounts.entry(account.to_owned()).or_insert_with(fresh).clone())
    }

    /// The use of an account at all nodes, to be shown: of what other nodes count, this one knows
    /// only what they had saved when it first saw the account.
    pub async fn shown(
        &self,
        account: &str,
        store: &dyn Upkeep,
        cluster: &dyn Cluster,
    ) -> Result<Shown, store::Error> {
        let here = self.of(account, store).await?;
        if !cluster.is_shared() {
            let stored = None;
            return Ok(Shown { here, stored });
        }
        let _unsaved = self.saving.read().await;
        let stored = Usage::new(&self.keys, &store.usage_of(account).await?);
        for (stored, here) in stored.counts.iter().zip(&here.counts) {
            stored.requests.fetch_add(here.added(), Ordering::Relaxed);
            stored.last.fetch_max(here.last.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Shown { here, stored: Some(stored) })
    }

    /// By subject: total requests, and the number of accounts with requests.
    pub fn totals(&self) -> Vec<(u64, u64)> {
        let known = self.known.lock();
        let saved = known.saved.iter().map(|saved| (saved.requests, saved.accounts));
        let mut totals: Vec<(u64, u64)> = saved.collect();
        for usage in known.accounts.values() {
            for (total, count) in totals.iter_mut().zip(&usage.counts) {
                let added = count.added();
                let is_new = added > 0 && count.saved.load(Ordering::Relaxed) == 0;
                *total = (total.0 + added, total.1 + u64::from(is_new));
            }
        }
        totals
    }

    /// The accounts that used a subject, with their requests: `NAMED_ACCOUNTS` of them by name, all
    /// others as one.
    pub fn by_account(&self, place: usize) -> Vec<(String, u64)> {
        let mut known = self.known.lock();
        let Known { accounts, saved } = &mut *known;
        let Some(saved) = saved.get_mut(place) else { return Vec::new() };
        let added = accounts.iter().filter_map(|(account, usage)| {
            let added = usage.counts.get(place)?.added();
            (added > 0).then_some((account, added))
        });
        let added: Vec<(&String, u64)> = added.collect();
        // An account that is named once stays named.
        for (account, _) in &added {
            saved.of(account);
        }
        let mut shown = saved.clone();
        for (account, requests) in added {
            *shown.of(account) += requests;
        }
        let others = (shown.others > 0).then(|| (OTHER.to_owned(), shown.others));
        shown.named.into_iter().chain(others).collect()
    }

    /// Requests that are not saved yet, which a crash would lose.
    pub fn unsaved(&self) -> u64 {
        let known = self.known.lock();
        known.accounts.values().flat_map(|usage| &usage.counts).map(Count::added).sum()
    }

    /// Saves the new counts; counts that cannot be saved are tried again the next time.
    pub async fn save(&self, store: &dyn Upkeep) {
        let _one = self.saving.write().await;
        let added = self.added();
        if added.is_empty() {
            return;
        }
        if let Err(error) = store.add_usage(added.clone()).await {
            tracing::warn!(%error, "counts of version usage could not be saved");
            return;
        }
        let mut known = self.known.lock();
        let Known { accounts, saved } = &mut *known;
        for used in added {
            let place = self.keys.iter().position(|key| *key == used.subject);
            let usage = accounts.get(&used.account);
            if let (Some(key), Some(usage)) = (used.subject.strip_prefix(KEY_SUBJECT), usage) {
                usage.key(key).saved.store(used.last.0, Ordering::Relaxed);
            }
            let (Some(place), Some(usage)) = (place, usage) else { continue };
            let before = usage.counts[place].saved.fetch_add(used.requests, Ordering::Relaxed);
            let saved = &mut saved[place];
            saved.requests += used.requests;
            saved.accounts += u64::from(before == 0);
            *saved.of(&used.account) += used.requests;
        }
    }

    /// The counts that are not saved yet.
    fn added(&self) -> Vec<Used> {
        let known = self.known.lock();
        let of_account = |(account, usage): (&String, &Arc<Usage>)| {
            let counts = self.keys.iter().zip(&usage.counts);
            let counts = counts.map(|(key, count)| Used {
                account: account.clone(),
                subject: key.clone(),
                requests: count.added(),
                last: Timestamp(count.last.load(Ordering::Relaxed)),
            });
            let mut added: Vec<Used> = counts.filter(|used| used.requests > 0).collect();
            let keys = usage.keys.lock();
            let unsaved = keys.iter().filter(|(_, key)| !key.is_saved());
            added.extend(unsaved.map(|(id, key)| Used {
                account: account.clone(),
                subject: format!("{KEY_SUBJECT}{id}"),
                requests: 1,
                last: Timestamp(key.last.load(Ordering::Relaxed)),
            }));
            added
        };
        known.accounts.iter().flat_map(of_account).collect()
    }

    /// Runs until the task is dropped.
    pub async fn run(self: Arc<Usages>, store: Arc<dyn Upkeep>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            self.save(&*store).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::parse::parse;
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
    async fn beyond_the_account_limit_only_inactive_saved_accounts_leave_memory() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let usages = usages(&*store, 3);
        for account in ["calls", "silent", "counted"] {
            usages.of(account, &*store).await.unwrap().count(0, NOW);
        }
        usages.save(&*store).await;
        let calls = usages.of("calls", &*store).await.unwrap();
        usages.of("counted", &*store).await.unwrap().count(0, NOW);
        usages.of("late", &*store).await.unwrap().count(0, NOW);
        let mut known: Vec<String> = usages.known.lock().accounts.keys().cloned().collect();
        known.sort();
        assert_eq!(known, ["calls", "counted", "late"]);
        // The store knows the dropped account, and its count continues from there.
        assert_eq!(usages.totals(), [(5, 4)]);
        let silent = usages.of("silent", &*store).await.unwrap();
        assert_eq!(silent.of(0), (1, Some(NOW)));
        silent.count(0, NOW);
        assert!(Arc::ptr_eq(&calls, &usages.of("calls", &*store).await.unwrap()));
        usages.save(&*store).await;
        assert_eq!((usages.totals(), usages.unsaved()), (vec![(6, 4)], 0));
        assert_eq!(store.usage_of("silent").await.unwrap()[0].requests, 2);
    }

    #[tokio::test]
    async fn metrics_name_a_bounded_number_of_accounts_and_no_counter_decreases() {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path());
        let first = usages(&*store, MAX_ACCOUNTS);
        let use_it = async |usages: &Usages, store: &SqliteStore, account: &str, at: i64| {
            usages.of(account, store).await.unwrap().count(0, Timestamp(NOW.0 + at));
        };
        for number in 0..NAMED_ACCOUNTS - 1 {
            use_it(&first, &store, &format!("acct_{number}"), 0).await;
        }
        first.save(&*store).await;
        use_it(&first, &store, "acct_seen", 0).await;
        assert_eq!(
            first.by_account(0).len(),
            NAMED_ACCOUNTS,
            "an account that was seen keeps its name"
        );
        for at in [5, 6] {
            use_it(&first, &store, "acct_more", at).await;
            first.save(&*store).await;
        }
        let shown = first.by_account(0);
        assert!(shown.contains(&("acct_seen".to_owned(), 1)), "{shown:?}");
        assert_eq!(shown.last(), Some(&(OTHER.to_owned(), 2)));
        assert_eq!(shown.len(), NAMED_ACCOUNTS + 1);
        drop((first, store));
        // After a restart, the latest accounts are named with all their requests; the others start
        // at 0.
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
