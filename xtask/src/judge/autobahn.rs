//! The judge of WebSockets: Autobahn's fuzzing client, unchanged, against the echo server of wire's
//! examples. It is written in Python 2.7, so it needs a separate interpreter.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::program::{Program, wait_for_end};
use super::tools::Tools;
use crate::process::exists;

/// How many cases are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// Every plain case and a sample of the compressed ones.
    Sample,
    /// Every case: some ten minutes.
    Full,
}

/// Longer than the full run takes on two busy cores.
const RUN_LIMIT: Duration = Duration::from_secs(3600);
/// Framing, pings, reserved bits, opcodes, fragments, UTF-8, closing, limits, and one more: every
/// group except compression.
const PLAIN: [&str; 9] = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"];
const PLAIN_CASES: usize = 301;
/// Five kinds of data (12) and seven kinds of offers (13), each in 18 sizes and fragmentations.
const COMPRESSED: [(&str, usize); 2] = [("12", 5), ("13", 7)];
const SIZES: usize = 18;
/// Sizes of the sample: messages of 0 to 2 KiB, of 4 to 32 KiB, and of 8 to 32 KiB in fragments. A
/// case has a thousand messages, so the longer ones take most of the time. The parts alternate, so
/// that every size appears in both groups.
const SAMPLED: [[usize; 3]; 3] = [[1, 6, 11], [2, 7, 12], [4, 8, 13]];

/// The accepted results of a case. `UNIMPLEMENTED` is not accepted: it means that nothing was
/// negotiated.
const PASSED: [&str; 3] = ["OK", "NON-STRICT", "INFORMATIONAL"];

/// Runs the cases, in two concurrent processes, and requires every case to pass.
pub fn run(tools: &Tools, executable: &Path, scratch: &Path, extent: Extent) -> Result<()> {
    let python = tools.autobahn()?;
    if scratch.exists() {
        fs::remove_dir_all(scratch).context("cannot clear the reports of the last run")?;
    }
    fs::create_dir_all(scratch)?;
    let mut server = Program::start(&mut Command::new(executable))?;
    let [one, other] = halves(extent).map(|half| half.start(&python, server.address(), scratch));
    let (mut one, mut other) = (one?, other?);
    let counted = one.passed()? + other.passed()?;
    server.terminate()?;
    println!("    {counted} cases passed");
    Ok(())
}

/// The cases of one process of the client.
struct Half {
    name: &'static str,
    patterns: Vec<String>,
    count: usize,
}

/// The longest cases are those of group 12, which compresses data other than text.
fn halves(extent: Extent) -> [Half; 2] {
    let [kinds, offers] = COMPRESSED.map(|(group, parts)| compressed(group, parts, extent));
    let plain = PLAIN.iter().map(|pattern| pattern.to_string());
    [
        Half { name: "kinds", count: kinds.len(), patterns: kinds },
        Half {
            name: "plain-and-offers",
            count: PLAIN_CASES + offers.len(),
            patterns: plain.chain(offers).collect(),
        },
    ]
}

fn compressed(group: &str, parts: usize, extent: Extent) -> Vec<String> {
    let mut cases = Vec::new();
    for part in 1..=parts {
        let sizes: Vec<usize> = match extent {
            Extent::Full => (1..=SIZES).collect(),
            Extent::Sample => SAMPLED[part % SAMPLED.len()].to_vec(),
        };
        cases.extend(sizes.into_iter().map(|size| format!("{group}.{part}.{size}")));
    }
    cases
}

impl Half {
    fn start(self, python: &Python, address: &str, scratch: &Path) -> Result<Running> {
        let reports = scratch.join(self.name);
        let url = format!("ws://{address}");
        let specification = serde_json::json!({
            "outdir": reports,
            "servers": [{ "agent": "restive", "url": url }],
            "cases": self.patterns,
            "exclude-cases": [],
            "exclude-agent-cases": {},
        });
        let file = scratch.join(format!("{}.json", self.name));
        fs::write(&file, specification.to_string())?;
        let log = fs::File::create(scratch.join(format!("{}.log", self.name)))?;
        let mut command = python.command();
        command.arg(python.home.join("bin/wstest")).args(["--mode", "fuzzingclient", "--spec"]);
        command.arg(&file).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        println!("    Autobahn's fuzzing client: {} cases", self.count);
        let child = command.spawn().context("cannot start the fuzzing client")?;
        Ok(Running { child, reports, count: self.count })
    }
}

