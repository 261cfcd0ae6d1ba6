//! One process at a time hands out the events of a file: which events are in progress is known to
//! that process only. Another one may store, list and retry events, and continues when the first
//! one has ended. Knows only the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

/// The lock of an inbox. The system releases it at the end of the process, however it ends.
pub(super) struct Processing {
    inbox: PathBuf,
    lock: Option<Lock>,
}

enum Lock {
    Held {
        _file: File,
    },
    /// The file system has none, or the file cannot be opened: nothing keeps other processes away.
    Missing,
}

impl Processing {
    pub fn new(inbox: &Path) -> Self {
        Self { inbox: inbox.to_owned(), lock: None }
    }

    /// Takes the lock if no other process has it.
    pub fn is_ours(&mut self) -> bool {
        if self.lock.is_none() {
            self.lock = self.take();
        }
        self.lock.is_some()
    }

    pub fn is_held(&self) -> bool {
        self.lock.is_some()
    }

    pub fn release(&mut self) {
        self.lock = None;
    }

    /// None if another process has it.
    fn take(&self) -> Option<Lock> {
        let Ok(file) = self.open() else { return Some(Lock::Missing) };
        match file.try_lock() {
            Ok(()) => Some(Lock::Held { _file: file }),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Error(_)) => Some(Lock::Missing),
        }
    }

    /// Who may open the inbox may open its lock.
    fn open(&self) -> io::Result<File> {
        let mut path = self.inbox.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let is_new = !path.exists();
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path)?;
        if is_new {
            file.set_permissions(std::fs::metadata(&self.inbox)?.permissions())?;
        }
        Ok(file)
    }
}
