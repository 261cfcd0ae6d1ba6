//! Keeps this node alive and its leases, on a connection of its own. One tick: renew the heartbeat,
//! remove nodes whose heartbeat is too old, take free buckets, hand over one for balance. All times
//! are those of the database; the end of the leases is also computed by this machine's monotonic
//! clock, from before the heartbeat was sent.

use super::session::{Session, within};
use super::tables::{self, CHANNEL, LEASES};
use super::{REJOINS, Shared};
use crate::Error;
use crate::cluster::plan::{Plan, View, plan};
use crate::cluster::{Bucket, Holding, Holdings, Lease};
use crate::postgres::connect::{Address, Cells as _};
use crate::postgres::param::params;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Pause after a failed tick.
const PAUSE: Duration = Duration::from_millis(500);
/// So long after the end of another node's leases they are looked at.
const AFTER_END: Duration = Duration::from_millis(20);

const JOIN: &str = "INSERT INTO restive_nodes (node, host, version, started, beat, until, \
    position, serves) VALUES ($1, $2, $3, clock_timestamp(), clock_timestamp(), \
    clock_timestamp() + $4 * interval '1 millisecond', $5, $6::bigint = 1)";
const RENEW: &str = "UPDATE restive_nodes SET beat = clock_timestamp(), \
    until = clock_timestamp() + $2 * interval '1 millisecond', position = $3, \
    serves = $4::bigint = 1 WHERE node = $1";
const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
/// The machine is compared, too: a folder may have been copied.
const SUCCEED: &str = "UPDATE restive_leases l SET node = $1 FROM restive_nodes n \
    WHERE n.node = l.node AND n.node >= $2 AND n.node < $3 AND n.node <> $1 \
    AND split_part(n.host, ':', 1) = $4";
const FORGET: &str = "DELETE FROM restive_nodes n WHERE n.node >= $2 AND n.node < $3 \
    AND n.node <> $1 AND split_part(n.host, ':', 1) = $4";
/// A node that is removed joins again under another number, so its old leases never come back.
const REAP: &str = "DELETE FROM restive_nodes WHERE until < clock_timestamp() AND node <> $1";
const NODES: &str = "SELECT node, \
    (extract(epoch FROM until - clock_timestamp()) * 1000)::bigint, serves FROM restive_nodes";
const OWNERS: &str = "SELECT bucket, node, fence FROM restive_leases ORDER BY bucket";
/// A settlement in progress locks the row for a moment: the bucket is taken at the next tick.
const TAKE: &str = "UPDATE restive_leases SET node = $1, fence = fence + 1 WHERE bucket IN \
    (SELECT l.bucket FROM restive_leases l WHERE l.bucket = ANY($2) AND (l.node IS NULL OR \
    NOT EXISTS (SELECT 1 FROM restive_nodes n WHERE n.node = l.node)) \
    ORDER BY l.bucket FOR UPDATE OF l SKIP LOCKED) AND EXISTS (SELECT 1 FROM restive_nodes n \
    WHERE n.node = $1 AND n.until > clock_timestamp()) RETURNING bucket, fence";
const HAND_OVER: &str = "UPDATE restive_leases SET node = $3, fence = fence + 1 \
    WHERE bucket = $1 AND fence = $2";
const RELEASE: &str = "UPDATE restive_leases SET node = NULL, fence = fence + 1 WHERE node = $1";
const LEAVE: &str = "DELETE FROM restive_nodes WHERE node = $1";
const NOTIFY: &str = "SELECT pg_notify($1, $2)";

/// A bucket that is being handed over.
#[derive(Clone, Copy, Debug)]
struct Leaving {
    lease: Lease,
    to: i64,
    until: Instant,
}

pub struct Leases {
    shared: Arc<Shared>,
    address: Address,
    session: Option<Session>,
    leaving: BTreeMap<Bucket, Leaving>,
    unclaimed: BTreeSet<Bucket>,
}

/// What a tick found.
struct Tick {
    holdings: Holdings,
    /// When to look again.
    next: Duration,
}

