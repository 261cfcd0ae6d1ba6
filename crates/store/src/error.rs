//! What can go wrong in a store. Each variant says whether a retry helps.

use std::fmt;

#[derive(Debug)]
pub enum Error {
    /// No room on the disk. Reads go on; a retry helps once there is space.
    Full,
    /// The queue of writes is full. A retry helps.
    Busy,
    /// The database server cannot be reached, or takes no connection. Nothing was written; a retry
    /// helps once it is back.
    Unavailable(Box<dyn std::error::Error + Send + Sync>),
    /// Another node has brought the tables to a newer schema file. Nothing was written; a retry
    /// helps once this node was started with that file.
    Outdated,
    /// A read ran past its deadline. The query must change.
    Timeout,
    /// The snapshot of a cursor is too old. The list must start again.
    SnapshotTooOld,
    /// The records that were asked for have more bytes than one read returns. Fewer must be asked
    /// for.
    TooLarge,
    /// The lease under which the node wrote has gone to another node. Nothing was written; the
    /// other node does it.
    LeaseLost,
    /// The schema does not fit the data on disk. The reasons say what to do.
    Refused(Vec<String>),
    /// The disk failed at the commit, and again at the rollback. The write may exist after a crash
    /// of the machine. A retry with the same idempotency key finds out.
    Unknown(Box<dyn std::error::Error + Send + Sync>),
    /// The disk or the database failed. Nothing was written.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Full => write!(f, "the disk is full"),
            Error::Busy => write!(f, "too many writes are waiting"),
            Error::Unavailable(source) => write!(f, "the database is not available: {source}"),
            Error::Outdated => write!(
                f,
                "another server has brought the database to a newer schema file; start this one \
                 with that file"
            ),
            Error::Timeout => write!(f, "the query ran past its deadline"),
            Error::SnapshotTooOld => write!(f, "too much changed since the cursor was made"),
            Error::TooLarge => write!(f, "the records have more bytes than one read returns"),
            Error::LeaseLost => write!(f, "another node has the lease"),
            Error::Refused(reasons) => write!(f, "{}", reasons.join("\n")),
            Error::Unknown(source) => {
                write!(f, "it is unknown whether the write was kept: {source}")
            }
            Error::Failed(source) => write!(f, "the store failed: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Failed(source) | Error::Unknown(source) | Error::Unavailable(source) => {
                Some(source.as_ref())
            }
            _ => None,
        }
    }
}
