//! A store in a folder of its own for this crate's inner tests, and short ways to write.

use super::SqliteStore;
use crate::options::Options;
use crate::{Error, Records};
use model::id::Entropy;
use model::parse;
use model::write::{Cause, Change, Committed, Precondition, Response};
use model::{Problem, Record, Scope, Timestamp, Write};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

pub const HERE: Scope = Scope(20);
pub const THERE: Scope = Scope(30);
/// When everything happens.
pub const NOW: Timestamp = Timestamp(1_700_000_000_000);

pub struct Bed {
    pub store: Arc<SqliteStore>,
    _folder: tempfile::TempDir,
}

pub type Answer = Result<Result<Committed, Problem>, Error>;

impl Bed {
    pub fn new(schema: &str) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let schema = Arc::new(parse::parse(schema).unwrap());
        // The time of the writes: otherwise upkeep would remove what they left years ago.
        let options = Options { clock: Arc::new(|| NOW), ..Options::default() };
        let store =
            SqliteStore::open_with(&folder.path().join("data.db"), schema, options).unwrap();
        Bed { store, _folder: folder }
    }

    pub fn ix(&self, collection: &str) -> usize {
        self.store.shared.schema.find(collection).unwrap()
    }

    pub fn create(&self, scope: Scope, collection: &str, value: Value) -> Write {
        let Value::Object(fields) = value else { panic!("not an object: {value}") };
        self.write(scope, collection, None, Change::Create { fields })
    }

    pub fn write(&self, scope: Scope, collection: &str, id: Option<&str>, change: Change) -> Write {
        static DRAWS: AtomicU64 = AtomicU64::new(1);
        let mut entropy = [7; 32];
        let draw = DRAWS.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        entropy[..8].copy_from_slice(&draw);
        entropy[12..20].copy_from_slice(&draw);
        Write {
            scope,
            collection: self.ix(collection),
            id: id.map(String::from),
            parent: None,
            change,
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: NOW,
            entropy: Entropy(entropy),
        }
    }

    pub async fn put(&self, write: Write) -> Record {
        match within(self.store.commit(write)).await.unwrap().unwrap() {
            Committed::Fresh(Response::Created(record) | Response::Updated(record))
            | Committed::Unchanged(Response::Updated(record)) => record,
            other => panic!("no record: {other:?}"),
        }
    }

    /// Commits at the same time; the tasks in their order.
    pub fn spawn(&self, writes: Vec<Write>) -> Vec<tokio::task::JoinHandle<Answer>> {
        let one = |write| {
            let store = self.store.clone();
            tokio::spawn(async move { store.commit(write).await })
        };
        writes.into_iter().map(one).collect()
    }
}

/// With a deadline.
pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it took too long")
}