struct Running {
    child: Child,
    reports: PathBuf,
    count: usize,
}

impl Running {
    /// The number of cases, if all passed.
    fn passed(&mut self) -> Result<usize> {
        let ended = wait_for_end(&mut self.child, RUN_LIMIT).context("the fuzzing client")?;
        let told = || format!("the fuzzing client ({ended}) wrote no {}", self.reports.display());
        let index = fs::read_to_string(self.reports.join("index.json")).with_context(told)?;
        let failed = failures(&index, self.count)?;
        if !failed.is_empty() {
            bail!("{}\nreports: {}", failed.join("\n"), self.reports.display());
        }
        Ok(self.count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails harmlessly if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Describes the cases that did not pass. Fewer cases than requested are an error.
fn failures(index: &str, count: usize) -> Result<Vec<String>> {
    let index: Value = serde_json::from_str(index).context("index.json")?;
    let cases =
        index.get("restive").and_then(Value::as_object).context("no cases in index.json")?;
    if cases.len() != count {
        bail!("{} of {count} cases were run", cases.len());
    }
    let mut failed = Vec::new();
    for (case, verdict) in cases {
        let [behavior, close] = ["behavior", "behaviorClose"]
            .map(|part| verdict.get(part).and_then(Value::as_str).unwrap_or("missing"));
        if !PASSED.contains(&behavior) || !PASSED.contains(&close) {
            failed.push(format!("case {case}: {behavior}, its end {close}"));
        }
    }
    Ok(failed)
}

/// A Python 2.7 interpreter, and the folder in which the suite is installed for it.
pub struct Python {
    program: PathBuf,
    home: PathBuf,
}

impl Python {
    /// Distributions no longer have one, but pyenv does, and a machine may still have one.
    pub fn find(home: &Path) -> Result<Python> {
        let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
        let root = root.or_else(|| std::env::home_dir().map(|home| home.join(".pyenv")));
        let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
        let mut candidates = vec![PathBuf::from("python2.7")];
        for version in versions.into_iter().flatten().flatten() {
            candidates.push(version.path().join("bin/python2.7"));
        }
        let runs = |program: &PathBuf| exists(&program.to_string_lossy(), "--version");
        let program = candidates.into_iter().find(runs).context(
            "the judge of WebSockets needs Python 2.7, in which it is written: install it, \
             for instance by `pyenv install 2.7.18`",
        )?;
        Ok(Python { program, home: home.to_path_buf() })
    }

    /// Uses only packages in its home, none of the user's own.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // The suite only warns that Python 2 is old.
        command.args(["-W", "ignore"]).env("PYTHONUSERBASE", &self.home);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_has_every_plain_case_and_some_of_each_compressed_part() {
        let [kinds, rest] = halves(Extent::Full);
        assert_eq!((kinds.count, rest.count), (90, 301 + 126));
        let [kinds, rest] = halves(Extent::Sample);
        assert_eq!((kinds.count, rest.count), (5 * 3, 301 + 7 * 3));
        for size in SAMPLED.iter().flatten() {
            for cases in [&kinds.patterns, &rest.patterns] {
                assert!(cases.iter().any(|case| case.ends_with(&format!(".{size}"))), "{size}");
            }
        }
    }

    #[test]
    fn a_case_that_failed_or_was_left_out_is_reported() {
        let index = |behavior: &str, close: &str| {
            format!(
                r#"{{"restive":{{"1.1":{{"behavior":"{behavior}","behaviorClose":"{close}"}}}}}}"#
            )
        };
        for passed in [index("OK", "OK"), index("NON-STRICT", "INFORMATIONAL")] {
            assert!(failures(&passed, 1).unwrap().is_empty());
        }
        for failed in [index("FAILED", "OK"), index("OK", "UNCLEAN"), index("UNIMPLEMENTED", "OK")]
        {
            assert_eq!(failures(&failed, 1).unwrap().len(), 1, "{failed}");
        }
        assert!(failures(&index("OK", "OK"), 2).is_err());
        assert!(failures("{}", 0).is_err());
    }
}
