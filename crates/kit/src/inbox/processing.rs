//! One process at a time hands out the events of a file: which events are in progress is known to
//! that process only. Another one may store, list and retry events, and continues when the first
//! one has ended. Knows only the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// The lock of an inbox. The system releases it at the end of the process, however it ends.
pub(super) struct Processing {
    path: PathBuf,
    lock: Option<File>,
}

impl Processing {
    pub fn new(inbox: &Path) -> Self {
        let mut path = inbox.as_os_str().to_owned();
        path.push(".lock");
        Self { path: path.into(), lock: None }
    }

    /// Takes the lock if no other process has it.
    pub fn is_ours(&mut self) -> bool {
        if self.lock.is_none() {
            self.lock = self.take().ok();
        }
        self.lock.is_some()
    }

    fn take(&self) -> Result<File, TryLockError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(&self.path).map_err(TryLockError::Error)?;
        match file.try_lock() {
            // A file system without locks: SQLite's own would not work there either.
            Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Unsupported => {}
            other => other?,
        }
        Ok(file)
    }
}
