//! `restive backup FILE`: writes a consistent copy of the database, even while a server uses it.

use crate::args::Backup;
use crate::data;
use anyhow::Context as _;
use std::io::{IsTerminal as _, Write as _};
use store::Upkeep as _;

pub fn run(backup: &Backup) -> anyhow::Result<()> {
    let (_, store) = data::attach(&backup.data.data)?;
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
    println!("wrote {}", backup.file.display());
    Ok(())
}
