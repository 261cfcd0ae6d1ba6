//! A network that breaks: a TCP relay whose connections are cut at random, in the middle of
//! requests and responses, and which is unreachable for moments. Knows nothing of HTTP.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::entropy::Entropy;

/// One connection in so many is cut after a random number of bytes.
const CUT_ONE_IN: u64 = 4;
/// Most bytes that such a connection passes, in one direction: some requests.
const CUT_BYTES: u64 = 8 * 1024;
/// Longest time between two cuts of all connections.
const CUT_EVERY: Duration = Duration::from_millis(400);
/// Longest time without a network.
const DOWN: Duration = Duration::from_millis(300);
/// Connections at one time. A receiver or a provider has far fewer; more would be a leak.
const MAX_OPEN: usize = 512;

/// Passes connections on to a target that may change.
#[derive(Clone)]
pub struct Relay {
    pub address: String,
    state: Arc<Mutex<State>>,
    cuts: Arc<AtomicU64>,
}

struct State {
    target: String,
    /// Both ends of every connection, by its number.
    open: HashMap<u64, [TcpStream; 2]>,
    last: u64,
    down_until: Instant,
    entropy: Entropy,
}

impl Relay {
    pub fn to(target: &str) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let state = State {
            target: target.to_owned(),
            open: HashMap::new(),
            last: 0,
            down_until: Instant::now(),
            entropy: Entropy::new()?,
        };
        let relay = Relay {
            address: listener.local_addr()?.to_string(),
            state: Arc::new(Mutex::new(state)),
            cuts: Arc::default(),
        };
        let accepting = relay.clone();
        // Ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A target that is down, or a network that is: the connection is closed.
                let _ = accepting.pass(client);
            }
        });
        Ok(relay)
    }

    /// Where connections go from now on.
    pub fn aim(&self, target: &str) {
        self.lock().target = target.to_owned();
    }

    /// Number of connections that were cut.
    pub fn cuts(&self) -> u64 {
        self.cuts.load(Ordering::Relaxed)
    }

    /// Cuts all connections, and accepts none for this time.
    fn cut_all(&self, down: Duration) {
        let mut state = self.lock();
        state.down_until = Instant::now() + down;
        let open = std::mem::take(&mut state.open);
        self.cuts.fetch_add(open.len() as u64, Ordering::Relaxed);
        shut(open.values().flatten());
    }

    fn pass(&self, client: TcpStream) -> std::io::Result<()> {
        let (target, limit) = {
            let mut state = self.lock();
            if Instant::now() < state.down_until || state.open.len() >= MAX_OPEN {
                return Ok(());
            }
            let is_cut = random(&mut state.entropy, CUT_ONE_IN) == 0;
            let limit = is_cut.then(|| 1 + random(&mut state.entropy, CUT_BYTES));
            (state.target.clone(), limit)
        };
        let server = TcpStream::connect(target)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let forth = (client.try_clone()?, server.try_clone()?);
        let back = (server.try_clone()?, client.try_clone()?);
        let number = {
            let mut state = self.lock();
            state.last += 1;
            let number = state.last;
            state.open.insert(number, [client, server]);
            number
        };
        for (from, to) in [forth, back] {
            let relay = self.clone();
            std::thread::spawn(move || {
                if copy(&from, &to, limit) {
                    relay.cuts.fetch_add(1, Ordering::Relaxed);
                }
                let ends = relay.lock().open.remove(&number);
                shut(ends.iter().flatten());
            });
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends connections in both directions; their threads notice it.
fn shut<'a>(ends: impl Iterator<Item = &'a TcpStream>) {
    for end in ends {
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// Copies until the end, or until the limit: true if it was cut.
fn copy(mut from: &TcpStream, mut to: &TcpStream, limit: Option<u64>) -> bool {
    let mut left = limit;
    let mut buffer = [0; 4096];
    loop {
        let Ok(count @ 1..) = from.read(&mut buffer) else { return false };
        let passed = left.map_or(count, |left| count.min(usize::try_from(left).unwrap_or(count)));
        if to.write_all(&buffer[..passed]).is_err() {
            return false;
        }
        left = left.map(|left| left - passed as u64);
        if left == Some(0) {
            return true;
        }
    }
}

fn random(entropy: &mut Entropy, below: u64) -> u64 {
    (entropy.next() >> 32) % below
}

/// Cuts relays at random times until it is dropped.
pub struct Cutter {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Cutter {
    pub fn start(relays: Vec<Relay>) -> Result<Cutter> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let mut entropy = Entropy::new()?;
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let millis = |entropy: &mut Entropy, most: Duration| {
                    Duration::from_millis(1 + random(entropy, most.as_millis() as u64))
                };
                std::thread::sleep(millis(&mut entropy, CUT_EVERY)); // waits for: the next cut
                let at = random(&mut entropy, relays.len() as u64) as usize;
                let down = match random(&mut entropy, 2) {
                    0 => Duration::ZERO,
                    _ => millis(&mut entropy, DOWN),
                };
                relays[at].cut_all(down);
            }
        });
        Ok(Cutter { stop, thread: Some(thread) })
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that returns what it gets.
    fn echo() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                std::thread::spawn(move || copy(&stream, &stream, None));
            }
        });
        address
    }

    /// How many bytes come back.
    fn returned(address: &str, bytes: usize) -> usize {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let writer = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = (&writer).write_all(&vec![7; bytes]);
        });
        let mut buffer = vec![0; bytes];
        let mut read = 0;
        while read < bytes {
            match (&stream).read(&mut buffer[read..]) {
                Ok(count @ 1..) => read += count,
                _ => break,
            }
        }
        read
    }

    #[test]
    fn some_connections_are_cut_in_the_middle_and_the_others_pass_everything() {
        let relay = Relay::to(&echo()).unwrap();
        let bytes = 4 * CUT_BYTES as usize;
        let whole = (0..60).filter(|_| returned(&relay.address, bytes) == bytes).count();
        assert!((1..60).contains(&whole), "{whole} of 60 were whole");
        assert!(relay.cuts() > 0);
    }

    #[test]
    fn a_cut_ends_open_connections_and_a_later_one_reaches_the_new_target() {
        let relay = Relay::to("127.0.0.1:1").unwrap();
        relay.aim(&echo());
        let began = Instant::now();
        let cutter = Cutter::start(vec![relay.clone()]).unwrap();
        while relay.cuts() == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "nothing was cut");
            returned(&relay.address, 100_000);
        }
        drop(cutter);
        while returned(&relay.address, 1) == 0 {
            assert!(began.elapsed() < Duration::from_secs(20), "the network stays down");
        }
    }
}
