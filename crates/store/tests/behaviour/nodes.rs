//! What several nodes on one database do together, and what a node does about a database that
//! fails.

mod damaged;
mod large;
mod standby;
mod starts;
pub mod wire;

use self::wire::Wire;
use crate::postgres::Place;
use crate::support::*;
use model::record::Fields;
use model::schema::Kind;
use model::write::{Change, Committed, Response};
use model::{Code, Record};
use serde_json::json;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::postgres::PostgresStore;
use store::postgres::connect::{Address, Step};
use store::sqlite::{Clock, Options, Role};
use store::{Error, Follower, Log, Outcome, Settlement, Status, Store};

const ENDPOINTS: usize = 8;
const DELIVERIES: usize = 9;

/// Two nodes; none without a server.
fn pair() -> Option<(Place, Bed, Bed)> {
    let place = Place::new()?;
    let [a, b] = [(), ()].map(|()| place.open(schema(), None).unwrap());
    Some((place, a, b))
}

pub async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), work).await.expect("it took too long")
}

fn created(answer: Result<Result<Committed, model::Problem>, Error>) -> Option<Record> {
    match answer.unwrap().unwrap() {
        Committed::Fresh(Response::Created(record)) => Some(record),
        Committed::Replayed { .. } => None,
        other => panic!("not created: {other:?}"),
    }
}

