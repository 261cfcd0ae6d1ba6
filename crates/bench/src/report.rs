//! The result: one table for people, the same rows as JSON for programs, and whether every bar
//! was met.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Figures of one run of one subject. The CPU time is user and system time of the server process. A
/// figure that was not measured is NaN and not shown.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    pub per_second: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub cpu_us: f64,
}

impl Sample {
    /// The median of each figure over the rounds: one disturbed round has no effect.
    pub fn median(rounds: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| middle(rounds.iter().map(figure).collect());
        Self {
            per_second: middle(|sample| sample.per_second),
            p50_us: middle(|sample| sample.p50_us),
            p99_us: middle(|sample| sample.p99_us),
            cpu_us: middle(|sample| sample.cpu_us),
        }
    }
}

/// 0 if empty.
fn middle(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let upper = figures.len() / 2;
    match figures.len() {
        0 => 0.0,
        count if count % 2 == 1 => figures[upper],
        _ => (figures[upper - 1] + figures[upper]) / 2.0,
    }
}

/// Two subjects measured alternately. Each round is one ratio: a slow phase of the machine affects
/// both of a pair, while the separate medians could come from different phases.
#[derive(Default)]
pub struct Pairs {
    pub limits: Vec<Sample>,
    pub ours: Vec<Sample>,
}

impl Pairs {
    /// Our figure divided by that of the limit.
    pub fn ratio(&self, figure: fn(&Sample) -> f64) -> Spread {
        let rounds = self.ours.iter().zip(&self.limits);
        Spread::of(rounds.map(|(ours, limit)| figure(ours) / figure(limit)).collect())
    }
}

/// The results of the rounds: median, minimum and maximum.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    pub middle: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    pub fn of(rounds: Vec<f64>) -> Self {
        let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Self { middle: middle(rounds), least, most }
    }
}

/// A bar: `value` against `limit`, both in `unit`. Without a limit it is only shown.
pub struct Bar {
    pub what: &'static str,
    pub value: f64,
    pub limit: Option<f64>,
    pub at_least: bool,
    pub unit: &'static str,
    /// The minimum and maximum of the rounds whose median is `value`.
    pub spread: Option<(f64, f64)>,
}

impl Bar {
    pub fn at_most(what: &'static str, value: f64, limit: f64, unit: &'static str) -> Self {
        Self { what, value, limit: Some(limit), at_least: false, unit, spread: None }
    }

    pub fn at_least(what: &'static str, value: f64, limit: f64, unit: &'static str) -> Self {
        Self { what, value, limit: Some(limit), at_least: true, unit, spread: None }
    }

    pub fn shown(what: &'static str, value: f64, unit: &'static str) -> Self {
        Self { what, value, limit: None, at_least: false, unit, spread: None }
    }

    /// Adds the range of the rounds, if there was more than one; only the median is judged.
    pub fn between(self, rounds: &Spread) -> Self {
        let spread = (rounds.least < rounds.most).then_some((rounds.least, rounds.most));
        Self { spread, ..self }
    }

    /// A value that could not be computed (0/0) meets no limit.
    pub fn passed(&self) -> bool {
        match self.limit {
            None => true,
            Some(limit) if self.at_least => self.value >= limit,
            Some(limit) => self.value <= limit,
        }
    }

    fn describe(&self) -> String {
        let sign = if self.at_least { "≥" } else { "≤" };
        let limit = self.limit.map_or(String::new(), |limit| format!(" {sign} {limit}"));
        let shown = |value: f64| format!("{value:.*}", self.digits());
        let spread = self.spread.map(|(least, most)| (shown(least), shown(most)));
        let spread = spread.map(|(least, most)| format!(" ({least} to {most})"));
        let spread = spread.unwrap_or_default();
        format!("{} {}{spread}{limit} {}", self.what, shown(self.value), self.unit)
    }

    /// One digit more than the limit, so that a missed value does not look equal to it.
    fn digits(&self) -> usize {
        let limit = self.limit.map_or(String::new(), |limit| limit.to_string());
        let of_limit = limit.split_once('.').map_or(0, |(_, behind)| behind.len());
        let of_value = if self.value >= 1_000.0 { 0 } else { 2 };
        of_value.max(of_limit + usize::from(of_limit > 0))
    }
}

struct Row {
    scenario: String,
    subject: String,
    sample: Option<Sample>,
    bar: Option<Bar>,
}

#[derive(Default)]
pub struct Report {
    rows: Vec<Row>,
    notes: Vec<String>,
}

impl Report {
    pub fn sample(&mut self, scenario: &str, subject: &str, sample: Sample, bar: Option<Bar>) {
        self.push(scenario, subject, Some(sample), bar);
    }

    /// A bar that is not a rate: memory, size, start time.
    pub fn bar(&mut self, scenario: &str, bar: Bar) {
        self.figure(scenario, "restive", bar);
    }

    /// The same for a subject.
    pub fn figure(&mut self, scenario: &str, subject: &str, bar: Bar) {
        self.push(scenario, subject, None, Some(bar));
    }

