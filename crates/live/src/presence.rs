//! Who is online: users by account and mode, however many connections each has. That a user
//! comes or goes is announced once; one who reconnects within the grace time was never away. These
//! are the users of this node; where there are others, `store::cluster` puts them together.

use crate::entry::Ephemeral;
use crate::kind::Kind;
use model::record::push_text;
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use store::cluster::{PresentHere, PresentUser};

/// Users shown in one answer; above, they are only counted.
pub const MAX_SHOWN: usize = 1000;

/// Users announced as away while others wait to come or go.
const MAX_GONE: usize = 256;

/// What a restricted key must be allowed to read to receive it.
pub const SCOPE: &str = "presence";

#[derive(Debug, Default)]
pub struct Presence {
    state: Mutex<State>,
    count: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    /// By name: the first ones are shown without a look at the others.
    users: HashMap<Scope, BTreeMap<String, User>>,
    /// Users whose last connection ended, by the tick at which they are away.
    leaving: VecDeque<(u64, Scope, String)>,
}

#[derive(Clone, Copy, Debug)]
struct User {
    connections: usize,
    since: Timestamp,
    /// Tick of the hub's clock at which it is away.
    away_at: Option<u64>,
}

impl Presence {
    /// One more connection of a user; whether it is the first.
    pub fn enter(&self, scope: Scope, user: &str, now: Timestamp) -> bool {
        let mut state = self.state.lock();
        let users = state.users.entry(scope).or_default();
        if let Some(known) = users.get_mut(user) {
            known.connections += 1;
            known.away_at = None;
            return false;
        }
        let new = User { connections: 1, since: now, away_at: None };
        users.insert(user.to_owned(), new);
        self.count.fetch_add(1, Relaxed);
        true
    }

    /// One connection fewer. After the last one the user has until `away_at` to come back, which
    /// never is before that of another who left earlier.
    pub fn leave(&self, scope: Scope, user: &str, away_at: u64) {
        let mut state = self.state.lock();
        let State { users, leaving } = &mut *state;
        if let Some(known) = users.get_mut(&scope).and_then(|users| users.get_mut(user)) {
            known.connections -= 1;
            if known.connections == 0 {
                known.away_at = Some(away_at);
                leaving.push_back((away_at, scope, user.to_owned()));
            }
        }
    }

    /// Removes those who did not come back, some at a time.
    pub fn sweep(&self, now: u64) -> Vec<(Scope, String)> {
        let mut gone = Vec::new();
        let mut state = self.state.lock();
        let State { users, leaving } = &mut *state;
        while gone.len() < MAX_GONE
            && let Some((away_at, scope, user)) =
                leaving.pop_front_if(|(away_at, _, _)| *away_at <= now)
        {
            let Some(known) = users.get_mut(&scope) else { continue };
            // Unless they came back, and perhaps left again.
            if known.get(&user).is_some_and(|user| user.away_at == Some(away_at)) {
                known.remove(&user);
                gone.push((scope, user));
            }
            if known.is_empty() {
                users.remove(&scope);
            }
        }
        drop(state);
        self.count.fetch_sub(gone.len() as u64, Relaxed);
        gone
    }

    /// A user of this node.
    pub fn of(&self, scope: Scope, user: &str) -> Option<PresentHere> {
        let state = self.state.lock();
        let User { connections, since, .. } = *state.users.get(&scope)?.get(user)?;
        Some(PresentHere { connections, since })
    }

    /// Who is online at this node, by name, and how many in all.
    pub fn list(&self, scope: Scope) -> (Vec<PresentUser>, usize) {
        let state = self.state.lock();
        let Some(users) = state.users.get(&scope) else { return (Vec::new(), 0) };
        let shown = |(user, known): (&String, &User)| PresentUser {
            user: user.clone(),
            connections: known.connections,
            since: known.since,
        };
        (users.iter().take(MAX_SHOWN).map(shown).collect(), users.len())
    }

    pub fn count(&self) -> usize {
        usize::try_from(self.count.load(Relaxed)).unwrap_or(0)
    }
}

/// The message that a user came or went.
pub fn announcement(scope: Scope, user: &str, online: bool) -> Ephemeral {
    let mut members = String::from("\"user\":");
    push_text(&mut members, user);
    members.push_str(if online { ",\"online\":true" } else { ",\"online\":false" });
    Ephemeral::new(scope, Kind::Online, None, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope = Scope(2);

    #[test]
    fn a_user_with_many_tabs_is_announced_once_online_and_once_offline() {
        let presence = Presence::default();
        let enter = || presence.enter(SCOPE, "ann", Timestamp(5));
        assert!(enter());
        assert!(!enter());
        presence.leave(SCOPE, "ann", 10);
        assert!(presence.sweep(1000).is_empty());
        presence.leave(SCOPE, "ann", 10);
        assert!(presence.sweep(9).is_empty());
        // Back in time: nothing is announced.
        assert!(!enter());
        assert!(presence.sweep(1000).is_empty());
        presence.leave(SCOPE, "ann", 10);
        assert_eq!(presence.list(SCOPE).1, 1);
        assert_eq!(presence.sweep(10).len(), 1);
        assert!(presence.sweep(10).is_empty());
        assert_eq!((presence.list(SCOPE), presence.count()), ((vec![], 0), 0));
    }

    #[test]
    fn many_users_who_leave_together_are_announced_in_batches() {
        let presence = Presence::default();
        let names: Vec<String> = (0..2 * MAX_GONE + 1).map(|number| number.to_string()).collect();
        for name in &names {
            presence.enter(SCOPE, name, Timestamp(5));
            presence.leave(SCOPE, name, 10);
        }
        let counts: Vec<usize> = (0..4).map(|_| presence.sweep(10).len()).collect();
        assert_eq!(counts, [MAX_GONE, MAX_GONE, 1, 0]);
        assert_eq!((presence.list(SCOPE), presence.count()), ((vec![], 0), 0));
        assert!(presence.state.lock().users.is_empty());
    }

    #[test]
    fn accounts_and_modes_are_apart() {
        let presence = Presence::default();
        assert!(presence.enter(SCOPE, "ann", Timestamp(5)));
        assert!(presence.enter(Scope(3), "ann", Timestamp(6)));
        let (list, count) = presence.list(SCOPE);
        let ann = PresentUser { user: "ann".into(), connections: 1, since: Timestamp(5) };
        assert_eq!((list, count), (vec![ann], 1));
    }
}