impl Leases {
    /// Connects, creates the tables and takes what is free.
    pub async fn join(shared: Arc<Shared>, address: Address) -> Result<Leases, Error> {
        let session = Session::open(&address).await?;
        tables::create(&session.client).await?;
        let mut leases = Leases {
            shared,
            address,
            session: Some(session),
            leaving: BTreeMap::new(),
            unclaimed: BTreeSet::new(),
        };
        leases.register().await?;
        leases.succeed().await?;
        let tick = leases.tick().await?;
        leases.publish(tick.holdings);
        // Not only at their next heartbeat: what they send concerns this node, too.
        leases.tell().await?;
        Ok(leases)
    }

    /// Until the node stops.
    pub async fn run(mut self) {
        let mut stopping = self.shared.stopping.subscribe();
        let mut wait = self.shared.settings.heartbeat;
        loop {
            let shared = self.shared.clone();
            tokio::select! {
                _ = stopping.wait_for(|stopping| *stopping) => break,
                () = tokio::time::sleep(wait) => {}
                () = shared.look.notified() => {}
            }
            wait = self.tick_in_time().await;
        }
        self.leave().await;
        self.shared.stopped.send_replace(true);
    }

    /// A tick, and the end of the work when the leases end before the database answers.
    async fn tick_in_time(&mut self) -> Duration {
        let shared = self.shared.clone();
        let end = shared.holdings.borrow().until();
        let patience = shared.settings.patience;
        let result = {
            let mut tick = std::pin::pin!(within(patience, self.connected_tick()));
            let ends = end.filter(|end| *end > Instant::now());
            match ends {
                None => tick.await,
                Some(end) => tokio::select! {
                    result = &mut tick => result,
                    () = tokio::time::sleep_until(end.into()) => {
                        lose_all(&shared);
                        tick.await
                    }
                },
            }
        };
        match result {
            Ok(Tick { holdings, next }) => {
                self.publish(holdings);
                next
            }
            Err(error) => {
                tracing::warn!(%error, "cluster: no heartbeat; trying again");
                self.session = None;
                // Renewed or not: nothing is served after the end.
                if end.is_none_or(|end| end <= Instant::now()) {
                    lose_all(&shared);
                    return PAUSE;
                }
                let left = end.map_or(PAUSE, |end| end.saturating_duration_since(Instant::now()));
                PAUSE.min(left)
            }
        }
    }

    async fn connected_tick(&mut self) -> Result<Tick, Error> {
        if self.session.as_ref().is_none_or(|session| session.client.is_closed()) {
            self.session = Some(Session::open(&self.address).await?);
        }
        self.tick().await
    }

    fn publish(&self, holdings: Holdings) {
        self.shared.holdings.send_replace(Arc::new(holdings));
    }

    fn session(&self) -> Result<&Session, Error> {
        self.session.as_ref().ok_or_else(|| Error::Failed("there is no connection".into()))
    }

    async fn register(&self) -> Result<(), Error> {
        let settings = &self.shared.settings;
        let (lease, position) = (millis(settings.lease), self.shared.position.load(Relaxed));
        let node = self.shared.node.load(Relaxed);
        let serves = i64::from(!settings.unfit.load(Relaxed));
        let values = params![node, &settings.host, &settings.version, lease, position, serves];
        self.session()?.client.execute(JOIN, values).await?;
        Ok(())
    }

    /// Takes over the leases of a former process of this node.
    async fn succeed(&self) -> Result<(), Error> {
        let settings = &self.shared.settings;
        let Some(former) = settings.predecessor else { return Ok(()) };
        let machine = settings.host.split(':').next().unwrap_or_default();
        let node = self.shared.node.load(Relaxed);
        let (begin, end) = (former, former.saturating_add(REJOINS));
        let client = &self.session()?.client;
        client.execute(SUCCEED, params![node, begin, end, machine]).await?;
        let removed = client.execute(FORGET, params![node, begin, end, machine]).await?;
        if removed > 0 {
            self.shared.reaped.fetch_add(removed, Relaxed);
        }
        Ok(())
    }

