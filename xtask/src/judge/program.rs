//! A server of ours as a process: prints its address, and stops at SIGTERM.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// A debug build creates its tables well within this time.
const START_LIMIT: Duration = Duration::from_secs(30);
/// Draining waits for requests in flight; the judges have none left by then.
const STOP_LIMIT: Duration = Duration::from_secs(30);

pub struct Program {
    child: Child,
    address: String,
}

impl Program {
    /// Starts it and waits until it prints its address.
    pub fn start(command: &mut Command) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        match wait_for_address(&mut child) {
            Ok(address) => Ok(Self { child, address }),
            Err(error) => {
                // It never served, so there is nothing to drain.
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends SIGTERM and requires exit code 0.
    pub fn terminate(&mut self) -> Result<()> {
        // The shell's built-in `kill`: slim machines lack the program.
        let status = Command::new("sh")
            .args(["-c", &format!("kill -TERM {}", self.child.id())])
            .status()
            .context("cannot run sh")?;
        if !status.success() {
            bail!("the server was gone before SIGTERM: {status}");
        }
        let ended = wait_for_end(&mut self.child, STOP_LIMIT).context("after SIGTERM")?;
        if !ended.success() {
            bail!("SIGTERM must end the server with 0, it was {ended}");
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // After `terminate` both fail harmlessly; on an early return they clean up.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The exit status of a process, if it ends in time.
pub fn wait_for_end(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if began.elapsed() > limit {
            bail!("still running after {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Reads stdout in a separate thread, which allows a deadline and keeps the pipe drained later.
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
        let error = Program::start(&mut Command::new("true")).err().unwrap();
        assert!(format!("{error:#}").contains("without a `listening on` line"), "{error:#}");
    }
}
