//! What the delivery engine relies on: outcomes and positions are kept together, what is due is
//! found, what is old goes. And the collections that show it: events, deliveries, attempts.

use crate::support::*;
use model::query::{Filter, Query, Test};
use model::record::Scalar;
use model::schema::Native;
use model::{Change, Code, Record, Scope, Timestamp};
use serde_json::{Value, json};
use store::cluster::bucket_of;
use store::{Delivery, Failures, Outcome, Settlement, Status};

const EVENTS: usize = 7;
const ENDPOINTS: usize = 8;
const DELIVERIES: usize = 9;
const ATTEMPTS: usize = 10;
const REPLAYS: usize = 11;
const ERASURES: usize = 12;

const SECRET: &str = "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY";

pub fn endpoint(kinds: Value) -> model::Write {
    let fields = json!({
        "url": "https://shop.example/hook", "enabled_events": kinds, "status": "enabled",
        "secret": SECRET,
    });
    create(ENDPOINTS, fields)
}

pub fn outcome(endpoint: &Record, event: i64, status: Status, next: Option<i64>) -> Outcome {
    Outcome {
        scope: HERE,
        endpoint: endpoint.number,
        event,
        id: format!("dlv_{}_{event}", endpoint.number),
        number: None,
        status,
        attempts: 1,
        next: next.map(Timestamp),
        now: Timestamp(START),
        asked: 0,
        attempt: Some(json!({"id": format!("att_{event}"), "status": 200}).to_string()),
    }
}

pub async fn settle(bed: &Bed, outcomes: Vec<Outcome>, positions: Vec<(i64, i64)>) {
    let positions = positions.into_iter().map(|(endpoint, seq)| (endpoint, Some(seq))).collect();
    let settlement = Settlement { outcomes, positions, ..Settlement::default() };
    bed.store.settle(settlement).await.unwrap();
}

fn where_(field: &str, value: &str) -> Query {
    let test = Test::AnyOf(vec![Scalar::Text(value.into())]);
    Query { filters: vec![Filter { field: field.into(), test }], ..query("-created_at", 50) }
}

async fn shown(bed: &Bed, collection: usize, query: &Query) -> Vec<Value> {
    let page = bed.store.list(HERE, collection, query).await.unwrap();
    let texts = bed.store.texts(HERE, collection, query).await.unwrap();
    let bodies: Vec<String> = page.records.into_iter().map(|record| record.body).collect();
    assert_eq!(bodies, texts.records, "both ways to read say the same");
    bodies.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
}

fn names(values: &[Value], member: &str) -> Vec<String> {
    values.iter().map(|value| value[member].as_str().unwrap_or("null").to_owned()).collect()
}

pub async fn outcomes_are_shown_and_positions_never_go_back(bed: Bed) {
    let hook = bed.put(endpoint(json!(["book.*"]))).await;
    let made = bed.put(book("A", json!(1))).await;
    let mut settled = bed.store.settled();
    settled.borrow_and_update();
    settle(
        &bed,
        vec![outcome(&hook, made.version, Status::Succeeded, None)],
        vec![(hook.number, 9)],
    )
    .await;
    assert!(settled.has_changed().unwrap(), "whoever waits for outcomes is woken");
    settle(&bed, Vec::new(), vec![(hook.number, 5)]).await;
    let standings = bed.store.endpoint_states(vec![hook.number]).await.unwrap().endpoints;
    assert_eq!((standings[0].endpoint, standings[0].position), (hook.number, Some(9)));
    let found = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await;
    assert_eq!(found[0]["status"], "succeeded");
    assert_eq!(found[0]["endpoint"], json!(hook.id));
    assert_eq!(found[0]["attempts"], 1);
    let event = found[0]["event"].as_str().unwrap();
    assert_eq!(shown(&bed, DELIVERIES, &where_("event", event)).await, found);
    let parent = found[0]["id"].as_str().unwrap().to_owned();
    let attempts = Query { parent: Some(parent), ..query("-created_at", 5) };
    assert_eq!(shown(&bed, ATTEMPTS, &attempts).await[0]["status"], 200);
    let elsewhere = bed.store.list(THERE, DELIVERIES, &query("-created_at", 5)).await.unwrap();
    assert!(elsewhere.records.is_empty(), "scopes never meet");
}

