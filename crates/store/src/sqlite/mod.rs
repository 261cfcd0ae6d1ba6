//! The store on SQLite: one file, one writer thread with group commit, readers that never block.
//! This file opens it and dispatches; short reads run on the calling thread, long ones on the
//! readers'. Nothing outside this folder knows that there is SQL.

mod acknowledged;
mod backend;
mod backup;
mod checkpoint;
mod commits;
mod connection;
mod erasure;
mod idempotency;
mod inspect;
mod layout;
mod list;
mod log;
mod migrate;
mod open;
mod outbox;
mod read;
mod readers;
mod retention;
mod room;
mod rows;
mod search;
mod shared;
mod slots;
mod tail;
#[cfg(test)]
mod testbed;
mod timers;
mod upgrade;
mod usage;
mod views;
#[cfg(test)]
mod writer_tests;

pub use crate::options::{Options, Role};
pub use crate::state::Clock;
pub use crate::upgrade::ServedSchema;
pub use backup::make_one_file;
pub use inspect::{Depth, damage, review};
pub use migrate::{SqliteSource, SqliteTarget};

use crate::cluster::Bucket;
use crate::commit;
use crate::fair;
use crate::list::{EMBEDDED_BYTES, SHORT_BYTES};
use crate::options::steady;
use crate::outbox::{Delivery, EndpointStates, Retries, Settlement};
use crate::state::{Found, State};
use crate::usage::{Used, UsedInAll};
use crate::writer;
use crate::{
    BoxFuture, Child, Due, Error, EventPage, Expired, Figures, Log, Outbox, Page, Records,
    Remembered, Upkeep, Watchdog,
};
use backend::Backend;
use checkpoint::Checkpoints;
use layout::Source;
use model::query::Query;
use model::schema::Builtin;
use model::version::Versions;
use model::write::{Committed, Write};
use model::{CollectionIx, Problem, Record, Schema, Scope, Timestamp};
use readers::{Pool, Readers};
use room::Room;
use rusqlite::Connection;
use shared::{FileId, Shared};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio::sync::watch;

/// Records read by id on the calling thread.
const IDS_INLINE: usize = 128;

pub struct SqliteStore {
    // Dropped in this order: threads first, the file's last connection with `shared`.
    writer: writer::Handle,
    readers: Readers,
    _checkpoints: Checkpoints,
    shared: Arc<Shared>,
    role: Role,
    collections: Vec<String>,
}

impl SqliteStore {
    /// Names of the collections with routes in the file, which may be others than those of the
    /// schema a tool opened it with.
    pub fn collections(&self) -> &[String] {
        &self.collections
    }

    /// Opens or makes the database at `path` and brings it to the schema.
    pub fn open(path: &Path, schema: Arc<Schema>) -> Result<Arc<SqliteStore>, Error> {
        SqliteStore::open_with(path, schema, Options::default())
    }

    pub fn open_with(
        path: &Path,
        schema: Arc<Schema>,
        options: Options,
    ) -> Result<Arc<SqliteStore>, Error> {
        let versions = Arc::new(Versions::new(&schema));
        let opened = open::open(path, &versions, &options)?;
        let mut tables = layout::tables(&schema, &opened.stored);
        if options.role == Role::Server {
            // A tool need not know the schema of what it shows.
            let told = tables.iter_mut().filter(|table| table.source == Source::Events);
            told.for_each(|table| table.versions = Some(versions.clone()));
        }
        let internal = |name: &str| {
            schema.collections.iter().any(|other| other.internal && other.name == name)
        };
        let stored = opened.stored.collections.iter().map(|collection| &collection.name);
        let views = schema.collections.iter().filter(|collection| collection.is_view());
        let views = views.map(|collection| &collection.name);
        let collections = stored.filter(|name| !internal(name)).chain(views).cloned().collect();
        if options.role == Role::Tool {
            tables.iter_mut().for_each(|table| table.search = None);
        }
        let begun = (options.clock)();
        let room = match options.role {
            Role::Server => Room::of(path, &opened.writer)?,
            Role::Tool => Room::none(),
        };
        room.reserve_log(&tail::log_file(path));
        let steady = options.steady.unwrap_or_else(|| steady(begun));
        let found = Found {
            newest: opened.newest,
            search_position: opened.search_position,
            searched: tables.iter().any(|table| table.search.is_some()),
            opened: begun,
        };
        let state = State::new(schema.clone(), versions.clone(), steady, &found);
        let shared = Arc::new(Shared {
            state: state.clone(),
            path: path.to_owned(),
            file: FileId::of(path)?,
            schema,
            versions,
            tables,
            cursor_key: opened.cursor_key,
            epoch: opened.epoch,
            usage: opened.usage,
            clock: options.clock,
            readers: Pool::new(path.to_owned(), options.role == Role::Server),
            timer_turn: AtomicI64::new(i64::MIN),
            erased_at: parking_lot::Mutex::new(None),
            #[cfg(test)]
            loaded_at_once: std::sync::atomic::AtomicUsize::new(1),
            room,
        });
        let backend = Backend::new(opened.writer, shared.clone())?;
        Ok(Arc::new(SqliteStore {
            writer: writer::Handle::start(backend, state, options.role == Role::Server)?,
            readers: Readers::start(&shared)?,
            _checkpoints: Checkpoints::start(&shared, options.role)?,
            shared,
            role: options.role,
            collections,
        }))
    }
}

