//! `bench storm`: one account misbehaves in many ways, one case after the other, each on a new
//! server, while another account is measured. A case passes if the latencies of the other account
//! stay near those at rest, none of its requests failed, everything due to the first account
//! arrived after it recovered, and SIGTERM ended the server. Knows the server only from outside.

mod arena;
mod cases;
mod channel;
mod client;
mod endpoints;
mod probe;
mod receiver;
mod schema;
pub mod soak;

use std::fmt::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::options::Options;
use crate::process::allow_files;
use crate::stage::Stage;

use self::arena::Arena;
use self::cases::{CASES, Case, Due};
use self::probe::{Figures, KINDS};

/// The other account's p99 during a storm is at most this many times its p99 at rest, …
const MAX_FACTOR: f64 = 5.0;
/// … or this, whichever is larger.
const FLOOR_US: f64 = 100_000.0;
/// Open files of the case with the most connections, and some spare.
const OPEN_FILES: u64 = 19_000;
/// Time limit of a case.
const CASE_LIMIT: Duration = Duration::from_secs(240);
/// The server ends within its drain time of 10 s plus 5 s.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// The misbehaving account is on other machines than the server, as far as one machine can simulate
/// that: the scheduler prefers all other processes.
const NICENESS: &str = "10";
const MIB: f64 = 1024.0 * 1024.0;

/// The result of a case.
struct Outcome {
    name: &'static str,
    quiet: Figures,
    storm: Figures,
    due: Option<Due>,
    peak_bytes: u64,
    /// Why it did not pass; empty if it did.
    faults: Vec<String>,
}

impl Outcome {
    /// The result of a case that has not started.
    fn of(name: &'static str) -> Self {
        Self {
            name,
            quiet: Figures::default(),
            storm: Figures::default(),
            due: None,
            peak_bytes: 0,
            faults: Vec::new(),
        }
    }
}

/// True when every case passed.
pub fn run(options: &Options) -> Result<bool> {
    // The server may run on all cores, so that only fairness is tested.
    let options = Options { pin: false, ..options.clone() };
    let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    names.push(endpoints::NAME);
    let stage = Stage::new(&options, &names)?;
    allow_files(OPEN_FILES)?;
    let mut outcomes = Vec::new();
    let mut notes = Vec::new();
    for case in CASES.iter().filter(|case| stage.wants(case.name)) {
        println!("==> {}: {}", case.name, case.what);
        let (outcome, remarks) = run_case(&stage, case);
        println!("{}", rows(&outcome));
        outcomes.push(outcome);
        notes.extend(remarks);
    }
    if stage.wants(endpoints::NAME) {
        println!("==> {}: {}", endpoints::NAME, endpoints::WHAT);
        let (outcome, remarks) = run_endpoints(&stage);
        println!("{}", rows(&outcome));
        outcomes.push(outcome);
        notes.extend(remarks);
    }
    std::fs::remove_dir_all(&stage.scratch).context("cannot remove the scratch folder")?;
    println!("\n{}", table(&outcomes));
    for note in notes {
        println!("  {note}");
    }
    if let Some(file) = &options.json {
        let all: Vec<Value> = outcomes.iter().map(outcome_json).collect();
        std::fs::write(file, serde_json::to_string_pretty(&all)?)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.faults.is_empty()))
}

/// The bars of many endpoints, as one more line of the table.
fn run_endpoints(stage: &Stage<'_>) -> (Outcome, Vec<String>) {
    let mut outcome = Outcome::of(endpoints::NAME);
    match endpoints::run(stage) {
        Ok((notes, missed)) => {
            outcome.faults = missed;
            (outcome, notes)
        }
        Err(error) => {
            outcome.faults.push(format!("{error:#}"));
            (outcome, Vec::new())
        }
    }
}

/// Runs one case on a new server; returns its result, and remarks.
fn run_case(stage: &Stage<'_>, case: &Case) -> (Outcome, Vec<String>) {
    let mut outcome = Outcome::of(case.name);
    let arena = match Arena::start(stage, case.name) {
        Ok(arena) => arena,
        Err(error) => {
            outcome.faults.push(format!("{error:#}"));
            return (outcome, Vec::new());
        }
    };
    match yielding(|| run_to_end(case, &arena)) {
        Ok(due) => outcome.due = Some(due),
        Err(error) => outcome.faults.push(format!("{error:#}")),
    }
    (outcome.quiet, outcome.storm) = arena.figures();
    outcome.peak_bytes = arena.service.memory().map_or(0, |(_, peak)| peak);
    let notes = arena.notes();
    if let Err(error) = arena.stop(STOP_LIMIT) {
        outcome.faults.push(format!("{error:#}"));
    }
    judge(&mut outcome);
    (outcome, notes)
}

fn run_to_end(case: &Case, arena: &Arena) -> Result<Due> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let run = tokio::time::timeout(CASE_LIMIT, (case.run)(arena)).await;
        run.context("the case did not end in time")?
    });
    // Tasks that are still blocked on the server must not delay the case.
    runtime.shutdown_background();
    done
}