pub async fn a_second_outcome_of_a_delivery_replaces_the_first(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let event = bed.put(book("A", json!(1))).await.version;
    settle(&bed, vec![outcome(&hook, event, Status::Pending, Some(START + 5))], Vec::new()).await;
    let Delivery { number, .. } =
        bed.store.deliveries(hook.number, &[event, 99]).await.unwrap().remove(0);
    for (n, number) in [(2, Some(number)), (3, None)] {
        let attempt = Some(json!({ "id": format!("att_{event}_{n}") }).to_string());
        let failed = outcome(&hook, event, Status::Failed, None);
        let again = Outcome { number, attempts: 2, attempt, ..failed };
        settle(&bed, vec![again], Vec::new()).await;
    }
    let found = bed.store.deliveries(hook.number, &[event]).await.unwrap();
    assert_eq!((found[0].status, found[0].attempts), (Status::Failed, 3));
    let parent = Some(found[0].id.clone());
    let attempts = Query { parent, ..query("-created_at", 5) };
    assert_eq!(shown(&bed, ATTEMPTS, &attempts).await.len(), 3, "every attempt is kept");
}

pub async fn what_has_succeeded_is_not_taken_back(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let event = bed.put(book("A", json!(1))).await.version;
    settle(&bed, vec![outcome(&hook, event, Status::Succeeded, None)], Vec::new()).await;
    for (status, next) in [(Status::Failed, None), (Status::Pending, Some(START + 5))] {
        let attempt = Some(json!({ "id": format!("att_{status:?}") }).to_string());
        let later = Outcome { attempt, ..outcome(&hook, event, status, next) };
        settle(&bed, vec![later], Vec::new()).await;
        let found = bed.store.deliveries(hook.number, &[event]).await.unwrap();
        assert_eq!((found[0].status, found[0].next), (Status::Succeeded, None));
    }
    let found = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await;
    assert_eq!((&found[0]["status"], &found[0]["attempts"]), (&json!("succeeded"), &json!(3)));
}

pub async fn an_attempt_whose_delivery_is_gone_is_not_kept(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let old = bed.put(book("A", json!(1))).await.version;
    let failed = outcome(&hook, old, Status::Failed, None);
    settle(&bed, vec![failed], vec![(hook.number, 99)]).await;
    let gone = bed.store.deliveries(hook.number, &[old]).await.unwrap().remove(0);
    bed.pass(10_000);
    let new = bed.put(book("B", json!(1))).await.version;
    bed.list(&search(&["somebody"])).await;
    let moment = Timestamp(START + 5_000);
    let expired = bed.store.expire(moment, moment, 100).await.unwrap();
    assert_eq!(expired.skipped, []);
    // It was under way meanwhile.
    let late = Outcome {
        number: Some(gone.number),
        attempts: 2,
        ..outcome(&hook, old, Status::Succeeded, None)
    };
    settle(&bed, vec![late], Vec::new()).await;
    settle(&bed, vec![outcome(&hook, new, Status::Succeeded, None)], Vec::new()).await;
    let next = bed.store.deliveries(hook.number, &[new]).await.unwrap().remove(0);
    // And a still later one must not land on a delivery that may have its number now.
    let late = Outcome {
        number: Some(gone.number),
        attempts: 3,
        ..outcome(&hook, old, Status::Failed, None)
    };
    settle(&bed, vec![late], Vec::new()).await;
    let kept = bed.store.deliveries(hook.number, &[new]).await.unwrap().remove(0);
    assert_eq!((kept.status, kept.attempts), (Status::Succeeded, 1));
    let attempts = Query { parent: Some(next.id), ..query("-created_at", 5) };
    assert_eq!(names(&shown(&bed, ATTEMPTS, &attempts).await, "id"), [format!("att_{new}")]);
}

pub async fn a_pause_is_kept_and_moves_no_position(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let pause = |until: i64| Settlement {
        pauses: vec![(hook.number, Timestamp(until))],
        ..Settlement::default()
    };
    for until in [START + 5_000, 0] {
        bed.store.settle(pause(until)).await.unwrap();
        let standing =
            bed.store.endpoint_states(vec![hook.number]).await.unwrap().endpoints.remove(0);
        assert_eq!(standing.paused, Some(Timestamp(until)));
        assert_eq!(standing.position, None);
    }
    settle(&bed, Vec::new(), vec![(hook.number, 9)]).await;
    let standing = bed.store.endpoint_states(vec![hook.number]).await.unwrap().endpoints.remove(0);
    assert_eq!((standing.position, standing.paused), (Some(9), Some(Timestamp(0))));
}

