//! How events and messages come to the connections of a thread, step by step.

use super::*;
use crate::entry::tests::{codec, event};
use crate::entry::{Entry, Ephemeral};
use crate::interest::tests::TESTED;
use crate::interest::{Interest, Permit};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Wake;

/// Counts how often it is woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

struct Scene {
    shard: Shard,
    ring: Ring,
    ephemeral: EphemeralBuffers,
    seq: i64,
}

impl Scene {
    fn new() -> Scene {
        let (shard, ring) = (Shard::new(0), Ring::new(1 << 30, 0));
        Scene { shard, ring, ephemeral: EphemeralBuffers::default(), seq: 0 }
    }

    /// Parks a connection.
    fn park(&self, scope: i64, interest: Interest, number: u32) -> (usize, Arc<Woken>) {
        let wanted = vec![(interest, 0)];
        let interests = Interests::new(Scope(scope), Permit::default(), 0, wanted);
        let woken = Arc::new(Woken::default());
        let mut state = self.shard.lock();
        let around = (&self.ring, &self.ephemeral);
        let key = state.add(Arc::new(interests), self.seq, number, around);
        state.subscribers[key].waker = Some(woken.clone().into());
        state.subscribers[key].parked = true;
        (key, woken)
    }

    fn commit(&mut self, scope: i64, record: &str) {
        self.seq += 1;
        let event = event(scope, self.seq, "book.updated", record, "{}");
        self.ring.push(vec![Arc::new(Entry::new(&codec(), event))], self.seq, 0);
        self.shard.report(&[Scope(scope)], Some(self.seq));
    }

    fn step(&self) -> Step {
        self.shard.step(&self.ring, &self.ephemeral)
    }

    /// Lets everybody run who was woken, and park again.
    fn run(&self) {
        let mut state = self.shard.lock();
        for key in 0..state.subscribers.capacity() {
            if state.subscribers.get(key).is_some_and(|subscriber| subscriber.woken) {
                self.shard.ran(&mut state, key);
                let subscriber = &mut state.subscribers[key];
                (subscriber.parked, subscriber.cursor, subscriber.ephemeral) =
                    (true, self.seq, [0; 2]);
            }
        }
    }

    /// Steps until there is no work; how many it took.
    fn finish(&self) -> usize {
        let steps = (1..100_000).find(|_| match self.step() {
            Step::Idle => true,
            Step::More => false,
            Step::Full => {
                self.run();
                false
            }
        });
        steps.expect("the work ends")
    }
}

fn about(record: &str) -> Interest {
    Interest { resource: Some(record.to_owned()), ..Interest::default() }
}

fn times(woken: &Arc<Woken>) -> usize {
    woken.0.load(Relaxed)
}

#[test]
fn an_event_is_tested_only_against_connections_that_may_want_it() {
    let mut scene = Scene::new();
    let subscribers: Vec<_> =
        (0..10_000).map(|number| scene.park(2, about(&format!("b{number}")), number)).collect();
    TESTED.set(0);
    for record in ["b17", "b9999", "unknown"] {
        scene.commit(2, record);
        scene.finish();
    }
    assert_eq!(TESTED.get(), 2, "tests of interests");
    let woken: Vec<usize> = (0..10_000).filter(|place| times(&subscribers[*place].1) > 0).collect();
    assert_eq!(woken, [17, 9999]);
    // They subscribe to something else: no more work for each than its own keys.
    for (number, (key, _)) in subscribers.iter().enumerate() {
        let wanted = vec![(about(&format!("c{number}")), 0)];
        let interests = Interests::new(Scope(2), Permit::default(), 0, wanted);
        scene.shard.lock().change(*key, Arc::new(interests));
    }
    TESTED.set(0);
    scene.commit(2, "b18");
    scene.commit(2, "c19");
    scene.finish();
    assert_eq!((TESTED.get(), times(&subscribers[18].1), times(&subscribers[19].1)), (1, 0, 1));
}

#[test]
fn a_crowd_of_one_account_delays_another_by_a_slice() {
    let mut scene = Scene::new();
    let crowd: Vec<_> =
        (0..10_000).map(|number| scene.park(2, Interest::default(), number).1).collect();
    let (_, other) = scene.park(4, Interest::default(), 10_000);
    let total = || crowd.iter().map(times).sum::<usize>();
    scene.commit(2, "a");
    scene.commit(4, "b");
    assert_eq!((scene.step(), total(), times(&other)), (Step::More, SLICE, 0));
    assert_eq!((scene.step(), total(), times(&other)), (Step::More, SLICE, 1));
    // Nobody runs: no more are woken than the window takes.
    while scene.step() == Step::More {}
    assert!((WINDOW..=WINDOW + SLICE).contains(&total()), "{}", total());
    assert_eq!(scene.step(), Step::Full);
    scene.run();
    scene.finish();
    assert_eq!(total(), 10_000);
    assert_eq!(times(&other), 1);
}