#[tokio::test]
async fn the_log_of_two_nodes_has_one_order_without_gaps() {
    let Some((_place, a, b)) = pair() else { return };
    let mut followers: Vec<_> = Vec::new();
    for node in [&a, &b] {
        let mut follower = Follower::new(node.store.clone(), None, 0);
        followers.push(tokio::spawn(async move {
            let mut seen = Vec::new();
            while seen.len() < 600 {
                seen.extend(follower.next_batch(50).await.unwrap().into_iter().map(|e| e.seq));
            }
            seen
        }));
    }
    let mut writers = Vec::new();
    for n in 0..600 {
        let store = if n % 2 == 0 { &a.store } else { &b.store }.clone();
        writers.push(tokio::spawn(async move {
            store.commit(book(&format!("T{n}"), json!(n))).await.unwrap().unwrap()
        }));
    }
    for writer in writers {
        within(writer).await.unwrap();
    }
    for follower in followers {
        assert_eq!(within(follower).await.unwrap(), (1..=600).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_read_on_another_node_sees_the_write_and_its_tag_is_not_old() {
    let Some((_place, a, b)) = pair() else { return };
    for n in 0..20 {
        let made = a.put(book(&format!("T{n}"), json!(n))).await;
        assert_eq!(b.record(BOOKS, &made.id).await, Some(made.clone()));
        assert_eq!(b.list(&query("-created_at", 1)).await.records, std::slice::from_ref(&made));
        b.store.fresh().await.unwrap();
        assert!(b.store.collection_seq(HERE, BOOKS) >= made.version);
        let changed = b.put(merge(BOOKS, &made.id, json!({"price": 99}))).await;
        assert_eq!(a.record(BOOKS, &made.id).await, Some(changed));
    }
}

#[tokio::test]
async fn one_key_and_one_unique_value_have_one_effect_on_two_nodes() {
    let Some((_place, a, b)) = pair() else { return };
    let mut answers = Vec::new();
    for n in 0..40 {
        let store = if n % 2 == 0 { &a.store } else { &b.store }.clone();
        answers.push(tokio::spawn(async move {
            store.commit(keyed(book("once", json!(1)), "k", 1)).await
        }));
    }
    let mut made = 0;
    for answer in answers {
        made += usize::from(created(within(answer).await.unwrap()).is_some());
    }
    assert_eq!(made, 1);
    let mut answers = Vec::new();
    for n in 0..40 {
        let store = if n % 2 == 0 { &a.store } else { &b.store }.clone();
        let unique = json!({"title": "T", "author": "x", "isbn": "one"});
        answers.push(tokio::spawn(async move { store.commit(create(BOOKS, unique)).await }));
    }
    let mut made = 0;
    for answer in answers {
        match within(answer).await.unwrap().unwrap() {
            Ok(_) => made += 1,
            Err(problem) => assert_eq!(problem.violations[0].code, Code::NotUnique),
        }
    }
    assert_eq!(made, 1);
}

#[tokio::test]
async fn a_node_learns_of_keys_timers_and_outcomes_of_another() {
    let Some((_place, a, b)) = pair() else { return };
    let (generation, mut timers) = (b.store.key_generation(), b.store.timers());
    let mut settled = b.store.settled();
    timers.borrow_and_update();
    settled.borrow_and_update();
    let made = a.put(create(KEYS, json!({"digest": "d"}))).await;
    assert_eq!(b.store.key_by_digest("d").await.unwrap(), Some((HERE, made)));
    let deadline = Instant::now() + Duration::from_secs(10);
    while b.store.key_generation() == generation {
        assert!(Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
    a.put(create(ORDERS, json!({}))).await;
    within(timers.changed()).await.unwrap();
    let fields = json!({"url": "https://shop.example/", "enabled_events": ["*"],
        "status": "enabled", "secret": "whsec_AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcY"});
    let hook = a.put(create(ENDPOINTS, fields)).await;
    b.store.fresh().await.unwrap();
    let before = b.store.collection_seq(HERE, DELIVERIES);
    let outcome = Outcome {
        scope: HERE,
        endpoint: hook.number,
        event: hook.number,
        id: "dlv_1".into(),
        number: None,
        status: Status::Succeeded,
        attempts: 1,
        next: None,
        now: model::Timestamp(START),
        asked: 0,
        attempt: None,
    };
    let settlement = Settlement { outcomes: vec![outcome], ..Settlement::default() };
    a.store.settle(settlement).await.unwrap();
    b.store.fresh().await.unwrap();
    assert!(b.store.collection_seq(HERE, DELIVERIES) > before, "no list of deliveries is the same");
    within(settled.changed()).await.unwrap();
}

#[tokio::test]
async fn nodes_that_start_at_once_make_the_tables_once() {
    let Some(place) = Place::new() else { return };
    let place = Arc::new(place);
    let open = |_| {
        let place = place.clone();
        std::thread::spawn(move || place.open(schema(), None).unwrap())
    };
    let starting: Vec<_> = (0..6).map(open).collect();
    let nodes: Vec<Bed> = starting.into_iter().map(|node| node.join().unwrap()).collect();
    let keys: HashSet<_> = nodes.iter().map(|node| node.store.cursor_key()).collect();
    let epochs: HashSet<_> = nodes.iter().map(|node| node.store.epoch()).collect();
    assert_eq!((keys.len(), epochs.len()), (1, 1));
    for (n, node) in nodes.iter().enumerate() {
        assert_eq!(node.put(book("T", json!(n))).await.version, n as i64 + 1);
    }
}

#[tokio::test]
async fn a_node_on_an_older_file_refuses_writes() {
    let Some(place) = Place::new() else { return };
    let old = place.open(schema(), None).unwrap();
    old.put(book("A", json!(1))).await;
    let mut newer = schema();
    newer.collections[BOOKS].fields.push(field("extra", Kind::String, |f| f.filter = true));
    let new = place.open(newer, None).unwrap();
    new.store.health().await.unwrap();
    let looks = async || {
        while old.store.health().await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next look
        }
    };
    within(looks()).await;
    let unwell = old.store.health().await.unwrap_err().to_string();
    assert!(unwell.contains("newer schema file"), "{unwell}");
    let refused = old.commit(book("B", json!(1))).await;
    assert!(matches!(refused, Err(Error::Outdated)), "{refused:?}");
    assert_eq!(new.put(book("C", json!(1))).await.version, 2);
    assert_eq!(old.list(&query("title", 9)).await.records.len(), 2, "it still reads");
}

#[tokio::test]
async fn an_erasure_that_fails_holds_up_no_other() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    let erasures = schema().own(model::schema::Builtin::Erasure);
    let (broken, other) = (book("Broken", json!(1)), book("Mine", json!(1)));
    let (broken, other) = (bed.put(broken).await, bed.put(other).await);
    let theirs = bed.put(model::Write { scope: THERE, ..book("Theirs", json!(1)) }).await;
    place.run(&format!("UPDATE log SET object = 'broken' WHERE record = '{}'", broken.id));
    for (scope, id) in [(HERE, &broken.id), (HERE, &other.id), (THERE, &theirs.id)] {
        let write = create(erasures, json!({"resource": id}));
        bed.put(model::Write { scope, ..write }).await;
    }
    let left = async || {
        while place.ask("SELECT count(*) FROM erasing") > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next look
        }
    };
    within(left()).await;
    place.run(&format!("UPDATE log SET object = '{{}}' WHERE record = '{}'", broken.id));
    let left = async || {
        while place.ask("SELECT count(*) FROM erasing") > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await; // waits for: the next look
        }
    };
    within(left()).await;
}

/// Creates books until there were enough rounds; the titles of those that were created, and of
/// those that were refused.
async fn write_until_over(
    store: Arc<dyn Store>,
    worker: usize,
    rounds: Arc<AtomicU64>,
) -> (Vec<String>, Vec<String>) {
    let (mut made, mut refused, mut n) = (Vec::new(), Vec::new(), 0);
    while rounds.load(Ordering::Relaxed) < 60 || made.len() < 5 {
        n += 1;
        let title = format!("W{worker} {n}");
        match store.commit(book(&title, json!(n))).await {
            Ok(answer) => {
                answer.unwrap();
                made.push(title);
            }
            Err(Error::Unavailable(_) | Error::Busy) => {
                refused.push(title);
                // waits for: the database
                tokio::time::sleep(Duration::from_millis(5)).await; // waits for: the next look
            }
            Err(Error::Unknown(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    (made, refused)
}

/// Sessions of the nodes end at any moment, also during COMMIT.
#[tokio::test]
async fn lost_connections_lose_and_double_nothing() {
    let Some(mut place) = Place::new() else { return };
    let name = format!("restive_{}", std::process::id());
    place.url = format!("{}&application_name={name}", place.url);
    let place = Arc::new(place);
    let [a, b] = [(), ()].map(|()| place.open(schema(), None).unwrap());
    let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let killer = {
        let (place, over, rounds) = (place.clone(), over.clone(), rounds.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                place.run_beside(&format!(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE application_name = '{name}'"
                ));
                rounds.fetch_add(1, Ordering::Relaxed);
                // waits for: some transactions to begin
                std::thread::sleep(Duration::from_millis(37));
            }
        })
    };
    let writers = (0..16).map(|worker| {
        let store = if worker % 2 == 0 { &a.store } else { &b.store }.clone();
        tokio::spawn(write_until_over(store, worker, rounds.clone()))
    });
    let writers: Vec<_> = writers.collect();
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for writer in writers {
        let (one, other) = within(writer).await.unwrap();
        made.extend(one);
        refused.extend(other);
    }
    over.store(true, Ordering::Relaxed);
    killer.join().unwrap();
    let rows = "SELECT count(*) FROM r_books";
    let distinct = "SELECT count(DISTINCT f_title) FROM r_books";
    assert_eq!(place.ask(rows), place.ask(distinct), "nothing is doubled");
    let events = "SELECT count(*) FROM log WHERE collection = 'books'";
    assert_eq!(place.ask(rows), place.ask(events), "a record for each event");
    assert_eq!(place.ask("SELECT max(seq) - count(*) FROM log"), 0, "no gap");
    let among = |titles: &[String]| -> i64 {
        let quoted: Vec<String> = titles.iter().map(|title| format!("'{title}'")).collect();
        let quoted = if quoted.is_empty() { "''".to_owned() } else { quoted.join(", ") };
        place.ask(&format!("SELECT count(*) FROM r_books WHERE f_title IN ({quoted})"))
    };
    assert_eq!(among(&made), made.len() as i64, "what was acknowledged is there");
    assert_eq!(among(&refused), 0, "what was refused is not");
    // Everything resumes by itself.
    let deadline = Instant::now() + Duration::from_secs(20);
    for node in [&a, &b] {
        while node.commit(book("after", json!(1))).await.is_err() {
            assert!(Instant::now() < deadline, "it does not resume");
        }
        node.store.health().await.unwrap();
    }
}

/// The transaction makes the row that says that it was committed: while it is about to end, nobody
/// else sees that row.
#[tokio::test]
async fn the_first_commit_of_a_node_without_an_answer_is_found_and_not_repeated() {
    let Some(mut place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    // COMMIT waits for a lock, which the test holds.
    let held = 7_300_000_000 + i64::from(std::process::id());
    place.run(&format!(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \
         'BEGIN PERFORM pg_advisory_xact_lock_shared({held}); RETURN NULL; END'; \
         CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON log DEFERRABLE INITIALLY DEFERRED \
         FOR EACH ROW EXECUTE FUNCTION wait()"
    ));
    let holder = place.address().connect().await.unwrap();
    holder.batch(&format!("SELECT pg_advisory_lock({held})")).await.unwrap();
    let (_, _, host, port, ..) = place.parts();
    let server = format!("{host}:{port}");
    let wire = Wire::to(server.clone());
    let (direct, name) = (place.url.clone(), format!("restive_first_{}", std::process::id()));
    place.url = place.url.replace(&server, &wire.address());
    place.url.push_str(&format!("&application_name={name}"));
    place.run("DELETE FROM writers");
    let node = place.open(schema(), None).unwrap();
    place.url = direct;
    // Upkeep at the start has transactions of its own.
    let upkeep = "SELECT count(*) FROM writers WHERE batch >= 2";
    within(async {
        while place.ask(upkeep) == 0 {
            tokio::time::sleep(Duration::from_millis(10)).await; // waits for: the next look
        }
    })
    .await;
    place.run("DELETE FROM writers");
    let writing = tokio::spawn({
        let store = node.store.clone();
        async move { store.commit(book("first", json!(1))).await }
    });
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND \
         wait_event_type = 'Lock'"
    );
    let until = async |count: i64| {
        while place.ask(&waiting) < count {
            tokio::time::sleep(Duration::from_millis(10)).await; // waits for: the next look
        }
    };
    within(until(1)).await;
    wire.cut();
    // The node looks what became of it, on another connection.
    within(until(2)).await;
    holder.batch(&format!("SELECT pg_advisory_unlock({held})")).await.unwrap();
    let made = created(within(writing).await.unwrap()).unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM r_books"), 1, "once");
    assert_eq!(node.record(BOOKS, &made.id).await, Some(made));
}

#[tokio::test]
async fn a_transaction_that_stays_open_elsewhere_holds_nobody_up() {
    let Some((place, a, b)) = pair() else { return };
    let idle = place.address().connect().await.unwrap();
    idle.batch("BEGIN; SELECT pg_current_xact_id(); CREATE TABLE elsewhere (x bigint)")
        .await
        .unwrap();
    let mut follower = Follower::new(b.store.clone(), None, 0);
    let mut seen = Vec::new();
    for n in 0..50 {
        within(a.put(book(&format!("T{n}"), json!(n)))).await;
    }
    while seen.len() < 50 {
        seen.extend(within(follower.next_batch(10)).await.unwrap().into_iter().map(|e| e.seq));
    }
    assert_eq!(seen, (1..=50).collect::<Vec<_>>());
    idle.batch("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn what_one_node_commits_reaches_a_follower_on_another_soon() {
    let Some(mut place) = Place::new() else { return };
    let name = format!("restive_soon_{}", std::process::id());
    place.url.push_str(&format!("&application_name={name}"));
    let [a, b] = [(), ()].map(|()| place.open(schema(), None).unwrap());
    // The connections that listen are made after the stores open.
    let listening = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}' AND \
         state = 'idle' AND query LIKE 'LISTEN %'"
    );
    within(async {
        while place.ask(&listening) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await; // waits for: the next look
        }
    })
    .await;
    let mut position = b.store.position();
    let mut times = Vec::new();
    for n in 0..40 {
        let made = a.put(book(&format!("T{n}"), json!(n))).await;
        let began = Instant::now();
        within(position.wait_for(|newest| *newest >= made.version)).await.unwrap();
        times.push(began.elapsed());
    }
    times.sort();
    assert!(times[20] < Duration::from_millis(100), "half take longer than {:?}", times[20]);
    println!("commit to another node: p50 {:?}, p90 {:?}", times[20], times[36]);
}

#[test]
fn a_database_that_cannot_be_used_is_refused_with_one_clear_line() {
    let Some(place) = Place::new() else { return };
    let refusal = |url: &str| -> String {
        let began = Instant::now();
        let address = Address::parse(url).unwrap();
        match PostgresStore::open(&address, Arc::new(schema())) {
            Ok(_) => panic!("{url} was opened"),
            Err(error) => {
                assert!(began.elapsed() < Duration::from_secs(30));
                error.to_string()
            }
        }
    };
    let expect = |url: &str, parts: &[&str]| {
        let found = refusal(url);
        assert!(parts.iter().all(|part| found.contains(part)), "{url}: {found}");
        assert!(!found.contains("geheim") && !found.contains('\n'), "{found}");
    };
    let (head, _) = place.url.split_once('?').unwrap();
    let (base, _) = head.rsplit_once('/').unwrap();
    expect(&format!("{base}/nowhere?schema=x"), &["nowhere", "does not exist", "createdb"]);
    expect("postgres://u:geheim@127.0.0.1:1/shop", &["127.0.0.1:1", "refused"]);
    expect("postgres://u:geheim@no-such-host.invalid/shop", &["no-such-host.invalid"]);
    expect(&format!("{head}?schema=absent_schema"), &["no schema", "CREATE SCHEMA"]);
    expect(&format!("{}&sslmode=require", place.url), &["TLS", "sslmode"]);
    place.run("CREATE TABLE theirs (x bigint)");
    expect(&place.url, &["another program", "schema="]);
    place.run("DROP TABLE theirs; REVOKE CREATE ON SCHEMA $SCHEMA FROM CURRENT_USER");
    expect(&place.url, &["does not let", "GRANT CREATE"]);
    place.run("GRANT CREATE ON SCHEMA $SCHEMA TO CURRENT_USER");
    place.open(schema(), None).unwrap();
}
/// Behind a pooler that gives each transaction another session.
struct Pooler {
    child: std::process::Child,
    address: String,
    _folder: tempfile::TempDir,
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Pooler {
    /// In front of the schema of a place. The schema is set by the pooler, since a session of a
    /// client sets nothing.
    fn before(place: &Place) -> Pooler {
        Pooler::with(place, "default_pool_size = 6")
    }

    fn with(place: &Place, pool: &str) -> Pooler {
        let (_, _, host, port, ..) = place.parts();
        Pooler::to(place, &format!("{host}:{port}"), pool)
    }

    /// The same, of another way to the server.
    fn to(place: &Place, server: &str, pool: &str) -> Pooler {
        let (user, password, _, _, database, schema) = place.parts();
        let (host, port) = server.split_once(':').unwrap();
        let folder = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = free.local_addr().unwrap().port();
        let settings = format!(
            "[databases]\n{database} = host={host} port={port} dbname={database} \
             connect_query='SET search_path = {schema}'\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {listen}\nauth_type = plain\nauth_file = {0}/users\n\
             pool_mode = transaction\n{pool}\nmax_client_conn = 200\n\
             unix_socket_dir =\n",
            folder.path().display()
        );
        std::fs::write(folder.path().join("users"), format!("\"{user}\" \"{password}\"\n"))
            .unwrap();
        std::fs::write(folder.path().join("pgbouncer.ini"), settings).unwrap();
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), readable).unwrap();
        drop(free);
        let mut pooler = std::process::Command::new("/usr/sbin/pgbouncer");
        // It does not run as root either.
        if std::fs::metadata("/proc/self")
            .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
        {
            pooler.args(["-u", "postgres"]);
        }
        let child = pooler
            .arg("-q")
            .arg(folder.path().join("pgbouncer.ini"))
            .spawn()
            .expect("pgbouncer is needed: `cargo xtask test` installs it");
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", listen)).is_err() {
            assert!(Instant::now() < deadline, "the pooler does not listen");
            std::thread::sleep(Duration::from_millis(10)); // waits for: its start
        }
        let address = format!(
            "postgres://{user}:{password}@127.0.0.1:{listen}/{database}?sslmode=disable\
             &pooler=transaction"
        );
        Pooler { child, address, _folder: folder }
    }
}

