//! The store on PostgreSQL: any number of nodes share one database. This file opens it and
//! dispatches. Each node has one writer thread with group commit and a few connections for reads.
//! Nothing outside this folder knows that there is SQL.

mod backend;
mod bounded;
pub mod cluster;
pub mod connect;
mod erasure;
mod hosts;
mod idempotency;
mod layout;
mod list;
mod locked;
mod log;
mod migrate;
mod open;
mod outbox;
pub(crate) mod param;
mod read;
mod readers;
mod retention;
mod room;
mod rows;
mod search;
mod session;
mod sessions;
mod shared;
mod shortened;
mod timers;
mod tls;
mod upgrade;
mod usage;
mod views;
mod watch;
mod write;

pub use migrate::{PostgresSource, PostgresTarget};

use crate::cluster::Bucket;
use crate::commit;
use crate::fair::Tenant;
use crate::list::{EMBEDDED_BYTES, SHORT_BYTES};
use crate::options::{Options, Role};
use crate::outbox::{Delivery, EndpointStates, Retries, Settlement};
use crate::state::{self, State};
use crate::usage::{Used, UsedInAll};
use crate::writer;
use crate::{
    BoxFuture, Child, Due, Error, EventPage, Expired, Figures, Log, Outbox, Page, Records,
    Remembered, Upkeep, Watchdog,
};
use backend::Backend;
use connect::{Address, Client};
use layout::Source;
use list::Room;
use model::query::Query;
use model::schema::Builtin;
use model::version::Versions;
use model::write::{Committed, Write};
use model::{CollectionIx, Problem, Record, Schema, Scope, Timestamp};
use readers::{Net, Pool};
use shared::{Found, Shared};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch as tokio_watch};

pub struct PostgresStore {
    // Dropped in this order: the writer, the tasks and connections, what they share.
    writer: writer::Handle,
    _net: Net,
    pool: Arc<Pool>,
    shared: Arc<Shared>,
    role: Role,
    collections: Vec<String>,
}

impl PostgresStore {
    /// Names of the collections with routes in the database, which may be others than those of the
    /// schema a tool opened it with.
    pub fn collections(&self) -> &[String] {
        &self.collections
    }

    /// Opens or makes the tables at an address and brings them to the schema.
    pub fn open(address: &Address, schema: Arc<Schema>) -> Result<Arc<PostgresStore>, Error> {
        PostgresStore::open_with(address, schema, Options::default())
    }

    pub fn open_with(
        address: &Address,
        schema: Arc<Schema>,
        options: Options,
    ) -> Result<Arc<PostgresStore>, Error> {
        // A thread of its own: the caller's may run tasks, which nothing may hold up.
        let address = address.clone();
        let opening = std::thread::Builder::new()
            .name("store-open".into())
            .spawn(move || PostgresStore::open_here(&address, &schema, options))
            .map_err(|error| Error::Failed(Box::new(error)))?;
        opening.join().unwrap_or_else(|_| Err(Error::Failed("opening panicked".into())))
    }

