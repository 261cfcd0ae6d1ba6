//! Several engines on one store: each serves the accounts whose leases it has.

use crate::bed::{Bed, HERE, Running, THERE, limits, linger, until};
use crate::node::{Node, bump};
use crate::sink::{Gate, Reply, Sink};
use model::schema::Builtin;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use store::Status;
use store::cluster::Holding;

/// Two engines, each with its own journal.
struct Two {
    nodes: [Arc<Node>; 2],
    engines: [Running; 2],
    _folders: [tempfile::TempDir; 2],
}

impl Two {
    fn start(bed: &Bed) -> Two {
        let nodes = [Node::new(), Node::new()];
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let start = |n: usize| bed.start_as(limits(), nodes[n].clone(), folders[n].path());
        let engines = [start(0), start(1)];
        Two { nodes, engines, _folders: folders }
    }

    async fn stop(self) {
        for engine in self.engines {
            engine.stop().await;
        }
    }
}

/// How often each event arrived.
fn arrivals(sink: &Sink) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in sink.seen.lock().unwrap().iter() {
        *counts.entry(request.id().to_owned()).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn only_the_node_with_the_lease_delivers() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let (here, there) = (Sink::willing().await, Sink::willing().await);
    let (first, _) = bed.endpoint(&here, json!({})).await;
    let (second, _) = bed.endpoint_in(THERE, &there, json!({})).await;
    bed.tell(&["book_1"]);
    linger().await;
    assert_eq!((here.count(), there.count()), (0, 0), "nobody has a lease");
    two.nodes[0].take(&bed, &[HERE]);
    until("the ping and the event", || bed.rows(first, Status::Succeeded) == 2).await;
    assert_eq!(there.count(), 0);
    two.nodes[1].take(&bed, &[THERE]);
    until("the other account", || bed.rows(second, Status::Succeeded) == 1).await;
    bed.tell(&["book_2", "book_3"]);
    until("new events", || bed.rows(first, Status::Succeeded) == 4).await;
    // Endpoints that are made, changed and deleted later belong to their node, too.
    let (third, id) = bed.endpoint_in(THERE, &there, json!({})).await;
    until("the ping of the new one", || bed.rows(third, Status::Succeeded) == 1).await;
    bed.act_in(THERE, Builtin::Endpoint, &id, "ping").await;
    until("a ping on request", || bed.rows(third, Status::Succeeded) == 2).await;
    linger().await;
    let most = [&here, &there].map(|sink| arrivals(sink).values().max().copied());
    assert_eq!(most, [Some(1), Some(1)], "nothing arrived twice");
    two.stop().await;
}

#[tokio::test]
async fn a_bucket_that_is_handed_over_repeats_and_loses_nothing() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let sink = Sink::new(|_, _| Reply::Late(Duration::from_millis(15), 200)).await;
    let (endpoint, _) = bed.endpoint(&sink, json!({ "max_in_flight": 8 })).await;
    let mut holder = 0;
    let mut lease = two.nodes[0].take(&bed, &[HERE])[0];
    for round in 0..6 {
        let records: Vec<String> = (0..40).map(|n| format!("book_{round}_{n}")).collect();
        bed.tell(&records.iter().map(String::as_str).collect::<Vec<_>>());
        until("some are sent", || sink.count() > round * 40 + 5).await;
        let (old, new) = (&two.nodes[holder], &two.nodes[1 - holder]);
        old.hold([Holding::HandOver(lease)], Duration::from_secs(600));
        until("its work ends", || old.has_drained(lease)).await;
        lease = new.take(&bed, &[HERE])[0];
        old.hold([], Duration::ZERO);
        holder = 1 - holder;
    }
    until("all are delivered", || bed.rows(endpoint, Status::Succeeded) == 241).await;
    let arrived = arrivals(&sink);
    assert_eq!(arrived.len(), 241);
    assert!(arrived.values().all(|count| *count == 1), "{arrived:?}");
    two.stop().await;
}

#[tokio::test]
async fn a_lost_bucket_is_repeated_by_the_next_node_and_old_outcomes_change_nothing() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    // The first attempt of each event hangs for a while and then succeeds.
    let sink = Sink::new(|_, count| match count {
        0..3 => Reply::Late(Duration::from_millis(1500), 200),
        _ => Reply::Status(200),
    })
    .await;
    let (endpoint, _) = bed.endpoint(&sink, json!({ "max_in_flight": 4 })).await;
    two.nodes[0].take(&bed, &[HERE]);
    bed.tell(&["book_1", "book_2", "book_3", "book_4", "book_5"]);
    until("requests are in flight", || sink.count() >= 1).await;
    linger().await;
    let repeated: BTreeSet<String> = arrivals(&sink).into_keys().collect();
    // The first node has not heard of it yet: its outcomes come with an old fence.
    two.nodes[1].take(&bed, &[HERE]);
    until("the second node has delivered all", || bed.rows(endpoint, Status::Succeeded) == 6).await;
    two.nodes[0].hold([], Duration::ZERO);
    linger().await;
    let rows: Vec<u32> =
        (1..=bed.newest()).filter_map(|seq| Some(bed.row(endpoint, seq)?.attempts)).collect();
    assert_eq!(rows, [1; 6], "one attempt each is recorded");
    let twice = arrivals(&sink).into_iter().filter(|(_, count)| *count > 1);
    let twice: BTreeSet<String> = twice.map(|(event, _)| event).collect();
    assert!(twice.is_superset(&repeated), "{twice:?} {repeated:?}");
    two.stop().await;
}

