//! Protects the data from other users of the machine: new files are accessible to their owner only,
//! and files that earlier releases left open are closed. The rule applies to the whole process, so
//! it includes SQLite, backups, journals and certificates.

use rustix::fs::Mode;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The umask: other users get no access to new files and folders.
const OTHERS: u32 = 0o077;
const FOLDER_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// The names of our files in a data folder, and the prefixes of the others.
const OWN_NAMES: [&str; 2] = ["lock", "acme"];
const OWN_BEGINNINGS: [&str; 4] = ["restive.db", "self-signed.", "outcomes.", "proxy.sock"];

/// From here on, only the owner can access files that this process creates.
pub fn make_private() {
    rustix::process::umask(Mode::from_raw_mode(OTHERS));
}

/// Removes the access of other users to an existing data folder. A folder that also holds other
/// files may be meant for others: then only our own files are closed, and a warning is logged. A
/// path whose mode cannot be changed is logged as well, but the server starts: the file system may
/// have no modes.
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

/// Closes a file of ours, or a folder with its files. Symbolic links are not followed: their
/// targets belong to the operator.
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
