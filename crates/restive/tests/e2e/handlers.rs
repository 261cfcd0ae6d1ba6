//! Actions with an HTTP handler of the operator, here a real one.

use crate::harness::{PATIENCE, Server, Start, eventually};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How the handler responds to a call.
#[derive(Clone)]
enum Manner {
    Answer(u16, String),
    /// Any bytes.
    Raw(String),
    /// Reads the call and closes the connection.
    Close,
    /// Does not respond until the caller gives up.
    Silence,
    /// Responds after a while.
    Late(Duration, String),
}

pub struct Handler {
    pub address: SocketAddr,
    manner: Arc<Mutex<Manner>>,
    /// Head and body of every call, as received.
    asked: Arc<Mutex<Vec<(String, String)>>>,
}

impl Handler {
    pub fn start() -> Handler {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let handler = Handler {
            address: listener.local_addr().unwrap(),
            manner: Arc::new(Mutex::new(Manner::Close)),
            asked: Arc::default(),
        };
        let (manner, asked) = (handler.manner.clone(), handler.asked.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (manner, asked) = (manner.clone(), asked.clone());
                std::thread::spawn(move || serve(stream, &manner, &asked));
            }
        });
        handler
    }

    fn will(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
    }

    pub fn will_answer(&self, status: u16, body: Value) {
        self.will(Manner::Answer(status, body.to_string()));
    }

    /// Answers 200 after a while.
    pub fn will_answer_late(&self, after: Duration, body: Value) {
        self.will(Manner::Late(after, body.to_string()));
    }

    /// Does not respond until the caller gives up.
    pub fn will_be_silent(&self) {
        self.will(Manner::Silence);
    }

    /// Sends these bytes and closes the connection.
    pub fn will_send(&self, bytes: &str) {
        self.will(Manner::Raw(bytes.to_owned()));
    }

    /// Headers in lower case, and bodies, of every question.
    fn asked(&self) -> Vec<(String, Value)> {
        let asked = self.asked_exactly().into_iter();
        let parsed = |body: String| serde_json::from_str(&body).unwrap();
        asked.map(|(head, body)| (head.to_ascii_lowercase(), parsed(body))).collect()
    }

    pub fn asked_exactly(&self) -> Vec<(String, String)> {
        self.asked.lock().unwrap().clone()
    }

    /// A server whose orders are approved by this handler.
    pub fn server(&self) -> Server {
        Start::schema(&self.schema("1s")).go()
    }

    /// The schema file of that server. The handler has so much time to respond.
    pub fn schema(&self, timeout: &str) -> String {
        format!(
            r#"
            [collections.orders]
            states = {{ names = ["open", "approved", "stopped"] }}
            fields.amount = {{ type = "integer", required = true, min = 1 }}
            fields.note = "string"
            fields.approval = {{ type = "string", read_only = true }}
            [collections.orders.actions.approve]
            from = "open"
            to = "approved"
            params = {{ by = "string" }}
            handler = {{ url = "http://{}/approve", timeout = "{timeout}" }}
            [[collections.orders.actions.approve.rules]]
            when = "record.amount > 1000"
            status = 402
            code = "too_dear"
            message = "Too dear."
            to = "stopped"
            event = "order.stopped"
            "#,
            self.address
        )
    }
}

fn serve(stream: TcpStream, manner: &Mutex<Manner>, asked: &Mutex<Vec<(String, String)>>) {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut head = String::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line == "\r\n" {
                break;
            }
            head.push_str(&line);
        }
        let lower = head.to_ascii_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.and_then(|text| text.trim().parse().ok()).unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        asked.lock().unwrap().push((head, String::from_utf8(body).unwrap()));
        let manner = manner.lock().unwrap().clone();
        let text = match manner {
            Manner::Answer(status, body) => {
                let length = body.len();
                format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {length}\r\n\r\n{body}")
            }
            Manner::Raw(text) => {
                let _ = stream.write_all(text.as_bytes());
                return;
            }
            Manner::Late(after, body) => {
                // waits for: requests that must not be made in the meantime
                std::thread::sleep(after);
                let length = body.len();
                format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}")
            }
            Manner::Close => return,
            Manner::Silence => {
                let _ = reader.read_line(&mut String::new());
                return;
            }
        };
        if stream.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn order(server: &Server, amount: i64) -> String {
    format!("/v1/orders/{}", server.make("/v1/orders", json!({"amount": amount})))
}

fn approve(server: &Server, path: &str) -> crate::harness::Answer {
    server.post(&format!("{path}/approve"), json!({"by": "Ada"}))
}

