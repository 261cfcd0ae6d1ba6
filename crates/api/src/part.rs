//! The part of a key's quota that this node holds, where several nodes count together. A node takes
//! parts of a window from the common budget, by demand, and admits requests from its part without
//! asking anybody. What nodes hold and do not use is at most a twentieth of the window. Keys that
//! share a quota may have different limits: each counts the requests of all of them.
//!
//! While the database does not answer, the node goes on with its fair share, which is the limit
//! divided by the nodes that were alive, and asks again every second. What it admitted beyond its
//! part is taken from the budget afterwards.

use crate::limit::Quota;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use store::cluster::{BudgetRequest, Budgeted, Cluster, chunk};
use tokio::time::timeout;

/// A request waits so long for the common budget; then the node's share counts.
const PATIENCE: Duration = Duration::from_millis(500);
/// And for so many seconds after that, without a question.
const AWAY_SECONDS: u64 = 1;
/// No request is older than this when its quota is looked at.
const LATE_SECONDS: u64 = 60;

pub struct Part {
    key: String,
    state: Arc<Mutex<State>>,
    /// One question at a time for each key.
    asking: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    window: u64,
    /// What this node has taken from the budget.
    granted: u32,
    used: u32,
    /// What the others had taken when this node last asked.
    others: u32,
    failure: Option<Failure>,
}

/// The last question got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    /// Unix time.
    at: u64,
    /// How many nodes shared the budget.
    nodes: u32,
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
        Part { key: key.to_owned(), state: Arc::default(), asking: Arc::default() }
    }

    /// Takes a request from what the node holds.
    pub fn take(&self, quota: &Quota) -> Taken {
        let mut state = self.state.lock();
        state.enter(quota);
        let taken = state.next(quota);
        state.used += u32::from(matches!(taken, Taken::Granted(_)));
        taken
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

    /// Takes more from the common budget. A question that was sent is never given up: what it takes
    /// late, or for a client that has gone, counts as well.
    pub async fn refill(&self, cluster: &Arc<dyn Cluster>, quota: &Quota) {
        let nodes = cluster.live_nodes().max(1);
        if timeout(PATIENCE, self.ask(cluster, quota, nodes)).await.is_err() {
            let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
            self.state.lock().failure = Some(Failure { at: quota.now, nodes });
        }
    }

    async fn ask(&self, cluster: &Arc<dyn Cluster>, quota: &Quota, nodes: usize) {
        let turn = self.asking.clone().lock_owned().await;
        let request = {
            let mut state = self.state.lock();
            state.enter(quota);
            if state.next(quota) != Taken::Ask {
                // Another request has asked in the meantime.
                return;
            }
            let more = chunk(quota.limit, state.granted, nodes);
            BudgetRequest {
                key: self.key.clone(),
                window: state.window,
                length: Duration::from_secs(quota.window_seconds),
                limit: quota.limit,
                // With what was admitted while nobody answered.
                wanted: more.saturating_add(state.used.saturating_sub(state.granted)),
            }
        };
        let (state, cluster, now) = (self.state.clone(), cluster.clone(), quota.now);
        let asked = tokio::spawn(async move {
            let _turn = turn;
            let window = request.window;
            let answer = cluster.take_budget(request).await;
            let mut state = state.lock();
            if state.window == window {
                state.note(answer.ok(), now, nodes);
            }
        });
        // Only a panic ends it otherwise.
        let _ = asked.await;
    }
}

impl State {
    /// A new window begins with nothing. A request that began in an earlier one counts in the
    /// newest; a window that is far back is that of a clock that was set.
    fn enter(&mut self, quota: &Quota) {
        let window = quota.window();
        let back_seconds = self.window.saturating_sub(window).saturating_mul(quota.window_seconds);
        if window > self.window || back_seconds > LATE_SECONDS.max(quota.window_seconds) {
            *self = State { window, ..State::default() };
        }
    }

    /// What came of a question.
    fn note(&mut self, answer: Option<Budgeted>, now: u64, nodes: usize) {
        match answer {
            Some(Budgeted { granted, taken }) => {
                self.granted = self.granted.saturating_add(granted);
                self.others = taken.saturating_sub(self.granted);
                self.failure = None;
            }
            None => {
                let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
                self.failure = Some(Failure { at: now, nodes });
            }
        }
    }

    /// What comes of the next request.
    fn next(&self, quota: &Quota) -> Taken {
        if self.remaining(quota) == 0 {
            return Taken::Refused;
        }
        let away = self.failure.filter(|one| quota.now.abs_diff(one.at) <= AWAY_SECONDS);
        let share = away.map(|failure| (quota.limit / failure.nodes).max(1));
        if self.used < self.granted.max(share.unwrap_or(0)) {
            return Taken::Granted(self.remaining(quota) - 1);
        }
        match share {
            Some(_) => Taken::Refused,
            None => Taken::Ask,
        }
    }

