//! What a key that manages keys cannot do for itself: more requests, more keys, more time, and an
//! end by accident.

use crate::harness::{Answer, Server, Start};
use serde_json::{Value, json};

fn ask(server: &Server, method: &str, path: &str, key: &str, body: &Value) -> Answer {
    server.ask(method, path).key(key).json(body).send()
}

/// A new key: its id and its text.
#[track_caller]
fn make(server: &Server, key: &str, body: &Value) -> (String, String) {
    let made = ask(server, "POST", "/v1/keys", key, body).expect(201);
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

/// An admin key of another account than the first.
fn tenant(server: &Server, more: &Value) -> (String, String) {
    let account = server.make("/v1/accounts", json!({ "name": "Acme" }));
    let mut body = json!({ "scopes": null, "admin": true, "account": account });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    make(server, &server.key, &body)
}

#[test]
fn a_tenant_cannot_raise_its_own_limit_or_multiply_it_by_more_keys() {
    let schema = "[service]\nrate_limit = { requests = 40, window = \"1h\" }\n\
                  [collections.books.fields]\ntitle = \"string\"\n";
    let server = Start::schema(schema).go();
    for more in [json!({}), json!({ "rate_limit": 40 })] {
        let (id, key) = tenant(&server, &more);
        for method in ["PATCH", "POST"] {
            let path = if method == "PATCH" { format!("/v1/keys/{id}") } else { "/v1/keys".into() };
            let mut body = json!({ "rate_limit": 4_294_967_295u32 });
            if method == "POST" {
                body["scopes"] = Value::Null;
            }
            let error = ask(&server, method, &path, &key, &body).error(403, "permission_denied");
            assert_eq!(error["param"], "rate_limit", "{error}");
        }
        let children: Vec<String> = (0..3)
            .map(|_| make(&server, &key, &json!({ "scopes": null, "rate_limit": 40 })).1)
            .collect();
        let path = format!("/v1/keys/{id}/roll");
        let rolled = ask(&server, "POST", &path, &key, &json!({})).expect(201);
        let rolled = rolled["secret"].as_str().unwrap().to_owned();
        let all = children.iter().chain([&key, &rolled]);
        let taken = all.map(|key| {
            let read = || server.ask("GET", "/v1/books").key(key).send().status;
            (0..40).map(|_| read()).filter(|status| *status == 200).count()
        });
        // Two refusals, three keys and the roll were requests, too.
        assert_eq!(taken.sum::<usize>(), 34);
    }
    // The operator gives each key a quota of its own.
    let limit = json!({ "scopes": null, "rate_limit": 100_000 });
    let (_, large) = make(&server, &server.key, &limit);
    let seen = server.ask("GET", "/v1/books").key(&large).send();
    assert_eq!(seen.header("x-ratelimit-remaining"), Some("99999"));
}

#[test]
fn an_account_has_at_most_a_thousand_keys_that_are_not_revoked() {
    let server = Start::bookshop().arg("--rate-limit").arg("100000/60s").go();
    let (own, key) = tenant(&server, &json!({}));
    let body = json!({ "scopes": ["books:read"] });
    let made = std::thread::scope(|scope| {
        let fill = || {
            let mut made = Vec::new();
            loop {
                let answer = ask(&server, "POST", "/v1/keys", &key, &body);
                match answer.status {
                    201 => made.push(answer.id()),
                    _ => {
                        answer.error(409, "too_many_records");
                        return made;
                    }
                }
            }
        };
        let tasks: Vec<_> = (0..4).map(|_| scope.spawn(fill)).collect();
        tasks.into_iter().flat_map(|task| task.join().unwrap()).collect::<Vec<_>>()
    });
    assert_eq!(made.len(), 999);
    let roll = format!("/v1/keys/{own}/roll");
    ask(&server, "POST", &roll, &key, &json!({})).error(409, "too_many_records");
    let path = format!("/v1/keys/{}", made[500]);
    ask(&server, "DELETE", &path, &key, &json!({})).expect(200);
    make(&server, &key, &body);
    ask(&server, "POST", "/v1/keys", &key, &body).error(409, "too_many_records");
    // The operator's own account and the other accounts have room.
    server.post("/v1/keys", body.clone()).expect(201);
    let (_, other) = tenant(&server, &json!({}));
    make(&server, &other, &body);
    // The operator finds each key of any account by its id.
    server.get(&format!("/v1/keys/{}", made[998])).expect(200);
}

#[test]
fn a_key_does_not_shrink_itself_by_accident_and_never_prolongs_itself() {
    let server = Server::bookshop();
    let (id, key) = make(&server, &server.key, &json!({ "scopes": null, "admin": true }));
    let path = format!("/v1/keys/{id}");
    let end = "2090-01-01T00:00:00.000Z";
    for less in [
        json!({ "admin": false }),
        json!({ "scopes": ["admin:write", "*:write"] }),
        json!({ "expires_at": end }),
    ] {
        ask(&server, "PATCH", &path, &key, &less).error(409, "own_access");
    }
    let odd = ask(&server, "PATCH", &format!("{path}?self=1"), &key, &json!({ "name": "x" }));
    odd.error(400, "invalid_parameter");
    ask(&server, "PATCH", &path, &key, &json!({ "name": "mine", "admin": true })).expect(200);
    let confirmed = format!("{path}?self=true");
    ask(&server, "PATCH", &confirmed, &key, &json!({ "expires_at": end })).expect(200);
    for longer in [json!(null), json!("2090-01-02T00:00:00.000Z")] {
        let body = json!({ "expires_at": longer });
        let error = ask(&server, "PATCH", &path, &key, &body).error(403, "permission_denied");
        assert_eq!(error["param"], "expires_at");
        ask(&server, "PATCH", &confirmed, &key, &body).error(403, "permission_denied");
    }
    ask(&server, "PATCH", &path, &server.key, &json!({ "expires_at": null })).expect(200);
    ask(&server, "PATCH", &confirmed, &key, &json!({ "admin": false })).expect(200);
    ask(&server, "PATCH", &path, &key, &json!({ "name": "x" })).error(403, "permission_denied");
}