/// Runs work on a thread with low scheduling priority.
fn yielding<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // Applies to this thread only. Without it the figures are those of a busier machine.
            if let Ok(link) = std::fs::read_link("/proc/thread-self")
                && let Some(thread) = link.file_name()
            {
                let mut renice = Command::new("renice");
                renice.args(["-n", NICENESS, "-p"]).arg(thread);
                let _ = renice.stdout(std::process::Stdio::null()).status();
            }
            work()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Adds the failed conditions of the figures.
fn judge(outcome: &mut Outcome) {
    for (kind, name) in KINDS.iter().enumerate() {
        let [quiet, storm] = [&outcome.quiet, &outcome.storm].map(|figures| p99(figures, kind));
        let limit = (quiet * MAX_FACTOR).max(FLOOR_US);
        if storm > limit {
            let (storm, limit) = (storm / 1e3, limit / 1e3);
            outcome.faults.push(format!("{name} p99 {storm:.0} ms > {limit:.0} ms"));
        }
        if outcome.due.is_some() && outcome.storm.latency[kind].count() == 0 {
            outcome.faults.push(format!("{name}: nothing was measured"));
        }
    }
    for (figures, when) in [(&outcome.quiet, "at rest"), (&outcome.storm, "in the storm")] {
        if figures.failures > 0 {
            let first = figures.first_failure.as_deref().unwrap_or_default();
            outcome.faults.push(format!("B: {} failures {when}: {first}", figures.failures));
        }
    }
    if let Some(due) = &outcome.due {
        if due.arrived < due.due {
            outcome.faults.push(format!("A: {} of {} {}", due.arrived, due.due, due.what));
        }
        outcome.faults.extend(due.broken.iter().cloned());
    }
}

fn p99(figures: &Figures, kind: usize) -> f64 {
    figures.latency[kind].micros(0.99)
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("{:<18}", "case");
    for kind in KINDS {
        let _ = write!(text, "{:>16}", format!("{kind} ms"));
    }
    let _ = writeln!(text, "{:>10}{:>16}{:>9}  verdict", "own ms", "A due/arrived", "RSS MiB");
    for outcome in outcomes {
        text.push_str(&rows(outcome));
        text.push('\n');
    }
    let passed = outcomes.iter().filter(|outcome| outcome.faults.is_empty()).count();
    let _ = writeln!(text, "{passed} of {} passed; p99 quiet → storm", outcomes.len());
    text.push_str("own: p99 of how late B's own thread woke up in the storm; where it is high, ");
    text.push_str("the machine was busy with something else\n");
    text
}

/// One line of the table, and below it why the case did not pass.
fn rows(outcome: &Outcome) -> String {
    let mut text = format!("{:<18}", outcome.name);
    for kind in 0..KINDS.len() {
        let [quiet, storm] =
            [&outcome.quiet, &outcome.storm].map(|figures| p99(figures, kind) / 1e3);
        let _ = write!(text, "{:>16}", format!("{quiet:.1} → {storm:.1}"));
    }
    let due = outcome.due.as_ref();
    let due = due.map_or("-".into(), |due| format!("{}/{}", due.due, due.arrived));
    let verdict = if outcome.faults.is_empty() { "pass" } else { "FAIL" };
    let own = outcome.storm.lateness.micros(0.99) / 1e3;
    let _ = write!(text, "{own:>10.1}{due:>16}");
    let _ = write!(text, "{:>9.0}  {verdict}", outcome.peak_bytes as f64 / MIB);
    for fault in &outcome.faults {
        let _ = write!(text, "\n    {fault}");
    }
    text
}

fn outcome_json(outcome: &Outcome) -> Value {
    let phase = |figures: &Figures| {
        let p99s = KINDS
            .iter()
            .enumerate()
            .map(|(kind, name)| ((*name).to_owned(), Value::from(p99(figures, kind) / 1e3)));
        Value::Object(p99s.collect())
    };
    let due = outcome.due.as_ref();
    json!({
        "case": outcome.name,
        "quiet_p99_ms": phase(&outcome.quiet),
        "storm_p99_ms": phase(&outcome.storm),
        "own_lateness_p99_ms": outcome.storm.lateness.micros(0.99) / 1e3,
        "due": due.map(|due| due.due),
        "arrived": due.map(|due| due.arrived),
        "peak_bytes": outcome.peak_bytes,
        "faults": outcome.faults,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(quiet_ms: u64, storm_ms: u64, due: Due) -> Outcome {
        let figures = |ms: u64| {
            let mut figures = Figures::default();
            for histogram in &mut figures.latency {
                histogram.record(Duration::from_millis(ms));
            }
            figures
        };
        let (quiet, storm) = (figures(quiet_ms), figures(storm_ms));
        let (peak_bytes, faults) = (0, Vec::new());
        Outcome { name: "case", quiet, storm, due: Some(due), peak_bytes, faults }
    }

    #[test]
    fn a_case_passes_by_the_larger_of_two_bars_and_with_everything_arrived() {
        let faults = |quiet, storm, due, arrived| {
            let mut outcome = outcome(quiet, storm, Due::new("deliveries", due, arrived));
            judge(&mut outcome);
            outcome.faults.len()
        };
        assert_eq!(faults(2, 99, 5, 5), 0);
        assert_eq!(faults(30, 140, 5, 5), 0);
        assert_eq!(faults(2, 140, 5, 5), KINDS.len());
        assert_eq!(faults(2, 9, 5, 4), 1);
    }
}
