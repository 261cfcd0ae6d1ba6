//! A consistent copy while serving, by the database's own backup in small steps, under a temporary
//! name until it is whole and on the disk.

use super::connection;
use crate::{Error, sync_folder};
use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Pages copied between two reports.
const PAGES: i32 = 1_000;

pub fn backup(
    source: &Path,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), Error> {
    if target.exists() {
        return Err(Error::Refused(vec![format!(
            "{} exists already. Choose another name, or move it away.",
            target.display()
        )]));
    }
    let partial = partial_name(target);
    let copied = copy(source, &partial, progress).and_then(|()| publish(&partial, target));
    if copied.is_err() {
        let _ = std::fs::remove_file(&partial);
    }
    copied
}

fn copy(source: &Path, partial: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<(), Error> {
    let source = connection::reader(source)?;
    // One read transaction around all steps: concurrent writes cannot make the copy start again.
    source.execute_batch("BEGIN")?;
    source.query_row("SELECT count(*) FROM meta", [], |_| Ok(()))?;
    let _ = std::fs::remove_file(partial);
    let mut target = Connection::open(partial)?;
    let backup = Backup::new(&source, &mut target)?;
    loop {
        let step = backup.step(PAGES)?;
        let state = backup.progress();
        let total = u64::try_from(state.pagecount).unwrap_or(0);
        progress(total.saturating_sub(u64::try_from(state.remaining).unwrap_or(0)), total);
        match step {
            StepResult::Done => break,
            StepResult::More => {}
            _ => std::thread::sleep(std::time::Duration::from_millis(5)),
        }
    }
    drop(backup);
    source.execute_batch("COMMIT")?;
    // The copy is another log: its positions are not those of the original.
    target.execute("DELETE FROM meta WHERE name = 'epoch'", [])?;
    // A copy is one file: it must not need a log file next to it.
    target.pragma_update(None, "journal_mode", "DELETE")?;
    target.close().map_err(|(_, error)| Error::from(error))
}

/// Moves all writes of a database into its file, which needs no file next to it then, and makes it
/// another log: its positions are not those of the original.
pub fn make_one_file(path: &Path) -> Result<(), Error> {
    let connection = connection::connect(path)?;
    connection.execute("DELETE FROM meta WHERE name = 'epoch'", [])?;
    connection.pragma_update(None, "journal_mode", "DELETE")?;
    connection.close().map_err(|(_, error)| Error::from(error))?;
    File::open(path).and_then(|file| file.sync_all()).map_err(Error::from)
}

fn publish(partial: &Path, target: &Path) -> Result<(), Error> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::StorageFull => Error::Full,
        _ => Error::Failed(Box::new(error)),
    };
    File::open(partial).and_then(|file| file.sync_all()).map_err(failed)?;
    // Links instead of renaming: a file that appeared in the meantime is not overwritten.
    std::fs::hard_link(partial, target).map_err(failed)?;
    std::fs::remove_file(partial).map_err(failed)?;
    let directory = target.parent().filter(|parent| !parent.as_os_str().is_empty());
    sync_folder(directory.unwrap_or(Path::new("."))).map_err(failed)
}

fn partial_name(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".partial");
    name.into()
}
