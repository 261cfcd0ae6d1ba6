//! The part of a key's quota that this node holds, where several nodes count together. A node takes
//! parts of a window from the common budget, by demand, and admits requests from its part without
//! asking anybody. What nodes hold and do not use is at most a twentieth of the window, and nobody
//! admits more than the limit.
//!
//! While the database does not answer, the node goes on with its fair share, which is the limit
//! divided by the nodes that were alive: the limit may be exceeded by what was admitted before, and
//! no client is refused because of the fault.

use crate::limit::Quota;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use store::cluster::{BudgetRequest, Cluster, chunk};
use tokio::time::timeout;

/// A request waits so long for the common budget; then the node's share counts.
const PATIENCE: Duration = Duration::from_millis(500);

pub struct Part {
    key: String,
    state: Mutex<State>,
    /// One question at a time for each key.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    window: u64,
    granted: u32,
    used: u32,
    /// What was left for all nodes when this one last asked; `None` if it has not asked.
    left: Option<u32>,
}

/// What came of an attempt to take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It is granted; so many are left.
    Granted(u32),
    Refused,
    /// The node has nothing more in its hands, and the others may.
    Ask,
}

impl Part {
    pub fn new(key: &str) -> Part {
        Part { key: key.to_owned(), state: Mutex::default(), asking: Default::default() }
    }

    /// Takes a request from what the node holds.
    pub fn take(&self, quota: &Quota) -> Taken {
        let mut state = self.state.lock();
        state.enter(quota);
        if state.used < state.granted {
            state.used += 1;
            return Taken::Granted(state.remaining(quota));
        }
        match state.left {
            Some(0) => Taken::Refused,
            _ => Taken::Ask,
        }
    }

    /// Requests that are left, as far as this node knows.
    pub fn remaining(&self, quota: &Quota) -> u32 {
        let mut state = self.state.lock();
        state.enter(quota);
        state.remaining(quota)
    }

    /// Gives back one request that was taken in this window.
    pub fn give_back(&self, window: u64) {
        let mut state = self.state.lock();
        if state.window == window {
            state.used = state.used.saturating_sub(1);
        }
    }

    /// Takes more from the common budget.
    pub async fn refill(&self, cluster: &Arc<dyn Cluster>, quota: &Quota) {
        let _turn = self.asking.lock().await;
        let (taken, nodes) = {
            let mut state = self.state.lock();
            state.enter(quota);
            if state.window != quota.window() || state.used < state.granted || state.is_over() {
                // Another request has asked in the meantime.
                return;
            }
            (state.granted, cluster.live_nodes().max(1))
        };
        let request = BudgetRequest {
            key: self.key.clone(),
            window: quota.window(),
            length: Duration::from_secs(quota.window_seconds),
            limit: quota.limit,
            wanted: chunk(quota.limit, taken, nodes),
        };
        let answer = timeout(PATIENCE, cluster.take_budget(request)).await;
        let mut state = self.state.lock();
        if state.window != quota.window() {
            return;
        }
        match answer {
            Ok(Ok(budgeted)) => {
                state.granted = state.granted.saturating_add(budgeted.granted);
                // Nothing was granted: nothing is left, whatever the answer says.
                let is_over = budgeted.granted == 0;
                state.left = Some(if is_over { 0 } else { budgeted.left });
            }
            Ok(Err(_)) | Err(_) => {
                let share = quota.limit / u32::try_from(nodes).unwrap_or(u32::MAX);
                if state.granted >= share.max(1) {
                    state.left = Some(0);
                }
                state.granted = state.granted.max(share.max(1));
            }
        }
    }
}

impl State {
    /// A new window begins with nothing. A request that began in an earlier one counts in the
    /// newest.
    fn enter(&mut self, quota: &Quota) {
        if quota.window() > self.window {
            *self = State { window: quota.window(), ..State::default() };
        }
    }

    fn is_over(&self) -> bool {
        self.left == Some(0)
    }

