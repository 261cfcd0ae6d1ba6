//! Keys: rotation and lists must not give a key more than its owner granted, and no key may be out
//! of reach of the command line. Credentials that permit no event open no channel.

use crate::auth::{account, create};
use crate::database;
use crate::harness::{PATIENCE, Server, eventually};
use crate::live_client::{Opened, Socket, bearer};
use api::Outside;
use api::keys::{Keyring, NewKey};
use model::Timestamp;
use model::id::Entropy;
use model::parse;
use model::schema::{BOOKSHOP, Schema};
use model::write::{Cause, Change, Precondition, Write};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::Store;
use store::sqlite::Role;
use tokio::task::JoinSet;

struct System;

impl Outside for System {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Timestamp(since.as_millis().try_into().unwrap())
    }

    fn uptime(&self) -> Duration {
        Duration::ZERO
    }

    fn entropy(&self) -> Entropy {
        let mut bytes = [0; 32];
        getrandom::fill(&mut bytes).unwrap();
        Entropy(bytes)
    }
}

/// The time in some seconds.
fn in_seconds(seconds: i64) -> String {
    Timestamp(System.now().0 + seconds * 1_000).to_iso()
}

/// Opens the data of a running server, as the commands do.
fn attach(server: &Server) -> (Arc<Schema>, Arc<dyn Store>) {
    let schema = Arc::new(parse::parse(BOOKSHOP).unwrap());
    let store = database::open(server.folder.path(), &schema, Role::Tool);
    (schema, store)
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// Changes the stored fields of a key.
fn damage(server: &Server, id: &str, patch: &Value) {
    let (schema, store) = attach(server);
    block_on(async {
        let keyring = Keyring { schema: &schema, store: &*store, outside: &System };
        let account = keyring.accounts().await.unwrap().remove(0);
        let write = Write {
            scope: Keyring::scope(&account, false),
            collection: schema.find("keys").unwrap(),
            id: Some(id.to_owned()),
            parent: None,
            change: Change::Merge { patch: patch.as_object().unwrap().clone() },
            view: None,
            precondition: Precondition::None,
            idempotency: None,
            cause: Cause::default(),
            now: System.now(),
            entropy: System.entropy(),
        };
        store.commit(write).await.unwrap().unwrap();
    });
}

/// The line of `keys list` about a key.
fn line(server: &Server, id: &str) -> String {
    let (list, error, code) = server.tool(&["keys", "list"]);
    assert_eq!(code, 0, "{error}");
    list.lines().find(|line| line.starts_with(id)).unwrap_or_default().to_owned()
}

#[test]
fn a_rolled_key_expires_when_the_old_key_was_to_expire() {
    let server = Server::bookshop();
    let end = in_seconds(3_600);
    let (old, _) = create(&server, &["--expires-at", &end]);
    let (text, error, code) = server.tool(&["keys", "roll", &old, "--overlap", "24"]);
    assert_eq!(code, 0, "{error}");
    assert!(text.contains(&format!("{old} works until {end}")), "{text}");
    let new = text.split_whitespace().next().unwrap();
    assert!(line(&server, new).contains(" expiring "), "{}", line(&server, new));
    let (text, error, code) = server.tool(&["keys", "roll", &old, "--overlap", "0"]);
    assert_eq!(code, 0, "{error}");
    assert!(!text.contains(&format!("{old} works until {end}")), "the overlap is shorter: {text}");
}

#[test]
fn an_expired_key_cannot_be_rolled() {
    let server = Server::bookshop();
    let (id, _) = create(&server, &[]);
    damage(&server, &id, &json!({ "expires_at": in_seconds(-60) }));
    assert!(line(&server, &id).contains(" expired "), "{}", line(&server, &id));
    let (text, error, code) = server.tool(&["keys", "roll", &id]);
    assert!(code == 1 && error.contains("is expired"), "{text}{error}");
    assert!(line(&server, &id).contains(" expired "), "it is still expired");
}

#[test]
fn a_restricted_key_without_readable_scopes_cannot_be_rolled() {
    let server = Server::bookshop();
    let (id, secret) = create(&server, &["--scope", "books:read"]);
    for scopes in [Value::Null, json!([]), json!(["books"]), json!(["books:read", "orders:own"])] {
        damage(&server, &id, &json!({ "scopes": scopes }));
        let (text, error, code) = server.tool(&["keys", "roll", &id]);
        assert!(code == 1 && error.contains("scopes"), "{scopes}: {text}{error}");
        eventually("the key has no more than before", || {
            server.ask("GET", "/v1/orders").key(&secret).send().status == 403
        });
    }
    damage(&server, &id, &json!({ "scopes": ["books:read"] }));
    let (text, error, code) = server.tool(&["keys", "roll", &id]);
    assert_eq!(code, 0, "{error}");
    let new = text.split_whitespace().nth(1).unwrap();
    assert!(new.starts_with("rk_test_"), "{text}");
    server.ask("GET", "/v1/orders").key(new).send().error(403, "permission_denied");
}

/// More keys and accounts than one query returns.
#[test]
fn every_key_of_an_account_with_more_than_1000_keys_can_be_listed_revoked_and_rolled() {
    const MANY: usize = 1_003;
    let server = Server::bookshop();
    let (schema, store) = attach(&server);
    let last = block_on(async {
        let keyring = Keyring { schema: &schema, store: &*store, outside: &System };
        let account = keyring.accounts().await.unwrap().remove(0);
        let mut last = (String::new(), String::new());
        for batch in 0..MANY.div_ceil(50) {
            let mut tasks = JoinSet::new();
            for number in batch * 50..MANY.min(batch * 50 + 50) {
                let (schema, store, account) = (schema.clone(), store.clone(), account.clone());
                tasks.spawn(async move {
                    let keyring = Keyring { schema: &schema, store: &*store, outside: &System };
                    keyring.create_account(&format!("account {number}")).await.unwrap();
                    let made = keyring.create_key(&account, false, NewKey::default()).await;
                    let made = made.unwrap();
                    (made.record.id, made.secret)
                });
            }
            last = tasks.join_all().await.pop().unwrap();
        }
        last
    });
    let (list, _, _) = server.tool(&["keys", "list"]);
    let listed = list.lines().filter(|line| line.starts_with("key_")).count();
    assert!(listed >= MANY, "{listed}");
    let (accounts, _, _) = server.tool(&["accounts", "list"]);
    let listed = accounts.lines().filter(|line| line.starts_with("acct_")).count();
    assert_eq!(listed, MANY + 1);
    let (newest, test, _) = account(&server, "the newest");
    let (_, error, code) = server.tool(&["keys", "create", "--account", &newest]);
    assert_eq!(code, 0, "{error}");
    let (text, error, code) = server.tool(&["keys", "roll", &last.0]);
    assert_eq!(code, 0, "{error}");
    let rolled = text.split_whitespace().next().unwrap().to_owned();
    for id in [&last.0, &rolled] {
        let (_, error, code) = server.tool(&["keys", "revoke", id]);
        assert_eq!(code, 0, "{error}");
    }
    eventually("the key is refused", || {
        server.ask("GET", "/v1/books").key(&last.1).send().status == 401
    });
    server.ask("GET", "/v1/books").key(&test).send().expect(200);
}

#[test]
fn credentials_that_permit_no_event_open_no_channel() {
    let server = Server::bookshop();
    let (_, books) = create(&server, &["--scope", "books:read"]);
    let (_, tokens) = create(&server, &["--scope", "channel-tokens:write"]);
    let (_, log) = create(&server, &["--scope", "events:read"]);
    let (_, present) = create(&server, &["--scope", "presence:read"]);
    for (key, query, expected) in [
        (&books, "?types=report.ready", 403),
        (&books, "?types=report.*", 403),
        (&books, "?types=*", 200),
        (&books, "?types=book.*", 200),
        (&books, "", 200),
        (&tokens, "", 403),
        (&tokens, "?types=*", 403),
        (&log, "?types=report.ready", 200),
        (&log, "", 200),
        (&present, "", 200),
        (&present, "?types=*", 200),
        (&present, "?types=online", 200),
    ] {
        let path = format!("/api/events{query}");
        let opened = Opened::try_get(server.address, &path, &[bearer(key)], PATIENCE).unwrap();
        assert_eq!(opened.status, expected, "{key} {path}");
        let path = format!("/ws{query}");
        let opened = Socket::ask(server.address, &path, &[bearer(key)], PATIENCE).unwrap();
        let expected = if expected == 200 { 101 } else { expected };
        assert_eq!(opened.status, expected, "{key} {path}");
    }
}

#[test]
fn a_token_that_permits_no_event_is_not_made() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    let scopes = ["--scope", "books:read", "--scope", "channel-tokens:write"];
    let (_, key) = create(&server, &scopes);
    let ask = |body: Value| server.ask("POST", "/v1/channel-tokens").key(&key).json(&body).send();
    for body in [
        json!({ "types": ["order.*"] }),
        json!({ "types": ["report.ready", "order.paid"] }),
        json!({ "types": ["book.*"], "resources": ["order_01hzxk4vqjv6d1mtw0rkd5h8aa"] }),
        json!({ "resources": ["order_01hzxk4vqjv6d1mtw0rkd5h8aa"] }),
    ] {
        ask(body).error(403, "permission_denied");
    }
    for body in [
        json!({}),
        json!({ "types": ["order.*", "book.created"] }),
        json!({ "types": ["*"] }),
        json!({ "types": ["book.*"], "resources": [book] }),
    ] {
        ask(body).expect(201);
    }
    let (_, only) = create(&server, &["--scope", "channel-tokens:write"]);
    let none = server.ask("POST", "/v1/channel-tokens").key(&only).json(&json!({})).send();
    none.error(403, "permission_denied");
}
