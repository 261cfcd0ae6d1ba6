//! The cluster on PostgreSQL. A thread of its own keeps the leases (`leases`) and shares presence,
//! messages and budgets (`side`), on two connections: a slow query of one does not delay the
//! heartbeat. Lists of users have further ones while they run (`listing`). Everything is decided by
//! the database's clock and its row locks.

mod fence;
mod holds;
mod leases;
mod listing;
mod presence;
mod relay;
mod session;
mod side;
mod status;
mod tables;

pub(super) use tables::NAMES;

pub use fence::{CHECK, stale};
pub use status::{NodeStatus, Status, status};

use crate::cluster::{
    BudgetRequest, Budgeted, Cluster, ClusterFigures, Hold, Holdings, Lease, PresentHere, Relayed,
    UsersAndTotal,
};
use crate::postgres::connect::Address;
use crate::{BoxFuture, Error};
use holds::Released;
use listing::{Asked, Listing};
use model::Scope;
use parking_lot::Mutex;
use presence::LocalPresence;
use relay::{Inbox, Outbox};
use side::{Question, Side};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, mpsc, oneshot, watch};

/// What a node is and how patient it is. Tests pass shorter times.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A number that no other node has, drawn at random. A node that joins again counts on from it.
    pub node: i64,
    /// The number with which a former process of this node began, which has surely ended: its
    /// leases, and their fences, are this process's at once.
    pub predecessor: Option<i64>,
    /// Name of the machine and number of the process, with a colon in between.
    pub host: String,
    pub version: String,
    /// The store of this node writes nothing: it holds no leases.
    pub unfit: Arc<AtomicBool>,
    /// A node that is not heard of for so long loses its leases.
    pub lease: Duration,
    pub heartbeat: Duration,
    /// A node stops its work so long before the end of its leases, by its own clock: what it has
    /// begun ends before another node begins.
    pub margin: Duration,
    /// A bucket is handed over after this time, even if its work has not ended: what is in flight
    /// is then cancelled here and repeated there. Most requests have been answered by then; longer,
    /// and one endpoint that hangs would delay all others of its bucket.
    pub hand_over: Duration,
    /// A statement that takes longer has failed.
    pub patience: Duration,
}

impl Settings {
    pub fn new(node: i64, host: String, version: String) -> Settings {
        Settings {
            node: node & i64::MAX & !(REJOINS - 1),
            predecessor: None,
            host,
            version,
            unfit: Arc::default(),
            lease: Duration::from_secs(15),
            heartbeat: Duration::from_secs(3),
            margin: Duration::from_secs(3),
            hand_over: Duration::from_secs(10),
            patience: Duration::from_secs(4),
        }
    }
}

/// Numbers that one process may use one after the other.
const REJOINS: i64 = 1 << 16;

/// Questions that wait for an answer of the database. Beyond it they fail at once.
const QUESTIONS: usize = 4096;

/// A node among others on one PostgreSQL.
pub struct PostgresCluster {
    shared: Arc<Shared>,
    questions: mpsc::Sender<Question>,
    lists: mpsc::Sender<Asked>,
}

/// What the loops and the callers share.
pub(crate) struct Shared {
    pub settings: Settings,
    /// This node's number; another one after its leases have ended.
    pub node: AtomicI64,
    pub holdings: watch::Sender<Arc<Holdings>>,
    pub live: AtomicUsize,
    pub clock_ahead_ms: AtomicI64,
    pub position: AtomicI64,
    /// When the last heartbeat that was confirmed began.
    pub beat: Mutex<Instant>,
    pub takeovers: AtomicU64,
    pub drained: Mutex<BTreeSet<Lease>>,
    /// The leases are to be looked at now.
    pub look: Notify,
    pub presence: LocalPresence,
    pub inbox: Inbox,
    pub outbox: Outbox,
    /// There is something in `presence` or `outbox`.
    pub news: Notify,
    /// How often the leases of this node had ended before they were renewed.
    pub lapses: AtomicU64,
    /// The next token of a hold, and rows of holds that are to be removed.
    pub tokens: AtomicI64,
    pub released: Mutex<Vec<Released>>,
    /// A dead node was removed: its users may have gone.
    pub reaped: AtomicU64,
    pub stopping: watch::Sender<bool>,
    /// All leases are given up.
    pub stopped: watch::Sender<bool>,
}

impl Shared {
    /// Whether no other node is known.
    pub fn is_alone(&self) -> bool {
        self.live.load(Relaxed) <= 1
    }

    /// Has a message sent to the other nodes; where there are none, to one that joins just now.
    pub fn relay(&self, message: Relayed) {
        self.outbox.push(message, self.is_alone());
    }
}

