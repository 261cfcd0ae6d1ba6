//! Connections for reads. Short reads of everybody share a few connections, on which they are
//! pipelined. Reads that may take long have a connection each while they run: one queue per
//! account, served in turns, and no account ever has all of them. A thread of their own drives the
//! connections, so that any task may use them.

use super::connect::{Address, Client};
use super::locked::Locked;
use super::sessions::Sessions;
use crate::Error;
use crate::fair::{FairQueue, Tenant};
use model::{CollectionIx, Scope};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::Timeout;

/// Connections that short reads share.
const SHARED: usize = 3;
/// Long reads of accounts that run at the same time. One account has at most half of them.
const RUNNING: usize = 6;
/// Long reads of the service itself.
const SERVICE_RUNNING: usize = 2;
/// Long reads that may wait; half of them may be of one account.
const QUEUE: usize = 256;
/// How long a read may take, the wait included.
pub const DEADLINE: Duration = Duration::from_secs(5);
/// The same for a read of the service itself, which no client waits for.
const SERVICE_DEADLINE: Duration = Duration::from_secs(20);
/// What a server does not answer within this time after the deadline is lost.
const GRACE: Duration = Duration::from_secs(2);

/// Limits of a short read in the database: the others of its connection wait for it. One that meets
/// a locked table goes on as a long read.
const SHORT_LIMITS: &str = "SET statement_timeout = '5s'; SET lock_timeout = '200ms'";

