//! The steps of a long command: a line when each begins and ends, and a table at the end.
//! A failed step does not stop the ones after it, so one run shows everything that is wrong.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

#[derive(Default)]
pub struct Summary {
    rows: Vec<Row>,
}

struct Row {
    name: String,
    took: Duration,
    /// None when the step passed.
    failure: Option<String>,
    /// Why it was left out, where this machine cannot have what it needs.
    left_out: Option<String>,
}

impl Summary {
    /// Runs one step. The value is None when it failed, so that what needs it can be left out.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Option<T> {
        println!("==> {name}");
        let began = Instant::now();
        let result = work();
        let took = began.elapsed();
        let (value, failure) = match result {
            Ok(value) => (Some(value), None),
            Err(error) => (None, Some(format!("{error:#}"))),
        };
        let verdict = if failure.is_none() { "ok" } else { "FAILED" };
        println!("<== {name}: {verdict} ({:.1} s)", took.as_secs_f64());
        if let Some(failure) = &failure {
            println!("    {failure}");
        }
        self.rows.push(Row { name: name.to_owned(), took, failure, left_out: None });
        value
    }

    /// Records a step that could not be tried because an earlier one failed: a failure too.
    pub fn not_run(&mut self, name: &str, because: &str) {
        println!("==> {name}: NOT RUN, {because}");
        let failure = Some(format!("not run: {because}"));
        self.rows.push(Row {
            name: name.to_owned(),
            took: Duration::ZERO,
            failure,
            left_out: None,
        });
    }

    /// Records a step whose means no package has, so that nobody can be asked to install them. No
    /// failure, and told at the end as loudly as one.
    pub fn left_out(&mut self, name: &str, because: &str) {
        println!("==> {name}: LEFT OUT, {because}");
        let (took, left_out) = (Duration::ZERO, Some(format!("LEFT OUT: {because}")));
        self.rows.push(Row { name: name.to_owned(), took, failure: None, left_out });
    }

    /// Prints the table; an error when any step failed.
    pub fn finish(self) -> Result<()> {
        print!("\n{}", self.table());
        let left_out = self.rows.iter().filter(|row| row.left_out.is_some()).count();
        let failed = self.rows.iter().filter(|row| row.failure.is_some()).count();
        if failed > 0 {
            bail!("{failed} of {} steps failed", self.rows.len());
        }
        match left_out {
            0 => println!("all {} steps passed", self.rows.len()),
            some => println!("{} steps passed, {some} LEFT OUT", self.rows.len() - some),
        }
        Ok(())
    }

    fn table(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
        let mut table = String::new();
        for row in &self.rows {
            let told = row.failure.as_deref().or(row.left_out.as_deref());
            let verdict = told.map_or("ok", first_line);
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
    use anyhow::anyhow;

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
    fn a_step_that_was_left_out_is_told_and_no_failure() {
        let mut summary = Summary::default();
        summary.left_out("judge", "no interpreter");
        assert!(summary.table().contains("LEFT OUT: no interpreter"));
        assert!(summary.finish().is_ok());
    }

    #[test]
    fn all_passed_is_success() {
        let mut summary = Summary::default();
        summary.step("only", || Ok(()));
        assert!(summary.finish().is_ok());
    }
}
