//! The log on stderr, in one form: a line of JSON, or a line for people on a terminal. What the
//! program reports (`tracing`) and the access log have the same members: `time`, `level`, and
//! `message` or `event`.

use crate::args::logging::LogFormat;
use crate::outside::System;
use crate::text::{is_coloured, printable};
use api::Outside as _;
use serde_json::{Map, Value};
use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Json,
    Text { coloured: bool },
}

/// Begins to write what the program reports. Returns the form for the access log.
pub fn start(format: LogFormat) -> Form {
    let stderr = std::io::stderr();
    let form = match format {
        LogFormat::Auto if !stderr.is_terminal() => Form::Json,
        LogFormat::Json => Form::Json,
        LogFormat::Auto | LogFormat::Text => Form::Text { coloured: is_coloured(&stderr) },
    };
    let lines = Lines { form, system: System::new() };
    tracing_subscriber::fmt().with_writer(std::io::stderr).event_format(lines).init();
    form
}

impl Form {
    /// The lines of the access log in this form. They arrive as JSON.
    pub fn of_requests(self, json: &str, out: &mut String) {
        out.clear();
        for line in json.lines() {
            match serde_json::from_str(line) {
                Ok(Value::Object(line)) => self.push(&line, out),
                _ => out.push_str(line),
            }
            out.push('\n');
        }
    }

    fn push(self, line: &Map<String, Value>, out: &mut String) {
        let Form::Text { coloured } = self else {
            return push_json(line, out);
        };
        let shown = |name: &str| line.get(name).map(plain).unwrap_or_default();
        let time = shown("time");
        // The date is known to somebody who watches.
        let time = time.get(11..23).unwrap_or(&time).to_owned();
        let (tag, rest) = match line.get("event") {
            Some(Value::String(event)) if event == "request" => request(line),
            _ => (shown("level").to_uppercase(), report(line)),
        };
        let colour = if coloured { colour(line) } else { "" };
        let end = if colour.is_empty() { "" } else { "\x1b[0m" };
        let _ = write!(out, "{time} {colour}{tag:>5}{end} {rest}");
    }
}

/// Who reads a line without a program looks at these first.
const FIRST: [&str; 3] = ["time", "level", "message"];

fn push_json(line: &Map<String, Value>, out: &mut String) {
    let first = FIRST.iter().filter_map(|name| Some((*name, line.get(*name)?)));
    let rest = line.iter().map(|(name, value)| (name.as_str(), value));
    let rest = rest.filter(|(name, _)| !FIRST.contains(name));
    for (place, (name, value)) in first.chain(rest).enumerate() {
        out.push(if place == 0 { '{' } else { ',' });
        let _ = write!(out, "\"{name}\":{value}");
    }
    out.push('}');
}

/// Green: it went well. Yellow: the client erred, or a warning. Red: the service failed.
fn colour(line: &Map<String, Value>) -> &'static str {
    let status = line.get("status").and_then(Value::as_u64);
    let level = line.get("level").and_then(Value::as_str);
    match (status, level) {
        (Some(500..), _) | (_, Some("error")) => "\x1b[31m",
        (Some(400..), _) | (_, Some("warn")) => "\x1b[33m",
        (Some(_), _) => "\x1b[32m",
        _ => "",
    }
}

fn request(line: &Map<String, Value>) -> (String, String) {
    let shown = |name: &str| line.get(name).map(plain).unwrap_or_default();
    let millis = line.get("duration_us").and_then(Value::as_f64).unwrap_or_default() / 1000.0;
    let mut rest = format!("{} {} {millis:.1} ms", shown("method"), shown("path"));
    for name in ["error", "client", "account", "key", "backend", "request_id"] {
        if let Some(value) = line.get(name) {
            let _ = write!(rest, " {}", plain(value));
        }
    }
    (shown("status"), rest)
}

fn report(line: &Map<String, Value>) -> String {
    let mut rest = line.get("message").map(plain).unwrap_or_default();
    for (name, value) in line {
        if !FIRST.contains(&name.as_str()) {
            let _ = write!(rest, " {name}={}", plain(value));
        }
    }
    rest
}

/// A text without quotation marks and control characters, or another value.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        other => other.to_string(),
    }
}

/// Formats what the program reports.
struct Lines {
    form: Form,
    system: System,
}

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = event.metadata().level().as_str().to_lowercase();
        let mut fields = Fields(Map::new());
        fields.0.insert("time".into(), self.system.now().to_iso().into());
        fields.0.insert("level".into(), level.into());
        event.record(&mut fields);
        let mut line = String::new();
        self.form.push(&fields.0, &mut line);
        writeln!(writer, "{line}")
    }
}

struct Fields(Map<String, Value>);

impl Fields {
    fn insert(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().into(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.insert(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.insert(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.insert(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.insert(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.insert(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.insert(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_line() -> String {
        let members = r#"{"time":"2027-01-15T08:00:00.007Z","level":"info","event":"request",
            "request_id":"req_1","method":"GET","path":"/v1/\u001b[2J","status":404,
            "duration_us":1234,"bytes":3,"client":"127.0.0.1","error":"not_found"}"#;
        members.replace('\n', "")
    }

    fn shown(form: Form) -> String {
        let mut out = String::new();
        form.of_requests(&request_line(), &mut out);
        out
    }

    #[test]
    fn a_request_is_one_line_for_people_that_cannot_control_the_terminal() {
        let line = "GET /v1/\\u001b[2J 1.2 ms not_found 127.0.0.1 req_1\n";
        let plain = shown(Form::Text { coloured: false });
        assert_eq!(plain, format!("08:00:00.007   404 {line}"));
        let coloured = shown(Form::Text { coloured: true });
        assert_eq!(coloured, format!("08:00:00.007 \u{1b}[33m  404\u{1b}[0m {line}"));
    }

    #[test]
    fn a_report_has_its_level_message_and_fields_in_both_forms() {
        let report =
            r#"{"time":"2027-01-15T08:00:00.007Z","level":"warn","message":"full","lost":3}"#;
        let mut out = String::new();
        Form::Text { coloured: false }.of_requests(report, &mut out);
        assert_eq!(out, "08:00:00.007  WARN full lost=3\n");
        Form::Json.of_requests(report, &mut out);
        assert_eq!(out.trim_end(), report);
    }
}
