//! Where a follower continues: in memory, in a file, or wherever the caller keeps it.

use crate::client::BoxError;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

/// The last event that was processed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Checkpoint {
    /// Continue after this position.
    pub position: String,
    /// Which event it was, and its Unix seconds: to read the list of events from there if the
    /// server can no longer continue from the position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
}

impl Checkpoint {
    pub fn new(position: impl Into<String>) -> Checkpoint {
        Checkpoint { position: position.into(), ..Checkpoint::default() }
    }
}

pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send + 'a>>;

/// Keeps the checkpoint of a follower. `save` is called for every event, when the caller asks for
/// the next one: that is, when it has processed the event.
pub trait PositionStore: Send {
    fn load(&mut self) -> StoreFuture<'_, Option<Checkpoint>>;
    fn save<'a>(&'a mut self, checkpoint: &'a Checkpoint) -> StoreFuture<'a, ()>;
}

/// For programs that begin again from a given position, or from now.
#[derive(Debug, Default)]
pub(super) struct InMemory;

impl PositionStore for InMemory {
    fn load(&mut self) -> StoreFuture<'_, Option<Checkpoint>> {
        Box::pin(async { Ok(None) })
    }

    fn save<'a>(&'a mut self, _: &'a Checkpoint) -> StoreFuture<'a, ()> {
        Box::pin(async { Ok(()) })
    }
}

/// A file. It always has a complete checkpoint, even after a power failure: each one is written to
/// another file, synced, and moved over the old one.
#[derive(Debug)]
pub struct PositionFile {
    path: PathBuf,
    /// Number of the last call of `save`, from 1.
    saves: u64,
    /// The last one that is in the file. A caller may drop `save` while it writes and call it
    /// again: the writes follow one another, and an older checkpoint never replaces a newer one.
    written: Arc<Mutex<u64>>,
}

impl PositionFile {
    pub fn new(path: impl Into<PathBuf>) -> PositionFile {
        PositionFile { path: path.into(), saves: 0, written: Arc::default() }
    }
}

impl PositionStore for PositionFile {
    fn load(&mut self) -> StoreFuture<'_, Option<Checkpoint>> {
        Box::pin(async {
            let text = match fs::read(&self.path) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(named("cannot read", &self.path, &error)),
            };
            // Starting from now instead would lose events in silence.
            serde_json::from_slice(&text).map(Some).map_err(|error| {
                let what = "delete it to start from now; not a position file:";
                named(what, &self.path, &error)
            })
        })
    }

    fn save<'a>(&'a mut self, checkpoint: &'a Checkpoint) -> StoreFuture<'a, ()> {
        let (path, checkpoint) = (self.path.clone(), checkpoint.clone());
        self.saves += 1;
        let (number, written) = (self.saves, self.written.clone());
        Box::pin(async move {
            // A sync takes milliseconds, which other tasks must not wait for.
            tokio::task::spawn_blocking(move || {
                let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
                if number > *written {
                    write(&path, &checkpoint)
                        .map_err(|error| named("cannot write", &path, &error))?;
                    *written = number;
                }
                Ok(())
            })
            .await?
        })
    }
}

fn write(path: &Path, checkpoint: &Checkpoint) -> io::Result<()> {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = PathBuf::from(name);
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec(checkpoint)?)?;
    file.write_all(b"\n")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn named(what: &str, path: &Path, error: &dyn std::error::Error) -> BoxError {
    format!("{what} {}: {error}", path.display()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Poll;

    #[tokio::test]
    async fn a_file_keeps_the_last_checkpoint_and_a_damaged_one_is_refused() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("position");
        let mut file = PositionFile::new(&path);
        assert_eq!(file.load().await.unwrap(), None);
        let mut checkpoint = Checkpoint::new("28f5c67a.4");
        file.save(&checkpoint).await.unwrap();
        (checkpoint.event, checkpoint.created) = (Some("evt_1".into()), Some(1_795_001_071));
        file.save(&checkpoint).await.unwrap();
        assert_eq!(PositionFile::new(&path).load().await.unwrap(), Some(checkpoint));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else stays");
        fs::write(&path, "28f5").unwrap();
        let error = file.load().await.unwrap_err().to_string();
        assert!(error.contains("not a position file"), "{error}");
        let mut nowhere = PositionFile::new(folder.path().join("no/such/folder"));
        assert!(nowhere.save(&Checkpoint::new("1")).await.is_err());
    }

    #[tokio::test]
    async fn a_save_that_is_dropped_while_it_writes_disturbs_no_later_one() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("position");
        let mut file = PositionFile::new(&path);
        for number in 1..=100 {
            let checkpoint = Checkpoint::new(format!("28f5c67a.{number}"));
            let mut dropped = file.save(&checkpoint);
            // The first poll begins to write.
            let began = std::future::poll_fn(|cx| Poll::Ready(dropped.as_mut().poll(cx))).await;
            assert!(began.is_pending() || matches!(began, Poll::Ready(Ok(()))), "{began:?}");
            drop(dropped);
            let newer = Checkpoint::new(format!("28f5c67a.{number}1"));
            file.save(&newer).await.unwrap();
            assert_eq!(PositionFile::new(&path).load().await.unwrap(), Some(newer));
        }
    }
}
