//! Who wants which type of event: asked for each event, so remembered by type. Knows endpoints by
//! their numbers only.

use model::Scope;
use std::collections::HashMap;
use std::rc::Rc;

/// Types remembered per scope; beyond it, all are looked up again.
const REMEMBERED_TYPES: usize = 1024;

#[derive(Default)]
pub struct Subscriptions {
    scopes: HashMap<Scope, Subscribers>,
}

#[derive(Default)]
struct Subscribers {
    all: Vec<i64>,
    by_type: HashMap<String, Rc<[i64]>>,
}

impl Subscriptions {
    /// A new endpoint, or one that may want other types than before.
    pub fn put(&mut self, scope: Scope, endpoint: i64) {
        let subscribers = self.scopes.entry(scope).or_default();
        if !subscribers.all.contains(&endpoint) {
            subscribers.all.push(endpoint);
        }
        subscribers.by_type.clear();
    }

    pub fn remove(&mut self, scope: Scope, endpoint: i64) {
        if let Some(subscribers) = self.scopes.get_mut(&scope) {
            subscribers.all.retain(|other| *other != endpoint);
            subscribers.by_type.clear();
        }
    }

    /// Those of the scope's endpoints for which `wants` holds.
    pub fn of(&mut self, scope: Scope, kind: &str, wants: impl Fn(i64) -> bool) -> Rc<[i64]> {
        let Some(subscribers) = self.scopes.get_mut(&scope) else { return Rc::new([]) };
        if let Some(known) = subscribers.by_type.get(kind) {
            return known.clone();
        }
        let found: Rc<[i64]> = subscribers.all.iter().copied().filter(|one| wants(*one)).collect();
        if subscribers.by_type.len() >= REMEMBERED_TYPES {
            subscribers.by_type.clear();
        }
        subscribers.by_type.insert(kind.to_owned(), found.clone());
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_are_remembered_until_an_endpoint_of_the_scope_changes() {
        let (mut subscriptions, scope) = (Subscriptions::default(), Scope::new(1, false));
        assert!(subscriptions.of(scope, "a", |_| true).is_empty());
        subscriptions.put(scope, 1);
        subscriptions.put(scope, 2);
        subscriptions.put(scope, 2);
        subscriptions.put(Scope::new(2, false), 3);
        assert_eq!(*subscriptions.of(scope, "a", |one| one == 2), [2]);
        assert_eq!(*subscriptions.of(scope, "a", |_| true), [2]);
        subscriptions.put(scope, 1);
        assert_eq!(*subscriptions.of(scope, "a", |_| true), [1, 2]);
        subscriptions.remove(scope, 1);
        assert_eq!(*subscriptions.of(scope, "a", |_| true), [2]);
    }
}
