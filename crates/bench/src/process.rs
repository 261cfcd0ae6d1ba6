//! Measured processes: starts them on a separate core, reads their address, reads CPU time and
//! memory in /proc, stops them by SIGTERM.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(60);
/// The unit of CPU time in /proc; 100 per second on every Linux.
const TICKS_PER_SECOND: u64 = 100;

/// The cores of server and load. Without two cores or the `taskset` program there is no pinning.
#[derive(Clone, Copy)]
pub struct Pinning {
    active: bool,
}

impl Pinning {
    /// Pins this process (before it has threads) to core 1 and gives core 0 to its children.
    pub fn claim(wanted: bool) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
        let pinned = wanted && cores >= 2 && {
            let own = std::process::id().to_string();
            let taskset = Command::new("taskset")
                .args(["-c", "-p", "1", &own])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status();
            taskset.is_ok_and(|status| status.success())
        };
        Self { active: pinned }
    }

    /// The program on the server's core.
    pub fn command(self, program: &Path) -> Command {
        if !self.active {
            return Command::new(program);
        }
        // taskset replaces itself by the program, so the process id is the program's.
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(program);
        command
    }

    pub fn describe(self) -> &'static str {
        match self.active {
            true => "server on core 0, load on core 1",
            false => "not pinned: server and load share all cores",
        }
    }
}

/// A server that has printed its address.
pub struct Service {
    child: Child,
    pub address: String,
    /// From the start of the process to its `listening on` line.
    pub started_in: Duration,
}

impl Service {
    pub fn start(mut command: Command) -> Result<Self> {
        let began = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().with_context(|| describe(&command))?;
        let address = wait_for_address(&mut child, began);
        let (address, started_in) = match address {
            Ok(found) => found,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.context(describe(&command)));
            }
        };
        Ok(Self { child, address, started_in })
    }

    /// The same for a program that prints no address: waits until it accepts connections.
    pub fn start_at(mut command: Command, address: String) -> Result<Self> {
        let began = Instant::now();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| describe(&command))?;
        let mut service = Self { child, address, started_in: Duration::ZERO };
        while TcpStream::connect(&service.address).is_err() {
            let ended = service.child.try_wait()?;
            if ended.is_some() || began.elapsed() > START_LIMIT {
                bail!("{}: {ended:?}", describe(&command));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        service.started_in = began.elapsed();
        Ok(service)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// User and system time of all threads so far, to 10 ms.
    pub fn cpu(&self) -> Result<Duration> {
        cpu_of(&self.child.id().to_string())
    }

    /// The same of each thread, in nanoseconds.
    pub fn thread_times(&self) -> Result<ThreadTimes> {
        thread_times(&format!("/proc/{}/task", self.child.id()))
    }

    /// Current and peak resident memory, in bytes.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        Ok((status_bytes(&status, "VmRSS:")?, status_bytes(&status, "VmHWM:")?))
    }

    /// Sends SIGTERM and requires exit code 0.
    pub fn stop(self) -> Result<()> {
        self.stop_within(STOP_LIMIT)
    }

    /// The same within a limit; beyond it the process is killed.
    pub fn stop_within(mut self, limit: Duration) -> Result<()> {
        // The shell's built-in `kill`: sending a signal otherwise needs unsafe code or another
        // crate.
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().context("cannot run sh")?;
        if !sent.success() {
            bail!("the server was gone before SIGTERM");
        }
        match ended_within(&mut self.child, limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("SIGTERM must end the server with 0, it was {status}"),
            None => bail!("SIGTERM did not end the server within {limit:?}"),
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails harmlessly if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of the threads of a process at one time, by thread.
pub struct ThreadTimes(BTreeMap<OsString, u64>);

impl ThreadTimes {
    /// The CPU time since then. A new thread counts; the time of a thread that ended is unknown and
    /// omitted.
    pub fn since(&self, before: &Self) -> Duration {
        let took = |(thread, nanos): (&OsString, &u64)| {
            nanos.saturating_sub(before.0.get(thread).copied().unwrap_or(0))
        };
        Duration::from_nanos(self.0.iter().map(took).sum())
    }
}

fn thread_times(folder: &str) -> Result<ThreadTimes> {
    let mut times = BTreeMap::new();
    for thread in fs::read_dir(folder)? {
        let thread = thread?;
        // A thread that ended since the folder was read.
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next().and_then(|first| first.parse().ok());
        times.insert(thread.file_name(), nanos.context("/proc/…/schedstat is not as expected")?);
    }
    ensure!(!times.is_empty(), "this kernel does not count the CPU time of threads (schedstat)");
    Ok(ThreadTimes(times))
}

/// The exit status of a process; None if it did not end within the limit.
pub fn ended_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) => return Ok(Some(status)),
            None if began.elapsed() > limit => return Ok(None),
            // waits for: the end of the process
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

/// Program and arguments; the environment contains a key and is omitted.
fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    format!("cannot start `{}`", words.join(" "))
}

/// CPU time of a process; "self" is this one.
pub fn cpu_of(process: &str) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let ticks = cpu_ticks(&stat).context("/proc/…/stat is not as expected")?;
    Ok(Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND))
}

