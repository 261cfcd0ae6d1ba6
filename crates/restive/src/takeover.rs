//! Passes the listening sockets of a proxy to the process that replaces it, over the control
//! socket. Each socket is a message of one byte, which names its use, with the descriptor attached;
//! a byte without a descriptor ends the list. The new process accepts connections before it reports
//! that it is ready, so that at any time at least one of the two accepts them.

use anyhow::{Context as _, bail};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;
use wire::Listener;

use crate::control;
use crate::data;

/// The command of the new process.
pub const COMMAND: &str = "take-over";
/// The new process accepts connections.
const READY: u8 = b'r';
/// The old process has begun to drain.
const DRAINING: u8 = b'd';
/// The end of the list of sockets.
const END: u8 = b'.';
/// The first byte of an error, which cannot be the name of a use.
const ERROR: u8 = b'e';
/// Time limit of each message but `READY`.
const MESSAGE_TIME: Duration = Duration::from_secs(10);
/// Time for the new process to start: it reads certificates. Then the old one goes on.
const START_TIME: Duration = Duration::from_secs(60);
/// The most sockets that are received: three listeners on a machine with more than 300 cores.
const MAX_SOCKETS: usize = 1024;

/// What a listening socket is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Use {
    Service,
    Http3,
    Redirect,
    Metrics,
}

impl Use {
    const ALL: [(Use, u8); 4] =
        [(Use::Service, b'S'), (Use::Http3, b'Q'), (Use::Redirect, b'R'), (Use::Metrics, b'M')];

    fn code(self) -> u8 {
        Use::ALL.iter().find(|(of, _)| *of == self).map_or(END, |(_, code)| *code)
    }

    fn of(code: u8) -> Option<Use> {
        Use::ALL.iter().find(|(_, of)| *of == code).map(|(of, _)| *of)
    }
}

/// Listening sockets with their uses.
#[derive(Default)]
pub struct Sockets(Vec<(Use, OwnedFd)>);

impl Sockets {
    pub fn push(&mut self, of: Use, socket: impl Into<OwnedFd>) {
        self.0.push((of, socket.into()));
    }

    /// The listener for this use and address, if the sockets are among these.
    pub fn listener(&mut self, of: Use, address: SocketAddr) -> io::Result<Option<Listener>> {
        let mut found = Vec::new();
        for socket in self.take(of).map(TcpListener::from) {
            if is_at(socket.local_addr()?, address) {
                found.push(socket);
            }
        }
        if found.is_empty() { Ok(None) } else { Listener::from_sockets(found).map(Some) }
    }

    /// The socket of HTTP/3 at this address, if it is among these.
    pub fn datagrams(&mut self, address: SocketAddr) -> Option<UdpSocket> {
        let mut sockets = self.take(Use::Http3).map(UdpSocket::from);
        sockets.find(|socket| socket.local_addr().is_ok_and(|bound| is_at(bound, address)))
    }

    fn take(&mut self, of: Use) -> impl Iterator<Item = OwnedFd> + use<> {
        let wanted: Vec<_> = self.0.extract_if(.., |(found, _)| *found == of).collect();
        wanted.into_iter().map(|(_, socket)| socket)
    }
}

/// Whether a socket has an address that may leave the port to the system.
fn is_at(bound: SocketAddr, asked: SocketAddr) -> bool {
    bound.ip() == asked.ip() && (asked.port() == 0 || bound.port() == asked.port())
}

/// A running proxy that this process replaces.
pub struct Predecessor(StdStream);

impl Predecessor {
    /// Asks the proxy with this control socket for its sockets. `None` if no proxy has it.
    pub fn find(control: &Path) -> anyhow::Result<Option<(Predecessor, Sockets)>> {
        data::block_on(async {
            let stream = match UnixStream::connect(control).await {
                Ok(stream) => stream,
                Err(error) if control::is_abandoned(&error) => return Ok(None),
                Err(error) => {
                    let shown = control.display();
                    return Err(error).context(format!("cannot connect to {shown}"));
                }
            };
            // Another user's process could pass sockets that nobody reaches.
            if !control::is_own(&stream)? {
                bail!("{} belongs to another user of this machine", control.display());
            }
            let received = timeout(MESSAGE_TIME, receive_all(stream)).await;
            let (stream, sockets) =
                received.context("the running proxy did not pass its sockets in time")??;
            Ok(Some((Predecessor(stream.into_std()?), sockets)))
        })
    }

