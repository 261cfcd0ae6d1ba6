//! A receiver of webhooks on loopback: remembers every request in order and answers as told.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::Instant;

#[derive(Clone, Debug)]
pub struct Request {
    pub at: Instant,
    pub headers: HashMap<String, String>,
    pub body: serde_json::Value,
}

impl Request {
    pub fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub fn kind(&self) -> &str {
        self.body["type"].as_str().unwrap()
    }

    pub fn record(&self) -> &str {
        self.body["data"]["object"]["id"].as_str().unwrap()
    }
}

pub enum Reply {
    Status(u16),
    With(u16, &'static str),
    /// No answer, ever.
    Hang,
    /// After a time.
    Late(Duration, u16),
    /// 200 once the gate is open.
    After(Gate),
}

/// Closed or open; whoever waits at it goes on when it opens.
#[derive(Clone)]
pub struct Gate(Arc<watch::Sender<bool>>);

impl Gate {
    pub fn closed() -> Gate {
        Gate(Arc::new(watch::Sender::new(false)))
    }

    pub fn set(&self, open: bool) {
        self.0.send_replace(open);
    }

    async fn opened(&self) {
        let _ = self.0.subscribe().wait_for(|open| *open).await;
    }
}

type Judge = dyn Fn(&Request, usize) -> Reply + Send + Sync;

pub struct Sink {
    pub url: String,
    pub seen: Arc<Mutex<Vec<Request>>>,
    under_way: Arc<UnderWay>,
}

/// Requests without an answer: now, and the most there ever were.
#[derive(Default)]
struct UnderWay {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Sink {
    /// `judge` is asked for each request, with its number from 0.
    pub async fn new(judge: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Sink {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (all, judge): (_, Arc<Judge>) = (seen.clone(), Arc::new(judge));
        let under_way = Arc::new(UnderWay::default());
        let counted = under_way.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, all.clone(), judge.clone(), counted.clone()));
            }
        });
        Sink { url, seen, under_way }
    }

    /// Answers nothing while the gate is closed.
    pub async fn behind(gate: &Gate) -> Sink {
        let gate = gate.clone();
        Sink::new(move |_, _| Reply::After(gate.clone())).await
    }

    pub async fn willing() -> Sink {
        Sink::new(|_, _| Reply::Status(200)).await
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// How many requests wait for a response.
    pub fn under_way(&self) -> usize {
        self.under_way.now.load(SeqCst)
    }

    /// The most requests it ever had at a time.
    pub fn most(&self) -> usize {
        self.under_way.most.load(SeqCst)
    }

    /// Everything but pings.
    pub fn events(&self) -> Vec<Request> {
        self.seen().into_iter().filter(|request| request.kind() != "ping").collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    seen: Arc<Mutex<Vec<Request>>>,
    judge: Arc<Judge>,
    under_way: Arc<UnderWay>,
) {
    let mut buffer = Vec::new();
    loop {
        let Some((head, body)) = read(&mut stream, &mut buffer).await else { return };
        let headers = head.lines().skip(1).filter_map(|line| line.split_once(": "));
        let headers = headers.map(|(name, value)| (name.to_lowercase(), value.to_owned()));
        let body = serde_json::from_slice(&body).unwrap();
        let request = Request { at: Instant::now(), headers: headers.collect(), body };
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(request.clone());
            seen.len() - 1
        };
        let now = under_way.now.fetch_add(1, SeqCst) + 1;
        under_way.most.fetch_max(now, SeqCst);
        let reply = judge(&request, number);
        let replied = tokio::select! {
            replied = answer(reply) => Some(replied),
            // The client closed the connection: it does not wait for the response any more.
            _ = stream.read_u8() => None,
        };
        under_way.now.fetch_sub(1, SeqCst);
        let Some((status, more)) = replied else { return };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: 2\r\n{more}\r\nok");
        if stream.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Status and headers, when they are due.
async fn answer(reply: Reply) -> (u16, &'static str) {
    match reply {
        Reply::Status(status) => (status, ""),
        Reply::With(status, more) => (status, more),
        Reply::Hang => std::future::pending().await,
        Reply::Late(time, status) => {
            // waits for: the time that the test gave
            tokio::time::sleep(time).await;
            (status, "")
        }
        Reply::After(gate) => {
            gate.opened().await;
            (200, "")
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(String, Vec<u8>)> {
    loop {
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(buffer[..end].to_vec()).unwrap();
            let length = head.lines().find_map(|line| {
                line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
            });
            let whole = end + 4 + length.unwrap();
            if buffer.len() >= whole {
                let body = buffer[end + 4..whole].to_vec();
                buffer.drain(..whole);
                return Some((head, body));
            }
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
