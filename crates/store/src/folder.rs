//! What a folder of the file system can be asked for: a sync, where the file system has one.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Once;

/// The error of a call that a file system does not have for folders, besides ENOTSUP, which is
/// `Unsupported`. The same number everywhere.
const EINVAL: i32 = 22;

/// Syncs a folder, so that the files made in it survive a crash of the machine. Where the file
/// system cannot do that, nothing else is possible: it is logged once and goes on, as SQLite does.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    static WARNED: Once = Once::new();
    match File::open(folder)?.sync_all() {
        Err(error) if is_unsupported(&error) => {
            WARNED.call_once(|| {
                tracing::warn!(
                    folder = %folder.display(),
                    %error,
                    "a folder cannot be synced on this file system: a new file in it may be lost \
                     if the machine crashes"
                );
            });
            Ok(())
        }
        other => other,
    }
}

fn is_unsupported(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::Unsupported || error.raw_os_error() == Some(EINVAL)
}
