//! `restive doctor`: checks what a server needs (schema, data folder, database, disk, clock, port,
//! certificate) and says what to do about what is wrong. It changes nothing: whether the folder is
//! writable is asked, not tried.

use crate::args::{Doctor, Storage};
use crate::outside::System;
use crate::{data, output, restore, tls};
use anyhow::Context as _;
use api::Outside as _;
use api::keys::Keyring;
use rustix::fs::{Access, access};
use serde_json::{Value, json};
use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use store::sqlite::{self, Depth, ServedSchema};

/// With less free space the server uses smaller log files, and soon refuses writes.
const LITTLE_SPACE_BYTES: u64 = 1 << 30;
/// With less a start may fail.
const NO_SPACE_BYTES: u64 = 64 << 20;
/// A check of a larger database takes longer than people wait without a word.
const LARGE_BYTES: u64 = 256 << 20;
/// A clock before this time (2026-01-01) is wrong: the program is newer.
const EARLIEST: Duration = Duration::from_secs(1_767_225_600);
/// A file may be this much newer than the clock: other machines write it, too.
const AHEAD: Duration = Duration::from_secs(120);
/// A certificate that expires sooner should be renewed now.
const RENEW: Duration = Duration::from_secs(14 * 86_400);

/// The result of one check.
struct Finding {
    name: &'static str,
    status: Status,
    message: String,
    /// What to do.
    advice: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Ok,
    Warning,
    Failed,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Warning => "warning",
            Status::Failed => "failed",
        }
    }
}

impl Finding {
    fn ok(name: &'static str, message: impl Into<String>) -> Finding {
        Finding { name, status: Status::Ok, message: message.into(), advice: None }
    }

    fn warning(name: &'static str, message: impl Into<String>, advice: &str) -> Finding {
        let (status, advice) = (Status::Warning, Some(advice.to_owned()));
        Finding { name, status, message: message.into(), advice }
    }

    fn failed(name: &'static str, message: impl Into<String>, advice: &str) -> Finding {
        Finding { status: Status::Failed, ..Finding::warning(name, message, advice) }
    }
}

