//! `restive restore FILE`: puts a backup in the place of the database. The server must not run.
//! What was there is moved aside, never deleted.

use crate::args::{Restore, SchemaFile};
use crate::output::tell;
use crate::outside::System;
use crate::{data, output};
use anyhow::{Context as _, bail};
use api::Outside as _;
use serde_json::json;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, lchown};
use std::path::{Path, PathBuf};
use store::sqlite::{self, Depth};

/// Where the copy is checked before it replaces anything.
const CHECKED: &str = "restoring.db";
/// What SQLite and this program add to the name of a database for the files next to it.
const BESIDE: [&str; 5] = ["", "-wal", "-shm", "-journal", "-acknowledged"];
/// Those that hold writes, or say what was acknowledged. A backup has none of them; the files of a
/// server that was killed do.
const CONTENT: [&str; 3] = ["-wal", "-journal", "-acknowledged"];
/// The beginning of the names of folders with what was there before.
const ASIDE: &str = "before-restore-";
/// A check of a larger file takes longer than people wait without a word.
const LARGE_BYTES: u64 = 256 << 20;

pub fn run(restore: &Restore) -> anyhow::Result<()> {
    let folder = &restore.data.data;
    let file = &restore.file;
    if !file.is_file() {
        bail!("there is no file {}", file.display());
    }
    data::make(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let _lock = data::lock_folder(folder)?;
    let current = files_of(folder, data::DATABASE)?;
    if !current.is_empty() && !restore.replace {
        bail!(
            "{} has a database already; with --replace it is moved aside, and the backup takes its \
             place",
            folder.display()
        );
    }
    refuse_served(file, folder)?;
    let checked = folder.join(CHECKED);
    if own_files(&checked).iter().any(|left| is_same(left, file)) {
        bail!("{} is left over from another restore; move it elsewhere first", file.display());
    }
    remove(&own_files(&checked))?;
    let copied = copy_all(file, &checked).and_then(|()| check(&checked, file));
    let copied = copied.and_then(|()| sqlite::make_one_file(&checked).map_err(Into::into));
    if let Err(error) = copied {
        // The error says more than a failure to clean up would.
        let _ = remove(&own_files(&checked));
        return Err(error);
    }
    // Opening it made files next to it, which belong to the name and not to the content.
    let beside = own_files(&checked).into_iter().filter(|path| *path != checked);
    remove(&beside.collect::<Vec<_>>())?;
    give_to_owner(folder, &checked)?;
    let aside = move_aside(folder, &current)?;
    fs::rename(&checked, folder.join(data::DATABASE)).context("cannot put the backup in place")?;
    give_to_owner(folder, &folder.join(data::LOCK))?;
    store::sync_folder(folder).context("cannot sync the data folder")?;
    report(restore, aside.as_deref())
}

fn report(restore: &Restore, aside: Option<&Path>) -> anyhow::Result<()> {
    let (file, folder) = (restore.file.display(), restore.data.data.display());
    if restore.output.json {
        return output::print_json(&json!({
            "restored": file.to_string(),
            "data": folder.to_string(),
            "moved_to": aside.map(|aside| aside.display().to_string()),
        }));
    }
    tell!("restored {file} into {folder}")?;
    if let Some(aside) = aside {
        tell!("what was there is in {}", aside.display())?;
    }
    Ok(())
}

/// The files whose names begin with a name: a database and what belongs to it.
fn files_of(folder: &Path, name: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).context("cannot read the data folder")? {
        let path = entry?.path();
        let own = path.file_name().and_then(|own| own.to_str());
        // A link that leads nowhere is somebody's database, too.
        if own.is_some_and(|own| own.starts_with(name)) && !path.is_dir() {
            found.push(path);
        }
    }
    Ok(found)
}

/// A database and the files that belong to it, as far as they exist.
fn own_files(database: &Path) -> Vec<PathBuf> {
    let named = BESIDE.iter().map(|suffix| {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    });
    named.filter(|path| path.symlink_metadata().is_ok()).collect()
}

