//! The progress of a replay, and its display: a bar that is redrawn on a terminal, or a line from
//! time to time elsewhere.

use model::record::Record;
use serde_json::Value;
use std::io::{IsTerminal as _, Stderr, Write as _};
use std::time::Duration;

/// Characters of the bar.
const WIDTH: u64 = 30;
/// Interval between lines without a terminal, so that a log is not flooded.
const LINES: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub status: String,
    /// Known once the events are counted.
    pub total: Option<u64>,
    pub done: u64,
    pub succeeded: u64,
    pub dry_run: bool,
    pub error: Option<String>,
}

impl Progress {
    pub fn read(record: &Record) -> Progress {
        let fields = record.fields();
        let count = |name: &str| fields.get(name).and_then(Value::as_u64);
        let text = |name: &str| fields.get(name).and_then(Value::as_str).map(str::to_owned);
        Progress {
            status: text("status").unwrap_or_default(),
            total: count("total"),
            done: count("done").unwrap_or(0),
            succeeded: count("succeeded").unwrap_or(0),
            dry_run: fields.get("dry_run") == Some(&Value::Bool(true)),
            error: text("error"),
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "succeeded" | "failed" | "cancelled")
    }

    /// `120 of 500`.
    pub fn counts(&self) -> String {
        match self.total {
            Some(total) => format!("{} of {total}", self.done),
            None => self.done.to_string(),
        }
    }
}

pub struct Bar {
    stream: Stderr,
    redrawn: bool,
    /// Count and time at the first progress; the rate is measured from there.
    start: Option<(u64, Duration)>,
    shown: Option<(Progress, Duration)>,
}

impl Bar {
    pub fn new(stream: Stderr) -> Bar {
        let redrawn = stream.is_terminal();
        Bar { stream, redrawn, start: None, shown: None }
    }

    /// Shows the progress; `now` is monotonic.
    pub fn show(&mut self, progress: &Progress, now: Duration) {
        let (done, began) = *self.start.get_or_insert((progress.done, now));
        let seconds = now.saturating_sub(began).as_secs_f64();
        let rate = match seconds > 0.0 {
            true => progress.done.saturating_sub(done) as f64 / seconds,
            false => 0.0,
        };
        let wait = match &self.shown {
            Some((same, _)) if same == progress => true,
            Some((_, at)) => !self.redrawn && now < *at + LINES && !progress.has_ended(),
            None => false,
        };
        if wait {
            return;
        }
        // Progress that cannot be written does not stop the command.
        let _ = match self.redrawn {
            true => write!(self.stream, "\r{}\x1b[K", line(progress, rate)),
            false => writeln!(self.stream, "{}", line(progress, rate)),
        };
        let _ = self.stream.flush();
        self.shown = Some((progress.clone(), now));
    }

    /// Ends the line.
    pub fn end(&mut self) {
        if self.redrawn && self.shown.take().is_some() {
            let _ = writeln!(self.stream);
        }
    }
}

fn line(progress: &Progress, rate: f64) -> String {
    let Some(total) = progress.total else {
        return match progress.status.as_str() {
            "pending" => "waiting for the server".to_owned(),
            _ => "counting".to_owned(),
        };
    };
    // The total may have been counted before the log removed its oldest events.
    let done = progress.done.min(total);
    let share = |of: u64| (done * of).checked_div(total).unwrap_or(of);
    let filled = share(WIDTH) as usize;
    let bar = format!("{}{}", "#".repeat(filled), "-".repeat(WIDTH as usize - filled));
    format!(
        "[{bar}] {:>3} %  {}  {} succeeded  {rate:.0}/s",
        share(100),
        progress.counts(),
        progress.succeeded
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_the_progress() {
        let at = |status: &str, total, done| {
            let status = status.to_owned();
            line(&Progress { status, total, done, succeeded: 3, ..Progress::default() }, 12.6)
        };
        assert_eq!(at("pending", None, 0), "waiting for the server");
        assert_eq!(at("running", None, 0), "counting");
        let half =
            format!("[{}{}]  50 %  4 of 8  3 succeeded  13/s", "#".repeat(15), "-".repeat(15));
        assert_eq!(at("running", Some(8), 4), half);
        assert!(at("succeeded", Some(0), 0).contains("100 %"), "nothing to do is all done");
        assert!(at("running", Some(4), 9).contains("100 %"), "never more than all");
    }
}