#[test]
fn a_handlers_change_is_applied() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    let before = server.get(&path).expect(200);
    handler.will_answer(200, json!({"change": {"approval": "A-1", "note": "fine"}}));
    let ask = server.ask("POST", &format!("{path}/approve")).header("idempotency-key", "k-1");
    let answer = ask.json(&json!({"by": "Ada"})).send();
    let request_id = answer.header("request-id").unwrap().to_owned();
    let done = answer.expect(200);
    assert_eq!((&done["approval"], &done["note"]), (&json!("A-1"), &json!("fine")));
    assert_eq!(done["status"], "approved");
    assert_eq!(server.get(&path).expect(200), done);
    let asked = handler.asked();
    assert_eq!(asked.len(), 1);
    let (head, question) = &asked[0];
    assert!(head.starts_with("post /approve http/1.1"), "{head}");
    assert!(head.contains("idempotency-key: k-1"), "{head}");
    assert_eq!(question["record"], before);
    assert_eq!(
        (&question["action"], &question["collection"]),
        (&json!("approve"), &json!("orders"))
    );
    let request = json!({"id": request_id, "idempotency_key": "k-1", "params": {"by": "Ada"}});
    assert_eq!(question["request"], request);
    assert_eq!(question["livemode"], false);
    assert!(question["account"].as_str().unwrap().starts_with("acct_"));
    assert!(!head.contains(crate::harness::KEY), "the caller's key is nobody else's business");
    handler.will(Manner::Answer(204, String::new()));
    assert_eq!(approve(&server, &order(&server, 5)).expect(200)["status"], "approved");
}

#[test]
fn a_handlers_error_refuses_the_action() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    let error = json!({"code": "no_stock", "type": "stock_error", "message": "None left.",
                       "param": "amount", "extra": {"left": 0}});
    for (status, body, expected) in [
        (200, json!({"error": error}), 422),
        (409, json!({"error": error}), 409),
        (
            200,
            json!({"error": {"code": "no_stock", "message": "None left.", "status": 402,
                               "type": "stock_error", "param": "amount", "extra": {"left": 0}}}),
            402,
        ),
    ] {
        handler.will_answer(status, body);
        let told = approve(&server, &path).error(expected, "no_stock");
        assert_eq!(
            (&told["type"], &told["message"]),
            (&json!("stock_error"), &json!("None left."))
        );
        assert_eq!((&told["param"], &told["left"]), (&json!("amount"), &json!(0)));
        assert_eq!(server.get(&path).expect(200)["status"], "open");
    }
}

#[test]
fn a_failing_handler_changes_nothing() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    let before = server.get(&path);
    for (manner, status) in [
        (Manner::Answer(500, "{}".into()), 502),
        (Manner::Answer(500, json!({"change": {"note": "x"}}).to_string()), 502),
        (Manner::Answer(302, "{}".into()), 502),
        (Manner::Answer(200, "x".repeat(2 << 20)), 502),
        (Manner::Raw("SSH-2.0-hello\r\n".into()), 502),
        (Manner::Raw("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"cha".into()), 502),
        (Manner::Close, 502),
        (Manner::Silence, 504),
    ] {
        handler.will(manner.clone());
        let answer = approve(&server, &path);
        let shown = match &manner {
            Manner::Answer(status, body) => format!("{status} {body:.60}"),
            Manner::Raw(text) => text.clone(),
            Manner::Close => "close".to_owned(),
            Manner::Late(_, text) => text.clone(),
            Manner::Silence => "silence".to_owned(),
        };
        assert_eq!(answer.status, status, "{shown}: {}", answer.text);
        let error = answer.error(status, "action_handler_failed");
        assert_eq!(error["type"], "api_error", "{shown}");
        assert_eq!(server.get(&path).text, before.text, "{shown}");
    }
    handler.will_answer(200, json!({}));
    assert_eq!(approve(&server, &path).expect(200)["status"], "approved");
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let schema = format!(
        "[collections.jobs]\nfields = {{ name = \"string\" }}\n\
         actions.run.handler = \"http://{nobody}/\"\n"
    );
    let server = Start::schema(&schema).go();
    let id = server.make("/v1/jobs", json!({}));
    let answer = server.post(&format!("/v1/jobs/{id}/run"), json!({}));
    answer.error(502, "action_handler_failed");
}

#[test]
fn the_handler_is_not_called_for_requests_that_are_refused_anyway() {
    let handler = Handler::start();
    let server = handler.server();
    handler.will_answer(200, json!({}));
    server.post("/v1/orders/order_none/approve", json!({})).error(404, "not_found");
    let path = order(&server, 5);
    server.post(&format!("{path}/approve"), json!({"by": 5})).error(422, "validation_failed");
    let ask = server.ask("POST", &format!("{path}/approve")).header("if-match", "\"0-0\"");
    ask.send().error(412, "precondition_failed");
    let dear = order(&server, 5000);
    let ask = || {
        let ask = server.ask("POST", &format!("{dear}/approve")).header("idempotency-key", "dear");
        ask.json(&json!({})).send()
    };
    ask().error(402, "too_dear");
    assert_eq!(server.get(&dear).expect(200)["status"], "stopped", "the rule leaves its trace");
    let again = ask();
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "{}", again.text);
    assert_eq!(again.status, 402);
    server.post(&format!("{dear}/approve"), json!({})).error(409, "invalid_state");
    assert!(handler.asked().is_empty());
}