#[tokio::test]
async fn nodes_work_behind_a_pooler_in_transaction_mode() {
    let Some(mut place) = Place::new() else { return };
    let pooler = Pooler::before(&place);
    let direct = std::mem::replace(&mut place.url, pooler.address.clone());
    let [a, b] = [(), ()].map(|()| place.open(schema(), None).unwrap());
    let mut follower = Follower::new(b.store.clone(), None, 0);
    for round in 0..10 {
        let writes = (0..20).map(|n| book(&format!("T{round} {n}"), json!(n)));
        let node = if round % 2 == 0 { &a } else { &b };
        node.put_all(writes.collect::<Vec<_>>()).await;
    }
    let mut seen = Vec::new();
    while seen.len() < 200 {
        seen.extend(within(follower.next_batch(50)).await.unwrap().into_iter().map(|e| e.seq));
    }
    assert_eq!(seen, (1..=200).collect::<Vec<_>>());
    assert_eq!(b.walk(BOOKS, &query("-price,title", 7)).await.len(), 200);
    assert_eq!(a.list(&search(&["t3", "7"])).await.records.len(), 1);
    let made = a.put(keyed(book("K", json!(1)), "k", 1)).await;
    assert!(created(b.commit(keyed(book("K", json!(1)), "k", 1)).await).is_none());
    assert_eq!(b.record(BOOKS, &made.id).await, Some(made));
    a.store.health().await.unwrap();
    drop((a, b));
    place.url = direct;
}

