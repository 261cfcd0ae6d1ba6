//! What a request must not gain by saying nothing, by saying it twice, or by saying it too late:
//! the client's address, credentials, origins, trailers, handler responses and scopes.

use crate::deadline::Deadline as _;
use crate::deliveries::figure;
use crate::handlers::Handler;
use crate::harness::{Answer, KEY, PATIENCE, Server, Start, eventually};
use crate::live_client::{Opened, Socket, bearer, token};
use crate::sink::{Manner, Sink};
use serde_json::{Value, json};
use std::process::Command;

const DESK: &str = "[collections.books.fields]
title = \"string\"
stamped_by = { type = \"string\", read_only = true }
[collections.books.actions.stamp]
set = { title = \"stamped\" }
[[collections.books.actions.stamp.rules]]
when = \"!client.startsWith('127.')\"
status = 403
code = \"not_at_the_desk\"
message = \"Only at the desk.\"
[collections.books.actions.sign]
set = { stamped_by = \"=client\" }
[collections.books.actions.ban]
set = { title = \"banned\" }
[[collections.books.actions.ban.rules]]
when = \"client == '192.0.2.1'\"
status = 403
code = \"banned\"
message = \"Not from there.\"
[collections.books.actions.plain]
set = { title = \"plain\" }
";

#[test]
fn a_rule_about_the_client_refuses_while_the_client_is_not_known() {
    for version in ["http1", "http2"] {
        let server = Start::schema(DESK).arg("--trusted-proxies").arg("127.0.0.0/8").go();
        let server = server.over(version);
        let book = server.make("/v1/books", json!({"title": "Dune"}));
        let act = |action: &str| server.ask("POST", &format!("/v1/books/{book}/{action}"));
        for action in ["stamp", "ban", "sign"] {
            act(action).send().error(500, "rule_failed");
        }
        assert_eq!(server.get(&format!("/v1/books/{book}")).expect(200)["title"], "Dune");
        eventually("the log says why", || server.log.lock().unwrap().contains("X-Forwarded-For"));
        act("plain").send().expect(200);
        let named = act("stamp").header("x-forwarded-for", "127.0.0.9").send();
        assert_eq!(named.expect(200)["title"], "stamped", "{version}");
        act("ban").header("x-forwarded-for", "192.0.2.1").send().error(403, "banned");
        act("stamp").header("x-forwarded-for", "192.0.2.1").send().error(403, "not_at_the_desk");
    }
}

#[test]
fn a_rule_about_the_client_refuses_what_the_proxy_protocol_leaves_unknown() {
    let start = Start::schema(DESK).arg("--trusted-proxies").arg("127.0.0.1");
    let server = start.arg("--proxy-protocol").arg("on").go();
    let ask = |introduction: &[u8], line: &str, body: &str| {
        let head = format!(
            "{line} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {KEY}\r\nX-Forwarded-For: \
             127.0.0.9\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: \
             close\r\n\r\n{body}",
            body.len()
        );
        server.raw(&[introduction, head.as_bytes()].concat())
    };
    let local: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    let unspecified: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0";
    let made = ask(local, "POST /v1/books", "{\"title\":\"Dune\"}");
    assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
    let made: Value = serde_json::from_str(made.split_once("\r\n\r\n").unwrap().1).unwrap();
    let stamp = format!("POST /v1/books/{}/stamp", made["id"].as_str().unwrap());
    for (introduction, status) in [
        (&b"PROXY UNKNOWN\r\n"[..], "500"),
        (local, "500"),
        (unspecified, "500"),
        (b"PROXY TCP4 192.0.2.7 10.0.0.1 4711 80\r\n", "403"),
    ] {
        let answer = ask(introduction, &stamp, "");
        assert_eq!(&answer[9..12], status, "{introduction:?}: {answer}");
    }
}

#[test]
fn a_handler_response_with_ambiguous_framing_is_no_consent() {
    let handler = Handler::start();
    let server = handler.server();
    let coded = "HTTP/1.1 204 No Content\r\ntransfer-encoding:";
    let whole = "HTTP/1.1 200 OK\r\ntransfer-encoding:";
    let refusal = "1f\r\n{\"error\":{\"message\":\"refused\"}}\r\n0\r\n\r\n";
    for (response, code) in [
        (format!("{coded} chunked\r\n\r\n{refusal}"), "handler_invalid"),
        (format!("{coded} chunked\r\n\r\n0\r\n\r\n"), "handler_invalid"),
        (format!("{coded} identity\r\n\r\n"), "handler_invalid"),
        (format!("{whole} gzip, chunked\r\n\r\n0\r\n\r\n"), "handler_invalid"),
        (format!("{whole} gzip\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"), "handler_invalid"),
        (format!("{whole} chunked, chunked\r\n\r\n0\r\n\r\n"), "handler_invalid"),
    ] {
        let id = server.make("/v1/orders", json!({"amount": 5}));
        let path = format!("/v1/orders/{id}");
        let before = server.get(&path).text;
        handler.will_send(&response);
        let answer = server.post(&format!("{path}/approve"), json!({"by": "Ada"}));
        assert_eq!(answer.status, 502, "{response:?}: {}", answer.text);
        answer.error(502, code);
        assert_eq!(server.get(&path).text, before, "{response:?}");
    }
}

/// A restricted key with these scopes.
fn key(server: &Server, scopes: &[&str]) -> String {
    let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
    let arguments: Vec<&str> = ["keys", "create"].into_iter().chain(scopes).collect();
    let (out, error, code) = server.tool(&arguments);
    assert_eq!(code, 0, "{error}");
    out.split_whitespace().find(|word| word.starts_with("rk_test_")).unwrap().to_owned()
}

const EVENTS: &str = "[webhooks]
development = true
[collections.books.fields]
title = \"string\"
[collections.orders.fields]
amount = \"integer\"
[events.types.\"report.ready\"]
";

#[test]
fn a_restricted_key_sends_only_events_to_an_endpoint_that_it_may_read() {
    let server = Start::schema(EVENTS).go();
    let sink = Sink::start();
    sink.will(Manner::status(200));
    let url = json!(sink.url());
    let with = |key: &str, method: &str, path: &str, body: &Value| -> Answer {
        server.ask(method, path).key(key).json(body).send()
    };
    let (endpoints, books) = ("webhook-endpoints:write", "books:read");
    for (scopes, events, status) in [
        (&[endpoints][..], json!(null), 403),
        (&[endpoints], json!(["*"]), 403),
        (&[endpoints], json!(["book.*"]), 403),
        (&[endpoints], json!(["report.ready"]), 403),
        (&[endpoints], json!(["webhook_endpoint.disabled", "webhook_endpoint.failing"]), 201),
        (&[endpoints, books], json!(["book.*"]), 201),
        (&[endpoints, books], json!(["book.created", "order.created"]), 403),
        (&[endpoints, books], json!(["report.ready"]), 403),
        (&[endpoints, books], json!(["*"]), 403),
        (&[endpoints, "events:read"], json!(["*"]), 201),
        (&["*:write"], json!(["*"]), 201),
    ] {
        let mut body = json!({"url": url});
        if !events.is_null() {
            body["enabled_events"] = events.clone();
        }
        let made = with(&key(&server, scopes), "POST", "/v1/webhook-endpoints", &body);
        assert_eq!(made.status, status, "{scopes:?} {events}: {}", made.text);
        if status == 403 {
            let error = made.error(403, "permission_denied");
            assert!(error["message"].as_str().unwrap().contains("events:read"), "{error}");
        }
    }
}

#[test]
fn a_restricted_key_has_no_events_sent_elsewhere_that_it_may_not_read() {
    let server = Start::schema(EVENTS).go();
    let sink = Sink::start();
    sink.will(Manner::status(200));
    let url = json!(sink.url());
    let with = |key: &str, method: &str, path: &str, body: &Value| -> Answer {
        server.ask(method, path).key(key).json(body).send()
    };
    let (endpoints, books) = ("webhook-endpoints:write", "books:read");
    let all = server.make("/v1/webhook-endpoints", json!({"url": url, "enabled_events": ["*"]}));
    let some = json!({"url": url, "enabled_events": ["book.*"]});
    let some = server.make("/v1/webhook-endpoints", some);
    let reader = key(&server, &[endpoints, books, "replays:write"]);
    let elsewhere = Sink::start();
    let elsewhere = json!(elsewhere.url());
    for (id, change, status) in [
        (&all, json!({"url": url}), 403),
        (&all, json!({"filter": "event.livemode"}), 403),
        (&all, json!({"filter": null}), 403),
        (&all, json!({"payload": "fat"}), 403),
        (&all, json!({"description": "x"}), 200),
        (&all, json!({"status": "disabled"}), 200),
        // Another one has disabled it, perhaps because of its receiver.
        (&all, json!({"status": "enabled"}), 403),
        (&some, json!({"status": "enabled"}), 200),
        (&some, json!({"enabled_events": ["*"]}), 403),
        (&some, json!({"enabled_events": ["order.created"]}), 403),
        (&some, json!({"enabled_events": ["book.created"]}), 200),
        (&some, json!({"url": url, "payload": "thin"}), 200),
        // What waits for the endpoint, also of other types, would go to the new address.
        (&some, json!({"url": elsewhere}), 403),
        (&some, json!({"url": elsewhere, "enabled_events": ["book.created"]}), 403),
        (&all, json!({"url": elsewhere, "enabled_events": ["webhook_endpoint.disabled"]}), 403),
        (&all, json!({"enabled_events": ["webhook_endpoint.disabled"]}), 200),
        (&all, json!({"url": elsewhere}), 403),
        (&all, json!({"url": null}), 422),
    ] {
        let path = format!("/v1/webhook-endpoints/{id}");
        let answer = with(&reader, "PATCH", &path, &change);
        assert_eq!(answer.status, status, "{change}: {}", answer.text);
    }
    let path = format!("/v1/webhook-endpoints/{all}");
    assert_eq!(with(KEY, "PATCH", &path, &json!({"enabled_events": ["*"]})).status, 200);
    for (id, action, status) in
        [(&all, "enable", 403), (&all, "disable", 200), (&some, "disable", 200)]
    {
        let path = format!("/v1/webhook-endpoints/{id}/{action}");
        let answer = with(&reader, "POST", &path, &json!({}));
        assert_eq!(answer.status, status, "{action}: {}", answer.text);
    }
    let enable = format!("/v1/webhook-endpoints/{some}/enable");
    assert_eq!(with(&reader, "POST", &enable, &json!({})).status, 200);
    for (body, status) in [
        (json!({"endpoint": all}), 403),
        (json!({"endpoint": some, "types": ["*"]}), 403),
        (json!({"endpoint": some, "types": ["order.created"]}), 403),
        (json!({"endpoint": some, "types": ["book.*"]}), 201),
        (json!({"endpoint": some}), 201),
    ] {
        let answer = with(&reader, "POST", "/v1/replays", &body);
        assert_eq!(answer.status, status, "{body}: {}", answer.text);
    }
    let absent = json!({"endpoint": "we_01hzxk4vqjv6d1mtw0rkd5h8aa"});
    assert!(with(&reader, "POST", "/v1/replays", &absent).status < 500);
    assert_eq!(with(KEY, "POST", "/v1/replays", &json!({"endpoint": all})).status, 201);
}

#[test]
fn conditions_and_keys_in_trailers_are_refused_and_nothing_is_written() {
    let server = Server::bookshop();
    let book = server.book("Dune");
    for name in [
        "If-Match",
        "If-None-Match",
        "If-Modified-Since",
        "If-Unmodified-Since",
        "If-Range",
        "Range",
        "Idempotency-Key",
        "Restive-Version",
    ] {
        let answer = server.raw(
            format!(
                "PATCH /v1/books/{book} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
                 Authorization: Bearer {KEY}\r\nContent-Type: application/json\r\n\
                 Transfer-Encoding: chunked\r\n\r\n10\r\n{{\"title\":\"Emma\"}}\r\n0\r\n{name}: \
                 \"x\"\r\n\r\n"
            )
            .as_bytes(),
        );
        assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("trailer"), "{answer}");
    }
    assert_eq!(server.get("/v1/books").titles(), ["Dune"]);
}

#[test]
fn a_channel_takes_exactly_one_credential() {
    let server = Server::bookshop();
    let made = token(&server, json!({ "user": "ann" }));
    let bogus = bearer("sk_test_nobody_0123456789");
    let (own, ticket) = (bearer(KEY), bearer(&made));
    let protocol = format!("Sec-WebSocket-Protocol: restive.v1, access_token.{made}");
    let twice = format!("{protocol}, access_token.{made}");
    let plain = "/api/messages";
    let named = format!("{plain}?access_token={made}");
    for (path, headers) in [
        (named.as_str(), vec![bogus.clone()]),
        (&named, vec![own.clone()]),
        (&named, vec![ticket.clone()]),
        (&format!("{named}&access_token={made}"), vec![]),
        (plain, vec![own.clone(), bogus.clone()]),
        (plain, vec![ticket.clone(), bogus.clone()]),
        (&format!("/api/events?access_token={made}"), vec![bogus.clone()]),
    ] {
        let answer = Opened::try_get(server.address, path, &headers, PATIENCE).unwrap();
        assert_eq!(answer.status, 400, "{path} {headers:?}: {}", answer.head);
    }
    for (path, headers) in [
        ("/ws".to_owned(), vec![bogus.clone(), protocol.clone()]),
        ("/ws".to_owned(), vec![twice]),
        (format!("/ws?access_token={made}"), vec![protocol.clone()]),
        ("/ws".to_owned(), vec![own.clone(), ticket]),
    ] {
        let answer = Socket::ask(server.address, &path, &headers, PATIENCE).unwrap();
        assert_eq!(answer.status, 400, "{path} {headers:?}: {}", answer.head);
    }
    for headers in [vec![own.clone()], vec![protocol]] {
        let answer = Socket::ask(server.address, "/ws", &headers, PATIENCE).unwrap();
        assert_eq!(answer.status, 101, "{headers:?}: {}", answer.head);
    }
    let origin = format!("Origin: http://{}", server.address);
    for second in ["Origin: https://evil.example", &origin] {
        let headers = [own.clone(), origin.clone(), second.to_owned()];
        let answer = Socket::ask(server.address, "/ws", &headers, PATIENCE).unwrap();
        assert_eq!(answer.status, 403, "{second}: {}", answer.head);
        for path in [plain, "/api/events"] {
            let answer = Opened::try_get(server.address, path, &headers, PATIENCE).unwrap();
            assert_eq!(answer.status, 403, "{path} {second}: {}", answer.head);
        }
    }
}

/// A request for a WebSocket that is refused in any case: 403 for its origin, or 400 for its types.
fn origin_status(server: &Server, secure: bool, headers: &[String]) -> u16 {
    let scheme = if secure { "https" } else { "http" };
    let mut command = Command::new("curl");
    command.args(["-sSk", "--http1.1", "--max-time", "20", "-o", "/dev/null", "-w"]);
    command.arg("%{http_code}");
    for line in [
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        &bearer(KEY),
    ] {
        command.args(["-H", line]);
    }
    for line in headers {
        command.args(["-H", line]);
    }
    command.arg(format!("{scheme}://{}/ws?types=", server.address));
    let output = command.output_in_time().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().parse().unwrap()
}

#[test]
fn a_page_of_the_same_host_and_another_scheme_opens_no_socket() {
    // The suite can run over HTTP/3, where no server is without TLS.
    let only_secure = crate::carry::is_secure();
    let plain = Server::bookshop();
    let secure = Start::bookshop().arg("--tls").arg("self-signed").go();
    for (server, is_secure) in [(&plain, only_secure), (&secure, true)] {
        for (scheme, allowed) in [("http", !is_secure), ("https", is_secure), ("ws", false)] {
            let origin = format!("Origin: {scheme}://{}", server.address);
            // Only a trusted proxy says which scheme its client used.
            let other = if is_secure { "http" } else { "https" };
            let claimed = format!("X-Forwarded-Proto: {other}");
            for headers in [vec![origin.clone()], vec![origin, claimed]] {
                let status = origin_status(server, is_secure, &headers);
                assert_eq!(status, if allowed { 400 } else { 403 }, "{is_secure} {headers:?}");
            }
        }
    }
    let proxied = Start::bookshop().arg("--trusted-proxies").arg("127.0.0.1").go();
    for (proto, scheme, allowed) in [
        (&["https"][..], "https", true),
        (&["HTTPS"], "https", true),
        (&["https"], "http", false),
        (&["http"], "http", true),
        (&["http"], "https", false),
        (&[], "http", !only_secure),
        (&[], "https", only_secure),
        (&["https, http"], "https", false),
        (&["https", "http"], "http", false),
        (&["gopher"], "http", false),
    ] {
        let mut headers = vec![format!("Origin: {scheme}://{}", proxied.address)];
        headers.extend(proto.iter().map(|proto| format!("X-Forwarded-Proto: {proto}")));
        headers.push("X-Forwarded-For: 192.0.2.7".to_owned());
        let status = origin_status(&proxied, only_secure, &headers);
        assert_eq!(status, if allowed { 400 } else { 403 }, "{headers:?}");
    }
    for (forwarded, scheme, allowed) in [
        ("for=192.0.2.7;proto=https", "https", true),
        ("for=192.0.2.7;proto=https", "http", false),
        ("for=192.0.2.7; Proto=\"http\"", "http", true),
        ("for=192.0.2.7;proto=https, for=127.0.0.1;proto=http", "http", false),
        ("for=192.0.2.7;proto=gopher", "http", false),
    ] {
        let origin = format!("Origin: {scheme}://{}", proxied.address);
        let headers = [origin, format!("Forwarded: {forwarded}")];
        let status = origin_status(&proxied, only_secure, &headers);
        assert_eq!(status, if allowed { 400 } else { 403 }, "{headers:?}");
    }
}

#[test]
fn only_the_operator_reads_which_endpoints_wait() {
    let server = Start::bookshop().arg("--metrics-listen").arg("127.0.0.1:0").go();
    let sink = Sink::start();
    sink.will(Manner::status(500));
    let body = json!({"url": sink.url(), "enabled_events": ["book.*"]});
    let id = server.make("/v1/webhook-endpoints", body);
    server.book("Dune");
    let age = "restive_webhook_queue_age_seconds";
    eventually("a delivery waits", || figure(&server, age) > Some(0.0));
    for text in [server.get("/metrics").text, server.ask_anonymously("GET", "/metrics").send().text]
    {
        assert!(!text.contains(&id), "{text}");
        let lines = text.lines().filter(|line| line.starts_with(age)).count();
        assert_eq!(lines, 1, "{text}");
    }
    let line = server.greeting.lines().find_map(|line| line.strip_prefix("metrics on "));
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20"]).arg(line.unwrap());
    let all = String::from_utf8(command.output_in_time().unwrap().stdout).unwrap();
    assert!(all.contains(&format!("{age}{{endpoint=\"{id}\"}}")), "{all}");
}

#[test]
fn a_redirect_to_https_has_a_place_for_every_target() {
    let start = Start::bookshop().arg("--tls").arg("self-signed");
    let server = start.arg("--redirect-http").arg("127.0.0.1:0").go();
    let plain = server.greeting.lines().find_map(|line| line.strip_prefix("redirecting http://"));
    let ask = |target: &str| {
        let output = Command::new("curl")
            .args(["-sSi", "--max-time", "20", "-X", "OPTIONS", "--request-target", target])
            .arg(format!("http://{}/", plain.unwrap()))
            .output_in_time()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().to_ascii_lowercase()
    };
    let all = ask("*");
    assert!(all.starts_with("http/1.1 204 ") && !all.contains("location:"), "{all}");
    let one = ask("/v1/books");
    let place = format!("location: https://127.0.0.1:{}/v1/books", server.address.port());
    assert!(one.starts_with("http/1.1 308 ") && one.contains(&place), "{one}");
}