pub async fn the_head_stands_for_every_endpoint_without_a_position(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let failures = Failures { count: 3, first: Timestamp(1), last: Timestamp(2) };
    let settlement = |head, position, failures| Settlement {
        head: Some(head),
        positions: vec![(hook.number, position)],
        failures: vec![(hook.number, failures)],
        ..Settlement::default()
    };
    bed.store.settle(settlement(7, Some(5), Some(failures))).await.unwrap();
    let standings = bed.store.endpoint_states(vec![hook.number]).await.unwrap();
    assert_eq!((standings.head, standings.endpoints[0].position), (Some(7), Some(5)));
    assert_eq!(standings.endpoints[0].failures, Some(failures));
    bed.store.settle(settlement(9, None, None)).await.unwrap();
    let standings = bed.store.endpoint_states(vec![hook.number]).await.unwrap();
    assert_eq!(standings.head, Some(9));
    assert!(standings.endpoints.is_empty(), "nothing is left of it");
    bed.store.settle(settlement(10, Some(5), Some(failures))).await.unwrap();
    let gone = Settlement { gone: vec![hook.number], ..Settlement::default() };
    bed.store.settle(gone).await.unwrap();
    assert!(bed.store.endpoint_states(vec![hook.number]).await.unwrap().endpoints.is_empty());
}

pub async fn reads_of_the_log_and_of_retries_are_bounded_by_bytes(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut seqs = Vec::new();
    for _ in 0..4 {
        let event = bed.put(book(&"x".repeat(1000), json!(1))).await.version;
        let due = Some(START + 10);
        settle(&bed, vec![outcome(&hook, event, Status::Pending, due)], Vec::new()).await;
        seqs.push(event);
    }
    let now = Timestamp(START + 50);
    for (bytes, count) in [(1, 1), (3500, 2), (1 << 20, 4)] {
        let after = seqs[0] - 1;
        let read = bed.store.events_within(Some(HERE), after, 10, bytes).await.unwrap();
        assert_eq!((read.events.len(), read.more), (count, count < 4), "{bytes}");
        let due = bed.store.retries(hook.number, now, 10, bytes).await.unwrap();
        assert_eq!((due.due.len(), due.next.is_some()), (count, count < 4), "{bytes}");
    }
    let census = bed.store.pending_retries(hook.number, 3).await.unwrap();
    assert_eq!(census.iter().map(|(_, seq)| *seq).collect::<Vec<_>>(), seqs[..3]);
}

pub async fn retries_come_due_and_those_asked_for_come_first(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut events = Vec::new();
    for (title, due) in [("A", Some(30)), ("B", Some(10)), ("C", Some(90)), ("D", None)] {
        let event = bed.put(book(title, json!(1))).await.version;
        let (status, due) = match due {
            Some(due) => (Status::Pending, Some(START + due)),
            None => (Status::Failed, None),
        };
        settle(&bed, vec![outcome(&hook, event, status, due)], Vec::new()).await;
        events.push(event);
    }
    let due = bed.store.retries(hook.number, Timestamp(START + 50), 10, usize::MAX).await.unwrap();
    let order: Vec<i64> = due.due.iter().map(|retry| retry.event.seq).collect();
    assert_eq!(order, [events[1], events[0]]);
    assert_eq!(due.next, Some(Timestamp(START + 90)));
    assert_eq!(
        bed.store.endpoint_states(vec![hook.number]).await.unwrap().endpoints[0].due,
        Some(Timestamp(START + 10))
    );
    let oldest = bed.store.waiting(vec![hook.number, 999]).await.unwrap();
    let first = bed.store.events(Some(HERE), events[0] - 1, 1).await.unwrap().remove(0);
    assert_eq!(oldest, [(hook.number, first.created)]);
    assert_eq!(bed.store.newest_retry().await.unwrap(), Some(Timestamp(START)));
    let mut retry_requests = bed.store.retry_requested();
    retry_requests.borrow_and_update();
    let id = &bed.store.deliveries(hook.number, &events[3..]).await.unwrap()[0].id.clone();
    let action = support_action(Native::Retry);
    let act = Change::Act { action, params: fields(json!({})), callout: None };
    let before = bed.store.record(HERE, DELIVERIES, None, id).await.unwrap().unwrap();
    let asked = bed.put(write(DELIVERIES, Some(id), act)).await;
    assert_eq!(value(&asked, "status"), "pending");
    assert!(asked.version > before.version, "whoever saw it before has an old ETag");
    assert!(value(&asked, "next_attempt_at").as_str().unwrap() > "2023");
    assert_eq!(bed.store.requested_retries().await.unwrap(), [hook.number]);
    assert!(retry_requests.has_changed().unwrap());
    let due = bed.store.retries(hook.number, Timestamp(START + 50), 1, usize::MAX).await.unwrap();
    assert_eq!((due.due[0].event.seq, due.due[0].asked), (events[3], 1));
    // A try that was under way by then fails: the one that was asked for is still owed.
    let number = Some(due.due[0].delivery.number);
    let attempt = |id: &str| Some(json!({ "id": id }).to_string());
    let failed = outcome(&hook, events[3], Status::Failed, None);
    let failed = Outcome { number, attempt: attempt("att_2"), ..failed };
    settle(&bed, vec![failed.clone()], Vec::new()).await;
    let due = bed.store.retries(hook.number, Timestamp(START + 50), 1, usize::MAX).await.unwrap();
    assert_eq!((due.due[0].event.seq, due.due[0].asked), (events[3], 1));
    let failed = Outcome { asked: 1, attempt: attempt("att_3"), ..failed };
    settle(&bed, vec![failed], Vec::new()).await;
    let due = bed.store.retries(hook.number, Timestamp(START + 50), 1, usize::MAX).await.unwrap();
    assert!(due.due.iter().all(|retry| retry.event.seq != events[3]), "it was the one asked for");
    let unknown = Change::Act { action, params: fields(json!({})), callout: None };
    let refused = bed.refused(write(DELIVERIES, Some("dlv_none"), unknown)).await;
    assert_eq!(refused.code, Code::NotFound);
}

