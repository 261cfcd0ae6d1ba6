//! The steps of a long command: prints a line when each begins and ends, and a table at the end. A
//! failed step does not stop later ones, so one run shows all failures.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

#[derive(Default)]
pub struct Summary {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    took: Duration,
    /// None when the step passed.
    failure: Option<String>,
}

/// A step that runs in a separate thread while other steps run.
pub struct Background<T> {
    name: String,
    thread: JoinHandle<(Result<T>, Duration)>,
}

impl<T: Send + 'static> Background<T> {
    pub fn start(name: &str, work: impl FnOnce() -> Result<T> + Send + 'static) -> Self {
        println!("==> {name} (in the background)");
        let thread = std::thread::spawn(move || {
            let began = Instant::now();
            (work(), began.elapsed())
        });
        Self { name: name.to_owned(), thread }
    }
}

impl Summary {
    /// Runs one step. Returns None on failure, so that dependent steps can be skipped.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("==> {name}");
        let began = Instant::now();
        let result = work();
        self.record(name, result, began.elapsed())
    }

    /// Waits for a background step and records it as if it had run here.
    pub fn join<T>(&mut self, step: Background<T>) -> Option<T> {
        let (result, took) = step
            .thread
            .join()
            .unwrap_or_else(|_| (Err(anyhow!("its thread panicked, see above")), Duration::ZERO));
        self.record(&step.name, result, took)
    }

    /// Waits for a group of steps with a separate summary.
    pub fn join_all(&mut self, steps: JoinHandle<Summary>, name: &str) {
        match steps.join() {
            Ok(other) => self.rows.extend(other.rows),
            Err(_) => self.not_run(name, "its thread panicked, see above"),
        }
    }

    fn record<T>(&mut self, name: &str, result: Result<T>, took: Duration) -> Option<T> {
        let (value, failure) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("<== {name}: {verdict} ({:.1} s)", took.as_secs_f64());
        if let Some(failure) = &failure {
            println!("    {failure}");
        }
        self.rows.push(Row { name: name.to_owned(), took, failure });
        value
    }

    /// Records a step that was not run because an earlier one failed: a failure too.
    pub fn not_run(&mut self, name: &str, because: &str) {
        println!("==> {name}: NOT RUN, {because}");
        let failure = Some(format!("not run: {because}"));
        self.rows.push(Row { name: name.to_owned(), took: Duration::ZERO, failure });
    }

    /// Prints the table; an error when any step failed.
    pub fn finish(self) -> Result<()> {
        print!("\n{}", self.table());
        let failed = self.rows.iter().filter(|row| row.failure.is_some()).count();
        if failed > 0 {
            bail!("{failed} of {} steps failed", self.rows.len());
        }
        println!("all {} steps passed", self.rows.len());
        Ok(())
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for row in &self.rows {
            let verdict = row.failure.as_deref().map_or("ok", first_line);
            let seconds = row.took.as_secs_f64();
            table.push_str(&format!("{:width$}  {seconds:>7.1} s  {verdict}\n", row.name));
        }
        table
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or("failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_failed_step_fails_the_whole_and_the_next_still_runs() {
        let mut summary = Summary::default();
        assert_eq!(summary.step("first", || Err::<(), _>(anyhow!("broken\ndetail"))), None);
        assert_eq!(summary.step("second", || Ok(2)), Some(2));
        let table = summary.table();
        assert!(table.contains("broken") && !table.contains("detail"), "{table}");
        assert!(summary.finish().is_err());
    }

    #[test]
    fn a_step_that_was_not_run_is_a_failure() {
        let mut summary = Summary::default();
        summary.not_run("judge", "no server");
        assert!(summary.finish().is_err());
    }

    #[test]
    fn a_step_in_the_background_is_recorded_when_it_is_joined() {
        let mut summary = Summary::default();
        let value = summary.join(Background::start("value", || Ok(7)));
        assert_eq!(value, Some(7));
        let failed = Background::start("install", || Err::<(), _>(anyhow!("no registry")));
        assert_eq!(summary.join(failed), None);
        assert!(summary.table().contains("no registry"));
        assert!(summary.finish().is_err());
    }

    #[test]
    fn steps_of_another_thread_count_too_and_so_does_its_panic() {
        let mut summary = Summary::default();
        let apart = std::thread::spawn(|| {
            let mut apart = Summary::default();
            apart.step("apart", || Ok(()));
            apart
        });
        summary.join_all(apart, "group");
        assert!(summary.table().contains("apart"));
        summary.join_all(std::thread::spawn(|| panic!("as the test wants it")), "group");
        assert!(summary.table().contains("group"));
        assert!(summary.finish().is_err());
    }

    #[test]
    fn all_passed_is_success() {
        let mut summary = Summary::default();
        summary.step("only", || Ok(()));
        assert!(summary.finish().is_ok());
    }
}
