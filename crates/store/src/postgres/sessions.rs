//! The sessions of reads: makes them, a few at a time, and keeps those that nobody uses. One that
//! was made for a caller who has gone is kept for the next.

use super::connect::{Address, Client};
use crate::Error;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// Attempts to connect at the same time.
const CONNECTING: usize = 4;
/// After a failed attempt to connect: until then every read fails at once. Otherwise each request
/// would knock at a server that is about to start.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Sessions {
    address: Address,
    handle: Handle,
    connecting: Arc<Semaphore>,
    idle: Mutex<Vec<Arc<Client>>>,
    /// How many of them are kept.
    most_idle: usize,
    /// No attempt to connect before this, and why the last one failed.
    failed: Mutex<Option<(Instant, String)>>,
}

impl Sessions {
    pub fn new(address: Address, handle: Handle, most_idle: usize) -> Arc<Sessions> {
        let connecting = Arc::new(Semaphore::new(CONNECTING));
        let (idle, failed) = (Mutex::new(Vec::new()), Mutex::new(None));
        Arc::new(Sessions { address, handle, connecting, idle, most_idle, failed })
    }

    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// One that nobody uses, or a new one.
    pub async fn take(self: &Arc<Sessions>) -> Result<Arc<Client>, Error> {
        if let Some(client) = self.idle() {
            return Ok(client);
        }
        self.connect().await
    }

    fn idle(&self) -> Option<Arc<Client>> {
        let mut idle = self.idle.lock();
        std::iter::from_fn(|| idle.pop()).find(|client| !client.is_closed())
    }

    pub fn give_back(&self, client: Arc<Client>) {
        let mut idle = self.idle.lock();
        if idle.len() < self.most_idle && !client.is_closed() {
            idle.push(client);
        }
    }

    /// Forgets those that nobody uses. Behind a pooler, they lead to another server after a
    /// failover, and nobody has asked it yet whether it is the primary.
    pub fn forget_idle(&self) {
        self.idle.lock().clear();
    }

    /// A new one.
    pub async fn connect(self: &Arc<Sessions>) -> Result<Arc<Client>, Error> {
        self.may_connect()?;
        let closed = || Error::Unavailable("the store was closed".into());
        let permit = self.connecting.clone().acquire_owned().await.map_err(|_| closed())?;
        // Of those who waited for the permit, only the first learns by itself that it fails.
        self.may_connect()?;
        let (sender, connected) = oneshot::channel();
        let sessions = self.clone();
        self.handle.spawn(async move {
            let made = sessions.address.connect().await.map(Arc::new);
            if let Err(error) = &made {
                *sessions.failed.lock() = Some((Instant::now() + PAUSE, error.to_string()));
            }
            if let Err(Ok(unused)) = sender.send(made) {
                sessions.give_back(unused);
            }
            drop(permit);
        });
        match connected.await {
            Ok(Err(Error::Refused(reasons))) => Err(Error::Unavailable(reasons.join(" ").into())),
            Ok(connected) => connected,
            Err(_) => Err(closed()),
        }
    }

    fn may_connect(&self) -> Result<(), Error> {
        match &*self.failed.lock() {
            Some((until, reason)) if Instant::now() < *until => {
                Err(Error::Unavailable(reason.clone().into()))
            }
            _ => Ok(()),
        }
    }
}
