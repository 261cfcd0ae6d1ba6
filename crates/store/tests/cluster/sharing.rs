//! What nodes share besides leases: presence, ephemeral messages, budgets of requests.

use crate::bed::{Bed, LEASE, bed, serving, until};
use model::{Scope, Timestamp};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::cluster::{BUCKETS, BudgetRequest, Cluster, PresentHere, Relayed};
use store::postgres::cluster::PostgresCluster;
use store::postgres::connect::Client;
use tokio::time::timeout;

const HERE: Scope = Scope(20);

/// Ends all connections of the nodes of a test.
const END: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE \
    pid <> pg_backend_pid() AND application_name = current_setting('application_name')";

fn here(connections: usize) -> Option<PresentHere> {
    Some(PresentHere { connections, since: Timestamp(5) })
}

async fn online(node: &PostgresCluster, scope: Scope) -> Vec<(String, usize)> {
    let (users, total) = node.present(scope, 100).await.unwrap().unwrap();
    assert_eq!(users.len(), total);
    users.into_iter().map(|one| (one.user, one.connections)).collect()
}

/// The messages that a node receives within a moment.
async fn heard(node: &PostgresCluster) -> Vec<Relayed> {
    let mut all = Vec::new();
    while let Ok(more) = timeout(Duration::from_millis(400), node.relayed()).await {
        all.extend(more);
    }
    all
}

fn announced(user: &str, online: bool) -> Relayed {
    Relayed::Online { scope: HERE, user: user.to_owned(), online }
}

async fn two(bed: &Bed) -> [Arc<PostgresCluster>; 2] {
    let (one, two) = (bed.node().await, bed.node().await);
    until("they know each other", || one.live_nodes() == 2 && two.live_nodes() == 2).await;
    [one, two]
}

#[tokio::test]
async fn users_of_all_nodes_are_listed_and_announced_once() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    one.set_present(HERE, "ann", here(2));
    two.set_present(HERE, "bob", here(1));
    two.set_present(Scope(21), "eve", here(1));
    let both = [("ann".to_owned(), 2), ("bob".to_owned(), 1)];
    // A node sees its own changes at once.
    assert!(online(&one, HERE).await.contains(&both[0]));
    assert!(online(&two, HERE).await.contains(&both[1]));
    assert_eq!(online(&one, HERE).await, both);
    for node in [&one, &two] {
        let mut all = heard(node).await;
        all.retain(|one| matches!(one, Relayed::Online { scope, .. } if *scope == HERE));
        all.sort_by_key(|one| format!("{one:?}"));
        assert_eq!(all, [announced("ann", true), announced("bob", true)]);
    }
    // A second connection elsewhere, and the end of the first: nobody came or went.
    two.set_present(HERE, "ann", here(3));
    assert_eq!(online(&two, HERE).await[0], ("ann".to_owned(), 5));
    one.set_present(HERE, "ann", None);
    assert_eq!(online(&one, HERE).await[0], ("ann".to_owned(), 3));
    assert_eq!(heard(&two).await, []);
    two.set_present(HERE, "ann", None);
    assert_eq!(online(&two, HERE).await.len(), 1);
    for node in [&one, &two] {
        assert_eq!(heard(node).await, [announced("ann", false)]);
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn users_of_a_dead_node_leave_and_those_of_a_database_that_forgot_them_stay() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    one.set_present(HERE, "ann", here(1));
    one.set_present(HERE, "bob", here(1));
    two.set_present(HERE, "bob", here(1));
    assert_eq!(online(&one, HERE).await.len(), 2);
    heard(&two).await;
    one.crash();
    let begun = Instant::now();
    assert_eq!(timeout(2 * LEASE, two.relayed()).await.unwrap(), [announced("ann", false)]);
    assert!(begun.elapsed() < 2 * LEASE);
    assert_eq!(online(&two, HERE).await, [("bob".to_owned(), 1)]);
    // A crash of the database empties the unlogged tables and ends all connections.
    bed.client.batch("TRUNCATE restive_presence").await.unwrap();
    bed.client.batch(END).await.unwrap();
    let begun = Instant::now();
    loop {
        if let Ok(Some((users, _))) = two.present(HERE, 10).await
            && users.len() == 1
        {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "bob is back");
        // waits for: the connection to be opened again
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    two.stop().await;
}

#[tokio::test]
async fn messages_reach_every_other_node_once_and_not_the_one_that_sent_them() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    let three = bed.node().await;
    until("all know all", || [&one, &two, &three].iter().all(|node| node.live_nodes() == 3)).await;
    let message = |number: usize| Relayed::Typing {
        scope: HERE,
        about: number.is_multiple_of(2).then(|| format!("rec\0_{number}")),
        members: format!("\"user\":\"ann\",\"data\":{number}"),
    };
    let begun = Instant::now();
    one.relay(message(0));
    assert_eq!(timeout(LEASE, two.relayed()).await.unwrap(), [message(0)]);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(200), "{took:?}: the notification wakes the reader");
    (1..600).for_each(|number| one.relay(message(number)));
    two.relay(message(1000));
    let all: Vec<Relayed> = (0..600).map(message).collect();
    let mut third = heard(&three).await;
    let place = third.iter().position(|one| *one == message(1000)).unwrap();
    third.remove(place);
    assert_eq!(third, all);
    assert_eq!(heard(&two).await, all[1..]);
    assert_eq!(heard(&one).await, [message(1000)]);
    for node in [one, two, three] {
        node.stop().await;
    }
}

