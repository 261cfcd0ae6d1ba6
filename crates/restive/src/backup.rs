//! `restive backup FILE`: writes a consistent copy of the database, even while a server uses it.

use crate::args::Backup;
use crate::output::tell;
use crate::{data, output};
use anyhow::Context as _;
use serde_json::json;
use std::io::{IsTerminal as _, Write as _};

pub fn run(backup: &Backup) -> anyhow::Result<()> {
    let (_, store) = data::attach(&backup.data)?;
    let interactive = std::io::stderr().is_terminal();
    let progress = move |done: u64, all: u64| {
        if interactive && all > 0 {
            let mut stderr = std::io::stderr();
            // A progress line that cannot be written does not stop the backup.
            let _ = write!(stderr, "\r{:>3} %", done * 100 / all).and_then(|()| stderr.flush());
        }
    };
    data::block_on(async {
        store
            .backup(&backup.file, Box::new(progress))
            .await
            .with_context(|| format!("{} was not written", backup.file.display()))
    })?;
    if interactive {
        eprintln!();
    }
    if backup.output.json {
        let bytes = std::fs::metadata(&backup.file).map_or(0, |file| file.len());
        let file = backup.file.display().to_string();
        return output::print_json(&json!({ "file": file, "bytes": bytes }));
    }
    tell!("wrote {}", backup.file.display())?;
    Ok(())
}