    /// Has it drain. The future completes when it has ended.
    pub async fn replace(self) -> anyhow::Result<impl Future<Output = ()> + Send + 'static> {
        let mut stream = UnixStream::from_std(self.0)?;
        let replaced = async {
            stream.write_all(&[READY]).await?;
            stream.read_u8().await
        };
        match timeout(MESSAGE_TIME, replaced).await {
            Ok(Ok(DRAINING)) => {}
            _ => bail!("the old proxy did not confirm that it drains"),
        }
        Ok(async move {
            // It sends nothing more: this is the end of its process, however it comes.
            let _ = stream.read(&mut [0]).await;
        })
    }
}

async fn receive_all(mut stream: UnixStream) -> anyhow::Result<(UnixStream, Sockets)> {
    stream.write_all(format!("{COMMAND}\n").as_bytes()).await?;
    let mut sockets = Sockets::default();
    while sockets.0.len() <= MAX_SOCKETS {
        match receive(&stream).await? {
            (END, None) => return Ok((stream, sockets)),
            (code, Some(socket)) if Use::of(code).is_some() => {
                sockets.0.extend(Use::of(code).map(|of| (of, socket)));
            }
            (ERROR, None) => {
                let text = control::read_answer(&mut stream, &[ERROR]).await?;
                bail!("the running proxy refuses: {}", text.err().unwrap_or_default());
            }
            _ => bail!("the running proxy sent a message that this version does not know"),
        }
    }
    bail!("the running proxy passes more than {MAX_SOCKETS} sockets")
}

/// Passes the sockets to the new process. Completes when that accepts connections; on an error this
/// process must go on.
pub async fn hand_over(stream: &mut UnixStream, sockets: &Sockets) -> anyhow::Result<()> {
    let passed = async {
        for (of, socket) in &sockets.0 {
            send(stream, of.code(), socket.as_fd()).await?;
        }
        stream.write_all(&[END]).await
    };
    timeout(MESSAGE_TIME, passed).await.context("it did not receive the sockets in time")??;
    let ready = timeout(START_TIME, stream.read_u8()).await;
    match ready.context("it did not start in time")? {
        Ok(READY) => Ok(()),
        _ => bail!("it ended before it was ready"),
    }
}

/// Confirms that this process drains. The new process learns of its end by the end of the stream.
pub async fn confirm(stream: &mut UnixStream) {
    // The new process accepts connections: if it has gone since, this changes nothing.
    let _ = timeout(MESSAGE_TIME, stream.write_all(&[DRAINING])).await;
}

async fn send(stream: &UnixStream, byte: u8, socket: BorrowedFd<'_>) -> io::Result<()> {
    let sent = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket];
        if !attached.push(SendAncillaryMessage::ScmRights(&sockets)) {
            return Err(io::Error::other("a descriptor does not fit into a message"));
        }
        let bytes = [IoSlice::new(std::slice::from_ref(&byte))];
        Ok(sendmsg(stream, &bytes, &mut attached, SendFlags::NOSIGNAL)?)
    };
    stream.async_io(Interest::WRITABLE, sent).await.map(|_| ())
}

/// One byte, and the descriptor that is attached to it.
async fn receive(stream: &UnixStream) -> io::Result<(u8, Option<OwnedFd>)> {
    // A descriptor must not remain open in programs that this process executes.
    #[cfg(target_os = "linux")]
    const FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    const FLAGS: RecvFlags = RecvFlags::empty();
    let received = || {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut attached = RecvAncillaryBuffer::new(&mut space);
        let mut byte = 0;
        let bytes = &mut [IoSliceMut::new(std::slice::from_mut(&mut byte))];
        if recvmsg(stream, bytes, &mut attached, FLAGS)?.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let socket = attached.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        Ok((byte, socket))
    };
    stream.async_io(Interest::READABLE, received).await
}
