//! The limit of writing: one thread that drains up to 256 waiting rows, writes each with its
//! event in one transaction with synchronous=FULL, and answers. Same rows and indexes as the
//! server keeps for a book, no HTTP, no validation, no JSON. `bench bare-sqlite` runs it for
//! some seconds and prints its figures as one line of JSON.

use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rusqlite::{Connection, TransactionBehavior, params};
use serde_json::json;

use crate::entropy::Entropy;
use crate::histogram::Histogram;
use crate::options::Options;
use crate::process::cpu_of;

/// The server's own cap of a group.
const GROUP: usize = 256;
/// Before the clock starts: caches, the WAL file and the first pages of the indexes.
const WARM_UP: Duration = Duration::from_millis(300);

const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS records (
        row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL,
        created INTEGER NOT NULL, updated INTEGER NOT NULL, version INTEGER NOT NULL,
        title TEXT, author TEXT, price REAL, isbn TEXT, body TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS records_created ON records (scope, created, row);
    CREATE INDEX IF NOT EXISTS records_updated ON records (scope, updated, row);
    CREATE INDEX IF NOT EXISTS records_title ON records (scope, title, row);
    CREATE INDEX IF NOT EXISTS records_author ON records (scope, author, row);
    CREATE INDEX IF NOT EXISTS records_price ON records (scope, price, row);
    CREATE INDEX IF NOT EXISTS records_isbn ON records (scope, isbn, row);
    CREATE TABLE IF NOT EXISTS events (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, scope INTEGER NOT NULL,
        record INTEGER NOT NULL, kind TEXT NOT NULL, created INTEGER NOT NULL,
        data TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS events_record ON events (record, seq);
    CREATE INDEX IF NOT EXISTS events_scope ON events (scope, seq);
";

const INSERT_RECORD: &str = "INSERT INTO records
    (id, scope, created, updated, version, title, author, price, isbn, body)
    VALUES (?1, 1, ?2, ?2, 1, ?3, ?4, ?5, ?6, ?7)";
const INSERT_EVENT: &str = "INSERT INTO events (id, scope, record, kind, created, data)
    VALUES (?1, 1, ?2, 'book.created', ?3, ?4)";

/// A row on its way to the writer, made by the producer as a server's request side would.
struct Row {
    sent: Instant,
    id: String,
    event: String,
    title: String,
    author: String,
    price: f64,
    isbn: String,
    body: String,
    data: String,
}

pub fn run(options: &Options) -> Result<()> {
    let dir = options.dir.as_deref().context("bare-sqlite needs --dir")?;
    std::fs::create_dir_all(dir)?;
    write(dir, options.in_flight, WARM_UP)?;
    let cpu_before = cpu_of("self")?;
    let began = Instant::now();
    let latency = write(dir, options.in_flight, options.seconds)?;
    let elapsed = began.elapsed();
    let cpu = cpu_of("self")?.saturating_sub(cpu_before);
    let rows = latency.count().max(1) as f64;
    let figures = json!({
        "per_second": rows / elapsed.as_secs_f64(),
        "p50_us": latency.micros(0.5),
        "p99_us": latency.micros(0.99),
        "cpu_us": cpu.as_secs_f64() * 1e6 / rows,
    });
    println!("{figures}");
    Ok(())
}

/// Keeps `in_flight` rows with the writer until time is up; latencies from sending to answer.
fn write(dir: &Path, in_flight: usize, duration: Duration) -> Result<Histogram> {
    let mut connection = open(&dir.join("bare.db"))?;
    let (rows, waiting) = mpsc::channel::<Row>();
    let (answer, answers) = mpsc::channel::<Instant>();
    let writer = std::thread::spawn(move || -> Result<()> {
        while let Ok(first) = waiting.recv() {
            let group = std::iter::once(first).chain(waiting.try_iter().take(GROUP - 1));
            for sent in commit(&mut connection, group)? {
                // The producer stops listening only when the run is over.
                let _ = answer.send(sent);
            }
        }
        Ok(())
    });
    let mut entropy = Entropy::new()?;
    let mut latency = Histogram::default();
    let until = Instant::now() + duration;
    for _ in 0..in_flight {
        rows.send(row(&mut entropy)).context("the writer is gone")?;
    }
    for _ in 0..in_flight {
        while let Ok(sent) = answers.recv() {
            latency.record(sent.elapsed());
            if Instant::now() >= until {
                break;
            }
            rows.send(row(&mut entropy)).context("the writer is gone")?;
        }
    }
    drop(rows);
    writer.join().map_err(|_| anyhow::anyhow!("the writer broke"))??;
    Ok(latency)
}

fn open(file: &Path) -> Result<Connection> {
    let connection = Connection::open(file)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    // Negative is KiB: enough for the hot pages of all indexes, as the server has it.
    connection.pragma_update(None, "cache_size", -32_768)?;
    // In pages, 64 MiB: scattered index inserts touch the same pages again and again, and a limit
    // must not lose its time copying them back after each few groups (a fifth of its CPU).
    connection.pragma_update(None, "wal_autocheckpoint", 16_000)?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn commit(connection: &mut Connection, rows: impl Iterator<Item = Row>) -> Result<Vec<Instant>> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut sent = Vec::with_capacity(GROUP);
    {
        let mut record = transaction.prepare_cached(INSERT_RECORD)?;
        let mut event = transaction.prepare_cached(INSERT_EVENT)?;
        for row in rows {
            let now = 1_700_000_000_000_i64 + sent.len() as i64;
            record.execute(params![
                row.id, now, row.title, row.author, row.price, row.isbn, row.body
            ])?;
            let number = transaction.last_insert_rowid();
            event.execute(params![row.event, number, now, row.data])?;
            sent.push(row.sent);
        }
    }
    transaction.commit()?;
    Ok(sent)
}

fn row(entropy: &mut Entropy) -> Row {
    let id = format!("book_{}", entropy.letters(24));
    let event = format!("evt_{}", entropy.letters(24));
    let title = format!("The book of {}", entropy.letters(12));
    let author = format!("Author {}", entropy.next() % 1_000);
    let price = (entropy.next() % 10_000) as f64 / 100.0;
    let isbn = format!("978{:010}", entropy.next() % 10_000_000_000);
    let body = format!(
        "{{\"id\":\"{id}\",\"object\":\"book\",\"title\":\"{title}\",\"author\":\"{author}\",\
         \"price\":{price},\"isbn\":\"{isbn}\",\"livemode\":false,\
         \"created_at\":\"2026-01-01T00:00:00.000Z\",\"updated_at\":\"2026-01-01T00:00:00.000Z\"}}"
    );
    let data = format!(
        "{{\"id\":\"{event}\",\"object\":\"event\",\"type\":\"book.created\",\"livemode\":false,\
         \"created_at\":\"2026-01-01T00:00:00.000Z\",\"data\":{{\"object\":{body}}}}}"
    );
    Row { sent: Instant::now(), id, event, title, author, price, isbn, body, data }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answered_row_is_in_the_file_with_its_event() {
        let dir = tempfile::tempdir().unwrap();
        let latency = write(dir.path(), 8, Duration::from_millis(100)).unwrap();
        let connection = open(&dir.path().join("bare.db")).unwrap();
        for table in ["records", "events"] {
            let sql = format!("SELECT count(*) FROM {table}");
            let count: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(count, latency.count() as i64, "{table}");
        }
    }

    #[test]
    fn rows_are_as_large_as_the_servers() {
        let row = row(&mut Entropy::new().unwrap());
        assert!((200..400).contains(&row.body.len()), "{}", row.body.len());
        assert!(serde_json::from_str::<serde_json::Value>(&row.data).is_ok());
    }
}
