//! The protocol of action handlers, as in docs/handlers.md: accepted responses, signatures, and
//! both examples of that page.

use crate::deadline::Lifetime;
use crate::handlers::Handler;
use crate::harness::{PATIENCE, Server, Start, eventually, run};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;

const SECRET: &str = "whsec_aGFuZGxlciBzZWNyZXQgb2YgdGhlIHRlc3Rz";
const OTHER: &str = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

/// The signature of Standard Webhooks, computed without our code from secret, id, time and body.
const SIGN: &str = "import base64, hashlib, hmac, sys
key = base64.b64decode(sys.argv[1].removeprefix('whsec_'))
text = f'{sys.argv[2]}.{sys.argv[3]}.'.encode() + sys.stdin.buffer.read()
print('v1,' + base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode(), end='')";

fn order(server: &Server, amount: i64) -> String {
    format!("/v1/orders/{}", server.make("/v1/orders", json!({"amount": amount})))
}

fn approve(server: &Server, path: &str) -> crate::harness::Answer {
    server.post(&format!("{path}/approve"), json!({"by": "Ada"}))
}

/// Each response with a part of the message about it.
#[test]
fn only_documented_handler_responses_are_accepted() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    let before = server.get(&path);
    let error = |members: Value| {
        let mut error = json!({"message": "No."});
        error.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        json!({ "error": error })
    };
    for (status, body, part) in [
        (200, json!({"chnage": {"note": "x"}}), "`chnage` is no member of an answer"),
        (200, json!({"change": {}, "more": 1}), "`more` is no member of an answer"),
        (200, json!({"change": {}, "error": {"message": "no"}}), "both `change` and `error`"),
        (200, json!({"change": [1]}), "`change` is no object"),
        (200, json!({"change": null}), "`change` is no object"),
        (200, json!({"error": "no"}), "`error` is no object"),
        (200, json!([]), "200 with no JSON object"),
        (200, json!("not an object"), "200 with no JSON object"),
        (200, json!({"change": {"status": "approved"}}), "`status` is the state"),
        (200, json!({"change": {"status": "open"}}), "`status` is the state"),
        (200, json!({"change": {"id": "order_1"}}), "`id` is assigned by the service"),
        (200, json!({"change": {"created_at": null}}), "`created_at` is assigned by the service"),
        (200, json!({"change": {"nope": 1}}), "`nope` is no field"),
        (200, json!({"change": {"note": 5}}), "`note` must be a string"),
        (200, json!({"change": {"amount": "5"}}), "`amount` must be an integer"),
        (200, json!({"change": {"amount": 0}}), "`amount`"),
        (200, json!({"change": {"amount": null}}), "`amount` is required"),
        (200, json!({"error": {}}), "`error.message` is missing"),
        (200, json!({"error": {"message": 5}}), "`error.message` is no text"),
        (200, error(json!({"status": 500})), "`error.status` is not from 400 to 499"),
        (200, error(json!({"status": "402"})), "`error.status` is not from 400 to 499"),
        (200, error(json!({"code": "Not Snake"})), "`error.code` is no text in snake_case"),
        (200, error(json!({"type": 1})), "`error.type` is no text in snake_case"),
        (200, error(json!({"param": ["a"]})), "`error.param` is no text"),
        (200, error(json!({"extra": 1})), "`error.extra` is no object"),
        (200, error(json!({"extra": {"code": "x"}})), "`error.extra.code` is a member of every"),
        (200, error(json!({"left": 0})), "`left` is no member of `error`"),
        (404, json!({}), "404 without an object `error`"),
        (409, json!({"change": {"note": "x"}}), "409 without an object `error`"),
    ] {
        handler.will_answer(status, body.clone());
        let error = approve(&server, &path).error(502, "handler_invalid");
        assert_eq!(error["type"], "api_error");
        let message = error["message"].as_str().unwrap().to_owned();
        assert!(message.contains(part), "{body}: {message}");
        assert_eq!(server.get(&path).text, before.text, "{body}");
        eventually("it is logged", || server.log.lock().unwrap().contains(part));
    }
    handler.will_answer(200, error(json!({"extra": {"left": 0}, "status": 402, "code": "none"})));
    assert_eq!(approve(&server, &path).error(402, "none")["left"], 0);
    handler.will_answer(200, json!({"change": {"note": null, "approval": "A-1"}}));
    assert_eq!(approve(&server, &path).expect(200)["approval"], "A-1");
}

