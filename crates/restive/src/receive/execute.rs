//! Hands events to a shell command: the body on its input, id, type and attempt in its environment.

use restive_kit::inbox::{Error, Event, Failure, Inbox, Workers};
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Our settings, which may be secrets. A handler sees none of them.
const SETTINGS: &[u8] = b"RESTIVE_";
/// Characters of a type that a command gets: the environment of a process has a limit.
const TYPE_CHARS: usize = 255;
/// Between two looks at a command: it doubles from the first to the last.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LAST_LOOK: Duration = Duration::from_millis(50);
/// How long the input is written after the command has ended. A process that it left behind may
/// hold the input without reading it, for ever.
const INPUT_GRACE: Duration = Duration::from_secs(1);

/// Runs until the inbox is closed.
pub fn start(
    inbox: &Inbox,
    command: String,
    workers: u16,
    timeout: Duration,
) -> Result<Workers, Error> {
    inbox.work(usize::from(workers), move |event| {
        let result = run(&command, event, timeout);
        super::log(event, &result);
        result
    })
}

fn run(command: &str, event: &Event, timeout: Duration) -> Result<(), Failure> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).stdin(Stdio::piped());
    // A group of its own, so that all of it can be ended.
    shell.process_group(0);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(SETTINGS) {
            shell.env_remove(name);
        }
    }
    let kind = event.kind.as_deref().unwrap_or_default();
    let kind: String = kind.chars().filter(|c| *c != '\0').take(TYPE_CHARS).collect();
    shell.env("RESTIVE_EVENT_ID", &event.id);
    shell.env("RESTIVE_EVENT_TYPE", kind);
    shell.env("RESTIVE_ATTEMPT", event.attempt.to_string());
    shell.env("RESTIVE_STALE", if event.is_stale { "true" } else { "false" });
    let mut child = shell
        .spawn()
        .map_err(|error| Failure::new(format!("the command cannot be started: {error}")))?;
    let body = event.body.clone();
    let input = child.stdin.take();
    // A pipe holds less than a body may have, and the command may not read it at all.
    let writer = std::thread::spawn(move || {
        if let Some(mut input) = input {
            let _ = input.write_all(&body);
        }
    });
    let ended = until(Instant::now() + timeout, || child.try_wait().ok().flatten());
    if ended.is_none() {
        end(&mut child);
    }
    let is_written = || writer.is_finished().then_some(());
    if until(Instant::now() + INPUT_GRACE, is_written).is_none() {
        // What holds the input ends, unless it has left the group: then its thread is left alone.
        end(&mut child);
    }
    match ended {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(Failure::new(format!("the command ended with {status}"))),
        None => {
            let seconds = timeout.as_secs();
            Err(Failure::new(format!("the command did not end within {seconds} s")))
        }
    }
}

/// Looks until there is something, or the deadline has passed.
fn until<T>(deadline: Instant, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut pause = FIRST_LOOK;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LAST_LOOK);
    }
}

/// Ends the command with all that it started.
fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(group) = group {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