    fn open_here(
        address: &Address,
        schema: &Arc<Schema>,
        options: Options,
    ) -> Result<Arc<PostgresStore>, Error> {
        let versions = Arc::new(Versions::new(schema));
        let opened = open::open(address, &versions, &options)?;
        let mut tables = layout::tables(schema, &opened.stored);
        if options.role == Role::Server {
            // A tool need not know the schema of what it shows.
            let told = tables.iter_mut().filter(|table| table.source == Source::Events);
            told.for_each(|table| table.versions = Some(versions.clone()));
        } else {
            tables.iter_mut().for_each(|table| table.search = None);
        }
        let internal = |name: &str| {
            schema.collections.iter().any(|other| other.internal && other.name == name)
        };
        let stored = opened.stored.collections.iter().map(|collection| &collection.name);
        let views = schema.collections.iter().filter(|collection| collection.is_view());
        let views = views.map(|collection| &collection.name);
        let collections = stored.filter(|name| !internal(name)).chain(views).cloned().collect();
        let begun = (options.clock)();
        // Nodes share what they compute with it, so it is the clock that `check_clock` compares:
        // one that counts from the start would lag behind after the machine was suspended.
        let steady = options.steady.unwrap_or_else(|| options.clock.clone());
        let found = state::Found {
            newest: opened.newest,
            search_position: opened.newest,
            // Words are written with their records: no search lags.
            searched: false,
            opened: begun,
        };
        let shared = Shared::new(Found {
            state: State::new(schema.clone(), versions, steady, &found),
            address: address.clone(),
            tables,
            cursor_key: opened.cursor_key,
            epoch: opened.epoch,
            usage: opened.usage,
            clock: options.clock,
            node: opened.node,
            slot: opened.slot,
            locks: opened.locks,
            edition: opened.edition,
            timeline: opened.timeline,
            max_clock_difference: options.max_clock_difference,
        });
        let net = Net::start()?;
        let pool = Arc::new(Pool::new(address.clone(), net.handle().clone()));
        let heard = Arc::new(Notify::new());
        net.handle().spawn(watch::look(shared.clone(), pool.clone(), heard.clone()));
        if !address.is_pooled() {
            net.handle().spawn(watch::listen(shared.clone(), heard));
            net.handle().spawn(watch::tell(shared.clone(), pool.clone()));
        }
        let (role, serves) = (options.role, options.role == Role::Server);
        let backend = Backend::new(opened.session, shared.clone());
        let writer = writer::Handle::start(backend, shared.state.clone(), serves)?;
        Ok(Arc::new(PostgresStore { writer, _net: net, pool, shared, role, collections }))
    }

    async fn page<T: read::FromRow + Send + 'static>(
        &self,
        scope: Scope,
        collection: CollectionIx,
        query: &Query,
    ) -> Result<Page<T>, Error> {
        let shared = &*self.shared;
        let read = move |room| {
            move |client: Arc<Client>| async move {
                list::list::<T>(&client, shared, (scope, collection), query, room).await
            }
        };
        if list::is_short(shared, scope, collection, query)
            && list::is_single(query)
            && let Some(page) = self.pool.short_of((scope, collection), read(Room::Short)).await?
        {
            return Ok(page);
        }
        let page = self.pool.long(Tenant::from(scope), read(Room::Page)).await?;
        page.ok_or(Error::TooLarge)
    }
}

impl Records for PostgresStore {
    fn commit(&self, write: Write) -> BoxFuture<'_, Result<Result<Committed, Problem>, Error>> {
        Box::pin(async move {
            let shared = &*self.shared;
            let collection = &shared.schema.collections[write.collection];
            let own = collection.internal || collection.builtin.is_some();
            if self.role == Role::Tool && !own {
                return Err(Error::Failed("a tool changes only what is the service's own".into()));
            }
            let mut write = write;
            if collection.builtin == Some(Builtin::Erasure) {
                // There may be any number of events: the writer has no time to count them.
                let resource = &commit::erasure::resource(&write).to_owned();
                let (scope, upto) = (write.scope, shared.state.newest());
                let count = move |client: Arc<Client>| async move {
                    erasure::count(&client, scope, resource, (0, upto)).await
                };
                let count = self.pool.long(Tenant::from(scope), count).await?;
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
        let shared = &*self.shared;
        Box::pin(self.pool.short_of((scope, collection), move |client: Arc<Client>| async move {
            read::record(&client, shared, scope, collection, parent, id).await
        }))
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
        let shared = &*self.shared;
        let max_bytes = if self.role == Role::Tool { usize::MAX } else { EMBEDDED_BYTES };
        Box::pin(async move {
            let read = move |max_bytes| {
                move |client: Arc<Client>| async move {
                    read::by_ids(&client, shared, scope, collection, ids, max_bytes).await
                }
            };
            if let Some(found) = self.pool.short_of((scope, collection), read(SHORT_BYTES)).await? {
                return Ok(found);
            }
            let found = self.pool.long(Tenant::from(scope), read(max_bytes)).await?;
            found.ok_or(Error::TooLarge)
        })
    }

    fn children<'a>(
        &'a self,
        scope: Scope,
        collection: CollectionIx,
        parents: &'a [String],
        limit: u32,
    ) -> BoxFuture<'a, Result<Vec<Child>, Error>> {
        let (shared, limits) = (&*self.shared, (limit, EMBEDDED_BYTES));
        Box::pin(self.pool.long(Tenant::from(scope), move |client: Arc<Client>| async move {
            read::children(&client, shared, scope, collection, parents, limits).await
        }))
    }

