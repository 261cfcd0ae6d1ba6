//! Everything of the cluster that is no lease, on a second connection: presence, messages, budgets
//! and holds. Questions that wait together are answered by one statement. Lists of users have other
//! connections (`listing`): nothing here may take long.

use super::session::{Session, within};
use super::tables::{CHANNEL, LEASES};
use super::{Shared, holds, presence, relay};
use crate::Error;
use crate::cluster::{BudgetRequest, Budgeted};
use crate::postgres::connect::{Address, Cells as _};
use crate::postgres::param::{decoded, params};
use model::Scope;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};

/// How often messages of other nodes are looked for without a notification.
const POLL: Duration = Duration::from_millis(250);
/// Old rows are removed this often.
const CLEAN: Duration = Duration::from_secs(10);
/// How much longer than a heartbeat it may take until another node is known.
const UNKNOWN: Duration = Duration::from_secs(1);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(500);
/// Questions answered together.
const BATCH: usize = 256;
/// Work is collected for this long before it is written, for more to share the commit.
const COLLECT: Duration = Duration::from_millis(3);

/// A list of users waits so long for what this node knows, if that changes all the time.
const WRITTEN: Duration = Duration::from_millis(500);

/// The answer to a question.
pub type Answer<T> = oneshot::Sender<Result<T, Error>>;

pub enum Question {
    Budget(BudgetRequest, Answer<Budgeted>),
    Hold(String, holds::Answer),
    /// Waits until the database knows the users of a scope at this node, or a little.
    Written(Scope, Answer<()>),
}

/// How many requests were asked for.
type Asked = (u32, Answer<Budgeted>);

pub struct Side {
    shared: Arc<Shared>,
    session: Session,
    /// Number of the last message that was read.
    read: i64,
    cleaned: Instant,
    reaped: u64,
    unwritten: Vec<(Scope, Instant, Answer<()>)>,
}

/// Without a database each question fails at once: those who ask go on by themselves.
async fn refuse(asked: &mut mpsc::Receiver<Question>) {
    let refuse = async {
        while let Some(question) = asked.recv().await {
            fail(question);
        }
    };
    let _ = tokio::time::timeout(PAUSE, refuse).await;
}

fn fail(question: Question) {
    let error = || Error::Failed("the database is away".into());
    match question {
        Question::Budget(_, answer) => drop(answer.send(Err(error()))),
        Question::Hold(_, answer) => drop(answer.send(Err(error()))),
        Question::Written(_, answer) => drop(answer.send(Err(error()))),
    }
}

impl Side {
    /// `read`: the last message that an earlier connection has read.
    pub async fn open(
        shared: Arc<Shared>,
        address: &Address,
        read: Option<i64>,
    ) -> Result<Side, Error> {
        let session = Session::open(address).await?;
        // Through a pooler nothing would arrive: then the poll is enough.
        if !address.is_pooled() {
            session.client.batch(&format!("LISTEN {CHANNEL}")).await?;
        }
        let read = relay::begin(&session, read).await?;
        shared.presence.resync();
        let unwritten = Vec::new();
        Ok(Side { shared, session, read, cleaned: Instant::now(), reaped: 0, unwritten })
    }

    /// Until the process ends or the node has stopped.
    pub async fn run(mut self, address: Address, mut asked: mpsc::Receiver<Question>) {
        loop {
            if let Err(error) = self.serve(&mut asked).await {
                tracing::warn!(%error, "cluster: presence, messages and limits are delayed");
            }
            self.unwritten.clear();
            let (shared, read) = (self.shared.clone(), self.read);
            self = loop {
                refuse(&mut asked).await;
                let opening = Side::open(shared.clone(), &address, Some(read));
                match within(shared.settings.patience, opening).await {
                    Ok(side) => break side,
                    Err(error) => {
                        tracing::warn!(%error, "cluster: no connection for presence and limits");
                    }
                }
            };
        }
    }

    /// Until something fails.
    async fn serve(&mut self, asked: &mut mpsc::Receiver<Question>) -> Result<(), Error> {
        let patience = self.shared.settings.patience;
        loop {
            let mut questions = Vec::new();
            let shared = self.shared.clone();
            tokio::select! {
                count = asked.recv_many(&mut questions, BATCH) => {
                    if count == 0 {
                        std::future::pending::<()>().await;
                    }
                }
                () = shared.news.notified() => tokio::time::sleep(COLLECT).await,
                notice = self.session.notices.recv() => match notice {
                    Some(payload) if payload == LEASES => shared.look.notify_one(),
                    Some(_) => {}
                    None => return Err(Error::Failed("the connection was lost".into())),
                },
                () = tokio::time::sleep(POLL) => {}
            }
            within(patience, self.work(questions)).await?;
        }
    }