    async fn tick(&mut self) -> Result<Tick, Error> {
        let began = Instant::now();
        let is_unfit = self.shared.settings.unfit.load(Relaxed);
        self.renew(is_unfit).await?;
        self.reap().await?;
        self.hand_over_drained().await?;
        if is_unfit {
            self.give_up().await?;
        }
        let (view, fences, next_end) = self.look().await?;
        let Plan { take, hand_over, unclaimed } =
            if is_unfit { Plan::default() } else { plan(&view) };
        self.unclaimed = unclaimed;
        if self.shared.live.swap(view.nodes, Relaxed) != view.nodes {
            // Messages may wait for the first other node.
            self.shared.news.notify_one();
        }
        // What another node hands to this one meanwhile is given up at the next tick.
        let owned = view.owners.iter().filter(|(_, node)| **node == Some(view.me) && !is_unfit);
        let mut mine: BTreeMap<Bucket, i64> =
            owned.filter_map(|(bucket, _)| Some((*bucket, *fences.get(bucket)?))).collect();
        let taken = self.take(view.me, &take).await?;
        if !taken.is_empty() {
            self.shared.takeovers.fetch_add(taken.len() as u64, Relaxed);
            tracing::info!(buckets = taken.len(), "cluster: took buckets");
        }
        mine.extend(taken);
        let settings = &self.shared.settings;
        if let Some((bucket, to)) = hand_over
            && let Some(fence) = mine.get(&bucket)
        {
            let lease = Lease { bucket, fence: *fence };
            let until = began + settings.hand_over;
            self.leaving.insert(bucket, Leaving { lease, to, until });
        }
        let leaving = &self.leaving;
        let holdings = mine.into_iter().map(|(bucket, fence)| {
            let lease = Lease { bucket, fence };
            match leaving.get(&bucket).is_some_and(|leaving| leaving.lease == lease) {
                true => Holding::HandOver(lease),
                false => Holding::Serve(lease),
            }
        });
        let holdings = Holdings::some(holdings, began + settings.lease - settings.margin);
        let before = std::mem::replace(&mut *self.shared.beat.lock(), began);
        if began.saturating_duration_since(before) > settings.lease - settings.margin {
            self.shared.lapses.fetch_add(1, Relaxed);
        }
        let next = next_end.map_or(settings.heartbeat, |end| end + AFTER_END);
        Ok(Tick { holdings, next: next.min(settings.heartbeat) })
    }

    /// The heartbeat. A node that was removed in the meantime joins again, under a new number.
    async fn renew(&mut self, is_unfit: bool) -> Result<(), Error> {
        let shared = self.shared.clone();
        let lease = millis(shared.settings.lease);
        let (node, position) = (shared.node.load(Relaxed), shared.position.load(Relaxed));
        let client = &self.session()?.client;
        let asked = Instant::now();
        let row = client.row(NOW, params![]).await?;
        let now: i64 = row.map_or(Ok(0), |row| row.cell(0))?;
        let trip = millis(asked.elapsed());
        let here = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let here = millis(here.unwrap_or_default());
        shared.clock_ahead_ms.store(now - (here - trip / 2), Relaxed);
        let serves = i64::from(!is_unfit);
        let renewed = client.execute(RENEW, params![node, lease, position, serves]).await?;
        if renewed == 1 {
            return Ok(());
        }
        tracing::warn!("cluster: this node was declared dead; it joins again");
        lose_all(&shared);
        self.leaving.clear();
        shared.node.store(node.wrapping_add(1) & i64::MAX, Relaxed);
        self.register().await?;
        shared.presence.resync();
        shared.news.notify_one();
        Ok(())
    }

    async fn reap(&self) -> Result<(), Error> {
        let node = self.shared.node.load(Relaxed);
        let dead = self.session()?.client.execute(REAP, params![node]).await?;
        if dead > 0 {
            tracing::warn!(nodes = dead, "cluster: nodes without a heartbeat were removed");
            self.shared.reaped.fetch_add(dead, Relaxed);
            self.shared.news.notify_one();
        }
        Ok(())
    }