    fn every(
        &self,
        collection: CollectionIx,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        let shared = &*self.shared;
        Box::pin(self.pool.long(Tenant::Service, move |client: Arc<Client>| async move {
            read::every(&client, shared, collection, after, max).await
        }))
    }

    fn every_served(
        &self,
        collection: CollectionIx,
        buckets: Option<Vec<Bucket>>,
        after: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(Scope, Record)>, Error>> {
        let shared = &*self.shared;
        Box::pin(self.pool.long(Tenant::Service, move |client: Arc<Client>| {
            let buckets = buckets.clone();
            async move {
                let buckets = buckets.as_deref();
                read::every_served(&client, shared, collection, buckets, after, max).await
            }
        }))
    }

    fn remembered<'a>(
        &'a self,
        scope: Scope,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<Remembered>, Error>> {
        let shared = &*self.shared;
        Box::pin(async move {
            let key = crate::idempotency::key(key, (shared.state.steady)());
            let find = move |client: Arc<Client>| async move {
                idempotency::find(&client, scope, key).await
            };
            let found = self.pool.short(find).await?;
            Ok(found.map(|stored| stored.response(&shared.versions)))
        })
    }

    fn key_by_digest<'a>(
        &'a self,
        digest: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        let shared = &*self.shared;
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            read::key_by(&client, shared, &layout::column_name(layout::KEY_DIGEST), digest).await
        }))
    }

    fn key_by_id<'a>(
        &'a self,
        id: &'a str,
    ) -> BoxFuture<'a, Result<Option<(Scope, Record)>, Error>> {
        let shared = &*self.shared;
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            read::key_by(&client, shared, "id", id).await
        }))
    }

    fn collection_seq(&self, scope: Scope, collection: CollectionIx) -> i64 {
        let shared = &self.shared;
        // What became of an event shows in it.
        if shared.schema.collections[collection].is_view() {
            let settled = i64::try_from(*shared.state.settled.borrow()).unwrap_or(0);
            return settled.saturating_add(shared.state.newest());
        }
        shared.state.seqs.of(scope, collection)
    }

    fn fresh(&self) -> BoxFuture<'_, Result<(), Error>> {
        let shared = &*self.shared;
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            watch::catch_up(shared, &client).await
        }))
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

impl Log for PostgresStore {
    fn events_within(
        &self,
        scope: Option<Scope>,
        after: i64,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<EventPage, Error>> {
        let read = move |client: Arc<Client>| async move {
            log::events(&client, scope, after, max, bytes).await
        };
        Box::pin(async move {
            if max > crate::EVENTS_INLINE {
                let tenant = scope.map_or(Tenant::Service, Tenant::from);
                match self.pool.long(tenant, read).await {
                    // A damaged event has ended the transaction. Without one, it is left out.
                    Err(error) if connect::is_aborted(&error) => {}
                    done => return done,
                }
            }
            self.pool.short(read).await
        })
    }

    fn position(&self) -> tokio_watch::Receiver<i64> {
        self.shared.state.newest.subscribe()
    }

    fn before(&self, moment: Timestamp) -> BoxFuture<'_, Result<i64, Error>> {
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            retention::before(&client, moment).await
        }))
    }

    fn oldest(&self) -> BoxFuture<'_, Result<i64, Error>> {
        Box::pin(
            self.pool
                .short(move |client: Arc<Client>| async move { retention::oldest(&client).await }),
        )
    }

    fn epoch(&self) -> u32 {
        self.shared.epoch
    }
}

