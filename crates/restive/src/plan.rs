//! `restive plan OLD NEW`: every edit with its class, the reason, and the lines that would declare
//! it; exit code 1 if one of them breaks clients or loses data.

use crate::args::{Plan, SchemaFile};
use crate::data;
use model::schema::plan::{self, Class};
use std::path::Path;
use std::process::ExitCode;

pub fn run(files: &Plan) -> anyhow::Result<ExitCode> {
    let read = |path: &Path| data::schema(&SchemaFile { schema: Some(path.to_owned()) });
    let (old, new) = (read(&files.old)?, read(&files.new)?);
    let edits = plan::plan(&old, &new);
    for edit in &edits {
        println!("{edit}");
        for line in edit.lines.iter().flat_map(|lines| lines.lines()) {
            println!("    {line}");
        }
    }
    let count = |class: Class| edits.iter().filter(|edit| edit.class == class).count();
    let (breaking, destructive) = (count(Class::NeedsVersion), count(Class::Destructive));
    println!(
        "{} safe, {breaking} in need of a version change, {destructive} destructive",
        count(Class::Safe)
    );
    Ok(match breaking + destructive {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}
