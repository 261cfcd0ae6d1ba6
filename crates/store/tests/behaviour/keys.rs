//! Idempotency keys: a request and its repetitions are one, for a day.

use crate::support::*;
use model::write::{Committed, Response};
use model::{Change, Code, Timestamp, Write};
use serde_json::json;
use store::usage::{KEPT_KEYS, KEY_SUBJECT, Used};

fn response(committed: Committed) -> (bool, Response) {
    match committed {
        Committed::Fresh(response) | Committed::Unchanged(response) => (false, response),
        Committed::Replayed { response, .. } => (true, response),
    }
}

async fn twice(bed: &Bed, write: Write) -> Response {
    let mut again = write.clone();
    again.cause.request = Some("req_2".into());
    let (fresh, first) = response(bed.commit(write).await.unwrap().unwrap());
    let Committed::Replayed { response: second, request } =
        bed.commit(again).await.unwrap().unwrap()
    else {
        panic!("not replayed")
    };
    assert_eq!((fresh, &second), (false, &first));
    assert_eq!(request, "req_1", "a replay tells whose answer it is");
    second
}

pub async fn a_repeated_request_is_replayed_byte_for_byte(bed: Bed) {
    let Response::Created(made) = twice(&bed, keyed(book("A", json!(1)), "k", 1)).await else {
        panic!("not created")
    };
    assert_eq!(bed.store.events(None, 0, 10).await.unwrap().len(), 1);
    // What became of the record later does not matter.
    bed.put(merge(BOOKS, &made.id, json!({"price": 9}))).await;
    bed.commit(delete(BOOKS, &made.id)).await.unwrap().unwrap();
    let again = bed.commit(keyed(book("A", json!(1)), "k", 1)).await.unwrap().unwrap();
    assert_eq!(response(again), (true, Response::Created(made.clone())));
    let remembered = bed.store.remembered(HERE, "k").await.unwrap().unwrap();
    assert_eq!(remembered.response, Response::Created(made));
    assert_eq!(remembered.fingerprint, [1; 32]);
    assert_eq!(bed.store.remembered(THERE, "k").await.unwrap(), None);
}

pub async fn another_request_with_the_same_key_is_refused(bed: Bed) {
    bed.put(keyed(book("A", json!(1)), "k", 1)).await;
    let problem = bed.refused(keyed(book("B", json!(1)), "k", 2)).await;
    assert_eq!(problem.code, Code::IdempotencyKeyReused);
    let mut elsewhere = keyed(book("B", json!(1)), "k", 2);
    elsewhere.scope = THERE;
    bed.put(elsewhere).await;
}

pub async fn refusals_after_execution_are_replayed(bed: Bed) {
    let order = bed.put(create(ORDERS, json!({}))).await;
    let act = Change::Act { action: DECLINE, params: fields(json!({})), callout: None };
    let answer = twice(&bed, keyed(write(ORDERS, Some(&order.id), act), "k", 1)).await;
    assert!(matches!(answer, Response::Refused(_)));
    assert_eq!(bed.store.events(None, order.version, 10).await.unwrap().len(), 1);
}

pub async fn failed_validation_is_not_remembered(bed: Bed) {
    bed.refused(keyed(create(ORDERS, json!({"book": "none"})), "k", 1)).await;
    assert_eq!(bed.store.remembered(HERE, "k").await.unwrap(), None);
    bed.put(keyed(create(ORDERS, json!({})), "k", 2)).await;
}

pub async fn an_update_that_changed_nothing_is_replayed_too(bed: Bed) {
    let made = bed.put(book("A", json!(1))).await;
    let same = || keyed(merge(BOOKS, &made.id, json!({"price": 1})), "k", 1);
    assert_eq!(twice(&bed, same()).await, Response::Updated(made.clone()));
    bed.put(merge(BOOKS, &made.id, json!({"price": 2}))).await;
    let again = bed.commit(same()).await.unwrap().unwrap();
    assert_eq!(response(again), (true, Response::Updated(made)));
}

pub async fn keys_expire_after_a_day(bed: Bed) {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    bed.put(keyed(book("A", json!(1)), "k", 1)).await;
    bed.pass(DAY - 1);
    assert!(bed.store.remembered(HERE, "k").await.unwrap().is_some());
    bed.pass(1);
    assert_eq!(bed.store.remembered(HERE, "k").await.unwrap(), None);
    bed.put(keyed(book("B", json!(1)), "k", 2)).await;
    assert_eq!(bed.store.remembered(HERE, "k").await.unwrap().unwrap().fingerprint, [2; 32]);
}

pub async fn concurrent_duplicates_take_effect_once(bed: Bed) {
    let writes = (0..50).map(|_| keyed(book("A", json!(1)), "k", 1));
    let answers = bed.commit_all(writes).await;
    let answers: Vec<_> =
        answers.into_iter().map(|answer| response(answer.unwrap().unwrap())).collect();
    assert_eq!(answers.iter().filter(|(replayed, _)| !replayed).count(), 1);
    assert!(answers.iter().all(|(_, answer)| *answer == answers[0].1));
    assert_eq!(bed.store.events(None, 0, 100).await.unwrap().len(), 1);
}

pub async fn the_last_uses_of_keys_are_kept_for_a_bounded_number_of_keys(bed: Bed) {
    let used = |account: &str, subject: String, last: usize| Used {
        account: account.to_owned(),
        subject,
        requests: 1,
        last: Timestamp(i64::try_from(last).unwrap()),
    };
    let keys = (0..KEPT_KEYS + 10).map(|n| used("a", format!("{KEY_SUBJECT}key_{n}"), n));
    let others = [used("a", "2025-06-01".into(), 0), used("b", format!("{KEY_SUBJECT}key"), 0)];
    bed.store.add_usage(keys.chain(others).collect()).await.unwrap();
    let kept = bed.store.usage_of("a").await.unwrap();
    assert_eq!(kept.len(), KEPT_KEYS + 1, "and the version");
    for n in 0..10 {
        assert!(!kept.iter().any(|one| one.subject == format!("{KEY_SUBJECT}key_{n}")), "{n}");
    }
    assert_eq!(bed.store.usage_of("b").await.unwrap().len(), 1);
}