    /// What the cluster looks like; the fences; and when the leases of another node end, if that
    /// is soon.
    async fn look(&self) -> Result<(View, BTreeMap<Bucket, i64>, Option<Duration>), Error> {
        let client = &self.session()?.client;
        let (nodes, owners) =
            tokio::try_join!(client.query(NODES, params![]), client.query(OWNERS, params![]))?;
        let me = self.shared.node.load(Relaxed);
        let mut view = View {
            me,
            leaving: self.leaving.keys().copied().collect(),
            unclaimed: self.unclaimed.clone(),
            nodes: nodes.len(),
            ..View::default()
        };
        let mut next_end = None;
        for row in &nodes {
            let (node, left): (i64, i64) = (row.cell(0)?, row.cell(1)?);
            // One whose leases have ended just now still owns its buckets until it is removed.
            if row.cell::<bool>(2)? {
                view.live.insert(node);
            }
            let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
            if node != me {
                next_end = Some(next_end.map_or(left, |end: Duration| end.min(left)));
            }
        }
        let mut fences = BTreeMap::new();
        for row in &owners {
            let bucket = bucket(row)?;
            view.owners.insert(bucket, row.cell(1)?);
            fences.insert(bucket, row.cell(2)?);
        }
        Ok((view, fences, next_end))
    }

    /// A node that writes nothing holds no leases: others do its work.
    async fn give_up(&mut self) -> Result<(), Error> {
        lose_all(&self.shared);
        self.leaving.clear();
        let node = self.shared.node.load(Relaxed);
        if self.session()?.client.execute(RELEASE, params![node]).await? > 0 {
            self.tell().await?;
        }
        Ok(())
    }

    async fn take(&self, me: i64, buckets: &[Bucket]) -> Result<Vec<(Bucket, i64)>, Error> {
        if buckets.is_empty() {
            return Ok(Vec::new());
        }
        let buckets: Vec<i64> = buckets.iter().map(|bucket| i64::from(*bucket)).collect();
        let rows = self.session()?.client.query(TAKE, params![me, buckets]).await?;
        rows.iter().map(|row| Ok((bucket(row)?, row.cell(1)?))).collect()
    }

    /// Gives away the buckets whose work has ended, or whose time is up.
    async fn hand_over_drained(&mut self) -> Result<(), Error> {
        let drained = std::mem::take(&mut *self.shared.drained.lock());
        let now = Instant::now();
        let is_done = |leaving: &Leaving| drained.contains(&leaving.lease) || leaving.until <= now;
        let done: Vec<Leaving> =
            self.leaving.values().filter(|one| is_done(one)).copied().collect();
        // Before another node begins: if the rest of this tick fails, it is published by nobody.
        self.shared.holdings.send_if_modified(|holdings| {
            let without = holdings.without(done.iter().map(|one| one.lease));
            without.map(|without| *holdings = Arc::new(without)).is_some()
        });
        for Leaving { lease, to, .. } in &done {
            let values = params![i64::from(lease.bucket), lease.fence, *to];
            self.session()?.client.execute(HAND_OVER, values).await?;
            self.leaving.remove(&lease.bucket);
        }
        if !done.is_empty() {
            self.tell().await?;
        }
        Ok(())
    }

    /// Wakes the other nodes: there are leases for them, or a new node.
    async fn tell(&self) -> Result<(), Error> {
        self.session()?.client.query(NOTIFY, params![CHANNEL, LEASES]).await?;
        Ok(())
    }

    /// The graceful end.
    async fn leave(&mut self) {
        let none = Holdings::some([], Instant::now());
        self.shared.holdings.send_replace(Arc::new(none));
        let patience = self.shared.settings.patience;
        let node = self.shared.node.load(Relaxed);
        let left = within(patience, async {
            let client = &self.session()?.client;
            client.execute(RELEASE, params![node]).await?;
            client.execute(LEAVE, params![node]).await?;
            self.tell().await
        });
        if let Err(error) = left.await {
            tracing::warn!(%error, "cluster: the leases were not given up; they end by themselves");
        }
    }
}

/// This node serves nothing from here on.
fn lose_all(shared: &Shared) {
    if shared.holdings.borrow().count() > 0 {
        tracing::warn!("cluster: this node has no leases any more");
    }
    shared.holdings.send_replace(Arc::new(Holdings::some([], Instant::now())));
}

fn bucket(row: &tokio_postgres::Row) -> Result<Bucket, Error> {
    Ok(Bucket::try_from(row.cell::<i64>(0)?).unwrap_or_default())
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
