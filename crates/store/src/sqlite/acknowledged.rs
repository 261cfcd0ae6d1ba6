//! What was acknowledged, in a small file next to the database: the sequence of an event that is
//! durable. A database that ends before it has lost writes that clients count on (a log file that
//! was removed, an old copy that was put back), and is refused at the start instead of served
//! shortened.
//!
//! The file is written and synced about once per second, away from the commits. So it proves that
//! at least this much was acknowledged; it does not know the writes of the last second. It names
//! its log by the epoch: a restored backup is another log, and its first mark replaces this one.

use super::tail::{HEADER_BYTES, beside, log_file};
use crate::{Error, sync_folder};
use rusqlite::{Connection, OptionalExtension};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Two places that take turns: one that was torn by a crash leaves the other.
const SLOTS: u64 = 2;
const SLOT_BYTES: usize = 64;

/// Which event of which log is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    pub epoch: u32,
    pub seq: i64,
}

impl Mark {
    /// One line: epoch, sequence, and a digest of both.
    fn encode(self) -> [u8; SLOT_BYTES] {
        let text = format!("{:010} {:019}", self.epoch, self.seq);
        let line = format!("{text} {}\n", digest(&text));
        let mut slot = [b' '; SLOT_BYTES];
        slot[..line.len()].copy_from_slice(line.as_bytes());
        slot
    }

    fn decode(slot: &[u8]) -> Option<Mark> {
        let line = std::str::from_utf8(slot).ok()?.trim_end();
        let (text, sum) = line.rsplit_once(' ')?;
        let (epoch, seq) = text.split_once(' ')?;
        let mark = Mark { epoch: epoch.parse().ok()?, seq: seq.parse().ok()? };
        (sum == digest(text)).then_some(mark)
    }
}

fn digest(text: &str) -> String {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// The file's name.
pub fn file_name(path: &Path) -> PathBuf {
    beside(path, "-acknowledged")
}

/// The file, open for the server that keeps it.
pub struct MarkFile {
    file: File,
    slot: u64,
    kept: Option<Mark>,
}

impl MarkFile {
    pub fn open(path: &Path) -> Result<MarkFile, Error> {
        let name = file_name(path);
        let slots = slots(&name)?;
        let kept = slots.iter().flatten().max_by_key(|mark| mark.seq).copied();
        let newest = slots.iter().position(|slot| slot.is_some() && *slot == kept);
        let file = File::options().create(true).truncate(false).write(true).open(&name)?;
        if slots.is_empty() {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            sync_folder(folder.unwrap_or(Path::new(".")))?;
        }
        Ok(MarkFile { file, slot: newest.map_or(0, |slot| (slot as u64 + 1) % SLOTS), kept })
    }

    /// Writes and syncs, if there is something new. Needs no room on the disk but the first time.
    pub fn keep(&mut self, mark: Mark) -> io::Result<()> {
        if self.kept == Some(mark) {
            return Ok(());
        }
        self.file.write_all_at(&mark.encode(), self.slot * SLOT_BYTES as u64)?;
        self.file.sync_data()?;
        self.slot = (self.slot + 1) % SLOTS;
        self.kept = Some(mark);
        Ok(())
    }
}

/// What stands in the slots; those of an older log may still be among them.
fn slots(name: &Path) -> Result<Vec<Option<Mark>>, Error> {
    match std::fs::read(name) {
        Ok(bytes) => Ok(bytes.chunks(SLOT_BYTES).map(Mark::decode).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

/// The newest mark, of one log or of any.
fn newest(name: &Path, epoch: Option<u32>) -> Result<Option<Mark>, Error> {
    let marks = slots(name)?.into_iter().flatten();
    let marks = marks.filter(|mark| epoch.is_none_or(|epoch| mark.epoch == epoch));
    Ok(marks.max_by_key(|mark| mark.seq))
}

/// Refuses a database file that is missing or empty where there must be one. To be asked before the
/// database is opened: opening would remove the log file of an empty one.
pub fn refuse_missing(path: &Path) -> Result<(), Error> {
    let bytes = |path: &Path| match std::fs::metadata(path) {
        Ok(file) => Ok(Some(file.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::from(error)),
    };
    let state = match bytes(path)? {
        None => "is missing",
        Some(0) => "is empty",
        Some(_) => return Ok(()),
    };
    let log = log_file(path);
    if let Some(length) = bytes(&log)?.filter(|length| *length > HEADER_BYTES) {
        return Err(Error::Refused(vec![format!(
            "{} {state}, but {} holds {length} bytes of acknowledged writes. Put the database file \
             back, or restore a backup after moving both files away. Nothing was changed.",
            path.display(),
            log.display()
        )]));
    }
    refuse_emptied(path, state)
}

/// Refuses to start empty where something was acknowledged.
pub fn refuse_emptied(path: &Path, state: &str) -> Result<(), Error> {
    let mark = file_name(path);
    if let Some(seq) = newest(&mark, None)?.map(|mark| mark.seq).filter(|seq| *seq > 0) {
        return Err(Error::Refused(vec![format!(
            "{} {state}, but events up to {seq} were acknowledged from here. Put the database file \
             and its log file (-wal) back, or restore a backup. To start empty, remove {} as well.",
            path.display(),
            mark.display()
        )]));
    }
    Ok(())
}

/// Refuses a database that ends before what was acknowledged.
pub fn refuse_shortened(connection: &Connection, path: &Path) -> Result<(), Error> {
    const EPOCH: &str = "SELECT value FROM meta WHERE name = 'epoch'";
    let epoch: Option<u32> = connection.query_row(EPOCH, [], |row| row.get(0)).optional()?;
    let Some(epoch) = epoch else { return Ok(()) };
    // Read before the database: a server next to this tool may move both ahead.
    let name = file_name(path);
    let Some(mark) = newest(&name, Some(epoch))? else { return Ok(()) };
    let found = super::log::newest(connection)?.0;
    if found >= mark.seq {
        return Ok(());
    }
    Err(Error::Refused(vec![format!(
        "{} ends at event {found}, but events up to {} were acknowledged: writes are missing. Put \
         {} back if it was moved, or restore a newer backup. To accept the loss, remove {} and \
         start again. Nothing was changed.",
        path.display(),
        mark.seq,
        log_file(path).display(),
        name.display()
    )]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_slot_leaves_the_one_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data.db");
        let name = file_name(&path);
        let mark = |seq| Mark { epoch: 7, seq };
        let mut mark_file = MarkFile::open(&path).unwrap();
        for seq in 1..=5 {
            mark_file.keep(mark(seq)).unwrap();
            assert_eq!(newest(&name, None).unwrap(), Some(mark(seq)));
        }
        // One that is opened again does not overwrite the newest.
        let mut mark_file = MarkFile::open(&path).unwrap();
        mark_file.keep(mark(6)).unwrap();
        assert_eq!(slots(&name).unwrap(), [Some(mark(5)), Some(mark(6))]);
        let mut bytes = std::fs::read(&name).unwrap();
        bytes[SLOT_BYTES + 3] ^= 1;
        std::fs::write(&name, &bytes).unwrap();
        assert_eq!(newest(&name, None).unwrap(), Some(mark(5)));
        assert_eq!(newest(&name, Some(8)).unwrap(), None, "of another log");
    }
}
