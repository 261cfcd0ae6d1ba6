//! Keys and accounts over HTTP: who may manage them, and that no key gives more than it has.

use crate::auth::{base64, create};
use crate::harness::{Answer, KEY, PATIENCE, Server, run};
use crate::live_client::{Opened, bearer, write};
use serde_json::{Value, json};

/// A new key over the API: its id and its text.
#[track_caller]
fn make(server: &Server, key: &str, body: Value) -> (String, String) {
    let made = server.ask("POST", "/v1/keys").key(key).json(&body).send().expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

fn ask(server: &Server, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    let ask = server.ask(method, path).key(key);
    if body.is_null() { ask.send() } else { ask.json(body).send() }
}

/// The id of the first account.
fn first_account(server: &Server) -> String {
    server.get("/v1/account").expect(200)["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_key_is_created_used_changed_rolled_and_revoked_over_the_api() {
    let server = Server::bookshop();
    let body = json!({ "name": "ci", "scopes": ["books:read", "books:read"], "rate_limit": 50 });
    let made = server.post("/v1/keys", body);
    assert_eq!(made.header("cache-control"), Some("no-store"));
    let place = made.header("location").unwrap().to_owned();
    let made = made.expect(201);
    let id = made["id"].as_str().unwrap();
    assert_eq!(place, format!("/v1/keys/{id}"));
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("rk_test_"), "{made}");
    for (member, expected) in [
        ("object", json!("key")),
        ("name", json!("ci")),
        ("account", json!(first_account(&server))),
        ("mode", json!("test")),
        ("scopes", json!(["books:read"])),
        ("admin", json!(false)),
        ("rate_limit", json!(50)),
        ("hint", json!(format!("rk_test_…{}", &secret[secret.len() - 4..]))),
        ("last_used_at", Value::Null),
        ("expires_at", Value::Null),
        ("revoked_at", Value::Null),
        ("digest", Value::Null),
    ] {
        assert_eq!(made[member], expected, "{member}");
    }
    let books = server.ask("GET", "/v1/books").key(secret).send();
    assert_eq!(books.header("x-ratelimit-limit"), Some("50"));
    books.expect(200);
    server.ask("GET", "/v1/orders").key(secret).send().error(403, "permission_denied");
    let shown = server.get(&place);
    let tag = shown.header("etag").unwrap().to_owned();
    let shown = shown.expect(200);
    assert_eq!(shown["secret"], Value::Null, "it is shown once");
    assert!(shown["last_used_at"].is_string(), "{shown}");
    let stale = server.ask("PATCH", &place).header("if-match", "\"1-1\"");
    stale.json(&json!({ "name": "x" })).send().error(412, "precondition_failed");
    let patch = server.ask("PATCH", &place).header("if-match", &tag);
    let sent = json!({ "name": "ci 2", "scopes": ["orders:read"], "hint": shown["hint"] });
    let patched = patch.json(&sent).send().expect(200);
    assert_eq!((&patched["name"], &patched["rate_limit"]), (&json!("ci 2"), &json!(50)));
    server.ask("GET", "/v1/orders").key(secret).send().expect(200);
    server.ask("GET", "/v1/books").key(secret).send().error(403, "permission_denied");
    let rolled = server.post(&format!("{place}/roll"), json!({ "overlap_hours": 1 })).expect(201);
    assert_eq!(rolled["replaces"]["id"], id);
    assert_eq!((&rolled["scopes"], &rolled["name"]), (&json!(["orders:read"]), &json!("ci 2")));
    for key in [secret, rolled["secret"].as_str().unwrap()] {
        server.ask("GET", "/v1/orders").key(key).send().expect(200);
    }
    assert_eq!(server.get(&place).expect(200)["expires_at"], rolled["replaces"]["expires_at"]);
    for _ in 0..2 {
        let gone = server.delete(&place).expect(200);
        assert_eq!(gone, json!({ "id": id, "object": "key", "deleted": true }));
        server.ask("GET", "/v1/orders").key(secret).send().error(401, "invalid_api_key");
    }
    assert!(server.get(&place).expect(200)["revoked_at"].is_string());
    let error = server.post(&format!("{place}/roll"), json!({})).error(409, "invalid_state");
    assert_eq!(error["current_state"], "revoked");
}

#[test]
fn only_a_key_with_the_admin_scope_manages_keys_and_accounts() {
    let server = Server::bookshop();
    let (_, full) = create(&server, &[]);
    let (_, all) = create(&server, &["--scope", "*:write"]);
    let (reader_id, reader) = create(&server, &["--scope", "admin:read"]);
    let body = json!({ "name": "x", "scopes": ["books:read"] });
    for key in [&full, &all] {
        for (method, path) in [
            ("GET", "/v1/keys".to_owned()),
            ("POST", "/v1/keys".to_owned()),
            ("GET", format!("/v1/keys/{reader_id}")),
            ("PATCH", format!("/v1/keys/{reader_id}")),
            ("DELETE", format!("/v1/keys/{reader_id}")),
            ("POST", format!("/v1/keys/{reader_id}/roll")),
            ("GET", "/v1/accounts".to_owned()),
            ("POST", "/v1/accounts".to_owned()),
            ("GET", format!("/v1/accounts/{}", first_account(&server))),
        ] {
            let sent = if method == "GET" { &Value::Null } else { &body };
            let error = ask(&server, method, &path, key, sent).error(403, "permission_denied");
            assert!(error["message"].as_str().unwrap().contains("`admin:"), "{path} {error}");
        }
    }
    for path in ["/v1/keys", "/v1/accounts"] {
        ask(&server, "GET", path, &reader, &Value::Null).expect(200);
        ask(&server, "POST", path, &reader, &body).error(403, "permission_denied");
        server.ask_anonymously("GET", path).send().error(401, "authentication_required");
    }
    let (_, made) = create(&server, &["--admin"]);
    ask(&server, "POST", "/v1/keys", &made, &body).expect(201);
}

#[test]
fn no_key_gives_more_than_it_has() {
    let server = Server::bookshop();
    let end = "2090-01-01T00:00:00.000Z";
    let scopes = json!(["admin:write", "books:read"]);
    let admin = json!({ "scopes": scopes, "rate_limit": 9_000, "expires_at": end });
    let (own, key) = make(&server, &server.key, admin);
    let (strong, _) = make(&server, &server.key, json!({ "scopes": null }));
    let (weak, _) = make(&server, &server.key, json!({ "scopes": ["books:read"] }));
    // A restricted key without a limit of its own has that of the service.
    let (usual, usual_key) = make(&server, &server.key, json!({ "scopes": scopes }));
    let more = json!({ "rate_limit": 4_000_000_000u32 });
    let raised = ask(&server, "PATCH", &format!("/v1/keys/{usual}"), &usual_key, &more);
    raised.error(403, "permission_denied");
    let within = |body: Value| {
        let mut body = body;
        body["rate_limit"] = 9_000.into();
        body["expires_at"] = end.into();
        body
    };
    for body in [
        within(json!({ "scopes": null })),
        within(json!({ "scopes": null, "admin": true })),
        within(json!({ "scopes": ["*:read"] })),
        within(json!({ "scopes": ["books:write"] })),
        within(json!({ "scopes": ["books:read", "orders:read"] })),
        within(json!({ "scopes": ["books:read"], "mode": "live" })),
        json!({ "scopes": ["books:read"], "rate_limit": 9_000 }),
        json!({ "scopes": ["books:read"], "expires_at": end }),
        json!({ "scopes": ["books:read"], "rate_limit": 9_001, "expires_at": end }),
    ] {
        ask(&server, "POST", "/v1/keys", &key, &body).error(403, "permission_denied");
        if body["mode"].is_null() {
            let path = format!("/v1/keys/{weak}");
            let patched = ask(&server, "PATCH", &path, &key, &body);
            patched.error(403, "permission_denied");
        }
    }
    let path = format!("/v1/keys/{strong}/roll");
    ask(&server, "POST", &path, &key, &Value::Null).error(403, "permission_denied");
    for scopes in [json!(["books:read"]), json!(["admin:read"]), json!(["admin:write"])] {
        make(&server, &key, within(json!({ "scopes": scopes })));
    }
    ask(&server, "POST", &format!("/v1/keys/{own}/roll"), &key, &Value::Null).expect(201);
    // A test key, even the operator's, creates no live key, and sees none.
    let live = json!({ "scopes": ["books:read"], "mode": "live" });
    server.post("/v1/keys", live).error(403, "permission_denied");
    let (made, error, code) =
        server.tool(&["keys", "create", "--mode", "live", "--admin", "--json"]);
    assert_eq!(code, 0, "{error}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let live_id = made["id"].as_str().unwrap();
    server.get(&format!("/v1/keys/{live_id}")).error(404, "not_found");
    let live = make(&server, made["secret"].as_str().unwrap(), json!({ "scopes": ["books:read"] }));
    assert!(live.1.starts_with("rk_live_"), "{live:?}");
}

#[test]
fn a_limit_that_the_operator_set_is_the_operators_to_raise() {
    let server = Server::bookshop();
    let account = server.post("/v1/accounts", json!({"name": "Customer"})).expect(201);
    let key = |name: &str, limit: Value| {
        let body = json!({"name": name, "scopes": null, "admin": true, "rate_limit": limit,
            "account": account["id"]});
        make(&server, KEY, body)
    };
    let (_, admin) = key("admin", Value::Null);
    let (limited, _) = key("limited", json!(5));
    let path = format!("/v1/keys/{limited}");
    for more in [Value::Null, json!(6_000)] {
        let body = json!({ "rate_limit": more });
        let refused = ask(&server, "PATCH", &path, &admin, &body).error(403, "permission_denied");
        assert_eq!(refused["param"], "rate_limit");
    }
    ask(&server, "PATCH", &path, &admin, &json!({"rate_limit": 4})).expect(200);
    server.patch(&path, json!({"rate_limit": 50})).expect(200);
    // What the customer gave itself, it may change.
    let (own, _) = make(&server, &admin, json!({"scopes": null, "rate_limit": 7}));
    let body = json!({"rate_limit": 70});
    ask(&server, "PATCH", &format!("/v1/keys/{own}"), &admin, &body).expect(200);
}

#[test]
fn pages_of_other_sites_do_not_write_with_credentials_that_the_browser_sends() {
    let server = Server::bookshop();
    let book = server.book("A");
    let basic = format!("Basic {}", base64(&format!("{KEY}:")));
    let send = |method: &str, path: &str, origin: &str, credentials: &str| {
        let ask = server.ask_anonymously(method, path).header("authorization", credentials);
        let ask = if origin.is_empty() { ask } else { ask.header("origin", origin) };
        ask.send()
    };
    let path = format!("/v1/books/{book}");
    for foreign in ["https://evil.example", "null"] {
        let refused = send("DELETE", &path, foreign, &basic);
        assert_eq!(refused.error(403, "permission_denied")["param"], "Origin");
        let keys = server.get("/v1/keys").expect(200);
        let id = keys["data"][0]["id"].as_str().unwrap();
        send("POST", &format!("/v1/keys/{id}/roll"), foreign, &basic)
            .error(403, "permission_denied");
        send("GET", &path, foreign, &basic).expect(200);
    }
    send("DELETE", &path, "https://evil.example", &format!("Bearer {KEY}")).expect(200);
    for own in ["", &server.url("")] {
        let book = server.book("B");
        send("DELETE", &format!("/v1/books/{book}"), own.trim_end_matches('/'), &basic).expect(200);
    }
}

#[test]
fn an_admin_key_of_one_account_manages_that_account_only() {
    let server = Server::bookshop();
    let first = first_account(&server);
    let made = server.post("/v1/accounts", json!({ "name": "Acme" }));
    let place = made.header("location").unwrap().to_owned();
    let other = made.id();
    assert_eq!(place, format!("/v1/accounts/{other}"));
    let body = json!({ "account": other, "scopes": null, "admin": true });
    let (tenant_id, tenant) = make(&server, &server.key, body);
    let (foreign, _) = make(&server, &server.key, json!({ "scopes": ["books:read"] }));
    let listed = ask(&server, "GET", "/v1/accounts?limit=5", &tenant, &Value::Null);
    assert_eq!(listed.column("id"), [json!(other)]);
    let listed = ask(&server, "GET", "/v1/keys", &tenant, &Value::Null);
    assert_eq!(listed.column("id"), [json!(tenant_id)]);
    let name = json!({ "name": "mine" });
    for (method, path, body) in [
        ("GET", format!("/v1/accounts/{first}"), &Value::Null),
        ("PATCH", format!("/v1/accounts/{first}"), &name),
        ("DELETE", format!("/v1/accounts/{first}"), &Value::Null),
        ("GET", format!("/v1/keys?account={first}"), &Value::Null),
        ("GET", format!("/v1/keys/{foreign}"), &Value::Null),
        ("PATCH", format!("/v1/keys/{foreign}"), &name),
        ("DELETE", format!("/v1/keys/{foreign}"), &Value::Null),
        ("POST", format!("/v1/keys/{foreign}/roll"), &Value::Null),
    ] {
        ask(&server, method, &path, &tenant, body).error(404, "not_found");
    }
    ask(&server, "POST", "/v1/accounts", &tenant, &name).error(403, "permission_denied");
    let body = json!({ "account": first, "scopes": ["books:read"] });
    ask(&server, "POST", "/v1/keys", &tenant, &body).error(422, "validation_failed");
    ask(&server, "PATCH", &place, &tenant, &name).expect(200);
    ask(&server, "DELETE", &place, &tenant, &Value::Null).error(409, "own_access");
    // The operator sees both, and manages the keys of the other account.
    let names = server.get("/v1/accounts?sort=created_at").column("name");
    assert_eq!(names, [json!("default"), json!("mine")]);
    let keys = server.get(&format!("/v1/keys?account={other}"));
    assert_eq!(keys.column("id"), [json!(tenant_id)]);
    // A deletion of the account needs it to be empty and without keys.
    let book = json!({ "title": "Dune", "author": "Frank Herbert" });
    let book = ask(&server, "POST", "/v1/books", &tenant, &book).id();
    let error = server.delete(&place).error(409, "account_in_use");
    assert!(error["message"].as_str().unwrap().contains("active test keys"), "{error}");
    let path = format!("/v1/keys/{tenant_id}");
    server.delete(&path).expect(200);
    ask(&server, "GET", "/v1/books", &tenant, &Value::Null).error(401, "invalid_api_key");
    let error = server.delete(&place).error(409, "account_in_use");
    assert!(error["message"].as_str().unwrap().contains("`books`"), "{error}");
    let body = json!({ "account": other, "scopes": ["books:write"] });
    let (id, key) = make(&server, &server.key, body);
    ask(&server, "DELETE", &format!("/v1/books/{book}"), &key, &Value::Null).expect(200);
    server.delete(&format!("/v1/keys/{id}")).expect(200);
    assert_eq!(server.delete(&place).expect(200)["deleted"], true);
    server.get(&place).error(404, "not_found");
    server.delete(&format!("/v1/accounts/{first}")).error(409, "own_access");
}

#[test]
fn a_key_does_not_end_its_own_access_by_accident_and_a_revoked_key_ends_its_connections() {
    let server = Server::bookshop();
    let (id, key) = make(&server, &server.key, json!({ "scopes": null, "admin": true }));
    let path = format!("/v1/keys/{id}");
    ask(&server, "DELETE", &path, &key, &Value::Null).error(409, "own_access");
    let at_once = json!({ "overlap_hours": 0 });
    ask(&server, "POST", &format!("{path}/roll"), &key, &at_once).error(409, "own_access");
    let odd = format!("{path}?self=1");
    ask(&server, "DELETE", &odd, &key, &Value::Null).error(400, "invalid_parameter");
    let stream =
        Opened::try_get(server.address, "/api/events", &[bearer(&key)], PATIENCE * 2).unwrap();
    ask(&server, "DELETE", &format!("{path}?self=true"), &key, &Value::Null).expect(200);
    ask(&server, "GET", "/v1/books", &key, &Value::Null).error(401, "invalid_api_key");
    write(&server, "after the revocation");
    let told = stream.events().rest();
    let last = told.last().unwrap();
    assert!(last.is("stream.closing"), "{last:?}");
    assert_eq!(last.json()["reason"], "key_revoked");
}

#[test]
fn a_key_that_is_restricted_ends_its_connections_and_its_tokens() {
    let server = Server::bookshop();
    let (id, key) = make(&server, &server.key, json!({ "scopes": null }));
    let body = json!({ "user": "ann" });
    let made = ask(&server, "POST", "/v1/channel-tokens", &key, &body).expect(201);
    let token = made["token"].as_str().unwrap();
    let poll = || server.ask("GET", "/api/messages").key(token).send();
    poll().expect(200);
    let stream =
        Opened::try_get(server.address, "/api/events", &[bearer(&key)], PATIENCE * 2).unwrap();
    let path = format!("/v1/keys/{id}");
    // Another name changes nothing of what the key may do.
    ask(&server, "PATCH", &path, &server.key, &json!({ "name": "renamed" })).expect(200);
    poll().expect(200);
    let less = json!({ "scopes": ["books:read"] });
    ask(&server, "PATCH", &path, &server.key, &less).expect(200);
    poll().error(401, "invalid_api_key");
    write(&server, "after the restriction");
    let told = stream.events().rest();
    let last = told.last().unwrap();
    assert!(last.is("stream.closing"), "{last:?}");
    ask(&server, "GET", "/v1/books", &key, &Value::Null).expect(200);
}

#[test]
fn a_repeated_creation_makes_one_key_and_shows_its_text_once() {
    let server = Server::bookshop();
    let account = server.make("/v1/accounts", json!({ "name": "Acme" }));
    for body in
        [json!({ "scopes": ["books:read"] }), json!({ "account": account, "scopes": ["*:read"] })]
    {
        let ask = |body: &Value| {
            server.ask("POST", "/v1/keys").header("idempotency-key", "once").json(body).send()
        };
        let first = ask(&body);
        let again = ask(&body);
        assert_eq!(again.header("idempotent-replayed"), Some("true"));
        assert_eq!((first.id(), again.status), (again.id(), 201));
        assert!(first.json["secret"].is_string() && again.json["secret"].is_null());
        let other = json!({ "scopes": ["orders:read"], "account": body["account"] });
        ask(&other).error(422, "idempotency_key_reused");
        let roll = || {
            let path = format!("/v1/keys/{}/roll", first.id());
            let ask = server.ask("POST", &path).header("idempotency-key", "roll");
            ask.json(&json!({ "overlap_hours": 0 })).send()
        };
        assert_eq!(roll().id(), roll().id());
        // The next account has its own keys.
    }
    let mut pages = vec![server.get("/v1/keys?limit=1")];
    while let Some(cursor) = pages.last().unwrap().json["pagination"]["next_cursor"].as_str() {
        pages.push(server.get(&format!("/v1/keys?limit=1&after={cursor}")));
    }
    let ids: Vec<Value> = pages.iter().flat_map(|page| page.column("id")).collect();
    assert_eq!(ids.len(), 3, "the key of the server, one, and its successor");
    let cursor = pages[0].json["pagination"]["next_cursor"].as_str().unwrap();
    let foreign = format!("/v1/keys?limit=1&account={account}&after={cursor}");
    server.get(&foreign).error(400, "cursor_invalid");
}

#[test]
fn bad_input_about_keys_and_accounts_is_refused_with_a_reason() {
    let server = Server::bookshop();
    let (id, _) = make(&server, &server.key, json!({ "scopes": ["books:read"] }));
    let key = format!("/v1/keys/{id}");
    let roll = format!("{key}/roll");
    let account = format!("/v1/accounts/{}", first_account(&server));
    let long = "x".repeat(201);
    let scopes = json!(["books:read"]);
    for (method, path, body) in [
        ("POST", "/v1/keys", json!({})),
        ("POST", "/v1/keys", json!({ "scopes": [] })),
        ("POST", "/v1/keys", json!({ "scopes": "books:read" })),
        ("POST", "/v1/keys", json!({ "scopes": [1] })),
        ("POST", "/v1/keys", json!({ "scopes": ["boks:read"] })),
        ("POST", "/v1/keys", json!({ "scopes": ["books"] })),
        ("POST", "/v1/keys", json!({ "scopes": [long] })),
        ("POST", "/v1/keys", json!({ "scopes": vec!["books:read"; 201] })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "name": long })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "name": 1 })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "name": "a\u{0}b" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "mode": "prod" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "account": "acct_unknown" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "admin": true })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "rate_limit": 0 })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "rate_limit": 4_294_967_296u64 })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "expires_at": "soon" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "expires_at": "2020-01-01T00:00:00Z" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "secret": "sk_test_mine" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "digest": "00" })),
        ("POST", "/v1/keys", json!({ "scopes": scopes, "id": "key_mine" })),
        ("PATCH", &key, json!({ "mode": "live" })),
        ("PATCH", &key, json!({ "revoked_at": "2020-01-01T00:00:00Z" })),
        ("PATCH", &key, json!({ "digest": "00" })),
        ("PATCH", &key, json!({ "scopes": [] })),
        ("PATCH", &key, json!({ "expires_at": "2020-01-01T00:00:00Z" })),
        ("POST", &roll, json!({ "overlap_hours": -1 })),
        ("POST", &roll, json!({ "overlap_hours": 721 })),
        ("POST", &roll, json!({ "overlap": 1 })),
        ("POST", &roll, json!({ "overlap_hours": 1, "other": null })),
        ("POST", &roll, json!({ "overlap_hours": "1" })),
        ("POST", &roll, json!({ "overlap_hours": 1.5 })),
        ("POST", &roll, json!({ "overlap_hours": true })),
        ("POST", "/v1/accounts", json!({})),
        ("POST", "/v1/accounts", json!({ "name": "" })),
        ("POST", "/v1/accounts", json!({ "name": long })),
        ("POST", "/v1/accounts", json!({ "name": "x", "api_version": "2020-01-01" })),
        ("PATCH", &account, json!({ "name": null })),
        ("PATCH", &account, json!({ "api_version": "2020-01-01" })),
        ("PATCH", &account, json!({ "id": "acct_other" })),
    ] {
        ask(&server, method, path, &server.key, &body).error(422, "validation_failed");
    }
}