pub fn run(doctor: &Doctor) -> anyhow::Result<ExitCode> {
    let folder = &doctor.data.data;
    let (is_served, unknown) = match folder.is_dir().then(|| data::is_folder_served(folder)) {
        Some(Ok(is_served)) => (is_served, None),
        Some(Err(error)) => (false, Some(unreadable("data", &error))),
        None => (false, None),
    };
    let is_known = unknown.is_none();
    let mut findings = vec![schema(doctor)];
    findings.push(unknown.unwrap_or_else(|| data_folder(folder, is_served)));
    findings.extend(owners(folder));
    findings.extend(database(&doctor.data, is_known && !is_served));
    findings.extend(fit(doctor));
    findings.push(disk(folder));
    findings.push(clock(folder));
    findings.push(port(doctor, is_served));
    findings.extend(certificates(doctor));
    let healthy = findings.iter().all(|finding| finding.status != Status::Failed);
    if doctor.output.json {
        let checks: Vec<Value> = findings.iter().map(shown).collect();
        output::print_json(&json!({ "ok": healthy, "checks": checks }))?;
    } else {
        output::print(&findings.iter().map(line).collect::<String>())?;
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn shown(finding: &Finding) -> Value {
    json!({
        "name": finding.name,
        "status": finding.status.word(),
        "message": finding.message,
        "advice": finding.advice,
    })
}

fn line(finding: &Finding) -> String {
    let Finding { name, status, message, advice } = finding;
    let advice = advice.as_ref().map(|advice| format!("{:21}what to do: {advice}\n", ""));
    format!("{:<9}{name:<12}{message}\n{}", status.word(), advice.unwrap_or_default())
}

fn schema(doctor: &Doctor) -> Finding {
    let file = doctor.schema.or_local();
    let named = match &file.schema {
        Some(path) => path.display().to_string(),
        None => "the built-in bookshop".to_owned(),
    };
    match data::schema(&file) {
        Ok(schema) => {
            let count = schema.routed().filter(|(_, one)| one.builtin.is_none()).count();
            Finding::ok("schema", format!("{named}, {count} collections"))
        }
        Err(error) => {
            let advice = "correct the file; `restive check` shows the errors alone";
            Finding::failed("schema", format!("{error:#}"), advice)
        }
    }
}

fn data_folder(folder: &Path, is_served: bool) -> Finding {
    let (name, shown) = ("data", folder.display());
    if !folder.exists() {
        return to_be_created(folder);
    }
    if !folder.is_dir() {
        return Finding::failed(
            name,
            format!("{shown} is no folder"),
            "choose another with --data",
        );
    }
    if is_served {
        return Finding::ok(name, format!("{shown} is in use by a running server"));
    }
    match access(folder, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(name, format!("{shown} is writable, and no server runs")),
        Err(error) => Finding::failed(name, format!("{shown} is not writable: {error}"), OWNER),
    }
}

/// Whether the first start can create the folder.
fn to_be_created(folder: &Path) -> Finding {
    let (name, shown) = ("data", folder.display());
    if folder.symlink_metadata().is_ok() {
        let message = format!("{shown} is a link that leads nowhere");
        return Finding::failed(name, message, "remove the link, or choose another with --data");
    }
    let above = folder.ancestors().skip(1).find(|above| above.exists());
    let above = above.filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
    match access(above, Access::WRITE_OK | Access::EXEC_OK) {
        Ok(()) => Finding::ok(name, format!("{shown} does not exist; the first start creates it")),
        Err(error) => {
            let message = format!("{shown} cannot be created in {}: {error}", above.display());
            Finding::failed(name, message, OWNER)
        }
    }
}

/// What to do about missing permissions.
const OWNER: &str = "let the user of the server own the folder and everything in it (chown -R), or \
                     choose another folder with --data";

/// Files of another user than the folder: a server that runs as the owner cannot open them.
fn owners(folder: &Path) -> Option<Finding> {
    let owner = fs::metadata(folder).ok()?.uid();
    let entries = fs::read_dir(folder).ok()?.filter_map(Result::ok);
    let foreign = |entry: &fs::DirEntry| entry.metadata().is_ok_and(|about| about.uid() != owner);
    let names: Vec<String> = entries
        .filter(foreign)
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .take(NAMED)
        .collect();
    if names.is_empty() {
        return None;
    }
    let message =
        format!("{} belong(s) to another user than {}", names.join(", "), folder.display());
    Some(Finding::failed("owner", message, OWNER))
}

/// Files that a message names.
const NAMED: usize = 5;

/// An error whose cause decides what helps: only damage is a reason for a backup.
fn unreadable(name: &'static str, error: &anyhow::Error) -> Finding {
    let denied = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.kind() == ErrorKind::PermissionDenied)
    };
    let message = format!("{error:#}");
    let advice = match error.chain().any(denied) || message.contains("may this user write there") {
        true => OWNER,
        false => "see the message; `restive serve` would stop with it",
    };
    Finding::failed(name, message, advice)
}

/// Whether the database opens and, if it is a file that nothing changes in the meantime, whether it
/// is damaged.
fn database(storage: &Storage, is_at_rest: bool) -> Option<Finding> {
    let name = "database";
    let is_file = storage.database.is_none();
    if is_file && let Err(error) = restore::refuse_interrupted(&storage.data) {
        let advice = "see the message; `restive serve` would stop with it";
        return Some(Finding::failed(name, format!("{error:#}"), advice));
    }
    if is_file && let Some(finding) = damage(&storage.data.join(data::DATABASE), is_at_rest)? {
        return Some(finding);
    }
    let read = || {
        let (schema, store) = data::attach(storage)?;
        let keyring = Keyring { schema: &schema, store: &*store, outside: &System::new() };
        data::block_on(async { Ok(keyring.accounts().await?.len()) })
    };
    Some(match read() {
        Ok(accounts) => {
            let checked = if is_file && is_at_rest { ", no damage found" } else { "" };
            let ending = if accounts == 1 { "" } else { "s" };
            Finding::ok(name, format!("opens, {accounts} account{ending}{checked}"))
        }
        Err(error) => unreadable(name, &error),
    })
}

/// What is wrong with the database's file. Nothing at all if there is no file.
fn damage(file: &Path, is_at_rest: bool) -> Option<Option<Finding>> {
    let name = "database";
    let bytes = fs::metadata(file).ok()?.len();
    if let Err(error) = access(file, Access::READ_OK | Access::WRITE_OK) {
        let message = format!("{} cannot be read and written: {error}", file.display());
        return Some(Some(Finding::failed(name, message, OWNER)));
    }
    if !is_at_rest {
        return Some(None);
    }
    if bytes > LARGE_BYTES {
        eprintln!("checking a database of {} MiB; this may take a while", bytes >> 20);
    }
    Some(match sqlite::damage(file, Depth::Quick) {
        Ok(None) => None,
        Ok(Some(damage)) => {
            let advice = "restore a backup: restive restore FILE --replace";
            let message = format!("{} is damaged: {damage}", file.display());
            Some(Finding::failed(name, message, advice))
        }
        Err(error) => Some(unreadable(name, &error.into())),
    })
}

