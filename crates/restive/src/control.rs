//! The control socket of a running proxy: `restive proxy reload` and `restive proxy --take-over`
//! connect to it. It is a unix socket that only its owner can open, and requests of other users are
//! refused as well. A request is one line; the answer to `reload` is a line `ok` or `error` and a
//! text.

use crate::data;
use crate::takeover::{self, Sockets};
use anyhow::{Context as _, bail};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

/// The socket in the data folder.
const NAME: &str = "proxy.sock";
/// The argument for no socket.
const OFF: &str = "off";
const MODE: u32 = 0o600;
/// The longest request; the known ones are shorter.
const MAX_REQUEST_BYTES: usize = 64;
/// Time to send a request, and to read the answer.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time for the answer to `reload`: reading a file.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// The longest answer that is read. 1 MiB: some ten thousand errors of a configuration.
const MAX_ANSWER_BYTES: u64 = 1024 * 1024;
/// Requests at a time; more are closed. 8: an operator sends one.
const MAX_REQUESTS: usize = 8;
/// The pause after the socket failed to accept.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A request to read the configuration again; the error is a text for the operator.
pub type Reload = oneshot::Sender<Result<(), String>>;

/// Where the control socket is.
pub struct Place {
    path: PathBuf,
    /// The operator has named it: then the proxy does not start without it.
    is_chosen: bool,
}

