//! One process at a time hands out the events of a file: which events are in progress is known to
//! that process only. Another one may store, list and retry events, and continues when the first
//! one has ended. Knows only the lock.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The lock of an inbox. The system releases it at the end of the process, however it ends.
pub(super) struct Processing {
    inbox: PathBuf,
    lock: Option<File>,
    /// The file system has locks: no error says otherwise.
    has_locks: bool,
}

enum Lock {
    Ours(File),
    OfAnother,
    /// The file system has none, or this user may not open it: nothing keeps other processes away.
    Missing,
}

/// Errors of a file system without locks, or of a lock that this user can never open, beside those
/// that have a kind: EBADF, EINVAL, EROFS, ENOLCK, ENOSYS and ELOOP, by their numbers on Linux.
const LASTING: [i32; 6] = [9, 22, 30, 37, 38, 40];

impl Processing {
    pub fn new(inbox: &Path) -> Self {
        Self { inbox: inbox.to_owned(), lock: None, has_locks: false }
    }

    /// Takes the lock if no other process has it.
    pub fn is_ours(&mut self) -> bool {
        if self.lock.is_some() {
            return true;
        }
        match self.take() {
            Lock::Ours(file) => self.lock = Some(file),
            Lock::OfAnother => return false,
            Lock::Missing => {}
        }
        true
    }

    pub fn is_held(&self) -> bool {
        self.lock.is_some()
    }

    pub fn release(&mut self) {
        self.lock = None;
    }

    fn take(&mut self) -> Lock {
        let without = |error: io::Error| match is_lasting(&error) && !self.has_locks {
            true => Lock::Missing,
            // Such as too many open files: another process may have it.
            false => Lock::OfAnother,
        };
        let file = match self.open() {
            Ok(file) => file,
            Err(error) => return without(error),
        };
        let lock = match file.try_lock() {
            Ok(()) => Lock::Ours(file),
            Err(TryLockError::WouldBlock) => Lock::OfAnother,
            Err(TryLockError::Error(error)) => return without(error),
        };
        self.has_locks = true;
        lock
    }

    /// Who may open the inbox may open its lock.
    fn open(&self) -> io::Result<File> {
        let mut path = self.inbox.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        let is_new = !path.exists();
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let file = match opened {
            // Of another user: to lock it, it is enough to read it.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(&path)?,
            file => file?,
        };
        if is_new && let Ok(inbox) = std::fs::metadata(&self.inbox) {
            // Another user may have been faster.
            let _ = file.set_permissions(inbox.permissions());
        }
        Ok(file)
    }
}

fn is_lasting(error: &io::Error) -> bool {
    use ErrorKind::{IsADirectory, PermissionDenied, Unsupported};
    matches!(error.kind(), IsADirectory | PermissionDenied | Unsupported)
        || error.raw_os_error().is_some_and(|number| LASTING.contains(&number))
}