fn support_action(native: Native) -> usize {
    let schema = schema();
    let actions = &schema.collections[DELIVERIES].actions;
    actions.iter().position(|action| action.native == Some(native)).unwrap()
}

pub async fn events_tell_what_is_still_to_be_delivered(bed: Bed) {
    let hook = bed.put(endpoint(json!(["book.*"]))).await;
    let other = bed.put(endpoint(json!(["order.*"]))).await;
    let [first, second] = [bed.put(book("A", json!(1))).await, bed.put(book("B", json!(1))).await];
    let pending = |bed: Bed| async move {
        let like = Test::Like(vec!["book.*".into()]);
        let filters = vec![Filter { field: "type".into(), test: like }];
        let all = shown(&bed, EVENTS, &Query { filters, ..query("-created_at", 9) }).await;
        let counts: Vec<i64> =
            all.iter().map(|event| event["pending_webhooks"].as_i64().unwrap()).collect();
        let open = shown(&bed, EVENTS, &where_("delivery", "pending")).await;
        (bed, counts, names(&open, "type"))
    };
    let (bed, counts, open) = pending(bed).await;
    assert_eq!(counts, [1, 1]);
    assert_eq!(open, ["book.created", "book.created", "ping", "ping"]);
    // One was delivered, the other waits for its second attempt; the pings are behind them.
    let outcomes = vec![
        outcome(&hook, first.version, Status::Succeeded, None),
        outcome(&hook, second.version, Status::Pending, Some(START + 5)),
    ];
    let far = vec![(hook.number, second.version), (other.number, second.version)];
    settle(&bed, outcomes, far).await;
    let (bed, counts, open) = pending(bed).await;
    assert_eq!(counts, [1, 0]);
    assert_eq!(open, ["book.created"]);
    for (status, expected) in [("succeeded", 1), ("failed", 0), ("skipped", 0)] {
        assert_eq!(shown(&bed, EVENTS, &where_("delivery", status)).await.len(), expected);
    }
    let about = shown(&bed, EVENTS, &where_("resource", &first.id)).await;
    assert_eq!(about[0]["data"]["object"]["title"], "A");
}

pub async fn events_of_keys_stay_inside(bed: Bed) {
    bed.put(create(KEYS, json!({"digest": "abc"}))).await;
    bed.put(book("A", json!(1))).await;
    let all = shown(&bed, EVENTS, &query("-created_at", 9)).await;
    assert_eq!(names(&all, "type"), ["book.created"]);
}

pub async fn a_published_event_is_its_own_change(bed: Bed) {
    let said = json!({
        "type": "report.ready", "resource": "report_7",
        "data": {"object": {"id": "report_7"}, "previous_attributes": {"state": "draft"}},
    });
    let made = bed.put(keyed(create(EVENTS, said.clone()), "k", 1)).await;
    assert_eq!(bed.newest(), made.version);
    let read = bed.record(EVENTS, &made.id).await.unwrap();
    assert_eq!(read.body, made.body);
    assert_eq!(value(&read, "data"), said["data"]);
    let again = bed.commit(keyed(create(EVENTS, said), "k", 1)).await.unwrap().unwrap();
    let model::write::Committed::Replayed { response, .. } = again else { panic!("not replayed") };
    assert_eq!(response, model::write::Response::Created(made));
    let unknown = json!({"type": "report.raedy", "data": {"object": {}}});
    let problem = bed.refused(create(EVENTS, unknown)).await;
    assert!(problem.violations[0].message.contains("report.ready"));
}