impl SqliteStore {
    async fn page<T: read::FromRow + Send + 'static>(
        &self,
        scope: Scope,
        collection: CollectionIx,
        query: &Query,
    ) -> Result<Page<T>, Error> {
        let shared = &self.shared;
        let mut search_behind = 0;
        if !query.words.is_empty() {
            // The account's own changes: those of others need not be waited for.
            let newest = shared.state.seqs.of(scope, collection);
            if !self.writer.search_reaches(scope, newest).await? {
                let position = shared.state.search_position.load(Ordering::Acquire);
                search_behind = u64::try_from(newest - position).unwrap_or(0);
            }
        } else if list::is_short(shared, scope, collection, query) {
            let page = shared.readers.with(|connection| {
                list::list(connection, shared, scope, collection, query, list::Room::Short)
            })?;
            if let Some(page) = page {
                return Ok(page);
            }
        }
        let (shared, query) = (shared.clone(), query.clone());
        let page = self
            .readers
            .run_for(scope, move |connection| {
                list::list(connection, &shared, scope, collection, &query, list::Room::Page)
            })
            .await?;
        Ok(Page { search_behind, ..page.ok_or(Error::TooLarge)? })
    }
}

impl Records for SqliteStore {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Result<Committed, Problem>, Error>> {
        Box::pin(async move {
            let collection = &self.shared.schema.collections[write.collection];
            let own = collection.internal || collection.builtin.is_some();
            if self.role == Role::Tool && !own {
                return Err(Error::Failed("a tool changes only what is the service's own".into()));
            }
            let mut write = write;
            if collection.builtin == Some(Builtin::Erasure) {
                // There may be any number of events: the writer has no time to count them.
                let resource = commit::erasure::resource(&write).to_owned();
                let (scope, upto) = (write.scope, self.shared.state.newest());
                let count = move |connection: &Connection| {
                    Ok(erasure::count(connection, scope, &resource, (0, upto))?)
                };
                let count = self.readers.run_for(scope, count).await?;
                commit::erasure::note_count(&mut write, count, upto);
            }
            self.writer.write(write).await
        })
    }