/// Gives a new file to the owner of the data folder: a restore by root must not keep the server,
/// which is another user, from starting.
pub fn give_to_owner(folder: &Path, file: &Path) -> anyhow::Result<()> {
    let (owner, own) = (fs::metadata(folder)?, fs::symlink_metadata(file)?);
    if (owner.uid(), owner.gid()) == (own.uid(), own.gid()) || own.uid() == owner.uid() {
        return Ok(());
    }
    lchown(file, Some(owner.uid()), Some(owner.gid())).with_context(|| {
        format!("cannot give {} to the owner of {}", file.display(), folder.display())
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

fn remove(files: &[PathBuf]) -> anyhow::Result<()> {
    for file in files {
        fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(())
}

/// The files of a running server change while they are copied.
fn refuse_served(file: &Path, own: &Path) -> anyhow::Result<()> {
    let named = file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
    let folder = named.parent().unwrap_or(Path::new("/"));
    if named.file_name().is_some_and(|name| name == data::DATABASE)
        && !is_same(folder, own)
        && folder.join(data::LOCK).exists()
        && data::is_folder_served(folder)?
    {
        bail!(
            "{} is in use by a server; make a backup of it: restive backup FILE --data {}",
            file.display(),
            folder.display()
        );
    }
    Ok(())
}

/// Copies a database and the files next to it that hold writes.
fn copy_all(from: &Path, to: &Path) -> anyhow::Result<()> {
    copy(from, to)?;
    let named = |path: &Path, suffix: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    for suffix in CONTENT {
        let beside = named(from, suffix);
        if beside.symlink_metadata().is_ok() {
            copy(&beside, &named(to, suffix))?;
        }
    }
    Ok(())
}

/// Refuses to start empty where a restore was interrupted after it moved the database aside.
pub fn refuse_interrupted(folder: &Path) -> anyhow::Result<()> {
    if folder.join(data::DATABASE).symlink_metadata().is_ok() || !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder).context("cannot read the data folder")? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        if name == CHECKED || name.starts_with(ASIDE) {
            bail!(
                "{0} has no database, but {name}: a restore was interrupted. Run `restive restore \
                 FILE --replace` again, or move the files of the newest {ASIDE}… back. To start \
                 empty, move {name} elsewhere",
                folder.display()
            );
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let failed = || format!("{} cannot be copied", from.display());
    let mut source = fs::File::open(from).with_context(failed)?;
    let mut target = fs::File::create(to).with_context(failed)?;
    std::io::copy(&mut source, &mut target).with_context(failed)?;
    target.flush().and_then(|()| target.sync_all()).with_context(failed)
}

/// A backup is a database of this program, with an account.
fn check(path: &Path, named: &Path) -> anyhow::Result<()> {
    if fs::metadata(path)?.len() > LARGE_BYTES {
        eprintln!("checking {}; this may take a while", named.display());
    }
    let damage = sqlite::damage(path, Depth::Whole);
    if let Some(damage) = damage.with_context(|| format!("{} cannot be read", named.display()))? {
        bail!("{} is damaged; use another backup: {damage}", named.display());
    }
    let schema = data::schema(&SchemaFile { schema: None })?;
    let opened = data::open_as_tool(path, schema.clone());
    let store = opened.with_context(|| format!("{} is not a backup", named.display()))?;
    let keyring = api::keys::Keyring { schema: &schema, store: &*store, outside: &System::new() };
    let first = data::block_on(async { Ok(keyring.first_account().await?) });
    let first = first.with_context(|| format!("{} cannot be read", named.display()))?;
    if first.is_none() {
        bail!("{} has no account; it is not a backup of a served database", named.display());
    }
    Ok(())
}

/// Moves files into a folder of their own; none if there are no files.
fn move_aside(folder: &Path, files: &[PathBuf]) -> anyhow::Result<Option<PathBuf>> {
    if files.is_empty() {
        return Ok(None);
    }
    let time = System::new().now().to_iso().replace([':', '.'], "-");
    let aside = folder.join(format!("{ASIDE}{time}"));
    fs::create_dir(&aside).with_context(|| format!("cannot create {}", aside.display()))?;
    give_to_owner(folder, &aside)?;
    // The database first: without it, a server does not start over what an interruption leaves.
    let (database, beside): (Vec<_>, Vec<_>) =
        files.iter().partition(|file| file.file_name().is_some_and(|n| n == data::DATABASE));
    for file in database.into_iter().chain(beside) {
        let Some(name) = file.file_name() else { continue };
        fs::rename(file, aside.join(name))
            .with_context(|| format!("cannot move {}", file.display()))?;
    }
    store::sync_folder(&aside).context("cannot sync the folder")?;
    Ok(Some(aside))
}