pub async fn an_erased_resource_leaves_ids_and_outcomes(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let made = bed.put(book("Secret", json!(1))).await;
    let changed = bed.put(merge(BOOKS, &made.id, json!({"title": "Hidden"}))).await;
    let mut told = outcome(&hook, changed.version, Status::Succeeded, None);
    told.attempt = Some(json!({"id": "att_1", "response_body": "Hidden"}).to_string());
    settle(&bed, vec![told], Vec::new()).await;
    let erasure = bed.put(create(ERASURES, json!({"resource": made.id}))).await;
    assert_eq!(value(&erasure, "events"), 2);
    let about = shown(&bed, EVENTS, &where_("resource", &made.id)).await;
    let erased = json!({"object": {"id": made.id, "object": "book", "erased": true}});
    assert_eq!([&about[0]["data"], &about[1]["data"]], [&erased, &erased]);
    let delivery = &shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await[0];
    assert_eq!(delivery["status"], "succeeded");
    let parent = delivery["id"].as_str().map(str::to_owned);
    let attempts = shown(&bed, ATTEMPTS, &Query { parent, ..query("-created_at", 5) }).await;
    assert_eq!(attempts[0]["response_body"], Value::Null);
    // A request that was under way at that moment is answered afterwards.
    let mut late = outcome(&hook, made.version, Status::Succeeded, None);
    late.attempt = Some(json!({"id": "att_2", "response_body": "Secret"}).to_string());
    settle(&bed, vec![late], Vec::new()).await;
    let late = bed.store.deliveries(hook.number, &[made.version]).await.unwrap().remove(0);
    let query = Query { parent: Some(late.id), ..query("-created_at", 5) };
    assert_eq!(shown(&bed, ATTEMPTS, &query).await[0]["response_body"], Value::Null);
    // What was answered to events of others stays.
    let other = bed.put(book("Public", json!(1))).await;
    let mut told = outcome(&hook, other.version, Status::Succeeded, None);
    told.attempt = Some(json!({"id": "att_3", "response_body": "Public"}).to_string());
    settle(&bed, vec![told], Vec::new()).await;
    let told = bed.store.deliveries(hook.number, &[other.version]).await.unwrap().remove(0);
    let query = Query { parent: Some(told.id), ..query };
    assert_eq!(shown(&bed, ATTEMPTS, &query).await[0]["response_body"], "Public");
    let refused = bed.refused(create(ERASURES, json!({"resource": "book_none"}))).await;
    assert_eq!(refused.violations[0].field, "resource");
}

pub async fn an_answer_with_nul_is_erased_like_any_other(bed: Bed) {
    let mut hook = endpoint(json!(["*"]));
    let Change::Create { fields } = &mut hook.change else { panic!() };
    fields.insert("description".into(), json!("a\0b"));
    let hook = bed.put(hook).await;
    let made = bed.put(book("a\0b \\u0000 \\\0", json!(1))).await;
    let mut told = outcome(&hook, made.version, Status::Succeeded, None);
    let answer = json!({"id": "att_1", "error": "\\u0000\\", "response_body": "\0\\\0\\u0000"});
    told.attempt = Some(answer.to_string());
    settle(&bed, vec![told.clone()], Vec::new()).await;
    bed.put(create(ERASURES, json!({"resource": made.id}))).await;
    let erased = json!({"object": {"id": made.id, "object": "book", "erased": true}});
    let delivery = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await.remove(0);
    let parent = delivery["id"].as_str().map(str::to_owned);
    let attempts = Query { parent, ..query("-created_at", 5) };
    let check = async |count: usize| {
        let about = shown(&bed, EVENTS, &where_("resource", &made.id)).await;
        assert_eq!(about[0]["data"], erased);
        let shown = shown(&bed, ATTEMPTS, &attempts).await;
        assert_eq!(shown.len(), count);
        for attempt in shown {
            assert_eq!(
                (&attempt["response_body"], &attempt["error"]),
                (&Value::Null, &answer["error"])
            );
        }
    };
    check(1).await;
    // An answer that comes afterwards.
    told.attempt =
        Some(json!({"id": "att_2", "error": "\\u0000\\", "response_body": "\0"}).to_string());
    settle(&bed, vec![told], Vec::new()).await;
    for _ in 0..100 {
        check(2).await;
        tokio::time::sleep(std::time::Duration::from_millis(5)).await; // waits for: the next check
    }
}