#[test]
fn connections_that_never_run_stop_the_others_for_a_tick_at_most() {
    let mut scene = Scene::new();
    for number in 0..2 * WINDOW as u32 {
        scene.park(2, Interest::default(), number);
    }
    scene.commit(2, "a");
    while scene.step() == Step::More {}
    let (_, other) = scene.park(4, Interest::default(), u32::MAX);
    scene.commit(4, "b");
    assert_eq!((scene.step(), times(&other)), (Step::Full, 0));
    scene.shard.tick(1);
    scene.step();
    scene.step();
    assert_eq!(times(&other), 1);
}

/// While an event is on its way to many, some come, some go and some change.
#[test]
fn no_connection_misses_an_event_in_flight() {
    let mut scene = Scene::new();
    let crowd: Vec<_> =
        (0..1000).map(|number| scene.park(2, Interest::default(), number)).collect();
    scene.commit(2, "a");
    scene.step();
    let mut state = scene.shard.lock();
    // Whoever has not seen it is not parked now, but looks for itself.
    assert_eq!((state.tested(Scope(2)), state.seen(Scope(2))), (1, 0));
    for (key, _) in &crowd[900..] {
        state.remove(*key);
    }
    drop(state);
    // Newcomers stand behind it.
    let new: Vec<_> =
        (0..200).map(|number| scene.park(2, Interest::default(), 2000 + number)).collect();
    scene.finish();
    assert!(crowd[..900].iter().all(|(_, woken)| times(woken) == 1));
    assert!(new.iter().all(|(_, woken)| times(woken) == 0));
    let state = scene.shard.lock();
    assert_eq!((state.tested(Scope(2)), state.seen(Scope(2))), (1, 1));
}

#[test]
fn an_account_whose_memory_turned_too_fast_rouses_its_own_connections_alone() {
    let mut scene = Scene::new();
    scene.ring = Ring::new(4096, 0);
    let (_, own) = scene.park(2, about("never"), 1);
    let (_, other) = scene.park(4, about("never"), 2);
    for number in 0..50 {
        scene.commit(2, &format!("b{number}"));
    }
    scene.commit(4, "b");
    scene.finish();
    assert_eq!((times(&own), times(&other)), (1, 0));
}

#[test]
fn a_connection_that_reads_itself_continues_after_the_events_tested_for_it() {
    let mut scene = Scene::new();
    scene.ring = Ring::new(4096, 0);
    let (key, woken) = scene.park(2, about("never"), 1);
    for number in 0..20 {
        scene.commit(2, &format!("b{number}"));
        scene.finish();
    }
    assert_eq!((times(&woken), scene.shard.lock().subscribers[key].cursor), (0, 0));
    for number in 20..70 {
        scene.commit(2, &format!("b{number}"));
    }
    scene.finish();
    assert_eq!((times(&woken), scene.shard.lock().subscribers[key].cursor), (1, 20));
}

#[test]
fn messages_wait_for_connections_that_want_them_and_did_not_send_them() {
    let scene = Scene::new();
    let typing = Interest { types: vec!["typing".into()], ..Interest::default() };
    let online = Interest { types: vec!["online".into()], ..Interest::default() };
    let (sender, silent) = scene.park(2, typing.clone(), 1);
    let (listener, heard) = scene.park(2, typing.clone(), 2);
    let (_, elsewhere) = scene.park(2, online, 3);
    let (_, foreign) = scene.park(4, typing, 4);
    for _ in 0..3 {
        let members = "\"user\":null".to_owned();
        scene.ephemeral.push(Ephemeral::new(Scope(2), Kind::Typing, Some(1), members), 0);
    }
    scene.shard.report(&[Scope(2)], None);
    scene.finish();
    let counts = [&silent, &heard, &elsewhere, &foreign].map(times);
    assert_eq!(counts, [0, 1, 0, 0]);
    let state = scene.shard.lock();
    assert_eq!(state.subscribers[listener].ephemeral, [0, 1]);
    assert_eq!(state.subscribers[sender].ephemeral, [0, 0]);
}

#[test]
fn connections_that_are_gone_leave_nothing_behind() {
    let mut scene = Scene::new();
    let keys: Vec<usize> =
        (0..500).map(|number| scene.park(2 + number as i64 % 3, about("a"), number).0).collect();
    scene.commit(2, "a");
    scene.step();
    let mut state = scene.shard.lock();
    for key in keys {
        scene.shard.ran(&mut state, key);
        state.remove(key);
    }
    assert!(state.subscribers.is_empty() && state.accounts.is_empty() && state.index.is_empty());
    assert_eq!(state.woken, 0);
    drop(state);
    scene.finish();
    assert_eq!(scene.step(), Step::Idle);
}
