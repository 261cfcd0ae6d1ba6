//! A TCP relay between a client and a server, which cuts connections after a number of bytes, and
//! answers in the server's place.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What happens to a connection.
#[derive(Clone)]
pub enum Plan {
    Pass,
    /// Closed after this many bytes of the server.
    Cut(usize),
    /// Stays open after this many bytes of the server, but passes no more.
    Stall(usize),
    /// The relay answers the first request with these bytes and closes.
    Answer(String),
    /// Closed at once.
    Refuse,
}

impl Plan {
    /// An answer with a status, header lines and a body.
    pub fn status(status: u16, headers: &str, body: &str) -> Plan {
        let length = body.len();
        Plan::Answer(format!(
            "HTTP/1.1 {status} Said\r\ncontent-length: {length}\r\nconnection: close\r\n\
             {headers}\r\n{body}"
        ))
    }

    /// The error page of a proxy.
    pub fn html(status: u16) -> Plan {
        Plan::status(status, "content-type: text/html\r\n", "<html><h1>Sorry</h1></html>")
    }
}

#[derive(Clone)]
pub struct Relay {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    target: SocketAddr,
    plans: VecDeque<Plan>,
    connections: usize,
    /// Client and server, by the number of the connection.
    open: BTreeMap<usize, [TcpStream; 2]>,
}

impl Relay {
    pub fn to(target: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { target, plans: VecDeque::new(), connections: 0, open: BTreeMap::new() };
        let relay = Relay { address, state: Arc::new(Mutex::new(state)) };
        let shared = relay.clone();
        std::thread::spawn(move || {
            // One that cannot be accepted does not end the others.
            for client in listener.incoming().flatten() {
                let relay = shared.clone();
                let (number, plan) = {
                    let mut state = relay.state.lock().unwrap();
                    state.connections += 1;
                    (state.connections, state.plans.pop_front().unwrap_or(Plan::Pass))
                };
                std::thread::spawn(move || {
                    relay.carry(client, number, plan);
                    relay.state.lock().unwrap().open.remove(&number);
                });
            }
        });
        relay
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next connections get these plans; after them, all pass.
    pub fn plan(&self, plans: impl IntoIterator<Item = Plan>) {
        self.state.lock().unwrap().plans.extend(plans);
    }

    /// Plans that no connection got yet.
    pub fn planned(&self) -> usize {
        self.state.lock().unwrap().plans.len()
    }

    /// Forgets plans that no connection got yet.
    pub fn forget(&self) {
        self.state.lock().unwrap().plans.clear();
    }

    /// Uses another server for new connections.
    pub fn aim(&self, target: SocketAddr) {
        self.state.lock().unwrap().target = target;
    }

    pub fn connections(&self) -> usize {
        self.state.lock().unwrap().connections
    }

    /// Cuts all open connections.
    pub fn cut(&self) {
        let open = std::mem::take(&mut self.state.lock().unwrap().open);
        for stream in open.into_values().flatten() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn carry(&self, mut client: TcpStream, number: usize, plan: Plan) {
        let limit = match &plan {
            Plan::Refuse => return,
            Plan::Answer(text) => {
                let _ = client.read(&mut [0; 64 * 1024]);
                let _ = client.write_all(text.as_bytes());
                let _ = client.shutdown(Shutdown::Write);
                // The client reads it before the connection is gone.
                while client.read(&mut [0; 1024]).is_ok_and(|count| count > 0) {}
                return;
            }
            Plan::Pass => usize::MAX,
            Plan::Cut(bytes) | Plan::Stall(bytes) => *bytes,
        };
        let stalls = matches!(plan, Plan::Stall(_));
        let target = self.state.lock().unwrap().target;
        let Ok(server) = TcpStream::connect(target) else { return };
        let mut state = self.state.lock().unwrap();
        state.open.insert(number, [client.try_clone().unwrap(), server.try_clone().unwrap()]);
        drop(state);
        let (up, down) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let upwards = std::thread::spawn(move || copy(&client, &up));
        pass(&server, &down, limit);
        if !stalls {
            close(&server, &down);
        }
        let _ = upwards.join();
    }
}

/// Copies bytes until the end, then closes both.
fn copy(from: &TcpStream, to: &TcpStream) {
    pass(from, to, usize::MAX);
    close(from, to);
}

/// Copies bytes until the end or the limit.
fn pass(mut from: &TcpStream, mut to: &TcpStream, limit: usize) {
    let (mut piece, mut left) = (vec![0; 16 * 1024], limit);
    while left > 0 {
        let size = left.min(piece.len());
        let Ok(count @ 1..) = from.read(&mut piece[..size]) else { break };
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
        left -= count;
    }
}

fn close(one: &TcpStream, other: &TcpStream) {
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}
