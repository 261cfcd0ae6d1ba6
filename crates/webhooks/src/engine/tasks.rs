//! Calls of the store that the engine waits for. Each task repeats its call until the store
//! answers, so that no other part of the engine has to handle store errors.

use super::search::Found;
use crate::limits::Limits;
use crate::load::LoadedEndpoints;
use crate::replay::Step;
use crate::store_retry::until_answered;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use model::event::Event;
use model::webhook::Endpoint;
use model::write::{Committed, Write};
use model::{CollectionIx, Problem, Record, Scope, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::{Error, Follower, Retries, Settlement, Store};
use tokio::sync::watch;
use wire::Share;

/// The result of a write, unless another node serves the account now.
type Fenced = Option<Result<Committed, Problem>>;

/// Commits a write of the engine.
pub async fn fenced(store: &dyn Store, write: Write) -> Result<Fenced, Error> {
    match store.commit(write).await {
        Ok(result) => Ok(Some(result)),
        Err(Error::LeaseLost) => {
            tracing::warn!("webhooks: a write came after its lease had ended");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// The result of a finished task.
pub enum TaskResult {
    Head(Follower, Vec<Event>),
    Reloaded {
        scope: Scope,
        collection: CollectionIx,
        id: String,
        record: Option<Record>,
    },
    /// The answer to a queue, and the bytes that were set aside for it.
    Queue {
        number: i64,
        opened: u64,
        answer: Answer,
        reserved: Option<Share<i64>>,
    },
    /// How far a page of the log brought the endpoints of a scope that search.
    Searched {
        scope: Scope,
        found: Vec<Found>,
        reserved: Share<i64>,
    },
    Settled,
    Nudged(watch::Receiver<u64>),
    /// Endpoints with manual retries.
    Asked(Vec<i64>),
    /// Of those asked for: endpoint and the time of its oldest event with a retry.
    Waiting {
        asked: Rc<[i64]>,
        oldest: Vec<(i64, Timestamp)>,
    },
    RecordChanged {
        number: i64,
        opened: u64,
    },
    /// What this node holds has changed.
    Holdings,
    /// The endpoints of buckets that have come.
    Loaded(Box<LoadedEndpoints>),
    Replay {
        number: i64,
        opened: u64,
        step: Step,
        reserved: Option<Share<i64>>,
    },
}

/// What the store returned to a queue.
pub enum Answer {
    Read(Batch),
    Retries {
        retries: Retries,
        most: usize,
    },
    RetryIndex {
        records: Vec<(String, i64)>,
        most: usize,
    },
    /// Ordered events by their sequences; `None` for those that are gone.
    Held(Vec<(i64, Option<Event>)>),
}

/// What a queue that lags behind has read.
pub struct Batch {
    /// For whom, as it was then, and from where on.
    pub endpoint: Rc<Endpoint>,
    pub after: i64,
    /// Those it wants that have no delivery yet.
    pub events: Vec<Event>,
    /// Everything up to here was looked at.
    pub seen: i64,
}

type Running = Pin<Box<dyn Future<Output = TaskResult>>>;

pub struct Tasks {
    store: Arc<dyn Store>,
    limits: Rc<Limits>,
    running: FuturesUnordered<Running>,
}

impl Tasks {
    pub fn new(store: Arc<dyn Store>, limits: Rc<Limits>) -> Tasks {
        Tasks { store, limits, running: FuturesUnordered::new() }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<TaskResult>> {
        Pin::new(&mut self.running).poll_next(cx)
    }

    /// Something that asks by itself.
    pub fn run(&mut self, task: impl Future<Output = TaskResult> + 'static) {
        self.running.push(Box::pin(task));
    }

    /// Asks the store until it answers.
    fn ask<T, F>(
        &mut self,
        what: &'static str,
        question: impl Fn(Arc<dyn Store>) -> F + 'static,
        result: impl FnOnce(T) -> TaskResult + 'static,
    ) where
        T: 'static,
        F: Future<Output = Result<T, Error>> + 'static,
    {
        let (store, limits) = (self.store.clone(), self.limits.clone());
        self.run(
            async move { result(until_answered(what, &limits, || question(store.clone())).await) },
        );
    }

    /// Waits for events, after a pause if no endpoint waits for any.
    pub fn follow(
        &mut self,
        mut follower: Follower,
        most: usize,
        bytes: usize,
        rest: Option<Duration>,
    ) {
        let limits = self.limits.clone();
        self.run(async move {
            if let Some(rest) = rest {
                // waits for: more events, so that one look is enough for many commits
                tokio::time::sleep(rest).await;
            }
            let mut wait = limits.store_wait;
            loop {
                match follower.next_batch_within(most, bytes).await {
                    Ok(events) => return TaskResult::Head(follower, events),
                    Err(error) if wait == limits.store_wait => {
                        tracing::warn!(%error, "webhooks: the log cannot be read; trying again");
                    }
                    Err(_) => {}
                }
                // waits for: the store to recover
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(limits.store_wait_longest);
            }
        });
    }

    pub fn reload(&mut self, scope: Scope, collection: CollectionIx, id: String) {
        let asked = id.clone();
        self.ask(
            "a record",
            move |store| {
                let id = asked.clone();
                async move { store.record(scope, collection, None, &id).await }
            },
            move |record| TaskResult::Reloaded { scope, collection, id, record },
        );
    }

    pub fn asked(&mut self) {
        self.ask(
            "manual retries",
            |store| async move { store.requested_retries().await },
            TaskResult::Asked,
        );
    }

    pub fn waiting(&mut self, asked: Rc<[i64]>) {
        let numbers = asked.clone();
        self.ask(
            "waiting retries",
            move |store| {
                let numbers = numbers.to_vec();
                async move { store.waiting(numbers).await }
            },
            move |oldest| TaskResult::Waiting { asked, oldest },
        );
    }

    pub fn settle(&mut self, settlement: Settlement) {
        self.ask(
            "outcomes",
            move |store| {
                let settlement = settlement.clone();
                async move { store.settle(settlement).await }
            },
            |()| TaskResult::Settled,
        );
    }

    pub fn nudge(&mut self, mut nudged: watch::Receiver<u64>) {
        self.run(async move {
            if nudged.changed().await.is_err() {
                // The store was closed: no client can request a retry any more.
                std::future::pending::<()>().await;
            }
            TaskResult::Nudged(nudged)
        });
    }

    pub fn change_record(&mut self, number: i64, opened: u64, write: Write) {
        self.ask(
            "a change of an endpoint",
            move |store| {
                let write = write.clone();
                async move { fenced(&*store, write).await }
            },
            move |result| {
                if let Some(Err(problem)) = result {
                    tracing::warn!(?problem, "webhooks: a change of an endpoint was refused");
                }
                TaskResult::RecordChanged { number, opened }
            },
        );
    }
}
