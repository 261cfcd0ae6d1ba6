//! `restive plan OLD NEW`: prints every edit with its class, the reason, and the lines that would
//! declare it; exit code 1 if an edit breaks clients or loses data.

use crate::args::{Plan, SchemaFile};
use crate::check::today;
use crate::{data, output};
use anyhow::bail;
use model::plan::{self, Class};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

pub fn run(files: &Plan) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| data::schema(&SchemaFile { schema: Some(path.to_owned()) });
    let (old, new) = (read(&files.old)?, read(&files.new)?);
    let (newest, today) = (&new.service.version, today());
    if *newest > today {
        bail!("{}: version {newest} lies in the future; today is {today}", files.new.display());
    }
    let edits = plan::plan(&old, &new);
    let report = plan::report(&edits, &old);
    if files.output.json {
        let shown = |edit: &plan::Edit| {
            json!({
                "place": edit.place,
                "class": edit.class.name(),
                "what": edit.what,
                "why": edit.why,
            })
        };
        let edits: Vec<_> = edits.iter().map(shown).collect();
        output::print_json(&json!({ "edits": edits, "report": report }))?;
    } else {
        output::print(&format!("{}\n", report.join("\n")))?;
    }
    Ok(match edits.iter().all(|edit| edit.class == Class::Safe) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
