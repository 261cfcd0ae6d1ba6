//! One process at a time hands out the events of an inbox.

use std::path::Path;

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
fn an_inbox_that_can_never_have_its_lock_hands_out_events() {
    let folder: fn(&Path) = |lock| std::fs::create_dir(lock).unwrap();
    let circle: fn(&Path) = |lock| std::os::unix::fs::symlink(lock, lock).unwrap();
    for obstacle in [folder, circle] {
        let place = Place::default();
        obstacle(&place.path().with_extension("db.lock"));
        let inbox = place.open();
        inbox.accept_blocking(event("evt_1")).unwrap();
        assert_eq!(inbox.next_blocking(in_time()).unwrap().id, "evt_1");
    }
}