#[tokio::test]
async fn a_node_whose_writes_wait_for_a_lock_that_somebody_keeps_is_not_healthy() {
    let Some((place, a, b)) = pair() else { return };
    a.put(book("A", json!(1))).await;
    let (.., schema) = place.parts();
    let key = format!(
        "('x' || left(encode(sha256('restive log {schema}'), 'hex'), 16))::bit(64)::bigint"
    );
    let holder = place.address().connect().await.unwrap();
    holder.batch(&format!("SELECT pg_advisory_lock({key})")).await.unwrap();
    a.store.health().await.expect("no write has failed yet");
    assert!(within(a.store.commit(book("B", json!(1)))).await.is_err());
    let begun = Instant::now();
    within(a.store.health()).await.unwrap_err();
    assert!(begun.elapsed() < Duration::from_secs(5), "it waits for the lock only for a while");
    b.store.health().await.unwrap();
    holder.batch(&format!("SELECT pg_advisory_unlock({key})")).await.unwrap();
    within(a.store.health()).await.unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM restive_room"), 0);
    a.put(book("B", json!(1))).await;
}

#[test]
fn a_pooler_that_the_url_does_not_name_is_refused() {
    let Some(mut place) = Place::new() else { return };
    for settings in [
        "default_pool_size = 6",
        "default_pool_size = 6\nserver_round_robin = 1",
        "default_pool_size = 1",
    ] {
        let pooler = Pooler::with(&place, settings);
        let unnamed = pooler.address.replace("&pooler=transaction", "");
        let direct = std::mem::replace(&mut place.url, unnamed);
        let opened = place.open(schema(), None).map(drop);
        place.url = direct;
        let Err(Error::Refused(reasons)) = opened else { panic!("{settings}: {opened:?}") };
        assert!(reasons[0].contains("add `pooler=transaction`"), "{reasons:?}");
    }
    drop(place.open(schema(), None).unwrap());
}