    fn remaining(&self, quota: &Quota) -> u32 {
        quota.limit.saturating_sub(self.others.saturating_add(self.used))
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
        delay: Mutex<Duration>,
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
                let delay = *self.delay.lock();
                tokio::time::sleep(delay).await; // waits for: a slow database
                if *self.is_away.lock() {
                    return Err(Error::Busy);
                }
                let mut all = self.taken.lock();
                let taken = all.entry((request.key, request.window)).or_default();
                let granted = request.wanted.min(request.limit.saturating_sub(*taken));
                *taken += granted;
                Ok(Budgeted { granted, taken: *taken })
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
        take_with(limiter, None, seconds).await
    }

    /// With a key that has a limit of its own.
    async fn take_with(limiter: &Limiter, own: Option<u32>, seconds: u64) -> (Quota, bool) {
        let bucket = limiter.bucket_of_key("key");
        limiter.take_of_key(&bucket, own, at(seconds)).await.unwrap()
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

    #[tokio::test]
    async fn after_a_fault_the_rest_of_the_window_is_common_again() {
        let (shared, limiters) = nodes(2, 100);
        for _ in 0..60 {
            assert!(take(&limiters[0], 61).await.1);
        }
        *shared.is_away.lock() = true;
        let mut granted = 60;
        for _ in 0..20 {
            granted += usize::from(take(&limiters[0], 62).await.1);
        }
        assert!(granted < 80, "more than its share");
        *shared.is_away.lock() = false;
        for (limiter, _) in limiters.iter().cycle().zip(0..100) {
            granted += usize::from(take(limiter, 64).await.1);
        }
        assert!((95..=100).contains(&granted), "{granted} of 100");

        // What was admitted without an answer counts afterwards.
        *shared.is_away.lock() = true;
        let mut granted = 0;
        for _ in 0..100 {
            granted += usize::from(take(&limiters[0], 121).await.1);
        }
        assert_eq!(granted, 50);
        *shared.is_away.lock() = false;
        for (limiter, _) in limiters.iter().cycle().zip(0..200) {
            granted += usize::from(take(limiter, 124).await.1);
        }
        assert!((95..=100).contains(&granted), "{granted} of 100");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_slow_database_grants_late_is_not_lost() {
        let (shared, limiters) = nodes(2, 1000);
        *shared.delay.lock() = Duration::from_secs(2);
        let mut granted = 0;
        for second in 60..90 {
            for _ in 0..5 {
                granted += usize::from(take(&limiters[0], second).await.1);
            }
            tokio::time::sleep(Duration::from_secs(1)).await; // waits for: the next second
        }
        assert_eq!(granted, 150, "its share is 500");
        *shared.delay.lock() = Duration::ZERO;
        tokio::time::sleep(Duration::from_secs(5)).await; // waits for: the last question
        for (limiter, _) in limiters.iter().cycle().zip(0..2000) {
            granted += usize::from(take(limiter, 100).await.1);
        }
        assert!((900..=1000).contains(&granted), "{granted} of 1000");
    }

    #[tokio::test]
    async fn keys_with_different_limits_share_a_quota() {
        for count in [1, 2] {
            let (_, limiters) = nodes(count, 1000);
            for number in 0..20 {
                let (_, granted) = take_with(&limiters[0], Some(10), 61).await;
                assert_eq!(granted, number < 10, "{number}");
            }
            // The lower limit of one key is not that of another.
            for limiter in &limiters {
                assert!(take(limiter, 61).await.1);
            }
            // And it counts what the other has used.
            for limiter in &limiters {
                assert!(!take_with(limiter, Some(10), 61).await.1);
            }
            let mut granted = 10 + count;
            for _ in 0..2000 {
                granted += usize::from(take(&limiters[0], 61).await.1);
            }
            assert!((900..=1000).contains(&granted), "{granted} of 1000");
            // A limit that is raised holds at once.
            assert!(take_with(&limiters[0], Some(2000), 61).await.1);
        }
    }

    #[tokio::test]
    async fn a_request_that_crosses_the_border_of_a_window_is_answered() {
        let (shared, limiters) = nodes(1, 2);
        *shared.delay.lock() = Duration::from_millis(50);
        let late = take(&limiters[0], 61);
        // The window ends while it asks, and the next one is used up by others.
        let others = async {
            tokio::time::sleep(Duration::from_millis(10)).await; // waits for: the question
            [take(&limiters[0], 121).await.1, take(&limiters[0], 121).await.1]
        };
        let all = async { tokio::join!(late, others) };
        let (late, others) = tokio::time::timeout(Duration::from_secs(10), all).await.unwrap();
        // Two requests in all: it counts in the newest window.
        assert_eq!(usize::from(late.1) + others.iter().filter(|one| **one).count(), 2);
    }

    #[tokio::test]
    async fn a_node_that_was_suspended_has_the_windows_of_the_others() {
        let (shared, limiters) = nodes(2, 100);
        // Its own clock stood still for five minutes.
        let late = Moment { uptime: Duration::from_secs(61), ..at(361) };
        let bucket = limiters[0].bucket_of_key("key");
        limiters[0].take_of_key(&bucket, None, late).await.unwrap();
        take(&limiters[1], 361).await;
        assert_eq!(shared.taken.lock().len(), 1, "one window");
    }
}
