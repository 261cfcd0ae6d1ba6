//! What the engine waits for besides requests: answers of the store. Chores that ask it do so until
//! it answers, so that no state of the engine has to.

use super::replay::Step;
use crate::insist::insist;
use crate::limits::Limits;
use futures_util::Stream;
use futures_util::stream::FuturesUnordered;
use model::event::Event;
use model::webhook::Endpoint;
use model::write::Write;
use model::{CollectionIx, Record, Scope, Timestamp};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use store::{Error, Follower, Retries, Settlement, Store};
use tokio::sync::watch;
use wire::Share;

/// What was brought.
pub enum Chore {
    Head(Follower, Vec<Event>),
    Reloaded {
        scope: Scope,
        collection: CollectionIx,
        id: String,
        record: Option<Record>,
    },
    /// The answer to a lane, and the bytes that were set aside for it.
    Lane {
        number: i64,
        answer: Answer,
        reserved: Option<Share<i64>>,
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
    Wished(i64),
    Replay {
        number: i64,
        step: Step,
        reserved: Option<Share<i64>>,
    },
}

/// What the store says to a lane.
pub enum Answer {
    Read(Batch),
    Retries {
        retries: Retries,
        most: usize,
    },
    Census {
        records: Vec<(String, i64)>,
        most: usize,
    },
    /// Ordered events by their sequences; `None` for those that are gone.
    Held(Vec<(i64, Option<Event>)>),
}

/// What a lane that lags behind has read.
pub struct Batch {
    /// For whom, as it was then, and from where on.
    pub endpoint: Rc<Endpoint>,
    pub after: i64,
    /// Those it wants that have no delivery yet.
    pub events: Vec<Event>,
    /// Everything up to here was looked at.
    pub seen: i64,
}

type Errand = Pin<Box<dyn Future<Output = Chore>>>;

pub struct Chores {
    store: Arc<dyn Store>,
    limits: Rc<Limits>,
    errands: FuturesUnordered<Errand>,
}

impl Chores {
    pub fn new(store: Arc<dyn Store>, limits: Rc<Limits>) -> Chores {
        Chores { store, limits, errands: FuturesUnordered::new() }
    }

    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Chore>> {
        Pin::new(&mut self.errands).poll_next(cx)
    }

    /// Something that asks by itself.
    pub fn run(&mut self, errand: impl Future<Output = Chore> + 'static) {
        self.errands.push(Box::pin(errand));
    }

    /// Asks the store until it answers.
    fn ask<T, F>(
        &mut self,
        what: &'static str,
        question: impl Fn(Arc<dyn Store>) -> F + 'static,
        chore: impl FnOnce(T) -> Chore + 'static,
    ) where
        T: 'static,
        F: Future<Output = Result<T, Error>> + 'static,
    {
        let (store, limits) = (self.store.clone(), self.limits.clone());
        self.run(async move { chore(insist(what, &limits, || question(store.clone())).await) });
    }

    /// Waits for events, after a rest if nobody is waiting for any.
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
                    Ok(events) => return Chore::Head(follower, events),
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
            move |record| Chore::Reloaded { scope, collection, id, record },
        );
    }

    pub fn asked(&mut self) {
        self.ask("manual retries", |store| async move { store.asked().await }, Chore::Asked);
    }

    pub fn waiting(&mut self, asked: Rc<[i64]>) {
        let numbers = asked.clone();
        self.ask(
            "waiting retries",
            move |store| {
                let numbers = numbers.to_vec();
                async move { store.waiting(numbers).await }
            },
            move |oldest| Chore::Waiting { asked, oldest },
        );
    }

    pub fn settle(&mut self, settlement: Settlement) {
        self.ask(
            "outcomes",
            move |store| {
                let settlement = settlement.clone();
                async move { store.settle(settlement).await }
            },
            |()| Chore::Settled,
        );
    }

    pub fn nudge(&mut self, mut nudged: watch::Receiver<u64>) {
        self.run(async move {
            if nudged.changed().await.is_err() {
                // The store was closed: nobody will ask for anything any more.
                std::future::pending::<()>().await;
            }
            Chore::Nudged(nudged)
        });
    }

    pub fn wish(&mut self, number: i64, write: Write) {
        self.ask(
            "a change of an endpoint",
            move |store| {
                let write = write.clone();
                async move { store.commit(write).await }
            },
            move |result| {
                if let Err(problem) = result {
                    tracing::warn!(?problem, "webhooks: a change of an endpoint was refused");
                }
                Chore::Wished(number)
            },
        );
    }
}
