//! `restive init`: writes a commented example schema.

use crate::args::Init;
use crate::output;
use crate::output::tell;
use anyhow::{Context as _, bail};
use std::fs;
use std::path::Path;

pub fn run(init: &Init) -> anyhow::Result<()> {
    if init.json_schema {
        return output::print(&format!("{}\n", model::schema::JSON_SCHEMA));
    }
    let file = &init.file;
    if file.exists() {
        bail!(
            "{} exists; it is not overwritten. Name another file: restive init FILE",
            file.display()
        );
    }
    write(file, model::schema::INIT)?;
    tell!("wrote {}", file.display())?;
    tell!("next: restive check {0} && restive serve --schema {0}", file.display())?;
    Ok(())
}

fn write(file: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(file, text).with_context(|| format!("{} cannot be written", file.display()))
}