/// Each response with the code of the refusal; `None` where the action is carried out.
#[test]
fn a_body_counts_only_as_json_without_compression() {
    const INVALID: Option<&str> = Some("handler_invalid");
    let handler = Handler::start();
    let server = handler.server();
    for (headers, refused) in [
        ("", None),
        ("content-type: application/json\r\n", None),
        ("content-type: Application/JSON; charset=utf-8\r\n", None),
        ("content-type: application/vnd.shop+json\r\n", None),
        ("content-encoding: identity\r\n", None),
        ("content-type: text/html\r\n", INVALID),
        ("content-type: text/plain; charset=utf-8\r\n", INVALID),
        ("content-type: application/jsonl\r\n", INVALID),
        ("content-type:\r\n", INVALID),
        ("content-type: application/json\r\ncontent-type: text/html\r\n", INVALID),
        ("content-encoding: gzip\r\n", INVALID),
        ("content-encoding: identity, gzip\r\n", INVALID),
        ("content-type: application/json\r\ncontent-encoding: br\r\n", INVALID),
    ] {
        let path = order(&server, 5);
        let before = server.get(&path);
        handler.will_send(&format!("HTTP/1.1 200 OK\r\n{headers}content-length: 2\r\n\r\n{{}}"));
        let answer = approve(&server, &path);
        match refused {
            None => assert_eq!(answer.expect(200)["status"], "approved", "{headers:?}"),
            Some(code) => {
                answer.error(502, code);
                assert_eq!(server.get(&path).text, before.text, "{headers:?}");
            }
        }
    }
    // Without a body there is nothing to read.
    let path = order(&server, 5);
    handler.will_send("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n");
    assert_eq!(approve(&server, &path).expect(200)["status"], "approved");
}

/// Each response with the code of the refusal; `None` where the action is carried out.
#[test]
fn an_empty_response_counts_only_when_the_handler_proves_that_it_is_whole() {
    const INVALID: Option<&str> = Some("handler_invalid");
    const FAILED: Option<&str> = Some("action_handler_failed");
    let handler = Handler::start();
    let server = handler.server();
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    for (response, refused) in [
        ("HTTP/1.1 200 OK\r\n\r\n", INVALID),
        ("HTTP/1.0 200 OK\r\n\r\n", INVALID),
        ("HTTP/1.1 202 Accepted\r\nconnection: close\r\n\r\n", INVALID),
        ("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n", INVALID),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n", INVALID),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\ncontent-length: 0\r\n\r\n", INVALID),
        ("HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n", INVALID),
        ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n", None),
        ("HTTP/1.1 204 No Content\r\n\r\n", None),
        // It says that there is a body, which the status forbids: a yes or a no is unknown.
        ("HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\n{}", INVALID),
        ("HTTP/1.1 205 Reset Content\r\ncontent-length: 0\r\n\r\n", INVALID),
        ("HTTP/1.1 205 Reset Content\r\ncontent-length: 2\r\n\r\n{}", INVALID),
        ("HTTP/1.1 206 Partial Content\r\ncontent-length: 2\r\n\r\n{}", INVALID),
        // A JSON object ends where its last brace stands.
        ("HTTP/1.1 200 OK\r\n\r\n{}", None),
        ("HTTP/1.1 200 OK\r\n\r\n{\"change\": {\"note\": \"x\"}", INVALID),
        ("HTTP/1.1 200 OK\r\n\r\n \n", INVALID),
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}", FAILED),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n", FAILED),
        (&format!("{chunked}0\r\n\r\n"), None),
        (&format!("{chunked}2\r\n{{}}\r\n0\r\n\r\n"), None),
        (chunked, FAILED),
        (&format!("{chunked}0\r\n"), FAILED),
        (&format!("{chunked}2\r\n{{}}\r\n"), FAILED),
        (&format!("{chunked}2\r\n{{"), FAILED),
    ] {
        let path = order(&server, 5);
        let before = server.get(&path);
        handler.will_send(response);
        let answer = approve(&server, &path);
        match refused {
            None => assert_eq!(answer.expect(200)["status"], "approved", "{response:?}"),
            Some(code) => {
                assert_eq!(answer.status, 502, "{response:?}: {}", answer.text);
                answer.error(502, code);
                assert_eq!(server.get(&path).text, before.text, "{response:?}");
            }
        }
    }
}