impl Place {
    /// `None` if there is to be no socket.
    pub fn new(chosen: Option<&Path>, data: &Path) -> Option<Place> {
        match chosen {
            Some(path) if path == OFF => None,
            Some(path) => Some(Place { path: path.to_owned(), is_chosen: true }),
            None => Some(Place { path: data.join(NAME), is_chosen: false }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// What the requests act on.
pub struct Commands {
    pub reload: mpsc::Sender<Reload>,
    pub sockets: Sockets,
}

/// The control socket of this process.
pub struct Control {
    bound: Bound,
    task: JoinHandle<()>,
    successor: Successor,
}

/// The connection of the process that replaces this one. It stays open until this process ends.
type Successor = Arc<Mutex<Option<UnixStream>>>;

impl Control {
    /// Opens the socket. Without it the proxy still works: if the operator has not named one, the
    /// reason is logged.
    pub fn start(
        place: Option<&Place>,
        commands: Commands,
        replaces: bool,
    ) -> anyhow::Result<Option<Control>> {
        let Some(place) = place else { return Ok(None) };
        let (listener, bound) = match bind(&place.path, replaces) {
            Ok(opened) => opened,
            Err(error) if place.is_chosen => return Err(error),
            Err(error) => {
                let error = format!("{error:#}");
                let message = "there is no control socket: `restive proxy reload` and --take-over \
                               do not reach this proxy; choose another path with --control";
                tracing::warn!(error, "{message}");
                return Ok(None);
            }
        };
        let successor = Successor::default();
        let requests = Requests {
            commands,
            successor: successor.clone(),
            take_overs: Arc::new(Semaphore::new(1)),
        };
        let task = tokio::spawn(Arc::new(requests).run(listener));
        Ok(Some(Control { bound, task, successor }))
    }

    /// Closes the socket, and with it the duplicates of the listening sockets: they would accept
    /// connections that nobody serves. What this returns must live until the process ends.
    pub async fn close(self) -> impl Sized {
        self.task.abort();
        let _ = self.task.await;
        let successor = self.successor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if successor.is_none() {
            self.bound.remove();
        }
        successor
    }
}

/// A socket file of this process.
struct Bound {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl Bound {
    /// Removes the file, unless another process has put its own in the same place.
    fn remove(&self) {
        let found = fs::symlink_metadata(&self.path).map(|about| (about.dev(), about.ino()));
        if found.is_ok_and(|found| found == self.device_and_inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds the socket under another name first: the path always leads to a complete socket, also
/// while one process replaces another.
fn bind(path: &Path, replaces: bool) -> anyhow::Result<(UnixListener, Bound)> {
    let shown = path.display();
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).context(format!("{shown} cannot be opened")),
        Ok(about) if !about.file_type().is_socket() => bail!("{shown} exists and is no socket"),
        Ok(_) if replaces => {}
        Ok(_) => match std::os::unix::net::UnixStream::connect(path) {
            Ok(_) => bail!("another proxy has the control socket {shown}"),
            Err(error) if is_abandoned(&error) => {}
            Err(error) => return Err(error).context(format!("cannot connect to {shown}")),
        },
    }
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}", std::process::id()));
    let draft = PathBuf::from(draft);
    let _ = fs::remove_file(&draft);
    let opened = || {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            data::make(folder)?;
        }
        let listener = UnixListener::bind(&draft)?;
        fs::set_permissions(&draft, Permissions::from_mode(MODE))?;
        let about = fs::symlink_metadata(&draft)?;
        fs::rename(&draft, path)?;
        let device_and_inode = (about.dev(), about.ino());
        Ok((listener, Bound { path: path.to_owned(), device_and_inode }))
    };
    opened().map_err(|error: io::Error| {
        let _ = fs::remove_file(&draft);
        anyhow::Error::new(error).context(format!("the control socket {shown} cannot be created"))
    })
}

/// Whether an error to connect means that no process has the socket.
pub fn is_abandoned(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

/// Whether the process at the other end has the user of this one, or is root.
pub fn is_own(stream: &UnixStream) -> io::Result<bool> {
    let user = stream.peer_cred()?.uid();
    Ok(user == rustix::process::geteuid().as_raw() || user == 0)
}

struct Requests {
    commands: Commands,
    successor: Successor,
    take_overs: Arc<Semaphore>,
}

impl Requests {
    async fn run(self: Arc<Requests>, listener: UnixListener) {
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) if tasks.len() < MAX_REQUESTS => {
                        tasks.spawn(self.clone().serve(stream));
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::warn!(%error, "the control socket cannot accept connections");
                        sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            }
        }
    }

    async fn serve(self: Arc<Requests>, mut stream: UnixStream) {
        let Ok(Ok(Some(request))) = timeout(REQUEST_TIME, read_request(&mut stream)).await else {
            return;
        };
        let answer = match request.as_str() {
            _ if !is_own(&stream).unwrap_or(false) => Err("only its own user may".to_owned()),
            "reload" => self.reload().await,
            takeover::COMMAND => return self.hand_over(stream).await,
            _ => Err("the request is unknown; known are reload and take-over".to_owned()),
        };
        respond(&mut stream, answer).await;
    }

    async fn reload(&self) -> Result<(), String> {
        let (reply, outcome) = oneshot::channel();
        // Both fail only if the proxy stops.
        let sent = self.commands.reload.send(reply).await.is_ok();
        match sent.then_some(outcome) {
            Some(outcome) => outcome.await.unwrap_or_else(|_| Err(STOPS.to_owned())),
            None => Err(STOPS.to_owned()),
        }
    }

    /// Passes the sockets on and drains, if the new process starts.
    async fn hand_over(&self, mut stream: UnixStream) {
        let Ok(_permit) = self.take_overs.try_acquire() else {
            return respond(&mut stream, Err("another process takes over".to_owned())).await;
        };
        if let Err(error) = takeover::hand_over(&mut stream, &self.commands.sockets).await {
            let error = format!("{error:#}");
            return tracing::error!(error, "another process did not take over; this one goes on");
        }
        tracing::info!("another process has taken over the listening sockets");
        takeover::confirm(&mut stream).await;
        *self.successor.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        // The same way as if an operator stops it, with the same time limits.
        let own = rustix::process::getpid();
        if let Err(error) = rustix::process::kill_process(own, rustix::process::Signal::TERM) {
            tracing::error!(%error, "this process cannot signal itself to stop");
        }
        // No second process takes over.
        std::future::pending().await
    }
}

const STOPS: &str = "the proxy is stopping";

/// A line without its end. `None` if the connection ends first: somebody looked whether a proxy is
/// here.
async fn read_request(stream: &mut UnixStream) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    while line.len() <= MAX_REQUEST_BYTES {
        let mut byte = 0;
        match stream.read(std::slice::from_mut(&mut byte)).await? {
            0 => return Ok(None),
            _ if byte == b'\n' => return Ok(Some(String::from_utf8_lossy(&line).into_owned())),
            _ => line.push(byte),
        }
    }
    // No request is as long: it is unknown.
    Ok(Some(String::new()))
}

async fn respond(stream: &mut UnixStream, answer: Result<(), String>) {
    let text = match answer {
        Ok(()) => "ok\n".to_owned(),
        Err(error) => format!("error\n{error}"),
    };
    // A client that does not wait for its answer does not need it.
    let _ = timeout(REQUEST_TIME, stream.write_all(text.as_bytes())).await;
}

/// Reads an answer, of which these bytes were read before.
pub async fn read_answer(
    stream: &mut UnixStream,
    before: &[u8],
) -> anyhow::Result<Result<(), String>> {
    let mut bytes = before.to_vec();
    let mut limited = stream.take(MAX_ANSWER_BYTES);
    let read = timeout(ANSWER_TIME, limited.read_to_end(&mut bytes)).await;
    read.context("the proxy does not answer")??;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match text.split_once('\n') {
        Some(("ok", _)) => Ok(Ok(())),
        Some(("error", text)) => Ok(Err(text.to_owned())),
        _ => bail!("the proxy sent an answer that this version does not know"),
    }
}

/// `restive proxy reload`: has the running proxy read its configuration again.
pub async fn reload(place: Option<&Place>) -> anyhow::Result<()> {
    let Some(place) = place else { bail!("--control off: a proxy without a socket cannot reload") };
    let shown = place.path.display();
    let mut stream = UnixStream::connect(&place.path).await.with_context(|| {
        format!("no proxy answers at {shown}; name its socket with --control, or its --data folder")
    })?;
    stream.write_all(b"reload\n").await?;
    match read_answer(&mut stream, &[]).await? {
        Ok(()) => Ok(()),
        Err(error) => bail!("{error}"),
    }
}