#[test]
fn a_file_that_ends_with_an_older_version_is_refused() {
    let Some(place) = Place::new() else { return };
    let file = |date: &str| {
        let text = format!(
            "[service]\nversion = '{date}'\n[collections.books.fields]\ntitle = 'string'\n\
             [[versions]]\ndate = '{date}'\n"
        );
        (model::parse::parse(&text).unwrap(), text)
    };
    let (newer, text) = file("2026-11-01");
    drop(place.open(newer, Some(&text)).unwrap());
    let (older, text) = file("2025-01-01");
    let Err(Error::Refused(reasons)) = place.open(older, Some(&text)).map(drop) else {
        panic!("an older version was served")
    };
    assert!(reasons[0].contains("2026-11-01"), "{reasons:?}");
    assert!(reasons[0].contains("newer schema file"), "{reasons:?}");
}

/// The first node of a new release has renamed the states, and this one has not noticed yet.
#[tokio::test]
async fn a_node_that_was_just_outdated_sets_no_timer_aside() {
    let Some(place) = Place::new() else { return };
    let bed = place.open(schema(), None).unwrap();
    let order = bed.put(create(ORDERS, json!({}))).await;
    let pay = Change::Act { action: 0, params: Fields::new(), callout: None };
    bed.put(write(ORDERS, Some(&order.id), pay)).await;
    place.run(
        "BEGIN; UPDATE timers SET transition = 'of the new release'; \
         UPDATE meta SET value = 'another' WHERE name = 'edition'; COMMIT",
    );
    let far = model::Timestamp(i64::MAX - 1);
    let found = bed.store.due(far, 10).await;
    assert!(found.is_err() || found.is_ok_and(|due| due.timers.is_empty()));
    let kept = place.ask("SELECT count(*) FROM timers WHERE due < 9223372036854775807");
    assert_eq!(kept, 1);
}

