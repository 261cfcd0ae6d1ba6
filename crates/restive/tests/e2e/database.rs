//! The database of a test server, where the suite runs on PostgreSQL:
//! `RESTIVE_TEST_STORE=postgres`, and `RESTIVE_TEST_POSTGRES` with the URL of a server. Each folder
//! has a schema of its own.

use model::Schema;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, LazyLock, Mutex};
use store::Store;
use store::postgres::PostgresStore;
use store::postgres::connect::Address;
use store::sqlite::{Options, Role, SqliteStore};

/// Whether the suite runs on PostgreSQL.
pub fn is_postgres() -> bool {
    std::env::var("RESTIVE_TEST_STORE").is_ok_and(|store| store == "postgres")
}

/// The URL of the database of a folder; none where the suite runs on files.
pub fn of(folder: &Path) -> Option<String> {
    static MADE: LazyLock<Mutex<HashSet<String>>> = LazyLock::new(Mutex::default);
    if !is_postgres() {
        return None;
    }
    let server = std::env::var("RESTIVE_TEST_POSTGRES")
        .expect("RESTIVE_TEST_POSTGRES names the server for RESTIVE_TEST_STORE=postgres");
    let mut hasher = DefaultHasher::new();
    (folder, std::process::id()).hash(&mut hasher);
    let schema = format!("e{:016x}", hasher.finish());
    if MADE.lock().unwrap().insert(schema.clone()) {
        run(&server, &format!("CREATE SCHEMA {schema}"));
    }
    let mark = if server.contains('?') { '&' } else { '?' };
    Some(format!("{server}{mark}schema={schema}"))
}

/// Names the database of a folder to a command.
pub fn name(command: &mut Command, folder: &Path) {
    if let Some(url) = of(folder) {
        command.env("RESTIVE_DATABASE", url);
        // The clocks of many tests are not those of the database.
        command.env("RESTIVE_MAX_CLOCK_DIFFERENCE", u32::MAX.to_string());
    }
}

/// Opens the data of a server, next to it or after it.
pub fn open(folder: &Path, schema: &Arc<Schema>, role: Role) -> Arc<dyn Store> {
    let options = Options { role, ..Options::default() };
    match of(folder) {
        Some(url) => {
            let address = Address::parse(&url).unwrap();
            PostgresStore::open_with(&address, schema.clone(), options).unwrap()
        }
        None => {
            let file = folder.join("data/restive.db");
            SqliteStore::open_with(&file, schema.clone(), options).unwrap()
        }
    }
}

/// Changes the data of a server that has ended, behind its back.
pub fn change(folder: &Path, sql: &str) {
    if let Some(url) = of(folder) {
        return run(&url, sql);
    }
    let mut tool = Command::new("sqlite3");
    let status = tool.arg(folder.join("data/restive.db")).arg(sql).status();
    assert!(status.expect("sqlite3 is needed: `cargo xtask test` installs it").success());
}

/// Whether tests take the time that they need at most: `cargo xtask postgres`.
pub fn is_long() -> bool {
    std::env::var("RESTIVE_TEST_LONG").is_ok_and(|long| long == "1")
}

/// A session next to the servers, which ends when it is dropped.
pub struct Session {
    _end: std::sync::mpsc::Sender<()>,
}

impl Session {
    /// Runs statements in it, and leaves it idle.
    pub fn begin(url: &str, sql: &str) -> Session {
        let (url, sql) = (url.to_owned(), sql.to_owned());
        let (begun, wait) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        std::thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let client = runtime.block_on(async {
                let client = Address::parse(&url).unwrap().connect().await.unwrap();
                client.batch(&sql).await.unwrap();
                client
            });
            begun.send(()).unwrap();
            let _ = ended.recv();
            drop(client);
        });
        wait.recv().expect("the session begins");
        Session { _end: end }
    }
}

/// Runs statements beside the servers.
pub fn run(url: &str, sql: &str) {
    try_run(url, sql).unwrap();
}

/// The same, where it may be forbidden.
pub fn try_run(url: &str, sql: &str) -> Result<(), store::Error> {
    let (url, sql) = (url.to_owned(), sql.to_owned());
    let work = async move { Address::parse(&url)?.connect().await?.batch(&sql).await };
    // On a thread of its own: the caller's may run tasks.
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(work)
    };
    std::thread::spawn(run).join().unwrap()
}