/// Lists of users that wait for a lock.
async fn waiting(watch: &Client) -> i64 {
    let rows = watch
        .query(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND \
             application_name = current_setting('application_name') AND query LIKE '%sum(p.conn%'",
            &[],
        )
        .await
        .unwrap();
    rows[0].get(0)
}

/// A list may take seconds: of many users, or on a slow database. Here a lock makes it so.
#[tokio::test]
async fn lists_of_users_delay_no_budget_and_no_hold_and_run_once_for_an_account() {
    let Some(bed) = bed().await else { return };
    let one = bed.node().await;
    let watch = bed.address.connect().await.unwrap();
    assert_eq!(online(&one, HERE).await, []);
    let lock = "BEGIN; LOCK TABLE restive_presence IN ACCESS EXCLUSIVE MODE";
    bed.client.batch(lock).await.unwrap();
    let mut lists = tokio::task::JoinSet::new();
    for n in 0..256 {
        let (node, scope) = (one.clone(), Scope::new(7, n % 2 == 0));
        lists.spawn(async move { node.present(scope, 100).await });
    }
    let begun = Instant::now();
    while waiting(&watch).await == 0 {
        assert!(begun.elapsed() < LEASE, "a list waits");
        tokio::task::yield_now().await;
    }
    for n in 0..20 {
        let begun = Instant::now();
        let request = BudgetRequest {
            key: "key_1".to_owned(),
            window: 3,
            length: Duration::from_secs(60),
            limit: 1000,
            wanted: 7,
        };
        assert_eq!(one.take_budget(request).await.unwrap().granted, 7);
        assert!(one.hold(format!("hold{n}")).await.unwrap().is_some());
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(300), "{took:?}: behind the lists");
    }
    assert_eq!(waiting(&watch).await, 1, "one list of an account at a time");
    let other = one.clone();
    let other = tokio::spawn(async move { other.present(Scope::new(8, true), 100).await });
    let begun = Instant::now();
    while waiting(&watch).await < 2 {
        assert!(begun.elapsed() < LEASE, "the list of another account runs");
        tokio::task::yield_now().await;
    }
    bed.client.batch("ROLLBACK").await.unwrap();
    other.await.unwrap().unwrap();
    lists.join_all().await;
    one.stop().await;
}

