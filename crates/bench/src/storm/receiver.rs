//! A webhook receiver that runs on the caller's runtime. It responds, hangs or refuses as
//! configured, and counts which event arrived at which endpoint. An event counts as arrived once
//! its request got 200 on a connection that the sender had not closed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;

use crate::http::header;
use crate::webhooks::arrivals::EventKey;

/// More than the connections of any case, so that none waits to be accepted.
const BACKLOG: u32 = 4_096;
/// Interval at which a waiting caller checks.
const LOOK: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Answer,
    /// Reads requests and answers none of them until the manner changes.
    Hang,
    /// Answers 500 to one request of this many, and 200 to the others.
    FailOneOf(u64),
}

/// Called with the body of every request and the time of its first byte.
type Observer = Box<dyn Fn(&[u8], Instant) + Send + Sync>;

struct State {
    manner: watch::Sender<Manner>,
    requests: AtomicU64,
    /// How often each event arrived at each endpoint, by path and event id.
    arrived: Mutex<HashMap<(u32, EventKey), u32>>,
    observer: Option<Observer>,
}

#[derive(Clone)]
pub struct Receiver {
    pub address: SocketAddr,
    state: Arc<State>,
}

impl Receiver {
    pub fn start(manner: Manner) -> Result<Self> {
        Self::with(manner, None)
    }

    pub fn observed(observer: impl Fn(&[u8], Instant) + Send + Sync + 'static) -> Result<Self> {
        Self::with(Manner::Answer, Some(Box::new(observer)))
    }

    /// Uses a port that is already bound.
    pub fn on(listener: std::net::TcpListener, manner: Manner) -> Result<Self> {
        listener.set_nonblocking(true)?;
        Self::serve(TcpListener::from_std(listener)?, manner, None)
    }

    fn with(manner: Manner, observer: Option<Observer>) -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(([127, 0, 0, 1], 0).into())?;
        Self::serve(socket.listen(BACKLOG)?, manner, observer)
    }

    fn serve(listener: TcpListener, manner: Manner, observer: Option<Observer>) -> Result<Self> {
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            manner: watch::Sender::new(manner),
            requests: AtomicU64::new(0),
            arrived: Mutex::default(),
            observer,
        });
        tokio::spawn(accept(listener, Arc::clone(&state)));
        Ok(Self { address, state })
    }

    pub fn url(&self, endpoint: u32) -> String {
        format!("http://{}/e/{endpoint}", self.address)
    }

    pub fn set(&self, manner: Manner) {
        self.state.manner.send_replace(manner);
    }

    /// Requests so far, including those without a response.
    pub fn requests(&self) -> u64 {
        self.state.requests.load(Ordering::Relaxed)
    }

    /// Different deliveries that arrived, and how many arrived more than once.
    pub fn arrived(&self) -> (u64, u64) {
        let arrived = lock(&self.state.arrived);
        let twice = arrived.values().filter(|times| **times > 1).count();
        (arrived.len() as u64, twice as u64)
    }

    /// Waits until this many different deliveries have arrived; returns their number.
    pub async fn wait(&self, wanted: u64, limit: Duration) -> u64 {
        let until = Instant::now() + limit;
        loop {
            let (arrived, _) = self.arrived();
            if arrived >= wanted || Instant::now() >= until {
                return arrived;
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        tokio::spawn(async move {
            // A sender may close a connection at any time.
            let _ = connection(stream, &state).await;
        });
    }
}

async fn connection(mut stream: TcpStream, state: &State) -> Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(8 << 10);
    let mut began = Instant::now();
    loop {
        if let Some((endpoint, event, total_bytes)) = request(&buffer)? {
            let number = state.requests.fetch_add(1, Ordering::Relaxed);
            if let Some(observer) = &state.observer {
                observer(&buffer[..total_bytes], began);
            }
            buffer.drain(..total_bytes);
            if !answer(&mut stream, state, number, (endpoint, event)).await? {
                return Ok(());
            }
            continue;
        }
        if buffer.is_empty() {
            stream.readable().await?;
            began = Instant::now();
        }
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(());
        }
    }
}

/// False if the sender has disconnected.
async fn answer(
    stream: &mut TcpStream,
    state: &State,
    number: u64,
    delivery: (u32, EventKey),
) -> Result<bool> {
    let mut manner = state.manner.subscribe();
    if *manner.borrow_and_update() == Manner::Hang {
        let mut byte = [0];
        tokio::select! {
            changed = manner.wait_for(|manner| *manner != Manner::Hang) => {
                changed.map(|_| ())?;
            }
            // A sender sends nothing before it has its response, so this is the end.
            _ = stream.read(&mut byte) => return Ok(false),
        }
    }
    let manner = *manner.borrow();
    if let Manner::FailOneOf(many) = manner
        && number.is_multiple_of(many)
    {
        stream.write_all(b"HTTP/1.1 500 Failed\r\nContent-Length: 0\r\n\r\n").await?;
        return Ok(true);
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await?;
    *lock(&state.arrived).entry(delivery).or_default() += 1;
    Ok(true)
}

/// Endpoint, event and size of the request at the start of the buffer; None until it is complete.
fn request(buffer: &[u8]) -> Result<Option<(u32, EventKey, usize)>> {
    let Some(end) = memmem::find(buffer, b"\r\n\r\n") else { return Ok(None) };
    let head = &buffer[..end];
    let length = header(head, b"content-length").and_then(|digits| digits.parse::<usize>().ok());
    let total_bytes = end + 4 + length.context("no Content-Length")?;
    if buffer.len() < total_bytes {
        return Ok(None);
    }
    let path = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
    let digits = path.iter().filter(|byte| byte.is_ascii_digit());
    let endpoint = digits.fold(0_u32, |number, digit| {
        number.saturating_mul(10).saturating_add(u32::from(digit - b'0'))
    });
    let id = header(head, b"webhook-id").unwrap_or_default();
    Ok(Some((endpoint, EventKey::of(id.as_bytes()), total_bytes)))
}

/// A thread that panicked leaves no inconsistent state here.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_parsed_once_it_is_complete() {
        let bytes = b"POST /e/12 HTTP/1.1\r\nWebhook-Id: evt_1\r\nContent-Length: 2\r\n\r\n{}POST";
        let end = bytes.len() - 4;
        assert_eq!(request(&bytes[..end - 1]).unwrap(), None);
        assert_eq!(request(bytes).unwrap(), Some((12, EventKey::of(b"evt_1"), end)));
        assert!(request(b"POST / HTTP/1.1\r\n\r\n").is_err());
    }
}