#[test]
fn requests_with_one_idempotency_key_call_the_handler_once() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    handler.will_answer(200, json!({"change": {"approval": "once"}}));
    let ask = || {
        let ask = server.ask("POST", &format!("{path}/approve")).header("idempotency-key", "k");
        ask.json(&json!({"by": "Ada"})).send()
    };
    let answers: Vec<_> = std::thread::scope(|threads| {
        let callers: Vec<_> = (0..8).map(|_| threads.spawn(ask)).collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| answer.status == 200));
    assert!(answers.iter().all(|answer| answer.text == answers[0].text));
    let replayed = answers.iter().filter(|a| a.header("idempotent-replayed").is_some());
    assert_eq!(replayed.count(), 7);
    assert_eq!(handler.asked().len(), 1);
    let other = server.ask("POST", &format!("{path}/approve")).header("idempotency-key", "k");
    other.json(&json!({"by": "Eve"})).send().error(422, "idempotency_key_reused");
}

#[test]
fn a_handler_failure_is_not_stored_for_the_idempotency_key() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    let ask = || {
        let ask = server.ask("POST", &format!("{path}/approve")).header("idempotency-key", "k");
        ask.json(&json!({})).send()
    };
    handler.will(Manner::Close);
    ask().error(502, "action_handler_failed");
    handler.will_answer(200, json!({"error": {"message": "no"}}));
    ask().error(422, "action_refused");
    handler.will_answer(200, json!({}));
    let again = ask();
    assert_eq!((again.status, &again.json["error"]["code"]), (422, &json!("action_refused")));
    assert_eq!(again.header("idempotent-replayed"), Some("true"), "a refusal is remembered");
    server.post(&format!("{path}/approve"), json!({})).expect(200);
}

#[test]
fn other_requests_are_served_while_a_handler_runs() {
    let handler = Handler::start();
    let server = handler.server();
    let path = order(&server, 5);
    handler.will(Manner::Silence);
    std::thread::scope(|threads| {
        let slow = threads.spawn(|| approve(&server, &path));
        eventually("the handler is asked", || !handler.asked().is_empty());
        server.patch(&path, json!({"note": "meanwhile"})).expect(200);
        order(&server, 6);
        slow.join().unwrap().error(504, "action_handler_failed");
    });
    assert_eq!(server.get(&path).expect(200)["note"], "meanwhile");
}

#[test]
fn a_handlers_change_wins_even_if_it_sets_the_previous_value() {
    let handler = Handler::start();
    let schema = format!(
        r#"
        [collections.orders.fields]
        title = "string"
        [collections.orders.actions.ask]
        params = {{ title = "string" }}
        set = {{ title = "=request.title" }}
        handler = "http://{}/ask"
        "#,
        handler.address
    );
    let server = Start::schema(&schema).go();
    let id = server.make("/v1/orders", json!({"title": "before"}));
    handler.will_answer(200, json!({"change": {"title": "before"}}));
    let answer = server.post(&format!("/v1/orders/{id}/ask"), json!({"title": "wanted"}));
    assert_eq!(answer.expect(200)["title"], "before");
}

#[test]
fn a_handlers_change_must_satisfy_the_limits_of_the_callers_version() {
    let handler = Handler::start();
    let schema = format!(
        r#"
        [[versions]]
        date = "2026-01-01"
        [[versions.changes]]
        collection = "orders"
        limits = {{ field = "title", was = {{ max_length = 20 }} }}
        [[versions]]
        date = "2025-01-01"
        [collections.orders.fields]
        title = {{ type = "string", max_length = 5 }}
        note = "string"
        [collections.orders.actions.ask]
        handler = "http://{}/ask"
        "#,
        handler.address
    );
    let server = Start::schema(&schema).go();
    let id = server.make("/v1/orders", json!({"title": "short"}));
    let ask = |version: &str| {
        let path = format!("/v1/orders/{id}/ask");
        server.ask("POST", &path).version(version).json(&json!({})).send()
    };
    handler.will_answer(200, json!({"change": {"title": "a longer title"}}));
    ask("2026-01-01").error(502, "handler_invalid");
    assert_eq!(ask("2025-01-01").expect(200)["title"], "a longer title");
    // An unchanged value beyond the limit does not fail another change.
    handler.will_answer(200, json!({"change": {"title": "a longer title", "note": "seen"}}));
    assert_eq!(ask("2026-01-01").expect(200)["note"], "seen");
}