    fn record<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parent: Option<&'a str>,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<Record>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            shared.readers.with(|connection| {
                Ok(read::record(connection, shared, scope, collection, parent, id)?)
            })
        })
    }

    fn list<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page, Error>> {
        Box::pin(self.page(scope, collection, query))
    }

    fn texts<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        query: &'a Query,
    ) -> BoxFuture<'a, Result<Page<String>, Error>> {
        Box::pin(self.page(scope, collection, query))
    }

    fn by_ids<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        ids: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<Record>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            if ids.len() <= IDS_INLINE {
                let found = shared.readers.with(|connection| {
                    read::by_ids(connection, shared, scope, collection, ids, SHORT_BYTES)
                })?;
                if let Some(found) = found {
                    return Ok(found);
                }
            }
            let max_bytes = if self.role == Role::Tool { usize::MAX } else { EMBEDDED_BYTES };
            let (shared, ids) = (shared.clone(), ids.to_vec());
            let found = self.readers.run_for(scope, move |connection| {
                read::by_ids(connection, &shared, scope, collection, &ids, max_bytes)
            });
            found.await?.ok_or(Error::TooLarge)
        })
    }

    fn children<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parents: &'a [String],
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Child>, Error>> {
        let (shared, parents) = (self.shared.clone(), parents.to_vec());
        self.readers.run_for(scope, move |connection| {
            let limits = (limit, EMBEDDED_BYTES);
            read::children(connection, &shared, scope, collection, &parents, limits)
        })
    }

    fn every(
        &self,
        collection: CollectionIx,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        let shared = self.shared.clone();
        self.readers
            .run(move |connection| outbox::every(connection, &shared, collection, after, max))
    }

    fn every_served(
        &self,
        collection: CollectionIx,
        buckets: Option<Vec<Bucket>>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        let shared = self.shared.clone();
        self.readers.run(move |connection| {
            let buckets = buckets.as_deref();
            outbox::every_served(connection, &shared, collection, buckets, after, max)
        })
    }

    fn remembered<'a>(
        &'a self,
        scope: Scope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Remembered>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            let key = crate::idempotency::key(key, (shared.state.steady)());
            let find = |connection: &Connection| Ok(idempotency::find(connection, scope, key)?);
            let found = shared.readers.with(find)?;
            Ok(found.map(|stored| stored.response(&shared.versions)))
        })
    }

    fn key_by_digest<'a>(
        &'a self,
        digest: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            // A key may have been made by another process a moment ago.
            shared.readers.fresh(|connection| read::key_by_digest(connection, shared, digest))
        })
    }

    fn key_by_id<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            shared.readers.fresh(|connection| read::key_by_id(connection, shared, id))
        })
    }

    fn collection_seq(&self, scope: Scope, collection: CollectionIx) -> i64 {
        // What became of an event shows in it.
        if self.shared.schema.collections[collection].is_view() {
            let settled = i64::try_from(*self.shared.state.settled.borrow()).unwrap_or(0);
            return settled.saturating_add(self.shared.state.newest());
        }
        self.shared.state.seqs.of(scope, collection)
    }

    fn shape(&self, collection: CollectionIx) -> i64 {
        self.shared.tables[collection].shape
    }

    fn rewrites(&self, collection: CollectionIx) -> i64 {
        self.shared.tables[collection].rewrites
    }

    fn cursor_key(&self) -> [u8; 32] {
        self.shared.cursor_key
    }

    fn key_generation(&self) -> u64 {
        self.shared.state.key_generation.load(Ordering::Acquire)
    }
}

impl Log for SqliteStore {
    fn events_within(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<EventPage, Error>> {
        let read = move |connection: &Connection| log::events(connection, scope, after, max, bytes);
        if max > crate::EVENTS_INLINE {
            return match scope {
                Some(scope) => self.readers.run_for(scope, read),
                None => self.readers.run(read),
            };
        }
        let shared = &self.shared;
        Box::pin(async move { shared.readers.with(read) })
    }

    fn position(&self) -> watch::Receiver<i64> {
        self.shared.state.newest.subscribe()
    }

    fn before(&self, moment: Timestamp) -> BoxFuture<'_, Result<i64, Error>> {
        let shared = &self.shared;
        Box::pin(
            async move { shared.readers.with(|connection| retention::before(connection, moment)) },
        )
    }

    fn oldest(&self) -> BoxFuture<'_, Result<i64, Error>> {
        let shared = &self.shared;
        Box::pin(
            async move { shared.readers.with(|connection| Ok(retention::oldest(connection)?)) },
        )
    }

    fn epoch(&self) -> u32 {
        self.shared.epoch
    }
}

