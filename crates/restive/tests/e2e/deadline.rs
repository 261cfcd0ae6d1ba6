//! Child processes with a deadline: a process that hangs is killed and its test fails with its
//! output, instead of blocking the suite.

use crate::harness::PATIENCE;
use std::io::{self, Read};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any command of the suite takes; some create a certificate or run a browser.
const COMMAND: Duration = Duration::from_secs(120);
/// Longer than any test keeps one server. The server is then killed, so that clients that wait for
/// it without a deadline fail.
const SERVER: Duration = Duration::from_secs(300);

pub trait Deadline {
    /// Like `Command::output`; panics if the command exceeds the deadline.
    fn output_in_time(&mut self) -> io::Result<Output>;
}

impl Deadline for Command {
    fn output_in_time(&mut self) -> io::Result<Output> {
        self.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let shown = format!("{self:?}");
        Ok(finish(self.spawn()?, &shown, COMMAND))
    }
}

/// Like `Child::wait_with_output`, with a deadline.
pub fn wait_with_output(child: Child, what: &str) -> Output {
    finish(child, what, COMMAND)
}

fn finish(mut child: Child, what: &str, within: Duration) -> Output {
    let stdout = child.stdout.take().map(gather);
    let stderr = child.stderr.take().map(gather);
    let deadline = Instant::now() + within;
    let mut ended = None;
    while ended.is_none() && Instant::now() < deadline {
        ended = child.try_wait().unwrap();
        std::thread::sleep(Duration::from_millis(2)); // waits for: the next look at the child
    }
    let status = ended.unwrap_or_else(|| {
        let _ = child.kill();
        child.wait().unwrap()
    });
    let [stdout, stderr] = [stdout, stderr].map(|pipe| pipe.map(|p| p.take()).unwrap_or_default());
    assert!(
        ended.is_some(),
        "{what} did not end within {within:?}\nstdout: {}\nstderr: {}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    Output { status, stdout, stderr }
}

/// The output of a pipe, read by a separate thread.
struct Gathered {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

fn gather(mut pipe: impl Read + Send + 'static) -> Gathered {
    let bytes = Arc::new(Mutex::new(Vec::new()));
    let (end, ended) = channel::<()>();
    let shared = bytes.clone();
    std::thread::spawn(move || {
        let _end = end;
        let mut piece = [0; 8192];
        while let Ok(count @ 1..) = pipe.read(&mut piece) {
            shared.lock().unwrap().extend_from_slice(&piece[..count]);
        }
    });
    Gathered { bytes, ended }
}

impl Gathered {
    /// Everything until the end of the pipe. A grandchild may hold the pipe open: then the output
    /// so far.
    fn take(&self) -> Vec<u8> {
        let _ = self.ended.recv_timeout(PATIENCE);
        std::mem::take(&mut *self.bytes.lock().unwrap())
    }
}

/// Kills a process after its maximum lifetime, unless it is dropped before.
pub struct Lifetime(
    #[expect(dead_code, reason = "its end is what the thread waits for")] Sender<()>,
);

impl Lifetime {
    pub fn of(child: &Child, log: Arc<Mutex<String>>) -> Lifetime {
        let (alive, over) = channel::<()>();
        let id = child.id().to_string();
        std::thread::spawn(move || {
            if over.recv_timeout(SERVER) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                let said = format!("killed by the test suite: it ran longer than {SERVER:?}\n");
                eprint!("process {id} is {said}");
                log.lock().unwrap().push_str(&said);
                let _ = Command::new("kill").args(["-KILL", &id]).status();
            }
        });
        Lifetime(alive)
    }
}

#[test]
fn a_command_that_hangs_fails_its_test_with_its_output() {
    let mut command = Command::new("sh");
    command.args(["-c", "echo so far; exec sleep 600"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (began, short) = (Instant::now(), Duration::from_millis(300));
    let failed = std::panic::catch_unwind(|| finish(child, "sleep", short)).unwrap_err();
    let said = failed.downcast_ref::<String>().unwrap();
    assert!(said.contains("did not end") && said.contains("so far"), "{said}");
    assert!(began.elapsed() < PATIENCE);
}
