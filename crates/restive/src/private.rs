//! Keeps the data from other users of the machine: what is made here is for its owner alone, and
//! what earlier releases left open is closed. SQLite, backups, journals and certificates included,
//! since the rule is the process's.

use rustix::fs::Mode;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// What others may do with a new file or folder: nothing.
const OTHERS: u32 = 0o077;
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The names of our files in a data folder, and how those of the others begin.
const OWN_NAMES: [&str; 2] = ["lock", "acme"];
const OWN_BEGINNINGS: [&str; 3] = ["restive.db", "self-signed.", "outcomes."];

/// From here on, whatever this process makes is for its owner alone.
pub fn make_private() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Closes a data folder of an earlier start to others. A folder that holds other things too may be
/// meant for others: then only our own files are closed, and the operator is told. What cannot be
/// changed is told as well, and served all the same: it may be a file system without modes.
pub fn close(folder: &Path) {
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let entries = match entries {
        Ok(entries) => entries,
        Err(error) => return warn(folder, &error),
    };
    let mut foreign = false;
    for entry in entries {
        match is_own(&entry.file_name().to_string_lossy()) {
            true => close_below(&entry.path()),
            false => foreign = true,
        }
    }
    let open = fs::metadata(folder).is_ok_and(|about| about.permissions().mode() & OTHERS != 0);
    match (open, foreign) {
        (false, _) => {}
        (true, false) => limit(folder, FOLDER_MODE),
        (true, true) => tracing::warn!(
            folder = %folder.display(),
            "other users of this machine can open the data folder. It also holds other files, so \
             its mode was not changed; use a separate folder, or run chmod 700"
        ),
    }
}

fn is_own(name: &str) -> bool {
    OWN_NAMES.contains(&name) || OWN_BEGINNINGS.iter().any(|own| name.starts_with(own))
}

/// A file of ours, or a folder with its files. Links are left alone: what they lead to is the
/// operator's.
fn close_below(path: &Path) {
    // Another command may have removed it in the meantime.
    let Ok(about) = fs::symlink_metadata(path) else { return };
    if about.is_symlink() {
        return;
    }
    if about.is_dir() {
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        entries.for_each(|entry| close_below(&entry.path()));
    }
    let mode = if about.is_dir() { FOLDER_MODE } else { FILE_MODE };
    if about.permissions().mode() & OTHERS != 0 {
        limit(path, mode);
    }
}

fn limit(path: &Path, mode: u32) {
    match fs::set_permissions(path, Permissions::from_mode(mode)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => warn(path, &error),
        _ => {}
    }
}

fn warn(path: &Path, error: &io::Error) {
    tracing::warn!(
        path = %path.display(),
        %error,
        "other users of this machine may be able to read this path: its mode cannot be changed"
    );
}
