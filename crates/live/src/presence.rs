//! Who is online: users by account and mode, however many connections each has. Coming and going
//! is announced once per user; who comes back within the grace time was never away.

use crate::entry::Passing;
use model::record::push_text;
use model::{Scope, Timestamp};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Users shown in one answer; above, they are only counted.
pub const MAX_SHOWN: usize = 1000;

/// What a restricted key must be allowed to read to hear of it.
pub const SCOPE: &str = "presence";

/// The name of the announcement.
pub const ONLINE: &str = "online";

#[derive(Debug, Default)]
pub struct Presence {
    users: Mutex<HashMap<Scope, HashMap<String, User>>>,
    count: AtomicU64,
}

#[derive(Clone, Copy, Debug)]
struct User {
    connections: usize,
    since: Timestamp,
    /// Tick of the hub's clock at which it is away.
    away_at: Option<u64>,
}

/// One who is online, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Present {
    pub user: String,
    pub connections: usize,
    pub since: Timestamp,
}

impl Presence {
    /// One more connection of a user; the announcement, if it is the first.
    pub fn enter(&self, scope: Scope, user: &str, now: Timestamp) -> Option<Passing> {
        let mut users = self.users.lock();
        let users = users.entry(scope).or_default();
        if let Some(known) = users.get_mut(user) {
            known.connections += 1;
            known.away_at = None;
            return None;
        }
        let new = User { connections: 1, since: now, away_at: None };
        users.insert(user.to_owned(), new);
        self.count.fetch_add(1, Relaxed);
        Some(announcement(scope, user, true))
    }

    /// One connection fewer. After the last one the user has until `away_at` to come back.
    pub fn leave(&self, scope: Scope, user: &str, away_at: u64) {
        let mut users = self.users.lock();
        if let Some(known) = users.get_mut(&scope).and_then(|users| users.get_mut(user)) {
            known.connections -= 1;
            if known.connections == 0 {
                known.away_at = Some(away_at);
            }
        }
    }

    /// Announces those who did not come back.
    pub fn sweep(&self, now: u64) -> Vec<Passing> {
        let mut gone = Vec::new();
        self.users.lock().retain(|scope, users| {
            users.retain(|user, known| {
                let away = known.away_at.is_some_and(|at| at <= now);
                if away {
                    gone.push(announcement(*scope, user, false));
                }
                !away
            });
            !users.is_empty()
        });
        self.count.fetch_sub(gone.len() as u64, Relaxed);
        gone
    }

    /// Who is online, by name, and how many in all.
    pub fn list(&self, scope: Scope) -> (Vec<Present>, usize) {
        let users = self.users.lock();
        let Some(users) = users.get(&scope) else { return (Vec::new(), 0) };
        let shown = |(user, known): (&String, &User)| Present {
            user: user.clone(),
            connections: known.connections,
            since: known.since,
        };
        let mut list: Vec<Present> = users.iter().map(shown).collect();
        list.sort_by(|one, other| one.user.cmp(&other.user));
        list.truncate(MAX_SHOWN);
        (list, users.len())
    }

    pub fn count(&self) -> usize {
        usize::try_from(self.count.load(Relaxed)).unwrap_or(0)
    }
}

fn announcement(scope: Scope, user: &str, online: bool) -> Passing {
    let mut members = String::from("\"user\":");
    push_text(&mut members, user);
    members.push_str(if online { ",\"online\":true" } else { ",\"online\":false" });
    Passing::new(scope, ONLINE, None, members)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCOPE: Scope = Scope(2);

    #[test]
    fn a_user_comes_once_and_goes_once_whatever_the_tabs() {
        let presence = Presence::default();
        let enter = || presence.enter(SCOPE, "ann", Timestamp(5)).is_some();
        assert!(enter());
        assert!(!enter());
        presence.leave(SCOPE, "ann", 10);
        assert!(presence.sweep(1000).is_empty());
        presence.leave(SCOPE, "ann", 10);
        assert!(presence.sweep(9).is_empty());
        // Back in time: nobody heard of it.
        assert!(!enter());
        assert!(presence.sweep(1000).is_empty());
        presence.leave(SCOPE, "ann", 10);
        assert_eq!(presence.list(SCOPE).1, 1);
        assert_eq!(presence.sweep(10).len(), 1);
        assert!(presence.sweep(10).is_empty());
        assert_eq!((presence.list(SCOPE), presence.count()), ((vec![], 0), 0));
    }

    #[test]
    fn accounts_and_modes_are_apart() {
        let presence = Presence::default();
        assert!(presence.enter(SCOPE, "ann", Timestamp(5)).is_some());
        assert!(presence.enter(Scope(3), "ann", Timestamp(6)).is_some());
        let (list, count) = presence.list(SCOPE);
        let ann = Present { user: "ann".into(), connections: 1, since: Timestamp(5) };
        assert_eq!((list, count), (vec![ann], 1));
    }
}
