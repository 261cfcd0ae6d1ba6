//! Standard output of commands that may be part of a pipe. The reader may stop reading: a command
//! that follows something must then still receive signals, and a command whose reader has exited
//! ends without an error.

use std::io::{self, ErrorKind, Write as _};
use tokio::io::Interest;
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, oneshot};

/// Texts queued for a slow reader before the writer has to wait.
const QUEUE: usize = 4;
/// Path of standard output, on Linux.
const STDOUT: &str = "/proc/self/fd/1";
/// Error of opening a pipe without a reader.
const ENXIO: i32 = 6;

/// Writes on a separate thread: a write into a full pipe blocks, and a blocked thread receives no
/// signal.
pub struct Output {
    texts: Option<mpsc::Sender<String>>,
    ended: oneshot::Receiver<io::Result<()>>,
}

impl Output {
    pub fn start() -> io::Result<Output> {
        let (texts, mut waiting) = mpsc::channel::<String>(QUEUE);
        let (end, ended) = oneshot::channel();
        std::thread::Builder::new().name("output".into()).spawn(move || {
            let mut result = Ok(());
            while let Some(text) = waiting.blocking_recv() {
                result = write(&text);
                if result.is_err() {
                    break;
                }
            }
            let _ = end.send(result);
        })?;
        Ok(Output { texts: Some(texts), ended })
    }

    /// Queues text, to be written and flushed as one.
    pub async fn write(&mut self, text: String) -> io::Result<()> {
        if let Some(texts) = &self.texts
            && texts.send(text).await.is_ok()
        {
            return Ok(());
        }
        self.finish().await
    }

    /// Waits until everything is written.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.texts = None;
        (&mut self.ended).await.unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))
    }
}

/// Prints a whole text.
pub fn print(text: &str) -> anyhow::Result<()> {
    quietly(write(text).map_err(anyhow::Error::new))
}

/// Prints a value as indented JSON.
pub fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    print(&format!("{value:#}\n"))
}

/// Prints a line of a command, which fails if it cannot be written.
macro_rules! tell {
    () => { $crate::output::print("\n") };
    ($($text:tt)+) => { $crate::output::print(&format!("{}\n", format_args!($($text)+))) };
}

/// Prints a line of a server, which runs on if it cannot be written: a log on a full disk stops no
/// service.
macro_rules! say {
    () => { $crate::output::say_text("\n") };
    ($($text:tt)+) => { $crate::output::say_text(&format!("{}\n", format_args!($($text)+))) };
}

pub(crate) use {say, tell};

/// See `say!`.
pub fn say_text(text: &str) {
    if let Err(error) = print(text) {
        tracing::error!(%error, "standard output cannot be written");
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Treats a closed pipe as success: `head` has read enough.
pub fn quietly(done: anyhow::Result<()>) -> anyhow::Result<()> {
    let closed = |error: &anyhow::Error| {
        error.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe)
    };
    match done {
        Err(error) if closed(&error) => Ok(()),
        other => other,
    }
}

/// Completes when the reader of standard output has exited, even if there is nothing to write. Only
/// a pipe has such a reader; if the system cannot be asked, the next write fails instead.
pub async fn reader_gone() {
    // Opened again, so that its settings do not affect other writers of the same pipe.
    match pipe::OpenOptions::new().open_sender(STDOUT) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        Err(error) if error.raw_os_error() == Some(ENXIO) => {}
        _ => std::future::pending().await,
    }
}