    async fn work(&mut self, questions: Vec<Question>) -> Result<(), Error> {
        let (mut budgets, mut names) = (Vec::new(), Vec::new());
        for question in questions {
            match question {
                // Nobody would note what the database gives.
                Question::Budget(_, answer) if answer.is_closed() => {}
                Question::Budget(request, answer) => budgets.push((request, answer)),
                Question::Hold(name, answer) => names.push((name, answer)),
                Question::Written(scope, answer) => {
                    self.unwritten.push((scope, Instant::now(), answer));
                }
            }
        }
        if !budgets.is_empty() {
            self.budgets(budgets).await?;
        }
        if !names.is_empty() {
            holds::take(&self.shared, &self.session, names).await?;
        }
        holds::release(&self.shared, &self.session).await?;
        let reaped = self.shared.reaped.load(Relaxed);
        let mut left = false;
        if reaped != self.reaped {
            left = presence::reap(&self.shared, &self.session).await?;
            if !left {
                self.reaped = reaped;
            }
        }
        if self.shared.presence.has_news() {
            presence::flush(&self.shared, &self.session).await?;
        }
        for (scope, asked, answer) in std::mem::take(&mut self.unwritten) {
            match self.shared.presence.is_writing(scope) && asked.elapsed() < WRITTEN {
                true => self.unwritten.push((scope, asked, answer)),
                false => drop(answer.send(Ok(()))),
            }
        }
        left |= self.shared.presence.has_news();
        let node = self.shared.node.load(Relaxed);
        if self.shared.is_alone() {
            self.shared.outbox.forget(self.shared.settings.heartbeat + UNKNOWN);
        } else {
            if !self.shared.outbox.is_empty() {
                relay::send(&self.session, &self.shared.outbox, node).await?;
                left |= !self.shared.outbox.is_empty();
            }
            let messages = relay::read(&self.session, &mut self.read, node).await?;
            if !messages.is_empty() {
                self.shared.inbox.push(messages);
            }
        }
        if left {
            // After the questions that have come by then.
            self.shared.news.notify_one();
        }
        if self.cleaned.elapsed() > CLEAN {
            self.cleaned = Instant::now();
            relay::clean(&self.session).await?;
            holds::clean(&self.session).await?;
            let old = "DELETE FROM restive_budgets WHERE ends < clock_timestamp()";
            self.session.client.execute(old, params![]).await?;
        }
        Ok(())
    }

    /// Takes from the budgets of several keys in one statement.
    async fn budgets(&self, asked: Vec<(BudgetRequest, Answer<Budgeted>)>) -> Result<(), Error> {
        let mut answers: HashMap<(String, i64), Vec<Asked>> = HashMap::new();
        let (mut names, mut windows, mut wanted) = (Vec::new(), Vec::new(), Vec::new());
        let (mut limits, mut lengths) = (Vec::new(), Vec::new());
        for (request, answer) in asked {
            let window = i64::try_from(request.window).unwrap_or(i64::MAX);
            let key = (request.key.clone(), window);
            let known = answers.entry(key).or_default();
            // A second request for the same window waits for the next turn of its owner.
            if known.is_empty() {
                names.push(request.key);
                windows.push(window);
                wanted.push(i64::from(request.wanted));
                limits.push(i64::from(request.limit));
                lengths.push(i64::try_from(request.length.as_millis()).unwrap_or(i64::MAX));
            }
            known.push((request.wanted, answer));
        }
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let values = params![names, windows, wanted, limits, lengths];
        for row in self.session.client.query(BUDGETS, values).await? {
            let count = |place: usize| {
                Ok::<u32, Error>(u32::try_from(row.cell::<i64>(place)?).unwrap_or(0))
            };
            let (mut granted, taken) = (count(2)?, count(3)?);
            let key = (decoded(row.cell(0)?), row.cell(1)?);
            for (wanted, answer) in answers.remove(&key).unwrap_or_default() {
                let part = granted.min(wanted);
                granted -= part;
                let _ = answer.send(Ok(Budgeted { granted: part, taken }));
            }
        }
        Ok(())
    }
}

/// Keys in one order, so that two nodes do not wait for each other.
const BUDGETS: &str = "INSERT INTO restive_budgets AS b (name, win, lim, taken, granted, ends) \
    SELECT k.name, k.win, k.lim, least(k.wanted, k.lim), least(k.wanted, k.lim), \
    clock_timestamp() + 2 * k.length * interval '1 millisecond' \
    FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) \
    k (name, win, wanted, lim, length) ORDER BY k.name, k.win \
    ON CONFLICT (name, win) DO UPDATE SET lim = excluded.lim, \
    granted = greatest(0, least(excluded.taken, excluded.lim - b.taken)), \
    taken = b.taken + greatest(0, least(excluded.taken, excluded.lim - b.taken)) \
    RETURNING name, win, granted, taken";