pub async fn endpoints_are_counted(bed: Bed) {
    bed.put_all((0..2_000).map(|_| endpoint(json!(["*"])))).await;
    let refused = bed.refused(endpoint(json!(["*"]))).await;
    assert_eq!(refused.code, Code::TooManyRecords);
    let mut elsewhere = endpoint(json!(["*"]));
    elsewhere.scope = THERE;
    bed.put(elsewhere).await;
}

pub async fn unfinished_replays_are_counted(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let replay = || create(REPLAYS, json!({"endpoint": hook.id, "status": "pending"}));
    let first = bed.put(replay()).await;
    bed.put_all((1..2_000).map(|_| replay())).await;
    let refused = bed.refused(replay()).await;
    assert_eq!(refused.code, Code::TooManyRecords);
    assert!(refused.message.contains("2000") && refused.message.contains("cancel"));
    let mut elsewhere = endpoint(json!(["*"]));
    elsewhere.scope = THERE;
    let theirs = bed.put(elsewhere).await;
    let replay_there = create(REPLAYS, json!({"endpoint": theirs.id, "status": "pending"}));
    bed.put(model::Write { scope: THERE, ..replay_there }).await;
    // One that has ended makes room for another.
    let ended = fields(json!({"status": "succeeded"}));
    let ended = Change::Assign { fields: ended, event: None };
    bed.put(write(REPLAYS, Some(&first.id), ended)).await;
    bed.put(replay()).await;
    assert_eq!(bed.refused(replay()).await.code, Code::TooManyRecords);
}

pub async fn a_start_reads_no_replay_that_has_ended(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut theirs = endpoint(json!(["*"]));
    theirs.scope = THERE;
    let theirs = bed.put(theirs).await;
    let replay = async |scope, hook: &Record, status: &str| {
        let made = create(REPLAYS, json!({"endpoint": hook.id, "status": "pending"}));
        let made = bed.put(model::Write { scope, ..made }).await;
        let now = Change::Assign { fields: fields(json!({"status": status})), event: None };
        bed.put(model::Write { scope, ..write(REPLAYS, Some(&made.id), now) }).await
    };
    let mut open = Vec::new();
    for status in ["succeeded", "pending", "failed", "running", "cancelled", "pending"] {
        let made = replay(HERE, &hook, status).await;
        if status == "pending" || status == "running" {
            open.push(made.id);
        }
    }
    replay(THERE, &theirs, "succeeded").await;
    let there = replay(THERE, &theirs, "running").await;
    let buckets = |scopes: &[Scope]| Some(scopes.iter().copied().map(bucket_of).collect());
    let read = async |collection, buckets, after, max| {
        let found = bed.store.every_served(collection, buckets, after, max).await.unwrap();
        found.into_iter().map(|(_, record)| record.id).collect::<Vec<_>>()
    };
    let everywhere: Vec<String> = open.iter().cloned().chain([there.id.clone()]).collect();
    assert_eq!(read(REPLAYS, None, 0, 10).await, everywhere);
    assert_eq!(read(REPLAYS, None, 0, 2).await, everywhere[..2]);
    assert_eq!(read(REPLAYS, None, there.number - 1, 10).await, everywhere[3..]);
    assert_eq!(read(REPLAYS, buckets(&[HERE, THERE]), 0, 10).await, everywhere);
    let of_there = read(REPLAYS, buckets(&[THERE]), 0, 10).await;
    let endpoints_of_there = read(ENDPOINTS, buckets(&[THERE]), 0, 10).await;
    assert_eq!(read(ENDPOINTS, None, 0, 10).await, [hook.id.clone(), theirs.id.clone()]);
    assert_eq!((of_there, endpoints_of_there), (vec![there.id], vec![theirs.id]));
    // One that ends is not read any more.
    let ended = Change::Assign { fields: fields(json!({"status": "failed"})), event: None };
    bed.put(write(REPLAYS, Some(&open[0]), ended)).await;
    assert_eq!(read(REPLAYS, None, 0, 10).await, everywhere[1..]);
}