#[tokio::test]
async fn an_index_of_a_table_that_is_read_is_not_waited_for() {
    let Some(place) = Place::new() else { return };
    drop(place.open(schema(), None).unwrap());
    let open_beside_a_reader = async |index: &str| {
        place.run(index);
        let reader = place.address().connect().await.unwrap();
        reader.batch("BEGIN; SELECT n FROM r_books LIMIT 1").await.unwrap();
        let began = Instant::now();
        let opened = place.open(schema(), None);
        assert!(began.elapsed() < Duration::from_secs(30));
        reader.batch("COMMIT").await.unwrap();
        opened
    };
    let there = "SELECT count(*) FROM pg_indexes WHERE schemaname = current_schema() AND \
                 indexname LIKE '%earlier_build'";
    let bed = open_beside_a_reader("CREATE INDEX \"i_books+of_an_earlier_build\" ON r_books (n)");
    bed.await.unwrap().put(book("A", json!(1))).await;
    assert_eq!(place.ask(there), 1, "it stays until the next start");
    drop(place.open(schema(), None).unwrap());
    assert_eq!(place.ask(there), 0);
    // Many of them do not add up, and one that would refuse values is another matter: two that are
    // the same, or one that is too long.
    let many = (0..30).map(|n| {
        format!("CREATE INDEX \"i_books+{n}_of_an_earlier_build\" ON r_books (n, version)")
    });
    place.run(&many.collect::<Vec<_>>().join("; "));
    let began = Instant::now();
    drop(open_beside_a_reader("SELECT 1").await.unwrap());
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(place.ask(there), 30);
    let long = "CREATE INDEX \"i_books+f_of_an_earlier_build\" ON r_books (scope, f_title)";
    let refused = match open_beside_a_reader(long).await {
        Err(Error::Refused(reasons)) => reasons.join(" "),
        other => panic!("not refused: {:?}", other.map(drop)),
    };
    assert!(refused.contains("f_of_an_earlier_build"), "{refused}");
    drop(place.open(schema(), None).unwrap());
    assert_eq!(place.ask(there), 0);
    let unique = "CREATE UNIQUE INDEX \"u_books+of_an_earlier_build\" ON r_books (n)";
    let refused = match open_beside_a_reader(unique).await {
        Err(Error::Refused(reasons)) => reasons.join(" "),
        other => panic!("not refused: {:?}", other.map(drop)),
    };
    assert!(refused.contains("of_an_earlier_build") && refused.contains("pg_dump"), "{refused}");
    drop(place.open(schema(), None).unwrap());
    assert_eq!(place.ask(there), 0);
}

