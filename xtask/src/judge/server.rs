//! The server under judgement: the real executable on port 0 with a data directory of its own
//! under target/, a known key and no request limit. Stopped by SIGTERM, as an operator would.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::body_of;

/// A debug build makes its tables well within this.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Draining waits for requests in flight; the judges have none left by then.
const STOP_LIMIT: Duration = Duration::from_secs(30);
const FETCH_LIMIT: Duration = Duration::from_secs(30);
/// Not a secret: the server listens on loopback for the length of one test run.
const KEY: &str = "sk_test_judge0000000000000000000000000000";

pub struct Server {
    child: Child,
    address: String,
    scratch: PathBuf,
}

impl Server {
    /// Starts `executable` and waits until it says where it listens.
    pub fn start(executable: &Path, scratch: &Path) -> Result<Self> {
        let data = scratch.join("data");
        if data.exists() {
            fs::remove_dir_all(&data).context("cannot clear the judges' data directory")?;
        }
        fs::create_dir_all(&data).context("cannot make the judges' data directory")?;
        let log = fs::File::create(scratch.join("server.log")).context("cannot make server.log")?;
        let mut child = Command::new(executable)
            .args(["serve", "--listen", "127.0.0.1:0", "--rate-limit", "off", "--data"])
            .arg(&data)
            .env("RESTIVE_BOOTSTRAP_KEY", KEY)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", executable.display()))?;
        let address = match wait_for_address(&mut child) {
            Ok(address) => address,
            Err(error) => {
                // It never served; there is nothing to drain.
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.context(format!("its log: {}/server.log", scratch.display())));
            }
        };
        Ok(Self { child, address, scratch: scratch.to_path_buf() })
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn key(&self) -> &str {
        KEY
    }

    /// A folder under target/ where judges may leave what they write.
    pub fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// Saves the served OpenAPI document to a file, for the judges that read files.
    pub fn save_openapi(&self) -> Result<PathBuf> {
        let mut stream = TcpStream::connect(&self.address).context("cannot connect")?;
        stream.set_read_timeout(Some(FETCH_LIMIT))?;
        write!(
            stream,
            "GET /openapi.json HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {KEY}\r\n\
             Accept: application/json\r\nConnection: close\r\n\r\n",
            self.address
        )?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).context("/openapi.json did not end in time")?;
        let file = self.scratch.join("openapi.json");
        fs::write(&file, body_of(&answer).context("/openapi.json")?)?;
        Ok(file)
    }

    /// Sends SIGTERM and demands a clean end.
    pub fn terminate(&mut self) -> Result<()> {
        // The shell's own `kill`: the program of that name is missing on slim machines.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status()
            .context("cannot run sh")?;
        if !status.success() {
            bail!("the server was gone before SIGTERM: {status}");
        }
        let ended = wait_for_end(&mut self.child)?;
        if !ended.success() {
            bail!("SIGTERM must end the server with 0, it was {ended}");
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After `terminate` both are refused without harm; on an early return they clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads stdout in a thread of its own: it gives the deadline, and keeps the pipe drained later.
fn wait_for_address(child: &mut Child) -> Result<String> {
    let stdout = child.stdout.take().context("the server's stdout is not piped")?;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
            if let Some(address) = address_in(&line) {
                // The receiver is gone once the first address has arrived.
                let _ = sender.send(address.to_owned());
            }
        }
    });
    match receiver.recv_timeout(START_LIMIT) {
        Ok(address) => Ok(address),
        Err(mpsc::RecvTimeoutError::Timeout) => {
            bail!("no `listening on` line within {} s", START_LIMIT.as_secs())
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            bail!("the server closed its output without a `listening on` line")
        }
    }
}

fn address_in(line: &str) -> Option<&str> {
    let (_, address) = line.split_once("listening on http://")?;
    address.split_whitespace().next().map(|address| address.trim_end_matches('/'))
}

fn wait_for_end(child: &mut Child) -> Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > STOP_LIMIT {
            bail!("the server still runs {} s after SIGTERM", STOP_LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_found_in_its_line_only() {
        for (line, expected) in [
            ("listening on http://127.0.0.1:4000", Some("127.0.0.1:4000")),
            ("restive: listening on http://[::1]:80/ (pid 1)", Some("[::1]:80")),
            ("listening soon", None),
        ] {
            assert_eq!(address_in(line), expected, "{line}");
        }
    }

    #[test]
    fn a_program_that_says_nothing_is_an_error_and_not_a_hang() {
        let scratch = tempfile::tempdir().unwrap();
        let error = Server::start(Path::new("true"), scratch.path()).err().unwrap();
        assert!(format!("{error:#}").contains("without a `listening on` line"), "{error:#}");
    }
}
