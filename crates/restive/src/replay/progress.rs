//! How far a replay has come, and how that is shown: a bar that is drawn over on a terminal, a line
//! now and then elsewhere.

use model::record::Record;
use serde_json::Value;
use std::io::{IsTerminal as _, Stderr, Write as _};
use std::time::Duration;

/// Characters of the bar.
const WIDTH: u64 = 30;
/// Between two lines where there is no terminal: a log shall tell the way, not fill up.
const LINES: Duration = Duration::from_secs(2);

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    pub status: String,
    /// Known once the events were counted.
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
    drawn_over: bool,
    /// Where and when it began to move: the rate is told from there.
    start: Option<(u64, Duration)>,
    shown: Option<(Progress, Duration)>,
}

impl Bar {
    pub fn new(stream: Stderr) -> Bar {
        let drawn_over = stream.is_terminal();
        Bar { stream, drawn_over, start: None, shown: None }
    }

    /// Shows progress at a time of a clock that only runs forward.
    pub fn show(&mut self, progress: &Progress, now: Duration) {
        let (done, began) = *self.start.get_or_insert((progress.done, now));
        let seconds = now.saturating_sub(began).as_secs_f64();
        let rate = match seconds > 0.0 {
            true => progress.done.saturating_sub(done) as f64 / seconds,
            false => 0.0,
        };
        let wait = match &self.shown {
            Some((same, _)) if same == progress => true,
            Some((_, at)) => !self.drawn_over && now < *at + LINES && !progress.has_ended(),
            None => false,
        };
        if wait {
            return;
        }
        // Progress that cannot be shown is no reason to stop.
        let _ = match self.drawn_over {
            true => write!(self.stream, "\r{}\x1b[K", line(progress, rate)),
            false => writeln!(self.stream, "{}", line(progress, rate)),
        };
        let _ = self.stream.flush();
        self.shown = Some((progress.clone(), now));
    }

    /// Leaves the line.
    pub fn end(&mut self) {
        if self.drawn_over && self.shown.take().is_some() {
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
    // A total may have been counted before the log lost its oldest events.
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
    fn a_line_tells_how_far_it_is() {
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