/// The thread that drives connections. They end with it.
pub struct Net {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Net {
    pub fn start() -> Result<Net, Error> {
        let failed = |error: std::io::Error| Error::Failed(Box::new(error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (handle, (stop, stopped)) = (runtime.handle().clone(), oneshot::channel::<()>());
        let thread = std::thread::Builder::new()
            .name("store-read".into())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
            })
            .map_err(failed)?;
        Ok(Net { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The connections.
pub struct Pool {
    sessions: Arc<Sessions>,
    shared: Vec<tokio::sync::Mutex<Option<Arc<Client>>>>,
    next: AtomicUsize,
    locked: Locked,
    accounts: Arc<Gate>,
    service: Arc<Gate>,
}

impl Pool {
    pub fn new(address: Address, handle: Handle) -> Pool {
        let shared = (0..SHARED).map(|_| tokio::sync::Mutex::new(None)).collect();
        let (accounts, service) = (Gate::new(RUNNING), Gate::new(SERVICE_RUNNING));
        let sessions = Sessions::new(address, handle, RUNNING + SERVICE_RUNNING);
        let (next, locked) = (AtomicUsize::new(0), Locked::default());
        Pool { sessions, shared, next, locked, accounts, service }
    }

    /// For long reads of accounts only, so many at the same time.
    pub fn of_accounts(address: Address, handle: Handle, running: usize) -> Pool {
        let (accounts, service) = (Gate::new(running), Gate::new(0));
        let sessions = Sessions::new(address, handle, running);
        let (next, locked) = (AtomicUsize::new(0), Locked::default());
        Pool { sessions, shared: Vec::new(), next, locked, accounts, service }
    }

    /// With a deadline by the clock of the thread of the connections: the caller's may have none.
    fn within<F: Future>(&self, limit: Duration, work: F) -> Timeout<F> {
        let _entered = self.sessions.handle().enter();
        tokio::time::timeout(limit, work)
    }

    /// One of the shared connections.
    async fn client(&self) -> Result<Arc<Client>, Error> {
        let place = self.next.fetch_add(1, Ordering::Relaxed) % self.shared.len();
        let mut slot = self.shared[place].lock().await;
        if let Some(client) = slot.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = self.sessions.connect().await?;
        // Behind a pooler, settings would be those of other sessions.
        if !client.is_unnamed() {
            client.batch(SHORT_LIMITS).await?;
        }
        *slot = Some(client.clone());
        Ok(client)
    }

    /// Forgets a shared connection.
    async fn drop_shared(&self, client: &Arc<Client>) {
        for slot in &self.shared {
            let mut slot = slot.lock().await;
            if slot.as_ref().is_some_and(|known| Arc::ptr_eq(known, client)) {
                *slot = None;
            }
        }
    }

    /// Runs a short read: statements that each stand for themselves.
    pub async fn short<T, F>(&self, read: impl Fn(Arc<Client>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        match self.beside_others(&read).await {
            Err(Error::Busy) => self.long(Tenant::Service, read).await,
            done => done,
        }
    }

    /// The same, of the table of one collection. While that is locked, its reads leave the shared
    /// connections to those of other tables.
    pub async fn short_of<T, F>(
        &self,
        (scope, collection): (Scope, CollectionIx),
        read: impl Fn(Arc<Client>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        if self.locked.may_try(collection) {
            let done = self.beside_others(&read).await;
            let met = matches!(done, Err(Error::Busy));
            self.locked.note(collection, met);
            if !met {
                return done;
            }
        }
        self.long(Tenant::from(scope), read).await
    }

    /// On a shared connection. A read has no effect, so one whose connection was lost is tried on
    /// another.
    async fn beside_others<T, F>(&self, read: &impl Fn(Arc<Client>) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let deadline = DEADLINE + GRACE;
        for last in [false, true] {
            let client = self.client().await?;
            let done = match self.within(deadline, read(client.clone())).await {
                Ok(done) => done,
                Err(_) => Err(Error::Unavailable("the database does not answer".into())),
            };
            match done {
                Err(error) if is_lost(&error) => {
                    self.drop_shared(&client).await;
                    self.sessions.forget_idle();
                    if last {
                        return Err(error);
                    }
                }
                done => return done,
            }
        }
        Err(Error::Unavailable("there is no connection".into()))
    }

    /// Runs a read that may take long, in a transaction with one snapshot.
    pub async fn long<T, F>(
        &self,
        tenant: Tenant,
        read: impl Fn(Arc<Client>) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let (gate, limit) = match tenant {
            Tenant::Service => (&self.service, SERVICE_DEADLINE),
            Tenant::Account(_) => (&self.accounts, DEADLINE),
        };
        let deadline = Instant::now() + limit;
        let entering = self.within(limit, gate.enter(tenant));
        let turn = entering.await.map_err(|_| Error::Timeout)??;
        let (sessions, until) = (self.sessions.clone(), deadline + GRACE);
        let mut running = Running { sessions, open: None, turn: Some(turn), until };
        for last in [false, true] {
            let client = self.sessions.take().await?;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.sessions.give_back(client);
                return Err(Error::Timeout);
            }
            running.open = Some(client.clone());
            match self.within(left + GRACE, transact(&client, left, &read)).await {
                Ok(Ok(found)) => {
                    running.open = None;
                    self.sessions.give_back(client);
                    return Ok(found);
                }
                Ok(Err(error)) if is_lost(&error) && !last => running.open = None,
                Ok(Err(error)) => return Err(error),
                Err(_) => return Err(Error::Timeout),
            }
        }
        Err(Error::Unavailable("there is no connection".into()))
    }
}

/// A long read that runs. The database goes on with it when its caller has gone or it has failed:
/// until that is over, it has its turn, and nobody else the connection.
struct Running {
    sessions: Arc<Sessions>,
    /// A connection whose transaction may be open.
    open: Option<Arc<Client>>,
    turn: Option<Turn>,
    /// The database has ended it by then.
    until: Instant,
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(client) = self.open.take() else { return };
        let (sessions, turn) = (self.sessions.clone(), self.turn.take());
        let left = self.until.saturating_duration_since(Instant::now()) + GRACE;
        self.sessions.handle().spawn(async move {
            // After the statement that runs, which ends by its own limit at the latest.
            if let Ok(Ok(())) = tokio::time::timeout(left, client.batch("ROLLBACK")).await {
                sessions.give_back(client);
            }
            drop(turn);
        });
    }
}

async fn transact<T, F>(
    client: &Arc<Client>,
    left: Duration,
    read: &impl Fn(Arc<Client>) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = '10s'",
        left.as_millis().max(1)
    );
    client.batch(&begin).await?;
    let found = read(client.clone()).await?;
    client.batch("COMMIT").await?;
    Ok(found)
}

/// Whether another connection may answer: this one was lost, or has plans of tables that another
/// node has changed.
fn is_lost(error: &Error) -> bool {
    match error {
        Error::Unavailable(_) => true,
        Error::Failed(cause) => {
            let text = cause.to_string();
            ["0A000", "26000"].iter().any(|state| text.contains(&format!("SQLSTATE {state}")))
        }
        _ => false,
    }
}

/// Turns of long reads.
struct Gate {
    state: Mutex<State>,
}

struct State {
    waiting: FairQueue<oneshot::Sender<Turn>>,
    /// Turns that somebody has.
    busy: HashMap<Tenant, usize>,
    idle: usize,
}

/// The right to run. Dropping it lets the next one in.
struct Turn {
    gate: Arc<Gate>,
    tenant: Tenant,
}

impl Gate {
    fn new(idle: usize) -> Arc<Gate> {
        let state = State { waiting: FairQueue::new(QUEUE), busy: HashMap::new(), idle };
        Arc::new(Gate { state: Mutex::new(state) })
    }

    /// Waits for a turn; `Busy` when too many of the same account wait.
    async fn enter(self: &Arc<Gate>, tenant: Tenant) -> Result<Turn, Error> {
        let (sender, turn) = oneshot::channel();
        if !self.state.lock().waiting.push(tenant, sender) {
            return Err(Error::Busy);
        }
        self.serve();
        turn.await.map_err(|_| Error::Busy)
    }

    fn serve(self: &Arc<Gate>) {
        while let Some((tenant, sender)) = self.next() {
            // Whoever does not wait any more gives it back at once.
            let _ = sender.send(Turn { gate: self.clone(), tenant });
        }
    }

    /// The next one whose account may have a turn: it may hold as many as it leaves idle.
    fn next(&self) -> Option<(Tenant, oneshot::Sender<Turn>)> {
        let mut state = self.state.lock();
        let State { waiting, busy, idle } = &mut *state;
        let left = idle.checked_sub(1)?;
        let may =
            |tenant| tenant == Tenant::Service || busy.get(&tenant).is_none_or(|held| *held < left);
        loop {
            let (tenant, sender) = waiting.next(may)?;
            if sender.is_closed() {
                continue;
            }
            *busy.entry(tenant).or_default() += 1;
            *idle = left;
            return Some((tenant, sender));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.gate.state.lock();
        state.idle += 1;
        if let Some(held) = state.busy.get_mut(&self.tenant) {
            *held -= 1;
            if *held == 0 {
                state.busy.remove(&self.tenant);
            }
        }
        drop(state);
        self.gate.serve();
    }
}
