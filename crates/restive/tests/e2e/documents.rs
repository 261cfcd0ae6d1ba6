//! The README and the guides are followed literally: their files are written, their commands run in
//! one shell, and the output is compared. `…` in a document stands for text that differs each time;
//! white space does not count, because documents wrap long lines.
//!
//! A block ```` ```toml helpdesk.toml ```` is the file `helpdesk.toml`. In a block
//! ```` ```console ````, `$ ` begins a command, and the lines below it are its output.

use crate::harness::{PATIENCE, executable};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

#[test]
fn the_readme_can_be_followed_literally() {
    follow("README.md");
}

#[test]
fn the_tutorial_can_be_followed_literally() {
    follow("docs/tutorial.md");
}

#[test]
fn the_guides_about_data_can_be_followed_literally() {
    for guide in ["modelling", "lists", "writing"] {
        follow(&format!("docs/{guide}.md"));
    }
}

#[test]
fn the_guides_about_keys_operations_and_limits_can_be_followed_literally() {
    for guide in ["authentication", "operations", "limits"] {
        follow(&format!("docs/{guide}.md"));
    }
}

/// A part of a document, in its order.
enum Step {
    File { name: String, text: String },
    Command { line: usize, text: String, output: String },
}

fn follow(document: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(document);
    let text = fs::read_to_string(&path).unwrap();
    let ports = [("8080", free_port()), ("9000", free_port())];
    let text = ports.iter().fold(text, |text, (port, free)| text.replace(port, free));
    let steps = steps(&text);
    assert!(!steps.is_empty(), "{document} has no command");
    let mut shell = Shell::start(&ports[0].1);
    for step in steps {
        match step {
            Step::File { name, text } => fs::write(shell.folder.path().join(name), text).unwrap(),
            Step::Command { line, text, output } => {
                let found = shell.run(&text);
                assert!(
                    output.is_empty() || matches(&output, &found),
                    "{document}:{line}: $ {text}\nexpected:\n{output}\nfound:\n{found}"
                );
            }
        }
    }
}

fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((_, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```").filter(|info| !info.is_empty()) else { continue };
        let block: Vec<(usize, &str)> =
            lines.by_ref().take_while(|(_, line)| !line.starts_with("```")).collect();
        match info.split_once(' ') {
            None if info == "console" => push_commands(&block, &mut steps),
            Some((_, name)) => {
                let text: String = block.iter().map(|(_, line)| format!("{line}\n")).collect();
                steps.push(Step::File { name: name.to_owned(), text });
            }
            None => {}
        }
    }
    steps
}

fn push_commands(block: &[(usize, &str)], steps: &mut Vec<Step>) {
    let mut is_continued = false;
    for (number, line) in block {
        if let Some(command) = line.strip_prefix("$ ") {
            let (line, text, output) = (number + 1, command.to_owned(), String::new());
            steps.push(Step::Command { line, text, output });
        } else if let Some(Step::Command { text, output, .. }) = steps.last_mut() {
            let into = if is_continued { text } else { output };
            into.push('\n');
            into.push_str(line);
        }
        is_continued = line.ends_with('\\');
    }
}

/// Whether the parts between `…` occur in the output in their order, the first at its beginning
/// and the last at its end.
fn matches(expected: &str, found: &str) -> bool {
    let bare = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let (expected, found) = (bare(expected), bare(found));
    let parts: Vec<&str> = expected.split('…').collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return expected == found;
    }
    let Some(mut rest) = found.strip_prefix(first) else { return false };
    for part in &parts[1..parts.len() - 1] {
        let Some(place) = rest.find(part) else { return false };
        rest = &rest[place + part.len()..];
    }
    rest.ends_with(last)
}

/// One shell for a whole document, so that variables stay.
struct Shell {
    folder: TempDir,
    bash: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// Programs that were started in the background.
    programs: usize,
}

const END: &str = "end-of-the-output";

impl Shell {
    /// `port`: where servers listen that a document starts without an address.
    fn start(port: &str) -> Shell {
        let folder = TempDir::new().unwrap();
        let programs = Path::new(executable()).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["--norc", "--noprofile"]).current_dir(folder.path()).env("PATH", path);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("RESTIVE_")) {
            command.env_remove(name);
        }
        command.env("RESTIVE_LISTEN", format!("127.0.0.1:{port}"));
        command.env("RESTIVE_URL", format!("http://127.0.0.1:{port}"));
        let mut bash = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut input = bash.stdin.take().unwrap();
        // Whatever ends the shell ends what it has started.
        writeln!(input, "exec 2>&1; trap 'kill $(jobs -p) 2>/dev/null' EXIT").unwrap();
        let (sender, output) = channel();
        let reader = BufReader::new(bash.stdout.take().unwrap());
        thread::spawn(move || {
            let lines = reader.lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Shell { folder, bash, input, output, programs: 0 }
    }

    fn run(&mut self, command: &str) -> String {
        match command.strip_prefix("restive ").and_then(|rest| rest.split(' ').next()) {
            Some(program @ ("serve" | "receive")) => self.start_program(program, command),
            _ => self.finish(command),
        }
    }

    /// Runs a command to its end.
    fn finish(&mut self, command: &str) -> String {
        writeln!(self.input, "{command}\nprintf '\\n%s\\n' {END}").unwrap();
        let mut text = String::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.output.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("{command}: {error}\n{text}"));
            if line == END {
                return text;
            }
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Starts a server and returns what it prints until it listens. A server of the same kind is
    /// stopped before, as the reader does with Ctrl-C.
    fn start_program(&mut self, program: &str, command: &str) -> String {
        self.finish(&format!(
            "if [ -n \"${program}_pid\" ]; then kill ${program}_pid; wait ${program}_pid; fi"
        ));
        self.programs += 1;
        let (log, errors) = (format!("log{}", self.programs), format!("errors{}", self.programs));
        self.finish(&format!("{command} >{log} 2>{errors} & {program}_pid=$!"));
        let read =
            |name: &str| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        let deadline = Instant::now() + PATIENCE;
        loop {
            for name in [&log, &errors] {
                let text = read(name);
                if text.contains("listening on") && text.ends_with('\n') {
                    return text;
                }
            }
            assert!(Instant::now() < deadline, "{command}: {}\n{}", read(&log), read(&errors));
            // waits for: the file to change, which has no event
            thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = writeln!(self.input, "kill $(jobs -p) 2>/dev/null; wait; exit");
        let _ = self.bash.wait();
    }
}

#[test]
fn the_output_of_a_document_may_leave_parts_out() {
    for (expected, found, same) in [
        ("{\"id\":\"a_…\",…}", "{\"id\":\"a_1\",\"x\":2}", true),
        ("one\n two", "one two\n", true),
        ("one", "one two", false),
        ("…two", "one two", true),
        ("one…", "two one", false),
        ("a…b…c", "a c b", false),
    ] {
        assert_eq!(matches(expected, found), same, "{expected} {found}");
    }
}
