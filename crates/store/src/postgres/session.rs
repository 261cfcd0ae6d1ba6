//! The writer's connection. Its thread waits for the database, so each call runs to its end before
//! it returns, within a limit. A transaction whose COMMIT was not answered is looked for before
//! anything else is written.

use super::connect::{Address, Backoff, Cells, Client, Step};
use super::param::params;
use crate::Error;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Row;

/// No answer within this time: the connection is given up. The server's own limits are shorter.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long a COMMIT without an answer is looked for. Then its callers learn that it is unknown.
const RESOLVE: Duration = Duration::from_secs(20);

/// Limits of each transaction that writes: waiting for a lock, for a statement, and for the client.
/// They hold inside the transaction alone, so that they pass a pooler.
pub const LIMITS: &str = "SET LOCAL lock_timeout = '5s'; SET LOCAL statement_timeout = '10s'; \
    SET LOCAL idle_in_transaction_session_timeout = '5s'";

/// The row that says which transaction of this node was the last one.
const MARK: &str = "INSERT INTO writers (node, batch, seen) VALUES ($1, $2, now()) \
    ON CONFLICT (node) DO UPDATE SET batch = excluded.batch, seen = excluded.seen";
/// Waits for a transaction that is still about to end: it locked the row when it began. (What was
/// sent on a lost connection may still be carried out.) An INSERT waits also for the transaction
/// that makes the row, the first one of a node; a SELECT would not see the row and not wait.
const MARKED: &str = "INSERT INTO writers (node, batch, seen) VALUES ($1, 0, now()) \
    ON CONFLICT (node) DO UPDATE SET seen = excluded.seen RETURNING batch";

pub struct Session {
    runtime: Runtime,
    address: Address,
    node: String,
    client: Option<Client>,
    /// Number of the transaction; grows.
    batch: i64,
    /// A transaction whose COMMIT got no answer.
    lost: Option<i64>,
    backoff: Backoff,
    /// No attempt to connect before this.
    connect_after: Instant,
}

/// What became of a transaction whose COMMIT got no answer.
pub enum Fate {
    Committed,
    Undone,
}

impl Session {
    /// Must not be called on a thread that runs other tasks.
    pub fn new(address: Address, node: String) -> Result<Session, Error> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Error::Failed(Box::new(error)))?;
        let (backoff, connect_after) = (Backoff::default(), Instant::now());
        let (client, batch, lost) = (None, 0, None);
        Ok(Session { runtime, address, node, client, batch, lost, backoff, connect_after })
    }

    /// Connects where there is no connection. Fails at once while the pause after a failure lasts.
    pub fn connect(&mut self) -> Result<(), Error> {
        if self.client.as_ref().is_some_and(|client| !client.is_closed()) {
            return Ok(());
        }
        self.client = None;
        if Instant::now() < self.connect_after {
            return Err(Error::Unavailable("the last attempt to connect failed".into()));
        }
        match self.runtime.block_on(self.address.connect()) {
            Ok(client) => {
                self.client = Some(client);
                self.backoff = Backoff::default();
                Ok(())
            }
            Err(error) => {
                self.connect_after = Instant::now() + self.backoff.pause();
                // A password that was changed is the operator's to mend, but it may be mended.
                Err(match error {
                    Error::Refused(reasons) => Error::Unavailable(reasons.join(" ").into()),
                    other => other,
                })
            }
        }
    }

    /// The same, whatever failed before, and with the error as it is.
    pub fn connect_now(&mut self) -> Result<(), Error> {
        let client = self.runtime.block_on(self.address.connect())?;
        self.client = Some(client);
        Ok(())
    }

    /// Gives the connection up: the server undoes what is open on it.
    pub fn disconnect(&mut self) {
        self.client = None;
    }

    pub fn client(&self) -> Result<&Client, Error> {
        self.client.as_ref().ok_or_else(|| Error::Unavailable("there is no connection".into()))
    }

    /// Waits for a piece of work on the connection.
    pub fn run<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(async {
            match tokio::time::timeout(PATIENCE, work).await {
                Ok(done) => done,
                Err(_) => Err(Error::Unavailable("the database does not answer".into())),
            }
        })
    }

    /// The same, for work that takes as long as there is data.
    pub fn run_long<T>(&self, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.runtime.block_on(work)
    }

    /// Begins a transaction and marks it, in one round trip. The row of the mark stays locked until
    /// the transaction has ended, whatever becomes of the connection. Returns the row of a question
    /// that is asked after it.
    pub fn begin(&mut self, begin: &str, question: &str) -> Result<Option<Row>, Error> {
        self.batch += 1;
        let client = self.client()?;
        let mark = params![&self.node, self.batch];
        self.run(async {
            if !client.is_unnamed() {
                client.prepare(MARK, mark).await?;
                client.prepare(question, &[]).await?;
            }
            let ask = client.row(question, &[]);
            let begun = client.batch(begin);
            let (begun, marked, row) = tokio::join!(begun, client.execute(MARK, mark), ask);
            begun?;
            marked?;
            row
        })
    }

    /// Writes and commits, in one round trip once the steps are prepared.
    pub fn commit(&mut self, steps: Vec<Step>) -> Result<(), Error> {
        let client = self.client()?;
        // Prepared first, so that nothing but COMMIT can be in flight after the last step.
        let ready = self.run(client.ready(&steps))?;
        let done = self.run(async {
            let (written, committed) = tokio::join!(client.run(&ready), client.batch("COMMIT"));
            // COMMIT of a transaction that has failed rolls it back, and says nothing.
            written?;
            committed
        });
        let Err(error) = done else { return Ok(()) };
        if !matches!(error, Error::Unavailable(_)) {
            return Err(error);
        }
        self.lost = Some(self.batch);
        self.disconnect();
        match self.resolve() {
            Ok(Fate::Committed) => Ok(()),
            Ok(Fate::Undone) => Err(error),
            Err(cause) => Err(Error::Unknown(format!("{error}; and then: {cause}").into())),
        }
    }

    /// Finds out what became of a transaction whose COMMIT got no answer, while that takes no
    /// longer than a limit.
    fn resolve(&mut self) -> Result<Fate, Error> {
        let began = Instant::now();
        loop {
            match self.look() {
                Ok(fate) => {
                    self.lost = None;
                    return Ok(fate);
                }
                Err(error) if began.elapsed() > RESOLVE => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "a COMMIT was not answered, and is looked for");
                    // waits for: the database to come back
                    std::thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// A look that fails gives its connection up: its transaction may still be open there, and no
    /// later one could begin.
    fn look(&mut self) -> Result<Fate, Error> {
        let Some(lost) = self.lost else { return Ok(Fate::Undone) };
        self.connect_after = Instant::now();
        self.connect()?;
        let marked = self.marked();
        if marked.is_err() {
            self.disconnect();
        }
        Ok(match marked? == Some(lost) {
            true => Fate::Committed,
            false => Fate::Undone,
        })
    }

    /// The last transaction of this node that was committed, once none is about to end.
    fn marked(&self) -> Result<Option<i64>, Error> {
        let (client, node) = (self.client()?, &self.node);
        self.run(async {
            client.batch(&format!("BEGIN; {LIMITS}")).await?;
            let row = client.row(MARKED, params![node]).await?;
            client.batch("ROLLBACK").await?;
            row.map(|row| row.cell(0)).transpose()
        })
    }

    /// Before the next transaction: nothing may be unresolved. Whoever waited for it has been told
    /// that it is unknown.
    pub fn mend(&mut self) -> Result<(), Error> {
        if self.lost.is_some() {
            self.look()?;
            self.lost = None;
        }
        Ok(())
    }
}