#[tokio::test]
async fn one_account_with_many_users_delays_nobody() {
    let Some(bed) = bed().await else { return };
    let one = bed.node().await;
    const USERS: usize = 15_000;
    (0..USERS).for_each(|n| one.set_present(Scope::new(7, true), &format!("user{n}"), here(1)));
    // Of the account whose users are written last by their order.
    let (small, quiet) = (Scope::new(9, true), Duration::from_millis(500));
    one.set_present(small, "ann", here(1));
    let begun = Instant::now();
    assert_eq!(online(&one, small).await, [("ann".to_owned(), 1)]);
    assert!(begun.elapsed() < quiet, "{:?}", begun.elapsed());
    let large = loop {
        if let Ok(Some((_, total))) = one.present(Scope::new(7, true), 100).await
            && total == USERS
        {
            break begun.elapsed();
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "all users are known");
    };
    println!("{USERS} users are known after {large:?}");
    let mut lists = tokio::task::JoinSet::new();
    for _ in 0..256 {
        let node = one.clone();
        lists.spawn(async move { node.present(Scope::new(7, true), 100).await });
    }
    let begun = Instant::now();
    assert_eq!(online(&one, small).await, [("ann".to_owned(), 1)]);
    assert!(begun.elapsed() < quiet, "{:?}", begun.elapsed());
    for listed in lists.join_all().await {
        assert_eq!(listed.unwrap().unwrap().1, USERS);
    }
    assert!(begun.elapsed() < 2 * quiet, "{:?}: equal questions are one", begun.elapsed());
    one.stop().await;
}

#[tokio::test]
async fn many_users_of_a_dead_node_leave_without_delaying_budgets() {
    const USERS: usize = 60_000;
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    two.set_present(HERE, "ann", here(1));
    assert_eq!(online(&two, HERE).await.len(), 1);
    let users = format!(
        "INSERT INTO restive_presence SELECT 8, 'user' || n, p.node, 1, 5 \
         FROM restive_presence p, generate_series(1, {USERS}) n"
    );
    bed.client.batch(&users).await.unwrap();
    two.crash();
    let (begun, mut slowest) = (Instant::now(), Duration::ZERO);
    for window in 0.. {
        let asked = Instant::now();
        let (key, length) = ("key_1".to_owned(), Duration::from_secs(60));
        let request = BudgetRequest { key, window, length, limit: 1000, wanted: 7 };
        assert_eq!(one.take_budget(request).await.unwrap().granted, 7);
        slowest = slowest.max(asked.elapsed());
        let left = bed.client.query("SELECT count(*) FROM restive_presence", &[]).await.unwrap();
        if left[0].get::<_, i64>(0) == 0 {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "they leave");
        // waits for: the next look
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(slowest < Duration::from_millis(300), "{slowest:?}");
    one.stop().await;
}

/// The next messages that a node receives.
async fn first(node: &PostgresCluster) -> Vec<Relayed> {
    timeout(2 * LEASE, node.relayed()).await.expect("a message arrives")
}

fn typed(number: i64) -> Relayed {
    Relayed::Typing { scope: HERE, about: None, members: format!("\"data\":{number}") }
}

/// Nobody waits here until the nodes know each other.
#[tokio::test]
async fn a_message_that_is_sent_when_a_node_has_just_joined_reaches_it() {
    let Some(bed) = bed().await else { return };
    for round in 0..5 {
        let one = bed.node().await;
        let two = bed.node().await;
        one.relay(typed(round));
        assert_eq!(first(&two).await, [typed(round)], "round {round}");
        let three = bed.node().await;
        two.relay(typed(round + 100));
        for node in [&one, &three] {
            assert_eq!(first(node).await, [typed(round + 100)], "round {round}");
        }
        for node in [one, two, three] {
            node.stop().await;
        }
    }
}

#[tokio::test]
async fn messages_that_are_sent_while_a_connection_is_opened_again_arrive() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    for number in 0..3 {
        one.relay(typed(number));
        assert_eq!(first(&two).await, [typed(number)]);
    }
    let send = |number: i64| {
        format!(
            "INSERT INTO restive_relay (node, at, scope, kind, body) \
             VALUES (1, clock_timestamp(), 20, 0, '\"data\":{number}')"
        )
    };
    // A crash of the database also empties the table, and its numbers begin again.
    for (number, crash) in [(10, ""), (11, "TRUNCATE restive_relay RESTART IDENTITY")] {
        bed.client.batch(&format!("{END}; {crash}; {}", send(number))).await.unwrap();
        assert_eq!(first(&two).await, [typed(number)], "{crash}");
    }
    one.stop().await;
    two.stop().await;
}