/// The schema of the page's examples, with further keys of the handler.
fn schema(port: u16, keys: &str) -> String {
    format!(
        r#"
        [collections.orders]
        states = {{ names = ["open", "approved"] }}
        fields.amount = {{ type = "integer", required = true }}
        fields.approval = {{ type = "string", read_only = true }}
        [collections.orders.actions.approve]
        from = "open"
        to = "approved"
        params = {{ by = {{ type = "string", required = true }} }}
        handler = {{ url = "http://127.0.0.1:{port}/approve"{keys} }}
        "#
    )
}

#[test]
fn handler_calls_are_signed_and_have_the_declared_headers() {
    let handler = Handler::start();
    handler.will_answer(200, json!({}));
    let headers = "Authorization = \"Bearer ${SHOP_TOKEN}\", X-Shop = \"7\"";
    let text = schema(handler.address.port(), &format!(", headers = {{ {headers} }}"));
    let start = |text: &str| Start::schema(text).env("SHOP_TOKEN", "t-123-secret");
    let server = start(&text).env("RESTIVE_HANDLER_SECRET", SECRET).go();
    approve(&server, &order(&server, 5)).expect(200);
    let header = |name: &str| {
        let (head, _) = handler.asked_exactly().pop().unwrap();
        let found = head.lines().find_map(|line| {
            let (known, value) = line.split_once(": ")?;
            known.eq_ignore_ascii_case(name).then(|| value.to_owned())
        });
        found.unwrap_or_else(|| panic!("{name} in {head}"))
    };
    let verify = |secret: &str| {
        let (_, body) = handler.asked_exactly().pop().unwrap();
        let mut python = Command::new("python3");
        python.args(["-c", SIGN, secret, &header("webhook-id"), &header("webhook-timestamp")]);
        let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        python.stdin.take().unwrap().write_all(body.as_bytes()).unwrap();
        let expected = python.wait_with_output().unwrap().stdout;
        assert_eq!(header("webhook-signature"), String::from_utf8(expected).unwrap());
    };
    verify(SECRET);
    assert_eq!(header("authorization"), "Bearer t-123-secret");
    assert_eq!(header("x-shop"), "7");
    assert!(header("webhook-id").starts_with("req_"));
    for secret in [SECRET, "t-123-secret"] {
        assert!(!server.log.lock().unwrap().contains(secret), "the log has {secret}");
    }
    // The secret of the handler takes precedence over the common one.
    let text = schema(handler.address.port(), ", secret = \"${APPROVE_SECRET}\"");
    let server =
        start(&text).env("RESTIVE_HANDLER_SECRET", SECRET).env("APPROVE_SECRET", OTHER).go();
    approve(&server, &order(&server, 5)).expect(200);
    verify(OTHER);
}

#[test]
fn a_missing_handler_secret_or_header_prevents_the_start() {
    let secret = ", secret = \"${APPROVE_SECRET}\"";
    let header = ", headers = { X-Token = \"${TOKEN}\" }";
    let start = |keys: &str| Start::schema(&schema(1, keys));
    for (start, part) in [
        (start(secret), "the environment variable APPROVE_SECRET is not set"),
        (start(secret).env("APPROVE_SECRET", ""), "APPROVE_SECRET is not set"),
        (start(secret).env("APPROVE_SECRET", "hush-hush"), "must begin with `whsec_`"),
        (start(secret).env("APPROVE_SECRET", "whsec_c2hvcnQ="), "must hold 24 to 64 bytes"),
        (start("").env("RESTIVE_HANDLER_SECRET", "hush-hush"), "must begin with `whsec_`"),
        (start(header), "the environment variable TOKEN is not set"),
        (start(header).env("TOKEN", "hush\nhush"), "must be printable ASCII"),
    ] {
        let (code, told) = start.fails();
        assert!(code != 0 && told.contains(part), "{part}: {told}");
        assert!(told.contains("orders.approve") && !told.contains("hush"), "{told}");
    }
}