impl Outbox for SqliteStore {
    fn settle(&self, settlement: Settlement) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.writer.settle(settlement))
    }

    fn settled(&self) -> watch::Receiver<u64> {
        self.shared.state.settled.subscribe()
    }

    fn retry_requested(&self) -> watch::Receiver<u64> {
        self.shared.state.retry_requests.subscribe()
    }

    fn endpoint_states(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<EndpointStates, Error>> {
        self.readers.run(move |connection| outbox::endpoint_states(connection, &endpoints))
    }

    fn requested_retries(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>> {
        let shared = &self.shared;
        Box::pin(async move { shared.readers.with(outbox::requested_retries) })
    }

    fn waiting(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<Vec<(i64, Timestamp)>, Error>> {
        self.readers.run(move |connection| outbox::waiting(connection, &endpoints))
    }

    fn newest_retry(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        self.readers.run(outbox::newest_retry)
    }

    fn retries(
        &self,
        endpoint: i64,
        now: Timestamp,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Retries, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            let read =
                |connection: &Connection| outbox::retries(connection, endpoint, now, max, bytes);
            shared.readers.with(read)
        })
    }

    fn pending_retries(
        &self,
        endpoint: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, i64)>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            shared.readers.with(|connection| outbox::pending_retries(connection, endpoint, max))
        })
    }

    fn deliveries<'a>(
        &'a self,
        endpoint: i64,
        events: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, Error>> {
        let shared = &self.shared;
        Box::pin(async move {
            shared.readers.with(|connection| outbox::deliveries(connection, endpoint, events))
        })
    }
}

impl Upkeep for SqliteStore {
    fn due(&self, now: Timestamp, max: usize) -> BoxFuture<'_, Result<Due, Error>> {
        let shared = self.shared.clone();
        Box::pin(async move {
            let read = move |connection: &_| timers::due(connection, &shared, now, max);
            let mut due = self.readers.run(read).await?;
            if !due.unknown.is_empty() {
                self.writer.set_aside(std::mem::take(&mut due.unknown)).await?;
            }
            Ok(due)
        })
    }

    fn timers(&self) -> watch::Receiver<u64> {
        self.shared.state.timers.subscribe()
    }

    fn expire(
        &self,
        moment: Timestamp,
        backlog: Timestamp,
        max: usize,
    ) -> BoxFuture<'_, Result<Expired, Error>> {
        Box::pin(self.writer.expire(moment, backlog, max))
    }

    fn add_usage(&self, added: Vec<Used>) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.writer.add_usage(added))
    }

    fn usage_of<'a>(&'a self, account: &'a str) -> BoxFuture<'a, Result<Vec<Used>, Error>> {
        let shared = &self.shared;
        Box::pin(
            async move { shared.readers.with(|connection| usage::of_account(connection, account)) },
        )
    }

    fn usage(&self) -> &UsedInAll {
        &self.shared.usage
    }

    fn backup<'a>(
        &'a self,
        target: &'a Path,
        mut progress: Box<dyn FnMut(u64, u64) + Send + 'a>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let (source, to) = (self.shared.path.clone(), target.to_owned());
        Box::pin(async move {
            let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
            let (answer, result) = tokio::sync::oneshot::channel();
            // A thread of its own: a copy takes as long as the database is large.
            std::thread::Builder::new()
                .name("store-backup".into())
                .spawn(move || {
                    let mut report = |done, all| {
                        let _ = tell.send((done, all));
                    };
                    let _ = answer.send(backup::backup(&source, &to, &mut report));
                })
                .map_err(|error| Error::Failed(Box::new(error)))?;
            while let Some((done, all)) = told.recv().await {
                progress(done, all);
            }
            result.await.unwrap_or_else(|_| Err(Error::Failed("the backup was abandoned".into())))
        })
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let failing = |what: &str, error: Error| {
                Error::Failed(format!("{what} do not work: {error}").into())
            };
            self.shared.check_file().map_err(|error| failing("reads and writes", error))?;
            let read = self.shared.readers.with(|connection| Ok(log::newest(connection)?));
            read.map_err(|error| failing("reads", error))?;
            self.writer.probe().await.map_err(|error| failing("writes", error))
        })
    }

    fn watchdog(&self) -> &Arc<Watchdog> {
        &self.shared.state.watchdog
    }

    fn figures(&self) -> Figures {
        self.shared.state.figures(self.shared.database_bytes())
    }
}
