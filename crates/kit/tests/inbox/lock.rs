//! One process at a time hands out the events of an inbox.

use super::*;

#[test]
fn one_process_at_a_time_hands_out_events_and_the_next_one_continues() {
    let place = Place::default();
    let (first, second) = (place.open(), place.open());
    first.accept_blocking(event("evt_1")).unwrap();
    let lease = first.next_blocking(in_time()).unwrap();
    // Both store events; only the first one hands them out.
    second.accept_blocking(event("evt_2")).unwrap();
    let soon = Some(Instant::now() + Duration::from_millis(600));
    assert!(second.next_blocking(soon).is_none(), "the first one may have any event in hand");
    assert_eq!(first.next_blocking(in_time()).unwrap().id, "evt_2");
    lease.done_blocking().unwrap();
    // To close it is enough, also while a receiver still has it.
    first.close();
    let lease = second.next_blocking(in_time()).unwrap();
    assert_eq!((&*lease.id, lease.attempt), ("evt_2", 2));
}

#[test]
fn while_the_lock_cannot_be_taken_another_process_may_have_it() {
    let place = Place::default();
    let lock = place.path().with_extension("db.lock");
    std::os::unix::fs::symlink(&lock, &lock).unwrap();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    let soon = Some(Instant::now() + Duration::from_millis(600));
    assert!(inbox.next_blocking(soon).is_none());
    std::fs::remove_file(&lock).unwrap();
    assert_eq!(inbox.next_blocking(in_time()).unwrap().id, "evt_1");
}

#[test]
fn an_inbox_without_a_lock_hands_out_events() {
    let place = Place::default();
    std::fs::create_dir(place.path().with_extension("db.lock")).unwrap();
    let inbox = place.open();
    inbox.accept_blocking(event("evt_1")).unwrap();
    assert_eq!(inbox.next_blocking(in_time()).unwrap().id, "evt_1");
}
