//! Receivers of webhooks that are not ours: the libraries of Stripe, Standard Webhooks and Svix in
//! Python and Node, and GitHub's recipe in both. `cargo xtask test` installs them into
//! target/tools; the programs around them stand in xtask/tools/receivers. Knows nothing of how we
//! sign, so that the tests of the service can include this file too.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;

/// One request as a receiver got it, and the secret that this receiver has.
pub struct Case<'a> {
    /// `stripe`, `standardwebhooks`, `svix` or `github`.
    pub family: &'a str,
    pub secret: &'a str,
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a str,
}

#[derive(Clone, Copy, Debug)]
pub enum Language {
    Python,
    Node,
}

impl Language {
    pub const ALL: [Self; 2] = [Self::Python, Self::Node];

    /// Asks the libraries. One answer per case, in order: `ok`, or `error: ` and a reason.
    pub fn verify(self, cases: &[Case<'_>]) -> Vec<String> {
        let mut lines = String::new();
        for case in cases {
            let headers: serde_json::Map<_, _> = case
                .headers
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()))
                .collect();
            let (family, secret, body) = (case.family, case.secret, case.body);
            let line =
                json!({ "family": family, "secret": secret, "headers": headers, "body": body });
            lines.push_str(&format!("{line}\n"));
        }
        let output = converse(&mut self.command(), &lines);
        let answers = String::from_utf8_lossy(&output.stdout);
        let answers: Vec<String> = answers.lines().map(str::to_owned).collect();
        assert!(
            output.status.success() && answers.len() == cases.len(),
            "the {self:?} receiver gave {} answers to {} cases; if it lacks a library, \
             `cargo xtask test` installs it\n{}",
            answers.len(),
            cases.len(),
            String::from_utf8_lossy(&output.stderr)
        );
        answers
    }

    fn command(self) -> Command {
        match self {
            Self::Python => {
                let mut command = Command::new(installed("python").join("bin/python"));
                command.arg(program("verify.py"));
                command
            }
            Self::Node => {
                let mut command = Command::new("node");
                command.arg(program("verify.mjs")).arg(installed("node"));
                command
            }
        }
    }
}

fn program(name: &str) -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    let root = crates.and_then(Path::parent).expect("a crate stands two folders below the root");
    root.join("xtask/tools/receivers").join(name)
}

/// A folder of target/tools. A test is an executable somewhere below target, so its own path tells
/// where that is, whatever CARGO_TARGET_DIR or a configuration file says.
fn installed(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a test knows its own path");
    let folders = own.ancestors().map(|above| above.join("tools").join(name));
    // The file `installed` is written last: without it the installation was broken off.
    folders.into_iter().find(|folder| folder.join("installed").is_file()).unwrap_or_else(|| {
        panic!("target/tools/{name} is missing: `cargo xtask test` installs it");
    })
}

/// Writes to the program while reading from it: a pipe holds less than many cases take.
fn converse(command: &mut Command, input: &str) -> Output {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = pipes.spawn().unwrap_or_else(|error| {
        let program = Path::new(command.get_program()).display();
        panic!("cannot start {program} ({error}): `cargo xtask test` installs it");
    });
    let mut stdin = child.stdin.take().expect("stdin was piped");
    std::thread::scope(|scope| {
        // A program that ends early breaks the pipe; its status and words are told by the caller.
        scope.spawn(move || {
            let _ = stdin.write_all(input.as_bytes());
        });
        child.wait_with_output().expect("a started program can be waited for")
    })
}