#[test]
fn check_refuses_secrets_in_the_file_and_headers_of_the_transport() {
    let folder = tempfile::TempDir::new().unwrap();
    for (keys, part) in [
        (", secret = \"whsec_abc\"", "`secret` must name an environment variable"),
        (", secret = \"x${A}\"", "`secret` must name an environment variable"),
        (", secret = \"${A\"", "`${` has no `}`"),
        (", secret = \"${}\"", "must hold the name of an environment variable"),
        (", headers = { Host = \"x\" }", "`Host` is set by the service or the network"),
        (", headers = { connection = \"x\" }", "`connection` is set by the service"),
        (", headers = { Transfer-Encoding = \"x\" }", "is set by the service"),
        (", headers = { Content-Length = \"1\" }", "is set by the service"),
        (", headers = { webhook-signature = \"x\" }", "is set by the service"),
        (", headers = { Idempotency-Key = \"x\" }", "is set by the service"),
        (", headers = { X-A = \"1\", x-a = \"2\" }", "`x-a` stands twice in `headers`"),
        (", headers = { \"X Y\" = \"x\" }", "is no header name"),
        (", headers = { X-A = 5 }", "`X-A` must be a string"),
        (", headers = { X-A = \"ä\" }", "must be printable ASCII"),
        (", headers = { X-A = \"${1}\" }", "must hold the name of an environment variable"),
        (", header = { X-A = \"1\" }", "unknown key `header`"),
    ] {
        std::fs::write(folder.path().join("restive.toml"), schema(1, keys)).unwrap();
        let (out, told, code) = run(folder.path(), &["check", "restive.toml"]);
        let told = told + &out;
        assert!(code != 0 && told.contains(part) && told.contains(":10:"), "{keys}: {told}");
    }
    let fine = ", secret = \"${A_1}\", headers = { Authorization = \"Bearer ${B}\" }";
    std::fs::write(folder.path().join("restive.toml"), schema(1, fine)).unwrap();
    let (out, told, code) = run(folder.path(), &["check", "restive.toml"]);
    assert_eq!(code, 0, "{out}{told}");
}

/// An example of the page as a separate process.
struct Example {
    child: Child,
    _lifetime: Lifetime,
    port: u16,
}

impl Example {
    fn start(program: &str, language: &str, file: &str) -> Example {
        let page = include_str!("../../../../docs/handlers.md");
        let text = page.split(&format!("```{language}\n")).nth(1).unwrap();
        let text = text.split("```").next().unwrap();
        let folder = tempfile::TempDir::new().unwrap();
        std::fs::write(folder.path().join(file), text).unwrap();
        let mut command = Command::new(program);
        command.arg(folder.path().join(file)).env("PORT", "0").env("HANDLER_SECRET", SECRET);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let _lifetime = Lifetime::of(&child, Arc::default());
        let (sender, receiver) = channel();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        std::thread::spawn(move || {
            let _ = sender.send(lines.next().and_then(Result::ok).unwrap_or_default());
        });
        let line = receiver.recv_timeout(PATIENCE).unwrap();
        let port = line.rsplit(' ').next().and_then(|port| port.parse().ok());
        Example { child, _lifetime, port: port.unwrap_or_else(|| panic!("{line}")) }
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn works(example: &Example) {
    let text = schema(example.port, "");
    let server = Start::schema(&text).env("RESTIVE_HANDLER_SECRET", SECRET).go();
    let path = order(&server, 5);
    let done = approve(&server, &path).expect(200);
    assert_eq!(
        (&done["approval"], &done["status"]),
        (&json!("approved by Ada"), &json!("approved"))
    );
    let dear = order(&server, 500);
    let error = approve(&server, &dear).error(422, "too_much");
    assert_eq!((&error["message"], &error["param"]), (&json!("Ask for less."), &json!("amount")));
    // The example refuses a caller with another secret, or with none.
    for start in [Start::schema(&text).env("RESTIVE_HANDLER_SECRET", OTHER), Start::schema(&text)] {
        let server = start.go();
        approve(&server, &order(&server, 5)).error(502, "handler_invalid");
    }
}

#[test]
fn the_example_in_python_verifies_and_answers() {
    works(&Example::start("python3", "python", "handler.py"));
}

#[test]
fn the_example_in_javascript_verifies_and_answers() {
    works(&Example::start("node", "js", "handler.mjs"));
}