    fn remaining(&self, quota: &Quota) -> u32 {
        match self.left {
            None if self.granted == 0 => quota.limit,
            left => (left.unwrap_or(0) + self.granted).saturating_sub(self.used).min(quota.limit),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::limit::{Limiter, Moment, Quota};
    use model::Timestamp;
    use model::schema::RateLimit;
    use parking_lot::Mutex;
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::time::Duration;
    use store::cluster::{BudgetRequest, Budgeted, Cluster, Holdings};
    use store::{BoxFuture, Error};
    use tokio::sync::watch;

    /// A database that several limiters share.
    #[derive(Default)]
    struct Shared {
        taken: Mutex<HashMap<(String, u64), u32>>,
        questions: Mutex<usize>,
        is_away: Mutex<bool>,
        nodes: usize,
    }

    impl Cluster for Shared {
        fn is_shared(&self) -> bool {
            true
        }

        fn holdings(&self) -> watch::Receiver<Arc<Holdings>> {
            watch::Sender::new(Arc::new(Holdings::all())).subscribe()
        }

        fn live_nodes(&self) -> usize {
            self.nodes
        }

        fn take_budget(&self, request: BudgetRequest) -> BoxFuture<'_, Result<Budgeted, Error>> {
            Box::pin(async move {
                *self.questions.lock() += 1;
                if *self.is_away.lock() {
                    return Err(Error::Busy);
                }
                let mut all = self.taken.lock();
                let taken = all.entry((request.key, request.window)).or_default();
                let granted = request.wanted.min(request.limit.saturating_sub(*taken));
                *taken += granted;
                Ok(Budgeted { granted, left: request.limit - *taken })
            })
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment {
            now: Timestamp(i64::try_from(seconds).unwrap() * 1000),
            uptime: Duration::from_secs(seconds),
        }
    }

    fn nodes(count: usize, limit: u32) -> (Arc<Shared>, Vec<Limiter>) {
        let shared = Arc::new(Shared { nodes: count, ..Shared::default() });
        let limit = RateLimit { requests: limit, window: Duration::from_secs(60) };
        let new = |_| Limiter::new(Some(limit), at(0), shared.clone());
        let limiters = (0..count).map(new).collect();
        (shared, limiters)
    }

    async fn take(limiter: &Limiter, seconds: u64) -> (Quota, bool) {
        let bucket = limiter.bucket_of_key("key");
        limiter.take_of_key(&bucket, None, at(seconds)).await.unwrap()
    }

    /// Sends requests to the nodes by turns of these lengths; how many were admitted.
    async fn admitted(limiters: &[Limiter], turns: &[usize], requests: usize) -> usize {
        let (mut granted, mut sent) = (0, 0);
        while sent < requests {
            for (limiter, turn) in limiters.iter().zip(turns.iter().cycle()) {
                for _ in 0..*turn {
                    granted += usize::from(take(limiter, 61).await.1);
                    sent += 1;
                }
            }
        }
        granted
    }

    #[tokio::test]
    async fn all_nodes_together_admit_the_limit_within_a_tenth_and_ask_seldom() {
        for (count, limit, turns) in [
            (1, 1000, &[1][..]),
            (2, 1000, &[1, 1]),
            (2, 1000, &[1, 20]),
            (2, 6000, &[3, 0]),
            (3, 1000, &[7, 1, 90]),
            (3, 30, &[1, 1, 1]),
            (2, 10, &[2, 1]),
            (2, 1, &[1, 1]),
        ] {
            let (shared, limiters) = nodes(count, limit);
            let granted = admitted(&limiters, turns, 3 * limit as usize).await;
            let limit = limit as usize;
            assert!(granted <= limit, "{granted} of {limit} at {count} nodes");
            assert!(granted * 10 >= limit * 9, "{granted} of {limit} at {count} nodes");
            let questions = *shared.questions.lock();
            assert!(questions <= 25 * count + 64, "{questions} for {limit} at {count} nodes");
        }
    }

    #[tokio::test]
    async fn one_node_alone_counts_exactly_and_the_next_window_begins_anew() {
        let (_, limiters) = nodes(1, 100);
        for left in (0..100).rev() {
            let (quota, granted) = take(&limiters[0], 61).await;
            assert_eq!((quota.remaining, granted), (left, true));
        }
        let (quota, granted) = take(&limiters[0], 119).await;
        assert_eq!((quota.remaining, granted, quota.seconds_left()), (0, false, 1));
        // A request that is given back can be taken again.
        let bucket = limiters[0].bucket_of_key("key");
        limiters[0].give_back(&bucket, at(119));
        assert_eq!(limiters[0].peek(&bucket, None, at(119)).unwrap().remaining, 1);
        assert!(take(&limiters[0], 119).await.1 && !take(&limiters[0], 119).await.1);
        assert_eq!(take(&limiters[0], 120).await.0.remaining, 99);
    }

    #[tokio::test]
    async fn without_a_database_each_node_goes_on_with_its_share() {
        let (shared, limiters) = nodes(4, 100);
        *shared.is_away.lock() = true;
        for limiter in &limiters {
            let mut granted = 0;
            for _ in 0..100 {
                granted += usize::from(take(limiter, 61).await.1);
            }
            assert_eq!(granted, 25);
        }
        assert!(*shared.questions.lock() <= 8, "a refusal needs no question");
        *shared.is_away.lock() = false;
        assert_eq!(take(&limiters[0], 120).await.0.remaining, 99, "the next window is common");
    }
}