/// Whether a server would serve the data with this schema, as it checks at its start.
fn fit(doctor: &Doctor) -> Option<Finding> {
    if doctor.data.database.is_some() {
        return None;
    }
    let (name, file) = ("fit", doctor.data.data.join(data::DATABASE));
    let (schema, text) = data::schema_and_text(&doctor.schema.or_local()).ok()?;
    if !file.exists() {
        return None;
    }
    let edition = ServedSchema { text: Some(text), ..ServedSchema::default() };
    match sqlite::review(&file, &schema, &edition) {
        Ok(()) => Some(Finding::ok(name, "the stored data fits the schema")),
        Err(store::Error::Refused(reasons)) => {
            let advice = "change the schema, or accept the edits: `restive serve --help` shows how";
            Some(Finding::failed(name, reasons.join("; "), advice))
        }
        // The check of the database says it.
        Err(_) => None,
    }
}

fn disk(folder: &Path) -> Finding {
    let existing = folder.ancestors().find(|one| one.is_dir()).unwrap_or(Path::new("."));
    let existing = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
    let free = match rustix::fs::statvfs(existing) {
        Ok(disk) => disk.f_bavail.saturating_mul(disk.f_frsize),
        Err(error) => {
            let message = format!("the free space cannot be read: {error}");
            return Finding::warning("disk", message, "check the file system");
        }
    };
    let message = format!("{} MiB free", free >> 20);
    match free {
        0..NO_SPACE_BYTES => {
            Finding::failed("disk", message, "free space, or move the data folder")
        }
        NO_SPACE_BYTES..LITTLE_SPACE_BYTES => Finding::warning(
            "disk",
            message,
            "free space: writes are refused when the disk is full",
        ),
        _ => Finding::ok("disk", message),
    }
}

fn clock(folder: &Path) -> Finding {
    let now = SystemTime::now();
    let shown = System::new().now().to_iso();
    let advice = "set the clock, and keep it right with NTP: signatures and expiry depend on it";
    if now.duration_since(UNIX_EPOCH).unwrap_or_default() < EARLIEST {
        return Finding::failed("clock", format!("{shown} is in the past"), advice);
    }
    let written = fs::metadata(folder.join(data::DATABASE)).and_then(|file| file.modified());
    if written.is_ok_and(|written| written > now + AHEAD) {
        let message = format!("{shown}, but the database was written later");
        return Finding::warning("clock", message, advice);
    }
    Finding::ok("clock", shown)
}

fn port(doctor: &Doctor, served: bool) -> Finding {
    let (name, address) = ("port", doctor.listening.listen);
    match TcpListener::bind(address) {
        Ok(_) => Finding::ok(name, format!("{address} is free")),
        Err(error) if error.kind() == ErrorKind::AddrInUse && served => {
            Finding::ok(name, format!("{address} is in use, as is the data folder"))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            let message = format!("{address} is in use by another program");
            Finding::failed(name, message, "stop it, or choose another address with --listen")
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let message = format!("{address} needs a permission");
            let advice = "choose a port from 1024 on, or give the program CAP_NET_BIND_SERVICE";
            Finding::failed(name, message, advice)
        }
        Err(error) => {
            let message = format!("{address} cannot be used: {error}");
            Finding::failed(name, message, "choose an address of this machine with --listen")
        }
    }
}

fn certificates(doctor: &Doctor) -> Vec<Finding> {
    let name = "certificate";
    let read = tls::expiries(&doctor.listening.tls).context("the certificate cannot be used");
    let expiries = match read {
        Ok(expiries) => expiries,
        Err(error) => {
            let advice = "give a PEM chain and its key: --tls-cert and --tls-key";
            return vec![Finding::failed(name, format!("{error:#}"), advice)];
        }
    };
    let check = |(file, end): (String, Option<SystemTime>)| {
        let Some(end) = end else {
            return Finding::warning(name, format!("{file}: no end of validity"), "renew it");
        };
        match end.duration_since(SystemTime::now()) {
            Err(_) => Finding::failed(name, format!("{file} has expired"), "renew it"),
            Ok(left) => {
                let message = format!("{file} is valid for {} days", left.as_secs() / 86_400);
                match left < RENEW {
                    true => Finding::warning(name, message, "renew it now"),
                    false => Finding::ok(name, message),
                }
            }
        }
    };
    expiries.into_iter().map(check).collect()
}
