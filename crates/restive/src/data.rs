//! Opens the schema file and the data folder for the sub-commands.

use crate::args::{SchemaFile, Storage};
use crate::{private, restore};
use anyhow::{Context as _, bail};
use model::Schema;
use model::{parse, schema};
use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use store::Store;
use store::postgres::PostgresStore;
use store::postgres::connect::Address;
use store::sqlite::{Options, Role, ServedSchema, SqliteStore};

pub const DATABASE: &str = "restive.db";
pub const LOCK: &str = "lock";
/// Attempts to take the lock. A command that checks whether a server runs holds the lock for a
/// moment; a server that starts at that moment tries again.
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
/// Errors of a file system without locks, in addition to ENOTSUP: EINVAL and ENOLCK, by their
/// numbers on Linux.
const NO_LOCKS: [i32; 2] = [22, 37];
/// EBADF: NFS grants an exclusive lock only on a file that is open for writing, and a folder cannot
/// be.
const NO_LOCK_OF_FOLDERS: i32 = 9;

/// Reads and checks a schema. The error lists all errors with file, line and column.
pub fn schema(file: &SchemaFile) -> anyhow::Result<Arc<Schema>> {
    Ok(schema_and_text(file)?.0)
}

/// The same, with the text of the schema.
pub fn schema_and_text(file: &SchemaFile) -> anyhow::Result<(Arc<Schema>, String)> {
    let Some(path) = &file.schema else {
        let text = schema::BOOKSHOP.to_owned();
        let parsed = parse::parse(&text);
        let parsed = parsed.map_err(|_| anyhow::anyhow!("the built-in schema is broken"))?;
        return Ok((Arc::new(parsed), text));
    };
    let text = fs::read_to_string(path)
        .with_context(|| format!("the schema file {} cannot be read", path.display()))?;
    match parse::parse(&text) {
        Ok(schema) => Ok((Arc::new(schema), text)),
        Err(diagnostics) => {
            let lines: Vec<String> = diagnostics
                .iter()
                .map(|diagnostic| format!("{}:{diagnostic}", path.display()))
                .collect();
            bail!("the schema has {} error(s):\n{}", lines.len(), lines.join("\n"))
        }
    }
}

/// The locks of the one server of a data folder: the lock file, which older releases check, and the
/// folder itself, so that deleting the file does not admit a second server.
pub struct Lock {
    _file: File,
    _folder: File,
}

/// Opens the data for serving; creates folder and tables if necessary. With a database, the folder
/// holds what is this node's alone.
pub fn serve(
    storage: &Storage,
    schema: Arc<Schema>,
    edition: ServedSchema,
    max_clock_difference: Duration,
) -> anyhow::Result<(Arc<dyn Store>, Lock)> {
    let folder = &storage.data;
    make(folder).with_context(|| format!("cannot create the data folder {}", folder.display()))?;
    private::close(folder);
    let lock = lock_folder(folder)?;
    store::sync_folder(folder).context("cannot sync the data folder")?;
    if storage.database.is_none() {
        restore::refuse_interrupted(folder)?;
    }
    let options = Options { edition, max_clock_difference, ..Options::default() };
    if let Some(url) = &storage.database {
        let address = Address::parse(url)?;
        let store = PostgresStore::open_with(&address, schema, options);
        let store = store.map_err(|error| unusable(&address, error))?;
        return Ok((store, lock));
    }
    let opened = SqliteStore::open_with(&folder.join(DATABASE), schema, options);
    let store = opened.map_err(|error| match error {
        store::Error::Refused(reasons) => anyhow::anyhow!(
            "cannot serve the data in {}; nothing was changed:\n  {}",
            folder.display(),
            reasons.join("\n  ")
        ),
        other => anyhow::Error::new(other)
            .context(format!("the database in {} cannot be opened", folder.display())),
    })?;
    Ok((store, lock))
}

/// The place of the data, for messages; without a password.
pub fn shown(storage: &Storage) -> String {
    let url = storage.database.as_deref();
    match url.and_then(|url| Address::parse(url).ok()) {
        Some(address) => address.shown().to_owned(),
        None => storage.data.display().to_string(),
    }
}

/// Why a database cannot be used. One line for each reason.
pub fn unusable(address: &Address, error: store::Error) -> anyhow::Error {
    let shown = address.shown();
    match error {
        store::Error::Refused(reasons) => anyhow::anyhow!(
            "cannot use the database; nothing was changed:\n  {}",
            reasons.join("\n  ")
        ),
        other => anyhow::anyhow!("cannot use the database {shown}: {other}"),
    }
}

