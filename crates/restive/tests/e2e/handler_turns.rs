//! Handler calls for one record run one at a time, and the calls of one account leave room for
//! others.

use crate::auth::account;
use crate::deliveries::figure;
use crate::harness::{Answer, PATIENCE, Server, Start, eventually};
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

/// Concurrent handler calls that one account alone may have.
const SHARE: usize = 128;

/// An action handler that increments a number, and responds when the test allows it.
#[derive(Clone)]
pub struct Handler {
    address: SocketAddr,
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    asked: Vec<Value>,
    active: usize,
    most_active: usize,
    /// Whether calls wait; only those of one account if it is named.
    held: bool,
    held_account: Option<String>,
}

impl Handler {
    /// A handler that holds its responses back.
    pub fn start() -> Handler {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { held: true, ..State::default() };
        let handler = Handler { address, state: Arc::new((Mutex::new(state), Condvar::new())) };
        let shared = handler.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let handler = shared.clone();
                std::thread::spawn(move || handler.serve(stream));
            }
        });
        handler
    }

    fn serve(&self, stream: TcpStream) -> Option<()> {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut reader = BufReader::new(stream);
        loop {
            let mut length = 0;
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).ok().filter(|count| *count > 0)?;
                if line == "\r\n" {
                    break;
                }
                let line = line.to_ascii_lowercase();
                if let Some(text) = line.strip_prefix("content-length: ") {
                    length = text.trim().parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let count = self.answer(serde_json::from_slice(&body).unwrap());
            let body = json!({"change": {"count": count}}).to_string();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            reader.get_mut().write_all(head.as_bytes()).ok()?;
        }
    }

    fn answer(&self, question: Value) -> i64 {
        let (state, changed) = &*self.state;
        let count = question["record"]["count"].as_i64().unwrap_or(0);
        let account = question["account"].as_str().unwrap().to_owned();
        let mut state = state.lock().unwrap();
        state.asked.push(question);
        state.active += 1;
        state.most_active = state.most_active.max(state.active);
        let waits = |state: &mut State| {
            state.held && state.held_account.as_ref().is_none_or(|held| *held == account)
        };
        let (mut state, _) = changed.wait_timeout_while(state, PATIENCE, waits).unwrap();
        state.active -= 1;
        count + 1
    }

    pub fn asked(&self) -> usize {
        self.state.0.lock().unwrap().asked.len()
    }

    pub fn most_active(&self) -> usize {
        self.state.0.lock().unwrap().most_active
    }

    pub fn release(&self) {
        self.state.0.lock().unwrap().held = false;
        self.state.1.notify_all();
    }

    pub fn schema(&self) -> String {
        format!(
            r#"
            [collections.orders]
            states = {{ names = ["open", "confirmed"] }}
            fields.count = {{ type = "integer", default = 0 }}
            [collections.orders.actions.confirm]
            from = "open"
            to = "confirmed"
            handler = {{ url = "http://{address}/confirm", timeout = "60s" }}
            [collections.orders.actions.count]
            handler = {{ url = "http://{address}/count", timeout = "60s" }}
            "#,
            address = self.address
        )
    }

    pub fn server(&self) -> Server {
        Start::schema(&self.schema()).arg("--rate-limit").arg("off").go()
    }
}

/// Sends the action this many times at once, waits until all are in progress, and then releases
/// them.
fn at_once(server: &Server, handler: &Handler, path: &str, count: usize) -> Vec<Answer> {
    std::thread::scope(|threads| {
        let ask = || server.post(path, json!({}));
        let callers: Vec<_> = (0..count).map(|_| threads.spawn(ask)).collect();
        eventually("all are under way", || {
            // Including the request for the metrics.
            figure(server, "restive_requests_in_flight") == Some(count as f64 + 1.0)
        });
        eventually("the handler is asked", || handler.asked() == 1);
        handler.release();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    })
}