pub async fn old_events_go_and_the_newest_stays(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut seqs = Vec::new();
    for n in 0..10 {
        bed.pass(1000);
        seqs.push(bed.put(book(&n.to_string(), json!(1))).await.version);
    }
    let outcomes = seqs.iter().map(|seq| outcome(&hook, *seq, Status::Succeeded, None)).collect();
    settle(&bed, outcomes, vec![(hook.number, seqs[9])]).await;
    // Reads its own writes, so the index has read the log.
    bed.list(&search(&["somebody"])).await;
    for (moment, before) in [(0, 0), (1000, 2), (1001, seqs[0]), (5500, seqs[4]), (99_000, seqs[9])]
    {
        let moment = Timestamp(START + moment);
        assert_eq!(bed.store.before(moment).await.unwrap(), before, "{moment:?}");
    }
    let moment = Timestamp(START + 5500);
    let expire = async |moment: Timestamp, max| {
        let expired = bed.store.expire(moment, Timestamp(0), max).await.unwrap();
        assert_eq!(expired.skipped, []);
        expired.events
    };
    assert_eq!(expire(moment, 3).await, 3);
    assert_eq!(expire(moment, 100).await, 4);
    assert_eq!(expire(moment, 100).await, 0);
    let left = bed.store.events(None, 0, 100).await.unwrap();
    assert_eq!(left.iter().map(|event| event.seq).collect::<Vec<_>>(), seqs[5..]);
    assert_eq!(shown(&bed, DELIVERIES, &query("-created_at", 50)).await.len(), 5);
    assert_eq!(expire(Timestamp(i64::MAX), 100).await, 4);
    let next = bed.put(book("next", json!(1))).await;
    assert_eq!(next.version, seqs[9] + 1, "the sequence goes on");
}

pub async fn events_still_to_be_delivered_stay_until_the_backlog_is_over(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut disabled = endpoint(json!(["*"]));
    if let Change::Create { fields } = &mut disabled.change {
        fields.insert("status".into(), json!("disabled"));
    }
    bed.put(disabled).await;
    for n in 0..10 {
        bed.pass(1000);
        bed.put(book(&n.to_string(), json!(1))).await;
    }
    bed.list(&search(&["somebody"])).await;
    let moment = Timestamp(START + 5500);
    let expired = bed.store.expire(moment, Timestamp(0), 100).await.unwrap();
    // The endpoint itself, which is before its own position.
    assert_eq!((expired.events, expired.skipped.len()), (1, 0));
    let expired = bed.store.expire(moment, moment, 100).await.unwrap();
    assert_eq!(expired.skipped.len(), 1, "the disabled one misses nothing");
    let range = &expired.skipped[0];
    assert_eq!((range.scope, range.endpoint.as_str()), (HERE, hook.id.as_str()));
    // Two endpoints with their pings, then five books.
    let expected = (hook.number + 1, expired.events as i64 + 1);
    assert_eq!((range.first, range.last), expected);
    let found = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await;
    assert_eq!((&found[0]["status"], &found[0]["event"]), (&json!("skipped"), &json!(null)));
    let parent = found[0]["id"].as_str().unwrap().to_owned();
    let attempts = Query { parent: Some(parent), ..query("-created_at", 5) };
    assert_eq!(shown(&bed, ATTEMPTS, &attempts).await[0]["error"], "expired");
}

/// Calls it until nothing is left to remove; the ranges that were skipped.
async fn sweep(bed: &Bed, moment: Timestamp, max: usize) -> (usize, Vec<store::SkippedRange>) {
    let (mut events, mut skipped) = (0, Vec::new());
    loop {
        let expired = bed.store.expire(moment, moment, max).await.unwrap();
        if expired.events == 0 {
            return (events, skipped);
        }
        events += expired.events;
        skipped.extend(expired.skipped);
    }
}

