//! What the tasks of one connection share: its limits, its memory, and how it fails. Knows no
//! frames.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use quinn::crypto::rustls::HandshakeData;
use quinn::{Connection, VarInt};
use rustls::pki_types::CertificateDer;
use tokio::time::Instant;

use super::frames::Code;
use super::window::Windows;
use crate::memory::Memory;
use crate::tls::Shown;
use crate::worker::{Link, Worker};

/// Requests that a client may take back before they are answered, at once and then each second: as
/// resets on HTTP/2.
const CANCELLED: (u32, u32) = (1000, 33);

/// What the streams of a connection share.
pub(super) struct ConnectionContext {
    pub(super) worker: Rc<Worker>,
    pub(super) link: Rc<Link>,
    pub(super) connection: Connection,
    /// What the client makes us hold.
    pub(super) memory: Arc<Memory>,
    pub(super) windows: Windows,
    /// The client's address, proved by the handshake.
    pub(super) peer: SocketAddr,
    pub(super) roles: Roles,
    /// How many more requests the client may take back, and since when so many.
    patience: RefCell<(u32, Instant)>,
}

/// Which of the streams that exist once have come.
#[derive(Default)]
pub(super) struct Roles {
    pub(super) control: Cell<bool>,
    pub(super) encoder: Cell<bool>,
    pub(super) decoder: Cell<bool>,
}

/// What the handshake has shown.
fn shown(link: &Link, connection: &Connection) -> Option<Shown> {
    let tls = link.worker.terms.tls.as_ref()?;
    let agreed = connection.handshake_data()?.downcast::<HandshakeData>().ok()?;
    let identity = connection.peer_identity();
    let identity = identity.and_then(|it| it.downcast::<Vec<CertificateDer<'static>>>().ok());
    tls.shown(agreed.server_name.as_deref(), identity.as_deref().map(Vec::as_slice))
}

impl ConnectionContext {
    pub(super) fn new(link: Rc<Link>, connection: Connection) -> ConnectionContext {
        let patience = RefCell::new((CANCELLED.0, Instant::now()));
        let worker = link.worker.clone();
        // As it is now: an address to which the client moves later may not be proved.
        let peer = connection.remote_address();
        link.set_client(peer);
        link.set_shown(shown(&link, &connection));
        let memory = Memory::new(worker.shared.memory.clone());
        ConnectionContext {
            worker,
            link,
            peer,
            windows: Windows::new(connection.clone(), memory.clone()),
            memory,
            connection,
            roles: Roles::default(),
            patience,
        }
    }

    /// The client has broken the protocol.
    pub(super) fn fail(&self, code: VarInt) {
        self.connection.close(code, b"");
    }

    /// A request was taken back: work that was begun is thrown away, which costs us and not the
    /// client.
    pub(super) fn cancelled(&self) {
        let (burst, each_second) = CANCELLED;
        let mut patience = self.patience.borrow_mut();
        let (left, since) = &mut *patience;
        let seconds = since.elapsed().as_secs();
        if seconds > 0 {
            let more = each_second.saturating_mul(u32::try_from(seconds).unwrap_or(u32::MAX));
            *left = left.saturating_add(more).min(burst);
            *since = Instant::now();
        }
        match left.checked_sub(1) {
            Some(less) => *left = less,
            None => self.fail(Code::EXCESSIVE_LOAD),
        }
    }
}
