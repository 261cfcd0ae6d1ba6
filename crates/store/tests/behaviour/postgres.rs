//! A PostgreSQL server for the suite. `cargo xtask test` starts one of its own and names it in
//! `RESTIVE_TEST_POSTGRES`; `cargo test` alone needs no server and leaves these tests out.

use crate::support::{self, Bed};
use model::{Schema, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use store::postgres::PostgresStore;
use store::postgres::connect::Address;
use store::sqlite::{Clock, Options, Role, ServedSchema};

const SERVER: &str = "RESTIVE_TEST_POSTGRES";

/// A schema of one test, dropped with its last store.
pub struct Place {
    pub url: String,
    server: String,
    schema: String,
}

impl Place {
    /// A new one; none without a server.
    pub fn new() -> Option<Place> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = std::env::var(SERVER).ok()?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let schema = format!("t{}_{count}", std::process::id());
        run(&server, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}"));
        let mark = if server.contains('?') { '&' } else { '?' };
        Some(Place { url: format!("{server}{mark}schema={schema}"), server, schema })
    }

    /// User, password, host, port, database and schema.
    pub fn parts(&self) -> (&str, &str, &str, &str, &str, &str) {
        let rest = self.server.split_once("://").unwrap().1;
        let (who, rest) = rest.split_once('@').unwrap();
        let (user, password) = who.split_once(':').unwrap_or((who, ""));
        let (host, database) = rest.split_once('/').unwrap();
        let (host, port) = host.split_once(':').unwrap();
        let database = database.split('?').next().unwrap();
        (user, password, host, port, database, &self.schema)
    }

    pub fn address(&self) -> Address {
        Address::parse(&self.url).unwrap()
    }

    /// Opens it with sessions of a name.
    pub fn open_as(&self, name: &str, schema: Schema) -> Result<Bed, store::Error> {
        let address = Address::parse(&format!("{}&application_name={name}", self.url))?;
        Place::open_at(&address, schema, None)
    }

    pub fn open(&self, schema: Schema, text: Option<&str>) -> Result<Bed, store::Error> {
        Place::open_at(&self.address(), schema, text)
    }

    /// Opens what is at an address.
    pub fn open_at(
        address: &Address,
        schema: Schema,
        text: Option<&str>,
    ) -> Result<Bed, store::Error> {
        let time = Arc::new(AtomicI64::new(support::START));
        let hand = time.clone();
        let clock: Clock = Arc::new(move || Timestamp(hand.load(Ordering::Relaxed)));
        let edition = ServedSchema { text: text.map(String::from), ..ServedSchema::default() };
        // The clock of the tests is not that of the database.
        let max_clock_difference = Duration::MAX;
        let steady = Some(clock.clone());
        let options = Options { role: Role::Server, steady, clock, edition, max_clock_difference };
        let store = PostgresStore::open_with(address, Arc::new(schema), options)?;
        Ok(Bed { store, time, _keep: Box::new(()) })
    }

    /// Runs statements in the schema; `$SCHEMA` stands for its name.
    pub fn run(&self, sql: &str) {
        run(&self.url, &sql.replace("$SCHEMA", &self.schema));
    }

    /// Runs statements in a session that is none of the nodes'.
    pub fn run_beside(&self, sql: &str) {
        run(&self.server, sql);
    }

    /// The first cell of what a statement returns.
    pub fn ask(&self, sql: &str) -> i64 {
        let (url, sql) = (self.url.clone(), sql.to_owned());
        apart(async move {
            let client = Address::parse(&url).unwrap().connect().await.unwrap();
            let row = client.row(&sql, &[]).await.unwrap().unwrap();
            row.get(0)
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            run(&self.server, &format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
        }
    }
}

fn run(url: &str, sql: &str) {
    let (url, sql) = (url.to_owned(), sql.to_owned());
    apart(async move {
        let client = Address::parse(&url).unwrap().connect().await.unwrap();
        client.batch(&sql).await.unwrap();
    });
}

/// On a thread of its own: the caller's runs tasks.
fn apart<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    };
    std::thread::spawn(run).join().unwrap()
}

/// A store in a schema of its own.
pub fn fresh() -> Option<Bed> {
    let place = Place::new()?;
    let bed = place.open(support::schema(), None).unwrap();
    Some(Bed { _keep: Box::new(place), ..bed })
}