#[test]
fn unknown_paths_and_parameters_of_keys_and_accounts_are_refused_with_a_reason() {
    let server = Server::bookshop();
    for (method, path, status, code) in [
        ("GET", "/v1/keys?fields=id", 400, "unknown_parameter"),
        ("GET", "/v1/keys?scopes=x", 400, "unknown_parameter"),
        ("GET", "/v1/keys?digest=00", 400, "unknown_parameter"),
        ("GET", "/v1/keys/key_x?fields=id", 400, "unknown_parameter"),
        ("GET", "/v1/keys?limit=9223372036854775808", 400, "invalid_parameter"),
        ("GET", "/v1/accounts?account=x", 400, "unknown_parameter"),
        ("GET", "/v1/keys?limit=0", 400, "invalid_parameter"),
        ("GET", "/v1/keys?after=x", 400, "cursor_invalid"),
        ("GET", "/v1/keys?account=acct_unknown", 404, "not_found"),
        ("GET", "/v1/keys/key_unknown", 404, "not_found"),
        ("GET", "/v1/accounts/acct_unknown", 404, "not_found"),
        ("DELETE", "/v1/accounts/acct_unknown", 404, "not_found"),
        ("PUT", "/v1/keys", 405, "method_not_allowed"),
        ("GET", "/v1/keys/key_x/roll", 405, "method_not_allowed"),
        ("GET", "/v1/keys/key_x/other", 404, "route_not_found"),
        ("POST", "/v1/keys", 400, "malformed_json"),
    ] {
        ask(&server, method, path, &server.key, &Value::Null).error(status, code);
    }
    // An error offers what is accepted.
    for (path, known) in [
        ("/v1/keys?acount=x", "`limit`, `after`, `page`, `sort`, `account`"),
        ("/v1/accounts?nme=x", "`limit`, `after`, `page`, `sort`"),
    ] {
        let error = server.get(path).error(400, "unknown_parameter");
        let message = error["message"].as_str().unwrap();
        assert!(
            ["digest", "expand", "fields"].iter().all(|one| !message.contains(one)),
            "{message}"
        );
        assert!(known.split(", ").all(|one| message.contains(one.trim_matches('`'))), "{message}");
    }
    let folder = tempfile::TempDir::new().unwrap();
    let schema = "[collections.requests.fields]\nname = 'string'\n";
    std::fs::write(folder.path().join("restive.toml"), schema).unwrap();
    let (_, error, code) = run(folder.path(), &["check"]);
    assert!(code != 0 && error.contains("requests"), "{error}");
}