pub async fn a_sweep_notes_what_an_endpoint_missed_once(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let behind = bed.put(endpoint(json!(["*"]))).await;
    settle(&bed, Vec::new(), vec![(behind.number, behind.number)]).await;
    for n in 0..12 {
        bed.pass(1000);
        bed.put(book(&n.to_string(), json!(1))).await;
    }
    bed.list(&search(&["somebody"])).await;
    let (events, skipped) = sweep(&bed, Timestamp(START + 10_500), 3).await;
    assert!(events > 9 && skipped.len() > 4, "{events} events in slices: {skipped:?}");
    for hook in [&hook, &behind] {
        let notes = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await;
        assert_eq!(names(&notes, "status"), ["skipped"]);
        let last = skipped.iter().rfind(|range| range.endpoint == hook.id).unwrap();
        assert!(last.first <= hook.number + 2 && last.last >= 13, "{last:?}");
        let parent = notes[0]["id"].as_str().unwrap().to_owned();
        let attempts = Query { parent: Some(parent.clone()), ..query("-created_at", 5) };
        let attempts = shown(&bed, ATTEMPTS, &attempts).await;
        assert_eq!(attempts.len(), 1);
        let message = attempts[0]["error_message"].as_str().unwrap();
        assert!(message.contains(&format!("number {} ", last.last)), "{message}");
        // There is nothing that could be sent again.
        let action = support_action(Native::Retry);
        let act = Change::Act { action, params: fields(json!({})), callout: None };
        let refused = bed.refused(write(DELIVERIES, Some(&parent), act)).await;
        assert_eq!(refused.code, Code::InvalidState);
        assert!(refused.message.contains("removed from the log"), "{}", refused.message);
    }
    let both = vec![behind.number, hook.number];
    let standings = bed.store.endpoint_states(both).await.unwrap().endpoints;
    let moved = standings.iter().find(|standing| standing.endpoint == behind.number).unwrap();
    assert_eq!(moved.position, skipped.iter().map(|range| range.last).max());
    assert!(!standings.iter().any(|standing| standing.endpoint == hook.number), "it has no row");
    // The next sweep has a note of its own.
    let (events, _) = sweep(&bed, Timestamp(START + 11_500), 100).await;
    assert_eq!(events, 1);
    let notes = shown(&bed, DELIVERIES, &where_("endpoint", &hook.id)).await;
    assert_eq!(notes.len(), 2);
}

pub async fn an_event_goes_with_any_number_of_deliveries(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let event = bed.put(book("A", json!(1))).await.version;
    // More than a slice has room for; the endpoints are gone but for one.
    let many = (0..400).map(|n| Outcome {
        endpoint: hook.number + 1_000 * n,
        id: format!("dlv_{n}"),
        ..outcome(&hook, event, Status::Succeeded, None)
    });
    settle(&bed, many.collect(), vec![(hook.number, 99)]).await;
    bed.pass(10_000);
    let young = bed.put(book("B", json!(1))).await.version;
    bed.list(&search(&["somebody"])).await;
    let mut removed = 0;
    loop {
        let expired = bed.store.expire(Timestamp(START + 5_000), Timestamp(0), 100).await.unwrap();
        assert_eq!(expired.skipped, []);
        if expired.events == 0 {
            break;
        }
        removed += expired.events;
    }
    assert_eq!((bed.store.oldest().await.unwrap(), removed as i64), (young, young - 1));
    assert!(shown(&bed, DELIVERIES, &query("-created_at", 50)).await.is_empty());
}

pub async fn pending_deliveries_of_a_deleted_endpoint_hold_no_event_back(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let event = bed.put(book("A", json!(1))).await.version;
    let waits = outcome(&hook, event, Status::Pending, Some(START + 9));
    settle(&bed, vec![waits], vec![(hook.number, 99)]).await;
    bed.commit(delete(ENDPOINTS, &hook.id)).await.unwrap().unwrap();
    bed.pass(10_000);
    let young = bed.put(book("B", json!(1))).await.version;
    bed.list(&search(&["somebody"])).await;
    while bed.store.expire(Timestamp(START + 5_000), Timestamp(0), 2).await.unwrap().events > 0 {}
    assert_eq!(bed.store.oldest().await.unwrap(), young);
    assert!(bed.store.deliveries(hook.number, &[event]).await.unwrap().is_empty());
}

pub async fn an_event_that_is_to_be_delivered_again_by_hand_stays(bed: Bed) {
    let hook = bed.put(endpoint(json!(["*"]))).await;
    let mut events = Vec::new();
    for title in ["A", "B", "C"] {
        events.push(bed.put(book(title, json!(1))).await.version);
    }
    let done = |event: &i64| outcome(&hook, *event, Status::Failed, None);
    settle(&bed, events.iter().map(done).collect(), vec![(hook.number, 99)]).await;
    bed.pass(10_000);
    bed.put(book("young", json!(1))).await;
    bed.list(&search(&["somebody"])).await;
    let (moment, backlog) = (Timestamp(START + 5_000), Timestamp(0));
    // Looks for what is needed, and finds nothing.
    assert_eq!(bed.store.expire(moment, backlog, 1).await.unwrap().events, 1);
    let id = bed.store.deliveries(hook.number, &events[1..2]).await.unwrap().remove(0).id;
    let action = support_action(Native::Retry);
    let act = Change::Act { action, params: fields(json!({})), callout: None };
    bed.put(write(DELIVERIES, Some(&id), act)).await;
    while bed.store.expire(moment, backlog, 1).await.unwrap().events > 0 {}
    assert_eq!(bed.store.oldest().await.unwrap(), events[1]);
}