/// Fields 14 and 15, counted after the name, which may contain spaces.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Allows this process, and its children from now on, this many open files.
pub fn allow_files(wanted: u64) -> Result<()> {
    let allowed = open_files(&fs::read_to_string("/proc/self/limits")?).context("no file limit")?;
    if allowed >= wanted {
        return Ok(());
    }
    let own = std::process::id().to_string();
    let raised =
        Command::new("prlimit").args(["--pid", &own, &format!("--nofile={wanted}:")]).status();
    if !raised.is_ok_and(|status| status.success()) {
        bail!("{wanted} open files are needed and {allowed} allowed: try `ulimit -n {wanted}`");
    }
    Ok(())
}

/// The soft limit.
fn open_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        number => number.parse().ok(),
    }
}

fn status_bytes(status: &str, name: &str) -> Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.split_whitespace().next()).context("no memory figure")?;
    Ok(kib.parse::<u64>()? * 1024)
}

fn wait_for_address(child: &mut Child, began: Instant) -> Result<(String, Duration)> {
    let stdout = child.stdout.take().context("stdout is not piped")?;
    let (sender, receiver) = mpsc::channel();
    // A separate thread allows a deadline and keeps the pipe drained afterwards.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(|line| line.ok()) {
            let told = line.split_once("listening on http").map(|(_, url)| url);
            if let Some((_, address)) = told.and_then(|url| url.split_once("://")) {
                let address = address.split_whitespace().next().unwrap_or_default();
                let address = address.trim_end_matches('/').to_owned();
                let _ = sender.send((address, began.elapsed()));
            }
        }
    });
    receiver.recv_timeout(START_LIMIT).context("no `listening on` line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0";
        assert_eq!(cpu_ticks(stat), Some(200));
        assert!(cpu_of("self").is_ok());
    }

    #[test]
    fn time_is_counted_for_threads_that_stayed_and_that_came() {
        let times = |threads: &[(&str, u64)]| {
            ThreadTimes(threads.iter().map(|(thread, nanos)| (thread.into(), *nanos)).collect())
        };
        let before = times(&[("7", 100), ("8", 5_000)]);
        let after = times(&[("7", 130), ("9", 20)]);
        assert_eq!(after.since(&before), Duration::from_nanos(50));
    }

    #[test]
    fn the_limit_of_open_files_is_the_soft_one() {
        let limits = "Limit Soft Hard Units\nMax open files            1024   4096   files\n";
        assert_eq!(open_files(limits), Some(1024));
        assert_eq!(open_files("Max open files  unlimited unlimited files\n"), Some(u64::MAX));
        assert_eq!(open_files("Max cpu time 1 2 seconds\n"), None);
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(status_bytes("Name: x\nVmRSS:\t  12 kB\n", "VmRSS:").unwrap(), 12_288);
        assert!(status_bytes("Name: x\n", "VmRSS:").is_err());
    }
}