/// Locks a data folder for one server, or for a command that must not run next to one.
pub fn lock_folder(folder: &Path) -> anyhow::Result<Lock> {
    let itself = File::open(folder)
        .with_context(|| format!("the data folder {} cannot be opened", folder.display()))?;
    let file = File::create(folder.join(LOCK))
        .with_context(|| format!("the data folder {} is not writable", folder.display()))?;
    let mut locked = 0;
    for handle in [&itself, &file] {
        match lock(handle) {
            Ok(()) => locked += 1,
            Err(TryLockError::WouldBlock) => bail!(
                "another restive serves {} already; stop it, or choose another folder with --data",
                folder.display()
            ),
            Err(TryLockError::Error(error)) if has_no_locks(handle, &error) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).context("cannot lock the data folder");
            }
        }
    }
    if locked == 0 {
        tracing::warn!(
            folder = %folder.display(),
            "the data folder cannot be locked on this file system: nothing prevents a second \
             server, which would destroy data. Start only one"
        );
    }
    Ok(Lock { _file: file, _folder: itself })
}

/// Creates a folder and its missing parents, and syncs each into its parent: a crash of the machine
/// must not lose the folder of acknowledged writes.
pub fn make(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    make(parent)?;
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
        other => other?,
    }
    store::sync_folder(parent)
}

/// Whether an error means that the file system has no locks, rather than that locking failed.
fn has_no_locks(file: &File, error: &io::Error) -> bool {
    let is_folder = || file.metadata().is_ok_and(|about| about.is_dir());
    error.kind() == io::ErrorKind::Unsupported
        || error.raw_os_error().is_some_and(|number| match number {
            NO_LOCK_OF_FOLDERS => is_folder(),
            number => NO_LOCKS.contains(&number),
        })
}

fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOCK_PAUSE),
            other => return other,
        }
    }
    file.try_lock()
}

/// Whether a server currently uses the data. Of a database that does not answer, it is assumed.
pub async fn is_served(storage: &Storage) -> anyhow::Result<bool> {
    let Some(url) = &storage.database else { return is_folder_served(&storage.data) };
    let Ok(cluster) = store::postgres::cluster::status(&Address::parse(url)?).await else {
        return Ok(true);
    };
    Ok(cluster.is_some_and(|cluster| cluster.nodes.iter().any(|node| node.alive)))
}

/// The same, of a folder.
pub fn is_folder_served(folder: &Path) -> anyhow::Result<bool> {
    for path in [folder.to_owned(), folder.join(LOCK)] {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error).context("cannot read the lock of the data folder"),
        };
        // The lock is released when the file is closed, at the end of this function.
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(true),
            // A server on this file system also runs without the lock.
            Err(TryLockError::Error(error)) if has_no_locks(&file, &error) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).context("cannot check the lock of the data folder");
            }
        }
    }
    Ok(false)
}

/// A store that a command opened, next to a server or without one.
pub struct Attached {
    store: Arc<dyn Store>,
    collections: Vec<String>,
}

impl Attached {
    /// Names of the collections with routes in the data.
    pub fn collections(&self) -> &[String] {
        &self.collections
    }

    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }
}

impl Deref for Attached {
    type Target = dyn Store;

    fn deref(&self) -> &dyn Store {
        &*self.store
    }
}

/// Opens the database, even while a server uses it. Most commands need only keys and accounts,
/// which every schema has.
pub fn attach(storage: &Storage) -> anyhow::Result<(Arc<Schema>, Attached)> {
    attach_as(storage, &SchemaFile { schema: None })
}

/// The same, for commands that need the collections of the schema.
pub fn attach_as(storage: &Storage, file: &SchemaFile) -> anyhow::Result<(Arc<Schema>, Attached)> {
    let folder = &storage.data;
    if let Some(url) = &storage.database {
        let (schema, address) = (schema(file)?, Address::parse(url)?);
        let options = Options { role: Role::Tool, ..Options::default() };
        let store = PostgresStore::open_with(&address, schema.clone(), options);
        let store = store.map_err(|error| unusable(&address, error))?;
        let collections = store.collections().to_vec();
        return Ok((schema, Attached { store, collections }));
    }
    let path = folder.join(DATABASE);
    if !path.exists() {
        bail!(
            "there is no database in {}; start `restive serve` first, or name its folder with \
             --data",
            folder.display()
        );
    }
    let schema = schema(file)?;
    let store = open_as_tool(&path, schema.clone())
        .with_context(|| format!("the database in {} cannot be opened", folder.display()))?;
    let collections = store.collections().to_vec();
    Ok((schema, Attached { store, collections }))
}

/// Opens a database next to a server, or without one.
pub fn open_as_tool(path: &Path, schema: Arc<Schema>) -> Result<Arc<SqliteStore>, store::Error> {
    let options = Options { role: Role::Tool, ..Options::default() };
    SqliteStore::open_with(path, schema, options)
}

/// Whether the schema has the collections that this database serves.
pub fn fits(schema: &Schema, store: &Attached) -> bool {
    let declared = schema.routed().map(|(_, collection)| collection);
    let declared: BTreeSet<&str> = declared.map(|collection| collection.name.as_str()).collect();
    declared == store.collections().iter().map(String::as_str).collect()
}

/// Runs a future to its end, for commands that do one thing and exit.
pub fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}