#[tokio::test]
async fn a_node_without_a_heartbeat_sends_nothing_after_its_time() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let sink = Sink::willing().await;
    let (endpoint, _) = bed.endpoint(&sink, json!({})).await;
    let lease = bump(&bed, HERE);
    two.nodes[0].hold([Holding::Serve(lease)], Duration::from_millis(300));
    until("the ping", || bed.rows(endpoint, Status::Succeeded) == 1).await;
    // waits for: the end of the lease
    tokio::time::sleep(Duration::from_millis(350)).await;
    bed.tell(&["book_1"]);
    linger().await;
    assert_eq!(sink.count(), 1);
    // The heartbeat comes back, and nobody has taken the lease.
    two.nodes[0].hold([Holding::Serve(lease)], Duration::from_secs(600));
    until("the event", || bed.rows(endpoint, Status::Succeeded) == 2).await;
    assert_eq!(sink.count(), 2);
    two.stop().await;
}

#[tokio::test]
async fn a_bucket_that_comes_back_while_its_requests_are_in_flight_starts_afresh() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let sink = Sink::new(|_, count| match count {
        0..2 => Reply::Late(Duration::from_millis(300), 500),
        _ => Reply::Status(200),
    })
    .await;
    let (endpoint, _) = bed.endpoint(&sink, json!({ "max_in_flight": 3 })).await;
    two.nodes[0].take(&bed, &[HERE]);
    bed.tell(&["book_1", "book_2"]);
    until("in flight", || sink.count() >= 2).await;
    two.nodes[0].hold([], Duration::ZERO);
    linger().await;
    two.nodes[0].take(&bed, &[HERE]);
    until("all delivered", || bed.rows(endpoint, Status::Succeeded) == 3).await;
    // waits for: the late responses
    tokio::time::sleep(Duration::from_millis(400)).await;
    // The late failures of the requests from before are not recorded.
    assert!(
        (1..=bed.newest()).filter_map(|seq| bed.row(endpoint, seq)).all(|row| row.attempts == 1)
    );
    bed.tell(&["book_3", "book_4"]);
    until("the window is free", || bed.rows(endpoint, Status::Succeeded) == 5).await;
    two.stop().await;
}

#[tokio::test]
async fn requests_of_a_lost_bucket_end_before_the_next_node_sends_them_again() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let (gate, other_gate) = (Gate::closed(), Gate::closed());
    let sink = Sink::behind(&gate).await;
    let other_sink = Sink::behind(&other_gate).await;
    let fields = json!({ "max_in_flight": 2, "timeout": 30, "ordering": "resource" });
    let (endpoint, _) = bed.endpoint(&sink, fields).await;
    let (other, _) = bed.endpoint_in(THERE, &other_sink, json!({ "timeout": 30 })).await;
    let leases = two.nodes[0].take(&bed, &[HERE, THERE]);
    until("in flight", || sink.under_way() >= 1 && other_sink.under_way() == 1).await;
    two.nodes[0].hold([Holding::Serve(leases[1])], Duration::from_secs(600));
    until("its requests have ended", || sink.under_way() == 0).await;
    assert_eq!(other_sink.under_way(), 1, "other buckets go on");
    two.nodes[1].take(&bed, &[HERE]);
    until("in flight again", || sink.under_way() >= 1).await;
    gate.set(true);
    other_gate.set(true);
    until("the ping", || bed.rows(endpoint, Status::Succeeded) == 1).await;
    until("the other ping", || bed.rows(other, Status::Succeeded) == 1).await;
    assert!(sink.most() <= 2, "{}", sink.most());
    assert_eq!(other_sink.count(), 1);
    two.stop().await;
}

