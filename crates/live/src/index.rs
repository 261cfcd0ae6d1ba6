//! Which connections may want an event: found by a few keys made of the account, the record or its
//! parent, and the type, instead of by testing every connection of the account. A key is a hash:
//! what is found is a superset, which the interests themselves then narrow down.

use crate::entry::Entry;
use crate::interest::Interests;
use crate::kind::Kind;
use model::Scope;
use model::caller::Access;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

/// Seeded once, so that nobody can choose ids that meet in one key.
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The part of a subscription that names records.
#[derive(Clone, Copy, Hash)]
enum About<'a> {
    Anything,
    Record(&'a str),
    Parent(&'a str),
}

/// The part that names types.
#[derive(Clone, Copy, Hash)]
enum Type<'a> {
    Any,
    Exact(&'a str),
    /// What stands before the star, up to its dot.
    Prefix(&'a str),
    /// All types of a collection: what a restricted key may read.
    Collection(&'a str),
}

#[derive(Hash)]
enum Key<'a> {
    Event(About<'a>, Type<'a>),
    Ephemeral(u8),
    Everyone,
}

fn hash(scope: Scope, key: &Key<'_>) -> u64 {
    HASHER.hash_one((scope, key))
}

/// The key of all connections of an account and mode.
pub fn everyone(scope: Scope) -> u64 {
    hash(scope, &Key::Everyone)
}

/// The key of those who want ephemeral messages of a kind.
pub fn ephemeral(scope: Scope, kind: Kind) -> u64 {
    hash(scope, &Key::Ephemeral(kind as u8))
}

/// The keys under which a connection with these interests stands, each once.
pub fn keys_of_interests(interests: &Interests) -> Box<[u64]> {
    let scope = interests.scope;
    let mut keys = vec![everyone(scope)];
    let heard = Kind::ALL.into_iter().filter(|kind| interests.wants_ephemeral(*kind));
    keys.extend(heard.map(|kind| ephemeral(scope, kind)));
    let permit = &interests.permit;
    for (interest, _) in &interests.wanted {
        // The narrowest that is known: one record, the children of one, or neither.
        let about = match (&interest.resource, &interest.parent) {
            (Some(id), _) => About::Record(id),
            (None, Some(id)) => About::Parent(id),
            (None, None) => About::Anything,
        };
        let mut add = |of: Type<'_>| keys.push(hash(scope, &Key::Event(about, of)));
        let types = if interest.types.is_empty() { &permit.types } else { &interest.types };
        types.iter().map(|pattern| type_of(pattern)).for_each(&mut add);
        if types.is_empty() {
            match readable(interests) {
                Some(collections) => collections.into_iter().map(Type::Collection).for_each(add),
                None => add(Type::Any),
            }
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys.into()
}

fn type_of(pattern: &str) -> Type<'_> {
    match pattern.strip_suffix('*') {
        None => Type::Exact(pattern),
        Some(head) if head.ends_with('.') => Type::Prefix(head),
        Some(_) => Type::Any,
    }
}

/// The collections that may be read, if that is not all of them.
fn readable(interests: &Interests) -> Option<Vec<&str>> {
    let grants = interests.permit.grants.as_ref()?;
    if grants.iter().any(|grant| grant.covers("events", Access::Read)) {
        return None;
    }
    grants.iter().map(|grant| grant.collection.as_deref()).collect()
}

/// The keys of the connections that may want an event. To know the parent costs a look into the
/// object, which is saved where no subscription names a parent.
fn keys_of_event(entry: &Entry, by_parent: bool) -> Vec<u64> {
    let (scope, kind, name) = (entry.event.scope, entry.event.kind.as_str(), entry.name());
    let mut types = vec![Type::Any, Type::Collection(&entry.event.collection)];
    let names = [kind, name];
    for one in &names[..if kind == name { 1 } else { 2 }] {
        types.push(Type::Exact(one));
        types.extend(one.match_indices('.').map(|(dot, _)| Type::Prefix(&one[..=dot])));
    }
    let mut abouts = vec![About::Anything, About::Record(&entry.event.record)];
    if by_parent {
        abouts.extend(entry.parent().map(About::Parent));
    }
    let both = |about: About<'_>, of: Type<'_>| hash(scope, &Key::Event(about, of));
    abouts.iter().flat_map(|about| types.iter().map(|of| both(*about, *of))).collect()
}

/// A connection under one of its keys.
#[derive(Clone, Copy, Debug)]
struct Member {
    subscriber: u32,
    /// Which of its keys this is.
    key: u32,
}

/// Connections by their keys.
#[derive(Debug, Default)]
pub struct Index {
    members: HashMap<u64, Vec<Member>>,
}

/// Where a connection stands under each of its keys.
pub type Places = Box<[u32]>;

impl Index {
    /// Adds a connection under all its keys.
    pub fn add(&mut self, subscriber: usize, interests: &Interests) -> Places {
        let subscriber = u32::try_from(subscriber).expect("there are fewer connections than that");
        let add = |(key, hash): (usize, &u64)| {
            let members = self.members.entry(*hash).or_default();
            members.push(Member { subscriber, key: key as u32 });
            members.len() as u32 - 1
        };
        interests.keys().iter().enumerate().map(add).collect()
    }

    /// Removes a connection. Another one takes its place under each key: `moved` is called with
    /// that connection, which of its keys, and where it stands now.
    pub fn remove(
        &mut self,
        interests: &Interests,
        places: &Places,
        mut moved: impl FnMut(usize, usize, u32),
    ) {
        for (hash, place) in interests.keys().iter().zip(places) {
            let Some(members) = self.members.get_mut(hash) else { continue };
            members.swap_remove(*place as usize);
            match members.get(*place as usize) {
                Some(member) => moved(member.subscriber as usize, member.key as usize, *place),
                None if members.is_empty() => drop(self.members.remove(hash)),
                None => {}
            }
        }
    }

    /// The connections that may want an event, some of them twice.
    pub fn candidates(&self, entry: &Entry, by_parent: bool) -> Vec<u32> {
        let keys = keys_of_event(entry, by_parent);
        let found = keys.iter().filter_map(|key| self.members.get(key));
        found.flatten().map(|member| member.subscriber).collect()
    }

    /// The connections under one key.
    pub fn under(&self, key: u64) -> Vec<u32> {
        self.members.get(&key).into_iter().flatten().map(|member| member.subscriber).collect()
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::tests::{codec, event};
    use crate::interest::{Interest, Permit};
    use model::caller::Grant;
    use slab::Slab;
    use std::collections::BTreeSet;

    /// Numbers that look random, the same in every run.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) as usize % end
        }

        fn pick<T: Copy>(&mut self, of: &[T]) -> T {
            of[self.below(of.len())]
        }

        fn some(&mut self, of: &[&str], most: usize) -> Vec<String> {
            (0..self.below(most + 1)).map(|_| self.pick(of).to_owned()).collect()
        }
    }

    const TYPES: [&str; 9] = [
        "*",
        "book.*",
        "book.created",
        "order.*",
        "order.paid",
        "message",
        "message.created",
        "erasure.*",
        "typing",
    ];
    const KINDS: [&str; 6] = [
        "book.created",
        "book.updated",
        "order.paid",
        "message.created",
        "review.created",
        "erasure.created",
    ];
    const RECORDS: [&str; 4] = ["book_1", "book_2", "order_1", "review_1"];
    const GRANTS: [&str; 5] =
        ["books:read", "orders:write", "events:read", "*:read", "messages:read"];

    fn interests(chance: &mut Chance) -> Interests {
        let mut wanted = Vec::new();
        for _ in 0..=chance.below(3) {
            let resource = (chance.below(3) == 0).then(|| chance.pick(&RECORDS).to_owned());
            let parent = (chance.below(4) == 0).then(|| chance.pick(&RECORDS).to_owned());
            let interest = Interest { types: chance.some(&TYPES, 3), resource, parent };
            wanted.push((interest, chance.below(3) as i64 * 50));
        }
        let grants = (chance.below(3) == 0).then(|| {
            let scopes = chance.some(&GRANTS, 2);
            scopes.iter().filter_map(|scope| Grant::parse(scope)).collect()
        });
        let types = if chance.below(3) == 0 { chance.some(&TYPES, 2) } else { Vec::new() };
        let reads_no_feed = chance.below(5) == 0;
        let permit = Permit { grants, types, reads_no_feed, bounds: None };
        Interests::new(Scope(chance.pick(&[2, 3, 4])), permit, 0, wanted)
    }

    fn entry(chance: &mut Chance, seq: i64) -> Entry {
        let kind = chance.pick(&KINDS);
        let parent = chance.pick(&RECORDS);
        let object = format!("{{\"id\":\"x\",\"book\":\"{parent}\",\"book_id\":\"{parent}\"}}");
        let scope = chance.pick(&[2, 3, 4]);
        let event = event(scope, seq, kind, chance.pick(&RECORDS), &object);
        Entry::new(&codec(), event)
    }

    type Subscribers = Slab<(Interests, Places)>;

    fn remove(index: &mut Index, subscribers: &mut Subscribers, subscriber: usize) {
        let (interests, places) = subscribers.remove(subscriber);
        index.remove(&interests, &places, |subscriber, key, place| {
            subscribers[subscriber].1[key] = place
        });
    }

    #[test]
    fn the_index_finds_exactly_those_whose_interests_want_an_event() {
        let mut chance = Chance(7);
        let (mut index, mut subscribers) = (Index::default(), Subscribers::new());
        let (mut wanted, mut by_parent) = (0, 0);
        for round in 0..4000 {
            if subscribers.len() < 60 || chance.below(2) == 0 && subscribers.len() < 120 {
                let interests = interests(&mut chance);
                let place = subscribers.vacant_key();
                let places = index.add(place, &interests);
                subscribers.insert((interests, places));
            } else {
                let keys: Vec<usize> = subscribers.iter().map(|(key, _)| key).collect();
                remove(&mut index, &mut subscribers, chance.pick(&keys));
            }
            let entry = entry(&mut chance, round % 120);
            let plain: BTreeSet<usize> = subscribers
                .iter()
                .filter_map(|(key, (interests, _))| interests.wants(&entry).then_some(key))
                .collect();
            let found: BTreeSet<usize> = index
                .candidates(&entry, true)
                .into_iter()
                .map(|subscriber| subscriber as usize)
                .filter(|subscriber| subscribers[*subscriber].0.wants(&entry))
                .collect();
            assert_eq!(found, plain, "{entry:?}");
            wanted += plain.len();
            by_parent += usize::from(entry.parent().is_some());
            for kind in Kind::ALL {
                for scope in [2, 3, 4].map(Scope) {
                    let hears = |(_, (one, _)): &(usize, &(Interests, Places))| {
                        one.scope == scope && one.wants_ephemeral(kind)
                    };
                    let plain: BTreeSet<usize> =
                        subscribers.iter().filter(hears).map(|(key, _)| key).collect();
                    let found: BTreeSet<usize> = index
                        .under(ephemeral(scope, kind))
                        .iter()
                        .map(|subscriber| *subscriber as usize)
                        .collect();
                    assert_eq!(found, plain);
                }
            }
        }
        assert!(wanted > 10_000 && by_parent > 100, "{wanted} {by_parent}: too easy");
        let keys: Vec<usize> = subscribers.iter().map(|(key, _)| key).collect();
        keys.into_iter().for_each(|subscriber| remove(&mut index, &mut subscribers, subscriber));
        assert!(index.is_empty());
    }

    #[test]
    fn an_event_of_one_record_finds_one_of_ten_thousand() {
        let (mut index, mut subscribers) = (Index::default(), Subscribers::new());
        let about = |number: usize| {
            let resource = Some(format!("book_{number}"));
            let wanted = vec![(Interest { resource, ..Interest::default() }, 0)];
            Interests::new(Scope(2), Permit::default(), 0, wanted)
        };
        for number in 0..10_000 {
            let interests = about(number);
            let places = index.add(number, &interests);
            subscribers.insert((interests, places));
        }
        let entry = |number: usize| {
            Entry::new(&codec(), event(2, 1, "book.updated", &format!("book_{number}"), "{}"))
        };
        assert_eq!(index.candidates(&entry(777), true), [777]);
        // Everybody changes what they want: the cost of each is that of its own keys.
        for number in 0..10_000 {
            remove(&mut index, &mut subscribers, number);
            let interests = about(number + 5);
            let places = index.add(number, &interests);
            assert_eq!(subscribers.insert((interests, places)), number);
        }
        assert_eq!(index.candidates(&entry(777), true), [772]);
        assert_eq!(index.candidates(&entry(3), true), [0; 0]);
    }
}