impl Outbox for PostgresStore {
    fn settle(&self, settlement: Settlement) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(self.writer.settle(settlement))
    }

    fn settled(&self) -> tokio_watch::Receiver<u64> {
        self.shared.state.settled.subscribe()
    }

    fn retry_requested(&self) -> tokio_watch::Receiver<u64> {
        self.shared.state.retry_requests.subscribe()
    }

    fn endpoint_states(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<EndpointStates, Error>> {
        Box::pin(self.pool.long(Tenant::Service, move |client| {
            let endpoints = endpoints.clone();
            async move { outbox::endpoint_states(&client, endpoints).await }
        }))
    }

    fn requested_retries(&self) -> BoxFuture<'_, Result<Vec<i64>, Error>> {
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            outbox::requested_retries(&client).await
        }))
    }

    fn waiting(&self, endpoints: Vec<i64>) -> BoxFuture<'_, Result<Vec<(i64, Timestamp)>, Error>> {
        Box::pin(self.pool.long(Tenant::Service, move |client| {
            let endpoints = endpoints.clone();
            async move { outbox::waiting(&client, endpoints).await }
        }))
    }

    fn newest_retry(&self) -> BoxFuture<'_, Result<Option<Timestamp>, Error>> {
        Box::pin(
            self.pool.short(move |client: Arc<Client>| async move {
                outbox::newest_retry(&client).await
            }),
        )
    }

    fn retries(
        &self,
        endpoint: i64,
        now: Timestamp,
        max: usize,
        bytes: usize,
    ) -> BoxFuture<'_, Result<Retries, Error>> {
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            outbox::retries(&client, endpoint, now, max, bytes).await
        }))
    }

    fn pending_retries(
        &self,
        endpoint: i64,
        max: usize,
    ) -> BoxFuture<'_, Result<Vec<(String, i64)>, Error>> {
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            outbox::pending_retries(&client, endpoint, max).await
        }))
    }

    fn deliveries<'a>(
        &'a self,
        endpoint: i64,
        events: &'a [i64],
    ) -> BoxFuture<'a, Result<Vec<Delivery>, Error>> {
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            outbox::deliveries(&client, endpoint, events).await
        }))
    }
}

/// When a node that writes nothing looks for timers again.
const UNFIT_PAUSE: Duration = Duration::from_secs(1);

impl Upkeep for PostgresStore {
    fn due(&self, now: Timestamp, max: usize) -> BoxFuture<'_, Result<Due, Error>> {
        let shared = &*self.shared;
        Box::pin(async move {
            if shared.check_fit().is_err() {
                // Others fire them; this node may not know their transitions.
                return Ok(Due { next: Some(now.plus(UNFIT_PAUSE)), ..Due::default() });
            }
            let read = move |client: Arc<Client>| async move {
                timers::due(&client, shared, now, max).await
            };
            let mut due = self.pool.long(Tenant::Service, read).await?;
            if !due.unknown.is_empty() {
                self.writer.set_aside(std::mem::take(&mut due.unknown)).await?;
            }
            Ok(due)
        })
    }

    fn timers(&self) -> tokio_watch::Receiver<u64> {
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
        Box::pin(self.pool.short(move |client: Arc<Client>| async move {
            usage::of_account(&client, account).await
        }))
    }

    fn usage(&self) -> &UsedInAll {
        &self.shared.usage
    }

    fn backup<'a>(
        &'a self,
        _: &'a Path,
        _: Box<dyn FnMut(u64, u64) + Send + 'a>,
    ) -> BoxFuture<'a, Result<(), Error>> {
        let reason = "a PostgreSQL database is copied by its own tools: pg_dump, pg_basebackup";
        Box::pin(async move { Err(Error::Refused(vec![reason.to_owned()])) })
    }

    fn must_restart(&self) -> BoxFuture<'static, String> {
        let mut moved = self.shared.moved.subscribe();
        Box::pin(async move {
            if moved.wait_for(|moved| *moved).await.is_err() {
                // The store was closed.
                std::future::pending::<()>().await;
            }
            "the database has failed over to a replica, or was restored".to_owned()
        })
    }

    fn unfit(&self) -> Arc<AtomicBool> {
        self.shared.unfit.clone()
    }

    fn check_fit(&self) -> Result<(), Error> {
        self.shared.check_fit()
    }

    fn health(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            let failing = |what: &str, error: Error| {
                Error::Failed(format!("{what} do not work: {error}").into())
            };
            let read = self
                .pool
                .short(move |client: Arc<Client>| async move { log::newest(&client).await });
            read.await.map_err(|error| failing("reads", error))?;
            self.shared.check_fit()?;
            self.writer.probe().await.map_err(|error| failing("writes", error))
        })
    }

    fn watchdog(&self) -> &Arc<Watchdog> {
        &self.shared.state.watchdog
    }

    fn figures(&self) -> Figures {
        self.shared.state.figures(0)
    }
}