impl PostgresCluster {
    /// Creates the tables, joins the cluster and takes the buckets that are free. Then a thread
    /// keeps the node alive until `stop`, or until the process ends.
    pub async fn join(
        address: Address,
        settings: Settings,
        position: i64,
    ) -> Result<Arc<PostgresCluster>, Error> {
        let shared = Arc::new(Shared {
            node: AtomicI64::new(settings.node),
            holdings: watch::Sender::new(Arc::new(Holdings::some([], Instant::now()))),
            live: AtomicUsize::new(1),
            clock_ahead_ms: AtomicI64::new(0),
            position: AtomicI64::new(position),
            beat: Mutex::new(Instant::now()),
            takeovers: AtomicU64::new(0),
            drained: Mutex::default(),
            look: Notify::new(),
            presence: LocalPresence::default(),
            inbox: Inbox::default(),
            outbox: Outbox::default(),
            news: Notify::new(),
            lapses: AtomicU64::new(0),
            tokens: AtomicI64::new(0),
            released: Mutex::default(),
            reaped: AtomicU64::new(0),
            stopping: watch::Sender::new(false),
            stopped: watch::Sender::new(false),
            settings,
        });
        let (questions, asked) = mpsc::channel(QUESTIONS);
        let (lists, listed) = mpsc::channel(QUESTIONS);
        let asked = Questions { own: questions.clone(), asked, listed };
        let (joined, joining) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Failed(Box::new(error)))?;
        let loops = shared.clone();
        std::thread::Builder::new()
            .name("cluster".into())
            .spawn(move || runtime.block_on(run(loops, address, asked, joined)))
            .map_err(|error| Error::Failed(Box::new(error)))?;
        match joining.await {
            Ok(result) => result?,
            Err(_) => return Err(Error::Failed("the cluster's thread has ended".into())),
        }
        Ok(Arc::new(PostgresCluster { shared, questions, lists }))
    }

    /// Ends everything at once without giving up the leases, as a kill does. For tests.
    pub fn crash(&self) {
        self.shared.stopped.send_replace(true);
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<Result<T, Error>>) -> Question,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send(question(answer)).map_err(|_| Error::Busy)?;
        self.answer(answered).await
    }

    async fn answer<T>(&self, answered: oneshot::Receiver<Result<T, Error>>) -> Result<T, Error> {
        match tokio::time::timeout(self.shared.settings.patience, answered).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Error::Failed("the cluster has ended".into())),
            Err(_) => Err(Error::Timeout),
        }
    }
}

/// What is asked of the loops.
struct Questions {
    /// For the lists, which ask `side` themselves.
    own: mpsc::Sender<Question>,
    asked: mpsc::Receiver<Question>,
    listed: mpsc::Receiver<Asked>,
}

/// Joins, reports that, and runs the loops until the node stops.
async fn run(
    shared: Arc<Shared>,
    address: Address,
    questions: Questions,
    joined: oneshot::Sender<Result<(), Error>>,
) {
    // Both before it is reported: what other nodes send from then on is read.
    let joining = async {
        let leases = leases::Leases::join(shared.clone(), address.clone()).await?;
        Ok((leases, Side::open(shared.clone(), &address, None).await?))
    };
    let (leases, side) = match joining.await {
        Ok(both) => both,
        Err(error) => {
            let _ = joined.send(Err(error));
            return;
        }
    };
    let _ = joined.send(Ok(()));
    let mut stopped = shared.stopped.subscribe();
    let Questions { own, asked, listed } = questions;
    let listing = Listing::new(shared, &address, own);
    let work = async {
        tokio::join!(leases.run(), side.run(address, asked), listing.run(listed));
    };
    tokio::select! {
        () = work => {}
        _ = stopped.wait_for(|stopped| *stopped) => {}
    }
}

impl Cluster for PostgresCluster {
    fn is_shared(&self) -> bool {
        true
    }

    fn holdings(&self) -> watch::Receiver<Arc<Holdings>> {
        self.shared.holdings.subscribe()
    }

    fn drained(&self, lease: Lease) {
        self.shared.drained.lock().insert(lease);
        self.shared.look.notify_one();
    }

    fn live_nodes(&self) -> usize {
        self.shared.live.load(Relaxed)
    }

    fn clock_ahead_ms(&self) -> i64 {
        self.shared.clock_ahead_ms.load(Relaxed)
    }

    fn take_budget(&self, request: BudgetRequest) -> BoxFuture<'_, Result<Budgeted, Error>> {
        Box::pin(self.ask(|answer| Question::Budget(request, answer)))
    }

    fn hold(&self, name: String) -> BoxFuture<'_, Result<Option<Box<dyn Hold>>, Error>> {
        Box::pin(self.ask(|answer| Question::Hold(name, answer)))
    }

    fn set_present(&self, scope: Scope, user: &str, present: Option<PresentHere>) {
        self.shared.presence.set(scope, user, present);
        self.shared.news.notify_one();
    }

    fn present(
        &self,
        scope: Scope,
        max: usize,
    ) -> BoxFuture<'_, Result<Option<UsersAndTotal>, Error>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            let asked = Asked { scope, max, answer };
            self.lists.try_send(asked).map_err(|_| Error::Busy)?;
            self.answer(answered).await.map(Some)
        })
    }

    fn relay(&self, message: Relayed) {
        self.shared.relay(message);
        self.shared.news.notify_one();
    }

    fn relayed(&self) -> BoxFuture<'_, Vec<Relayed>> {
        Box::pin(self.shared.inbox.take())
    }

    fn set_position(&self, position: i64) {
        self.shared.position.store(position, Relaxed);
    }

    fn stop(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let mut stopped = self.shared.stopped.subscribe();
            self.shared.stopping.send_replace(true);
            let limit = self.shared.settings.patience;
            let _ = tokio::time::timeout(limit, stopped.wait_for(|stopped| *stopped)).await;
        })
    }

    fn figures(&self) -> ClusterFigures {
        ClusterFigures {
            nodes: self.live_nodes(),
            leases: self.shared.holdings.borrow().count(),
            heartbeat_age: self.shared.beat.lock().elapsed(),
            takeovers: self.shared.takeovers.load(Relaxed),
            relay_dropped: self.shared.outbox.dropped(),
        }
    }
}

impl Drop for PostgresCluster {
    fn drop(&mut self) {
        // Without a graceful stop the leases end by themselves.
        self.shared.stopped.send_replace(true);
    }
}