/// Nothing may be in flight behind statements that are still to be prepared: it would overtake
/// them, and COMMIT would end the transaction before its writes.
#[tokio::test]
async fn statements_that_others_pushed_out_still_run_in_their_order() {
    let Some(place) = Place::new() else { return };
    place.run("CREATE TABLE written (n bigint)");
    let client = place.address().connect().await.unwrap();
    let insert = |n: i64| Step::new("INSERT INTO written VALUES ($1)", &[n.into()]);
    client.all(&[insert(0)]).await.unwrap();
    let steps = [insert(1), Step::new("INSERT INTO written VALUES (2)", &[]), insert(3)];
    let more = (0..600).map(|n| Step::new(format!("SELECT {n}::bigint"), &[]));
    let more: Vec<Step> = more.collect();
    client.batch("BEGIN").await.unwrap();
    let ready = client.ready(&steps).await.unwrap();
    client.ready(&more).await.unwrap();
    let (written, ended) = tokio::join!(client.run(&ready), client.batch("ROLLBACK"));
    assert_eq!(written.unwrap(), [1, 1, 1]);
    ended.unwrap();
    assert_eq!(place.ask("SELECT count(*) FROM written"), 1);
}

#[tokio::test]
async fn a_tool_begins_no_epoch_and_a_server_completes_a_short_timeline() {
    let Some(place) = Place::new() else { return };
    let open = |role| {
        let clock: Clock = Arc::new(|| model::Timestamp(START));
        let steady = Some(clock.clone());
        let max_clock_difference = Duration::MAX;
        let options = Options { role, clock, steady, max_clock_difference, ..Options::default() };
        PostgresStore::open_with(&place.address(), Arc::new(schema()), options).unwrap()
    };
    let epoch = open(Role::Server).epoch();
    place.run("UPDATE meta SET value = split_part(value, '/', 1) WHERE name = 'timeline'");
    assert_eq!(open(Role::Server).epoch(), epoch);
    let complete = "SELECT count(*) FROM meta WHERE name = 'timeline' AND value LIKE '%/%/%'";
    assert_eq!(place.ask(complete), 1);
    place.run("UPDATE meta SET value = '00000009/1/1' WHERE name = 'timeline'");
    assert_eq!(open(Role::Tool).epoch(), epoch);
    assert_ne!(open(Role::Server).epoch(), epoch);
}
