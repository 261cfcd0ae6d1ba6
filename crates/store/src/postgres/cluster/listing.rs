//! Lists of users who are online, apart from budgets and holds: a list of many users takes long.
//! The lists have connections of their own, one at a time for an account. Questions of a scope that
//! wait together are answered by one list.

use super::side::{Answer, Question};
use super::{Shared, presence};
use crate::Error;
use crate::cluster::UsersAndTotal;
use crate::fair::Tenant;
use crate::postgres::connect::{Address, Client};
use crate::postgres::readers::Pool;
use model::Scope;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

/// Lists that run at the same time, with a connection each. One account has at most half of them.
const RUNNING: usize = 2;
/// Questions of one scope that wait together. Beyond it they fail at once.
const TOGETHER: usize = 1024;

pub struct Asked {
    pub scope: Scope,
    pub max: usize,
    pub answer: Answer<UsersAndTotal>,
}

pub struct Listing {
    shared: Arc<Shared>,
    pool: Arc<Pool>,
    questions: mpsc::Sender<Question>,
    /// Scopes with a list that runs, each with the questions that came after it began.
    scopes: BTreeMap<Scope, Vec<Asked>>,
    running: JoinSet<Scope>,
}

impl Listing {
    /// Uses the runtime of the caller.
    pub fn new(
        shared: Arc<Shared>,
        address: &Address,
        questions: mpsc::Sender<Question>,
    ) -> Listing {
        let handle = tokio::runtime::Handle::current();
        let pool = Arc::new(Pool::of_accounts(address.clone(), handle, RUNNING));
        Listing { shared, pool, questions, scopes: BTreeMap::new(), running: JoinSet::new() }
    }

    /// Until the node has stopped.
    pub async fn run(mut self, mut asked: mpsc::Receiver<Asked>) {
        loop {
            tokio::select! {
                Some(one) = asked.recv() => self.ask(one),
                Some(ended) = self.running.join_next() => self.ended(ended.ok()),
                else => return,
            }
        }
    }

    fn ask(&mut self, asked: Asked) {
        match self.scopes.get_mut(&asked.scope) {
            Some(waiting) if waiting.len() < TOGETHER => waiting.push(asked),
            Some(_) => drop(asked.answer.send(Err(Error::Busy))),
            None => {
                self.scopes.insert(asked.scope, Vec::new());
                self.begin(asked.scope, vec![asked]);
            }
        }
    }

    fn begin(&mut self, scope: Scope, asked: Vec<Asked>) {
        let (shared, pool, questions) =
            (self.shared.clone(), self.pool.clone(), self.questions.clone());
        self.running.spawn(async move {
            let max = asked.iter().map(|one| one.max).max().unwrap_or(0);
            let listed = list(&shared, &pool, &questions, scope, max).await;
            for one in asked {
                let answer = match &listed {
                    Ok((users, total)) => {
                        Ok((users.iter().take(one.max).cloned().collect(), *total))
                    }
                    Err(error) => Err(Error::Unavailable(error.to_string().into())),
                };
                let _ = one.answer.send(answer);
            }
            scope
        });
    }

    fn ended(&mut self, scope: Option<Scope>) {
        let Some(scope) = scope else {
            // A panic. Those that wait are not answered, and ask again.
            self.scopes.clear();
            return;
        };
        let Some(mut waiting) = self.scopes.remove(&scope) else { return };
        waiting.retain(|one| !one.answer.is_closed());
        if !waiting.is_empty() {
            self.scopes.insert(scope, Vec::new());
            self.begin(scope, waiting);
        }
    }
}

/// What this node knows of the scope is written first.
async fn list(
    shared: &Shared,
    pool: &Pool,
    questions: &mpsc::Sender<Question>,
    scope: Scope,
    max: usize,
) -> Result<UsersAndTotal, Error> {
    if shared.presence.is_writing(scope) {
        let (answer, written) = oneshot::channel();
        let question = Question::Written(scope, answer);
        questions.try_send(question).map_err(|_| Error::Busy)?;
        let gone = |_| Err(Error::Unavailable("the connection was lost".into()));
        written.await.unwrap_or_else(gone)?;
    }
    let read = move |client: Arc<Client>| async move { presence::list(&client, scope, max).await };
    pool.long(Tenant::from(scope), read).await
}