/// The leases lapse while the store takes no outcomes, and come back with the same fences.
#[tokio::test]
async fn a_bucket_that_comes_back_to_its_node_repeats_no_delivery_with_an_outcome() {
    let bed = Bed::new();
    let node = Node::new();
    // A failed settlement is tried again long after the leases have come back.
    let limits = webhooks::Limits {
        store_wait: Duration::from_millis(400),
        store_wait_longest: Duration::from_millis(400),
        ..limits()
    };
    let engine = bed.start_as(limits, node.clone(), bed.folder.path());
    let sink = Sink::new(|request, number| match request.kind() {
        "ping" => Reply::Status(200),
        // One of the first ten fails.
        _ if number == 5 => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (endpoint, _) = bed.endpoint(&sink, json!({ "max_in_flight": 8 })).await;
    let lease = node.take(&bed, &[HERE])[0];
    until("the ping", || bed.rows(endpoint, Status::Succeeded) == 1).await;
    bed.store.full.store(true, SeqCst);
    let records: Vec<String> = (0..10).map(|n| format!("book_{n}")).collect();
    bed.tell(&records.iter().map(String::as_str).collect::<Vec<_>>());
    until("the outcomes are known", || bed.figure("restive_webhook_unsettled") == 10).await;
    node.hold([], Duration::ZERO);
    until("its queues are gone", || bed.figure("restive_webhook_endpoints") == 0).await;
    node.hold([Holding::Serve(lease)], Duration::from_secs(600));
    linger().await;
    bed.store.full.store(false, SeqCst);
    until("the outcomes are durable", || {
        bed.rows(endpoint, Status::Succeeded) == 10 && bed.rows(endpoint, Status::Pending) == 1
    })
    .await;
    linger().await;
    assert_eq!(sink.events().len(), 10, "nothing is repeated");
    bed.clock.advance(100);
    until("the retry", || bed.rows(endpoint, Status::Succeeded) == 11).await;
    bed.tell(&["book_10"]);
    until("the next event", || bed.rows(endpoint, Status::Succeeded) == 12).await;
    linger().await;
    assert_eq!(sink.events().len(), 12);
    engine.stop().await;
    let (head, newest) = (store::cluster::head_of(lease.bucket), bed.newest());
    assert_eq!(bed.store.look().positions.get(&head), Some(&newest));
}

#[tokio::test]
async fn a_rate_limit_holds_when_its_bucket_moves() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let sink = Sink::willing().await;
    let fields = json!({ "rate_limit": 10, "max_in_flight": 50 });
    let (endpoint, _) = bed.endpoint(&sink, fields).await;
    two.nodes[0].take(&bed, &[HERE]);
    let records: Vec<String> = (0..9).map(|n| format!("book_{n}")).collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    bed.tell(&records);
    until("the first events", || bed.rows(endpoint, Status::Succeeded) == 10).await;
    two.nodes[0].hold([], Duration::ZERO);
    bed.tell(&records);
    let begun = tokio::time::Instant::now();
    two.nodes[1].take(&bed, &[HERE]);
    until("the next events", || bed.rows(endpoint, Status::Succeeded) == 19).await;
    let last = sink.seen().last().unwrap().at;
    assert!(last - begun >= Duration::from_millis(850), "{:?}", last - begun);
    two.stop().await;
}

#[tokio::test]
async fn positions_retries_and_replays_go_on_at_the_next_node() {
    let bed = Bed::new();
    let two = Two::start(&bed);
    let failed = AtomicBool::new(false);
    let sink = Sink::new(move |request, _| match request.body["data"]["object"]["id"].as_str() {
        Some("book_bad") if !failed.swap(true, SeqCst) => Reply::Status(500),
        _ => Reply::Status(200),
    })
    .await;
    let (endpoint, id) = bed.endpoint(&sink, json!({})).await;
    two.nodes[0].take(&bed, &[HERE]);
    bed.tell(&["book_1", "book_bad", "book_2"]);
    until("one waits for its retry", || {
        bed.rows(endpoint, Status::Pending) == 1 && bed.rows(endpoint, Status::Succeeded) == 3
    })
    .await;
    let newest = bed.newest();
    let head = store::cluster::head_of(store::cluster::bucket_of(HERE));
    until("the head of the bucket is stored", || {
        bed.store.look().positions.get(&head).is_some_and(|position| *position >= newest)
    })
    .await;
    two.nodes[0].hold([], Duration::ZERO);
    two.nodes[1].take(&bed, &[HERE]);
    bed.clock.advance(100);
    until("the retry", || bed.rows(endpoint, Status::Succeeded) == 4).await;
    assert_eq!(sink.count(), 5, "nothing else was sent again");
    // A retry that was requested at any node: the store of this one did not wake.
    let event = bed.store.look().rows.keys().next().copied().unwrap().1;
    {
        let mut inner = bed.store.look();
        let row = inner.rows.get_mut(&(endpoint, event)).unwrap();
        (row.status, row.next, row.asked) = (Status::Pending, Some(model::Timestamp(0)), 1);
    }
    until("the requested retry", || sink.count() == 6).await;
    let replay = bed.replay(&id, json!({})).await;
    let ended = async || bed.fields(Builtin::Replay, &replay).await["status"] == "succeeded";
    let begun = std::time::Instant::now();
    while !ended().await {
        assert!(begun.elapsed() < Duration::from_secs(20), "the replay ends");
        // waits for: the end of the replay
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(sink.count(), 6 + 3);
    two.stop().await;
}
