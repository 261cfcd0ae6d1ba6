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

/// The server's own maximum batch size.
const GROUP: usize = 256;
/// Warm-up before the measurement: caches, the WAL file and the first pages of the indexes.
const WARM_UP: Duration = Duration::from_millis(300);

/// The server's own tables and indexes, unchanged.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS r_books (
        n INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, parent TEXT,
        version INTEGER NOT NULL, created INTEGER NOT NULL, updated INTEGER NOT NULL,
        shape INTEGER NOT NULL, body TEXT NOT NULL, hidden TEXT,
        f_title TEXT, f_author TEXT, f_price REAL, f_isbn TEXT) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS books_id ON r_books (id);
    CREATE INDEX IF NOT EXISTS books_created ON r_books (scope, created);
    CREATE INDEX IF NOT EXISTS books_updated ON r_books (scope, updated);
    CREATE INDEX IF NOT EXISTS books_title ON r_books (scope, f_title);
    CREATE INDEX IF NOT EXISTS books_author ON r_books (scope, f_author);
    CREATE INDEX IF NOT EXISTS books_price ON r_books (scope, f_price);
    CREATE INDEX IF NOT EXISTS books_isbn ON r_books (scope, f_isbn);
    CREATE TABLE IF NOT EXISTS log (
        seq INTEGER PRIMARY KEY, id TEXT NOT NULL, scope INTEGER NOT NULL, type TEXT NOT NULL,
        created INTEGER NOT NULL, collection TEXT NOT NULL, record TEXT NOT NULL,
        api_version TEXT NOT NULL, object TEXT NOT NULL, previous TEXT, request TEXT,
        idempotency_key TEXT) STRICT;
    CREATE UNIQUE INDEX IF NOT EXISTS log_id ON log (id);
    CREATE INDEX IF NOT EXISTS log_record ON log (record);
    CREATE INDEX IF NOT EXISTS log_scope ON log (scope);
";

const INSERT_RECORD: &str = "INSERT INTO r_books
    (id, scope, version, created, updated, shape, f_title, f_author, f_price, f_isbn, body)
    VALUES (?1, 1, 1, ?2, ?2, 1, ?3, ?4, ?5, ?6, ?7)";
const INSERT_EVENT: &str = "INSERT INTO log
    (id, scope, type, created, collection, record, api_version, object, request)
    VALUES (?1, 1, 'book.created', ?2, 'books', ?3, '2026-11-01', ?4,
            'req_0123456789abcdef00000000')";

/// A row for the writer, created by the producer as the request side of a server would.
struct Row {
    sent: Instant,
    id: String,
    event: String,
    title: String,
    author: String,
    price: f64,
    isbn: String,
    body: String,
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

/// Keeps `in_flight` rows with the writer until the time is up; latencies are from sending to
/// response.
fn write(dir: &Path, in_flight: usize, duration: Duration) -> Result<Histogram> {
    let mut connection = open(&dir.join("bare.db"))?;
    let (rows, waiting) = mpsc::channel::<Row>();
    let (answer, answers) = mpsc::channel::<Instant>();
    let writer = std::thread::spawn(move || -> Result<()> {
        while let Ok(first) = waiting.recv() {
            let group = std::iter::once(first).chain(waiting.try_iter().take(GROUP - 1));
            for sent in commit(&mut connection, group)? {
                // The producer stops listening only at the end of the run.
                let _ = answer.send(sent);
            }
        }
        Ok(())
    });
    let mut entropy = Entropy::new()?;
    let mut latency = Histogram::default();
    let mut numbers = 0..;
    let mut next = || row(&mut entropy, numbers.next().unwrap_or_default());
    let until = Instant::now() + duration;
    for _ in 0..in_flight {
        rows.send(next()).context("the writer is gone")?;
    }
    for _ in 0..in_flight {
        while let Ok(sent) = answers.recv() {
            latency.record(sent.elapsed());
            if Instant::now() >= until {
                break;
            }
            rows.send(next()).context("the writer is gone")?;
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
    // Negative means KiB: enough for the hot pages of all indexes, as in the server.
    connection.pragma_update(None, "cache_size", -16_384)?;
    // In pages, 64 MiB: scattered index inserts touch the same pages repeatedly, and the limit must
    // not spend its time copying them back after every few batches (a fifth of its CPU).
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
            event.execute(params![row.event, now, row.id, row.body])?;
            sent.push(row.sent);
        }
    }
    transaction.commit()?;
    Ok(sent)
}

fn row(entropy: &mut Entropy, number: u64) -> Row {
    // Ids like the server's: ordered by time, then random.
    let id = format!("book_{number:010}{}", entropy.letters(19));
    let event = format!("evt_{number:010}{}", entropy.letters(19));
    let title = format!("The book of {}", entropy.letters(12));
    let author = format!("Author {}", entropy.next() % 1_000);
    let price = (entropy.next() % 10_000) as f64 / 100.0;
    let isbn = format!("978{:010}", entropy.next() % 10_000_000_000);
    let body = format!(
        "{{\"id\":\"{id}\",\"object\":\"book\",\"title\":\"{title}\",\"author\":\"{author}\",\
         \"price\":{price},\"isbn\":\"{isbn}\",\
         \"created_at\":\"2026-01-01T00:00:00.000Z\",\"updated_at\":\"2026-01-01T00:00:00.000Z\"}}"
    );
    Row { sent: Instant::now(), id, event, title, author, price, isbn, body }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_answered_row_is_in_the_file_with_its_event() {
        let dir = tempfile::tempdir().unwrap();
        let latency = write(dir.path(), 8, Duration::from_millis(100)).unwrap();
        let connection = open(&dir.path().join("bare.db")).unwrap();
        for table in ["r_books", "log"] {
            let sql = format!("SELECT count(*) FROM {table}");
            let count: i64 = connection.query_row(&sql, [], |row| row.get(0)).unwrap();
            assert_eq!(count, latency.count() as i64, "{table}");
        }
    }

    #[test]
    fn rows_are_as_large_as_the_servers() {
        let row = row(&mut Entropy::new().unwrap(), 7);
        assert!((200..400).contains(&row.body.len()), "{}", row.body.len());
        assert!(serde_json::from_str::<serde_json::Value>(&row.body).is_ok());
    }
}
