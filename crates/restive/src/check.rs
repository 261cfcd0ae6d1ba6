//! `restive check FILE`: reports all errors, as `file:line:column: message`; exit code 1 if there
//! are any.

use crate::args::Check;
use crate::output;
use crate::output::say;
use crate::outside::System;
use api::Outside as _;
use model::Schema;
use model::parse;
use model::schema::Diagnostic;
use serde_json::{Value, json};
use std::fs;
use std::process::ExitCode;

pub fn run(check: &Check) -> ExitCode {
    let name = check.file.display();
    let text = match fs::read_to_string(&check.file) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("restive: {name} cannot be read: {error}");
            return ExitCode::FAILURE;
        }
    };
    let parsed = parse::parse_at(&text, &today());
    if check.output.json {
        return as_json(check, &parsed);
    }
    match parsed {
        Ok(schema) => {
            let collections: Vec<_> = schema.routed().map(|(_, c)| c.name.as_str()).collect();
            say!("{name}: ok, {} collections: {}", collections.len(), collections.join(", "));
            ExitCode::SUCCESS
        }
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                eprintln!("{name}:{diagnostic}");
            }
            let plural = if diagnostics.len() == 1 { "" } else { "s" };
            eprintln!("{} error{plural}", diagnostics.len());
            ExitCode::FAILURE
        }
    }
}

/// The same as JSON, on standard output in both cases.
fn as_json(check: &Check, parsed: &Result<Schema, Vec<Diagnostic>>) -> ExitCode {
    let shown = |one: &Diagnostic| {
        let (line, column, message) = (one.line, one.column, &one.message);
        json!({ "line": line, "column": column, "message": message })
    };
    let errors: Vec<Value> = parsed.as_ref().err().into_iter().flatten().map(shown).collect();
    let collections = parsed
        .as_ref()
        .ok()
        .map(|schema| schema.routed().map(|(_, one)| one.name.clone()).collect::<Vec<_>>());
    let file = check.file.display().to_string();
    let report = json!({
        "file": file, "ok": parsed.is_ok(), "collections": collections, "errors": errors,
    });
    match output::print_json(&report) {
        Ok(()) if parsed.is_ok() => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// Today's date, `YYYY-MM-DD`, in UTC.
pub fn today() -> String {
    let now = System::new().now().to_iso();
    now.split('T').next().unwrap_or_default().to_owned()
}

/// Warns about a newest version in the future. Not an error at start: a wrong clock must not
/// prevent a service from starting.
pub fn warn_of_future(schema: &Schema) {
    let version = &schema.service.version;
    if *version > today() {
        tracing::warn!(%version, "the newest version lies in the future");
    }
}
