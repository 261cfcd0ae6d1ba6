//! What is between a node and its database: it counts what the server sends, cuts connections, so
//! that the server does not learn of it before it has finished its statement, and leads to another
//! server.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Clone)]
pub struct Wire {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    target: Mutex<String>,
    open: Mutex<Vec<TcpStream>>,
    received: AtomicU64,
}

impl Wire {
    /// To a server: host and port.
    pub fn to(target: String) -> Wire {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (target, open) = (Mutex::new(target), Mutex::new(Vec::new()));
        let inner = Arc::new(Inner { target, open, received: AtomicU64::new(0) });
        let wire = Wire { address, inner };
        let carrying = wire.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                carrying.carry(client);
            }
        });
        wire
    }

    /// Host and port, for a node.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections.
    pub fn cut(&self) {
        for stream in self.inner.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Leads to another server from now on, as the name of a database does after a failover.
    pub fn lead_to(&self, target: String) {
        *self.inner.target.lock().unwrap() = target;
        self.cut();
    }

    /// How many bytes the server has sent.
    pub fn received(&self) -> u64 {
        self.inner.received.load(Ordering::Relaxed)
    }

    fn carry(&self, client: TcpStream) {
        let target = self.inner.target.lock().unwrap().clone();
        let Ok(server) = TcpStream::connect(target) else { return };
        let ends = [&client, &server].map(|stream| stream.try_clone().unwrap());
        self.inner.open.lock().unwrap().extend(ends);
        for (from, to, counts) in [(&client, &server, false), (&server, &client, true)] {
            let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
            let inner = self.inner.clone();
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(size @ 1..) = from.read(&mut buffer) {
                    if counts {
                        inner.received.fetch_add(size as u64, Ordering::Relaxed);
                    }
                    if to.write_all(&buffer[..size]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}