    /// A note below the table about the measurement.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn passed(&self) -> bool {
        self.rows.iter().filter_map(|row| row.bar.as_ref()).all(Bar::passed)
    }

    pub fn print(&self) {
        println!("\n{}", self.table());
        for note in &self.notes {
            println!("- {note}");
        }
    }

    pub fn save(&self, file: &Path) -> Result<()> {
        let rows: Vec<Value> = self.rows.iter().map(row_json).collect();
        let document = json!({ "passed": self.passed(), "rows": rows, "notes": self.notes });
        let text = serde_json::to_string_pretty(&document)?;
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    fn push(&mut self, scenario: &str, subject: &str, sample: Option<Sample>, bar: Option<Bar>) {
        let row = Row { scenario: scenario.to_owned(), subject: subject.to_owned(), sample, bar };
        println!("    {}", row_cells(&row).join(" | "));
        self.rows.push(row);
    }

    fn table(&self) -> String {
        let head = ["scenario", "subject", "req/s", "p50 µs", "p99 µs", "CPU µs", "bar", "verdict"];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(row_cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
        let mut table = String::new();
        for (number, line) in lines.iter().enumerate() {
            let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            table.push_str(&format!("| {} |\n", cells.collect::<Vec<_>>().join(" | ")));
            if number == 0 {
                let dashes: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
                table.push_str(&format!("| {} |\n", dashes.join(" | ")));
            }
        }
        table
    }
}

fn row_cells(row: &Row) -> [String; 8] {
    let figure = |pick: fn(&Sample) -> f64, digits: usize| {
        let value = row.sample.as_ref().map(pick).filter(|value| value.is_finite());
        value.map_or(String::new(), |value| format!("{value:.digits$}"))
    };
    let judged = row.bar.as_ref().filter(|bar| bar.limit.is_some());
    let verdict = judged.map_or("", |bar| if bar.passed() { "PASS" } else { "FAIL" });
    [
        row.scenario.clone(),
        row.subject.clone(),
        figure(|sample| sample.per_second, 0),
        figure(|sample| sample.p50_us, 0),
        figure(|sample| sample.p99_us, 0),
        figure(|sample| sample.cpu_us, 1),
        row.bar.as_ref().map_or(String::new(), Bar::describe),
        verdict.to_owned(),
    ]
}

fn row_json(row: &Row) -> Value {
    let sample = row.sample.map(|sample| {
        json!({
            "per_second": sample.per_second,
            "p50_us": sample.p50_us,
            "p99_us": sample.p99_us,
            "cpu_us": sample.cpu_us,
        })
    });
    let bar = row.bar.as_ref().map(|bar| {
        json!({
            "what": bar.what,
            "value": bar.value,
            "limit": bar.limit,
            "at_least": bar.at_least,
            "unit": bar.unit,
            "spread": bar.spread,
            "passed": bar.passed(),
        })
    });
    json!({ "scenario": row.scenario, "subject": row.subject, "sample": sample, "bar": bar })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(cpu_us: f64) -> Sample {
        Sample { per_second: 1.0, p50_us: 2.0, p99_us: 3.0, cpu_us }
    }

    #[test]
    fn the_median_ignores_an_outlier() {
        assert_eq!(Sample::median(&[sample(9.0), sample(900.0), sample(8.0)]).cpu_us, 9.0);
        assert_eq!(Sample::median(&[sample(8.0), sample(10.0)]).cpu_us, 9.0);
    }

    #[test]
    fn a_ratio_is_of_pairs_and_shows_how_far_they_were_apart() {
        // One slow spell over a whole round, and one that struck a single side.
        let limits = [10.0, 20.0, 10.0].map(sample).to_vec();
        let ours = [9.0, 18.0, 15.0].map(sample).to_vec();
        let ratio = Pairs { limits, ours }.ratio(|sample| sample.cpu_us);
        assert_eq!((ratio.middle, ratio.least, ratio.most), (0.9, 0.9, 1.5));
        let bar = Bar::at_most("ratio", ratio.middle, 1.0, "×").between(&ratio);
        assert!(bar.passed());
        assert_eq!(bar.describe(), "ratio 0.90 (0.90 to 1.50) ≤ 1 ×");
        let nothing = Pairs::default().ratio(|sample| sample.cpu_us);
        assert!(!Bar::at_least("ratio", nothing.middle, 0.5, "×").passed());
    }

    #[test]
    fn a_bar_is_met_or_missed_in_its_direction() {
        assert!(Bar::at_most("ratio", 2.0, 2.0, "×").passed());
        assert!(!Bar::at_most("ratio", 2.1, 2.0, "×").passed());
        assert!(Bar::at_least("ratio", 0.5, 0.5, "×").passed());
        assert!(!Bar::at_least("ratio", f64::NAN, 0.5, "×").passed());
        assert!(!Bar::at_most("ratio", f64::NAN, 0.5, "×").passed());
    }

    #[test]
    fn a_figure_has_the_digits_that_its_bar_needs() {
        let missed = Bar::at_most("ratio", 1.0214, 1.02, "×");
        assert_eq!(missed.describe(), "ratio 1.021 ≤ 1.02 ×");
        assert_eq!(Bar::at_least("ratio", 0.82, 0.8, "×").describe(), "ratio 0.82 ≥ 0.8 ×");
        assert_eq!(
            Bar::shown("instructions", 30_593.4, "each").describe(),
            "instructions 30593 each"
        );
    }

    #[test]
    fn one_missed_bar_fails_the_report_and_shows() {
        let mut report = Report::default();
        report.sample("get", "bare", sample(8.0), None);
        assert!(report.passed());
        report.bar("idle", Bar::at_most("memory", 50.0, 40.0, "MiB"));
        assert!(!report.passed());
        assert!(report.table().contains("memory 50.00 ≤ 40 MiB"), "{}", report.table());
    }

    #[test]
    fn a_figure_that_was_not_measured_is_omitted() {
        let mut report = Report::default();
        report.sample("drain", "restive", sample(f64::NAN), None);
        assert!(!report.table().contains("NaN"), "{}", report.table());
        assert!(row_json(&report.rows[0])["sample"]["cpu_us"].is_null());
    }
}