#[test]
fn the_second_of_two_equal_actions_sees_the_result_of_the_first() {
    let handler = Handler::start();
    let server = handler.server();
    let id = server.make("/v1/orders", json!({}));
    let path = format!("/v1/orders/{id}/confirm");
    let mut answers = at_once(&server, &handler, &path, 4);
    answers.sort_by_key(|answer| answer.status);
    assert_eq!(answers.remove(0).expect(200)["status"], "confirmed");
    for answer in answers {
        answer.error(409, "invalid_state");
    }
    assert_eq!(handler.asked(), 1, "nobody else was let through to the handler");
}

#[test]
fn handler_calls_for_one_record_run_one_at_a_time_and_see_earlier_results() {
    const CALLS: usize = 8;
    let handler = Handler::start();
    let server = handler.server();
    let id = server.make("/v1/orders", json!({}));
    let answers = at_once(&server, &handler, &format!("/v1/orders/{id}/count"), CALLS);
    let mut counts: Vec<_> =
        answers.into_iter().map(|answer| answer.expect(200)["count"].as_i64().unwrap()).collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=CALLS as i64).collect::<Vec<_>>());
    assert_eq!((handler.asked(), handler.most_active()), (CALLS, 1));
}

#[test]
fn the_queue_for_a_record_is_bounded_and_does_not_delay_other_records() {
    // One call runs, 16 wait.
    const ROOM: usize = 17;
    let handler = Handler::start();
    let server = handler.server();
    let [first, other] = [0, 1].map(|_| server.make("/v1/orders", json!({})));
    let path = format!("/v1/orders/{first}/count");
    std::thread::scope(|threads| {
        let ask = || server.post(&path, json!({}));
        let callers: Vec<_> = (0..ROOM).map(|_| threads.spawn(ask)).collect();
        eventually("all are under way", || {
            figure(&server, "restive_requests_in_flight") == Some(ROOM as f64 + 1.0)
        });
        eventually("the handler is asked", || handler.asked() == 1);
        let refused = ask();
        assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.text);
        refused.error(409, "action_in_progress");
        let beside = threads.spawn(|| server.post(&format!("/v1/orders/{other}/count"), json!({})));
        eventually("another record has its own queue", || handler.asked() == 2);
        handler.release();
        beside.join().unwrap().expect(200);
        for caller in callers {
            caller.join().unwrap().expect(200);
        }
    });
    assert_eq!(server.get(&format!("/v1/orders/{first}")).expect(200)["count"], ROOM);
}

#[test]
fn an_account_with_a_hanging_handler_leaves_handler_calls_for_others() {
    const CALLS: usize = SHARE + 12;
    let handler = Handler::start();
    let server = handler.server();
    let (_, theirs, _) = account(&server, "other");
    let ids: Vec<_> = (0..CALLS).map(|_| server.make("/v1/orders", json!({}))).collect();
    std::thread::scope(|threads| {
        let ask = |id: &String| server.post(&format!("/v1/orders/{id}/count"), json!({}));
        let callers: Vec<_> = ids.iter().map(|id| threads.spawn(move || ask(id))).collect();
        eventually("the account has its share", || handler.asked() == SHARE);
        let hanging = handler.state.0.lock().unwrap().asked[0]["account"].clone();
        handler.state.0.lock().unwrap().held_account = hanging.as_str().map(str::to_owned);
        let refused = ask(&server.make("/v1/orders", json!({})));
        assert_eq!(refused.header("retry-after"), Some("1"), "{}", refused.text);
        refused.error(503, "overloaded");
        server.get("/v1/orders").expect(200);
        let own = server.ask("POST", "/v1/orders").key(&theirs).json(&json!({})).send();
        let path = format!("/v1/orders/{}/count", own.id());
        let other = server.ask("POST", &path).key(&theirs).json(&json!({})).send();
        assert_eq!(other.expect(200)["count"], 1);
        handler.release();
        let mut answers: Vec<_> =
            callers.into_iter().map(|caller| caller.join().unwrap().status).collect();
        answers.sort_unstable();
        assert!(answers[..SHARE].iter().all(|status| *status == 200), "{answers:?}");
        assert!(answers[SHARE..].iter().all(|status| *status == 503), "{answers:?}");
    });
}