#[tokio::test]
async fn a_name_has_one_holder_until_it_is_dropped_or_its_node_dies() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    let take = async |node: &PostgresCluster, name: &str| node.hold(name.to_owned()).await.unwrap();
    let first = take(&one, "a").await.unwrap();
    assert!(first.is_valid() && take(&two, "a").await.is_none());
    assert!(take(&two, "b").await.is_some(), "another name is free");
    drop(first);
    let begun = Instant::now();
    let moved = loop {
        if let Some(hold) = take(&two, "a").await {
            break hold;
        }
        assert!(begun.elapsed() < LEASE, "it is freed at once, not with its node");
    };
    // A node that asks and leaves before the answer holds nothing.
    let _ = timeout(Duration::ZERO, one.hold("c".to_owned())).await;
    let begun = Instant::now();
    while take(&two, "c").await.is_none() {
        assert!(begun.elapsed() < LEASE);
    }
    // Of many at once, one has it.
    for round in 0..20 {
        let name = format!("d{round}");
        let (a, b) = tokio::join!(take(&one, &name), take(&two, &name));
        assert!(a.is_some() != b.is_some(), "round {round}");
    }
    two.crash();
    assert!(take(&one, "a").await.is_none(), "its node may be alive");
    let begun = Instant::now();
    while take(&one, "a").await.is_none() {
        assert!(begun.elapsed() < 3 * LEASE, "it is freed with its node");
        // waits for: the end of the leases of the node
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(moved);
    one.stop().await;
}

#[tokio::test]
async fn a_hold_of_a_node_that_could_not_renew_is_not_valid_any_more() {
    let Some(bed) = bed().await else { return };
    let one = bed.node().await;
    let hold = one.hold("a".to_owned()).await.unwrap().unwrap();
    bed.client.batch("BEGIN; LOCK TABLE restive_nodes IN ACCESS EXCLUSIVE MODE").await.unwrap();
    until("its leases end", || !hold.is_valid()).await;
    // waits for: the end of its lease by the clock of the database, which is later
    tokio::time::sleep(LEASE).await;
    bed.client.batch("ROLLBACK").await.unwrap();
    until("it is back", || serving(&one) == BUCKETS).await;
    assert!(!hold.is_valid(), "another node may have had it");
    assert!(one.hold("a".to_owned()).await.unwrap().is_some_and(|hold| hold.is_valid()));
    one.stop().await;
}

#[tokio::test]
async fn nodes_never_take_more_than_the_budget_of_a_window() {
    let Some(bed) = bed().await else { return };
    let [one, two] = two(&bed).await;
    let request = |window: u64, wanted: u32| BudgetRequest {
        key: "key_1".to_owned(),
        window,
        length: Duration::from_secs(60),
        limit: 1000,
        wanted,
    };
    let take = async |node: &PostgresCluster| {
        let mut all = 0;
        loop {
            let taken = node.take_budget(request(3, 7)).await.unwrap();
            all += taken.granted;
            if taken.granted == 0 {
                assert_eq!(taken.taken, 1000);
                return all;
            }
        }
    };
    for node in [&one, &two] {
        assert_eq!(node.take_budget(request(3, 7)).await.unwrap().granted, 7);
    }
    let (first, second) = tokio::join!(take(&one), take(&two));
    assert_eq!(first + second, 1000 - 14);
    let taken = one.take_budget(request(4, 5000)).await.unwrap();
    assert_eq!(
        (taken.granted, taken.taken),
        (1000, 1000),
        "the next window, and no more than it has"
    );
    // While the database cannot answer, each question fails in its time.
    bed.client.batch("BEGIN; LOCK TABLE restive_budgets IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let begun = Instant::now();
    assert!(one.take_budget(request(5, 5)).await.is_err());
    assert!(begun.elapsed() < LEASE, "{:?}", begun.elapsed());
    bed.client.batch("ROLLBACK").await.unwrap();
    one.stop().await;
    two.stop().await;
}
